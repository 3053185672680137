import dataclasses
import math
import pickle
from typing import Any

import pytest
import torch
from scipy.stats import kstest
from torch import Tensor

from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError
from lpgnn.privacy import (
    AnalyticGaussian,
    FeatureMechanism,
    Laplace,
    MultiBit,
    OneBit,
    RandomizedResponse,
)
from lpgnn.privacy import mechanism as mechanism_module
from lpgnn.privacy.mechanism import dense_chunks
from propagation.mechanisms import MECHANISMS

from .pvalues import ALPHA, moments_p_value, seeded

mpmath: Any = pytest.importorskip("mpmath", reason="comes with torch, by way of sympy")

NODES = 100_000


def repeated(x: list[float], n: int = NODES) -> CsrMatrix:
    """n nodes with the same features."""
    return CsrMatrix.from_dense(torch.tensor(x).expand(n, -1))


def random_features(n: int = 50, d: int = 30) -> CsrMatrix:
    dense = torch.rand(n, d, generator=seeded(5))
    return CsrMatrix.from_dense(torch.where(dense > 0.7, dense, 0.0))


def sent_dense(mechanism: FeatureMechanism, features: CsrMatrix, seed: int = 0) -> Tensor:
    sent = mechanism.perturb(features, generator=seeded(seed)).sent
    return sent.to_dense() if isinstance(sent, CsrMatrix) else sent


class WithoutCoth(MultiBit):
    """Broken: the rectifier leaves out (e^z + 1) / (e^z - 1)."""

    def scale(self) -> float:
        return self.num_features * self.width / (2 * self.m)


class ForgetsSampling(MultiBit):
    """Broken: the rectifier leaves out d / m."""

    def scale(self) -> float:
        return super().scale() * self.m / self.num_features


class DoubleBudgetBits(OneBit):
    """Broken: bits are drawn with twice the budget that the rectifier assumes."""

    def bit_probability(self, x: Tensor) -> Tensor:
        return OneBit(2 * self.epsilon, self.num_features).bit_probability(x)


class NarrowLaplace(Laplace):
    """Broken: 5 % too little noise."""

    def draw(self, count: int, *, generator: torch.Generator) -> Tensor:
        return (0.95 * super().draw(count, generator=generator)).long()


class ShiftedGaussian(AnalyticGaussian):
    """Broken: a bias of a twentieth of sigma."""

    def draw(self, count: int, *, generator: torch.Generator) -> Tensor:
        return super().draw(count, generator=generator) + round(self.deviation() / 20)


class WithoutNoise(Laplace):
    """Broken: nothing but the rounding to the grid."""

    def draw(self, count: int, *, generator: torch.Generator) -> Tensor:
        return torch.zeros(count, dtype=torch.int64)


def moments_of(mechanism: FeatureMechanism, x: list[float]) -> float:
    rectified = mechanism.perturb(repeated(x), generator=seeded()).rectified()
    clean = torch.tensor(x)
    return moments_p_value(rectified, clean, mechanism.variance(clean))


@pytest.mark.parametrize(
    ("mechanism", "x"),
    [
        (MultiBit(1.0, 4), [0.0, 0.25, 1.0, 0.6]),
        (MultiBit(5.0, 4), [0.0, 0.25, 1.0, 0.6]),  # m = 2
        (MultiBit(1.0, 9), [0.0, 0.25, 1.0, 0.6, 0.0, 0.0, 0.0, 0.0, 0.1]),  # redrawn repeats
        (MultiBit(3.0, 4, num_samples=3), [0.0, 0.25, 1.0, 0.6]),
        (MultiBit(2.0, 3, alpha=-1.0, beta=2.0), [-1.0, 0.0, 1.7]),
        (OneBit(2.0, 4), [0.0, 0.25, 1.0, 0.6]),
        (OneBit(2.0, 3, alpha=-1.0, beta=2.0), [-1.0, 0.0, 1.7]),
        (Laplace(2.0, 3), [0.0, 0.25, 1.0]),
        (Laplace(2.0, 2, alpha=-1.0, beta=2.0), [-1.0, 1.7]),
        (AnalyticGaussian(2.0, 3), [0.0, 0.25, 1.0]),
        (AnalyticGaussian(2.0, 2, alpha=-1.0, beta=2.0, delta=1e-3), [-1.0, 1.7]),
    ],
    ids=repr,
)
def test_rectified_reports_are_unbiased_with_the_stated_variance(
    mechanism: FeatureMechanism, x: list[float]
) -> None:
    assert moments_of(mechanism, x) > ALPHA


