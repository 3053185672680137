"""What learns from the server's side of a collection: the interface of all learners."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from lpgnn.components import Component
from lpgnn.errors import InputError
from lpgnn.models import Backbone, Network, Shape, Weights
from lpgnn.privacy import Collected, Protocol, Question, Respondents, Round
from lpgnn.propagation import Filter, PreparedGraph, PropagatedFeatures
from lpgnn.randomness import ServerStreams


@dataclass(frozen=True)
class Run:
    """One of the runs that train side by side: what was collected, and what is its own."""

    collected: Collected  # in the node order of the server's graph
    streams: ServerStreams
    learning_rate: float = 0.0
    weight_decay: float = 0.0
    dropout: float = 0.0
    respondents: Respondents | None = None  # of a protocol that asks, in the same order

    def ask(self, nodes: Tensor, question: Question) -> "Run":
        """The run after another round.  nodes: [n], none of which was asked before"""
        if self.respondents is None:
            allowed = "needs users who answer while it learns: protocol=two_round"
            raise InputError("learner", "asks questions", allowed)
        answers = self.respondents.ask(nodes, question)
        return replace(self, collected=self.collected.with_round(Round(nodes, question, answers)))


@dataclass(frozen=True)
class Server:
    """What all runs of a batch share on the server's side."""

    graph: PreparedGraph
    filter: Filter | None = None
    backbone: Backbone | None = None
    max_epochs: int = 1
    hidden_dim: int = 16
    keep_probabilities: bool = False  # in the outcomes, beside the predictions
    keep_weights: bool = False
    with_val: bool = False  # learn from the validation nodes, too
    protocol: Protocol | None = None  # None: one round
    on_epoch: Callable[[], None] | None = None

    @property
    def device(self) -> torch.device:
        return self.graph.backend.device

    def features(self, runs: Sequence[Run]) -> PropagatedFeatures:
        """The reports behind the filter, ready for a first layer."""
        reports = [run.collected.features for run in runs]
        assert self.filter is not None
        return self.filter.features([r for r in reports if r is not None], self.graph)

    def network(self, runs: Sequence[Run]) -> Network:
        """The backbone at the size of the collected data."""
        collected = runs[0].collected
        assert self.backbone is not None
        assert collected.features is not None
        shape = Shape(
            feature_dim=collected.features.num_features,
            hidden_dim=self.hidden_dim,
            num_classes=collected.num_classes,
            dropout=runs[0].dropout,
        )
        return self.backbone.build(shape, self.graph)


@dataclass(frozen=True)
class Selected:
    """The epoch that a rule chose, and the model's predictions then."""

    epoch: int  # from 1
    qualified: bool  # False: no epoch kept within Acc*, the lowest loss was taken
    predictions: Tensor  # [N]
    probabilities: Tensor | None = None  # [c, N]; None unless asked for
    weights: Weights = field(default_factory=dict)  # empty unless asked for


@dataclass(frozen=True)
class Outcome:
    """The outcome of one run."""

    history: dict[str, Tensor]  # each [T]: train_loss, dropout_train_acc, train_acc, val_*
    selected: dict[str, Selected]  # by the name of the selection rule

    def in_original_order(self, order: Tensor) -> "Outcome":
        """The same with node ``order[i]`` in place of node i."""
        back = order.argsort()
        selected = {
            rule: replace(
                one,
                predictions=one.predictions[back],
                probabilities=None if one.probabilities is None else one.probabilities[:, back],
            )
            for rule, one in self.selected.items()
        }
        return replace(self, selected=selected)

    @property
    def failed_epoch(self) -> int | None:
        """The first epoch whose loss is not a number, if any."""
        broken = ~(self.history["train_loss"].isfinite() & self.history["val_loss"].isfinite())
        return int(broken.nonzero()[0, 0]) + 1 if bool(broken.any()) else None


@dataclass(frozen=True)
class Learner(Component, ABC):
    """A way to learn from reports.

    ``uses_network``: it trains the backbone on filtered features.  ``reads_reports``: it has no
    network and looks at the feature reports themselves.  ``asks``: it asks nodes about their
    features, under a protocol that does.  Without any of these, labels and the graph are all it
    looks at.  ``suggests`` holds settings that suit it; they apply where a user leaves them open
    ("filter.conditioning" is an option of the filter).
    """

    kind: ClassVar[str] = "learner"
    uses_network: ClassVar[bool] = True
    reads_reports: ClassVar[bool] = False
    asks: ClassVar[bool] = False
    suggests: ClassVar[Mapping[str, Any]] = {}

    @abstractmethod
    def fit(self, runs: Sequence[Run], server: Server) -> list[Outcome]:
        """Learn the runs side by side; nothing that one run does reaches another."""

    def apply(self, weights: Weights, run: Run, server: Server, rule: str) -> Tensor:
        """Probabilities of all nodes from weights that a rule chose.  -> [c, N]

        A learner without weights learns again from the same reports.
        """
        again = replace(server, keep_probabilities=True, on_epoch=None)
        found = self.fit([run], again)[0].selected[rule].probabilities
        if found is None:
            raise InputError("learner", self.name, "gives no probabilities")
        return found

    def canonical(self, *, labels_are_exact: bool) -> "Learner":
        """The simplest learner that computes the same, so that one computation has one name."""
        return self

    @property
    def needs_features(self) -> bool:
        """Whether nodes must have reported features before it learns."""
        return self.uses_network or self.reads_reports

    def report_columns(self, num_features: int) -> int:
        """Columns of numbers that it makes of reports without a network, for the estimate."""
        return num_features

    @property
    def label_steps(self) -> int:
        """Propagations of class columns in an epoch, for the estimate of its cost."""
        return 0
