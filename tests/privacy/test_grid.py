import itertools
import math
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import kstest

from lpgnn.data.sparse import CsrMatrix
from lpgnn.kernels import geometric, plain_geometric
from lpgnn.privacy import (
    AnalyticGaussian,
    GrrFs,
    Laplace,
    MultiBit,
    OneBit,
    Piecewise,
    RandomizedResponse,
    exact,
    grid,
)
from lpgnn.privacy.exact import (
    geometric_digits,
    greatest_keep_probability,
    least_probability,
    log_probability,
    rounding_loss,
    share,
)

from .pvalues import ALPHA, counts_p_value, mean_p_value, seeded

mpmath: Any = pytest.importorskip("mpmath", reason="comes with torch, by way of sympy")

WHOLE = 2**512
RATE, COUNT, STEPS = Fraction(1, 4), 5, 4  # numbers of five digits, a range of four steps


def realised(digits: list[int]) -> dict[int, Fraction]:
    """P(n) by going through all digits, signs and the one rejection; +-32 is all beyond."""
    table: Counter[int] = Counter()
    for bits in itertools.product((0, 1), repeat=len(digits)):
        chance = Fraction(1)
        for bit, digit in zip(bits, digits, strict=True):
            chance *= Fraction(digit if bit else WHOLE - digit, WHOLE)
        size = min(sum(bit << i for i, bit in enumerate(bits)), 2**COUNT)
        table[size] += chance / 2  # type: ignore[assignment]
        if size > 0:
            table[-size] += chance / 2  # type: ignore[assignment]
    total = sum(table.values())
    return {n: Fraction(chance) / total for n, chance in table.items()}


def of_reports(noise: dict[int, Fraction], x: int) -> dict[int, Fraction]:
    """P(report | x): moved to what both ends of the range can give."""
    farthest, table = 2**COUNT - 1, dict[int, Fraction]()
    for n, chance in noise.items():
        report = min(max(x + n, STEPS - farthest), farthest)
        table[report] = table.get(report, Fraction(0)) + chance
    return table


def worst_ratio(noise: dict[int, Fraction]) -> Fraction:
    """Over all pairs of inputs and all reports."""
    tables = [of_reports(noise, x) for x in range(STEPS + 1)]
    assert len({frozenset(table) for table in tables}) == 1  # the same reports for every input
    return max(a[y] / b[y] for a in tables for b in tables for y in a)


def test_digits_by_hand() -> None:
    # q = e^-rate = 1/2 is no rational rate; ln 2 as a fraction comes close.
    one, two, beyond = geometric_digits(Fraction(math.log(2)), 2)
    assert one / WHOLE == pytest.approx(1 / 3)  # (1/2) / (1 + 1/2)
    assert two / WHOLE == pytest.approx(1 / 5)  # (1/4) / (1 + 1/4)
    assert beyond / WHOLE == pytest.approx(1 / 16)  # (1/2)^4


def test_probabilities_of_digits_are_those_of_the_distribution() -> None:
    digits = geometric_digits(RATE, COUNT)
    table = realised(digits)
    q = math.exp(-RATE)
    for n, chance in table.items():
        if abs(n) < 2**COUNT:
            assert float(chance) == pytest.approx((1 - q) / (1 + q) * q ** abs(n), rel=1e-13)
        else:
            assert float(chance) == pytest.approx(q ** (2**COUNT) / (1 + q), rel=1e-13)
        exactly = Decimal(chance.numerator) / Decimal(chance.denominator)
        assert abs(log_probability(digits, abs(n)) - exactly.ln()) < Decimal(10) ** -25


def test_the_exact_ratio_is_the_budget_and_no_less() -> None:
    digits = geometric_digits(RATE, COUNT)
    worst = worst_ratio(realised(digits))
    with mpmath.workdps(180):
        loss = mpmath.log(mpmath.mpf(worst.numerator) / worst.denominator)
        bound = mpmath.mpf(str(rounding_loss(digits, RATE)))
        assert 0 < bound < mpmath.mpf(2) ** -490
        assert loss <= RATE.numerator * STEPS / mpmath.mpf(RATE.denominator) + 2 * bound
        assert loss > mpmath.mpf(1) - mpmath.mpf(2) ** -480  # any smaller budget is exceeded


