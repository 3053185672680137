import numpy as np
import pytest
from scipy import stats

from lpgnn.report.paired import Difference, holm, paired, t_difference, welch_difference

VALUES = [1.25, -0.5, 2.0, 0.75, 1.5, 0.25, 3.0, -0.25, 1.0, 0.5]


def test_a_paired_difference_is_students_t() -> None:
    found = t_difference(VALUES)
    expected = stats.ttest_1samp(VALUES, 0.0)
    interval = expected.confidence_interval(0.95)
    assert found is not None
    assert found.mean == pytest.approx(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=1e-12)
    assert found.p == pytest.approx(expected.pvalue, rel=1e-9)
    assert found.count == 10
    assert found.above_zero
    mirrored = t_difference([-value for value in VALUES])
    assert mirrored is not None
    assert mirrored.below_zero
    assert not mirrored.above_zero
    assert mirrored.p == pytest.approx(found.p)


def test_one_pair_has_no_interval_and_equal_pairs_have_no_width() -> None:
    assert t_difference([]) is None
    assert t_difference([3.0]) is None
    assert t_difference([0.5, 0.5]) == Difference(0.5, 0.5, 0.5, 2, 0.0)
    assert t_difference([0.0, 0.0]) == Difference(0.0, 0.0, 0.0, 2, 1.0)
    assert str(Difference(0.5, -0.25, 1.26, 9)) == "+0.5 [-0.2, +1.3]"


def test_what_cannot_be_paired_has_welchs_interval() -> None:
    ours, theirs = [90.1, 91.4, 88.7, 92.0], [92.5, 92.1, 92.8]
    found = welch_difference(ours, theirs)
    scipys = stats.ttest_ind(ours, theirs, equal_var=False)
    low, high = scipys.confidence_interval(0.95)
    assert found is not None
    assert (found.low, found.high, found.p) == pytest.approx((low, high, scipys.pvalue))
    assert found.mean == pytest.approx(np.mean(ours) - np.mean(theirs))
    assert welch_difference([1.0, 1.0], [0.5, 0.5]) == Difference(0.5, 0.5, 0.5, 2, 0.0)
    assert welch_difference([1.0], theirs) is None


def test_repeats_are_paired_by_number() -> None:
    # Splits differ by much more than the two computations do on each of them.
    ours, theirs = {0: 60.5, 2: 80.5, 3: 90.5}, {0: 60.0, 1: 70.0, 2: 80.0}
    assert paired(ours, theirs) == Difference(0.5, 0.5, 0.5, 2, 0.0)


def test_holm_by_hand() -> None:
    # Sorted 0.01, 0.02, 0.03, 0.5 times 4, 3, 2, 1, never falling.
    assert holm([0.03, 0.5, 0.01, 0.02]) == pytest.approx([0.06, 0.5, 0.04, 0.06])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_holm_keeps_the_error_of_a_family() -> None:
    """20 true hypotheses: one in three families has a p-value below 5 %, one in twenty after Holm.

    2,000 families; the bounds are five standard errors wide.
    """
    p = np.random.default_rng(0).random((2000, 20))
    raw = float((p.min(1) < 0.05).mean())
    adjusted = float(np.mean([min(holm(list(family))) < 0.05 for family in p]))
    assert raw == pytest.approx(1 - 0.95**20, abs=0.055)
    assert adjusted == pytest.approx(0.05, abs=0.025)


def test_the_least_difference_that_a_test_would_have_shown() -> None:
    found = t_difference(VALUES)
    assert found is not None
    assert found.least_shown(0.05) == pytest.approx((found.high - found.low) / 2)
    # Values moved to just above it pass the test at the level, just below it they do not.
    for level in (0.05, 0.001):
        least = found.least_shown(level)
        for factor, shown in ((1.001, True), (0.999, False)):
            moved = t_difference([value - found.mean + factor * least for value in VALUES])
            assert moved is not None
            assert (moved.p < level) == shown
