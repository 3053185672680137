import csv
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from lpgnn.paper.comparison import (
    Verdict,
    compare,
    compared_grid,
    judge,
    printed_difference,
    root_sum_square,
    stricter_rules,
    verdict_counts,
    write_comparison,
)
from lpgnn.paper.findings import PAPER_TABLES
from lpgnn.report.tables import Printed
from lpgnn.rows import Summary
from paper.conftest import Paper
from report.rows import add_rows


@pytest.mark.parametrize(
    ("mean", "ci", "verdict"),
    [
        (70.0, 0.0, Verdict.WITHIN_CIS),
        (71.5, 0.5, Verdict.WITHIN_CIS),  # exactly 1.0 + 0.5 apart
        (71.51, 0.5, Verdict.WITHIN_POINTS),
        (68.0, 0.9, Verdict.WITHIN_POINTS),  # exactly 2 apart
        (72.0, 0.0, Verdict.WITHIN_POINTS),
        (72.01, 0.0, Verdict.ABOVE),
        (67.99, 0.0, Verdict.BELOW),
        (60.0, 9.0, Verdict.WITHIN_CIS),  # wide intervals go before points
        (60.0, 8.9, Verdict.BELOW),
        (70.9, None, Verdict.WITHIN_CIS),  # one repeat has no interval of its own
        (71.1, None, Verdict.WITHIN_POINTS),
    ],
)
def test_verdict_against_70_plus_minus_1(mean: float, ci: float | None, verdict: Verdict) -> None:
    assert judge(Printed(70.0, 1.0), Summary(mean, ci, 10)) is verdict


def test_verdict_at_a_bound_that_binary_fractions_miss() -> None:
    # 0.1 apart with half widths of 0.1 together in decimals, but not in floating point.
    assert 40.1 - 40.0 > 0.1
    assert judge(Printed(40.0, 0.1), Summary(40.1, 0.0, 10)) is Verdict.WITHIN_CIS


def test_no_rows_and_too_few_rows_are_no_verdict() -> None:
    assert judge(Printed(70.0, 1.0), None) is Verdict.MISSING
    assert judge(Printed(70.0, 1.0), Summary(70.0, 0.1, 9), is_finished=False) is Verdict.UNFINISHED


def test_counts_are_in_order_with_zeros() -> None:
    counts = verdict_counts([Verdict.BELOW, Verdict.MISSING, Verdict.BELOW])
    assert [(verdict.text, count) for verdict, count in counts.items()] == [
        ("within both CIs", 0),
        ("within 2 points", 0),
        ("above", 0),
        ("below", 2),
        ("unfinished", 0),
        ("missing", 1),
    ]


