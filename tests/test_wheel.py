"""What an installation brings: code, conf/, the sweeper plug-in, and the command."""

import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of the wheel, built without a network."""
    wheel = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    builder = wheel.WheelBuilder(str(ROOT))
    (path,) = builder.build(directory=str(folder), versions=["standard"])
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_every_file_of_conf_and_of_the_sources_is_inside(names: dict[str, bytes]) -> None:
    conf = (path for path in (ROOT / "conf").rglob("*") if path.is_file())
    expected = {f"lpgnn/conf/{path.relative_to(ROOT / 'conf')}" for path in conf}
    for package in ("lpgnn", "hydra_plugins"):
        sources = (ROOT / "src" / package).rglob("*")
        expected |= {
            str(path.relative_to(ROOT / "src"))
            for path in sources
            if path.is_file() and "__pycache__" not in path.parts
        }
    assert expected <= names.keys()
    assert "lpgnn/conf/hydra/launcher/slurm_gpu.yaml" in expected
    others = {name for name in names if ".dist-info/" not in name} - expected
    assert others == set()


def test_hydras_namespace_stays_open_to_other_plug_ins(names: dict[str, bytes]) -> None:
    assert "hydra_plugins/__init__.py" not in names


def test_the_command_is_installed(names: dict[str, bytes]) -> None:
    (path,) = (name for name in names if name.endswith("entry_points.txt"))
    assert b"lpgnn = lpgnn.__main__:main" in names[path]