def test_the_ratio_sees_coarse_probabilities() -> None:
    """Broken: probabilities of twelve binary places, which is not e^-1 for every report."""
    coarse = [round(digit / 2**500) << 500 for digit in geometric_digits(RATE, COUNT)]
    assert worst_ratio(realised(coarse)) > Fraction(math.exp(1.001))
    assert rounding_loss(coarse, RATE) > Decimal("1e-3")


@pytest.mark.parametrize(
    ("epsilon", "d"),
    [(0.01, 4714), (1.0, 1433), (2.0, 500), (1.0, 1), (64.0, 1), (3.3, 7), (7 * 2.0**-40, 7)],
)
def test_laplace_spends_its_budget_and_no_more(epsilon: float, d: int) -> None:
    mechanism = Laplace(epsilon, d, alpha=-1.0, beta=2.5)
    assert Decimal(epsilon) * (1 - Decimal(2) ** -59) < mechanism.spent() <= Decimal(epsilon)
    # The step is fine enough for the variance, and the end far enough for it not to matter.
    rate = float(mechanism.rate())
    step = mechanism.width / mechanism.steps
    assert step**2 / (2 * math.sinh(rate / 2) ** 2) == pytest.approx(
        float(mechanism.variance(torch.zeros(()))), rel=1e-12
    )
    assert (mechanism.farthest - mechanism.steps) * rate >= 60
    assert mechanism.farthest < 2**62


def noise_p_value(drawn: torch.Tensor, digits: list[int]) -> float:
    table = realised(digits)
    counts = Counter(drawn.tolist())
    assert set(counts) <= set(table)
    return counts_p_value([counts[n] for n in table], [float(p) for p in table.values()])


def test_laplace_draws_follow_the_digits() -> None:
    digits = geometric_digits(RATE, COUNT)
    drawn = grid.draw_laplace(digits, 300_000, generator=seeded())
    assert noise_p_value(drawn, digits) > ALPHA
    # Another rate by 3 % is told apart, and so is zero that counts twice.
    assert noise_p_value(drawn, geometric_digits(RATE * Fraction(103, 100), COUNT)) < ALPHA
    twice = torch.cat([drawn, drawn[drawn == 0]])
    assert noise_p_value(twice, digits) < ALPHA
    assert noise_p_value(drawn.abs(), digits) < ALPHA


def test_draws_are_independent() -> None:
    """Neighbours, which share random words, and the digits of one number."""
    drawn = grid.draw_laplace(geometric_digits(RATE, COUNT), 300_000, generator=seeded(1)).double()
    for lag in (1, 2, 32, 64):
        correlation = float(torch.corrcoef(torch.stack([drawn[lag:], drawn[:-lag]]))[0, 1])
        assert abs(correlation) < 5 / math.sqrt(300_000)


@pytest.mark.parametrize("count", [1, 63, 64, 65, 20_000])
def test_plain_loops_draw_what_compiled_ones_draw(count: int) -> None:
    places = grid._places(tuple(geometric_digits(Fraction(1, 1000), 16)))
    gaussian = Fraction(2**20)
    gaussian_places = grid._places(grid._gaussian_digits(gaussian))
    found = []
    for loops in (geometric, plain_geometric):
        laplace, normal = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
        loops.fill_laplace(places, np.uint64(2**64 - 5), laplace)
        open_, at = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.uint64)
        options = (gaussian_places, np.uint64(7), float(1 / gaussian), 1e-3)
        noted = loops.fill_gaussian(*options, normal, open_, at)
        found.append((laplace, normal, open_[:noted], at[:noted]))
    for compiled, plain in zip(*found, strict=True):
        assert np.array_equal(compiled, plain)
    if count == 20_000:
        assert 10 < found[0][2].size < 100  # some were left open


def test_without_numba_the_same_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    mechanisms = (Laplace(1.0, 5), AnalyticGaussian(1.0, 5))
    before = [mechanism.draw(100, generator=seeded()) for mechanism in mechanisms]
    monkeypatch.setattr(grid, "numba_problem", lambda: "does not work here")
    for mechanism, drawn in zip(mechanisms, before, strict=True):
        assert torch.equal(mechanism.draw(100, generator=seeded()), drawn)


