"""How a node perturbs its label."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lpgnn.errors import InputError


@dataclass(frozen=True)
class RandomizedResponse:
    """k-ary randomized response (paper Eq. rr): epsilon-LDP for one label.

    p(y'|y) = e^eps / (e^eps + c - 1) if y' = y, else 1 / (e^eps + c - 1); identity at eps = inf.
    """

    epsilon: float
    num_classes: int

    def __post_init__(self) -> None:
        if not self.epsilon > 0:  # written so that NaN is refused
            raise InputError("y_eps", self.epsilon, "must be above 0 (inf: labels as they are)")
        if self.num_classes < 2:
            raise InputError("num_classes", self.num_classes, "must be at least 2")

    def keep_probability(self) -> float:
        return 1 / (1 + (self.num_classes - 1) * math.exp(-self.epsilon))

    def flip_probability(self) -> float:
        """The probability of one particular other label."""
        return math.exp(-self.epsilon) * self.keep_probability()

    def transition(self) -> Tensor:
        """T[y, y'] = p(y'|y).  -> [c, c]"""
        matrix = torch.full((self.num_classes, self.num_classes), self.flip_probability())
        return matrix.fill_diagonal_(self.keep_probability())

    def perturb(self, labels: Tensor, *, generator: torch.Generator) -> Tensor:  # [n] -> [n]
        if bool(((labels < 0) | (labels >= self.num_classes)).any()):
            raise InputError(
                "labels",
                f"{int(labels.min())}..{int(labels.max())}",
                f"must lie in 0..{self.num_classes - 1}",
            )
        if self.epsilon == math.inf:
            return labels.clone()
        # Double precision: the 24 bits of a float32 draw would round small flip probabilities.
        draw = torch.rand(labels.shape, dtype=torch.float64, generator=generator)
        shift = torch.randint(1, self.num_classes, labels.shape, generator=generator)
        keep = draw < self.keep_probability()
        return torch.where(keep, labels, (labels + shift) % self.num_classes)
