"""Mean and confidence interval over repeats."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import stdev
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# The paper's percentile bootstrap, or Student's t.  Of ten normal values the first covers the mean
# in 90 % of all cases, the second in 95 %.
Interval = Literal["percentile", "t"]

RESAMPLES = 1000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Summary:
    """Mean of a sample and half the width of its 95 % interval.

    ``ci`` is None for fewer than two values: one repeat has no interval.
    """

    mean: float
    ci: float | None
    count: int

    def __str__(self) -> str:
        return self.short if self.count != 1 else f"{self.short} (1 repeat)"

    @property
    def short(self) -> str:
        """Mean and interval, for who tells the number of repeats elsewhere."""
        if self.count == 0:
            return "no repeats"
        return f"{self.mean:.1f}" if self.ci is None else f"{self.mean:.1f} ± {self.ci:.1f}"


def percentile_interval(values: Sequence[float]) -> tuple[float, float]:
    """The paper's 95 % interval of a mean: percentiles of 1000 resampled means, seed 0.

    Equal values have an interval of width zero.  The same bits as scipy.stats.bootstrap, whose
    import takes longer than everything else in a finished run.
    """
    import numpy as np

    sample = np.asarray(values, dtype=np.float64)
    if np.all(sample == sample[0]):
        return float(sample[0]), float(sample[0])
    means = np.sort(sample[_resamples(sample.size)].mean(axis=-1))
    tail = (1 - CONFIDENCE) / 2
    return _quantile(means, tail), _quantile(means, 1 - tail)


@lru_cache(maxsize=16)
def _resamples(size: int) -> "NDArray[np.int64]":
    """The places that each resample takes: the same for every sample of a size.  [1000, n]"""
    import numpy as np

    return np.random.default_rng(0).integers(0, size, (RESAMPLES, size))


def _quantile(ordered: "NDArray[np.float64]", share: float) -> float:
    """The quantile of ordered values, linear between neighbours.  [n] -> 1"""
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    weight = position - below
    return float((1 - weight) * ordered[below] + weight * ordered[below + 1])


def t_half_width(values: Sequence[float]) -> float:
    """Half the width of Student's 95 % interval of a mean: t s / sqrt(n)."""
    from scipy.special import stdtrit

    quantile = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2))
    return quantile * stdev(values) / math.sqrt(len(values))


def summarise(values: Sequence[float], interval: Interval = "percentile") -> Summary:
    """Mean and half the width of its interval; the mean of an empty sample is NaN."""
    if len(values) == 0:
        return Summary(float("nan"), None, 0)
    if len(values) == 1:
        return Summary(float(values[0]), None, 1)
    import numpy as np  # takes a sixth of the time of a finished command

    sample = np.asarray(values, dtype=np.float64)
    low, high = percentile_interval(sample.tolist())
    # The mean of equal values is that value, which a sum may miss by a rounding error.
    mean = low if low == high else float(sample.mean())
    half = (high - low) / 2 if interval == "percentile" else t_half_width(sample.tolist())
    return Summary(mean, half, sample.size)
