import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lpgnn.data.graph import Topology
from lpgnn.data.sparse import CsrMatrix
from lpgnn.kernels import Backend
from lpgnn.kernels import backend as backend_module
from lpgnn.privacy import FeatureReports
from lpgnn.propagation import PropagatedFeatures
from lpgnn.propagation.compiled import PanelMatrix
from lpgnn.propagation.features import DenseFeatures, FactoredFeatures, linear_features
from lpgnn.propagation.matrices import DenseMatrix
from lpgnn.propagation.operators import aggregation

from .graphs import (
    NUMBA,
    TORCH,
    both_backends,
    dense_kprop,
    kprop_operator,
    random_topology,
    seeded,
)
from .mechanisms import MECHANISMS

N, D, H = 30, 150, 5  # so many features that products with N x D numbers cost more than five steps
NARROW = 12  # so few that they cost less than one step


def clean_features(seed: int = 0, width: int = D) -> CsrMatrix:
    dense = torch.rand(N, width, generator=seeded(seed))
    return CsrMatrix.from_dense(torch.where(dense > 0.6, dense, 0.0))


def empty_matrix(width: int = D) -> CsrMatrix:
    return CsrMatrix.from_dense(torch.zeros(N, width))


def mechanism_reports(
    name: str, seed: int = 0, epsilon: float = 3.0, width: int = D
) -> FeatureReports:
    mechanism = MECHANISMS[name](epsilon, width)
    return mechanism.perturb(clean_features(seed, width), generator=seeded(seed))


def sparse_reports(kind: str, runs: int, width: int = D) -> list[FeatureReports]:
    if kind == "raw":
        return [FeatureReports(clean_features(r, width), 1.0, 0.0) for r in range(runs)]
    if kind == "ones":
        return [FeatureReports(empty_matrix(width), 1.0, 1.0) for _ in range(runs)]
    if kind == "mb":
        return [mechanism_reports("mb", r, width=width) for r in range(runs)]
    if kind == "mb, m = 4":
        return [mechanism_reports("mb", r, epsilon=9.0, width=width) for r in range(runs)]
    # Runs of different kinds, scales and offsets side by side.
    mixed = [
        mechanism_reports("mb", 0, width=width),
        FeatureReports(empty_matrix(width), 1.0, 1.0),
        FeatureReports(clean_features(1, width), 1.0, 0.0),
        mechanism_reports("mb", 2, epsilon=9.0, width=width),
    ]
    return mixed[:runs]


def reports_of(kind: str, runs: int, width: int = D) -> list[FeatureReports]:
    if kind in SPARSE:
        return sparse_reports(kind, runs, width)
    return [mechanism_reports(kind, r, width=width) for r in range(runs)]


def one_bit_reports(seed: int = 0) -> FeatureReports:
    """At a budget at which the bits say something."""
    return mechanism_reports("1b", seed, epsilon=200.0)


SPARSE = ["raw", "ones", "mb", "mb, m = 4", "mixed"]
DENSE = ["1b", "lp", "ag"]


def of_power(steps: int) -> tuple[float, ...]:
    """The coefficients of P^K."""
    return (0.0,) * steps + (1.0,)


# One power, and polynomials with and without P^0.
FILTERS = [
    of_power(0),
    of_power(1),
    of_power(2),
    of_power(5),
    (0.5, 0.3, 0.2),
    (0.0, -2.0, 0.0, 3.0),
]


def features_of(
    reports: Sequence[FeatureReports],
    coefficients: tuple[float, ...],
    backend: Backend,
    factors: Tensor | None = None,
) -> PropagatedFeatures:
    """On the random graph, by KProp's operator."""
    operator = kprop_operator(random_topology(N), "gcn", backend)
    row_factors = None if factors is None else lambda report: factors
    return linear_features(reports, operator, coefficients, backend, row_factors)


def form_of(kind: str, coefficients: tuple[float, ...], backend: Backend, width: int = D) -> type:
    """Few numbers or bits pay on wide reports, and without steps on narrow ones, too."""
    few = kind in SPARSE or (kind == "1b" and backend.compiled)  # only those loops read bits
    pays = width == D or len(coefficients) == 1
    return FactoredFeatures if few and pays else DenseFeatures


