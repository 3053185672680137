import itertools

import pytest
import torch
from torch import Tensor

from lpgnn.data.graph import Topology
from lpgnn.data.sparse import CsrMatrix
from lpgnn.propagation import (
    Aggregator,
    Operator,
    aggregation,
    kprop_operator,
    normalised_adjacency,
    with_self_loops,
)
from lpgnn.propagation.matrices import SparseMatrix

from .graphs import (
    CPU,
    adjacency,
    dense_gcn,
    dense_mean,
    dense_of,
    path_and_isolated,
    random_topology,
    seeded,
    triangle_with_tail,
)


def power(matrix: Tensor, steps: int) -> Tensor:
    product: Tensor = torch.linalg.matrix_power(matrix, steps)
    return product


def assert_close(actual: Tensor, expected: Tensor) -> None:
    """Float32 against a float64 computation."""
    torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-6)


def test_gcn_normalisation_by_hand() -> None:
    # Degrees as the lists have them, the loop at 1 counted once: 2, 3, 3, 1.
    six, nine, three = 6**-0.5, 1 / 3, 3**-0.5
    expected = [[0, six, six, 0], [six, nine, nine, 0], [six, nine, 0, three], [0, 0, three, 0]]
    matrix = normalised_adjacency(triangle_with_tail(), "gcn")
    torch.testing.assert_close(matrix.to_dense(), torch.tensor(expected))


def test_mean_normalisation_by_hand() -> None:
    third = 1 / 3
    expected = [[0, 0.5, 0.5, 0], [third, third, third, 0], [third, third, 0, third], [0, 0, 1, 0]]
    matrix = normalised_adjacency(triangle_with_tail(), "mean")
    torch.testing.assert_close(matrix.to_dense(), torch.tensor(expected))


@pytest.mark.parametrize("aggregator", ["gcn", "mean"])
def test_kprop_leaves_self_loops_out(aggregator: Aggregator) -> None:
    # Without the loop the degrees are 2, 2, 3, 1.
    half, third, six, three = 1 / 2, 1 / 3, 6**-0.5, 3**-0.5
    expected = {
        "gcn": [[0, half, six, 0], [half, 0, six, 0], [six, six, 0, three], [0, 0, three, 0]],
        "mean": [[0, half, half, 0], [half, 0, half, 0], [third, third, 0, third], [0, 0, 1, 0]],
    }[aggregator]
    operator = kprop_operator(triangle_with_tail(), aggregator, CPU)
    torch.testing.assert_close(operator.matrix.to_dense(), torch.tensor(expected))


@pytest.mark.parametrize("aggregator", ["gcn", "mean"])
def test_isolated_nodes_receive_zeros_and_give_nothing(aggregator: Aggregator) -> None:
    half = 0.5**0.5
    expected = {
        "gcn": [[0, half, 0, 0], [half, 0, half, 0], [0, half, 0, 0], [0, 0, 0, 0]],
        "mean": [[0, 1, 0, 0], [0.5, 0, 0.5, 0], [0, 1, 0, 0], [0, 0, 0, 0]],
    }[aggregator]
    operator = kprop_operator(path_and_isolated(), aggregator, CPU)
    torch.testing.assert_close(operator.matrix.to_dense(), torch.tensor(expected))
    for steps in (1, 2, 5):
        out = operator.propagate(torch.ones(1, 4, 3), steps)
        assert torch.equal(out[0, 3], torch.zeros(3))
        assert bool(out.isfinite().all())
        assert bool((out[0, :3] > 0).all())


@pytest.mark.parametrize("aggregator", ["gcn", "mean"])
def test_a_graph_without_edges_propagates_zeros(aggregator: Aggregator) -> None:
    empty = Topology.from_edges(3, torch.zeros(2, 0, dtype=torch.int64))
    operator = kprop_operator(empty, aggregator, CPU)
    for steps in (1, 2, 3):
        assert torch.equal(operator.propagate(torch.ones(2, 3, 4), steps), torch.zeros(2, 3, 4))
        classes = operator.propagate_classes(torch.ones(2, 4, 3), steps)
        assert torch.equal(classes, torch.zeros(2, 4, 3))


