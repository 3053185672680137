"""The loops of an attention head against its formula on full matrices in float64."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from lpgnn.data.graph import Topology
from lpgnn.kernels.attention import aggregate, attention_gradients, score_gaps
from lpgnn.kernels.products import Floats, Indices
from lpgnn.propagation.operators import with_self_loops
from propagation.graphs import adjacency, path_and_isolated, random_topology

from .arrays import Doubles, Output, fenced, normal

SLOPE, LOWEST = 0.2, -60.0
Gradients = tuple[Doubles, Doubles, Doubles]


def leaky(score: Doubles) -> Doubles:
    return np.where(score > 0, score, SLOPE * score)


@dataclass
class Dense:
    """A head on full matrices, an entry at each pair of nodes."""

    mask: npt.NDArray[np.bool_]  # [N, N]
    source: Doubles  # [R, N]
    target: Doubles  # [R, N]
    value: Doubles  # [R, N, f]

    def __post_init__(self) -> None:
        self.score = self.source[:, None, :] + self.target[:, :, None]  # [R, N, N]
        steps = np.where(self.mask, leaky(self.score), -np.inf)
        self.gap = steps - steps.max(2, keepdims=True)
        self.weight = np.exp(self.gap)
        self.total = self.weight.sum(2)  # [R, N]
        self.out = self.weight @ self.value / self.total[:, :, None]

    def gradients(self, grad: Doubles) -> Gradients:
        g = grad / self.total[:, :, None]
        inner = (g * self.out).sum(2)[:, :, None]
        d_score = self.weight * (g @ self.value.transpose(0, 2, 1) - inner)
        d_score = np.where(self.score > 0, d_score, SLOPE * d_score)
        return d_score.sum(1), d_score.sum(2), self.weight.transpose(0, 2, 1) @ g


def head(topology: Topology, runs: int, width: int) -> Dense:
    mask = adjacency(topology).fill_diagonal_(1).bool().numpy()
    shape = (runs, topology.num_nodes)
    source, target, value = normal(*shape, seed=1), normal(*shape, seed=2), normal(*shape, width)
    # The values of the loops' float32 inputs, so that no score changes its sign.
    return Dense(mask, *(x.astype(np.float64) for x in (source, target, value)))


def lists(topology: Topology) -> tuple[Indices, Indices]:
    looped = with_self_loops(topology)
    return looped.indptr.numpy().astype(np.int32), looped.indices.numpy().astype(np.int32)


def single(x: Doubles) -> Floats:
    return fenced(x.astype(np.float32))


def loops_gradients(
    dense: Dense,
    topology: Topology,
    grad: Doubles,
    *,
    slope: float = SLOPE,
    out: Doubles | None = None,
) -> Gradients:
    """The compiled way back, from the dense head's own weights, sums and results."""
    runs, nodes, width = dense.value.shape
    d_source, d_target = Output(runs * nodes, fill=0.0), Output(runs * nodes)
    d_value, overwritten = Output(dense.value.size, fill=0.0), Output(grad.size)
    overwritten.array[:] = grad.reshape(-1)
    attention_gradients(
        *lists(topology),
        single(dense.source),
        single(dense.target),
        slope=slope,
        width=width,
        weight=single(dense.weight[:, dense.mask]),
        total=single(dense.total),
        value=single(dense.value),
        out=single(dense.out if out is None else out),
        grad=overwritten.array,
        d_source=d_source.array,
        d_target=d_target.array,
        d_value=d_value.array,
    )
    scaled = overwritten.taken(runs, nodes, width)
    np.testing.assert_allclose(scaled, grad / dense.total[:, :, None], rtol=1e-6)
    shape = (runs, nodes)
    return d_source.taken(*shape), d_target.taken(*shape), d_value.taken(*shape, width)


def assert_gradients(actual: Gradients, expected: Gradients) -> None:
    for own, wanted in zip(actual, expected, strict=True):
        np.testing.assert_allclose(own, wanted, rtol=1e-5, atol=1e-5)


TOPOLOGIES = {"random": random_topology(), "path": path_and_isolated()}
heads = pytest.mark.parametrize(
    ("name", "runs", "width"),
    [(name, runs, width) for name in TOPOLOGIES for runs in (1, 3) for width in (16, 32)],
)