DEVIATION = Fraction(2**20) + Fraction(1, 3)


def test_rejection_gives_the_rounded_normal_distribution() -> None:
    """P(n) of the proposal times acceptance, over the normal mass of the cell, is one constant."""
    digits = grid._gaussian_digits(DEVIATION)
    with mpmath.workdps(120):
        s = mpmath.mpf(DEVIATION.numerator) / DEVIATION.denominator
        constants = []
        for n in (0, 1, 1000, 2**19, 2**20, 2**21 + 12345, 2**23):
            kept = mpmath.mpf(exact.gaussian_acceptance(n, DEVIATION)) / WHOLE
            proposed = mpmath.mpf(str(log_probability(digits, n)))
            cell = (
                mpmath.erfc((n - 0.5) / s / mpmath.sqrt(2))
                - mpmath.erfc((n + 0.5) / s / mpmath.sqrt(2))
            ) / 2
            constants.append(proposed + mpmath.log(kept) - mpmath.log(cell))
        for constant in constants[1:]:
            assert abs(constant - constants[0]) < mpmath.mpf(10) ** -80


def test_floats_decide_only_where_they_cannot_err() -> None:
    s = float(DEVIATION)
    for n in [int(s * k / 8) for k in range(64)] + [127 * 2**20]:
        in_floats = math.exp(-0.5 * (n * float(1 / DEVIATION) - 1.0) ** 2)
        exactly = exact.gaussian_acceptance(n, DEVIATION) / WHOLE
        assert abs(in_floats - exactly) < grid.DOUBT / 4
        assert exactly <= 1


def test_what_is_left_open_is_decided_rightly() -> None:
    """With every decision left to exact arithmetic the numbers are normal all the same."""
    s = float(DEVIATION)
    drawn = grid.draw_gaussian(DEVIATION, 800, generator=seeded(), doubt=2.0) / s
    assert kstest(drawn.numpy(), "norm").pvalue > ALPHA
    assert mean_p_value(drawn**2, 1.0) > ALPHA
    # Proposals that nobody rejects are not.
    loose = grid.draw_laplace(grid._gaussian_digits(DEVIATION), 800, generator=seeded()) / s
    assert mean_p_value(loose**2, 1.0) < ALPHA


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("delta", [1e-10, 1e-5, 0.3])
def test_the_gaussian_keeps_its_delta_with_all_that_is_added(epsilon: float, delta: float) -> None:
    d = 4714
    mechanism = AnalyticGaussian(epsilon, d, delta=delta)
    with mpmath.workdps(80):
        s, sensitivity = mpmath.mpf(mechanism.sigma()), mpmath.sqrt(d)
        a, b = sensitivity / (2 * s), epsilon * s / sensitivity
        spent = mpmath.ncdf(a - b) - mpmath.exp(epsilon) * mpmath.ncdf(-a - b)
        cut = 2 * d * mpmath.ncdf(-32)  # reports that one input gives and another cannot
        digits = grid._gaussian_digits(mechanism.deviation())
        rounding = mpmath.mpf(str(rounding_loss(digits, 1 / mechanism.deviation())))
        total = (spent + cut) * mpmath.exp(4 * d * rounding) / (1 - cut)
        assert total < delta
        assert spent > delta * (1 - mpmath.mpf(1e-5))  # and wastes next to nothing
    assert float(mechanism.deviation()) >= 2**20


@pytest.mark.parametrize("d", [1, 30, 4714])
@pytest.mark.parametrize("delta", [1e-10, 0.5, 1 - 1e-15])
def test_sigma_is_never_below_a_32nd_of_the_range(d: int, delta: float) -> None:
    assert AnalyticGaussian(64.0 * d, d, delta=delta).sigma() > 1 / 32


