from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from lpgnn.data.graph import Topology
from lpgnn.kernels import Backend
from lpgnn.propagation import Aggregator, PreparedGraph, lazy_lengths, spread_codes

from .graphs import (
    NUMBA,
    both_backends,
    dense_kprop,
    kprop_operator,
    path_and_isolated,
    random_topology,
)

SMALL: dict[str, Callable[[], Topology]] = {
    "path": path_and_isolated,
    "random": random_topology,
    "wide": lambda: random_topology(120, 300),
}
LARGE = 1500  # nodes: more than a code has coordinates


def unit_rows(matrix: Tensor) -> Tensor:
    lengths: Tensor = matrix.norm(dim=1, keepdim=True)
    return matrix / lengths.clamp(min=1e-300)


def lazy_power(step: Tensor, steps: int) -> Tensor:
    power: Tensor = torch.linalg.matrix_power((torch.eye(len(step)) + step) / 2, steps)
    return power


@both_backends
@pytest.mark.parametrize("steps", [1, 2, 16])
@pytest.mark.parametrize("graph", SMALL)
@pytest.mark.parametrize("aggregator", ["gcn", "mean"])
def test_on_small_graphs_codes_are_the_rows_of_the_walk(
    graph: str, steps: int, aggregator: Aggregator, backend: Backend
) -> None:
    topology = SMALL[graph]()
    codes = spread_codes(kprop_operator(topology, aggregator, backend), (steps,))[steps]
    walk = torch.linalg.matrix_power(dense_kprop(topology, aggregator), steps)
    torch.testing.assert_close(codes.double(), unit_rows(walk), rtol=1e-4, atol=1e-5)
    assert bool((codes[-1] == 0).all())  # nothing arrives at an isolated node


def test_codes_by_hand() -> None:
    # The path 0-1-2 with 1/sqrt(2) at both edges: after two steps the ends have the same row.
    codes = spread_codes(kprop_operator(path_and_isolated(), "gcn", NUMBA), (1, 2))[2]
    half = 0.5**0.5
    expected = torch.tensor([[half, 0, half, 0], [0, 1, 0, 0], [half, 0, half, 0], [0, 0, 0, 0]])
    torch.testing.assert_close(codes, expected)


@both_backends
@pytest.mark.parametrize("graph", SMALL)
@pytest.mark.parametrize("aggregator", ["gcn", "mean"])
def test_on_small_graphs_lengths_are_those_of_the_dense_lazy_walk(
    graph: str, aggregator: Aggregator, backend: Backend
) -> None:
    topology = SMALL[graph]()
    found = lazy_lengths(kprop_operator(topology, aggregator, backend), (1, 4, 16))
    assert list(found) == [1, 4, 16]
    for steps, lengths in found.items():
        expected = lazy_power(dense_kprop(topology, aggregator), steps).norm(dim=1)
        torch.testing.assert_close(lengths.double(), expected, rtol=1e-4, atol=1e-6)
    assert float(found[4][-1]) == 1 / 16  # what an isolated node keeps


@both_backends
def test_on_large_graphs_products_of_codes_estimate_overlaps(backend: Backend) -> None:
    topology = random_topology(LARGE, 3 * LARGE)
    graph = PreparedGraph(topology, backend)
    codes = spread_codes(graph.kprop("gcn"), (3,))[3][graph.order.argsort()].double()
    assert codes.shape == (LARGE, 512)
    walk = unit_rows(torch.linalg.matrix_power(dense_kprop(topology, "gcn"), 3))
    reached = walk.norm(dim=1) > 0
    off_diagonal = (codes @ codes.t() - walk @ walk.t())[reached][:, reached].fill_diagonal_(0)
    error = float(off_diagonal.square().mean().sqrt())
    assert 0.5 * 512**-0.5 < error < 1.2 * 512**-0.5
    # What is told apart: overlapping neighbourhoods have larger products.
    overlap, product = (walk @ walk.t()).flatten(), (codes @ codes.t()).flatten()
    near, far = product[overlap > 0.5].mean(), product[overlap == 0].mean()
    assert float(near) > 0.5
    assert abs(float(far)) < 0.01


@both_backends
def test_on_large_graphs_lengths_are_right_to_some_per_cent(backend: Backend) -> None:
    topology = random_topology(LARGE, 3 * LARGE)
    graph = PreparedGraph(topology, backend)
    found = lazy_lengths(graph.kprop("gcn"), (1, 8))
    step = dense_kprop(topology, "gcn")
    for steps, lengths in found.items():
        expected = lazy_power(step, steps).norm(dim=1)
        ratio = lengths[graph.order.argsort()].double() / expected
        assert float((ratio - 1).square().mean().sqrt()) < 1.2 * (2 * 128) ** -0.5
        assert abs(float(ratio.square().mean()) - 1) < 0.02  # the squares have no bias


def test_codes_belong_to_the_graph() -> None:
    topology = random_topology(LARGE, 3 * LARGE)
    torch.manual_seed(1)
    first = spread_codes(PreparedGraph(topology, NUMBA).kprop("gcn"), (5,))[5]
    torch.manual_seed(2)
    again = spread_codes(PreparedGraph(topology, NUMBA).kprop("gcn"), (2, 5))[5]  # in two strides
    assert torch.equal(again, first)
