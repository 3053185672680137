"""Plain cross entropy."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from lpgnn.learners.batch import LabelBatch
from lpgnn.learners.learner import Run, Server
from lpgnn.learners.network import NetworkLearner


@dataclass(frozen=True)
class CrossEntropy(NetworkLearner):
    """The baseline that takes reported labels for true ones, in training and in validation."""

    name: ClassVar[str] = "cross_entropy"

    def prepare(self, runs: Sequence[Run], server: Server) -> LabelBatch:
        return super().prepare(runs, server).taken_as_exact()

    def loss(self, logits: Tensor, batch: LabelBatch) -> Tensor:
        return batch.train_mean(batch.surprise(logits))
