"""Losses that take the likeliest class as it is and resist noise by their shape."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from lpgnn.learners.batch import FLOOR, LabelBatch, one_hot
from lpgnn.learners.batch_parts import parts_of
from lpgnn.learners.learner import Run, Server
from lpgnn.learners.network import NetworkLearner


@dataclass(frozen=True)
class ReportedBatch(LabelBatch):
    """Label reports with the likeliest class of each as a target."""

    reported: Tensor  # [R, c, N]: one-hot; zeros off the labelled nodes

    def agreement(self, p: Tensor) -> Tensor:
        """p(y'|x) of the class y' that a report makes likeliest, floored.  [R, c, N] -> [R, N]"""
        return (p * self.reported).sum(1) + FLOOR


@dataclass(frozen=True)
class RobustLearner(NetworkLearner):
    """A loss of p(y'|x), which knows nothing of the mechanism.

    Epochs are still chosen by the forward-correction loss, the likelihood of the validation nodes'
    reports: a robust loss fits p(y|x) of the clean label.
    """

    def prepare(self, runs: Sequence[Run], server: Server) -> ReportedBatch:
        batch = super().prepare(runs, server)
        reported = one_hot(batch.classes, batch.classes >= 0, batch.excess.shape[1])
        return ReportedBatch(**parts_of(batch), reported=reported)
