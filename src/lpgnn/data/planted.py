"""A planted partition with dense informative features: where private features can pay."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from lpgnn.data.block_edges import BlockEdges, EndPicker
from lpgnn.data.generated import GeneratedGraph
from lpgnn.data.graph import Graph, Topology
from lpgnn.data.normalise import make_graph
from lpgnn.data.sparse import CsrMatrix
from lpgnn.randomness import derive_generator


@dataclass(frozen=True)
class Planted(GeneratedGraph):
    """Classes of equal size, edges by class, and features Bernoulli(1/2 + delta s_cj).

    A share ``homophily`` of the edges joins nodes of one class, all such pairs being alike, and the
    others join nodes of two classes; 1 / num_classes is no homophily at all.  The signs s_cj = +-1
    are drawn once: each feature splits the classes into two halves.  Bags of words, as in citation
    graphs, are sparse, so that a private bit says next to nothing; here every bit says something.
    """

    name: ClassVar[str] = "planted"
    # Neighbours say little here: private validation loss prefers no steps to two and more.
    suggests: ClassVar[Mapping[str, Any]] = {
        "filter.steps": 0,
        "learner.steps": 0,
        "learning_rate": 0.01,
    }

    rates: ClassVar[tuple[str, ...]] = ("delta",)

    num_nodes: int = 2000
    average_degree: float = 20.0
    num_classes: int = 4
    num_features: int = 16
    homophily: float = 0.35
    seed: int = 0
    delta: float = 0.4

    @property
    def title(self) -> str:
        return "Planted"

    def generate(self) -> Graph:
        """Draw the graph that belongs to the seed."""
        generator = derive_generator(self.seed, 0, "graph")
        order = torch.randperm(self.num_nodes, generator=generator)
        labels = torch.empty_like(order)
        labels[order] = torch.arange(self.num_nodes) % self.num_classes
        topology = self._topology(labels, generator)
        signs = self._signs(generator)
        uniform = torch.rand(self.num_nodes, self.num_features, generator=generator)
        features = (uniform < 0.5 + self.delta * signs[labels]).float()  # [N, d]
        raw = CsrMatrix.from_dense(features)
        return make_graph(self.name, topology, raw, labels, self.num_classes)

    def _topology(self, labels: Tensor, generator: torch.Generator) -> Topology:
        alike = torch.ones(self.num_nodes, dtype=torch.float64)
        within, across = (
            EndPicker.build(labels, alike, self.num_classes, same_class=same)
            for same in (True, False)
        )
        edges = BlockEdges(self.average_degree, self.homophily, within, across)
        return edges.draw(generator, starts=(None, None))

    def _signs(self, generator: torch.Generator) -> Tensor:
        """For each feature +1 for half of the classes and -1 for the others.  -> [C, d]"""
        ranks = torch.rand(self.num_classes, self.num_features, generator=generator).argsort(dim=0)
        return torch.where(ranks < self.num_classes // 2, 1.0, -1.0)

    def check_rates(self) -> None:
        self.check("delta", 0 <= self.delta <= 0.5, "must lie in [0, 1/2]")
