"""Which device and which loops are taken, and what happens where numba does not work."""

import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numba import config

from lpgnn.errors import InputError
from lpgnn.kernels import Backend, machine_code, registers
from lpgnn.kernels import backend as backend_module
from lpgnn.kernels.dropout import keep_where

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def with_gpus(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


def with_broken_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend_module, "numba_problem", lambda: "ImportError: no numba")
    backend_module._log_fallback.cache_clear()


@pytest.mark.parametrize(
    ("device", "kernels", "expected"),
    [
        ("auto", "auto", Backend(CPU, True)),
        ("cpu", "auto", Backend(CPU, True)),
        ("cpu", "numba", Backend(CPU, True)),
        ("auto", "numba", Backend(CPU, True)),
        ("cpu", "torch", Backend(CPU, False)),
        ("auto", "torch", Backend(CPU, False)),
    ],
)
def test_on_a_machine_without_a_gpu(
    device: str, kernels: str, expected: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_gpus(0, monkeypatch)
    assert Backend.choose(device, kernels) == expected


@pytest.mark.parametrize(
    ("device", "kernels", "expected"),
    [
        ("auto", "auto", Backend(GPU, False)),
        ("auto", "torch", Backend(GPU, False)),
        ("auto", "numba", Backend(CPU, True)),  # the one device that they run on
        ("cpu", "auto", Backend(CPU, True)),
        ("cpu", "torch", Backend(CPU, False)),
        ("cuda", "auto", Backend(GPU, False)),
        ("cuda:1", "torch", Backend(torch.device("cuda:1"), False)),
    ],
)
def test_on_a_machine_with_gpus(
    device: str, kernels: str, expected: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_gpus(2, monkeypatch)
    assert Backend.choose(device, kernels) == expected


@pytest.mark.parametrize(
    ("device", "kernels", "gpus", "message"),
    [
        ("mps", "auto", 0, "device=mps: must be auto, cpu, cuda or cuda:N"),
        ("tpu", "auto", 0, "device=tpu: must be auto, cpu, cuda or cuda:N"),
        ("meta", "auto", 0, "device=meta: must be auto, cpu, cuda or cuda:N"),
        ("", "auto", 0, "device=: must be auto, cpu, cuda or cuda:N"),
        ("cuda", "auto", 0, "device=cuda: no usable GPU was found; choose auto or cpu"),
        ("cuda:2", "auto", 2, "device=cuda:2: must be below cuda:2: 2 GPUs were found"),
        ("cpu", "cython", 0, "kernels=cython: must be one of auto, numba, torch"),
        ("cuda", "numba", 1, "kernels=numba: needs device=cpu, not device=cuda"),
    ],
)
def test_bad_settings_are_one_line(
    device: str, kernels: str, gpus: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_gpus(gpus, monkeypatch)
    with pytest.raises(InputError) as caught:
        Backend.choose(device, kernels)
    assert str(caught.value) == message


def test_where_numba_does_not_work_torch_takes_over_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with_gpus(0, monkeypatch)
    with_broken_numba(monkeypatch)
    with caplog.at_level(logging.INFO, logger="lpgnn"):
        assert Backend.choose() == Backend(CPU, False)
        assert Backend.choose("cpu") == Backend(CPU, False)
    assert [record.getMessage() for record in caplog.records] == [
        "kernels=auto: using torch's operations, numba does not work here: ImportError: no numba"
    ]
    with pytest.raises(InputError) as caught:
        Backend.choose("cpu", "numba")
    assert str(caught.value) == ("kernels=numba: numba does not work here: ImportError: no numba")
    assert Backend.choose("cpu", "torch") == Backend(CPU, False)


def test_a_failing_first_compile_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from lpgnn.kernels import products

    def fails(*_: object) -> None:
        raise RuntimeError("LLVM ERROR\nwith a long story")

    def does_nothing(*_: object) -> None:
        pass

    try:
        for broken, problem in (
            (fails, "RuntimeError: LLVM ERROR"),
            (does_nothing, "a product of 2 and 3 is not 6"),
        ):
            backend_module.numba_problem.cache_clear()
            monkeypatch.setattr(products, "multiply", broken)
            assert backend_module.numba_problem() == problem
    finally:
        monkeypatch.undo()
        backend_module.numba_problem.cache_clear()
    assert backend_module.numba_problem() is None


EPOCH = """
import logging, sys
{block}
import torch
import lpgnn.models, lpgnn.propagation
from lpgnn.data.graph import Topology
from lpgnn.kernels import Backend
from lpgnn.models import GAT, Dropout, GraphSAGE, Shape
from lpgnn.privacy.reports import FeatureReports
from lpgnn.propagation import KProp, PreparedGraph

logging.basicConfig(format="%(name)s %(levelname)s %(message)s")
backend = Backend.choose("cpu", "{kernels}")
graph = PreparedGraph(Topology.from_edges(3, torch.tensor([[0, 1], [1, 2]])), backend)
x = KProp(2).features([FeatureReports(torch.ones(3, 16), 1.0, 0.0)], graph)
for backbone in (GAT(), GraphSAGE()):
    network = backbone.build(Shape(16, 16, 2), graph)
    drawn = network.initial_weights(generator=torch.Generator())
    weights = {{name: w[None].requires_grad_() for name, w in drawn.items()}}
    dropout = Dropout([0.5], [torch.Generator()], backend)
    logits = network.logits(weights, network.hidden(weights, x), dropout)
    torch.autograd.grad(logits.sum(), list(weights.values()))
print(backend.compiled, "numba" in sys.modules and sys.modules["numba"] is not None)
"""


def run_epoch(kernels: str, block: str = "") -> "subprocess.CompletedProcess[str]":
    program = EPOCH.format(block=block, kernels=kernels)
    command = [sys.executable, "-W", "error::UserWarning", "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_torch_kernels_never_import_numba() -> None:
    done = run_epoch("torch")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.slow
def test_the_program_above_imports_numba_for_its_own_kernels_and_warns_of_nothing() -> None:
    done = run_epoch("numba")
    assert done.returncode == 0, done.stderr
    assert (done.stdout.split(), done.stderr) == (["True", "True"], "")


@pytest.mark.slow
def test_without_numba_a_run_falls_back_with_one_line() -> None:
    done = run_epoch("auto", block='sys.modules["numba"] = None')
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["False", "False"]
    (line,) = done.stderr.splitlines()
    assert line.startswith("lpgnn WARNING kernels=auto: using torch's operations, numba does not")


def cache_hits() -> int:
    """Call a function that has just been given its files, and count what it found in them."""
    fresh: Any = registers.compiled(keep_where.py_func)  # type: ignore[attr-defined]
    x = np.ones(1, dtype=np.float32)
    fresh(np.zeros(1, dtype=np.int16), 0, 1.0, x, x)
    return sum(fresh.stats.cache_hits.values())


@pytest.mark.slow
def test_machine_code_is_kept_where_the_user_says_and_compiled_again_if_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "from lpgnn.kernels.registers import _CACHE; print(_CACHE)"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    folder = Path(done.stdout.strip())
    assert folder.parent == tmp_path
    monkeypatch.setattr(registers, "_CACHE", folder)
    assert cache_hits() == 0
    assert cache_hits() == 1
    (index,) = tmp_path.rglob("*keep_where*.nbi")
    (code,) = tmp_path.rglob("*keep_where*.nbc")
    for damaged in (index, code):
        content = bytearray(damaged.read_bytes())
        content[len(content) // 2] ^= 4
        damaged.write_bytes(content)
        assert cache_hits() == 0
    assert cache_hits() == 1  # repaired


@pytest.fixture
def no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package and a home that cannot be written to, for any user: they are files."""
    package, home = tmp_path / "package", tmp_path / "home"
    package.touch()
    home.touch()
    monkeypatch.setattr(config, "CACHE_DIR", "")
    monkeypatch.setenv("HOME", str(home))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return package


def test_machine_code_goes_to_a_temporary_folder_where_nothing_else_can_be_written(
    no_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = machine_code.cache_folder(no_folder)
    assert folder.parent == tmp_path / "temporary" / f"lpgnn-{os.getuid()}"
    assert folder.is_dir()
    assert folder.parent.stat().st_mode & 0o077 == 0  # nobody else may put code there
    assert machine_code.cache_folder(no_folder) == folder  # and it is found again
    # A home that can be written to comes first, then the package, then the user's choice.
    monkeypatch.setenv("HOME", str(tmp_path / "real_home"))
    assert machine_code.cache_folder(no_folder).parent == tmp_path / "real_home/.cache/lpgnn"
    package = tmp_path / "real_package"
    package.mkdir()
    assert machine_code.cache_folder(package).parent == package / "__pycache__"
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "chosen"))
    assert machine_code.cache_folder(package).parent == tmp_path / "chosen"


def test_a_temporary_folder_of_somebody_else_is_not_trusted(
    no_folder: Path, tmp_path: Path
) -> None:
    """Machine code is executed: a link or a file in its place could be anybody's."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    link = tmp_path / "temporary" / f"lpgnn-{os.getuid()}"
    link.symlink_to(theirs)
    folder = machine_code.cache_folder(no_folder)
    assert folder.is_dir()
    assert folder.parent == tmp_path / "temporary"
    assert folder != link
    assert not list(theirs.iterdir())


def test_a_change_of_the_sources_is_another_folder(tmp_path: Path) -> None:
    (tmp_path / "loops.py").write_text("one")
    first = machine_code.cache_folder(tmp_path)
    (tmp_path / "loops.py").write_text("two")
    assert machine_code.cache_folder(tmp_path) != first
