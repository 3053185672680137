from pathlib import Path

import numpy as np
import pytest
from scipy.stats import bootstrap

from lpgnn.composition import Experiment, Point
from lpgnn.config import Settings
from lpgnn.report.evidence import Cell, Results
from lpgnn.report.paired import Difference, bootstrap_difference, paired
from lpgnn.rows import RowStore

from .rows import add_rows


def test_a_paired_difference_is_scipys_bootstrap_of_the_differences() -> None:
    values = [1.25, -0.5, 2.0, 0.75, 1.5, 0.25, 3.0, -0.25, 1.0, 0.5]
    interval = bootstrap(
        (np.array(values),),
        np.mean,
        n_resamples=1000,
        confidence_level=0.95,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    found = bootstrap_difference(values)
    assert found is not None
    assert found.mean == pytest.approx(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=1e-12)
    assert found.count == 10
    assert found.above_zero
    mirrored = bootstrap_difference([-value for value in values])
    assert mirrored is not None
    assert mirrored.excludes_zero
    assert not mirrored.above_zero


def test_one_pair_has_no_interval_and_equal_pairs_have_no_width() -> None:
    assert bootstrap_difference([]) is None
    assert bootstrap_difference([3.0]) is None
    assert bootstrap_difference([0.5, 0.5]) == Difference(0.5, 0.5, 0.5, 2)
    assert str(Difference(0.5, -0.25, 1.26, 9)) == "+0.5 [-0.2, +1.3]"


def test_repeats_are_paired_by_number() -> None:
    # Splits differ by much more than the two computations do on each of them.
    ours, theirs = {0: 60.5, 2: 80.5, 3: 90.5}, {0: 60.0, 1: 70.0, 2: 80.0}
    assert paired(ours, theirs) == Difference(0.5, 0.5, 0.5, 2)


def test_rows_of_different_revisions_are_not_paired(tmp_path: Path) -> None:
    """Four repeats: two of one revision, one of another, and one of changed sources."""
    raw, blank = (Settings(dataset="cora", feature=name, repeats=4) for name in ("raw", "blank"))
    add_rows(tmp_path, raw, [60.0, 61.0, 62.0, 63.0])
    add_rows(tmp_path, blank, [59.0, 59.0, 10.0, 11.0])
    results = Results(Experiment("mine", "mine", ()), [], "paper")
    cells = []
    for settings in (raw, blank):
        configuration = settings.resolve()
        rows = list(RowStore(tmp_path).finished("cora", configuration.identity).values())
        cells.append(Cell(Point({"dataset": "cora"}, settings), configuration, "", rows))
    for repeat, column, value in ((2, "revision", "abcdef0123"), (3, "dirty", "true")):
        cells[1].rows[repeat][column] = value
    assert results.difference(*cells) == bootstrap_difference([1.0, 2.0])
    for row in cells[1].rows:
        row["revision"] = "abcdef0123"
    assert results.difference(*cells) is None
