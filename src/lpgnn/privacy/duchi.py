"""The mechanism of Duchi, Jordan and Wainwright for vectors."""

import functools
import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar

import torch
from torch import Tensor

from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError
from lpgnn.privacy.exact import greatest_probability, log_odds
from lpgnn.privacy.mechanism import FeatureMechanism, dense_chunks
from lpgnn.privacy.reports import FeatureReports, Form


@dataclass(frozen=True)
class Duchi(FeatureMechanism):
    """One sign for every feature, drawn together (Duchi, Jordan and Wainwright 2018): epsilon-LDP.

    As Wang et al. (ICDE 2019, Algorithm 3) state it, which also holds for even d.  With
    t in [-1, 1]^d:
    1. v in {-1, 1}^d with P(v_i = 1) = (1 + t_i) / 2;
    2. signs s with a positive sum, each e^eps times as likely as any other;
    3. report B v s.
    C of the 2^d sign vectors have a positive sum, and S is the sum of one entry over these:
    B = (2^d + C (e^eps - 1)) / (S (e^eps - 1)) makes the report unbiased.
    """

    name: ClassVar[str] = "duchi"
    form: ClassVar[Form] = "signs"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.is_bound and _lean(self.epsilon, self.num_features) <= 0:
            raise InputError("x_eps", self.epsilon, "is too small: all signs are equally likely")

    def positive_probability(self) -> float:
        """e^eps C / (e^eps C + 2^d - C), rounded towards privacy."""
        return greatest_probability(self.epsilon, _positive_odds(self.num_features))

    def spent(self) -> Decimal:
        return log_odds(self.positive_probability(), _positive_odds(self.num_features))

    def scale(self) -> float:
        """B for features in [-1, 1], times half the width of their range."""
        return float(1 / _lean(self.epsilon, self.num_features)) * self.width / 2

    def offset(self) -> float:
        return (self.alpha + self.beta) / 2

    def perturb(self, features: CsrMatrix, *, generator: torch.Generator) -> FeatureReports:
        self.check_features(features)
        sent = torch.empty(features.shape, dtype=torch.int8)
        positive = self.positive_probability()
        for rows, x in dense_chunks(features):
            p = (x - self.alpha) / self.width
            v = torch.rand(x.shape, dtype=torch.float64, generator=generator) < p
            draw = torch.rand(len(x), dtype=torch.float64, generator=generator)
            signs = _signs_with_sum(draw < positive, self.num_features, generator=generator)
            sent[rows] = torch.where(v, signs, -signs)
        return FeatureReports(sent, self.scale(), self.offset())

    def variance(self, x: Tensor) -> Tensor:
        """B^2 - t^2 for features in [-1, 1]."""
        return self.scale() ** 2 - (x.double() - self.offset()) ** 2

    def parameters(self) -> dict[str, float]:
        return {"B": 2 * self.scale() / self.width}


def _signs_with_sum(positive: Tensor, d: int, *, generator: torch.Generator) -> Tensor:
    """Signs, uniform among those with a positive sum, or among the others.  [n] -> [n, d] int8"""
    signs = torch.empty(len(positive), d, dtype=torch.int8)
    pending = torch.arange(len(positive))
    while pending.numel() > 0:
        drawn = 2 * torch.randint(2, (len(pending), d), dtype=torch.int8, generator=generator) - 1
        total, wanted = drawn.sum(1), positive[pending]
        drawn[wanted & (total < 0)] *= -1  # the mirror image of a uniform draw is one, too
        good = torch.where(wanted, total != 0, total <= 0)
        signs[pending[good]] = drawn[good]
        pending = pending[~good]
    return signs


@functools.lru_cache(maxsize=64)
def _positive_count(d: int) -> int:
    """C: all of the sign vectors that are not balanced, by halves."""
    balanced = math.comb(d, d // 2) if d % 2 == 0 else 0
    return ((1 << d) - balanced) // 2


def _positive_odds(d: int) -> Fraction:
    return Fraction(_positive_count(d), (1 << d) - _positive_count(d))


@functools.lru_cache(maxsize=64)
def _lean(epsilon: float, d: int) -> Fraction:
    """The mean of v_i s_i given v_i, as drawn: S (p / C - (1 - p) / (2^d - C)) = 1 / B.

    An entry is left over if the others balance or, for even d, fall short by one.
    """
    p, positive = Fraction(greatest_probability(epsilon, _positive_odds(d))), _positive_count(d)
    return math.comb(d - 1, d // 2) * (p / positive - (1 - p) / ((1 << d) - positive))
