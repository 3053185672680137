"""A small graph with communities, what the server collects from it, and runs on it."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import pytest
import torch
from torch import Tensor

from lpgnn.data.graph import Graph, Topology
from lpgnn.data.sparse import CsrMatrix
from lpgnn.data.splits import Split
from lpgnn.kernels import Backend
from lpgnn.learners import Learner, Outcome, Run, Server
from lpgnn.models import Backbone
from lpgnn.privacy import (
    Collected,
    Feature,
    LabelMechanism,
    LabelReports,
    RandomizedResponse,
    RawFeatures,
    collect,
)
from lpgnn.propagation import Filter, KProp, PreparedGraph
from lpgnn.randomness import Streams
from models.reference import BACKBONES
from propagation.graphs import seeded
from propagation.mechanisms import MECHANISMS

N, D, C, H = 120, 18, 3, 6
EPOCHS = 10
RAW, RESPONSE = RawFeatures(), RandomizedResponse()
GCN = BACKBONES["gcn"]
KPROP = KProp(steps=2)

# Whatever trains is tested by numba's loops and by torch's operations, which are what a GPU runs.
both_kernels = pytest.mark.parametrize("kernels", ["numba", "torch"])


def block_graph(seed: int = 0) -> Graph:
    """Three communities, a word list for each; node 7 has a self-loop, the last node is isolated.

    An edge within a community has probability 0.12, another 0.015.
    """
    generator = seeded(seed)
    labels = torch.arange(N) % C
    same = labels[:, None] == labels[None]
    drawn = torch.rand(N, N, generator=generator) < torch.where(same, 0.12, 0.015)
    drawn[:, -1] = drawn[-1] = False
    edges = drawn.triu(1).nonzero().t()
    loop = torch.tensor([[7], [7]])
    own_words = torch.arange(D)[None] % C == labels[:, None]
    words = torch.rand(N, D, generator=generator) < torch.where(own_words, 0.5, 0.1)
    return Graph(
        name="blocks",
        topology=Topology.from_edges(N, torch.cat([edges, loop], dim=1)),
        features=CsrMatrix.from_dense(words.float()),
        labels=labels,
        num_classes=C,
        feature_dim=D,
        raw_feature_dim=D,
    )


def block_split(seed: int = 0) -> Split:
    part = torch.randperm(N, generator=seeded(seed)) % 4
    return Split(train=part < 2, val=part == 2, test=part == 3)


def collected(
    repeat: int = 0,
    mechanism: str | None = "mb",
    *,
    x_eps: float = 3.0,
    y_eps: float = 1.0,
    feature: Feature | None = RAW,
    labels: LabelMechanism = RESPONSE,
    graph: Graph | None = None,
    split: Split | None = None,
) -> Collected:
    return collect(
        graph or block_graph(),
        split or block_split(repeat),
        feature=feature,
        mechanism=MECHANISMS[mechanism](x_eps, D) if mechanism else None,
        label_mechanism=None if y_eps == inf else labels.bind(y_eps, C),
        features_generator=seeded(100 + repeat),
        labels_generator=seeded(200 + repeat),
    )


@dataclass(frozen=True)
class AlreadySent(RandomizedResponse):
    """Randomized response whose reports are given: the labels are what was sent."""

    def perturb(self, labels: Tensor, *, generator: torch.Generator) -> Tensor:
        return labels.clone()


def label_reports(sent: Tensor, y_eps: float, num_classes: int) -> LabelReports:
    """What the server knows if the nodes sent these classes; -1: nothing.  sent: [N]"""
    return AlreadySent(y_eps, num_classes).collect(sent, sent >= 0, generator=seeded())


def run_of(
    repeat: int = 0,
    reports: Collected | None = None,
    *,
    learning_rate: float = 0.01,
    weight_decay: float = 1e-3,
    dropout: float = 0.5,
) -> Run:
    streams = Streams(seed=5, repeat=repeat).of_server()
    return Run(reports or collected(repeat), streams, learning_rate, weight_decay, dropout)


def server_of(
    collected: Collected,
    kernels: str = "numba",
    *,
    filter: Filter = KPROP,
    backbone: Backbone = GCN,
    max_epochs: int = EPOCHS,
    keep_probabilities: bool = False,
    keep_weights: bool = True,
) -> Server:
    graph = PreparedGraph(collected.topology, Backend.choose("cpu", kernels))
    assert torch.equal(graph.order, torch.arange(collected.num_nodes))  # small graphs keep theirs
    return Server(
        graph,
        filter,
        backbone,
        max_epochs,
        H,
        keep_probabilities=keep_probabilities,
        keep_weights=keep_weights,
    )


def fit(
    learner: Learner,
    runs: Sequence[Run],
    kernels: str = "numba",
    *,
    filter: Filter = KPROP,
    backbone: Backbone = GCN,
    max_epochs: int = EPOCHS,
) -> list[Outcome]:
    server = server_of(
        runs[0].collected, kernels, filter=filter, backbone=backbone, max_epochs=max_epochs
    )
    return learner.fit(runs, server)
