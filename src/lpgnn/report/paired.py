"""Differences between two computations on the same splits, repeat by repeat."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from lpgnn.rows.summary import percentile_interval


@dataclass(frozen=True)
class Difference:
    """Mean of paired differences and its 95 % percentile-bootstrap interval, in points."""

    mean: float
    low: float
    high: float
    count: int

    @property
    def above_zero(self) -> bool:
        return self.low > 0

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        return f"{self.mean:+.1f} [{self.low:+.1f}, {self.high:+.1f}]"


def bootstrap_difference(values: Sequence[float]) -> Difference | None:
    """Mean and interval of differences, as for accuracies; None for fewer than two."""
    if len(values) < 2:
        return None
    low, high = percentile_interval(values)
    return Difference(fmean(values), low, high, len(values))


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Difference | None:
    """ours - theirs over the repeats that both have: the same repeat has the same split."""
    return bootstrap_difference([ours[r] - theirs[r] for r in sorted(ours.keys() & theirs.keys())])