def test_with_self_loops_gives_each_node_exactly_one() -> None:
    for topology in (triangle_with_tail(), path_and_isolated(), random_topology()):
        expected = adjacency(topology).fill_diagonal_(1)
        assert torch.equal(adjacency(with_self_loops(topology)), expected)


def test_operators_equal_the_dense_formulas_on_a_random_graph() -> None:
    topology = random_topology()
    assert topology.num_self_loops() >= 3
    full = adjacency(topology)
    no_loops = full.clone().fill_diagonal_(0)
    one_loop = full.clone().fill_diagonal_(1)
    assert_close(dense_of(aggregation(topology, "gcn", CPU)), dense_gcn(full))
    assert_close(dense_of(aggregation(topology, "mean", CPU)), dense_mean(full))
    assert_close(dense_of(kprop_operator(topology, "gcn", CPU)), dense_gcn(no_loops))
    assert_close(dense_of(kprop_operator(topology, "mean", CPU)), dense_mean(no_loops))
    looped = aggregation(with_self_loops(topology), "gcn", CPU)
    assert_close(dense_of(looped), dense_gcn(one_loop))


@pytest.mark.parametrize("aggregator", ["gcn", "mean"])
def test_the_transpose_is_the_transpose(aggregator: Aggregator) -> None:
    operator = aggregation(random_topology(), aggregator, CPU)
    dense = operator.matrix.to_dense()
    assert torch.equal(operator.transposed.to_dense(), dense.t())
    # The mean of a node of degree 1 is not that of its neighbour: the test tells the two apart.
    assert torch.equal(dense, dense.t()) == (aggregator == "gcn")
    assert (operator.transposed is operator.matrix) == (aggregator == "gcn")


@pytest.mark.parametrize("aggregator", ["gcn", "mean"])
@pytest.mark.parametrize("steps", [0, 1, 2, 3, 4, 7, 16])
def test_propagate_equals_dense_powers_forward_and_backward(
    aggregator: Aggregator, steps: int
) -> None:
    topology = random_topology()
    operator = kprop_operator(topology, aggregator, CPU)
    p_k = power(dense_of(operator), steps)
    for runs, width in ((1, 1), (3, 5), (2, 16)):
        x = torch.randn(runs, 30, width, generator=seeded(1), requires_grad=True)
        kept = x.detach().clone()
        grad = torch.randn(runs, 30, width, generator=seeded(2))
        out = operator.propagate(x, steps)
        assert_close(out.detach(), p_k @ x.detach().double())
        (d_x,) = torch.autograd.grad(out, x, grad)
        assert_close(d_x, p_k.t() @ grad.double())
        assert torch.equal(x.detach(), kept)  # buffers are swapped, but never with the input


