"""Drop: label denoising with propagation (paper Algorithm 3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from torch import Tensor

from lpgnn.errors import InputError
from lpgnn.learners.batch import LabelBatch, mean_weight, one_hot
from lpgnn.learners.forward_correction import ForwardCorrection
from lpgnn.learners.learner import Learner, Run, Server
from lpgnn.learners.network import NetworkLearner
from lpgnn.privacy import LabelReports
from lpgnn.propagation import Aggregator, Operator


@dataclass(frozen=True)
class DenoisedBatch(LabelBatch):
    """Label reports with the denoised labels y~ to learn from."""

    target: Tensor  # [R, c, N]: 1 / |V| at y~ of the training nodes V that a label reaches
    operator: Operator


@dataclass(frozen=True)
class Drop(NetworkLearner):
    """Propagate the noisy labels K_y steps, and the model's noisy posterior through the same.

    y~ = argmax KProp(y'); p(y~|x) = softmax KProp(p(y'|x)) (paper Eq. p_yt).  Epochs are chosen by
    the forward-correction loss against y' itself.  A report that is more than a class counts by its
    unbiased estimate of the one-hot label, whose likeliest class is y' in p(y'|x).
    """

    name: ClassVar[str] = "drop"
    open_fields: ClassVar[Mapping[str, str]] = {"steps": "y_steps"}

    steps: int | None = None  # K_y; None: from the table of hyper-parameters
    aggregator: Aggregator = "gcn"

    def __post_init__(self) -> None:
        whole = isinstance(self.steps, int) and not isinstance(self.steps, bool)
        if self.steps is not None and not (whole and self.steps >= 0):
            raise InputError("steps", self.steps, "must be a whole number >= 0")
        if self.aggregator not in ("gcn", "mean"):
            raise InputError("aggregator", self.aggregator, "must be one of gcn, mean")

    @property
    def label_steps(self) -> int:
        return self.steps or 0

    def canonical(self, *, labels_are_exact: bool) -> Learner:
        # Without a step it is forward correction; what a subclass is, we cannot know.
        if self.steps == 0 and type(self) is Drop:
            plain = ForwardCorrection(refit=self.refit)
            return plain.canonical(labels_are_exact=labels_are_exact)
        return self

    def prepare(self, runs: Sequence[Run], server: Server) -> DenoisedBatch:
        if self.steps is None:
            raise InputError("learner.steps", "null", "must be set before the learner is used")
        batch = super().prepare(runs, server)
        operator, c = server.graph.kprop(self.aggregator), batch.excess.shape[1]
        noisy = torch.stack([votes(run.collected.labels) for run in runs]).to(server.device)
        received = operator.propagate_classes(noisy, self.label_steps)
        _, denoised = received.max(dim=1)  # [R, N]
        # A node that no label reaches has no y~ to learn from: it takes no part in the loss.
        informed = (batch.train > 0) & (received != 0).any(1)
        own = {f.name: getattr(batch, f.name) for f in fields(LabelBatch)}
        target = mean_weight(one_hot(denoised, informed, c))
        return DenoisedBatch(**own, target=target, operator=operator)

    def loss(self, logits: Tensor, batch: DenoisedBatch) -> Tensor:
        if self.steps == 0:  # nothing to denoise with: forward correction
            return batch.train_mean(batch.surprise(logits))
        noisy = batch.noisy_posterior(logits)
        propagated = batch.operator.propagate_classes(noisy, self.label_steps)
        return -(propagated.log_softmax(1) * batch.target).flatten(1).sum(1)


def votes(labels: LabelReports) -> Tensor:
    """What each report says of the classes, ready to be summed over nodes.  -> [c, N]

    The estimates of randomized response are its classes up to a scale and a shift, which change no
    argmax: they are left out, and so is their rounding.
    """
    labelled = labels.classes >= 0
    c = labels.num_classes
    classes = one_hot(labels.classes[None], labelled[None], c)[0]
    estimate = labels.estimate[:, labelled]  # [c, n]
    own = classes[:, labelled] > 0
    is_class = _are_equal(estimate[own]) and _are_equal(estimate[~own])
    return classes if is_class else labels.estimate


def _are_equal(values: Tensor) -> bool:
    return not values.numel() or bool((values - values[0]).abs().max() <= 1e-5 * values[0].abs())