def random_factors() -> Tensor:
    """A factor of each row, from large to small.  -> [N]"""
    return torch.logspace(-2, 1, N)[torch.randperm(N, generator=seeded(4))]


def expected_input(
    reports: Sequence[FeatureReports],
    coefficients: tuple[float, ...],
    row_factors: Tensor | None = None,
) -> Tensor:
    """diag(f) sum_k theta_k P^k X' with everything multiplied out.  -> [R, N, d] float64"""
    step = dense_kprop(random_topology(N))
    powers = [theta * torch.linalg.matrix_power(step, k) for k, theta in enumerate(coefficients)]
    filtered = torch.stack(powers).sum(0)
    rectified = []
    for report in reports:
        sent = report.sent.to_dense() if isinstance(report.sent, CsrMatrix) else report.sent
        rectified.append(report.scale * sent.double() + report.offset)
    if row_factors is not None:
        filtered = torch.diag(row_factors.double()) @ filtered
    return filtered @ torch.stack(rectified)


def check_against_dense(
    reports: Sequence[FeatureReports],
    coefficients: tuple[float, ...],
    form: type,
    backend: Backend,
    row_factors: Tensor | None = None,
) -> None:
    """Values, gradients and the dense form."""
    features = features_of(reports, coefficients, backend, row_factors)
    assert type(features) is form
    x = expected_input(reports, coefficients, row_factors)
    scale = float(x.abs().max())
    d = reports[0].num_features
    weight = torch.randn(len(reports), d, H, generator=seeded(1), requires_grad=True)
    out = features.matmul(weight)
    expected = x @ weight.detach().double()
    assert out.shape == (len(reports), N, H)
    torch.testing.assert_close(out.detach().double(), expected, rtol=1e-5, atol=1e-5 * scale)
    for grad in (torch.randn(out.shape, generator=seeded(2)), torch.ones(()).expand(out.shape)):
        (d_weight,) = torch.autograd.grad(out, weight, grad, retain_graph=True)
        d_expected = x.transpose(1, 2) @ grad.double()
        torch.testing.assert_close(d_weight.double(), d_expected, rtol=1e-5, atol=1e-5 * scale)
    torch.testing.assert_close(features.dense().double(), x, rtol=1e-5, atol=1e-6 * scale)
    several = [weight.detach(), -weight.detach(), weight.detach() * 2]
    for factor, one in zip((1, -1, 2), features.matmul_each(several), strict=True):
        torch.testing.assert_close(one.double(), factor * expected, rtol=1e-5, atol=2e-5 * scale)


@both_backends
@pytest.mark.parametrize("kind", SPARSE)
@pytest.mark.parametrize("coefficients", FILTERS)
@pytest.mark.parametrize("runs", [1, 4])
def test_sparse_reports_are_factored(
    kind: str, coefficients: tuple[float, ...], runs: int, backend: Backend
) -> None:
    check_against_dense(sparse_reports(kind, runs), coefficients, FactoredFeatures, backend)


@both_backends
@pytest.mark.parametrize("kind", SPARSE)
@pytest.mark.parametrize("coefficients", FILTERS[1:])
@pytest.mark.parametrize("runs", [1, 4])
def test_narrow_sparse_reports_are_filtered_once(
    kind: str, coefficients: tuple[float, ...], runs: int, backend: Backend
) -> None:
    reports = sparse_reports(kind, runs, NARROW)
    check_against_dense(reports, coefficients, DenseFeatures, backend)


@both_backends
@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("coefficients", FILTERS)
@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("width", [D, NARROW])
def test_dense_reports_are_filtered_once(
    name: str, coefficients: tuple[float, ...], runs: int, width: int, backend: Backend
) -> None:
    reports, form = reports_of(name, runs, width), form_of(name, coefficients, backend, width)
    check_against_dense(reports, coefficients, form, backend)


