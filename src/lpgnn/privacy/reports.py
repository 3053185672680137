"""What crosses from the users to the server, as types."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from lpgnn.data.graph import Topology
from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError

# How feature reports are stored: few numbers a node, one bit an entry, or a full matrix.
Form = Literal["sparse", "signs", "dense"]


@dataclass(frozen=True, eq=False)
class FeatureReports:
    """The feature reports of all nodes and their rectifier (paper Eq. est), never multiplied out.

    X' = scale * sent + offset, on every entry of [N, d], absent ones included
    """

    sent: CsrMatrix | Tensor  # [N, d]; dense: float32 or int8
    scale: float
    offset: float
    magnitude: float | None = None  # public size of an entry of X'; None: nothing public is known

    def __post_init__(self) -> None:
        if isinstance(self.sent, Tensor):
            if self.sent.ndim != 2:
                raise InputError("sent", f"{self.sent.ndim} dimensions", "must be [N, d]")
            if self.sent.dtype not in (torch.float32, torch.int8):
                raise InputError("sent", self.sent.dtype, "must be float32 or int8")

    @property
    def num_nodes(self) -> int:
        return self.sent.shape[0]

    @property
    def num_features(self) -> int:
        return self.sent.shape[1]

    @property
    def form(self) -> Form:
        if isinstance(self.sent, CsrMatrix):
            return "sparse"
        signs = self.sent.dtype == torch.int8 and bool((self.sent.abs() == 1).all())
        return "signs" if signs else "dense"

    @property
    def is_finite(self) -> bool:
        sent = self.sent.values if isinstance(self.sent, CsrMatrix) else self.sent
        # Found thirty times as fast as a mask of N x d numbers; any NaN is both of them.
        extremes = [float(end) for end in sent.aminmax()] if sent.numel() else []
        return all(map(math.isfinite, (self.scale, self.offset, *extremes)))

    def select(self, nodes: Tensor) -> "FeatureReports":
        """The reports of some nodes, in the order given."""
        sent = self.sent
        chosen = sent.select_rows(nodes) if isinstance(sent, CsrMatrix) else sent[nodes]
        return replace(self, sent=chosen)

    def rectified(self) -> Tensor:
        """X' multiplied out, for tests and plug-ins; training never needs it.  -> [N, d] float32"""
        if isinstance(self.sent, CsrMatrix):
            return self.sent.to_dense().mul_(self.scale).add_(self.offset)
        return self.sent.to(torch.float32).mul(self.scale).add_(self.offset)


@dataclass(frozen=True, eq=False)
class LabelReports:
    """What the server knows of the labels, whatever mechanism the nodes used.

    Forward correction needs the likelihood, propagation the unbiased estimate, and plain cross
    entropy the likeliest class.
    """

    classes: Tensor  # [N] int64: the likeliest class; -1 where a node is not labelled
    likelihood: Tensor  # [c, N]: p(report | class); ones where a node is not labelled
    estimate: Tensor  # [c, N]: unbiased for the one-hot label; zeros where a node is not labelled
    transition: Tensor  # [c, c] float64: p(likeliest class = k | label = y), public
    shares: Tensor  # [c] float64: how frequent the classes are, as far as the reports tell

    @property
    def num_classes(self) -> int:
        return self.likelihood.shape[0]

    @property
    def accuracy(self) -> Tensor:
        """Acc*: how often the likeliest class is the true one.  -> [] float64"""
        return self.shares @ self.transition.diagonal()

    def select(self, nodes: Tensor) -> "LabelReports":
        """The reports of some nodes, in the order given."""
        return replace(
            self,
            classes=self.classes[nodes],
            likelihood=self.likelihood[:, nodes],
            estimate=self.estimate[:, nodes],
        )


@dataclass(frozen=True, eq=False)
class Received:
    """Answers that came over the wire: from some of those who were asked."""

    answered: Tensor  # [n] bool, of those who were asked
    question: Any  # as it was published, to those who answered
    answers: FeatureReports | Tensor  # of those who answered


@dataclass(frozen=True, eq=False)
class Round:
    """One round of an interactive protocol: who was asked what, and the private answers."""

    nodes: Tensor  # [n] int64
    question: Any  # a ``privacy.questions.Question``, with what was published for it
    answers: FeatureReports | Tensor | Received  # [n, ...]

    def of_those_who_answered(self) -> "Round":
        """The same without those who were asked and stayed silent."""
        received = self.answers
        if not isinstance(received, Received):
            return self
        return Round(self.nodes[received.answered], received.question, received.answers)


