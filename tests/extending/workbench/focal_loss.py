"""A learner of one's own, with its own loss."""

from dataclasses import dataclass

from torch import Tensor

from lpgnn.errors import InputError
from lpgnn.learners import LabelBatch, NetworkLearner


@dataclass(frozen=True)
class GeneralisedCrossEntropy(NetworkLearner):
    """(1 - p(y'|x)^q) / q (Zhang and Sabuncu 2018): between cross entropy and mean error."""

    q: float = 0.7

    def __post_init__(self) -> None:
        if not 0 < self.q <= 1:
            raise InputError("q", self.q, "must be a number in (0, 1]")

    def loss(self, logits: Tensor, batch: LabelBatch) -> Tensor:  # [R, c, N] -> [R]
        p = (-batch.surprise(logits)).exp()  # p(report | x): [R, N]
        return batch.train_mean((1 - p**self.q) / self.q)