def test_reports_are_whole_steps_and_end_where_every_input_can_reach() -> None:
    mechanism = Laplace(8.0, 2, alpha=-1.0, beta=1.0)
    step = mechanism.width / mechanism.steps

    class Far(Laplace):
        def draw(self, count: int, *, generator: torch.Generator) -> torch.Tensor:
            return torch.tensor([self.farthest + 1, -self.farthest - 1])

    x = CsrMatrix.from_dense(torch.tensor([[-1.0, 1.0]]))
    ends = Far(8.0, 2, alpha=-1.0, beta=1.0).perturb(x, generator=seeded()).rectified()
    highest = mechanism.farthest * step - 1.0
    torch.testing.assert_close(ends, torch.tensor([[highest, -highest]]))
    found = mechanism.perturb(x, generator=seeded()).rectified().double()
    assert torch.equal(((found + 1) / step).round().mul(step).sub(1).float(), found.float())


@pytest.mark.parametrize("z", [1e-6, 0.5, 2.18, 20.0, 36.0, 36.7, 40.0, 1e3, 1e6])
def test_bits_as_drawn_have_a_ratio_of_at_most_their_budget(z: float) -> None:
    """torch.rand < p has the probability ceil(2^53 p) / 2^53."""
    for mechanism in (MultiBit(z, 3, num_samples=1), OneBit(z, 1)):
        p = mechanism.bit_probability(torch.tensor([0.0, 0.3, 1.0])).tolist()
        places = [math.ceil(Fraction(one) * 2**53) for one in p]
        assert 0 < min(places) <= max(places) < 2**53
        ratio = max(
            max(Fraction(a, b), Fraction(2**53 - b, 2**53 - a)) for a in places for b in places
        )
        with mpmath.workdps(50):
            assert mpmath.mpf(ratio.numerator) / ratio.denominator <= mpmath.exp(z)
    # What is spent is not less than it might be, and the formula alone would spend more.
    assert least_probability(2.0) == pytest.approx(1 / (1 + math.exp(2)), rel=1e-14)
    assert least_probability(2.0) * (1 + math.exp(2)) >= 1
    assert least_probability(1e-20) == 0.5


@pytest.mark.parametrize(("epsilon", "m"), [(512.0, 234), (1.0, 49), (3.0, 1433), (7.0, 3)])
def test_all_bits_together_spend_at_most_the_budget(epsilon: float, m: int) -> None:
    """At 512 / 234 a share is rounded up: 234 of it are more than 512."""
    for mechanism in (MultiBit(epsilon, m + 1, num_samples=m), OneBit(epsilon, m)):
        low, high = mechanism.bit_probability(torch.tensor([0.0, 1.0])).tolist()
        with mpmath.workdps(50):
            assert m * mpmath.log(mpmath.mpf(high) / low) <= epsilon
    for spent in (GrrFs(epsilon, m, num_samples=m).spent(), Piecewise(epsilon, m).spent()):
        assert spent <= Decimal(epsilon)


@pytest.mark.parametrize(("epsilon", "count"), [(512.0, 234), (0.3, 3), (1e-300, 7), (5.0, 1)])
def test_a_share_of_a_budget_is_the_greatest_float(epsilon: float, count: int) -> None:
    one = share(epsilon, count)
    assert Fraction(one) * count <= Fraction(epsilon)
    assert Fraction(math.nextafter(one, math.inf)) * count > Fraction(epsilon)
    assert (one == epsilon) is (count == 1)


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 36.0, 40.0, 1e3, 1e300])
@pytest.mark.parametrize("c", [2, 3, 7, 18, 1000])
def test_labels_as_drawn_have_a_ratio_of_at_most_their_budget(epsilon: float, c: int) -> None:
    response = RandomizedResponse(epsilon, c)
    p = min(response.keep_probability(), greatest_keep_probability(epsilon, c - 1))
    keep = Fraction(math.ceil(Fraction(p) * 2**53), 2**53)
    assert keep < 1
    other = (1 - keep) * Fraction(2**32 // (c - 1), 2**32)  # the least likely one
    ratio = keep / other
    with mpmath.workdps(50):
        assert mpmath.mpf(ratio.numerator) / ratio.denominator <= mpmath.exp(epsilon)
    assert p == pytest.approx(response.keep_probability(), rel=1e-6)


def test_labels_drawn_in_floats_alone_would_exceed_large_budgets() -> None:
    assert RandomizedResponse(40.0, 2).keep_probability() == 1.0
    assert greatest_keep_probability(40.0, 1) == 1 - 2**-53
