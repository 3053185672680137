"""A custom label mechanism."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lpgnn.privacy import ClassMechanism


@dataclass(frozen=True)
class NeighbourResponse(ClassMechanism):
    """Ordered classes: p(y'|y) falls with |y' - y| as e^(-eps |y' - y| / (c - 1)); eps-LDP."""

    spread: float = 0.5  # of the budget: rows are normalised, which costs up to a factor of two

    def transition(self) -> Tensor:
        classes = torch.arange(self.num_classes, dtype=torch.float64)
        distance = (classes[:, None] - classes).abs() / (self.num_classes - 1)
        weight = (-self.spread * self.epsilon * distance).exp()
        return weight / weight.sum(1, keepdim=True)

    def parameters(self) -> dict[str, float]:
        return {"ratio": math.exp(self.epsilon)}