@both_backends
@pytest.mark.parametrize("coefficients", FILTERS)
@pytest.mark.parametrize("kind", [*SPARSE, *DENSE])
@pytest.mark.parametrize("width", [D, NARROW])
def test_rows_are_multiplied_by_their_factors(
    kind: str, coefficients: tuple[float, ...], width: int, backend: Backend
) -> None:
    reports = reports_of(kind, 4, width)
    factors = random_factors()
    before = factors.clone()
    form = form_of(kind, coefficients, backend, width)
    check_against_dense(reports, coefficients, form, backend, factors)
    assert torch.equal(factors, before)
    # The check rejects factors of other rows.
    found = features_of(reports, coefficients, backend, factors.roll(1)).dense().double()
    right = expected_input(reports, coefficients, factors)
    assert not torch.allclose(found, right, rtol=1e-2, atol=1e-2 * float(right.abs().max()))


@both_backends
@pytest.mark.parametrize("kind", ["mb", "lp"])
@pytest.mark.parametrize("width", [D, NARROW])
def test_a_run_has_the_factors_of_its_own_report(kind: str, width: int, backend: Backend) -> None:
    """Runs of other budgets may train side by side: their noise differs in size."""
    drawn = reports_of(kind, 3, width)
    reports = [replace(report, magnitude=10.0**run) for run, report in enumerate(drawn)]
    operator = kprop_operator(random_topology(N), "gcn", backend)

    def factors(report: FeatureReports) -> Tensor:
        assert report.magnitude is not None
        return random_factors() / report.magnitude

    features = linear_features(reports, operator, of_power(2), backend, factors)
    weight = torch.randn(3, width, H, generator=seeded(1), requires_grad=True)
    out = features.matmul(weight)
    grad = torch.randn(out.shape, generator=seeded(2))
    (d_weight,) = torch.autograd.grad(out, weight, grad)
    for run, report in enumerate(reports):
        x = expected_input([report], of_power(2), factors(report))[0]
        assert_close = torch.testing.assert_close
        scale = 1e-5 * float(x.abs().max())
        assert_close(
            out[run].detach().double(), x @ weight[run].detach().double(), atol=scale, rtol=1e-5
        )
        assert_close(d_weight[run].double(), x.t() @ grad[run].double(), atol=scale, rtol=1e-5)
        assert_close(features.dense()[run].double(), x, atol=scale, rtol=1e-5)


@both_backends
@pytest.mark.parametrize("kind", [*SPARSE, *DENSE])
@pytest.mark.parametrize("width", [D, NARROW])
def test_without_factors_nothing_is_multiplied(kind: str, width: int, backend: Backend) -> None:
    """None is bit by bit what factors of one give, in every form."""
    reports = reports_of(kind, 2, width)
    without = features_of(reports, of_power(2), backend)
    ones = features_of(reports, of_power(2), backend, torch.ones(N))
    weight = torch.randn(2, width, H, generator=seeded(1), requires_grad=True)
    out, other = without.matmul(weight), ones.matmul(weight)
    assert torch.equal(out, other)
    grad = torch.randn(out.shape, generator=seeded(2))
    (d_out,), (d_other,) = (torch.autograd.grad(o, weight, grad) for o in (out, other))
    assert torch.equal(d_out, d_other)
    assert torch.equal(without.dense(), ones.dense())


