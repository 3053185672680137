import math

import pytest
import torch
from torch import Tensor

from lpgnn.data.graph import Topology
from lpgnn.data.sparse import CsrMatrix
from lpgnn.privacy import Collected, FeatureReports
from lpgnn.propagation import cache_order, kprop_operator, reorder, reorder_topology

from .graphs import CPU, adjacency, random_topology, seeded

N, D = 30, 5


def server_side(sent: CsrMatrix | Tensor) -> Collected:
    part = torch.arange(N) % 4
    labels = torch.randint(3, (N,), generator=seeded(1))
    return Collected(
        topology=random_topology(N),
        features=FeatureReports(sent, scale=2.0, offset=0.5),
        labels=torch.where(part == 3, -1, labels),
        train_mask=part < 2,
        val_mask=part == 2,
        num_classes=3,
        x_eps=1.0,
        y_eps=1.0,
        alpha=0.0,
        beta=1.0,
        parameters={"m": 1.0},
    )


def a_ring_and_isolated_nodes(num_nodes: int) -> Topology:
    """A ring through all even nodes in a random order."""
    nodes = 2 * torch.randperm(num_nodes // 2, generator=seeded())
    return Topology.from_edges(num_nodes, torch.stack([nodes, nodes.roll(1)]))


def test_a_reordered_graph_is_the_permuted_matrix() -> None:
    topology = random_topology(N)
    order = torch.randperm(N, generator=seeded(2))
    dense = adjacency(topology)
    assert torch.equal(adjacency(reorder_topology(topology, order)), dense[order][:, order])


@pytest.mark.parametrize("sparse", [True, False])
def test_everything_collected_moves_with_its_node(sparse: bool) -> None:
    dense = torch.randn(N, D, generator=seeded(3))
    dense = torch.where(dense > 0, dense, 0.0)
    before = server_side(CsrMatrix.from_dense(dense) if sparse else dense)
    order = torch.randperm(N, generator=seeded(2))
    topology = reorder_topology(before.topology, order)
    after = reorder(before, topology, order)
    assert after.topology is topology
    assert after.features.is_sparse == sparse
    assert torch.equal(after.features.rectified(), before.features.rectified()[order])
    assert torch.equal(after.labels, before.labels[order])
    assert torch.equal(after.train_mask, before.train_mask[order])
    assert torch.equal(after.val_mask, before.val_mask[order])
    for name in ("num_classes", "x_eps", "y_eps", "alpha", "beta", "parameters"):
        assert getattr(after, name) == getattr(before, name)
    # KProp commutes with the numbering.
    x = before.features.rectified()[None]
    propagated = kprop_operator(before.topology, "gcn", CPU).propagate(x, 3)[0]
    moved = kprop_operator(topology, "gcn", CPU).propagate(x[:, order], 3)[0]
    torch.testing.assert_close(moved, propagated[order])


def test_small_graphs_keep_their_order() -> None:
    assert torch.equal(cache_order(random_topology(N)), torch.arange(N))


def test_large_graphs_are_reordered_so_that_neighbours_are_near() -> None:
    n = 10_000
    topology = a_ring_and_isolated_nodes(n)
    order = cache_order(topology)
    assert torch.equal(order.sort().values, torch.arange(n))
    rows, columns = reorder_topology(topology, order).edge_index()
    bandwidth = int((rows - columns).abs().max())
    before, after = topology.edge_index(), math.sqrt(n)
    assert int((before[0] - before[1]).abs().max()) > n // 2
    assert bandwidth < after  # a ring can be numbered with bandwidth 2
