"""The Square Wave mechanism, and the distribution of features that its reports tell."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError
from lpgnn.privacy.reports import FeatureReports
from lpgnn.privacy.sampled_values import WindowValues
from lpgnn.privacy.sliding_window import STEPS, SlidingWindow, sliding_window

# Of the estimated distribution: places in [-1, 1], both ends among them, and bins of reports.
_PLACES = 65
_BINS = 256
_MOST_ROUNDS = 10_000


@dataclass(frozen=True)
class SquareWave(WindowValues):
    """Square Wave (Li, Wang, Lopuhaa-Zwakenberg, Skoric and Li, SIGMOD 2020) on k sampled features.

    At e = eps / k, a number v in [0, 1] is reported uniformly within [v - b, v + b], each point
    e^e times as likely as the rest of [-b, 1 + b], with
    b = (e e^e - e^e + 1) / (2 e^e (e^e - 1 - e)).  That is a window of width 2 b.

    ``estimate`` is what the server makes of reports.  "unbiased": the multiple of a report whose
    mean is the number.  "em": Square Wave was made for distributions, so the distribution of all
    sampled numbers is estimated from all reports by expectation maximisation, and a report stands
    for the mean of the numbers behind it under that distribution; features that were not sampled
    stand for the mean of all.  This is biased and far less noisy; ``variance`` is of the unbiased.
    "em_deviation": the same less the mean of all.  That mean says nothing of a node and is far
    larger than what does: brought to unit size, as by conditioned filters, reports would be it.

    The program published with PrivGE (Li et al. 2024) is not private at any budget: having drawn
    the reports left of the window, it overwrites the numbers with them and draws the two other
    kinds from what is left there, zeros.  A number at the upper end of its range then never gives
    a report in (b, 1 + b], and one at the lower end none in [-1 - b, -b), while others do.
    """

    name: ClassVar[str] = "sw"

    estimate: Literal["unbiased", "em", "em_deviation"] = "unbiased"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.estimate not in ("unbiased", "em", "em_deviation"):
            raise InputError("estimate", self.estimate, "must be unbiased, em or em_deviation")

    def window(self) -> SlidingWindow:
        return sliding_window(self.value_epsilon, _width(self.value_epsilon))

    def received(self, reports: FeatureReports) -> FeatureReports:
        if self.estimate == "unbiased":
            return super().received(reports)
        sent, window = reports.sent, self.window()
        assert isinstance(sent, CsrMatrix)
        cells = sent.values.double() / window.unit + (STEPS + window.width - 1) / 2
        bins = (cells * (_BINS / (STEPS + window.width))).long().clamp_(0, _BINS - 1)
        likelihood = bin_probabilities(window)  # [B, V]
        counts = torch.bincount(bins, minlength=_BINS).double()
        prior = estimated_distribution(likelihood, counts, self.value_epsilon)
        places = torch.linspace(-1, 1, _PLACES, dtype=torch.float64)
        joint = likelihood * prior
        means = (joint @ places) / joint.sum(1)  # [B]: E[t | report]
        overall = float(prior @ places)
        values = ((means[bins] - overall) * self.width / 2).float()
        size = math.sqrt(float(values.double().square().sum()) / (sent.shape[0] * sent.shape[1]))
        return replace(
            reports,
            sent=CsrMatrix(sent.indptr, sent.indices, values, sent.shape),
            scale=1.0,
            offset=self.offset() + overall * self.width / 2 if self.estimate == "em" else 0.0,
            magnitude=size or 1.0,  # all alike: nothing to bring to any size
        )


def _width(e: float) -> float:
    """2 b = (e - 1 + e^-e) / (e^e - 1 - e), by its series where that would cancel."""
    if e < 1e-4:
        return 1 - 2 * e / 3
    if e > 300:
        return e * math.exp(-min(e, 700.0))
    return (e + math.expm1(-e)) / (math.expm1(e) - e)


def bin_probabilities(window: SlidingWindow) -> Tensor:
    """p(bin of the report | number), for numbers at the places.  -> [B, V]"""
    cells = STEPS + window.width
    edges = torch.linspace(0, cells, _BINS + 1, dtype=torch.float64)[:, None]
    start = torch.linspace(0, STEPS, _PLACES, dtype=torch.float64)
    covered = (edges - start).clamp(0, window.width).diff(dim=0)  # of the window, by each bin
    inside, outside = window.inside / window.width, (1 - window.inside) / STEPS
    return covered * inside + (cells / _BINS - covered) * outside


def estimated_distribution(likelihood: Tensor, counts: Tensor, epsilon: float) -> Tensor:
    """The distribution of numbers under which reports are likeliest, by EM.  [B, V], [B] -> [V]

    It stops, as Li et al. do, once a round adds less than e^eps / 1000 to the log likelihood.
    """
    found = torch.full((likelihood.shape[1],), 1 / likelihood.shape[1], dtype=torch.float64)
    before, gain = -math.inf, math.exp(min(epsilon, 50.0)) / 1000
    for _ in range(_MOST_ROUNDS):
        p = likelihood @ found
        reached = float((counts * p.log()).sum())
        if reached - before < gain:
            break
        before = reached
        found = found * (likelihood.t() @ (counts / p)) / counts.sum()
    return found
