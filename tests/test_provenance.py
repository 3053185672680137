import shutil
from pathlib import Path

import pytest
import torch
from llvmlite import binding

import lpgnn
from lpgnn import provenance
from lpgnn.kernels import Backend
from lpgnn.provenance import NOT_NUMERICS, STATIONS, engine_name, numeric_sources

PACKAGE = Path(lpgnn.__file__).parent
CPU = torch.device("cpu")


def test_the_engine_covers_the_sources_that_do_arithmetic() -> None:
    found = {path.relative_to(PACKAGE).as_posix() for path in numeric_sources()}
    for module in ("kernels/registers", "propagation/filters", "models/sage", "learners/drop"):
        assert f"{module}.py" in found
    left_out = {path.stem for path in (PACKAGE / "kernels").glob("*.py")} - {
        Path(one).stem for one in found if one.startswith("kernels/")
    }
    assert left_out == set(NOT_NUMERICS)


def test_another_model_of_cpu_is_another_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    # Seen: two CPUs with AVX512 whose rows of the same sources differ by points of accuracy.
    before = engine_name(Backend(CPU, compiled=False))
    monkeypatch.setattr(binding, "get_host_cpu_name", lambda: "another")
    provenance._cpu.cache_clear()
    try:
        assert engine_name(Backend(CPU, compiled=False)) != before
    finally:
        provenance._cpu.cache_clear()


def test_the_loops_and_the_torch_version_are_part_of_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled, plain = (engine_name(Backend(CPU, compiled=one)) for one in (True, False))
    assert compiled == engine_name(Backend(CPU, compiled=True))
    assert compiled != plain
    monkeypatch.setattr(torch, "__version__", "0.0.0")
    assert engine_name(Backend(CPU, compiled=False)) != plain


def test_a_changed_source_is_another_engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for station in STATIONS:
        shutil.copytree(PACKAGE / station, tmp_path / station)
    before = engine_name(Backend(CPU, compiled=False))
    monkeypatch.setattr(provenance, "_PACKAGE", tmp_path)
    provenance._sources.cache_clear()
    try:
        assert engine_name(Backend(CPU, compiled=False)) == before
        provenance._sources.cache_clear()
        with (tmp_path / "learners" / "adam.py").open("a") as file:
            file.write("EPSILON = 2\n")
        assert engine_name(Backend(CPU, compiled=False)) != before
    finally:
        provenance._sources.cache_clear()
