"""Filters as components: their options, their algebra, and filters as a user would write them."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError
from lpgnn.kernels import Backend
from lpgnn.privacy import FeatureReports
from lpgnn.propagation import (
    Aggregator,
    KProp,
    LinearFilter,
    NonlinearFilter,
    Operator,
    PreparedGraph,
    PropagatedFeatures,
)
from lpgnn.propagation import filters as filters_module
from lpgnn.propagation.conditioning import row_lengths
from lpgnn.propagation.features import DenseFeatures, FactoredFeatures

from .graphs import (
    NUMBA,
    adjacency,
    both_backends,
    dense_gcn,
    dense_mean,
    random_topology,
    seeded,
)

N, D, H = 30, 300, 5  # more columns than a block


@dataclass(frozen=True)
class PageRank(LinearFilter):
    """alpha sum_k (1 - alpha)^k P^k: a user's own linear filter."""

    alpha: float = 0.15
    length: int = 6

    def coefficients(self) -> tuple[float, ...]:
        return tuple(self.alpha * (1 - self.alpha) ** k for k in range(self.length + 1))


@dataclass(frozen=True)
class Fixed(LinearFilter):
    """Coefficients as they are given."""

    theta: tuple[float, ...] = (1.0,)

    def coefficients(self) -> tuple[float, ...]:
        return self.theta


@dataclass(frozen=True)
class Shrunk(NonlinearFilter):
    """Soft thresholding of the propagated columns: a user's own filter that is not linear."""

    threshold: float = 0.5
    steps: int = 2

    def transform(self, columns: Tensor, graph: PreparedGraph) -> Tensor:
        smooth = graph.kprop("gcn").propagate(columns[None], self.steps)[0]
        return smooth.sign() * (smooth.abs() - self.threshold).clamp(min=0)


def dense_step(aggregator: Aggregator) -> Tensor:
    normalise = dense_gcn if aggregator == "gcn" else dense_mean
    return normalise(adjacency(random_topology(N)).fill_diagonal_(0))


def dense_filter(own: LinearFilter) -> Tensor:
    """sum_k theta_k P^k.  -> [N, N] float64"""
    total = torch.zeros(N, N, dtype=torch.float64)
    for k, theta in enumerate(own.coefficients()):
        total += theta * torch.linalg.matrix_power(dense_step(own.aggregator), k)
    return total


def sparse_report(run: int = 0, magnitude: float | None = 7.0) -> FeatureReports:
    drawn = torch.randn(N, D, generator=seeded(run))
    sent = CsrMatrix.from_dense(torch.where(drawn > 1, drawn, 0.0))
    return FeatureReports(sent, 2.0 + run, 0.3, magnitude)


def dense_report(run: int = 0, magnitude: float | None = 7.0) -> FeatureReports:
    return FeatureReports(torch.randn(N, D, generator=seeded(run)), 2.0 + run, 0.3, magnitude)


REPORTS: dict[str, Callable[[int, float | None], FeatureReports]] = {
    "sparse": sparse_report,
    "dense": dense_report,
}
LINEAR = [
    KProp(0),
    KProp(1),
    KProp(4),
    KProp(2, aggregator="mean"),
    PageRank(),
    PageRank(alpha=0.5, length=2, aggregator="mean"),
    Fixed(theta=(0.0, 2.0, 0.0, -1.0)),
]


def assert_close(actual: Tensor, expected: Tensor) -> None:
    """Float32 against double precision, errors measured by the largest entry."""
    scale = float(expected.abs().max())
    torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-5 * scale)


def assert_multiplies_as(features: PropagatedFeatures, x: Tensor) -> None:
    """The product with weights, its gradient, and the features themselves.  x: [2, N, D]"""
    weight = torch.randn(2, D, H, generator=seeded(1), requires_grad=True)
    out = features.matmul(weight)
    assert_close(out.detach(), x @ weight.detach().double())
    grad = torch.randn(out.shape, generator=seeded(2))
    (d_weight,) = torch.autograd.grad(out, weight, grad)
    assert_close(d_weight, x.transpose(1, 2) @ grad.double())
    assert_close(features.dense(), x)


