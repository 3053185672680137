"""The Laplace mechanism, on a grid."""

import functools
import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar

import torch
from torch import Tensor

from lpgnn.privacy.exact import geometric_digits, rounding_loss
from lpgnn.privacy.grid import GridNoise, draw_laplace

# Noise beyond as many scales, e^-64 of it, is cut off at the last report.
MOST_SCALES = 64


@dataclass(frozen=True)
class Laplace(GridNoise):
    """The Laplace mechanism: epsilon-LDP with scale (beta - alpha) d / eps in every entry.

    An entry is x + n steps with P(n) ~ e^(-r |n|) and r 2^j = eps / d, 2^j the steps from alpha to
    beta, and is moved into the reports that every x can give.  Rounding the probabilities changes
    ln P(n) by D at most, so a node spends d (r 2^j + 2 D); r is smaller by one part in 2^60, which
    is more than that.  A step is at most scale / 2^20: the variance is 2 scale^2 up to 1e-13.
    """

    name: ClassVar[str] = "lp"

    def scale(self) -> float:
        return self.width * self.num_features / self.epsilon

    @property
    def steps(self) -> int:
        return 1 << max(16, 20 + math.ceil(math.log2(self.epsilon / self.num_features)))

    @property
    def farthest(self) -> int:
        return (1 << (len(self.digits()) - 1)) - 1

    def rate(self) -> Fraction:
        """r, in which a step of noise grows unlikelier."""
        share = Fraction(self.epsilon) / self.num_features / self.steps
        return share * (1 - Fraction(1, 2**60))

    def digits(self) -> tuple[int, ...]:
        """The probabilities of the noise's binary digits: down to e^-64, and twice the range."""
        largest = math.ceil(math.log2(MOST_SCALES / self.rate()))
        return _digits(self.rate(), max(largest, self.steps.bit_length() + 1))

    def spent(self) -> Decimal:
        """A bound on what a node spends, rounding included: d (r 2^j + 2 D) <= eps."""
        rate, loss = self.rate(), rounding_loss(self.digits(), self.rate())
        ideal = rate * self.steps
        each = Decimal(ideal.numerator) / Decimal(ideal.denominator) + 2 * loss
        return self.num_features * each

    def draw(self, count: int, *, generator: torch.Generator) -> Tensor:
        return draw_laplace(self.digits(), count, generator=generator)

    def variance(self, x: Tensor) -> Tensor:
        return torch.full_like(x, 2 * self.scale() ** 2, dtype=torch.float64)

    def parameters(self) -> dict[str, float]:
        return {"scale": self.scale()}


@functools.lru_cache(maxsize=64)
def _digits(rate: Fraction, count: int) -> tuple[int, ...]:
    return tuple(geometric_digits(rate, count))
