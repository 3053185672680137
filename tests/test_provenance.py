from pathlib import Path

import pytest
import torch

import lpgnn
from lpgnn import provenance
from lpgnn.kernels import Backend
from lpgnn.provenance import NUMERICS, engine_name

PACKAGE = Path(lpgnn.__file__).parent
CPU = torch.device("cpu")


def test_the_engine_covers_the_sources_that_do_arithmetic() -> None:
    for station, modules in NUMERICS.items():
        for module in modules:
            assert (PACKAGE / station / f"{module}.py").is_file(), f"{station}/{module}"
    kernels = {path.stem for path in (PACKAGE / "kernels").glob("*.py")} - {"__init__"}
    # Users draw their noise in integers, and where machine code is kept rounds nothing.
    other = {"geometric", "plain_geometric", "machine_code"}
    assert kernels - other == set(NUMERICS["kernels"])


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
    for station, modules in NUMERICS.items():
        (tmp_path / station).mkdir()
        for module in modules:
            path = Path(station) / f"{module}.py"
            (tmp_path / path).write_bytes((PACKAGE / path).read_bytes())
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
