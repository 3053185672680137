"""Mean and bootstrap confidence interval over repeats."""

from collections.abc import Sequence
from dataclasses import dataclass

RESAMPLES = 1000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Summary:
    """Mean of a sample and half the width of its 95 % percentile-bootstrap interval."""

    mean: float
    ci: float
    count: int

    def __str__(self) -> str:
        return f"{self.mean:.1f} ± {self.ci:.1f}"


def percentile_interval(values: Sequence[float]) -> tuple[float, float]:
    """The paper's 95 % interval of a mean: 1000 resamples, percentiles; scipy's bootstrap, seed 0.

    Equal values have an interval of width zero.
    """
    import numpy as np

    sample = np.asarray(values, dtype=np.float64)
    if np.all(sample == sample[0]):
        return float(sample[0]), float(sample[0])
    from scipy.stats import bootstrap

    interval = bootstrap(
        (sample,),
        np.mean,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return float(interval.low), float(interval.high)


def summarise(values: Sequence[float]) -> Summary:
    """Mean and half the width of its interval; NaN for an empty sample."""
    import numpy as np

    sample = np.asarray(values, dtype=np.float64)
    if sample.size == 0:
        return Summary(float("nan"), float("nan"), 0)
    low, high = percentile_interval(sample.tolist())
    # The mean of equal values is that value, which a sum may miss by a rounding error.
    mean = low if low == high else float(sample.mean())
    return Summary(mean, (high - low) / 2, sample.size)
