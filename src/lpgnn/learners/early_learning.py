"""Early-learning regularisation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lpgnn.components import check_number
from lpgnn.learners.batch_parts import parts_of
from lpgnn.learners.learner import Run, Server
from lpgnn.learners.robust import ReportedBatch, RobustLearner

# Probabilities are kept this far from 0 and 1 in the regulariser, as in the authors' program:
# log(1 - <p, t>) has no end where both are sure.
_MARGIN = 1e-4


@dataclass(frozen=True)
class RunningBatch(ReportedBatch):
    """With the running targets of every node, which each step of the training moves on."""

    targets: Tensor  # [R, c, N]; the loss writes to it


@dataclass(frozen=True)
class EarlyLearning(RobustLearner):
    """CE(y', p) + lambda log(1 - <p, t>), with t the running mean of the model's own p (ELR).

    t <- beta t + (1 - beta) p before each step, from t = 0; no gradient runs through t (Liu et al.
    2020).  Targets agree with p where the model learnt early, and the gradient of what it then
    learns against them is held back.  Each node keeps its t over the epochs, in dropout mode.
    """

    name: ClassVar[str] = "elr"

    weight: float = 3.0  # lambda
    momentum: float = 0.7  # beta

    def __post_init__(self) -> None:
        check_number("weight", self.weight, 0)
        check_number("momentum", self.momentum, 0, 1)

    def prepare(self, runs: Sequence[Run], server: Server) -> RunningBatch:
        batch = super().prepare(runs, server)
        targets = torch.zeros_like(batch.reported)
        return RunningBatch(**parts_of(batch), reported=batch.reported, targets=targets)

    def loss(self, logits: Tensor, batch: RunningBatch) -> Tensor:
        p = logits.softmax(1)
        inner = p.clamp(_MARGIN, 1 - _MARGIN)
        with torch.no_grad():
            current = inner / inner.sum(1, keepdim=True)
            batch.targets.mul_(self.momentum).add_(current, alpha=1 - self.momentum)
        held_back = (1 - (inner * batch.targets).sum(1)).log()
        return batch.train_mean(-batch.agreement(p).log() + self.weight * held_back)