@pytest.mark.parametrize(
    "broken",
    [
        WithoutCoth(1.0, 4),
        ForgetsSampling(1.0, 4),
        DoubleBudgetBits(2.0, 4),
        NarrowLaplace(2.0, 4),
        ShiftedGaussian(2.0, 4),
    ],
    ids=lambda broken: type(broken).__name__,
)
def test_the_moment_check_rejects_broken_mechanisms(broken: FeatureMechanism) -> None:
    assert moments_of(broken, [0.0, 0.25, 1.0, 0.6]) < ALPHA


def test_laplace_and_gaussian_noise_have_their_distributions() -> None:
    laplace, gaussian = Laplace(2.0, 3), AnalyticGaussian(2.0, 3)
    laplace_noise = laplace.draw(50_000, generator=seeded()) * float(laplace.rate())
    gaussian_noise = gaussian.draw(50_000, generator=seeded()) / float(gaussian.deviation())
    assert kstest(laplace_noise.numpy(), "laplace").pvalue > ALPHA
    assert kstest(gaussian_noise.numpy(), "norm").pvalue > ALPHA
    # The same variance with the other shape is told apart.
    assert kstest(gaussian_noise.numpy() * math.sqrt(2), "laplace").pvalue < ALPHA
    assert kstest(laplace_noise.numpy() / math.sqrt(2), "norm").pvalue < ALPHA


def test_multi_bit_by_hand() -> None:
    # e^eps = 3 and m = 1: p(0) = 1/4, p(1/2) = 1/2, p(1) = 3/4 and coth(eps / 2) = 2
    mechanism = MultiBit(math.log(3), 4)
    x = torch.tensor([0.0, 0.5, 1.0])
    half = torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)
    torch.testing.assert_close(mechanism.bit_probability(x), half)
    assert mechanism.m == 1
    assert mechanism.parameters() == {"m": 1.0}
    assert mechanism.scale() == pytest.approx(4.0)  # 4 / 2 * 2
    assert mechanism.offset() == 0.5
    expected = torch.tensor([3.75, 4.0, 3.75], dtype=torch.float64)  # 4 (1/2 * 2)^2 - (x - 1/2)^2
    torch.testing.assert_close(mechanism.variance(x), expected)


def test_laplace_and_gaussian_parameters_by_hand() -> None:
    assert Laplace(0.5, 3, alpha=-1.0).parameters() == {"scale": 12.0}  # 2 * 3 / 0.5
    gaussian = AnalyticGaussian(1.0, 9)
    single = AnalyticGaussian(1.0, 1)
    assert gaussian.sigma() == pytest.approx(3 * single.sigma())  # sensitivity sqrt(9)
    assert gaussian.parameters() == {"sigma": gaussian.sigma(), "delta": 1e-10}


@pytest.mark.parametrize("z", [1e-6, 1e-3, 1.0, 30.0, 100.0, 1000.0])
def test_bits_are_stable_for_extreme_budgets(z: float) -> None:
    mechanism = MultiBit(4 * z, 10, num_samples=4)
    with mpmath.workdps(500):
        low = 1 / (mpmath.exp(z) + 1)
        coth = mpmath.coth(mpmath.mpf(z) / 2)
        expected_low, expected_high = float(low), float(1 - low)
        scale, difference = float(10 * coth / 8), float(1 / coth)
    at_low, at_high = mechanism.bit_probability(torch.tensor([0.0, 1.0])).tolist()
    # Rounded to the places of a random number, and never to zero.
    assert at_low == pytest.approx(expected_low, rel=1e-12, abs=2**-53)
    assert at_high == pytest.approx(expected_high, rel=1e-12)
    assert 0 < at_low <= at_high < 1
    # The signal is the difference: at z = 1e-6 it is 5e-7 and must survive the rounding.
    assert at_high - at_low == pytest.approx(difference, rel=1e-9, abs=0)
    assert mechanism.scale() == pytest.approx(scale, rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 2.18, 4.3, 4.4, 9.0, 21.8, 50.0, 400.0])
