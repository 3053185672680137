import ast
import inspect
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, get_type_hints

import pytest
import torch
from scipy.stats import chi2
from torch import Tensor

from lpgnn.data.graph import Topology
from lpgnn.data.sparse import CsrMatrix
from lpgnn.kernels import Backend
from lpgnn.privacy import FeatureMechanism
from lpgnn.propagation import Aggregator, Conditioning, Operator, conditioning
from lpgnn.propagation.conditioning import row_factors, row_lengths
from lpgnn.propagation.reorder import reorder_topology
from privacy.pvalues import ALPHA, mean_p_value

from .graphs import (
    NUMBA,
    both_backends,
    dense_kprop,
    kprop_operator,
    path_and_isolated,
    random_topology,
    seeded,
    triangle_with_tail,
)
from .mechanisms import MECHANISMS

GRAPHS: dict[str, Callable[[], Topology]] = {
    "triangle": triangle_with_tail,  # with a self-loop
    "path": path_and_isolated,
    "random": random_topology,
    "wide": lambda: random_topology(70, 150),  # more nodes than columns of one product
}


def of_power(steps: int) -> tuple[float, ...]:
    """The coefficients of P^K."""
    return (0.0,) * steps + (1.0,)


def dense_power(topology: Topology, steps: int, aggregator: Aggregator = "gcn") -> Tensor:
    """P^K without self-loops.  -> [N, N] float64"""
    power: Tensor = torch.linalg.matrix_power(dense_kprop(topology, aggregator), steps)
    return power


@both_backends
@pytest.mark.parametrize("steps", [0, 1, 2, 5])
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("aggregator", ["gcn", "mean"])
def test_row_lengths_are_those_of_the_dense_power(
    graph: str, steps: int, aggregator: Aggregator, backend: Backend
) -> None:
    topology = GRAPHS[graph]()
    lengths = row_lengths(kprop_operator(topology, aggregator, backend), of_power(steps))
    expected = dense_power(topology, steps, aggregator).norm(dim=1)
    assert lengths.shape == (topology.num_nodes,)
    torch.testing.assert_close(lengths.double(), expected, rtol=1e-5, atol=1e-7)


@both_backends
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("coefficients", [(-3.0,), (0.5, 0.5), (0.2, 0.0, -1.0, 0.4)])
def test_row_lengths_are_those_of_a_dense_polynomial(
    graph: str, coefficients: tuple[float, ...], backend: Backend
) -> None:
    topology = GRAPHS[graph]()
    lengths = row_lengths(kprop_operator(topology, "mean", backend), coefficients)
    powers = [theta * dense_power(topology, k, "mean") for k, theta in enumerate(coefficients)]
    expected = torch.stack(powers).sum(0).norm(dim=1)
    torch.testing.assert_close(lengths.double(), expected, rtol=1e-5, atol=1e-7)
    assert bool((expected > 0).all())  # theta_0 reaches isolated nodes, too


def test_row_lengths_by_hand() -> None:
    # The path 0-1-2: P has 1/sqrt(2) at both edges, P^2 is [[.5 0 .5], [0 1 0], [.5 0 .5]].
    operator = kprop_operator(path_and_isolated(), "gcn", NUMBA)
    half = math.sqrt(0.5)
    expected = {0: [1.0, 1, 1, 1], 1: [half, 1, half, 0], 2: [half, 1, half, 0]}
    for steps, lengths in expected.items():
        torch.testing.assert_close(row_lengths(operator, of_power(steps)), torch.tensor(lengths))


def test_row_lengths_follow_the_nodes_to_another_numbering() -> None:
    topology = random_topology()
    order = torch.randperm(topology.num_nodes, generator=seeded(3))
    moved = kprop_operator(reorder_topology(topology, order), "gcn", NUMBA)
    before = row_lengths(kprop_operator(topology, "gcn", NUMBA), of_power(3))
    torch.testing.assert_close(row_lengths(moved, of_power(3)), before[order])
    assert not torch.allclose(before, before[order])


