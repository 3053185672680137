"""Piecewise and Hybrid: their window on its grid, their moments, their ratio."""

import math
from decimal import Decimal
from fractions import Fraction

import pytest
import torch
from scipy.stats import kstest
from torch import Tensor

from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError
from lpgnn.privacy import Hybrid, Piecewise
from lpgnn.privacy.audit import audit_features
from lpgnn.privacy.exact import log_odds
from lpgnn.privacy.sampled_values import SampledValues
from lpgnn.privacy.sliding_window import STEPS, SlidingWindow, sliding_window

from .pvalues import ALPHA, counts_p_value, moments_p_value, seeded

NODES = 100_000
ENDS = torch.tensor([-1.0, -0.25, 0.0, 0.6, 1.0], dtype=torch.float64)


def piecewise_variance(e: float, t: Tensor) -> Tensor:
    a = math.exp(e / 2)
    return t**2 / (a - 1) + (a + 3) / (3 * (a - 1) ** 2)


def hybrid_variance(e: float, t: Tensor) -> Tensor:
    """Wang et al., Eq. 10: the same for every t above 0.61, that of one bit below."""
    a, bit = math.exp(e / 2), ((math.exp(e) + 1) / (math.exp(e) - 1)) ** 2
    if e <= 0.61:
        return bit - t**2
    return torch.full_like(t, (a + 3) / (3 * a * (a - 1)) + bit / a)


@pytest.mark.parametrize("e", [0.01, 0.3, 0.62, 1.0, 2.5, 5.0])
def test_variances_are_those_of_the_paper(e: float) -> None:
    half = (ENDS + 1) / 2
    for kind, formula in ((Piecewise, piecewise_variance), (Hybrid, hybrid_variance)):
        one = kind(e, 1)
        assert one.k == 1
        torch.testing.assert_close(4 * one.variance(half), formula(e, ENDS), rtol=1e-5, atol=0)
        # d / k E[t'^2] - t^2, for the average over which features are sampled
        few = kind(2 * e if e >= 2.5 else e, 6)
        second = formula(few.value_epsilon, ENDS) + ENDS**2
        expected = (6 / few.k * second - ENDS**2) / 4
        torch.testing.assert_close(few.variance(half), expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("kind", [Piecewise, Hybrid])
@pytest.mark.parametrize(
    ("epsilon", "d", "alpha", "beta"),
    [(0.5, 3, 0.0, 1.0), (1.0, 9, 0.0, 1.0), (5.5, 4, 0.0, 1.0), (2.0, 3, -1.0, 2.0)],
)
def test_reports_are_unbiased_with_the_stated_variance(
    kind: type[SampledValues], epsilon: float, d: int, alpha: float, beta: float
) -> None:
    mechanism = kind(epsilon, d, alpha=alpha, beta=beta)
    x = torch.linspace(alpha, beta, d)
    features = CsrMatrix.from_dense(x.expand(NODES, -1))
    rectified = mechanism.perturb(features, generator=seeded()).rectified()
    assert moments_p_value(rectified, x, mechanism.variance(x)) > ALPHA


class WithoutSampling(Piecewise):
    """Broken: the rectifier leaves out d / k."""

    def scale(self) -> float:
        return self.width / 2


class ContinuousWindow(Piecewise):
    """Broken: the paper's formula with the rest of [-C, C] on one side of the window only."""

    def randomize(self, t: Tensor, *, generator: torch.Generator) -> Tensor:
        a = math.exp(self.value_epsilon / 2)
        c = (a + 1) / (a - 1)
        left = (c + 1) / 2 * t - (c - 1) / 2
        inside, place = torch.rand(2, *t.shape, dtype=torch.float64, generator=generator)
        return torch.where(inside < a / (a + 1), left + place * (c - 1), -c + place * (left + c))


@pytest.mark.parametrize("broken", [WithoutSampling(1.0, 3), ContinuousWindow(1.0, 3)], ids=repr)
def test_the_moment_check_rejects_broken_ones(broken: Piecewise) -> None:
    x = torch.linspace(0, 1, 3)
    rectified = broken.perturb(CsrMatrix.from_dense(x.expand(NODES, -1)), generator=seeded())
    assert moments_p_value(rectified.rectified(), x, broken.variance(x)) < ALPHA


@pytest.mark.parametrize("e", [2.0**-40, 0.01, 1.0, 2.5, 30.0, 250.0])
def test_a_window_spends_no_more_than_its_budget(e: float) -> None:
    window = sliding_window(e, math.exp(-e / 2))
    assert window.spent() <= Decimal(e)
    if e < 30:  # beyond, no probability of 53 places is small enough
        assert window.spent() > Decimal(e) - Decimal(2) ** -47
        above = window.inside + 2.0**-53  # the next larger probability spends more
        assert log_odds(above, window.odds) > Decimal(e)
    # Drawn as floor(u H) from 2^53 numbers u: no cell has more of them than the odds allow for.
    most = -(-(2**53) // window.width) + (window.width & (window.width - 1) != 0)
    assert Fraction(most, 2**53) * STEPS <= 1 / window.odds
    assert window.slope > 0


@pytest.mark.parametrize("kind", [Piecewise, Hybrid])
@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 3.0, 8.0])
def test_what_a_node_spends(kind: type[SampledValues], epsilon: float) -> None:
    mechanism = kind(epsilon, 9)
    assert float(mechanism.spent()) <= epsilon * (1 + 1e-15)
    assert float(mechanism.spent()) == pytest.approx(epsilon, rel=1e-7)


