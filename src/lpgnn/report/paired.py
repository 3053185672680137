"""Differences between two computations on the same splits, repeat by repeat."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev, variance

from lpgnn.rows.summary import t_half_width


@dataclass(frozen=True)
class Difference:
    """Mean of paired differences, its 95 % t interval in points, and the t test's p-value."""

    mean: float
    low: float
    high: float
    count: int
    p: float = math.nan

    @property
    def above_zero(self) -> bool:
        return self.low > 0

    @property
    def below_zero(self) -> bool:
        return self.high < 0

    @property
    def excludes_zero(self) -> bool:
        return self.above_zero or self.below_zero

    def least_shown(self, level: float) -> float:
        """The smallest mean difference that a two-sided test at a level would have shown."""
        from scipy.special import stdtrit

        half = (self.high - self.low) / 2
        degrees = self.count - 1
        return half * float(stdtrit(degrees, 1 - level / 2) / stdtrit(degrees, 0.975))

    def text(self, decimals: int) -> str:
        mean, low, high = (f"{one:+.{decimals}f}" for one in (self.mean, self.low, self.high))
        return f"{mean} [{low}, {high}]"

    def __str__(self) -> str:
        return self.text(1)


def t_difference(values: Sequence[float]) -> Difference | None:
    """Mean, interval and two-sided p-value of differences; None for fewer than two."""
    from scipy.special import stdtr

    if len(values) < 2:
        return None
    mean, error = fmean(values), stdev(values) / math.sqrt(len(values))
    half = t_half_width(values)
    if error > 0:
        p = 2 * float(stdtr(len(values) - 1, -abs(mean) / error))
    else:
        p = 1.0 if mean == 0 else 0.0
    return Difference(mean, mean - half, mean + half, len(values), p)


def welch_difference(ours: Sequence[float], theirs: Sequence[float]) -> Difference | None:
    """The difference of two means by Welch's t interval, for what cannot be paired."""
    from scipy.special import stdtr, stdtrit

    if min(len(ours), len(theirs)) < 2:
        return None
    mean, errors = fmean(ours) - fmean(theirs), [variance(v) / len(v) for v in (ours, theirs)]
    error = math.sqrt(sum(errors))
    if error == 0:
        return Difference(mean, mean, mean, len(ours), 1.0 if mean == 0 else 0.0)
    freedom = error**4 / sum(
        one**2 / (len(v) - 1) for one, v in zip(errors, (ours, theirs), strict=True)
    )
    half = float(stdtrit(freedom, 0.975)) * error
    p = 2 * float(stdtr(freedom, -abs(mean) / error))
    return Difference(mean, mean - half, mean + half, len(ours), p)


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Difference | None:
    """ours - theirs over the repeats that both have: the same repeat has the same split."""
    return t_difference([ours[r] - theirs[r] for r in sorted(ours.keys() & theirs.keys())])


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values of a family of tests, adjusted by Holm's step-down rule (Holm 1979)."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = highest
    return adjusted
