"""A label mechanism as a user would write it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lpgnn.privacy import ClassMechanism


@dataclass(frozen=True)
class Skewed(ClassMechanism):
    """Three classes that are confused unequally; one report is impossible for one of them."""

    def transition(self) -> Tensor:
        rows = [[0.7, 0.2, 0.1], [0.05, 0.95, 0.0], [0.3, 0.3, 0.4]]
        return torch.tensor(rows, dtype=torch.float64)

    def check_budget(self) -> None:
        """It is not private: what rules a class out has no budget."""
