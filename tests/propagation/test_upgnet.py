"""UPGNET's soft threshold, as published and as released."""

import math
from typing import Any

import pytest
import torch

from lpgnn.errors import InputError
from lpgnn.kernels import Backend
from lpgnn.privacy import FeatureReports
from lpgnn.propagation import HOA, NFR, PreparedGraph, ReleasedUPGNet
from lpgnn.propagation import features as features_module
from lpgnn.propagation.features import DenseFeatures, FactoredFeatures
from lpgnn.propagation.released_upgnet import cut

from .graphs import NUMBA, adjacency, both_backends, path_and_isolated, random_topology, seeded
from .test_filters import (
    REPORTS,
    D,
    N,
    assert_close,
    assert_multiplies_as,
    dense_filter,
    dense_step,
)


def report_of(x: list[list[float]], magnitude: float | None = None) -> FeatureReports:
    return FeatureReports(torch.tensor(x), 1.0, 0.0, magnitude)


def test_the_threshold_by_hand() -> None:
    """Path 0-1-2 and isolated 3, one step with the mean: h = (2, 2, 2, 0) and (-3, 0.5, -3, 0)."""
    report = report_of([[4.0, 1.0], [2.0, -3.0], [0.0, 0.0], [9.0, 9.0]])
    graph = PreparedGraph(path_and_isolated(), NUMBA)
    own = NFR(1, mu=0.75, aggregator="mean")
    expected = torch.tensor([[1.25, -2.25], [1.25, 0.0], [1.25, -2.25], [0.0, 0.0]])
    torch.testing.assert_close(own.features([report], graph).dense()[0], expected)


@both_backends
@pytest.mark.parametrize("conditioning", ["none", "node", "scale"])
@pytest.mark.parametrize("form", REPORTS)
def test_the_published_one_is_a_threshold_of_hoa(
    form: str, conditioning: str, backend: Backend
) -> None:
    """Under conditioning the threshold counts in standard deviations of the noise."""
    reports = [REPORTS[form](run, 7.0) for run in range(2)]
    own = NFR(3, mu=0.2, conditioning=conditioning)  # type: ignore[arg-type]
    graph = PreparedGraph(random_topology(N), backend)
    features = own.features(reports, graph)
    assert type(features) is DenseFeatures
    assert not own.is_linear
    assert own.max_steps == 0
    lengths = dense_filter(HOA(3)).norm(dim=1)
    if conditioning == "scale":
        lengths = lengths.square().mean().sqrt().expand(N)
    factors = torch.where(lengths > 0, 1 / (7.0 * lengths), 1.0)[:, None]
    h = dense_filter(HOA(3)) @ torch.stack([r.rectified().double() for r in reports])
    h = h if conditioning == "none" else factors * h
    x = h.sign() * (h.abs() - 0.2).clamp(min=0)
    assert 0.05 < float((x == 0).double().mean()) < 0.95  # the threshold matters
    assert_multiplies_as(features, x)


def published_formula(reports: list[FeatureReports], steps: int, mu: float) -> torch.Tensor:
    h = dense_filter(HOA(steps)) @ torch.stack([r.rectified().double() for r in reports])
    return h.sign() * (h.abs() - mu).clamp(min=0)


def released_formula(reports: list[FeatureReports], steps: int, mu: float) -> torch.Tensor:
    degree = adjacency(random_topology(N)).fill_diagonal_(0).sum(1).clamp(min=1)
    one_step = dense_step("gcn") / degree[:, None]
    means = dense_step("mean") @ torch.stack([r.rectified().double() for r in reports])
    x = released_in_place(means, mu)
    powers = [torch.linalg.matrix_power(one_step, k) @ x for k in range(1, steps + 1)]
    return torch.stack(powers).mean(0) if steps else x


FORMULAS = {"published": published_formula, "released": released_formula}


def thresholded(
    kind: str, reports: list[FeatureReports], steps: int
) -> tuple[NFR | ReleasedUPGNet, torch.Tensor]:
    """A filter whose threshold leaves one number in twenty of each report, and what it leaves."""
    before = FORMULAS[kind](reports, steps if kind == "published" else 0, 0.0)
    mu = float(before.abs().flatten(1).quantile(0.95, dim=1).max())
    own = NFR(steps, mu=mu) if kind == "published" else ReleasedUPGNet(steps, mu=mu / 2)
    return own, FORMULAS[kind](reports, steps, own.mu)


@both_backends
@pytest.mark.parametrize("form", REPORTS)
@pytest.mark.parametrize("kind", ["published", "released"])
@pytest.mark.parametrize("steps", [0, 3])
def test_few_numbers_above_a_threshold_are_multiplied_as_such(
    kind: str, steps: int, form: str, backend: Backend
) -> None:
    reports = [REPORTS[form](run, 7.0) for run in range(2)]
    own, x = thresholded(kind, reports, steps)
    features = own.features(reports, PreparedGraph(random_topology(N), backend))
    assert type(features) is FactoredFeatures
    assert float(x.abs().max()) > 0.1  # some are above it
    assert_multiplies_as(features, x)


