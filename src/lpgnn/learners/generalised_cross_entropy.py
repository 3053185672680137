"""Generalised cross entropy."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from lpgnn.components import check_number
from lpgnn.learners.robust import ReportedBatch, RobustLearner


@dataclass(frozen=True)
class GeneralisedCrossEntropy(RobustLearner):
    """(1 - p(y'|x)^q) / q (Zhang and Sabuncu 2018): cross entropy for q -> 0, mean error for q = 1.

    The truncated variant of the same paper is not here.
    """

    name: ClassVar[str] = "gce"

    q: float = 0.7  # the paper's

    def __post_init__(self) -> None:
        check_number("q", self.q, 0, 1, above=True)

    def loss(self, logits: Tensor, batch: ReportedBatch) -> Tensor:
        p = batch.agreement(logits.softmax(1))
        return batch.train_mean((1 - p**self.q) / self.q)