def test_comparison_file(paper: Paper, tmp_path: Path) -> None:
    # Printed: 45.8 ± 3.3 for 1B on Cora at 0.01, and 84.0 ± 0.3 for MB at 2.
    first = paper.cell("mechanisms", "cora", "1b", "0.01").point.settings
    identity = add_rows(tmp_path, first, [46.8] * 10, [60.0] * 10)
    mb = paper.cell("mechanisms", "cora", "mb", "2").point.settings
    add_rows(tmp_path, mb, [82.5] * 10)
    # Nine of ten repeats are no verdict; a failed repeat is done, and does not count.
    lp = paper.cell("mechanisms", "cora", "lp", "2").point.settings
    add_rows(tmp_path, lp, [58.1] * 9)
    failed = paper.cell("mechanisms", "cora", "lp", "1").point.settings
    add_rows(tmp_path, failed, [61.9] * 10, failed=[3])
    found = Paper(tmp_path)
    judged = compare(found.table(name) for name in PAPER_TABLES)
    write_comparison(judged, "paper", tmp_path, stricter=stricter_rules(judged))
    with (tmp_path / "comparison.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 124
    assert rows[0] == {
        "table": "mechanisms",
        "dataset": "cora",
        "row": "1b",
        "column": "0.01",
        "paper_mean": "45.8",
        "paper_ci": "3.3",
        "mean": "46.8000",
        "ci": "0.0000",
        "count": "10",
        "difference": "1.0000",
        "verdict": "within both CIs",
        "within_root_sum_square": "true",
        "welch_p": f"{stats.t.sf(1 / (3.3 / 1.959964 * math.sqrt(10 / 9)), 9) * 2:.4f}",
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
    text = (tmp_path / "comparison.md").read_text(encoding="utf-8")
    assert "| mechanisms | 2 | 1 | 0 | 0 | 1 | 60 | 64 |" in text
    numbers = " | ".join(f"**{n}**" for n in (2, 1, 0, 0, 1, 120, 124))
    assert f"| **all** | {numbers} |" in text
    assert "| all, selection=released | 1 | 1 | 1 | 0 | 1 | 120 | 124 |" in text
    # On the page: ours with the verdict's mark, the printed value below.
    shown = compared_grid(found.table("mechanisms"), judged).blocks[0][0][2]
    assert (shown.text, shown.below, shown.mark) == ("46.8 ± 0.0", "45.8 ± 3.3", "cis")
    assert shown.title == "within both CIs, +1.0 points, 10 repeats"


def test_the_other_rule_takes_the_extra_columns(paper: Paper, tmp_path: Path) -> None:
    cell = paper.cell("mechanisms", "cora", "1b", "0.01")
    add_rows(tmp_path, cell.point.settings, [46.8] * 10, [60.0] * 10)
    judged = compare([Paper(tmp_path, "released").table("mechanisms")])
    write_comparison(judged, "released", tmp_path, stricter="")
    header, first = (tmp_path / "comparison.csv").read_text().splitlines()[:2]
    assert "mean_paper,ci_paper,difference_paper,verdict_paper" in header
    assert "60.0000,0.0000,10,14.2000,above,false,0.0000,46.8000" in first


def test_welchs_test_is_scipys_on_the_samples_behind_the_intervals() -> None:
    """A printed interval stands for a sample; take one whose interval has that width."""
    rng = np.random.default_rng(5)
    ours, theirs = rng.normal(80, 2, 10), rng.normal(78, 1, 10)
    half_width = 1.959964 * theirs.std() / math.sqrt(10)
    printed = Printed(float(theirs.mean()), half_width)
    expected = stats.ttest_ind(ours, theirs, equal_var=False).pvalue
    assert printed_difference(printed, ours.tolist()).p == pytest.approx(expected, rel=1e-6)
    assert printed_difference(Printed(80.0, 0.0), [80.0] * 10).p == 1.0
    assert printed_difference(Printed(80.0, 0.0), [81.0] * 10).p == 0.0


def test_the_root_of_the_sum_of_squares_is_the_stricter_rule() -> None:
    printed = Printed(80.0, 3.0)
    assert root_sum_square(printed, Summary(85.0, 4.0, 10))
    assert not root_sum_square(printed, Summary(85.1, 4.0, 10))
    assert judge(printed, Summary(85.1, 4.0, 10)) is Verdict.WITHIN_CIS


def test_stricter_rules_count_cells_and_distinct_computations(paper: Paper, tmp_path: Path) -> None:
    # MB at (1, 1) stands in two tables, as 69.3 ± 1.2 in both.
    both = paper.cell("denoising", "cora", "1", "drop").point.settings
    add_rows(tmp_path, both, [69.0, 69.6] * 5)
    far = paper.cell("mechanisms", "cora", "1b", "0.01").point.settings
    add_rows(tmp_path, far, [60.0, 61.0] * 5)
    found = Paper(tmp_path)
    text = stricter_rules(compare(found.table(name) for name in PAPER_TABLES))
    assert "over the 3 computed cells" in text
    assert "The cells are 2 distinct computations." in text
    assert "2 lie within the root" in text
    assert "Welch's t test keeps 2 at 5 %, and 2 after Holm's correction for 3 tests" in text
