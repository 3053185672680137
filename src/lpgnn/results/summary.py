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


def summarise(values: Sequence[float]) -> Summary:
    """The paper's summary: 1000 resamples, percentile interval; scipy's bootstrap, seed 0.

    A sample of one, or of equal values, has an interval of width zero.
    """
    import numpy as np

    sample = np.asarray(values, dtype=np.float64)
    if sample.size == 0:
        return Summary(float("nan"), float("nan"), 0)
    if np.all(sample == sample[0]):
        return Summary(float(sample[0]), 0.0, sample.size)
    from scipy.stats import bootstrap

    interval = bootstrap(
        (sample,),
        np.mean,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return Summary(float(sample.mean()), float(interval.high - interval.low) / 2, sample.size)