@dataclass(frozen=True, eq=False)
class Collected:
    """The privacy boundary: everything the server holds, and nothing else.

    The topology, the perturbed reports, the answers of any rounds, and public numbers.  No clean
    feature, no clean label (but for budgets of inf), nothing about the labels of unlabelled nodes,
    and no tensor shared with the clean graph.
    """

    topology: Topology
    features: FeatureReports | None  # [N, d]; None where the learner does not ask for them
    labels: LabelReports  # of the nodes of both masks
    train_mask: Tensor  # [N] bool
    val_mask: Tensor  # [N] bool, disjoint from train_mask
    x_eps: float
    y_eps: float
    parameters: Mapping[str, float]  # public numbers of the feature mechanism
    rounds: tuple[Round, ...] = ()  # in their order; no node is in two of them

    def __post_init__(self) -> None:
        nodes, c = self.topology.num_nodes, self.labels.num_classes
        if self.features is not None and self.features.num_nodes != nodes:
            raise InputError(
                "features", f"{self.features.num_nodes} rows", f"must have {nodes} rows"
            )
        for name, tensor, shape, dtype in (
            ("labels.classes", self.labels.classes, (nodes,), torch.int64),
            ("labels.likelihood", self.labels.likelihood, (c, nodes), torch.float32),
            ("labels.estimate", self.labels.estimate, (c, nodes), torch.float32),
            ("labels.transition", self.labels.transition, (c, c), torch.float64),
            ("labels.shares", self.labels.shares, (c,), torch.float64),
            ("train_mask", self.train_mask, (nodes,), torch.bool),
            ("val_mask", self.val_mask, (nodes,), torch.bool),
        ):
            if tensor.shape != shape or tensor.dtype != dtype:
                found = f"{tuple(tensor.shape)} {tensor.dtype}"
                raise InputError(name, found, f"must be {shape} {dtype}")
        if bool((self.train_mask & self.val_mask).any()):
            raise InputError("val_mask", "overlapping", "must be disjoint from train_mask")
        labelled = self.train_mask | self.val_mask
        self._check_labels(labelled)
        asked = torch.cat([r.nodes for r in self.rounds]) if self.rounds else torch.empty(0)
        if asked.unique().numel() != asked.numel():
            raise InputError("rounds", "a node asked twice", "its x_eps is spent by one answer")

    def _check_labels(self, labelled: Tensor) -> None:
        labels, allowed = self.labels, "must hold nothing about unlabelled nodes"
        if bool((labels.classes[~labelled] != -1).any()):
            raise InputError("labels.classes", "set outside the masks", allowed)
        if bool((labels.likelihood[:, ~labelled] != 1).any()):
            raise InputError("labels.likelihood", "set outside the masks", allowed)
        if bool((labels.estimate[:, ~labelled] != 0).any()):
            raise InputError("labels.estimate", "set outside the masks", allowed)
        rows = labels.transition.sum(1)
        if bool((labels.transition < 0).any()) or not bool(((rows - 1).abs() < 1e-6).all()):
            found = f"rows with sums {', '.join(f'{row:.4g}' for row in rows.tolist())}"
            raise InputError("labels.transition", found, "every row must be probabilities")
        if bool((labels.shares < 0).any()) or not abs(float(labels.shares.sum()) - 1) < 1e-6:
            found = ", ".join(f"{share:.4g}" for share in labels.shares.tolist())
            raise InputError("labels.shares", found, "must be probabilities that add up to 1")
        known = labels.classes[labelled]
        if bool(((known < 0) | (known >= labels.num_classes)).any()):
            raise InputError(
                "labels.classes",
                f"{int(known.min())}..{int(known.max())}",
                f"must lie in 0..{labels.num_classes - 1} on labelled nodes",
            )

    @property
    def num_nodes(self) -> int:
        return self.topology.num_nodes

    @property
    def num_classes(self) -> int:
        return self.labels.num_classes

    def with_round(self, asked: Round) -> "Collected":
        """The same after another round."""
        return replace(self, rounds=(*self.rounds, asked.of_those_who_answered()))

    def reordered(self, topology: Topology, order: Tensor) -> "Collected":
        """The same in another node order; ``topology`` is the graph in that order."""
        place = torch.empty_like(order)
        place[order] = torch.arange(order.numel(), device=order.device)
        return replace(
            self,
            topology=topology,
            rounds=tuple(replace(asked, nodes=place[asked.nodes]) for asked in self.rounds),
            features=None if self.features is None else self.features.select(order),
            labels=self.labels.select(order),
            train_mask=self.train_mask[order],
            val_mask=self.val_mask[order],
        )
