"""k-ary randomized response."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from lpgnn.errors import InputError
from lpgnn.privacy.exact import greatest_keep_probability, least_label_epsilon
from lpgnn.privacy.label_mechanism import ClassMechanism


@dataclass(frozen=True)
class RandomizedResponse(ClassMechanism):
    """k-ary randomized response (paper Eq. rr): epsilon-LDP for one label.

    p(y'|y) = e^eps / (e^eps + c - 1) if y' = y, else 1 / (e^eps + c - 1)
    """

    name: ClassVar[str] = "rr"

    def __post_init__(self) -> None:
        super().__post_init__()
        least = least_label_epsilon(self.num_classes - 1) if self.is_bound else 0.0
        if self.epsilon < least:
            allowed = f"must be at least {least:.3g}: random numbers of 32 bits keep no less"
            raise InputError("y_eps", self.epsilon, allowed)
        if self.is_bound and self.keep_probability() == self.flip_probability():
            allowed = "is too small: keeping a label is no likelier than any other"
            raise InputError("y_eps", self.epsilon, allowed)

    def keep_probability(self) -> float:
        return 1 / (1 + (self.num_classes - 1) * math.exp(-self.epsilon))

    def flip_probability(self) -> float:
        """The probability of one particular other label."""
        return math.exp(-self.epsilon) * self.keep_probability()

    def transition(self) -> Tensor:
        shape, flip = (self.num_classes, self.num_classes), self.flip_probability()
        return torch.full(shape, flip, dtype=torch.float64).fill_diagonal_(self.keep_probability())

    def perturb(self, labels: Tensor, *, generator: torch.Generator) -> Tensor:  # [n] -> [n]
        # Double precision: the 24 bits of a float32 draw would round small flip probabilities.
        draw = torch.rand(labels.shape, dtype=torch.float64, generator=generator)
        shift = torch.randint(1, self.num_classes, labels.shape, generator=generator)
        # The ratio of what is drawn, in 53 and 32 binary places, is at most e^eps.
        bound = greatest_keep_probability(self.epsilon, self.num_classes - 1)
        keep = draw < min(self.keep_probability(), bound)
        return torch.where(keep, labels, (labels + shift) % self.num_classes)

    def estimate(self, reports: Tensor) -> Tensor:
        """(Y' - q) / (p - q) with p = keep and q = flip: the inverse of the transition."""
        keep, flip = self.keep_probability(), self.flip_probability()
        return (F.one_hot(reports, self.num_classes).float() - flip) / (keep - flip)

    def parameters(self) -> dict[str, float]:
        return {"keep": self.keep_probability()}
