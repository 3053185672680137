"""Differences between two computations on the same splits, repeat by repeat."""

from collections.abc import Sequence
from dataclasses import dataclass

from lpgnn.report.cells import Cell
from lpgnn.report.evidence import Evidence
from lpgnn.results.summary import CONFIDENCE, RESAMPLES


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
    """Mean and interval of differences as the accuracies get theirs; None for fewer than two."""
    import numpy as np
    from scipy.stats import bootstrap

    sample = np.asarray(values, dtype=np.float64)
    if sample.size < 2:
        return None
    mean = float(sample.mean())
    if np.all(sample == sample[0]):
        return Difference(mean, mean, mean, sample.size)
    interval = bootstrap(
        (sample,),
        np.mean,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return Difference(mean, float(interval.low), float(interval.high), sample.size)


def paired(evidence: Evidence, cell: Cell, control: Cell, selection: str) -> Difference | None:
    """cell - control over the repeats that both have: the same repeat has the same split."""
    ours, theirs = (evidence.accuracies(one, selection) for one in (cell, control))
    return bootstrap_difference([ours[r] - theirs[r] for r in sorted(ours.keys() & theirs.keys())])