def test_cells_are_drawn_with_the_window_s_probabilities() -> None:
    """Where they lie, as shares of the grid; within the window and around it they are uniform."""
    window, n = SlidingWindow(1.2, 400_000), 100_000
    t = torch.tensor(0.3, dtype=torch.float64)
    start = round((float(t) + 1) / 2 * STEPS)
    cells = window.draw(t.expand(n), generator=seeded())
    assert torch.equal(cells, cells.round())
    inside = (cells >= start) & (cells < start + window.width)
    below = cells < start
    p = window.inside
    expected = [p, (1 - p) * start / STEPS, (1 - p) * (1 - start / STEPS)]
    counts = [int(part.sum()) for part in (inside, below, ~inside & ~below)]
    assert counts_p_value(counts, expected) > ALPHA
    assert counts_p_value(counts, [p * 0.97, 1 - p * 0.97 - expected[2], expected[2]]) < ALPHA
    for part, low, width in (
        (inside, start, window.width),
        (below, 0, start),
        (~inside & ~below, start + window.width, STEPS - start),
    ):
        assert kstest(cells[part].numpy(), "uniform", args=(low, width)).pvalue > ALPHA


def test_cells_at_both_ends_can_be_reached_from_everywhere() -> None:
    window = SlidingWindow(1.0, 3)
    for t in (-1.0, 1.0):
        cells = window.draw(torch.full((1000,), t), generator=seeded())
        assert 0 <= int(cells.min()) <= int(cells.max()) < STEPS + 3


def test_sampled_features_stay_sparse() -> None:
    mechanism = Piecewise(8.0, 40)  # k = 3
    features = CsrMatrix.from_dense(torch.rand(50, 40, generator=seeded(1)))
    sent = mechanism.perturb(features, generator=seeded()).sent
    assert isinstance(sent, CsrMatrix)
    assert sent.indptr.tolist() == list(range(0, 151, 3))
    assert mechanism.parameters() == {"k": 3.0}
    assert [Piecewise(e, 4).k for e in (0.1, 4.9, 5.0, 7.5, 50.0)] == [1, 1, 2, 3, 4]


class SpendsItAllOnEach(Piecewise):
    """Broken: every one of the k features gets the whole budget."""

    @property
    def value_epsilon(self) -> float:
        return self.epsilon


@pytest.mark.slow
def test_the_audit_finds_honest_ones_to_hold() -> None:
    audit = audit_features(Hybrid(1.0, 1), draws=20_000, confidence=0.9999, generator=seeded())
    assert audit.verdict == "holds"
    assert audit.exact == pytest.approx(1.0)
    assert audit.finding.epsilon > 0.5


@pytest.mark.slow
def test_the_audit_refutes_a_broken_one() -> None:
    broken = SpendsItAllOnEach(5.0, 2)
    audit = audit_features(broken, draws=20_000, confidence=0.9999, generator=seeded())
    assert audit.finding.epsilon > 5.0
    assert audit.exact == pytest.approx(10.0)


def test_budgets_too_small_to_draw_are_refused() -> None:
    with pytest.raises(InputError, match="x_eps=1e-13: must be at least"):
        Piecewise(1e-13, 3)