@pytest.mark.parametrize("d", [1, 5, 100])
def test_optimal_m_against_brute_force(epsilon: float, d: int) -> None:
    middle = torch.tensor(0.5)  # where the variance is largest
    worst = [float(MultiBit(epsilon, d, num_samples=m).variance(middle)) for m in range(1, d + 1)]
    best = 1 + worst.index(min(worst))
    assert MultiBit(epsilon, d, sample_rule="exact").m == best
    # The paper rounds eps / z* down, so the integer optimum is m* or, in three cases, the next.
    is_next = (epsilon, d) in ((4.3, 5), (4.3, 100), (50.0, 100))
    assert best - MultiBit(epsilon, d).m == is_next


def test_the_constant_of_the_optimal_m() -> None:
    z = float(mpmath.findroot(lambda z: mpmath.sinh(z) / 2 - z, 2))  # the paper's stationary point
    assert round(z, 2) == 2.18
    assert [MultiBit(e, 100).m for e in (0.01, 2.18, 4.35, 4.37, 6.55)] == [1, 1, 1, 2, 3]
    assert MultiBit(1000.0, 7).m == 7


def test_multi_bit_sends_exactly_m_signs_a_node() -> None:
    reports = MultiBit(7.0, 30).perturb(random_features(), generator=seeded())  # m = 3
    assert isinstance(reports.sent, CsrMatrix)
    assert reports.sent.indptr.tolist() == list(range(0, 151, 3))
    assert set(reports.sent.values.tolist()) == {-1.0, 1.0}
    assert reports.form == "sparse"


def test_one_bit_sends_a_sign_for_every_entry() -> None:
    reports = OneBit(7.0, 30).perturb(random_features(), generator=seeded())
    assert isinstance(reports.sent, Tensor)
    assert reports.sent.dtype == torch.int8
    assert set(reports.sent.flatten().tolist()) == {-1, 1}
    assert reports.form == "signs"


def test_multi_bit_with_all_dimensions_is_one_bit() -> None:
    x = torch.tensor([0.0, 0.3, 1.0])
    multi, one = MultiBit(2.0, 3, num_samples=3), OneBit(2.0, 3)
    assert multi.scale() == one.scale()
    assert multi.m == one.m
    torch.testing.assert_close(multi.variance(x), one.variance(x))
    torch.testing.assert_close(multi.bit_probability(x), one.bit_probability(x))


def test_an_unsampled_entry_decides_nothing_but_must_be_in_range() -> None:
    features = CsrMatrix.from_dense(torch.rand(200, 20, generator=seeded(3)) * 0.9 + 0.1)
    mechanism = MultiBit(5.0, 20)  # m = 2
    before = mechanism.perturb(features, generator=seeded()).sent
    assert isinstance(before, CsrMatrix)
    sampled = torch.zeros(200, 20, dtype=torch.bool)
    sampled[before.row_indices(), before.indices] = True
    # The largest value in every entry that was not sampled changes nothing.
    others = torch.where(sampled.flatten(), features.values, 1.0)
    after = mechanism.perturb(dataclasses.replace(features, values=others), generator=seeded()).sent
    assert isinstance(after, CsrMatrix)
    assert torch.equal(after.indices, before.indices)
    assert torch.equal(after.values, before.values)

    for bad in (math.nan, 1.5):
        others[(~sampled).flatten().nonzero()[17]] = bad
        with pytest.raises(InputError, match=f"features={bad}"):
            mechanism.perturb(dataclasses.replace(features, values=others), generator=seeded())


def test_multi_bit_looks_up_m_entries_a_node() -> None:
    looked_up: list[int] = []

    class Spy(CsrMatrix):
        def lookup(self, rows: Tensor, columns: Tensor) -> Tensor:
            looked_up.append(columns.numel())
            return super().lookup(rows, columns)

        def to_dense(self) -> Tensor:
            raise AssertionError("the whole matrix was read")

    features = random_features()
    spy = Spy(features.indptr, features.indices, features.values, features.shape)
    MultiBit(7.0, 30).perturb(spy, generator=seeded())
    assert looked_up == [50 * 3]


@pytest.mark.parametrize("name", MECHANISMS)
def test_reports_are_a_function_of_the_seed(name: str) -> None:
    features = random_features()
    mechanism = MECHANISMS[name](7.0, 30)
    first = sent_dense(mechanism, features, seed=0)
    assert torch.equal(first, sent_dense(mechanism, features, seed=0))
    assert not torch.equal(first, sent_dense(mechanism, features, seed=1))