@both_backends
@pytest.mark.parametrize("form", REPORTS)
@pytest.mark.parametrize("own", LINEAR, ids=repr)
def test_linear_filters_are_dense_polynomials(
    own: LinearFilter, form: str, backend: Backend
) -> None:
    reports = [REPORTS[form](run, 7.0) for run in range(2)]
    features = own.features(reports, PreparedGraph(random_topology(N), backend))
    assert type(features) is (FactoredFeatures if form == "sparse" else DenseFeatures)
    x = dense_filter(own) @ torch.stack([r.rectified().double() for r in reports])
    assert_multiplies_as(features, x)


@both_backends
@pytest.mark.parametrize("form", REPORTS)
@pytest.mark.parametrize("conditioning", ["scale", "node"])
@pytest.mark.parametrize("own", LINEAR, ids=repr)
def test_conditioned_rows_have_the_public_size_of_noise_taken_out(
    own: LinearFilter, conditioning: str, form: str, backend: Backend
) -> None:
    """Row v is divided by magnitude |F_v|, or by the root mean square over all rows."""
    own = own.replace(conditioning=conditioning)
    report = REPORTS[form](0, 7.0)
    found = own.features([report], PreparedGraph(random_topology(N), backend)).dense()[0]
    lengths = dense_filter(own).norm(dim=1)
    if conditioning == "scale":
        lengths = lengths.square().mean().sqrt().expand(N)
    factors = torch.where(lengths > 0, 1 / (7.0 * lengths), 1.0)
    assert_close(found, factors[:, None] * (dense_filter(own) @ report.rectified().double()))


@both_backends
def test_each_run_is_conditioned_by_its_own_magnitude(backend: Backend) -> None:
    graph = PreparedGraph(random_topology(N), backend)
    own = KProp(2, conditioning="node")
    reports = [sparse_report(0, 7.0), sparse_report(0, 70.0)]
    first, second = own.features(reports, graph).dense()
    assert_close(second, first.double() / 10)


def test_an_open_conditioning_is_none() -> None:
    graph = PreparedGraph(random_topology(N), NUMBA)
    left_open, none = (
        KProp(2, conditioning=choice).features([sparse_report()], graph).dense()
        for choice in (None, "none")
    )
    assert torch.equal(left_open, none)


@pytest.mark.parametrize("conditioning", ["scale", "node"])
@pytest.mark.parametrize("form", REPORTS)
def test_conditioning_needs_a_public_magnitude(conditioning: str, form: str) -> None:
    graph = PreparedGraph(random_topology(N), NUMBA)
    reports = [REPORTS[form](0, 7.0), REPORTS[form](1, None)]
    own = KProp(2).replace(conditioning=conditioning)
    with pytest.raises(InputError, match=f"^filter.conditioning={conditioning}: must be none"):
        own.features(reports, graph)
    own.features(reports[:1], graph)
    KProp(2).features(reports, graph)


def test_row_lengths_are_computed_once_a_graph_and_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []

    def counted(operator: Operator, coefficients: tuple[float, ...]) -> Tensor:
        calls.append(coefficients)
        return row_lengths(operator, coefficients)

    monkeypatch.setattr(filters_module, "row_lengths", counted)
    graph = PreparedGraph(random_topology(N), NUMBA)
    for _ in range(3):
        for conditioning in ("none", "scale", "node"):
            KProp(2).replace(conditioning=conditioning).features([sparse_report()], graph)
    assert calls == [(0.0, 0.0, 1.0)]
    KProp(3, conditioning="node").features([sparse_report()], graph)
    KProp(2, conditioning="node", aggregator="mean").features([sparse_report()], graph)
    assert len(calls) == 3
    other = PreparedGraph(random_topology(N), NUMBA)
    KProp(2, conditioning="node").features([sparse_report()], other)
    assert len(calls) == 4


@both_backends
@pytest.mark.parametrize("form", REPORTS)
def test_a_nonlinear_filter_sees_the_rectified_columns(form: str, backend: Backend) -> None:
    reports = [REPORTS[form](run, None) for run in range(2)]
    features = Shrunk().features(reports, PreparedGraph(random_topology(N), backend))
    assert type(features) is DenseFeatures
    p2 = torch.linalg.matrix_power(dense_step("gcn"), 2)
    smooth = p2 @ torch.stack([r.rectified().double() for r in reports])
    x = smooth.sign() * (smooth.abs() - 0.5).clamp(min=0)
    assert 0.05 < float((x == 0).double().mean()) < 0.95  # the threshold matters
    assert_multiplies_as(features, x)


