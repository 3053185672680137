import csv
from pathlib import Path

import pytest

from lpgnn.config import Settings
from lpgnn.errors import InputError
from lpgnn.report import Evidence, Printed, compare, judge, verdict_counts
from lpgnn.report.comparison import write_comparison
from lpgnn.results import Summary
from report.rows import add_rows, cell_of


@pytest.mark.parametrize(
    ("mean", "ci", "verdict"),
    [
        (70.0, 0.0, "within both CIs"),
        (71.5, 0.5, "within both CIs"),  # exactly 1.0 + 0.5 apart
        (71.51, 0.5, "within 2 points"),
        (68.0, 0.9, "within 2 points"),  # exactly 2 apart
        (72.0, 0.0, "within 2 points"),
        (72.01, 0.0, "above"),
        (67.99, 0.0, "below"),
        (60.0, 9.0, "within both CIs"),  # wide intervals go before points
        (60.0, 8.9, "below"),
    ],
)
def test_verdict_against_70_plus_minus_1(mean: float, ci: float, verdict: str) -> None:
    assert judge(Printed(70.0, 1.0), Summary(mean, ci, 10)) == verdict


def test_verdict_at_a_bound_that_binary_fractions_miss() -> None:
    # 0.1 apart with half widths of 0.1 together in decimals, but not in floating point.
    assert 40.1 - 40.0 > 0.1
    assert judge(Printed(40.0, 0.1), Summary(40.1, 0.0, 10)) == "within both CIs"


def test_no_rows_is_missing() -> None:
    assert judge(Printed(70.0, 1.0), None) == "missing"


def test_counts_are_in_order_with_zeros() -> None:
    counts = verdict_counts(["below", "missing", "below"])
    assert list(counts.items()) == [
        ("within both CIs", 0),
        ("within 2 points", 0),
        ("above", 0),
        ("below", 2),
        ("unfinished", 0),
        ("missing", 1),
    ]


