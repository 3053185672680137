"""Edges between and within classes, drawn in proportion to the nodes' weights."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lpgnn.data.graph import Topology
from lpgnn.data.sparse import sorted_unique
from lpgnn.errors import InputError

MAX_ROUNDS = 200


@dataclass(frozen=True)
class EndPicker:
    """Picks the ends of edges in proportion to the nodes' weights.

    Nodes lie side by side on a line, class after class, each with its weight as its length.  A
    uniform point on the line picks a source; one on the stretch of the source's class, or off it,
    picks the target.
    """

    nodes: Tensor  # [N] in the order of the line
    ends: Tensor  # [N] where each node's length ends
    class_bounds: Tensor  # [C + 1] where the classes' stretches begin and end
    labels: Tensor  # [N]
    same_class: bool

    @classmethod
    def build(
        cls, labels: Tensor, weights: Tensor, num_classes: int, *, same_class: bool
    ) -> "EndPicker":
        nodes = labels.argsort(stable=True)
        ends = weights[nodes].cumsum(0)
        last = torch.bincount(labels, minlength=num_classes).cumsum(0) - 1
        class_bounds = torch.cat([torch.zeros(1, dtype=ends.dtype), ends[last]])
        return cls(nodes, ends, class_bounds, labels, same_class)

    def sources(self, count: int, generator: torch.Generator) -> Tensor:  # -> [count]
        uniform = torch.rand(count, generator=generator, dtype=torch.float64)
        return self._node_at(uniform * self.ends[-1])

    def targets(self, sources: Tensor, generator: torch.Generator) -> Tensor:  # [n] -> [n]
        uniform = torch.rand(sources.numel(), generator=generator, dtype=torch.float64)
        classes = self.labels[sources]
        begin, end = self.class_bounds[classes], self.class_bounds[classes + 1]
        if self.same_class:
            return self._node_at(begin + uniform * (end - begin))
        point = uniform * (self.ends[-1] - (end - begin))
        return self._node_at(torch.where(point < begin, point, point + (end - begin)))

    def _node_at(self, point: Tensor) -> Tensor:
        position = torch.searchsorted(self.ends, point, right=True)
        return self.nodes[position.clamp_(max=self.nodes.numel() - 1)]


@dataclass(frozen=True)
class BlockEdges:
    """N * average_degree / 2 distinct edges, of which a share ``homophily`` within a class."""

    average_degree: float
    homophily: float
    within: EndPicker
    across: EndPicker

    def draw(
        self, generator: torch.Generator, *, starts: tuple[Tensor | None, Tensor | None]
    ) -> Topology:
        """Draw the edges within classes, then those between them.

        ``starts``: nodes that start an edge of either kind each, as far as the edges go.
        """
        num_nodes = self.within.nodes.numel()
        num_edges = round(num_nodes * self.average_degree / 2)
        num_inside = round(self.homophily * num_edges)
        inside = self._distinct(self.within, num_inside, starts[0], generator)
        outside = self._distinct(self.across, num_edges - num_inside, starts[1], generator)
        return Topology.from_edges(num_nodes, torch.cat([inside, outside], dim=1))

    def _distinct(
        self, picker: EndPicker, count: int, start: Tensor | None, generator: torch.Generator
    ) -> Tensor:
        """Draw edges; self-loops and repeated pairs are drawn again.  -> [2, count]"""
        num_nodes = picker.nodes.numel()
        keys = torch.empty(0, dtype=torch.int64)
        sources = keys if start is None else start[:count]
        for _ in range(MAX_ROUNDS):
            shortfall = count - keys.numel()
            if shortfall == 0:
                return torch.stack([keys // num_nodes, keys % num_nodes])
            more = picker.sources(shortfall - sources.numel(), generator)
            sources = torch.cat([sources, more])
            targets = picker.targets(sources, generator)
            low, high = torch.minimum(sources, targets), torch.maximum(sources, targets)
            drawn = (low * num_nodes + high)[low != high]
            keys = sorted_unique(torch.cat([keys, drawn]))
            sources = sources[:0]
        raise InputError(
            "dataset.average_degree",
            self.average_degree,
            f"too dense for {num_nodes} nodes with homophily {self.homophily}; lower it or raise "
            "dataset.num_nodes",
        )
