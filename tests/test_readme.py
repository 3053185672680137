"""The README's commands and code, run as they stand there.

Only ``max_epochs`` and ``repeats`` are made small, by overrides after each command.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from data.own_graph import own_graph, write_folder

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
DATA = ROOT.parent / "shared" / "data"

BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, flags=re.DOTALL)
SMALL = ("max_epochs=2", "repeats=2")
# A whole experiment takes minutes even when it is small: what it would do is enough here.
LONG = ("+experiment=value_of_features",)
NEEDS_DATA = ("dataset=cora", "dataset=pubmed", '"cora"')


def commands() -> list[str]:
    lines = [line for kind, text in BLOCKS if kind == "bash" for line in text.splitlines()]
    stripped = (line.split("#")[0].strip() for line in lines)
    return [line for line in stripped if line.startswith("python ")]


def python_blocks() -> list[str]:
    return [text for kind, text in BLOCKS if kind == "python" and "import lpgnn" in text]


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """A folder with the files that the README tells its reader to write, and the data."""
    for kind, text in BLOCKS:
        found = re.match(r"(?:# @package _global_\n)?# (\S+\.(?:py|yaml))\n", text)
        if found and kind in ("python", "yaml"):
            path = tmp_path / found[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    write_folder(own_graph(), tmp_path / "my_graph")
    if DATA.is_dir():
        (tmp_path / "data").symlink_to(DATA)
    return tmp_path


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(folder)}
    return subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=environment, timeout=300
    )


def needs_data(text: str) -> bool:
    return any(word in text for word in NEEDS_DATA) and not DATA.is_dir()


def test_the_readme_has_what_is_tested() -> None:
    assert len(commands()) >= 10
    assert len(python_blocks()) == 1


ALONE = [c for c in commands() if "lpgnn.run" in c and "mine" not in c and "reports=" not in c]


@pytest.mark.parametrize("command", ALONE)
def test_a_run_of_the_readme_works(command: str, workplace: Path) -> None:
    if needs_data(command):
        pytest.skip("the graph's files are not here")
    words = [*shlex.split(command)[1:], *SMALL]
    if any(word in command for word in LONG):
        words.append("--dry-run")
    done = run([sys.executable, *words], workplace)
    assert done.returncode == 0, done.stderr
    shown = "configurations" if "--dry-run" in words else "test acc"
    assert shown in done.stdout


def test_an_own_graph_of_the_readme_is_predicted(workplace: Path) -> None:
    (command,) = (c for c in commands() if "lpgnn.predict" in c)
    done = run([sys.executable, *shlex.split(command)[1:], *SMALL], workplace)
    assert done.returncode == 0, done.stderr
    lines = (workplace / "predictions.csv").read_text().splitlines()
    assert lines[0] == "node,predicted,p_east,p_north,p_south"
    assert len(lines) == 121


def test_the_experiment_of_the_readme_gives_its_table_and_figure(workplace: Path) -> None:
    run_command, report_command = (c for c in commands() if "my_conf" in c and "mine" in c)
    for command in (run_command, report_command):
        done = run([sys.executable, *shlex.split(command)[1:]], workplace)
        assert done.returncode == 0, done.stderr
    for name in ("tables/mine.csv", "tables/mine.md", "tables/mine.tex", "figures/mine.png"):
        assert (workplace / "results" / name).is_file(), name


def test_users_of_the_readme_send_and_a_run_learns(workplace: Path) -> None:
    steps = [c for c in commands() if "sent" in c]
    assert [next(w for w in c.split() if w.startswith("lpgnn")) for c in steps] == [
        *("lpgnn.simulate", "lpgnn.collect", "lpgnn.run"),
    ]
    if needs_data(" ".join(steps)):
        pytest.skip("the graph's files are not here")
    for command in steps:
        small = SMALL if "lpgnn.run" in command else ()
        done = run([sys.executable, *shlex.split(command)[1:], *small], workplace)
        assert done.returncode == 0, done.stderr
    assert "test acc" in done.stdout


@pytest.mark.parametrize("command", [c for c in commands() if "lpgnn.audit" in c])
def test_an_audit_of_the_readme_holds(command: str, workplace: Path) -> None:
    done = run([sys.executable, *shlex.split(command)[1:], "draws=4000"], workplace)
    assert done.returncode == 0, done.stderr
    assert "verdict  holds" in done.stdout


def test_the_notebook_code_of_the_readme_runs(workplace: Path) -> None:
    (code,) = python_blocks()
    if needs_data(code):
        pytest.skip("the graph's files are not here")
    small = code.replace("y_eps=1.0)", "y_eps=1.0, max_epochs=2)")
    assert small != code
    (workplace / "results").symlink_to(ROOT / "results")
    done = run([sys.executable, "-c", small], workplace)
    assert done.returncode == 0, done.stderr
    assert "±" in done.stdout
    assert "label_propagation" in done.stdout
