"""A small graph with communities, what the server collects from it, and runs on it."""

import torch

from lpgnn.data.graph import Graph, Topology
from lpgnn.data.sparse import CsrMatrix
from lpgnn.data.splits import Split
from lpgnn.privacy import MECHANISMS, Collected, FeatureMechanism, collect
from lpgnn.training import Hyperparameters, Run
from propagation.graphs import seeded

N, D, C = 120, 18, 3


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
        fingerprint="",
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
    feature: str = "raw",
    graph: Graph | None = None,
    split: Split | None = None,
) -> Collected:
    applied: FeatureMechanism | None = MECHANISMS[mechanism](x_eps, D) if mechanism else None
    return collect(
        graph or block_graph(),
        split or block_split(repeat),
        applied,
        y_eps,
        features_generator=seeded(100 + repeat),
        labels_generator=seeded(200 + repeat),
        feature=feature,
    )


def run_of(
    repeat: int = 0,
    reports: Collected | None = None,
    *,
    learning_rate: float = 0.01,
    weight_decay: float = 1e-3,
    dropout: float = 0.5,
) -> Run:
    return Run(
        reports or collected(repeat),
        Hyperparameters(learning_rate, weight_decay, dropout),
        weights_generator=seeded(300 + repeat),
        dropout_generator=seeded(400 + repeat),
    )
