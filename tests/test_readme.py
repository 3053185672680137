"""The README's commands and code, run as they stand there.

Only ``max_epochs`` and ``repeats`` are made small, by overrides after each command, and without
``--data-dir`` graphs that come with lpgnn stand in for the published ones.
"""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from conftest import Imports
from data.own_graph import own_graph, write_folder

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()

BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, flags=re.DOTALL)
SMALL = ("max_epochs=2", "repeats=2")
# A whole experiment takes minutes even when it is small: what it would do is enough here.
LONG = ("+experiment=value_of_features",)
STAND_INS = {"cora": "sbm", "pubmed": "planted"}


def commands() -> list[str]:
    lines = [line for kind, text in BLOCKS if kind == "bash" for line in text.splitlines()]
    stripped = (line.split("#")[0].strip() for line in lines)
    return [line for line in stripped if line.startswith("python ")]


def python_blocks() -> list[str]:
    return [text for kind, text in BLOCKS if kind == "python" and "import lpgnn" in text]


class Workplace:
    """A folder with the files that the README tells its reader to write, and the data."""

    def __init__(self, folder: Path, data: Path | None) -> None:
        self.folder, self.data = folder, data
        for kind, text in BLOCKS:
            found = re.match(r"(?:# @package _global_\n)?# (\S+\.(?:py|yaml))\n", text)
            if found and kind in ("python", "yaml"):
                path = folder / found[1]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        write_folder(own_graph(), folder / "my_graph")
        if data is not None:
            (folder / "data").symlink_to(data)

    def with_its_graphs(self, text: str) -> str:
        """A command or code on graphs that can be loaded here."""
        if self.data is None:
            for published, stand_in in STAND_INS.items():
                text = re.sub(rf"\b{published}\b", stand_in, text)
        return text

    def run(self, command: str, *more: str) -> int:
        """``python -m MODULE ...`` in this process."""
        python, m, module, *words = shlex.split(self.with_its_graphs(command))
        assert (python, m) == ("python", "-m")
        spec = importlib.util.find_spec(module)
        assert spec is not None
        name = f"{module}.__main__" if spec.submodule_search_locations else module
        code: int = importlib.import_module(name).main([*words, *more])
        return code


@pytest.fixture
def workplace(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    import_anew: Imports,
    request: pytest.FixtureRequest,
) -> Workplace:
    monkeypatch.chdir(tmp_path)
    import_anew(tmp_path)
    return Workplace(tmp_path, request.config.getoption("data_dir"))


def test_the_readme_has_what_is_tested() -> None:
    assert len(commands()) >= 10
    assert len(python_blocks()) == 1


ALONE = [c for c in commands() if "lpgnn.run" in c and "mine" not in c and "reports=" not in c]


@pytest.mark.parametrize("command", ALONE)
def test_a_run_of_the_readme_works(
    command: str, workplace: Workplace, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--dry-run"] if any(word in command for word in LONG) else ["--workers", "0"]
    assert workplace.run(command, *SMALL, *more) == 0
    shown = "configurations" if "--dry-run" in [*command.split(), *more] else "test acc"
    assert shown in capsys.readouterr().out


def test_an_own_graph_of_the_readme_is_predicted(workplace: Workplace) -> None:
    (command,) = (c for c in commands() if "lpgnn.predict" in c)
    assert workplace.run(command, *SMALL) == 0
    lines = Path("predictions.csv").read_text().splitlines()
    assert lines[0] == "node,predicted,p_east,p_north,p_south"
    assert len(lines) == 121


def test_the_experiment_of_the_readme_gives_its_table_and_figure(workplace: Workplace) -> None:
    run_command, report_command = (c for c in commands() if "my_conf" in c and "mine" in c)
    assert workplace.run(run_command, "--workers", "0") == 0
    assert workplace.run(report_command) == 0
    for name in ("tables/mine.csv", "tables/mine.md", "tables/mine.tex", "figures/mine.png"):
        assert (Path("results") / name).is_file(), name


def test_users_of_the_readme_send_and_a_run_learns(
    workplace: Workplace, capsys: pytest.CaptureFixture[str]
) -> None:
    simulate, collect, run = (c for c in commands() if "sent" in c)
    assert [c.split()[2] for c in (simulate, collect, run)] == [
        *("lpgnn.simulate", "lpgnn.collect", "lpgnn.run"),
    ]
    assert workplace.run(simulate) == 0
    assert workplace.run(collect) == 0
    assert workplace.run(run, *SMALL, "--workers", "0") == 0
    assert "test acc" in capsys.readouterr().out


@pytest.mark.parametrize("command", [c for c in commands() if "lpgnn.audit" in c])
def test_an_audit_of_the_readme_holds(
    command: str, workplace: Workplace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert workplace.run(command, "draws=4000") == 0
    assert "verdict  holds" in capsys.readouterr().out


def test_the_notebook_code_of_the_readme_runs(
    workplace: Workplace, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = python_blocks()
    small = code.replace("y_eps=1.0)", "y_eps=1.0, max_epochs=2)")
    assert small != code
    Path("results").symlink_to(ROOT / "results")
    exec(compile(workplace.with_its_graphs(small), "README.md", "exec"), {"__name__": "__main__"})
    shown = capsys.readouterr().out
    assert "±" in shown
    assert "label_propagation" in shown
