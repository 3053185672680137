"""Adding to lpgnn from outside: each example is one file, and nothing of lpgnn changes."""

import csv
from pathlib import Path

import pytest

from conftest import Imports
from lpgnn import run
from lpgnn.report import __main__ as report

pytestmark = pytest.mark.slow

WORKBENCH = Path(__file__).parent / "workbench"
# What each example adds, the overrides that use it, and how many lines it may have.
EXAMPLES = {
    "uniform_noise.py": (["mechanism=uniform", "mechanism.span=2"], 25),
    "neighbour_response.py": (["label_mechanism=neighbour"], 25),
    "focal_loss.py": (["learner=focal", "learner.gamma=1"], 30),
    "averaged_powers.py": (["filter=averaged", "+filter.conditioning=node"], 30),
    "soft_threshold.py": (["filter=threshold"], 25),
    "perceptron.py": (["backbone=perceptron"], 40),
    "ring.py": (["dataset.size=40"], 25),
    "worst_class.py": (["+metrics.worst=worst_class.worst_class", "metric=worst"], 10),
}
CONF = ("--config-dir", str(WORKBENCH / "conf"))


@pytest.fixture(autouse=True)
def _importable(import_anew: Imports) -> None:
    import_anew(WORKBENCH)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_one_short_file_and_runs(
    example: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overrides, most_lines = EXAMPLES[example]
    assert len((WORKBENCH / example).read_text().splitlines()) <= most_lines
    small = ["dataset=ring", "max_epochs=3", "repeats=2", f"results_dir={tmp_path}"]
    words = [*CONF, *small, *overrides, "--workers", "0"]
    assert run.main(words) == 0
    metric = "worst" if "metric=worst" in overrides else "acc"
    assert f": test {metric} " in capsys.readouterr().out.splitlines()[-2]
    assert run.main(words) == 0
    assert "2 of 2 repeats done" in capsys.readouterr().out


def test_an_experiment_of_ones_own_makes_a_table_and_a_figure_without_python(
    tmp_path: Path,
) -> None:
    words = [*CONF, f"results_dir={tmp_path}"]
    assert run.main(["+experiment=mine", *words, "--workers", "0"]) == 0
    assert report.main(["experiment=mine", *words]) == 0
    with (tmp_path / "tables" / "mine.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    # Two mechanisms and blank reports at two budgets, and labels only at both.
    assert len(rows) == 8
    assert {row["count"] for row in rows} == {"2"}
    tex = (tmp_path / "tables" / "mine.tex").read_text()
    assert tex.count(r"\pm") == 8
    for name in ("tables/mine.md", "figures/mine.png", "figures/mine.svg"):
        assert (tmp_path / name).stat().st_size > 100
