"""A path with features and labels, and what a server collects from it."""

import dataclasses
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from lpgnn.data.graph import Graph, Topology
from lpgnn.data.sparse import CsrMatrix
from lpgnn.data.splits import Split
from lpgnn.privacy import (
    BlankFeatures,
    Collected,
    Feature,
    FeatureMechanism,
    FeatureReports,
    LabelMechanism,
    OneHotDegree,
    Ones,
    RandomFeatures,
    RandomizedResponse,
    RawFeatures,
    collect,
)
from propagation.mechanisms import MECHANISMS

from .pvalues import seeded

RAW, BLANK, RESPONSE = RawFeatures(), BlankFeatures(), RandomizedResponse()
STAND_INS: list[Feature] = [Ones(), OneHotDegree(), RandomFeatures()]

CHOICES: list[tuple[Feature | None, str | None]] = [
    *((RAW, name) for name in [*MECHANISMS, None]),
    *((BLANK, name) for name in MECHANISMS),
    *((feature, None) for feature in STAND_INS),
    (None, None),  # no features at all
]


def path_graph(n: int = 40, d: int = 6) -> Graph:
    """A path whose first node also has a self-loop."""
    nodes = torch.arange(n)
    edges = torch.stack([torch.cat([nodes[:1], nodes[:-1]]), torch.cat([nodes[:1], nodes[1:]])])
    features = torch.rand(n, d, generator=seeded(1))
    return Graph(
        name="path",
        topology=Topology.from_edges(n, edges),
        features=CsrMatrix.from_dense(torch.where(features > 0.5, features, 0.0)),
        labels=nodes % 3,
        num_classes=3,
        feature_dim=d,
        raw_feature_dim=d,
    )


def path_split(n: int = 40) -> Split:
    part = torch.arange(n) % 4
    return Split(train=part < 2, val=part == 2, test=part == 3)


def mechanism_of(name: str | None, x_eps: float = 3.0) -> FeatureMechanism | None:
    return None if name is None else MECHANISMS[name](x_eps, 6)


def collected(
    graph: Graph,
    split: Split,
    feature: Feature | None = RAW,
    name: str | None = "mb",
    *,
    x_eps: float = 3.0,
    y_eps: float = 1.0,
    labels: LabelMechanism = RESPONSE,
) -> Collected:
    return collect(
        graph,
        split,
        feature=feature,
        mechanism=mechanism_of(name, x_eps),
        label_mechanism=None if y_eps == math.inf else labels.bind(y_eps, graph.num_classes),
        features_generator=seeded(0),
        labels_generator=seeded(1),
    )


def reports_of(server: Collected) -> FeatureReports:
    assert server.features is not None
    return server.features


def other_features(graph: Graph) -> Graph:
    """The same graph and labels, every feature value another."""
    assert graph.features is not None
    changed = CsrMatrix.from_dense(1 - graph.features.to_dense())
    return dataclasses.replace(graph, features=changed)


def tensors_of(value: object) -> Iterator[Tensor]:
    """Every tensor reachable through the fields of (nested) dataclasses."""
    if isinstance(value, Tensor):
        yield value
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from tensors_of(getattr(value, field.name))
