"""A custom learner, with its own loss."""

from dataclasses import dataclass

from torch import Tensor

from lpgnn.errors import InputError
from lpgnn.learners import LabelBatch, NetworkLearner


@dataclass(frozen=True)
class FocalLoss(NetworkLearner):
    """-(1 - p)^gamma log p of p(y'|x) (Lin et al. 2017): less weight on what is well explained."""

    gamma: float = 2.0

    def __post_init__(self) -> None:
        if not 0 <= self.gamma <= 10:
            raise InputError("gamma", self.gamma, "must be a number in [0, 10]")

    def loss(self, logits: Tensor, batch: LabelBatch) -> Tensor:  # [R, c, N] -> [R]
        surprise = batch.surprise(logits)  # -log p(report | x): [R, N]
        return batch.train_mean((1 - (-surprise).exp()) ** self.gamma * surprise)
