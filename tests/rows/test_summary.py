import math

import numpy as np
import pytest
from scipy import stats
from scipy.stats import bootstrap

from lpgnn.rows import Summary, summarise
from lpgnn.rows.summary import percentile_interval, t_half_width


@pytest.mark.parametrize(
    "values",
    [
        [68.2, 67.1, 69.9, 66.0, 68.8, 70.1, 67.7, 68.0, 69.2, 66.6],
        [1.0, 2.0],
        [0.0, 0.0, 0.0, 100.0],
        list(np.random.default_rng(3).normal(80, 2, size=50)),
    ],
)
def test_summary_equals_scipys_bootstrap(values: list[float]) -> None:
    interval = bootstrap(
        (np.asarray(values),),
        np.mean,
        n_resamples=1000,
        confidence_level=0.95,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    summary = summarise(values)
    assert summary.ci == (interval.high - interval.low) / 2
    assert summary.mean == pytest.approx(sum(values) / len(values), rel=1e-14)
    assert summary.count == len(values)
    assert summary.ci is not None
    assert summary.ci > 0


def test_the_interval_is_about_two_standard_errors_wide() -> None:
    values = np.random.default_rng(0).normal(80, 2, size=400)
    # The half width of a normal sample's interval is 1.96 s / sqrt(n), give or take its noise.
    assert summarise(list(values)).ci == pytest.approx(1.96 * values.std() / 20, rel=0.15)


def test_hand_computed_means() -> None:
    assert summarise([1.0, 2.0, 6.0]).mean == 3.0
    assert summarise([-1.0, 1.0]).mean == 0.0


def test_the_order_of_values_moves_no_mean() -> None:
    assert summarise([1.0, 2.0, 6.0]).mean == summarise([6.0, 1.0, 2.0]).mean


def test_one_value_has_no_interval() -> None:
    assert summarise([42.5]) == Summary(42.5, None, 1)
    assert str(summarise([83.44])) == "83.4 (1 repeat)"


def test_equal_values_have_an_interval_of_width_zero() -> None:
    assert summarise([42.5] * 5) == Summary(42.5, 0.0, 5)


def test_no_value_has_no_summary() -> None:
    summary = summarise([])
    assert math.isnan(summary.mean)
    assert summary.ci is None
    assert summary.count == 0
    assert str(summary) == "no repeats"


def test_the_same_rows_give_the_same_summary() -> None:
    values = [68.2, 67.1, 69.9]
    assert summarise(values) == summarise(values)


def test_a_summary_reads_like_the_papers_table() -> None:
    assert str(Summary(68.24, 1.26, 10)) == "68.2 ± 1.3"


def test_students_interval_equals_scipys() -> None:
    values = [68.2, 67.1, 69.9, 66.0, 68.8, 70.1, 67.7, 68.0, 69.2, 66.6]
    low, high = stats.t.interval(0.95, 9, np.mean(values), stats.sem(values))
    assert summarise(values, "t").ci == pytest.approx((high - low) / 2)
    assert summarise(values, "t").mean == summarise(values).mean


def test_coverage_of_both_intervals_over_ten_repeats() -> None:
    """The share of 3,000 samples of ten normal values whose interval holds the true mean.

    The bounds are about four standard errors wide.
    """
    samples = np.random.default_rng(7).normal(size=(3000, 10))
    covered = {"percentile": 0, "t": 0}
    for sample in samples.tolist():
        low, high = percentile_interval(sample)
        covered["percentile"] += low <= 0 <= high
        covered["t"] += abs(sum(sample) / 10) <= t_half_width(sample)
    assert covered["percentile"] / 3000 == pytest.approx(0.895, abs=0.022)
    assert covered["t"] / 3000 == pytest.approx(0.95, abs=0.016)
