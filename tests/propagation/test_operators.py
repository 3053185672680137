import itertools

import pytest
import torch
from torch import Tensor

from lpgnn.data.graph import Topology
from lpgnn.data.sparse import CsrMatrix
from lpgnn.kernels import Backend
from lpgnn.propagation import Aggregator, Operator
from lpgnn.propagation.matrices import SparseMatrix, sparse_matrix
from lpgnn.propagation.operators import aggregation, normalised_adjacency, with_self_loops

from .graphs import (
    NUMBA,
    adjacency,
    both_backends,
    dense_gcn,
    dense_mean,
    dense_of,
    kprop_operator,
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


@both_backends
@pytest.mark.parametrize("aggregator", ["gcn", "mean"])
def test_kprop_leaves_self_loops_out(aggregator: Aggregator, backend: Backend) -> None:
    # Without the loop the degrees are 2, 2, 3, 1.
    half, third, six, three = 1 / 2, 1 / 3, 6**-0.5, 3**-0.5
    expected = {
        "gcn": [[0, half, six, 0], [half, 0, six, 0], [six, six, 0, three], [0, 0, three, 0]],
        "mean": [[0, half, half, 0], [half, 0, half, 0], [third, third, 0, third], [0, 0, 1, 0]],
    }[aggregator]
    operator = kprop_operator(triangle_with_tail(), aggregator, backend)
    torch.testing.assert_close(operator.matrix.to_dense(), torch.tensor(expected))


@both_backends
@pytest.mark.parametrize("aggregator", ["gcn", "mean"])
def test_isolated_nodes_receive_zeros_and_give_nothing(
    aggregator: Aggregator, backend: Backend
) -> None:
    half = 0.5**0.5
    expected = {
        "gcn": [[0, half, 0, 0], [half, 0, half, 0], [0, half, 0, 0], [0, 0, 0, 0]],
        "mean": [[0, 1, 0, 0], [0.5, 0, 0.5, 0], [0, 1, 0, 0], [0, 0, 0, 0]],
    }[aggregator]
    operator = kprop_operator(path_and_isolated(), aggregator, backend)
    torch.testing.assert_close(operator.matrix.to_dense(), torch.tensor(expected))
    for steps in (1, 2, 5):
        out = operator.propagate(torch.ones(1, 4, 3), steps)
        assert torch.equal(out[0, 3], torch.zeros(3))
        assert bool(out.isfinite().all())
        assert bool((out[0, :3] > 0).all())


@both_backends
@pytest.mark.parametrize("aggregator", ["gcn", "mean"])
def test_a_graph_without_edges_propagates_zeros(aggregator: Aggregator, backend: Backend) -> None:
    empty = Topology.from_edges(3, torch.zeros(2, 0, dtype=torch.int64))
    operator = kprop_operator(empty, aggregator, backend)
    for steps in (1, 2, 3):
        assert torch.equal(operator.propagate(torch.ones(2, 3, 4), steps), torch.zeros(2, 3, 4))
        classes = operator.propagate_classes(torch.ones(2, 4, 3), steps)
        assert torch.equal(classes, torch.zeros(2, 4, 3))


def test_with_self_loops_gives_each_node_exactly_one() -> None:
    for topology in (triangle_with_tail(), path_and_isolated(), random_topology()):
        expected = adjacency(topology).fill_diagonal_(1)
        assert torch.equal(adjacency(with_self_loops(topology)), expected)


@both_backends
def test_operators_equal_the_dense_formulas_on_a_random_graph(backend: Backend) -> None:
    topology = random_topology()
    assert topology.num_self_loops() >= 3
    full = adjacency(topology)
    no_loops = full.clone().fill_diagonal_(0)
    one_loop = full.clone().fill_diagonal_(1)
    assert_close(dense_of(aggregation(topology, "gcn", backend)), dense_gcn(full))
    assert_close(dense_of(aggregation(topology, "mean", backend)), dense_mean(full))
    assert_close(dense_of(kprop_operator(topology, "gcn", backend)), dense_gcn(no_loops))
    assert_close(dense_of(kprop_operator(topology, "mean", backend)), dense_mean(no_loops))
    looped = aggregation(with_self_loops(topology), "gcn", backend)
    assert_close(dense_of(looped), dense_gcn(one_loop))


@both_backends
@pytest.mark.parametrize("aggregator", ["gcn", "mean"])
def test_the_transpose_is_the_transpose(aggregator: Aggregator, backend: Backend) -> None:
    operator = aggregation(random_topology(), aggregator, backend)
    dense = operator.matrix.to_dense()
    assert torch.equal(operator.transposed.to_dense(), dense.t())
    # The mean of a node of degree 1 is not that of its neighbour: the test tells the two apart.
    assert torch.equal(dense, dense.t()) == (aggregator == "gcn")
    assert (operator.transposed is operator.matrix) == (aggregator == "gcn")


@both_backends
@pytest.mark.parametrize("aggregator", ["gcn", "mean"])
@pytest.mark.parametrize("steps", [0, 1, 2, 3, 4, 7, 16])
def test_propagate_equals_dense_powers_forward_and_backward(
    aggregator: Aggregator, steps: int, backend: Backend
) -> None:
    topology = random_topology()
    operator = kprop_operator(topology, aggregator, backend)
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


@both_backends
@pytest.mark.parametrize("aggregator", ["gcn", "mean"])
@pytest.mark.parametrize("classes", [2, 3, 4, 5, 6, 7, 8, 9, 10, 40])
def test_propagate_classes_equals_dense_powers_forward_and_backward(
    aggregator: Aggregator, classes: int, backend: Backend
) -> None:
    """1 to 11 runs, so that the last group of runs that share a product is of any size."""
    operator = kprop_operator(random_topology(), aggregator, backend)
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


@both_backends
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_strided_operands_and_gradients(steps: int, backend: Backend) -> None:
    """Transposed inputs, and the expanded gradient that a sum sends back."""
    operator = kprop_operator(random_topology(), "mean", backend)
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


@both_backends
def test_results_belong_to_their_own_graph(backend: Backend) -> None:
    """Nothing is cached by call order: two graphs in turn give two results, twice."""
    x = torch.randn(1, 4, 2, generator=seeded())
    first = kprop_operator(triangle_with_tail(), "gcn", backend)
    second = kprop_operator(path_and_isolated(), "gcn", backend)
    for _ in range(2):
        assert_close(first.propagate(x, 2), power(dense_of(first), 2) @ x.double())
        assert_close(second.propagate(x, 2), power(dense_of(second), 2) @ x.double())
    assert not torch.equal(dense_of(first), dense_of(second))


def rectangular() -> CsrMatrix:
    dense = torch.randn(6, 9, generator=seeded(3))
    return CsrMatrix.from_dense(torch.where(dense > 0, dense, 0.0))


@both_backends
def test_from_csr_builds_the_transpose_unless_told_that_it_is_symmetric(backend: Backend) -> None:
    square = torch.tensor([[0.0, 2.0, 0.0], [0.0, 0.0, 3.0], [4.0, 0.0, 0.0]])
    operator = Operator.from_csr(CsrMatrix.from_dense(square), backend)
    assert torch.equal(operator.matrix.to_dense(), square)
    assert torch.equal(operator.transposed.to_dense(), square.t())
    shared = Operator.from_csr(CsrMatrix.from_dense(square + square.t()), backend, symmetric=True)
    assert shared.transposed is shared.matrix


@both_backends
@pytest.mark.parametrize("width", [1, 3, 16, 33])
@pytest.mark.parametrize("column_major", [False, True])
def test_a_product_ignores_what_the_output_held(
    width: int, column_major: bool, backend: Backend
) -> None:
    matrix = rectangular()
    x = torch.randn(9, width, generator=seeded(4))
    x = x.t().contiguous().t() if column_major else x
    for filling in (torch.nan, torch.inf, 7.0):
        out = torch.full((6, width), filling)
        returned = sparse_matrix(matrix, backend).power_into(out, x)
        assert returned.data_ptr() == out.data_ptr()
        assert_close(out, matrix.to_dense().double() @ x.double())


@both_backends
def test_a_product_by_an_empty_matrix_is_zero(backend: Backend) -> None:
    empty = CsrMatrix.from_dense(torch.zeros(6, 9))
    out = torch.full((6, 3), torch.nan)
    sparse_matrix(empty, backend).power_into(out, torch.ones(9, 3))
    assert torch.equal(out, torch.zeros(6, 3))


@both_backends
def test_a_product_writes_to_a_slice_and_nowhere_else(backend: Backend) -> None:
    matrix = rectangular()
    x = torch.randn(9, 4, generator=seeded(4))
    out = torch.full((3, 6, 4), torch.nan)
    sparse_matrix(matrix, backend).power_into(out[1], x)
    assert_close(out[1], matrix.to_dense().double() @ x.double())
    assert bool(out[[0, 2]].isnan().all())


POLYNOMIALS: dict[str, tuple[float, ...]] = {
    "nothing": (0.0,),
    "a multiple": (-2.5,),
    "P": (0.0, 1.0),
    "P^4": (0.0, 0.0, 0.0, 0.0, 1.0),
    "a multiple of P^3": (0.0, 0.0, 0.0, 0.3),
    "all powers": (0.4, 0.3, 0.2, 0.1),
    "gaps": (0.0, 0.0, 1.5, 0.0, 0.0, -0.7, 1.0),
    "the ends": (2.0, 0.0, 0.0, 1.0),
    "two of one size": (1.0, 1.0),
    "zeros at the end": (0.5, 0.5, 0.0, 0.0),
}


def dense_polynomial(step: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    """sum_k theta_k P^k.  [N, N] -> [N, N]"""
    total = torch.zeros_like(step)
    for k, theta in enumerate(coefficients):
        total += theta * power(step, k)
    return total


@both_backends
@pytest.mark.parametrize("aggregator", ["gcn", "mean"])
@pytest.mark.parametrize("name", POLYNOMIALS)
def test_filter_is_the_dense_polynomial_forward_and_backward(
    name: str, aggregator: Aggregator, backend: Backend
) -> None:
    operator = kprop_operator(random_topology(), aggregator, backend)
    expected = dense_polynomial(dense_of(operator), POLYNOMIALS[name])
    for runs, width in ((1, 1), (3, 5), (2, 16)):
        x = torch.randn(runs, 30, width, generator=seeded(1), requires_grad=True)
        kept = x.detach().clone()
        grad = torch.randn(runs, 30, width, generator=seeded(2))
        out = operator.filter(x, POLYNOMIALS[name])
        assert_close(out.detach(), expected @ x.detach().double())
        (d_x,) = torch.autograd.grad(out, x, grad)
        assert_close(d_x, expected.t() @ grad.double())
        assert torch.equal(x.detach(), kept)


def test_the_check_tells_polynomials_apart() -> None:
    step = dense_of(kprop_operator(random_topology(), "mean", NUMBA))
    x = torch.randn(30, 5, generator=seeded(1)).double()
    products = [dense_polynomial(step, theta) @ x for theta in POLYNOMIALS.values()]
    for first, second in itertools.combinations(products, 2):
        with pytest.raises(AssertionError):
            assert_close(first.float(), second)


@both_backends
@pytest.mark.parametrize("name", POLYNOMIALS)
def test_a_polynomial_costs_as_many_products_as_its_highest_power(
    name: str, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = kprop_operator(random_topology(), "gcn", backend)
    taken: list[int] = []
    power_into = type(operator.matrix).power_into

    def counted(matrix: SparseMatrix, out: Tensor, x: Tensor, steps: int = 1) -> Tensor:
        taken.append(steps)
        return power_into(matrix, out, x, steps)

    monkeypatch.setattr(type(operator.matrix), "power_into", counted)
    operator.filter(torch.ones(1, 30, 3), POLYNOMIALS[name])
    highest = max((k for k, theta in enumerate(POLYNOMIALS[name]) if theta), default=0)
    assert sum(taken) == highest


@both_backends
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_a_single_power_is_one_call_and_changes_no_bit(
    steps: int, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The paper's case must not pay, by time or by rounding, for polynomials."""
    operator = kprop_operator(random_topology(), "gcn", backend)
    x = torch.randn(1, 30, 16, generator=seeded(1))
    expected = operator.matrix.power_into(torch.empty(30, 16), x[0], steps)
    calls: list[int] = []
    power_into = type(operator.matrix).power_into

    def counted(matrix: SparseMatrix, out: Tensor, x: Tensor, steps: int = 1) -> Tensor:
        calls.append(steps)
        return power_into(matrix, out, x, steps)

    monkeypatch.setattr(type(operator.matrix), "power_into", counted)
    assert torch.equal(operator.filter(x, (0.0,) * steps + (1.0,))[0], expected)
    assert torch.equal(operator.propagate(x, steps)[0], expected)
    assert calls == [steps, steps]


def test_the_identity_is_the_input_itself() -> None:
    operator = kprop_operator(random_topology(), "gcn", NUMBA)
    x = torch.ones(1, 30, 3)
    assert operator.filter(x, (1.0,)) is x
    assert operator.propagate(x, 0) is x
