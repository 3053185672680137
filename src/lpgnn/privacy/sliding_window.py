"""A number by a window that slides with it: the distribution behind PM and Square Wave.

Reports lie on a grid of M = S + H cells.  A number in [-1, 1] is rounded to one of S + 1 places j,
and its window is the H cells from j on.  Every cell of the window is e^eps times as likely as a
cell outside, wherever the window is: that is the whole privacy argument, and on a grid it holds
exactly.  The mean of a report is linear in j, so that a multiple of its distance from the middle
is unbiased, up to the rounding to j.
"""

import functools
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import torch
from torch import Tensor

from lpgnn.privacy.exact import FLOAT_PLACES, greatest_probability, log_odds

STEPS = 1 << 20  # S


@dataclass(frozen=True)
class SlidingWindow:
    """One number at a budget; ``width`` is H, the cells of a window."""

    epsilon: float
    width: int

    @property
    def odds(self) -> Fraction:
        """Of one cell outside to one inside, if each of the two kinds were drawn w.p. 1/2.

        A place is drawn as floor(u H) or floor(u S) with u of 53 binary places.  The second is
        exactly uniform, and so is the first if H is a power of two; of other H, no cell has more
        than 2^53 / H + 2 of the 2^53 numbers.
        """
        is_power = self.width & (self.width - 1) == 0
        excess = Fraction(0) if is_power else Fraction(2, 2**FLOAT_PLACES)
        return 1 / ((Fraction(1, self.width) + excess) * STEPS)

    @functools.cached_property
    def inside(self) -> float:
        """The probability of the window: e^eps H / (e^eps H + S), rounded towards privacy."""
        return greatest_probability(self.epsilon, self.odds)

    def spent(self) -> Decimal:
        """The largest log ratio of a cell's probabilities."""
        return log_odds(self.inside, self.odds)

    @functools.cached_property
    def slope(self) -> Fraction:
        """By how much the mean of a report moves with j: p - (1 - p) H / S."""
        p = Fraction(self.inside)
        return p - (1 - p) * Fraction(self.width, STEPS)

    @property
    def unit(self) -> float:
        """What a cell is worth in the estimate: j has 2 / S of [-1, 1]."""
        return float(2 / (STEPS * self.slope))

    def draw(self, t: Tensor, *, generator: torch.Generator) -> Tensor:
        """A report for each number.  [n] in [-1, 1] -> [n] float64: whole numbers in 0..M - 1"""
        start = ((t.double() + 1) * (STEPS / 2)).round_()
        inside = torch.rand(t.shape, dtype=torch.float64, generator=generator) < self.inside
        place = torch.rand(t.shape, dtype=torch.float64, generator=generator)
        others = (place * STEPS).floor_()
        others += (others >= start) * self.width
        return torch.where(inside, (place * self.width).floor_().add_(start), others)

    def estimate(self, cells: Tensor) -> Tensor:
        """The unbiased estimate of t from a report."""
        return (cells - (STEPS + self.width - 1) / 2) * self.unit

    def variance(self, t: Tensor) -> Tensor:
        """The exact variance of the estimate.

        In cells around the middle, a window at distance c has the second moment c^2 + (H^2 - 1)/12
        and all M cells have (M^2 - 1)/12; what is outside is the difference.
        """
        h, p = float(self.width), self.inside
        m = STEPS + h
        window = (t.double() * STEPS / 2) ** 2 + (h**2 - 1) / 12
        outside = (m * (m**2 - 1) / 12 - h * window) / STEPS
        return (p * window + (1 - p) * outside) * self.unit**2 - t.double() ** 2


@functools.lru_cache(maxsize=256)
def sliding_window(epsilon: float, share: float) -> SlidingWindow:
    """A window of about share S cells, and of one at least."""
    return SlidingWindow(epsilon, max(1, round(share * STEPS)))
