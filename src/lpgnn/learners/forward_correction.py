"""Forward correction."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from lpgnn.learners.batch import LabelBatch
from lpgnn.learners.cross_entropy import CrossEntropy
from lpgnn.learners.learner import Learner
from lpgnn.learners.network import NetworkLearner


@dataclass(frozen=True)
class ForwardCorrection(NetworkLearner):
    """Cross entropy of the noisy posterior p(y'|x) = sum_y p(y'|y) p(y|x) (Patrini et al. 2017)."""

    name: ClassVar[str] = "forward"

    def loss(self, logits: Tensor, batch: LabelBatch) -> Tensor:
        return batch.train_mean(batch.surprise(logits))

    def canonical(self, *, labels_are_exact: bool) -> Learner:
        # Without label noise there is nothing to correct; what a subclass is, we cannot know.
        if labels_are_exact and type(self) is ForwardCorrection:
            return CrossEntropy(refit=self.refit)
        return self