def test_comparison_file(tmp_path: Path) -> None:
    # Printed: 45.8 ± 3.3 for 1B on Cora at 0.01, and 84.0 ± 0.3 for MB at 2.
    identity = add_rows(
        tmp_path,
        cell_of("mechanisms", "cora", "1b", "x_eps=0.01").settings,
        [46.8] * 10,
        [60.0] * 10,
    )
    add_rows(tmp_path, cell_of("mechanisms", "cora", "mb", "x_eps=2.0").settings, [82.5] * 10)
    # Nine of ten repeats are no verdict; a failed repeat is done, and does not count.
    add_rows(tmp_path, cell_of("mechanisms", "cora", "lp", "x_eps=2.0").settings, [58.1] * 9)
    failed = cell_of("mechanisms", "cora", "lp", "x_eps=1.0").settings
    add_rows(tmp_path, failed, [61.9] * 10, failed=[3])
    base = Settings(results_dir=str(tmp_path), selection="paper")
    write_comparison(compare(base, Evidence(tmp_path)), base)
    with (tmp_path / "comparison.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 124
    assert rows[0] == {
        "table": "mechanisms",
        "dataset": "cora",
        "row": "1b",
        "column": "x_eps=0.01",
        "paper_mean": "45.8",
        "paper_ci": "3.3",
        "mean": "46.8000",
        "ci": "0.0000",
        "count": "10",
        "difference": "1.0000",
        "verdict": "within both CIs",
        "mean_released": "60.0000",
        "ci_released": "0.0000",
        "difference_released": "14.2000",
        "verdict_released": "above",
        "id": identity,
    }
    by_verdict = {row["verdict"]: row for row in rows}
    near = by_verdict["within 2 points"]
    assert (near["row"], near["count"], near["difference"]) == ("mb", "10", "-1.5000")
    unfinished = by_verdict["unfinished"]
    assert (unfinished["mean"], unfinished["count"]) == ("58.1000", "9")
    missing = by_verdict["missing"]
    assert (missing["mean"], missing["ci"], missing["difference"]) == ("", "", "")
    text = (tmp_path / "comparison.md").read_text()
    assert "| **all** | 2 | 1 | 0 | 0 | 1 | 120 | 124 |" in text
    assert "| all, selection=released | 1 | 1 | 1 | 0 | 1 | 120 | 124 |" in text


def test_the_other_rule_takes_the_extra_columns(tmp_path: Path) -> None:
    cell = cell_of("mechanisms", "cora", "1b", "x_eps=0.01")
    add_rows(tmp_path, cell.settings, [46.8] * 10, [60.0] * 10)
    base = Settings(results_dir=str(tmp_path), selection="released")
    write_comparison(compare(base, Evidence(tmp_path)), base)
    header, first = (tmp_path / "comparison.csv").read_text().splitlines()[:2]
    assert "mean_paper,ci_paper,difference_paper,verdict_paper" in header
    assert "60.0000,0.0000,10,14.2000,above,46.8000" in first


def test_ci_equals_scipys_bootstrap_of_the_same_rows(tmp_path: Path) -> None:
    import numpy as np
    from scipy.stats import bootstrap

    values = [61.25, 70.5, 66.125, 68.0, 59.75, 72.5, 64.375, 69.0, 71.625, 67.5]
    cell = cell_of("features", "cora", "mb x_eps=1.0", "y_eps=1.0")
    add_rows(tmp_path, cell.settings, values)
    summary = Evidence(tmp_path).summary(cell, "paper")
    interval = bootstrap(
        (np.array(values),),
        np.mean,
        n_resamples=1000,
        confidence_level=0.95,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    assert summary is not None
    assert summary.ci == (interval.high - interval.low) / 2
    assert summary.ci > 1
    assert summary.mean == pytest.approx(sum(values) / 10, abs=1e-12)


def test_failed_and_surplus_repeats_do_not_count(tmp_path: Path) -> None:
    cell = cell_of("denoising", "pubmed", "y_eps=0.5", "drop")
    add_rows(tmp_path, cell.settings, [60.0] * 10 + [99.0] * 2, failed=[4])
    evidence = Evidence(tmp_path)
    assert evidence.summary(cell, "paper") == Summary(60.0, 0.0, 9)
    assert len(evidence.rows(cell)) == 10


def test_rows_of_another_seed_are_another_computation(tmp_path: Path) -> None:
    cell = cell_of("denoising", "pubmed", "y_eps=0.5", "drop")
    add_rows(tmp_path, Settings(dataset="pubmed", y_eps=0.5, seed=1), [60.0])
    assert Evidence(tmp_path).summary(cell, "paper") is None
    add_rows(tmp_path, Settings(dataset="pubmed", y_eps=0.5), [61.0])
    assert Evidence(tmp_path).summary(cell, "paper") == Summary(61.0, 0.0, 1)


@pytest.mark.parametrize("accuracy", [0.683e3, -1.0])
def test_an_impossible_accuracy_is_refused(tmp_path: Path, accuracy: float) -> None:
    cell = cell_of("denoising", "pubmed", "y_eps=0.5", "drop")
    add_rows(tmp_path, cell.settings, [accuracy])
    with pytest.raises(InputError, match=r"paper/test/acc .* must be an accuracy in per cent"):
        Evidence(tmp_path).summary(cell, "paper")


def test_a_line_that_is_no_row_is_refused(tmp_path: Path) -> None:
    cell = cell_of("denoising", "pubmed", "y_eps=0.5", "drop")
    add_rows(tmp_path, cell.settings, [60.0])
    path = tmp_path / "rows" / "pubmed.csv"
    path.write_text(path.read_text() + "<<<<<<< HEAD\n")
    with pytest.raises(InputError, match=r"line 3: must be a row of lpgnn\.run"):
        Evidence(tmp_path).summary(cell, "paper")
