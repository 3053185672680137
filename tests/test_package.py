"""What a stranger gets: metadata that agree with each other, and files that tools can read."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import lpgnn

ROOT = Path(__file__).parents[1]
APART = ("ray", "mlflow")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_one_version_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == lpgnn.__version__ == PROJECT["version"]
    assert citation["preferred-citation"]["doi"] in (ROOT / "README.md").read_text()
    assert f"version = {{{PROJECT['version']}}}" in (ROOT / "docs/project/citing.md").read_text()
    assert f"\n## {PROJECT['version']}\n" in (ROOT / "CHANGELOG.md").read_text()


def test_pythons_that_are_named_are_tested() -> None:
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    matrix = workflow["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["python"] == named  # and must pass; what is not named may fail
    assert {one["python"] for one in matrix["include"] if not one["untried"]} <= set(named)
    assert PROJECT["requires-python"] == f">={named[0]}"


@pytest.mark.parametrize("path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda p: p.name)
def test_workflows_call_targets_that_exist(path: Path) -> None:
    assert yaml.safe_load(path.read_text())
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"run: make ([a-z-]+)", path.read_text())) <= targets


def test_every_pin_is_within_its_range() -> None:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    lines = (ROOT / "scripts" / "constraints.txt").read_text().split()
    pins = {canonicalize_name(n): v for n, _, v in (line.partition("==") for line in lines)}
    # These two ask for environments of their own.
    extras = {k: v for k, v in PROJECT["optional-dependencies"].items() if k not in APART}
    for text in (*PROJECT["dependencies"], *(one for texts in extras.values() for one in texts)):
        wanted = Requirement(text)
        if wanted.name != PROJECT["name"]:
            assert wanted.specifier.contains(pins[canonicalize_name(wanted.name)]), text