@pytest.mark.parametrize("name", MECHANISMS)
def test_perturbing_changes_neither_features_nor_mechanism(name: str) -> None:
    features = random_features()
    copies = [t.clone() for t in (features.indptr, features.indices, features.values)]
    mechanism = MECHANISMS[name](7.0, 30)
    fields = dataclasses.asdict(mechanism)
    generator = seeded()
    one = mechanism.perturb(features, generator=generator)
    two = mechanism.perturb(features, generator=generator)
    assert dataclasses.asdict(mechanism) == fields
    assert not torch.equal(one.rectified(), two.rectified())
    for before, after in zip(
        copies, (features.indptr, features.indices, features.values), strict=True
    ):
        assert torch.equal(before, after)


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("x", [[0.0], [1.0], [0.0, 0.0, 0.0]])
def test_single_features_and_empty_rows(name: str, x: list[float]) -> None:
    mechanism = MECHANISMS[name](3.0, len(x))
    assert moments_of(mechanism, x) > ALPHA


def test_dense_mechanisms_in_many_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mechanism_module, "CHUNK_ENTRIES", 64)
    features = random_features(n=7)
    clean = features.to_dense()
    # A budget this large leaves bits at the ends of the range as they are, in their places.
    rectified = OneBit(1e6, 30).perturb(features, generator=seeded()).rectified()
    assert torch.equal(rectified[clean == 0], clean[clean == 0])
    silent = WithoutNoise(30.0, 30)
    found = silent.perturb(features, generator=seeded()).rectified()
    assert torch.equal(found, (clean * silent.steps).round() / silent.steps)
    torch.testing.assert_close(found, clean, atol=2**-17, rtol=0)
    blocks = list(dense_chunks(features))
    assert [len(block) for _, block in blocks] == [2, 2, 2, 1]
    assert torch.equal(torch.cat([block for _, block in blocks]).float(), clean)


def test_chunks_of_one_bit_draw_what_one_block_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    features = random_features()
    whole = sent_dense(OneBit(20.0, 30), features)
    monkeypatch.setattr(mechanism_module, "CHUNK_ENTRIES", 64)
    assert torch.equal(sent_dense(OneBit(20.0, 30), features), whole)


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf, 1e-40, 1e308, 1.1e6])
def test_a_budget_must_be_positive_and_of_a_sensible_size(name: str, epsilon: float) -> None:
    with pytest.raises(InputError, match="x_eps=") as caught:
        MECHANISMS[name](epsilon, 3)
    assert caught.value.setting == "x_eps"
    with pytest.raises(InputError, match="x_eps="):
        MECHANISMS[name]().bind(epsilon, 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "largest"), [("mb", 1e6), ("1b", 1e6), ("lp", 64.0 * 4714), ("ag", 64.0 * 4714)]
)
def test_the_largest_budget_works_on_wide_features(name: str, largest: float) -> None:
    mechanism = MECHANISMS[name](largest, 4714)
    assert 0 < mechanism.magnitude() < 1e3
    features = random_features(3, 4714)
    assert bool(mechanism.perturb(features, generator=seeded()).rectified().isfinite().all())
    with pytest.raises(InputError, match="x_eps="):
        MECHANISMS[name](largest * 1.01, 4714)


@pytest.mark.parametrize("name", ["lp", "ag"])
def test_the_smallest_budget_of_noise_on_a_grid(name: str) -> None:
    smallest = 3 * 2.0**-40
    reports = MECHANISMS[name](smallest, 3).perturb(
        repeated([0.0, 0.5, 1.0], 9), generator=seeded()
    )
    assert bool(reports.rectified().isfinite().all())
    with pytest.raises(InputError, match=r"x_eps=.*must lie in 2\.7e-12\.\.192 for 3 features"):
        MECHANISMS[name](smallest / 2, 3)


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_mechanism_is_bound_to_its_budget_by_the_run(name: str) -> None:
    unbound = MECHANISMS[name](alpha=-1.0)
    assert not unbound.is_bound
    bound = unbound.bind(2.0, 5)
    assert bound == MECHANISMS[name](2.0, 5, alpha=-1.0)
    assert bound.is_bound
    assert bound.options() == unbound.options()
    assert {"epsilon", "num_features"}.isdisjoint(bound.options())


