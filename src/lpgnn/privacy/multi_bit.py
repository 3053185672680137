"""The multi-bit mechanism: m sampled features, one noisy bit each."""

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from lpgnn.components import before
from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError
from lpgnn.privacy.mechanism import BitMechanism
from lpgnn.privacy.reports import FeatureReports, Form


@dataclass(frozen=True)
class MultiBit(BitMechanism):
    """The multi-bit mechanism (paper Algorithm 1 and Eq. est): epsilon-LDP.

    ``sample_rule`` chooses m: "paper" rounds the optimum of a continuous m down (Prop. optm),
    "exact" takes the integer with the least variance.  ``num_samples`` overrides both.
    """

    name: ClassVar[str] = "mb"
    form: ClassVar[Form] = "sparse"

    num_samples: int | None = None
    sample_rule: Literal["paper", "exact"] = field(default="paper", metadata=before("paper"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sample_rule not in ("paper", "exact"):
            raise InputError("sample_rule", self.sample_rule, "must be paper or exact")
        if self.num_samples is None:
            return
        if self.sample_rule != "paper":
            allowed = f"must be paper where num_samples={self.num_samples} is given"
            raise InputError("sample_rule", self.sample_rule, allowed)
        most = self.num_features if self.is_bound else math.inf
        whole = isinstance(self.num_samples, int) and not isinstance(self.num_samples, bool)
        if not whole or not 1 <= self.num_samples <= most:
            allowed = f"must be a whole number in 1..{most if self.is_bound else 'd'}"
            raise InputError("num_samples", self.num_samples, allowed)

    @property
    def m(self) -> int:
        """Paper Prop. optm: m* = max(1, min(d, floor(eps / 2.18))).

        The largest variance, d/m coth(eps / 2m)^2 up to a factor, falls until the continuous
        optimum and then grows: the best integer is one of the two beside it.
        """
        if self.num_samples is not None:
            return self.num_samples
        rounded = max(1, min(self.num_features, math.floor(self.epsilon / 2.18)))
        if self.sample_rule == "paper" or rounded == self.num_features:
            return rounded
        beside = (rounded, rounded + 1)
        return min(beside, key=lambda m: 1 / m / math.tanh(self.epsilon / m / 2) ** 2)

    def perturb(self, features: CsrMatrix, *, generator: torch.Generator) -> FeatureReports:
        """Algorithm 1 for every node at once, in O(N m): unsampled entries decide nothing."""
        self.check_features(features)
        n, d, m = features.shape[0], self.num_features, self.m
        # 1: S, m dimensions drawn uniformly without replacement
        sampled = sample_dimensions(n, d, m, generator=generator).flatten()  # [N m]
        # 2-3: s_i = 1 on these entries only
        nodes = torch.arange(n).repeat_interleave(m)  # [N m]
        x = features.lookup(nodes, sampled)
        # 4: t_i ~ Bernoulli(p(x_i))
        t = torch.rand(n * m, dtype=torch.float64, generator=generator) < self.bit_probability(x)
        # 5: x*_i = s_i (2 t_i - 1)
        sent = 2 * t.to(torch.float32) - 1
        encoded = CsrMatrix(torch.arange(n + 1) * m, sampled, sent, (n, d))
        return FeatureReports(encoded, self.scale(), self.offset())


def sample_dimensions(n: int, d: int, m: int, *, generator: torch.Generator) -> Tensor:
    """For each of n nodes a uniform m-subset of range(d), in ascending order.  -> [n, m] int64"""
    if 8 * m > d:  # a mask of n x d bytes is no larger than the answer
        return _sample_by_mask(n, d, m, generator=generator)
    # Repeats are drawn again until none is left. No step treats one dimension unlike another, so
    # every m-subset is equally likely; sorting only serves to find the repeats.
    sampled = torch.randint(d, (n, m), generator=generator).sort(dim=1).values
    pending = torch.arange(n)  # nodes that may still hold a repeat
    while pending.numel() > 0:
        rows = sampled[pending]
        repeats = torch.zeros_like(rows, dtype=torch.bool)
        repeats[:, 1:] = rows[:, 1:] == rows[:, :-1]
        rows[repeats] = torch.randint(d, (int(repeats.sum()),), generator=generator)
        sampled[pending] = rows.sort(dim=1).values
        pending = pending[repeats.any(dim=1)]
    return sampled


def _sample_by_mask(n: int, d: int, m: int, *, generator: torch.Generator) -> Tensor:
    """``sample_dimensions`` by Floyd's algorithm (Bentley and Floyd, CACM 1987), nodes abreast."""
    drawn = min(m, d - m)  # the smaller of the subset and its complement
    mask = torch.zeros(n, d, dtype=torch.bool)
    for last in range(d - drawn, d):
        t = torch.randint(last + 1, (n, 1), generator=generator)
        mask.scatter_(1, torch.where(mask.gather(1, t), last, t), True)
    if drawn < m:
        mask.logical_not_()
    return mask.nonzero()[:, 1].view(n, m)
