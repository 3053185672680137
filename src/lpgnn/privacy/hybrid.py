"""The Hybrid mechanism: Piecewise or one bit, by a coin."""

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar

import torch
from torch import Tensor

from lpgnn.privacy.exact import least_probability, log_odds
from lpgnn.privacy.one_bit import OneBit
from lpgnn.privacy.piecewise import Piecewise

# Up to this budget of a number, Piecewise never has the smaller worst-case variance.
LEAST_OF_PIECEWISE = 0.61


@dataclass(frozen=True)
class Hybrid(Piecewise):
    """The Hybrid mechanism (Wang et al., ICDE 2019, Section III-C) on k sampled features.

    At e = eps / k > 0.61 Piecewise with probability 1 - e^(-e/2), else one bit after Duchi et al.
    (2018), which is the 1-bit mechanism on [-1, 1]; below, the bit always.  The coin does not look
    at the number, so that the larger of the two losses is the loss of both.
    """

    name: ClassVar[str] = "hm"

    def piecewise_share(self) -> float:
        e = self.value_epsilon
        return -math.expm1(-e / 2) if e > LEAST_OF_PIECEWISE else 0.0

    def bit(self) -> OneBit:
        return OneBit(self.value_epsilon, 1, alpha=-1.0, beta=1.0)

    def randomize(self, t: Tensor, *, generator: torch.Generator) -> Tensor:
        coin, draw = torch.rand(2, *t.shape, dtype=torch.float64, generator=generator)
        bit, share = self.bit(), self.piecewise_share()
        by_bit = torch.where(draw < bit.bit_probability(t), bit.scale(), -bit.scale())
        if share == 0:
            return by_bit
        return torch.where(coin < share, super().randomize(t, generator=generator), by_bit)

    def value_variance(self, t: Tensor) -> Tensor:
        """Both are unbiased, so that their variances are mixed as the two are."""
        share = self.piecewise_share()
        by_bit = (1 - share) * self.bit().variance(t)
        return by_bit if share == 0 else by_bit + share * super().value_variance(t)

    def value_spent(self) -> Decimal:
        by_bit = log_odds(1 - least_probability(self.value_epsilon))
        return by_bit if self.piecewise_share() == 0 else max(by_bit, super().value_spent())
