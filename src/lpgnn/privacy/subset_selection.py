"""Subset selection: a few classes, the own one likely among them."""

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar

import torch
from torch import Tensor

from lpgnn.errors import InputError
from lpgnn.privacy.exact import greatest_probability, log_odds
from lpgnn.privacy.label_mechanism import LabelMechanism
from lpgnn.privacy.multi_bit import sample_dimensions


@dataclass(frozen=True)
class SubsetSelection(LabelMechanism):
    """Subset selection (Ye and Barg 2018): epsilon-LDP for one label.

    A report is w of the c classes: the own one and w - 1 others with probability
    w e^eps / (w e^eps + c - w), else w others, in either case a uniform choice of them.
    ``subset_size`` overrides w = max(1, round(c / (e^eps + 1))), whose variance is the least, or
    nearly so.
    """

    name: ClassVar[str] = "ss"

    subset_size: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.subset_size is not None:
            most = self.num_classes - 1 if self.is_bound else math.inf
            whole = isinstance(self.subset_size, int) and not isinstance(self.subset_size, bool)
            if not whole or not 1 <= self.subset_size <= most:
                allowed = f"must be a whole number in 1..{most if self.is_bound else 'c - 1'}"
                raise InputError("subset_size", self.subset_size, allowed)
        if self.is_bound and self.own_probability() <= self.other_probability():
            allowed = "is too small: the own class is no likelier than any other"
            raise InputError("y_eps", self.epsilon, allowed)

    @property
    def w(self) -> int:
        if self.subset_size is not None:
            return self.subset_size
        share = 1 / (1 + math.exp(min(self.epsilon, 700.0)))
        return max(1, round(self.num_classes * share))

    def _odds(self) -> Fraction:
        """w / (c - w), less what drawing the others by 32-bit numbers may favour a subset.

        Each of at most w draws from fewer than c classes errs by one part in 2^32 / c at most, and
        so does the sum of all that are equally likely: twice for a subset, and for two subsets.
        """
        w, c = self.w, self.num_classes
        return Fraction(w, c - w) * (1 - Fraction(4 * w * c, 2**32))

    def own_probability(self) -> float:
        """w e^eps / (w e^eps + c - w), rounded towards privacy."""
        return greatest_probability(self.epsilon, self._odds())

    def other_probability(self) -> float:
        """That a particular other class is in the report."""
        return (self.w - self.own_probability()) / (self.num_classes - 1)

    def spent(self) -> Decimal:
        return log_odds(self.own_probability(), self._odds())

    def perturb(self, labels: Tensor, *, generator: torch.Generator) -> Tensor:
        """1 for the classes of the subset, 0 for others.  [n] -> [n, c] float32"""
        n, c, w = len(labels), self.num_classes, self.w
        own = torch.rand(n, dtype=torch.float64, generator=generator) < self.own_probability()
        # The others by their distance 1..c - 1 from the label; distance 0 is the label itself.
        chosen = torch.zeros(n, c)
        chosen[own, 0] = 1
        for mask, size in ((own, w - 1), (~own, w)):
            rows = mask.nonzero()
            if size > 0:
                distances = 1 + sample_dimensions(len(rows), c - 1, size, generator=generator)
                chosen[rows, distances] = 1
        at = (torch.arange(c) - labels[:, None]) % c  # [n, c]: the distance of each class
        return chosen.gather(1, at)

    def likelihood(self, reports: Tensor) -> Tensor:
        c, w = self.num_classes, self.w
        inside = self.own_probability() / math.comb(c - 1, w - 1)
        outside = (1 - self.own_probability()) / math.comb(c - 1, w)
        return torch.where(reports.double() > 0, inside, outside)

    def estimate(self, reports: Tensor) -> Tensor:
        own, other = self.own_probability(), self.other_probability()
        return (reports.double() - other) / (own - other)

    def transition(self) -> Tensor:
        """One of the subset at random."""
        c, right = self.num_classes, self.own_probability() / self.w
        wrong = torch.full((c, c), (1 - right) / (c - 1), dtype=torch.float64)
        return wrong.fill_diagonal_(right)

    def parameters(self) -> dict[str, float]:
        return {"w": float(self.w), "own": self.own_probability()}
