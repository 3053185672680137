"""The notebooks run from top to bottom, each in an empty folder."""

from pathlib import Path

import nbformat
import pytest
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


@pytest.mark.parametrize("name", ARRIVES_AT)
def test_a_notebook_runs(name: str, tmp_path: Path) -> None:
    notebook = nbformat.read(TUTORIALS / f"{name}.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "commit it without outputs"
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources=place).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    text = "".join(output.get("text", "") for output in outputs)
    for words in ARRIVES_AT[name]:
        assert words in text
