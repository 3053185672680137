"""Label mechanisms as a user would write them: one that reports a class, one that does not."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lpgnn.privacy import ClassMechanism, LabelMechanism


@dataclass(frozen=True)
class Skewed(ClassMechanism):
    """Three classes that are confused unequally; one report is impossible for one of them."""

    def transition(self) -> Tensor:
        rows = [[0.7, 0.2, 0.1], [0.05, 0.95, 0.0], [0.3, 0.3, 0.4]]
        return torch.tensor(rows, dtype=torch.float64)

    def check_budget(self) -> None:
        """It is not private: what rules a class out has no budget."""


@dataclass(frozen=True)
class SubsetSelection(LabelMechanism):
    """Report w of the c classes, the own one among them w.p. w e^eps / (w e^eps + c - w)."""

    name: ClassVar[str] = "subset"
    w: int = 2

    def own(self) -> float:
        return 1 / (1 + (self.num_classes - self.w) / self.w * math.exp(-self.epsilon))

    def perturb(self, labels: Tensor, *, generator: torch.Generator) -> Tensor:  # [n] -> [n, c]
        draw = torch.rand(len(labels), self.num_classes, generator=generator)
        own = torch.rand(len(labels), dtype=torch.float64, generator=generator) < self.own()
        draw[torch.arange(len(labels)), labels] = torch.where(own, 2.0, -1.0)
        return torch.zeros_like(draw).scatter_(1, draw.topk(self.w).indices, 1.0)

    def likelihood(self, reports: Tensor) -> Tensor:
        inside = self.own() / math.comb(self.num_classes - 1, self.w - 1)
        return torch.where(reports > 0, inside, inside * math.exp(-self.epsilon))

    def estimate(self, reports: Tensor) -> Tensor:
        other = (self.w - self.own()) / (self.num_classes - 1)  # p(k reported | label is not k)
        return (reports - other) / (self.own() - other)

    def transition(self) -> Tensor:
        c, right = self.num_classes, self.own() / self.w
        wrong = torch.full((c, c), (1 - right) / (c - 1), dtype=torch.float64)
        return wrong.fill_diagonal_(right)