def test_the_graphs_have_a_node_that_sees_itself_only() -> None:
    for topology in TOPOLOGIES.values():
        indptr, columns = lists(topology)
        assert indptr[-1] - indptr[-2] == 1
        assert columns[-1] == topology.num_nodes - 1


@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("lowest", [LOWEST, -0.5])
def test_score_gaps(name: str, runs: int, lowest: float) -> None:
    topology = TOPOLOGIES[name]
    dense = head(topology, runs, 1)
    gaps = dense.gap[:, dense.mask]  # [R, E], in the order of the lists
    assert gaps.min() < -0.5
    out = Output(gaps.size)
    scores = single(dense.source), single(dense.target)
    score_gaps(*lists(topology), *scores, SLOPE, lowest, out.array)
    np.testing.assert_allclose(out.taken(*gaps.shape), np.maximum(gaps, lowest), atol=1e-6)


@heads
def test_aggregate(name: str, runs: int, width: int) -> None:
    topology = TOPOLOGIES[name]
    dense = head(topology, runs, width)
    out, total = Output(dense.value.size), Output(dense.total.size)
    weight = single(dense.weight[:, dense.mask])
    aggregate(*lists(topology), weight, single(dense.value), out.array, total.array, width)
    np.testing.assert_allclose(total.taken(*dense.total.shape), dense.total, rtol=2e-6)
    np.testing.assert_allclose(out.taken(*dense.out.shape), dense.out, rtol=2e-6, atol=2e-6)
    # A node without neighbours keeps its own value.
    np.testing.assert_array_equal(dense.out[:, -1], dense.value[:, -1])


@heads
def test_attention_gradients(name: str, runs: int, width: int) -> None:
    topology = TOPOLOGIES[name]
    dense = head(topology, runs, width)
    grad = normal(*dense.out.shape, seed=4).astype(np.float64)
    assert_gradients(loops_gradients(dense, topology, grad), dense.gradients(grad))


def finite_differences(dense: Dense, grad: Doubles, step: float = 1e-6) -> Gradients:
    """d sum(grad * out), one number at a time."""
    given = (dense.source, dense.target, dense.value)
    found = tuple(np.zeros_like(x) for x in given)
    for which, x in enumerate(given):
        for place in np.ndindex(x.shape):
            sums = []
            for sign in (-1, 1):
                moved = [y.copy() for y in given]
                moved[which][place] += sign * step
                sums.append((grad * Dense(dense.mask, *moved).out).sum())
            found[which][place] = (sums[1] - sums[0]) / (2 * step)
    return found[0], found[1], found[2]


def test_attention_gradients_are_finite_differences_and_broken_ones_are_not() -> None:
    topology = path_and_isolated()
    dense = head(topology, 2, 16)
    scores = dense.score[:, dense.mask]
    assert np.abs(scores).min() > 1e-4  # no step crosses the leaky ReLU's kink
    assert (scores < 0).any()
    assert (scores > 0).any()
    grad = normal(*dense.out.shape, seed=4).astype(np.float64)
    expected = finite_differences(dense, grad)
    assert_gradients(dense.gradients(grad), expected)
    assert_gradients(loops_gradients(dense, topology, grad), expected)
    without_slope = loops_gradients(dense, topology, grad, slope=1.0)
    without_inner = loops_gradients(dense, topology, grad, out=np.zeros_like(dense.out))
    runs_swapped = loops_gradients(dense, topology, grad, out=dense.out[::-1])
    for broken in (without_slope, without_inner, runs_swapped):
        with pytest.raises(AssertionError):
            assert_gradients(broken, expected)


def test_a_score_that_is_no_number_reaches_its_rows_only() -> None:
    """A run that diverges is told by it."""
    topology = path_and_isolated()
    dense = head(topology, 1, 16)
    dense.source[0, 0] = np.nan  # seen by nodes 0 and 1
    gap, out, total = Output(int(dense.mask.sum())), Output(4 * 16), Output(4)
    scores = single(dense.source), single(dense.target)
    score_gaps(*lists(topology), *scores, SLOPE, LOWEST, gap.array)
    aggregate(*lists(topology), np.exp(gap.array), single(dense.value), out.array, total.array, 16)
    seen = np.array([True, True, False, False])
    assert np.array_equal(np.isnan(out.taken(4, 16)), np.repeat(seen[:, None], 16, axis=1))
