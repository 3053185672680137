"""Backward correction."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from lpgnn.learners.batch import FLOOR, LabelBatch
from lpgnn.learners.batch_parts import estimates_of, parts_of
from lpgnn.learners.cross_entropy import CrossEntropy
from lpgnn.learners.learner import Learner, Run, Server
from lpgnn.learners.network import NetworkLearner


@dataclass(frozen=True)
class EstimatedBatch(LabelBatch):
    """Label reports with the estimates of the labels behind them."""

    estimate: Tensor  # [R, c, N]


@dataclass(frozen=True)
class BackwardCorrection(NetworkLearner):
    """The cross entropy that clean labels would have, in expectation (Patrini et al. 2017).

    T^-1 l(p) at the reported class is -sum_k e_k log p(k|x) with e the row of T^-1, which is the
    unbiased estimate of the one-hot label.  So it is for every mechanism that has one.  Negative
    entries of e reward low probabilities: the floor under the logarithm is what bounds the loss.
    """

    name: ClassVar[str] = "backward"

    def canonical(self, *, labels_are_exact: bool) -> Learner:
        # Without label noise there is nothing to correct; what a subclass is, we cannot know.
        if labels_are_exact and type(self) is BackwardCorrection:
            return CrossEntropy(refit=self.refit)
        return self

    def prepare(self, runs: Sequence[Run], server: Server) -> EstimatedBatch:
        parts = parts_of(super().prepare(runs, server))
        return EstimatedBatch(**parts, estimate=estimates_of(runs, server.device))

    def loss(self, logits: Tensor, batch: EstimatedBatch) -> Tensor:
        log_p = (logits.softmax(1) + FLOOR).log()
        return batch.train_mean(-(batch.estimate * log_p).sum(1))
