"""A learner with its own loss, as a user would write it."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from lpgnn.errors import InputError
from lpgnn.learners import LabelBatch, NetworkLearner, Run, Server


@dataclass(frozen=True)
class GeneralisedCrossEntropy(NetworkLearner):
    """(1 - p(y'|x)^q) / q (Zhang and Sabuncu 2018): between cross entropy and absolute error."""

    q: float = 0.7

    def __post_init__(self) -> None:
        if not 0 < self.q <= 1:
            raise InputError("q", self.q, "must lie in (0, 1]")

    def prepare(self, runs: Sequence[Run], server: Server) -> LabelBatch:
        return super().prepare(runs, server).taken_as_exact()

    def loss(self, logits: Tensor, batch: LabelBatch) -> Tensor:
        p = (-batch.surprise(logits)).exp()  # of the reported class: [R, N]
        return batch.train_mean((1 - p**self.q) / self.q)
