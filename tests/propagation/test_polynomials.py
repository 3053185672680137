"""HOA, personalised PageRank and sums of powers: their coefficients, by hand and in the limit."""

import math
from typing import Any

import pytest
import torch

from lpgnn.errors import InputError
from lpgnn.kernels import Backend
from lpgnn.propagation import HOA, KProp, LinearFilter, PageRank, Powers, PreparedGraph

from .graphs import NUMBA, both_backends, path_and_isolated, random_topology
from .test_filters import REPORTS, N, assert_close, dense_filter, dense_report, sparse_report

LINEAR: list[LinearFilter] = [
    HOA(1),
    HOA(4),
    HOA(3, aggregator="mean"),
    PageRank(4, alpha=0.3),
    PageRank(2, alpha=0.3, aggregator="mean"),
    Powers(theta=(0.5, 0.0, -2.0, 1.0)),
]
every_filter = pytest.mark.parametrize("own", LINEAR, ids=repr)


def test_coefficients_by_hand() -> None:
    assert HOA(4).coefficients() == (0.0, 0.25, 0.25, 0.25, 0.25)
    assert HOA(1).coefficients() == (0.0, 1.0)
    assert HOA(0).coefficients() == (1.0,)
    assert PageRank(2, alpha=0.25).coefficients() == (0.25, 0.1875, 0.5625)
    assert PageRank(0, alpha=0.25).coefficients() == (1.0,)
    assert Powers(theta=(1.0, 2.0)).coefficients() == (1.0, 2.0)


def test_on_a_path_by_hand() -> None:
    """Edges 0-1 and 1-2, node 3 alone; P has 1 / sqrt(2) on both edges, P^2 swaps the ends."""
    graph = PreparedGraph(path_and_isolated(), NUMBA)
    x = torch.tensor([[4.0], [0.0], [0.0], [8.0]])
    r = math.sqrt(0.5)
    cases: list[tuple[LinearFilter, list[float]]] = [
        # P x = (0, 4r, 0, 0), P^2 x = (2, 0, 2, 0)
        (HOA(2), [1.0, 2 * r, 1.0, 0.0]),
        (HOA(2, aggregator="mean"), [1.0, 1.0, 1.0, 0.0]),  # (0, 2, 0, 0), then (2, 0, 2, 0)
        (PageRank(2, alpha=0.5), [2 + 0.5, r, 0.5, 4.0]),
        (Powers(theta=(1.0, 0.0, 3.0)), [10.0, 0.0, 6.0, 8.0]),
    ]
    for own, expected in cases:
        found = graph.kprop(own.aggregator).filter(x[None], own.coefficients())[0, :, 0]
        torch.testing.assert_close(found, torch.tensor(expected))


@both_backends
@pytest.mark.parametrize("form", REPORTS)
@every_filter
def test_features_are_dense_polynomials(own: LinearFilter, form: str, backend: Backend) -> None:
    reports = [REPORTS[form](run, 7.0) for run in range(2)]
    features = own.features(reports, PreparedGraph(random_topology(N), backend))
    rectified = torch.stack([r.rectified().double() for r in reports])
    assert_close(features.dense(), dense_filter(own) @ rectified)


@both_backends
@pytest.mark.parametrize("conditioning", ["scale", "node"])
@every_filter
def test_they_are_conditioned_by_the_public_size_of_the_noise(
    own: LinearFilter, conditioning: str, backend: Backend
) -> None:
    """Rows of noise of a known size, as many as a graph needs: their size becomes one."""
    report, graph = dense_report(0, 2.0), PreparedGraph(random_topology(N), backend)
    noise = 2.0 * torch.randn(N, 20_000, generator=torch.Generator().manual_seed(3))
    noise_report = type(report)(noise, 1.0, 0.0, 2.0)
    sizes = own.replace(conditioning=conditioning).features([noise_report], graph).dense()[0]
    reached = dense_filter(own).norm(dim=1) > 0
    squares = sizes.square().mean(1)[reached]
    if conditioning == "node":
        torch.testing.assert_close(squares, torch.ones_like(squares), rtol=0.05, atol=0)
    else:
        assert float(sizes.square().mean()) == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_page_rank_lies_between_kprop_and_the_reports(alpha: float) -> None:
    graph, report = PreparedGraph(random_topology(N), NUMBA), sparse_report()
    found = PageRank(3, alpha=alpha).features([report], graph).dense()
    expected = KProp(0 if alpha else 3).features([report], graph).dense()
    torch.testing.assert_close(found, expected)
    assert PageRank(3, alpha=alpha).max_steps == (0 if alpha else 3)


@pytest.mark.parametrize("alpha", [0.0, 0.05, 0.6, 1.0])
@pytest.mark.parametrize("steps", [0, 1, 2, 30])
def test_page_rank_loses_no_mass(alpha: float, steps: int) -> None:
    theta = PageRank(steps, alpha=alpha).coefficients()
    assert sum(theta) == pytest.approx(1)
    assert min(theta) >= 0


def test_a_long_page_rank_is_the_closed_form() -> None:
    """alpha (I - (1 - alpha) P)^-1"""
    own, one_step = PageRank(200, alpha=0.2), dense_filter(KProp(1))
    inverse = torch.linalg.inv(torch.eye(N, dtype=torch.float64) - 0.8 * one_step)
    torch.testing.assert_close(dense_filter(own), 0.2 * inverse)


@pytest.mark.parametrize("exact", [False, True])
def test_the_mean_of_one_power_has_the_name_of_that_power(exact: bool) -> None:
    for steps in (0, 1):
        own = HOA(steps, aggregator="mean", conditioning="node")
        plain = KProp(steps, aggregator="mean", conditioning="none" if exact else "node")
        assert own.canonical(reports_are_exact=exact) == plain
        assert type(own.canonical(reports_are_exact=exact)) is KProp
        graph, report = PreparedGraph(random_topology(N), NUMBA), sparse_report()
        same = KProp(steps, aggregator="mean", conditioning="node")
        found, expected = (one.features([report], graph).dense() for one in (own, same))
        assert torch.equal(found, expected)
    kept = HOA(2, conditioning="none" if exact else "scale")
    assert HOA(2, conditioning="scale").canonical(reports_are_exact=exact) == kept


def test_steps_may_be_left_to_the_table() -> None:
    for own in (HOA(), PageRank()):
        assert own.open_fields == {"steps": "x_steps"}
        with pytest.raises(InputError, match=r"^filter.steps=null: must be set"):
            own.coefficients()


def test_a_list_of_whole_numbers_is_the_same_filter() -> None:
    given: Any = [0, 1]
    assert Powers(theta=given) == Powers(theta=(0.0, 1.0))
    assert Powers(theta=given).identity == Powers(theta=(0.0, 1.0)).identity


@pytest.mark.parametrize("alpha", [-0.1, 1.1, math.nan, "0.1", None, True])
def test_alpha_is_a_probability(alpha: Any) -> None:
    with pytest.raises(InputError, match=r"^alpha=.*: must be a number >= 0 and <= 1$"):
        PageRank(2, alpha=alpha)


@pytest.mark.parametrize("theta", [(), [math.inf], "12", 3.0, None, [1, "a"], [True]])
def test_coefficients_are_a_list_of_numbers(theta: Any) -> None:
    with pytest.raises(InputError, match=r"^theta=.*: must be a list of finite numbers"):
        Powers(theta=theta)