@pytest.mark.parametrize("aggregator", ["gcn", "mean"])
@pytest.mark.parametrize("classes", [2, 3, 4, 5, 6, 7, 8, 9, 10, 40])
def test_propagate_classes_equals_dense_powers_forward_and_backward(
    aggregator: Aggregator, classes: int
) -> None:
    """1 to 11 runs, so that the last group of runs that share a product is of any size."""
    operator = kprop_operator(random_topology(), aggregator, CPU)
    for runs, steps in itertools.product(range(1, 12), (0, 1, 2, 5)):
        p_k = power(dense_of(operator), steps)
        p = torch.randn(runs, classes, 30, generator=seeded(runs), requires_grad=True)
        grad = torch.randn(runs, classes, 30, generator=seeded(2))
        kept, kept_grad = p.detach().clone(), grad.clone()
        out = operator.propagate_classes(p, steps)
        assert_close(out.detach(), p.detach().double() @ p_k.t())
        (d_p,) = torch.autograd.grad(out, p, grad)
        assert_close(d_p, grad.double() @ p_k)
        assert torch.equal(p.detach(), kept)
        assert torch.equal(grad, kept_grad)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_strided_operands_and_gradients(steps: int) -> None:
    """Transposed inputs, and the expanded gradient that a sum sends back."""
    operator = kprop_operator(random_topology(), "mean", CPU)
    p_k = power(dense_of(operator), steps)
    x = torch.randn(3, 5, 30, generator=seeded(1)).transpose(1, 2).requires_grad_()
    out = operator.propagate(x, steps)
    assert_close(out.detach(), p_k @ x.detach().double())
    (d_x,) = torch.autograd.grad(out.sum(), x)
    assert_close(d_x, (p_k.t() @ torch.ones(30, 5, dtype=torch.float64)).expand(3, 30, 5))

    p = torch.randn(3, 30, 5, generator=seeded(1)).transpose(1, 2).requires_grad_()
    classes = operator.propagate_classes(p, steps)
    assert_close(classes.detach(), p.detach().double() @ p_k.t())
    (d_p,) = torch.autograd.grad(classes.sum(), p)
    assert_close(d_p, (torch.ones(5, 30, dtype=torch.float64) @ p_k).expand(3, 5, 30))


def test_results_belong_to_their_own_graph() -> None:
    """Nothing is cached by call order: two graphs in turn give two results, twice."""
    x = torch.randn(1, 4, 2, generator=seeded())
    first = kprop_operator(triangle_with_tail(), "gcn", CPU)
    second = kprop_operator(path_and_isolated(), "gcn", CPU)
    for _ in range(2):
        assert_close(first.propagate(x, 2), power(dense_of(first), 2) @ x.double())
        assert_close(second.propagate(x, 2), power(dense_of(second), 2) @ x.double())
    assert not torch.equal(dense_of(first), dense_of(second))


def rectangular() -> CsrMatrix:
    dense = torch.randn(6, 9, generator=seeded(3))
    return CsrMatrix.from_dense(torch.where(dense > 0, dense, 0.0))


def test_from_csr_builds_the_transpose_unless_told_that_it_is_symmetric() -> None:
    square = torch.tensor([[0.0, 2.0, 0.0], [0.0, 0.0, 3.0], [4.0, 0.0, 0.0]])
    operator = Operator.from_csr(CsrMatrix.from_dense(square), CPU)
    assert torch.equal(operator.matrix.to_dense(), square)
    assert torch.equal(operator.transposed.to_dense(), square.t())
    shared = Operator.from_csr(CsrMatrix.from_dense(square + square.t()), CPU, symmetric=True)
    assert shared.transposed is shared.matrix


@pytest.mark.parametrize("width", [1, 3, 16, 33])
@pytest.mark.parametrize("column_major", [False, True])
def test_a_product_ignores_what_the_output_held(width: int, column_major: bool) -> None:
    matrix = rectangular()
    x = torch.randn(9, width, generator=seeded(4))
    x = x.t().contiguous().t() if column_major else x
    for filling in (torch.nan, torch.inf, 7.0):
        out = torch.full((6, width), filling)
        returned = SparseMatrix(matrix, CPU).power_into(out, x)
        assert returned.data_ptr() == out.data_ptr()
        assert_close(out, matrix.to_dense().double() @ x.double())


def test_a_product_by_an_empty_matrix_is_zero() -> None:
    empty = CsrMatrix.from_dense(torch.zeros(6, 9))
    out = torch.full((6, 3), torch.nan)
    SparseMatrix(empty, CPU).power_into(out, torch.ones(9, 3))
    assert torch.equal(out, torch.zeros(6, 3))


def test_a_product_writes_to_a_slice_and_nowhere_else() -> None:
    matrix = rectangular()
    x = torch.randn(9, 4, generator=seeded(4))
    out = torch.full((3, 6, 4), torch.nan)
    SparseMatrix(matrix, CPU).power_into(out[1], x)
    assert_close(out[1], matrix.to_dense().double() @ x.double())
    assert bool(out[[0, 2]].isnan().all())
