"""Symmetric cross entropy."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from lpgnn.components import check_number
from lpgnn.errors import InputError
from lpgnn.learners.robust import ReportedBatch, RobustLearner


@dataclass(frozen=True)
class SymmetricCrossEntropy(RobustLearner):
    """alpha CE(y', p) + beta CE(p, y') with log 0 = A (Wang et al. 2019).

    The reverse cross entropy -sum_k p_k log y'_k of a one-hot y' is -A (1 - p(y'|x)).
    """

    name: ClassVar[str] = "sce"

    alpha: float = 0.1
    beta: float = 1.0
    log_zero: float = -4.0  # A

    def __post_init__(self) -> None:
        check_number("alpha", self.alpha, 0)
        check_number("beta", self.beta, 0)
        check_number("log_zero", self.log_zero, -100, 0)
        if self.alpha == 0 and self.beta * self.log_zero == 0:
            raise InputError("beta", self.beta, "must be above 0 where alpha is 0: no loss is left")

    def loss(self, logits: Tensor, batch: ReportedBatch) -> Tensor:
        p = batch.agreement(logits.softmax(1))
        return batch.train_mean(-self.alpha * p.log() - self.beta * self.log_zero * (1 - p))
