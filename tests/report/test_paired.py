import numpy as np
import pytest
from scipy.stats import bootstrap

from lpgnn.report.paired import Difference, bootstrap_difference, paired


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