@both_backends
def test_factors_do_not_change_the_reports(backend: Backend) -> None:
    """One-step-free dense reports would be multiplied in place if they were not copied."""
    report = mechanism_reports("lp")
    assert isinstance(report.sent, Tensor)
    before = report.sent.clone()
    for _ in range(2):
        features = features_of([report, report], of_power(0), backend, random_factors())
        expected = expected_input([report, report], of_power(0), random_factors())
        torch.testing.assert_close(features.dense().double(), expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(report.sent, before)


def test_one_bit_reports_are_int8() -> None:
    """So that the test above covers the conversion."""
    sent = mechanism_reports("1b").sent
    assert isinstance(sent, Tensor)
    assert sent.dtype == torch.int8


@both_backends
def test_dense_reports_wider_than_a_block(backend: Backend) -> None:
    d = 600
    sent = torch.randn(N, d, generator=seeded(3))
    report = FeatureReports(sent, scale=2.0, offset=-0.5)
    features = features_of([report], of_power(3), backend)
    expected = expected_input([report], of_power(3))
    torch.testing.assert_close(features.dense().double(), expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(sent, torch.randn(N, d, generator=seeded(3)))  # the report stays as it was


@both_backends
def test_sparse_and_dense_reports_side_by_side(backend: Backend) -> None:
    for name, width in (("1b", NARROW), ("lp", NARROW), ("lp", D)):
        reports = [mechanism_reports(kind, width=width) for kind in ("mb", name)]
        check_against_dense(reports, of_power(2), DenseFeatures, backend)


@pytest.mark.parametrize("coefficients", FILTERS)
@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("factors", [None, random_factors()])
def test_reports_of_signs_are_factored(
    coefficients: tuple[float, ...], runs: int, factors: Tensor | None
) -> None:
    """Bits pay where a dense product would cost more than the steps."""
    reports = [one_bit_reports(r) for r in range(runs)]
    check_against_dense(reports, coefficients, FactoredFeatures, NUMBA, factors)
    side_by_side = [*reports, mechanism_reports("mb")]
    check_against_dense(side_by_side, coefficients, FactoredFeatures, NUMBA, factors)


def test_torch_has_no_products_with_bits() -> None:
    check_against_dense([one_bit_reports()], of_power(2), DenseFeatures, TORCH)


@both_backends
def test_bytes_that_are_no_signs_are_dense(backend: Backend) -> None:
    signs = one_bit_reports().sent
    assert isinstance(signs, Tensor)
    for value in (0, 2, -128):
        sent = signs.clone()
        sent[-1, -1] = value
        report = FeatureReports(sent, 2.0, 0.5)
        check_against_dense([report], of_power(2), DenseFeatures, backend)


def test_signs_as_floats_are_dense() -> None:
    """A plug-in's float report may be anything; only bytes are looked at."""
    signs = one_bit_reports().sent
    assert isinstance(signs, Tensor)
    report = FeatureReports(signs.float(), 2.0, 0.5)
    check_against_dense([report], of_power(2), DenseFeatures, NUMBA)


@pytest.mark.parametrize("kind", ["1b", "mb"])
def test_reports_are_factored_up_to_the_step_where_it_no_longer_pays(kind: str) -> None:
    operator = kprop_operator(random_topology(N), "gcn", NUMBA)
    entries = operator.matrix.num_entries
    assert entries == int((operator.matrix.to_dense() != 0).sum())
    report = mechanism_reports(kind)
    paying = N * D // (4 * entries)
    for steps, form in ((paying, FactoredFeatures), (paying + 1, DenseFeatures)):
        assert type(features_of([report], of_power(steps), NUMBA)) is form


@pytest.mark.parametrize("wide", [True, False])
def test_panels_are_for_registers_that_hold_them(
    wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without AVX-512 a dense report is torch's to multiply, whatever the other loops do."""
    features = ("+avx2", "+avx512f" if wide else "-avx512f")
    monkeypatch.setattr(backend_module, "_cpu_features", lambda: features)
    assert NUMBA.prefers_panels == wide
    assert not TORCH.prefers_panels
    report = mechanism_reports("lp")
    dense = features_of([report], of_power(2), NUMBA)
    assert isinstance(dense, DenseFeatures)
    assert type(dense.filtered[0]) is (PanelMatrix if wide else DenseMatrix)
    check_against_dense([report], of_power(2), DenseFeatures, NUMBA)


@both_backends
def test_runs_that_share_a_matrix_but_not_its_scale(backend: Backend) -> None:
    shared = clean_features()
    reports = [FeatureReports(shared, 1.0, 0.0), FeatureReports(shared, 3.0, 0.5)]
    check_against_dense(reports, of_power(2), FactoredFeatures, backend)
    dense = torch.randn(N, D, generator=seeded(3))
    reports = [FeatureReports(dense, 1.0, 0.0), FeatureReports(dense, 3.0, 0.0)]
    reports += [FeatureReports(dense, 3.0, 0.5), FeatureReports(dense, 3.0, 0.5, magnitude=2.0)]
    check_against_dense(reports, of_power(2), DenseFeatures, backend)


@both_backends
def test_runs_that_share_a_report_store_it_once(backend: Backend) -> None:
    shared = FeatureReports(clean_features(), 1.0, 0.0)
    features = features_of([shared] * 5, of_power(2), backend)
    assert isinstance(features, FactoredFeatures)
    assert len({id(matrix) for matrix in features.sent}) == 1
    check_against_dense([shared] * 5, of_power(2), FactoredFeatures, backend)
    dense = mechanism_reports("lp")
    held = features_of([dense] * 5, of_power(2), backend)
    assert isinstance(held, DenseFeatures)
    assert len({id(matrix) for matrix in held.filtered}) == 1
    check_against_dense([dense] * 5, of_power(2), DenseFeatures, backend)


@both_backends
def test_a_run_does_not_see_another_runs_weights(backend: Backend) -> None:
    reports = sparse_reports("mixed", 4)
    weight = torch.randn(4, D, H, generator=seeded(1))
    before = features_of(reports, of_power(2), backend).matmul(weight)
    weight[1] = torch.nan
    after = features_of(reports, of_power(2), backend).matmul(weight)
    assert bool(after[1].isnan().any())
    others = [0, 2, 3]
    assert torch.equal(after[others], before[others])


class LargestTensor(TorchDispatchMode):
    """Watches every operation and remembers the largest number of stored values of a result."""

    def __init__(self) -> None:
        super().__init__()
        self.entries = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(tensor, Tensor):
                strided = tensor.layout == torch.strided
                stored = tensor.untyped_storage().size() // tensor.itemsize if strided else 0
                self.entries = max(self.entries, stored)
        return out


@both_backends
def test_the_factored_path_never_builds_a_nodes_times_features_matrix(backend: Backend) -> None:
    n, d, h = 20_000, 50_000, 4  # N d is 4 GB of floats
    ring = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])
    operator = aggregation(Topology.from_edges(n, ring), "gcn", backend)
    columns = torch.randint(d, (n,), generator=seeded())
    sent = CsrMatrix(torch.arange(n + 1), columns, torch.ones(n), (n, d))
    no_index, no_value = torch.zeros(0, dtype=torch.int64), torch.zeros(0)
    none = CsrMatrix(torch.zeros(n + 1, dtype=torch.int64), no_index, no_value, (n, d))
    weight = torch.randn(2, d, h, generator=seeded(1), requires_grad=True)
    with LargestTensor() as largest:
        reports = [FeatureReports(sent, 2.0, 0.5), FeatureReports(none, 1.0, 1.0)]
        # Conditioning keeps the factored form; by one, so that the values below hold.
        factors = torch.ones(n)
        features = linear_features(reports, operator, of_power(2), backend, lambda _: factors)
        out = features.matmul(weight)
        (d_weight,) = torch.autograd.grad(out.square().sum(), weight)
    assert largest.entries <= 2 * d * h  # the weights of both runs: nothing is larger
    # On a ring P is the mean of two neighbours, so that 1 is its fixed point.
    w = weight.detach()
    torch.testing.assert_close(out[1], w[1].sum(0).expand(n, h), rtol=1e-3, atol=1e-2)
    sent_w = 2.0 * w[0][columns] + 0.5 * w[0].sum(0)
    hops = (sent_w.roll(2, 0) + 2 * sent_w + sent_w.roll(-2, 0)) / 4
    torch.testing.assert_close(out[0], hops, rtol=1e-3, atol=1e-2)
    assert bool((d_weight != 0).any())


def test_the_watch_sees_a_nodes_times_features_matrix() -> None:
    """The check above rejects a path that multiplies the reports out, forward or backward."""
    features = features_of(sparse_reports("mb", 1), of_power(2), NUMBA)
    with LargestTensor() as largest:
        features.matmul(torch.zeros(1, D, 1))
    assert largest.entries <= D  # the weight
    with LargestTensor() as largest:
        features.dense()
    assert largest.entries >= N * D

    class DenseOnTheWayBack(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return torch.zeros(N, D).sum() + grad

    weight = torch.ones(1, requires_grad=True)
    with LargestTensor() as largest:
        DenseOnTheWayBack.apply(weight).sum().backward()
    assert largest.entries == N * D


def test_rectifier_numbers_are_those_of_the_mechanism() -> None:
    """Guards the tests above against reports with trivial scale or offset."""
    report = mechanism_reports("mb")
    assert report.scale == pytest.approx(D / 2 / math.tanh(3.0 / 2))
    assert report.offset == 0.5
