import dataclasses
import math

import pytest
import torch
from torch import Tensor

from lpgnn.data.graph import Topology
from lpgnn.data.sparse import CsrMatrix
from lpgnn.kernels import Backend
from lpgnn.privacy import Collected, FeatureReports, RandomizedResponse
from lpgnn.propagation import PreparedGraph
from lpgnn.propagation import prepared as prepared_module
from lpgnn.propagation.reorder import cache_order, reorder_topology

from .graphs import (
    NUMBA,
    TORCH,
    adjacency,
    both_backends,
    dense_gcn,
    dense_mean,
    dense_of,
    random_topology,
    seeded,
)

N, D = 30, 5


def collected(sent: CsrMatrix | Tensor) -> Collected:
    part = torch.arange(N) % 4
    response = RandomizedResponse(1.0, 3)
    labels = torch.randint(3, (N,), generator=seeded(1))
    return Collected(
        topology=random_topology(N),
        features=FeatureReports(sent, scale=2.0, offset=0.5, magnitude=3.0),
        labels=response.collect(labels, part < 3, generator=seeded(2)),
        train_mask=part < 2,
        val_mask=part == 2,
        x_eps=1.0,
        y_eps=1.0,
        parameters={"m": 1.0},
    )


def a_ring_and_isolated_nodes(num_nodes: int) -> Topology:
    """A ring through all even nodes in a random order."""
    nodes = 2 * torch.randperm(num_nodes // 2, generator=seeded())
    return Topology.from_edges(num_nodes, torch.stack([nodes, nodes.roll(1)]))


def shuffled(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> PreparedGraph:
    """The random graph, prepared in another order, as a large one would be."""
    order = torch.randperm(N, generator=seeded(2))
    monkeypatch.setattr(prepared_module, "cache_order", lambda topology: order)
    graph = PreparedGraph(random_topology(N), backend)
    assert graph.order is order
    return graph


def test_a_reordered_graph_is_the_permuted_matrix() -> None:
    topology = random_topology(N)
    order = torch.randperm(N, generator=seeded(2))
    dense = adjacency(topology)
    assert torch.equal(adjacency(reorder_topology(topology, order)), dense[order][:, order])


def test_small_graphs_keep_their_order() -> None:
    assert torch.equal(cache_order(random_topology(N)), torch.arange(N))
    graph = PreparedGraph(random_topology(N), NUMBA)
    assert torch.equal(graph.order, torch.arange(N))
    assert torch.equal(adjacency(graph.topology), adjacency(random_topology(N)))
    assert (graph.num_nodes, graph.backend) == (N, NUMBA)


@pytest.mark.parametrize(("nodes", "keeps"), [(7_998, True), (8_000, False)])
def test_the_order_changes_from_8000_nodes_on(nodes: int, keeps: bool) -> None:
    """The committed rows depend on it: sums over neighbours run in this order."""
    order = cache_order(a_ring_and_isolated_nodes(nodes))
    assert torch.equal(order, torch.arange(nodes)) == keeps


def test_large_graphs_are_reordered_so_that_neighbours_are_near() -> None:
    n = 10_000
    topology = a_ring_and_isolated_nodes(n)
    graph = PreparedGraph(topology, NUMBA)
    assert torch.equal(graph.order.sort().values, torch.arange(n))
    before, after = topology.edge_index(), graph.topology.edge_index()
    assert int((before[0] - before[1]).abs().max()) > n // 2
    # A ring can be numbered with bandwidth 2.
    assert int((after[0] - after[1]).abs().max()) < math.sqrt(n)


@both_backends
@pytest.mark.parametrize("sparse", [True, False])
def test_everything_collected_moves_with_its_node(
    sparse: bool, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    dense = torch.randn(N, D, generator=seeded(3))
    dense = torch.where(dense > 0, dense, 0.0)
    before = collected(CsrMatrix.from_dense(dense) if sparse else dense)
    graph = shuffled(backend, monkeypatch)
    order = graph.order
    after = before.reordered(graph.topology, graph.order)
    assert after.topology is graph.topology
    assert before.features is not None
    assert after.features is not None
    assert after.features.form == before.features.form
    assert after.features.magnitude == before.features.magnitude
    assert torch.equal(after.features.rectified(), before.features.rectified()[order])
    assert torch.equal(after.labels.classes, before.labels.classes[order])
    assert torch.equal(after.labels.likelihood, before.labels.likelihood[:, order])
    assert torch.equal(after.labels.estimate, before.labels.estimate[:, order])
    assert torch.equal(after.train_mask, before.train_mask[order])
    assert torch.equal(after.val_mask, before.val_mask[order])
    moved = {"topology", "features", "labels", "train_mask", "val_mask"}
    for field in {f.name for f in dataclasses.fields(Collected)} - moved:
        assert getattr(after, field) == getattr(before, field)
    # KProp commutes with the numbering.
    x = before.features.rectified()[None]
    monkeypatch.undo()
    expected = PreparedGraph(before.topology, backend).kprop("gcn").propagate(x, 3)[0][order]
    torch.testing.assert_close(graph.kprop("gcn").propagate(x[:, order], 3)[0], expected)


@both_backends
def test_its_operators_are_the_dense_formulas(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = shuffled(backend, monkeypatch)
    full = adjacency(random_topology(N))[graph.order][:, graph.order]
    no_loops, one_loop = full.clone().fill_diagonal_(0), full.clone().fill_diagonal_(1)
    assert not torch.equal(full, no_loops)
    assert not torch.equal(full, one_loop)
    for operator, expected in (
        (graph.kprop("gcn"), dense_gcn(no_loops)),
        (graph.kprop("mean"), dense_mean(no_loops)),
        (graph.aggregation("gcn", self_loops=True), dense_gcn(one_loop)),
        (graph.aggregation("mean", self_loops=True), dense_mean(one_loop)),
        (graph.aggregation("gcn", self_loops=False), dense_gcn(full)),
        (graph.aggregation("mean", self_loops=False), dense_mean(full)),
    ):
        torch.testing.assert_close(dense_of(operator), expected, rtol=1e-5, atol=1e-6)
    pattern = graph.attention
    ones = pattern.matrix(torch.ones(pattern.columns.numel())).to_dense()
    assert torch.equal(ones.double(), one_loop)
    assert pattern.compiled == backend.compiled


def test_everything_is_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = PreparedGraph(random_topology(N), TORCH)
    calls: list[int] = []

    def build() -> list[int]:
        calls.append(1)
        return calls

    assert graph.once(("a", 1), build) is graph.once(("a", 1), build)
    assert calls == [1]
    graph.once(("a", 2), build)
    assert calls == [1, 1]
    graph.once("nothing", lambda: None)
    graph.once("nothing", lambda: calls.append(2))  # None is a result, too
    assert calls == [1, 1]
    for make in (
        lambda: graph.kprop("gcn"),
        lambda: graph.kprop("mean"),
        lambda: graph.aggregation("gcn", self_loops=True),
        lambda: graph.aggregation("mean", self_loops=False),
        lambda: graph.attention,
    ):
        assert make() is make()
    operators = {
        id(graph.kprop("gcn")),
        id(graph.kprop("mean")),
        id(graph.aggregation("gcn", self_loops=True)),
        id(graph.aggregation("gcn", self_loops=False)),
    }
    assert len(operators) == 4


def test_graphs_share_nothing() -> None:
    first, second = (PreparedGraph(random_topology(N, seed=seed), NUMBA) for seed in (0, 1))
    assert first.kprop("gcn") is not second.kprop("gcn")
    assert not torch.equal(dense_of(first.kprop("gcn")), dense_of(second.kprop("gcn")))
