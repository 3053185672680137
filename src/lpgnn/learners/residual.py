"""The residual learner: a network on top of the propagated labels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from lpgnn.components import before
from lpgnn.errors import InputError
from lpgnn.learners.forward_correction import ForwardCorrection
from lpgnn.learners.label_propagation import Combine, Labels, Walk, check_options, label_scores
from lpgnn.learners.learner import Run, Server
from lpgnn.privacy import LabelReports
from lpgnn.propagation import Aggregator, Operator


@dataclass(frozen=True)
class Residual(ForwardCorrection):
    """The network's logits are added to those of the propagated labels, a node's own left out.

    Trained with forward correction.  At the end labelled nodes learn from their own reports, and
    all probabilities are smoothed over the graph by ``smooth`` lazy steps.  ``labels``: whose
    reports are propagated and learnt from at the end; the network itself learns from the training
    nodes', and with ``refit`` from the validation nodes' as well.
    """

    name: ClassVar[str] = "residual"
    # The network starts from a good answer: the epoch that is kept comes early.
    suggests: ClassVar[Mapping[str, Any]] = {
        "hparams": "residual",
        "max_epochs": 200,
        "filter.conditioning": "node",
    }

    walk: Walk = "lazy"
    combine: Combine = "stack"
    smooth: int = 4
    aggregator: Aggregator = "gcn"
    labels: Labels = field(default="train+val", metadata=before("train+val"))

    def __post_init__(self) -> None:
        check_options(self.walk, self.combine, self.aggregator, self.labels)
        whole = isinstance(self.smooth, int) and not isinstance(self.smooth, bool)
        if not whole or self.smooth < 0:
            raise InputError("smooth", self.smooth, "must be a whole number >= 0")

    def prior(self, runs: Sequence[Run], server: Server) -> Tensor:
        options = (self.aggregator, self.walk, self.combine, self.labels)
        scores = (label_scores(r.collected, server.graph, *options) for r in runs)
        return torch.stack([own.scores for own in scores])

    @property
    def finishes(self) -> bool:
        return self.smooth > 0

    def finish(self, probabilities: Tensor, run: Run, server: Server) -> Tensor:
        updated = with_reports(probabilities, run.collected.labels)
        if self.labels == "train":
            train = run.collected.train_mask.to(probabilities.device)
            updated = torch.where(train, updated, probabilities)
        return smoothed(updated, server.graph.kprop(self.aggregator), self.smooth)


def with_reports(p: Tensor, labels: LabelReports) -> Tensor:
    """p(y|x, y') ~ p(y|x) p(y'|y), Bayes' rule, where there is a report y'.  [c, N] -> [c, N]"""
    joint = p * labels.likelihood.to(p.device)
    total = joint.sum(0)
    # A clean label that the model holds for impossible says nothing that a number can carry.
    return torch.where(total > 0, joint / total.clamp(min=torch.finfo(p.dtype).tiny), p)


def smoothed(p: Tensor, operator: Operator, steps: int) -> Tensor:
    """Replace p by (p + P p) / 2, ``steps`` times.  [c, N] -> [c, N]"""
    for _ in range(steps):
        p = (p + operator.propagate_classes(p[None])[0]) / 2
    return p
