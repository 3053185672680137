import math
from dataclasses import replace
from pathlib import Path

import pytest

from lpgnn.config import Settings
from lpgnn.report.__main__ import main
from lpgnn.report.page import ranges
from report.rows import add_rows

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["results"], "error: settings=results: must be KEY=VALUE"),
        (["selection=best"], "error: selection=best: must be one of paper, released"),
        (["results_dir=nowhere"], "error: results_dir=nowhere: no rows there"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    text = capsys.readouterr().err
    assert text.startswith(message)
    assert text.count("\n") == 1


def test_a_folder_without_rows_is_refused_and_stays_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([f"results_dir={tmp_path}"]) == 2
    assert "no rows there" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_unknown_and_empty_experiments_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_rows(tmp_path, Settings(dataset="cora", y_eps=3.0), [60.0])
    for folder in (tmp_path, tmp_path / "empty"):
        assert main([f"results_dir={folder}", "experiment=nope"]) == 2
        assert "experiment=nope: must be one of budget_split, " in capsys.readouterr().err
    assert main([f"results_dir={tmp_path}", "experiment=mechanisms"]) == 2
    text = capsys.readouterr().err
    assert text == f"error: experiment=mechanisms: no rows in {tmp_path}: run it first\n"
    assert main([f"results_dir={tmp_path}", "experiment=mechanisms", "colour=blue"]) == 2
    assert capsys.readouterr().err.startswith("error: colour=blue: unknown setting; known here")
    assert not (tmp_path / "tables").exists()


def test_a_report_takes_the_overrides_of_its_run(tmp_path: Path) -> None:
    run = Settings(dataset="cora", mechanism="lp", x_eps=0.1, y_eps=math.inf, max_epochs=7)
    add_rows(tmp_path, run, [61.0, 62.0])
    words = [f"results_dir={tmp_path}", "experiment=mechanisms", "dataset=cora"]
    assert main(words) == 2
    assert main([*words, "max_epochs=7"]) == 0
    text = (tmp_path / "tables" / "mechanisms.md").read_text(encoding="utf-8")
    assert "|  | LP | – (43.2) | 61.5 ± 0.5, 2 of 10 repeats (57.8) | – (61.9) | – (58.1) |" in text
    assert "Pubmed" not in text


def test_ranges() -> None:
    assert ranges([0, 1, 2, 3, 5, 6, 9]) == "0–3, 5–6, 9"
    assert ranges([]) == ""


def test_a_folder_without_experiments_lists_its_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is the same in all runs is told once; rows of searches on the graph do not disturb."""
    first = Settings(dataset="sbm", x_eps=1.0, y_eps=1.0)
    identity = add_rows(tmp_path, first, [60.0, 62.0])
    add_rows(tmp_path, replace(first, x_eps=0.1), [50.0])
    assert main([f"results_dir={tmp_path}", "selection=paper"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("2 runs of no experiment (selection=paper):\n\n| Dataset | ε_x |")
    assert f"61.0 ± 1.0 | 2 | {identity} |" in out
    assert "| sbm | 0.1 |" in out
    assert "50.0 (1 repeat) | 1 |" in out
    assert "All of these: feature=raw, mechanism=mb, label_mechanism=rr, y_eps=1," in out
    lines = (tmp_path / "tables" / "runs.csv").read_text().splitlines()
    assert lines[0].startswith("dataset,x_eps,")
    assert any(line.endswith(f",61.0000,1.0000,2,{identity}") for line in lines)
    assert not (tmp_path / "report.html").exists()
    assert not (tmp_path / "NOTES.md").exists()
    # A graph of the benchmark has its own table there.
    (tmp_path / "benchmark").mkdir()
    (tmp_path / "benchmark" / "sbm.md").write_text("# sbm")
    assert main([f"results_dir={tmp_path}", "selection=paper"]) == 0
    assert "of no experiment" not in capsys.readouterr().out
    assert not (tmp_path / "tables" / "runs.csv").exists()