@pytest.mark.parametrize(
    ("setting", "build"),
    [
        ("num_features", lambda: Laplace(1.0, 0)),
        ("alpha", lambda: Laplace(1.0, 3, alpha=1.0, beta=1.0)),
        ("alpha", lambda: Laplace(1.0, 3, alpha=math.nan)),
        ("num_samples", lambda: MultiBit(1.0, 3, num_samples=0)),
        ("num_samples", lambda: MultiBit(1.0, 3, num_samples=4)),
        ("num_samples", lambda: MultiBit(num_samples=0)),
        ("num_samples", lambda: MultiBit(num_samples=1.5)),  # type: ignore[arg-type]
        ("num_samples", lambda: MultiBit(num_samples=True)),
        ("num_samples", lambda: MultiBit(num_samples=4).bind(1.0, 3)),
        ("sample_rule", lambda: MultiBit(sample_rule="best")),  # type: ignore[arg-type]
        ("sample_rule", lambda: MultiBit(num_samples=2, sample_rule="exact")),
        ("alpha", lambda: Laplace(alpha=2.0)),
        ("delta", lambda: AnalyticGaussian(delta=1.0)),
        ("delta", lambda: AnalyticGaussian(1.0, 3, delta=0.0)),
        ("delta", lambda: AnalyticGaussian(1.0, 3, delta=math.nan)),
    ],
)
def test_bad_settings_are_named(setting: str, build: Any) -> None:
    with pytest.raises(InputError) as caught:
        build()
    assert caught.value.setting == setting


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan])
def test_features_outside_the_range_are_refused(name: str, bad: float) -> None:
    with pytest.raises(InputError, match=r"features=.*\[0\.0, 1\.0\]"):
        MECHANISMS[name](1.0, 1).perturb(
            CsrMatrix.from_dense(torch.tensor([[bad]])), generator=seeded()
        )
    with pytest.raises(InputError, match="1 columns"):
        MECHANISMS[name](1.0, 2).perturb(repeated([0.5], 1), generator=seeded())


@pytest.mark.parametrize("name", MECHANISMS)
def test_absent_entries_count_as_zero_in_the_range_check(name: str) -> None:
    mechanism = MECHANISMS[name](1.0, 1, alpha=0.5, beta=1.0)
    with pytest.raises(InputError, match="features=0"):
        mechanism.perturb(repeated([0.0], 1), generator=seeded())


@pytest.mark.parametrize("name", MECHANISMS)
def test_bounds_that_float32_rounds_are_in_range(name: str) -> None:
    # As float32, 0.1 lies above and 0.7 below its decimal value.
    mechanism = MECHANISMS[name](1.0, 2, alpha=-0.7, beta=0.1)
    mechanism.perturb(repeated([-0.7, 0.1], 20), generator=seeded())


def test_rounded_bounds_do_not_cost_privacy() -> None:
    # An x just outside the range must not push a bit beyond its worst-case probability.
    mechanism = MultiBit(20.0, 1, alpha=-0.7, beta=0.1)
    exact = mechanism.bit_probability(torch.tensor([-0.7, 0.1], dtype=torch.float64))
    beyond = mechanism.bit_probability(torch.tensor([-0.7 - 1e-7, 0.1 + 1e-7], dtype=torch.float64))
    assert torch.equal(exact, beyond)


def test_names_and_forms() -> None:
    """A form is what a plan counts on before there are reports."""
    forms = {
        **dict.fromkeys(("mb", "pm", "hm", "sw"), "sparse"),
        **dict.fromkeys(("1b", "duchi", "grr_fs"), "signs"),
        **dict.fromkeys(("lp", "ag", "privunit"), "dense"),
    }
    assert {kind.name for kind in MECHANISMS.values()} == set(forms) == set(MECHANISMS)
    for name, form in forms.items():
        mechanism = MECHANISMS[name](3.0, 30)
        assert mechanism.form == form
        assert mechanism.perturb(random_features(), generator=seeded()).form == form


@pytest.mark.parametrize("kind", [MultiBit, RandomizedResponse])
def test_unbound_mechanisms_are_equal(kind: Any) -> None:
    """Also field by field, as dataclasses compare from Python 3.13 on, and in another process."""
    one, other = kind(), pickle.loads(pickle.dumps(kind()))
    assert one == other
    assert hash(one) == hash(other)
    assert one.epsilon == other.epsilon
    assert not one.epsilon != other.epsilon  # noqa: SIM202
    assert math.isnan(one.epsilon)
    assert one != kind(1.0, 3)
    assert one.epsilon != 1.0
