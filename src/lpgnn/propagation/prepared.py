"""A public graph made ready for products, everything built once."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from lpgnn.data.graph import Topology
from lpgnn.kernels import Backend
from lpgnn.propagation.attention_pattern import AttentionPattern
from lpgnn.propagation.operators import Aggregator, Operator, aggregation, with_self_loops
from lpgnn.propagation.reorder import cache_order, reorder_topology

T = TypeVar("T")


class PreparedGraph:
    """A topology in cache order, and what filters, backbones and learners build from it.

    Keep one for each graph and backend: everything in it is built at its first use and shared by
    all runs.
    """

    def __init__(self, topology: Topology, backend: Backend) -> None:
        self.backend = backend
        self.order = cache_order(topology)  # [N]: node i here is node order[i] of the user's graph
        self.topology = reorder_topology(topology, self.order)
        self._built: dict[Hashable, Any] = {}

    @property
    def num_nodes(self) -> int:
        return self.topology.num_nodes

    def once(self, key: Hashable, build: Callable[[], T]) -> T:
        """What ``build`` returns, built at the first call with this key."""
        if key not in self._built:
            self._built[key] = build()
        built: T = self._built[key]
        return built

    def kprop(self, aggregator: Aggregator) -> Operator:
        """One step of KProp (paper Algorithm 2): aggregation over N(v) - {v}."""

        def build() -> Operator:
            return aggregation(self.topology.without_self_loops(), aggregator, self.backend)

        return self.once(("kprop", aggregator), build)

    def aggregation(self, aggregator: Aggregator, *, self_loops: bool) -> Operator:
        """A backbone's aggregation: each node with one self-loop, or the lists as they are."""

        def build() -> Operator:
            topology = with_self_loops(self.topology) if self_loops else self.topology
            return aggregation(topology, aggregator, self.backend)

        return self.once(("aggregation", aggregator, self_loops), build)

    @property
    def attention(self) -> AttentionPattern:
        """Neighbour lists for attention, each node with one self-loop."""

        def build() -> AttentionPattern:
            return AttentionPattern.from_topology(self.topology, self.backend)

        return self.once("attention", build)