def test_a_nonlinear_filter_gets_blocks_of_at_most_128_columns() -> None:
    widths: list[int] = []

    @dataclass(frozen=True)
    class Watching(NonlinearFilter):
        def transform(self, columns: Tensor, graph: PreparedGraph) -> Tensor:
            assert columns.shape[0] == graph.num_nodes
            assert columns.dtype == torch.float32
            widths.append(columns.shape[1])
            return columns

    report = sparse_report()
    features = Watching().features([report], PreparedGraph(random_topology(N), NUMBA))
    assert widths == [128, 128, 44]
    torch.testing.assert_close(features.dense()[0], report.rectified())


def test_a_nonlinear_filter_of_other_than_finite_numbers_is_bad_input() -> None:
    @dataclass(frozen=True)
    class Endless(NonlinearFilter):
        def transform(self, columns: Tensor, graph: PreparedGraph) -> Tensor:
            return torch.where(columns > columns.max() - 1e-6, math.inf, columns)

    with pytest.raises(InputError, match=r"^filter=Endless: transform must return finite numbers$"):
        Endless().features([dense_report()], PreparedGraph(random_topology(N), NUMBA))


def test_a_nonlinear_filter_of_another_shape_is_bad_input() -> None:
    @dataclass(frozen=True)
    class Halved(NonlinearFilter):
        def transform(self, columns: Tensor, graph: PreparedGraph) -> Tensor:
            return columns[:, ::2]

    with pytest.raises(InputError, match=r"^filter=Halved: transform returned \[30, 64\] where"):
        Halved().features([dense_report()], PreparedGraph(random_topology(N), NUMBA))


def test_kprop_is_named_and_leaves_its_steps_to_the_table() -> None:
    assert (KProp.kind, KProp.name) == ("filter", "kprop")
    assert KProp.open_fields == {"steps": "x_steps"}
    assert KProp().options() == {"aggregator": "gcn", "conditioning": None, "steps": None}
    assert KProp(3).coefficients() == (0.0, 0.0, 0.0, 1.0)
    assert KProp(steps=0).coefficients() == (1.0,)
    with pytest.raises(InputError, match=r"^filter.steps=null: must be set"):
        KProp().coefficients()


def test_costs_and_kinds() -> None:
    assert [own.max_steps for own in LINEAR] == [0, 1, 4, 2, 6, 2, 3]
    assert Fixed(theta=(0.5, 0.5, 0.0, 0.0)).max_steps == 1  # zeros at the end cost nothing
    assert Shrunk().max_steps == 0
    assert KProp(1).is_linear
    assert not Shrunk().is_linear


@pytest.mark.parametrize("steps", [-1, 1.5, 2.0, "3", True, math.nan])
def test_steps_are_whole_numbers(steps: object) -> None:
    with pytest.raises(InputError, match=r"^steps=.*: must be a whole number >= 0$"):
        KProp(steps)  # type: ignore[arg-type]


@pytest.mark.parametrize(("field", "value"), [("aggregator", "sum"), ("conditioning", "rows")])
def test_unknown_choices_are_bad_input(field: str, value: str) -> None:
    with pytest.raises(InputError, match=f"^{field}={value}: must be one of"):
        replace(KProp(1), **{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("theta", [(), (1.0, math.nan), (math.inf,)])
def test_coefficients_are_finite_numbers(theta: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match=r"^filter=Fixed: must have finite coefficients"):
        Fixed(theta=theta).features([sparse_report()], PreparedGraph(random_topology(N), NUMBA))


def test_coefficients_that_fail_name_the_filter_and_its_options() -> None:
    @dataclass(frozen=True)
    class Averaged(LinearFilter):
        steps: int = 0

        def coefficients(self) -> tuple[float, ...]:
            return (1 / self.steps,)

    message = r"^filter=Averaged: coefficients\(\) failed with ZeroDivisionError: .*steps=0\)$"
    with pytest.raises(InputError, match=message):
        _ = Averaged().max_steps
    with pytest.raises(InputError, match=r"^filter.steps=null: must be set"):  # its own words
        _ = KProp().max_steps


def test_all_zero_coefficients_give_zeros() -> None:
    graph = PreparedGraph(random_topology(N), NUMBA)
    features = Fixed(theta=(0.0, 0.0)).features([sparse_report()], graph)
    assert not features.matmul(torch.ones(1, D, H)).any()