@pytest.mark.parametrize("kind", ["published", "released"])
def test_one_report_of_many_numbers_makes_all_dense(kind: str) -> None:
    """A second run's report is so large that hardly anything of it is below the threshold."""
    reports = [REPORTS["dense"](run, None) for run in range(2)]
    own, _ = thresholded(kind, reports, 3)
    graph = PreparedGraph(random_topology(N), NUMBA)
    assert type(own.features(reports, graph)) is FactoredFeatures
    reports[1] = FeatureReports(reports[1].sent, 1000.0, 0.0)
    features = own.features(reports, graph)
    assert type(features) is DenseFeatures
    assert_multiplies_as(features, FORMULAS[kind](reports, 3, own.mu))


def test_columns_are_looked_at_until_too_many_numbers_are_found() -> None:
    """[30, 300] has room for 900 numbers: three of four columns are empty, and one is full."""
    sent = torch.zeros(N, D)
    sent[:, ::4] = 1.0
    report, seen = FeatureReports(sent, 1.0, 0.0), list[int]()

    def watched(_: FeatureReports, columns: torch.Tensor) -> torch.Tensor:
        seen.append(columns.shape[1])
        return columns

    assert features_module.few_numbers([report], watched, NUMBA) is None
    assert seen == [128]  # 32 full columns of 30: 960 numbers
    sent[:, 4 * 29 :] = 0.0  # 29 full columns: 870 numbers
    seen.clear()
    few = features_module.few_numbers([report, report], watched, NUMBA)
    assert few is not None
    assert few[0] is few[1]  # runs that share a report share what comes of it
    assert seen == [128, 128, 44]
    assert torch.equal(few[0].rectified(), sent)


@both_backends
@pytest.mark.parametrize("conditioning", ["none", "node"])
def test_without_a_threshold_it_is_hoa(conditioning: Any, backend: Backend) -> None:
    graph, report = PreparedGraph(random_topology(N), backend), REPORTS["sparse"](0, 7.0)
    own, plain = (
        one.features([report], graph).dense()
        for one in (NFR(3, mu=0, conditioning=conditioning), HOA(3, conditioning=conditioning))
    )
    torch.testing.assert_close(own, plain)


@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize("exact", [False, True])
def test_it_is_never_taken_for_a_linear_filter(steps: int, exact: bool) -> None:
    own = NFR(steps).canonical(reports_are_exact=exact)
    assert own == NFR(steps, conditioning="none")
    assert type(own) is NFR


def released_in_place(x: torch.Tensor, limit: float) -> torch.Tensor:
    """The three assignments of the released program, one entry at a time."""
    out = x.clone()
    for index, value in enumerate(x.flatten().tolist()):
        if value > limit:
            value -= limit
        if value <= -limit:
            value += limit
        if -limit <= value <= limit:
            value = 0.0
        out.view(-1)[index] = value
    return out


def test_the_released_cut_leaves_nothing_up_to_twice_the_threshold() -> None:
    x = torch.tensor([-5.0, -2.5, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 5.0])
    expected = torch.tensor([-4.0, -1.5, 0.0, 0, 0, 0, 0, 0, 0, 0, 0.0, 1.5, 4.0])
    assert torch.equal(cut(x, 1.0), expected)
    assert torch.equal(released_in_place(x, 1.0), expected)
    drawn = 3 * torch.randn(500, generator=seeded())
    for mu in (0.0, 0.3, 1.0):
        torch.testing.assert_close(cut(drawn, mu), released_in_place(drawn, mu))


@both_backends
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_the_released_filter_equals_its_dense_formula(steps: int, backend: Backend) -> None:
    report = REPORTS["dense"](0, None)
    own = ReleasedUPGNet(steps, mu=0.4)
    found = own.features([report], PreparedGraph(random_topology(N), backend)).dense()[0]
    expected = released_formula([report], steps, 0.4)[0]
    x = released_formula([report], 0, 0.4)
    assert 0.05 < float((x == 0).double().mean()) < 0.95
    assert_close(found, expected)


def test_the_two_differ() -> None:
    graph, report = PreparedGraph(random_topology(N), NUMBA), REPORTS["dense"](0, None)
    published, released = (
        own.features([report], graph).dense() for own in (NFR(2, mu=0.3), ReleasedUPGNet(2, mu=0.3))
    )
    assert float((published - released).abs().max()) > 0.1


@pytest.mark.parametrize("mu", [-1.0, math.inf, math.nan, "1", True, None])
def test_a_threshold_is_a_number(mu: Any) -> None:
    for own in (NFR, ReleasedUPGNet):
        with pytest.raises(InputError, match=r"^mu=.*: must be a number >= 0$"):
            own(2, mu=mu)


@pytest.mark.parametrize("steps", [-1, 1.0, True, None, "2"])
def test_released_steps_are_a_number(steps: Any) -> None:
    with pytest.raises(InputError, match=r"^steps=.*: must be a whole number >= 0$"):
        ReleasedUPGNet(steps)
