"""The notebooks run from top to bottom, each in an empty folder."""

import os
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

pytestmark = pytest.mark.slow

TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"
# What each of them arrives at.
ARRIVES_AT = {
    "privacy_and_accuracy": ("y_eps = inf", "labels only"),
    "own_method": (r"Sampled Laplace (Drop) & ", r"\end{tabular}", ": not refuted"),
    "users_collector_server": ("the same bytes", "received  289 of 300 nodes", ": test acc "),
}


def test_every_notebook_is_known() -> None:
    assert {path.stem for path in TUTORIALS.glob("*.ipynb")} == set(ARRIVES_AT)


@pytest.fixture(scope="module")
def kernel() -> Iterator[KernelManager]:
    """One for all notebooks: a new one imports for seconds.

    With one thread, as the tests: they fill the cores, and threads would wait for each other.
    """
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(env={**os.environ, "OMP_NUM_THREADS": "1"})
    yield manager
    manager.shutdown_kernel(now=True)


@pytest.mark.parametrize("name", ARRIVES_AT)
def test_a_notebook_runs(name: str, tmp_path: Path, kernel: KernelManager) -> None:
    notebook = nbformat.read(TUTORIALS / f"{name}.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "commit it without outputs"
    as_new = nbformat.v4.new_code_cell(f"%reset -f\n%cd -q {tmp_path}")
    notebook.cells.insert(0, as_new)
    runner = NotebookClient(notebook, km=kernel, timeout=120)
    runner.execute()
    assert runner.kc is not None
    runner.kc.stop_channels()  # the kernel is not its own, so it leaves them open
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    text = "".join(output.get("text", "") for output in outputs)
    for words in ARRIVES_AT[name]:
        assert words in text
