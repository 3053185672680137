import math

import pytest
import torch
from scipy.integrate import quad
from torch import Tensor

from lpgnn.errors import InputError
from lpgnn.privacy import LaplaceOneHot
from lpgnn.privacy.audit import audit_labels

from .pvalues import ALPHA, counts_p_value, moments_p_value, seeded

DRAWS = 100_000


@pytest.mark.parametrize(("epsilon", "c"), [(0.5, 2), (1.0, 4), (6.0, 7)])
def test_reports_are_unbiased_with_variance_8_over_epsilon_squared(epsilon: float, c: int) -> None:
    mechanism = LaplaceOneHot(epsilon, c)
    reports = mechanism.perturb(torch.full((DRAWS,), 1), generator=seeded())
    one_hot = torch.eye(c)[1]
    variance = torch.full((c,), 8 / epsilon**2)
    assert moments_p_value(mechanism.estimate(reports), one_hot, variance) > ALPHA
    assert moments_p_value(reports, one_hot, 1.05 * variance) < ALPHA


def test_likelihoods_are_ratios_of_laplace_densities() -> None:
    mechanism = LaplaceOneHot(1.5, 3)
    reports = torch.tensor([[0.3, 2.0, -1.0], [0.25, 0.25, 0.5]], dtype=torch.float64)
    b = 2 / 1.5

    def density(y: Tensor, k: int) -> float:
        return math.prod(
            math.exp(-abs(v - (i == k)) / b) / (2 * b) for i, v in enumerate(y.tolist())
        )

    for y, found in zip(reports, mechanism.likelihood(reports), strict=True):
        exact = [density(y, k) for k in range(3)]
        assert (found / found.sum()).tolist() == pytest.approx([p / sum(exact) for p in exact])


@pytest.mark.parametrize(("epsilon", "c"), [(0.2, 3), (1.0, 4), (4.0, 7), (100.0, 3)])
def test_the_transition_is_that_of_the_likeliest_class(epsilon: float, c: int) -> None:
    mechanism = LaplaceOneHot(epsilon, c)
    table = mechanism.transition()
    torch.testing.assert_close(table.sum(1), torch.ones(c, dtype=torch.float64))
    everyone = torch.ones(DRAWS, dtype=torch.bool)
    classes = mechanism.collect(torch.full((DRAWS,), 1), everyone, generator=seeded()).classes
    counts = torch.bincount(classes, minlength=c).tolist()
    assert counts_p_value(counts, table[1].tolist()) > ALPHA


def test_the_top_probability_of_two_classes() -> None:
    """The difference of two entries decides; where both are out of [0, 1], a coin."""
    b = 2.0

    def cdf(v: float) -> float:
        return math.exp(v / b) / 2 if v < 0 else 1 - math.exp(-v / b) / 2

    clipped_other_below, _ = quad(
        lambda s: math.exp(-abs(s - 1) / b) / (2 * b) * cdf(s), 0, 1, epsabs=1e-12
    )
    own_top, other_top = 1 - cdf(0), 1 - cdf(1)
    both_zero = cdf(-1) * cdf(0)
    by_hand = own_top * (1 - other_top / 2) + clipped_other_below + both_zero / 2
    assert LaplaceOneHot(1.0, 2).top_probability() == pytest.approx(by_hand, rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 8.0])
def test_the_budget_is_kept_exactly(epsilon: float) -> None:
    spent = float(LaplaceOneHot(epsilon, 5).spent())
    assert spent <= epsilon
    assert spent == pytest.approx(epsilon, rel=1e-12)


class HalfTheScale(LaplaceOneHot):
    """Broken: takes the sensitivity of a one-hot vector for one."""

    def perturb(self, labels: Tensor, *, generator: torch.Generator) -> Tensor:
        return LaplaceOneHot(2 * self.epsilon, self.num_classes).perturb(
            labels, generator=generator
        )


@pytest.mark.parametrize("kind", [LaplaceOneHot, HalfTheScale])
def test_the_audit_tells_honest_from_broken(kind: type[LaplaceOneHot]) -> None:
    audit = audit_labels(kind(1.0, 3), draws=20_000, confidence=0.9999, generator=seeded())
    assert audit.verdict == ("holds" if kind is LaplaceOneHot else "refuted")
    assert audit.finding.epsilon > 0.5


def test_budgets_beyond_the_grid_are_refused() -> None:
    with pytest.raises(InputError, match=r"y_eps=200\.0: must lie in .*128 for this mechanism"):
        LaplaceOneHot(200.0, 3)
