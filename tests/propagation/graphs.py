"""Small graphs for the tests of propagation, models and training, and their dense operators."""

import pytest
import torch
from torch import Tensor

from lpgnn.data.graph import Topology
from lpgnn.kernels import Backend
from lpgnn.propagation import Aggregator, Operator, PreparedGraph

CPU = torch.device("cpu")
NUMBA = Backend(CPU, compiled=True)
TORCH = Backend(CPU, compiled=False)  # what a GPU runs
BACKENDS = {"numba": NUMBA, "torch": TORCH}

both_backends = pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS.keys())


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def triangle_with_tail() -> Topology:
    """Edges 0-1, 0-2, 1-2, 2-3 and a self-loop at 1."""
    return Topology.from_edges(4, torch.tensor([[0, 0, 1, 2, 1], [1, 2, 2, 3, 1]]))


def path_and_isolated() -> Topology:
    """Edges 0-1, 1-2; node 3 has no neighbour."""
    return Topology.from_edges(4, torch.tensor([[0, 1], [1, 2]]))


def random_topology(num_nodes: int = 30, num_edges: int = 50, seed: int = 0) -> Topology:
    """Random edges among all nodes but the last two; nodes 0 and 5 have self-loops.

    The last node is isolated, the one before it has nothing but a self-loop.
    """
    edges = torch.randint(num_nodes - 2, (2, num_edges), generator=seeded(seed))
    loops = torch.tensor([0, 5, num_nodes - 2])
    return Topology.from_edges(num_nodes, torch.cat([edges, torch.stack([loops, loops])], dim=1))


def adjacency(topology: Topology) -> Tensor:
    """The plain 0/1 matrix.  -> [N, N] float64"""
    dense = torch.zeros(topology.num_nodes, topology.num_nodes, dtype=torch.float64)
    dense[tuple(topology.edge_index())] = 1
    return dense


def dense_gcn(adjacent: Tensor) -> Tensor:
    """D^-1/2 A D^-1/2 with 1/0 = 0, one entry at a time.  [N, N] -> [N, N]"""
    degree = adjacent.sum(1).tolist()
    out = torch.zeros_like(adjacent)
    for u, v in adjacent.nonzero().tolist():
        out[u, v] = adjacent[u, v] / (degree[u] * degree[v]) ** 0.5
    return out


def dense_mean(adjacent: Tensor) -> Tensor:
    """D^-1 A with 1/0 = 0.  [N, N] -> [N, N]"""
    return adjacent / adjacent.sum(1, keepdim=True).clamp(min=1)


def dense_kprop(topology: Topology, aggregator: Aggregator = "gcn") -> Tensor:
    """One step of KProp, without self-loops.  -> [N, N] float64"""
    normalise = dense_gcn if aggregator == "gcn" else dense_mean
    return normalise(adjacency(topology).fill_diagonal_(0))


def prepared_graph(topology: Topology, backend: Backend) -> PreparedGraph:
    """Small graphs keep their order when they are prepared."""
    graph = PreparedGraph(topology, backend)
    assert torch.equal(graph.order, torch.arange(topology.num_nodes))
    return graph


def kprop_operator(topology: Topology, aggregator: Aggregator, backend: Backend) -> Operator:
    """One step of KProp."""
    return prepared_graph(topology, backend).kprop(aggregator)


def dense_of(operator: Operator) -> Tensor:
    return operator.matrix.to_dense().double()