def worst_estimate(estimated: Tensor, power: Tensor, probes: int) -> float:
    """The largest error of a squared row length, in its own standard errors.

    With random signs z, (sum_u a_u z_u)^2 has variance 2 (|a|^4 - sum_u a_u^4).
    """
    exact = power.square().sum(1)
    variance = 2 * (exact.square() - power.pow(4).sum(1)).clamp(min=0)
    error = (variance / probes).sqrt() + 1e-6 * exact + 1e-9
    return float(((estimated.double().square() - exact).abs() / error).max())


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_on_large_graphs_row_lengths_are_estimated(
    steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = random_topology(70, 150)
    operator = kprop_operator(topology, "gcn", NUMBA)
    exact = row_lengths(operator, of_power(steps))
    monkeypatch.setattr(conditioning, "_EXACT_NODES", 69)
    estimated = row_lengths(operator, of_power(steps))
    assert not torch.allclose(estimated, exact)  # the other branch was taken
    probes = 512
    # Of 70 errors none beyond five standard errors; the signs come from a fixed seed.
    assert worst_estimate(estimated, dense_power(topology, steps), probes) < 5
    assert worst_estimate(estimated, dense_power(topology, steps + 1), probes) > 8
    assert worst_estimate(estimated * 1.5, dense_power(topology, steps), probes) > 5
    torch.rand(5)  # the global stream has no part in it
    assert torch.equal(row_lengths(operator, of_power(steps)), estimated)
    assert torch.equal(row_lengths(operator, of_power(0)), torch.ones(70))
    assert bool((estimated[-2:] == 0).all())  # nothing reaches them


def test_as_many_nodes_as_the_limit_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = kprop_operator(random_topology(70, 150), "gcn", NUMBA)
    exact = row_lengths(operator, of_power(2))
    monkeypatch.setattr(conditioning, "_EXACT_NODES", 70)
    assert torch.equal(row_lengths(operator, of_power(2)), exact)


D, DRAWS = 4, 10_000
TINY = random_topology(9, 9, seed=1)  # three of the nodes receive nothing


@lru_cache(maxsize=16)
def propagated_noise(mechanism: FeatureMechanism, steps: int, x: float) -> Tensor:
    """P^K (X' - x) of nodes that all have features x, many times.  -> [N, DRAWS, d] float64"""
    nodes = TINY.num_nodes
    features = CsrMatrix.from_dense(torch.full((nodes * DRAWS, D), x))
    reports = mechanism.perturb(features, generator=seeded(7)).rectified()
    noise = (reports.double() - x).view(nodes, DRAWS * D)
    return (dense_power(TINY, steps) @ noise).view(nodes, DRAWS, D)


def variance_p_value(mechanism: FeatureMechanism, steps: int, x: float, stated: Tensor) -> float:
    """Is ``stated`` the variance of each row of P^K X'?  stated: [N]

    Reports are unbiased, so row v has the mean x (P^K 1)_v.  Gaussian rows are judged exactly, by
    the chi-squared distribution of their sum of squares, others by the central limit theorem over
    draws; the rows are combined by Bonferroni's inequality.
    """
    checks = []
    for row, variance in zip(
        propagated_noise(mechanism, steps, x), stated.double().tolist(), strict=True
    ):
        if not bool(row.any()):  # nothing reaches this node
            continue
        squares = row.square()  # [DRAWS, d]
        mean = squares.mean(1)
        if mechanism.name == "ag":
            total = float(squares.sum()) / variance
            tail = min(chi2.cdf(total, squares.numel()), chi2.sf(total, squares.numel()))
            checks.append(2 * float(tail))
        elif float(mean.std()) < 1e-5 * variance:  # one bit on its own: always as far from 1/2
            checks.append(float(math.isclose(float(mean.mean()), variance, rel_tol=1e-5)))
        else:
            checks.append(mean_p_value(mean, variance))
    assert len(checks) == TINY.num_nodes - (3 if steps else 0)
    return min(1.0, min(checks) * len(checks))


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_the_public_variance_is_that_of_the_propagated_reports(name: str, steps: int) -> None:
    """Features half-way between alpha and beta, which the magnitude is about."""
    mechanism = MECHANISMS[name](0.8, D)
    lengths = row_lengths(kprop_operator(TINY, "gcn", NUMBA), of_power(steps))
    stated = (mechanism.magnitude() * lengths).square()
    assert variance_p_value(mechanism, steps, 0.5, stated) > ALPHA
    wrong_size = (1.05 * mechanism.magnitude() * lengths).square()
    assert variance_p_value(mechanism, steps, 0.5, wrong_size) < ALPHA
    other = row_lengths(kprop_operator(TINY, "gcn", NUMBA), of_power(steps + 1))
    wrong_steps = (mechanism.magnitude() * other).square().clamp(min=1e-3)
    assert variance_p_value(mechanism, steps, 0.5, wrong_steps) < ALPHA


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_public_variance_of_blank_reports(name: str) -> None:
    """At alpha the variance of a bit is lower by ((beta - alpha) / 2)^2, whatever the budget.

    That of a window that slides with a feature is not: its width shows more at the ends.
    """
    mechanism = MECHANISMS[name](0.8, D)
    lengths = row_lengths(kprop_operator(TINY, "gcn", NUMBA), of_power(2)).double()
    middle, blank = mechanism.variance(torch.tensor([0.5, 0.0])).tolist()
    assert middle == pytest.approx(mechanism.magnitude() ** 2)
    differences = {"mb": 0.25, "1b": 0.25, "duchi": 0.25, "grr_fs": 0.25, "lp": 0.0, "ag": 0.0}
    if name in differences:
        assert middle - blank == pytest.approx(differences[name])
    assert variance_p_value(mechanism, 2, 0.0, blank * lengths.square()) > ALPHA
    assert variance_p_value(mechanism, 2, 0.0, 1.1 * blank * lengths.square()) < ALPHA
    # What conditioning leaves out at a budget as small as the ones that it is for.
    small = MECHANISMS[name](0.01, 1000)
    assert float(small.variance(torch.tensor(0.0))) == pytest.approx(
        small.magnitude() ** 2, rel=5e-3 if name in ("pm", "sw") else 1e-5
    )


@pytest.mark.parametrize("name", MECHANISMS)
def test_conditioned_rows_have_unit_variance(name: str) -> None:
    mechanism = MECHANISMS[name](0.8, D)
    lengths = row_lengths(kprop_operator(TINY, "gcn", NUMBA), of_power(2))
    own = row_factors(lengths, mechanism.magnitude(), "node").double()
    one = row_factors(lengths, mechanism.magnitude(), "scale").double()
    reached = lengths > 0
    assert 0 < int(reached.sum()) < TINY.num_nodes
    # What the rows' variance was, if it is one after multiplication by the factor.
    assert variance_p_value(mechanism, 2, 0.5, own.pow(-2)) > ALPHA
    assert variance_p_value(mechanism, 2, 0.5, one.pow(-2)) < ALPHA  # not of every row
    rows = propagated_noise(mechanism, 2, 0.5)
    squares = (one[:, None, None] * rows).square()
    assert mean_p_value(squares.mean((0, 2)), 1.0) > ALPHA  # but over all rows
    assert mean_p_value(squares[reached].mean((0, 2)), 1.0) < ALPHA  # rows of zeros count


def test_factors_by_hand() -> None:
    lengths = torch.tensor([0.5, 1.0, 0.0, 2.0])
    node = row_factors(lengths, 4.0, "node")
    assert torch.equal(node, torch.tensor([0.5, 0.25, 1.0, 0.125]))  # a row of zeros stays one
    scale = row_factors(torch.tensor([1.0, 1.0, 0.0, 1.0, 1.0, 2.0, 2.0, 2.0]), 4.0, "scale")
    assert torch.equal(scale, torch.full((8,), 0.25 / math.sqrt(2)))  # mean square (4 + 12) / 8
    assert torch.equal(row_factors(torch.zeros(3), 4.0, "scale"), torch.ones(3))  # no edge at all


def test_the_widest_noise_still_has_factors() -> None:
    factors = row_factors(torch.tensor([1.0, 1e-3]), 1e30, "node")
    assert bool((factors > 0).all())
    assert bool(factors.isfinite().all())


def test_conditioning_has_no_way_to_private_data() -> None:
    """What these functions take, and what their module knows, is all that they can read."""
    public = {Operator, tuple[float, ...], float, Tensor, Conditioning}
    functions: tuple[Callable[..., Any], ...] = (row_lengths, row_factors)
    for function in functions:
        hints = get_type_hints(function)
        assert set(hints) == {*inspect.signature(function).parameters, "return"}
        assert all(hint in public for hint in hints.values()), hints
    tree = ast.parse(inspect.getsource(conditioning))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert modules == {"typing", "torch", "lpgnn.propagation.operators"}
    assert {f.name for f in ast.walk(tree) if isinstance(f, ast.FunctionDef)} == {
        "row_lengths",
        "row_factors",
    }
