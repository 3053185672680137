import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import kstest, norm

from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError
from lpgnn.privacy import PrivUnit
from lpgnn.privacy.audit import audit_features
from lpgnn.privacy.privunit import _best_gamma, _mean

from .pvalues import ALPHA, mean_p_value, moments_p_value, seeded

NODES = 100_000


def density_moments(epsilon: float, gamma: float) -> tuple[float, float]:
    """E[a] and E[a^2] by integration of its density."""
    q = float(norm.sf(gamma))
    p = math.exp(epsilon) * q / (math.exp(epsilon) * q + 1 - q)

    def density(a: float) -> float:
        return float(norm.pdf(a)) * (p / q if a > gamma else (1 - p) / (1 - q))

    def moment(order: int) -> float:
        sides = ((-9, gamma), (gamma, 9))
        return sum(float(quad(lambda a: a**order * density(a), *side)[0]) for side in sides)

    return moment(1), moment(2)


@pytest.mark.parametrize(("epsilon", "gamma"), [(0.1, 0.0), (1.0, 0.4), (4.0, 1.5), (8.0, 2.5)])
def test_moments_against_the_density(epsilon: float, gamma: float) -> None:
    mu, second = density_moments(epsilon, gamma)
    assert _mean(epsilon, gamma) == pytest.approx(mu, rel=1e-9)
    assert 1 + gamma * _mean(epsilon, gamma) == pytest.approx(second, rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("n", [8, 501])
def test_gamma_has_the_least_variance(epsilon: float, n: int) -> None:
    def error(gamma: float) -> float:
        mu = _mean(epsilon, gamma)
        return (n + gamma * mu) / mu**2

    best = _best_gamma(epsilon, n)
    assert error(best) <= min(error(g) for g in np.linspace(0, 6, 3001)) * (1 + 1e-6)


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 3.0, 30.0, 700.0])
def test_the_ratio_of_both_sides_is_e_to_the_epsilon(epsilon: float) -> None:
    mechanism = PrivUnit(epsilon, 10)
    p, q = mechanism.above_probability(), mechanism.tail()
    ratio = math.log(p) - math.log(q) - math.log1p(-p) + math.log1p(-q)
    assert ratio <= epsilon * (1 + 1e-12)
    if epsilon < 100:
        assert ratio == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize(
    ("mechanism", "x"),
    [
        (PrivUnit(1.0, 3), [0.0, 0.25, 1.0]),  # a corner apart: well inside the ball
        (PrivUnit(4.0, 2), [0.0, 1.0]),  # on its surface
        (PrivUnit(2.0, 4, norm_bound=1.2), [0.0, 0.0, 1.0, 0.5]),
        (PrivUnit(2.0, 3, alpha=-1.0, beta=2.0), [-1.0, 0.0, 1.7]),
        (PrivUnit(12.0, 2, norm_bound=1.0), [0.6, 0.8]),
    ],
    ids=repr,
)
def test_reports_are_unbiased_with_the_stated_variance(mechanism: PrivUnit, x: list[float]) -> None:
    clean = torch.tensor(x)
    features = CsrMatrix.from_dense(clean.expand(NODES, -1))
    rectified = mechanism.perturb(features, generator=seeded()).rectified()
    assert moments_p_value(rectified, clean, mechanism.variance(clean)) > ALPHA
    wrong = mechanism.replace(epsilon=1.2 * mechanism.epsilon).variance(clean)
    assert moments_p_value(rectified, clean, wrong) < ALPHA


def test_noise_across_the_vector_is_normal_and_along_it_is_split() -> None:
    mechanism = PrivUnit(1.5, 2, norm_bound=1.0)
    features = CsrMatrix.from_dense(torch.tensor([[0.6, 0.8]]).expand(50_000, -1))
    sent = mechanism.perturb(features, generator=seeded()).sent
    assert isinstance(sent, torch.Tensor)
    across = sent.double() @ torch.tensor([0.8, -0.6], dtype=torch.float64)
    along = sent.double() @ torch.tensor([0.6, 0.8], dtype=torch.float64)
    assert kstest(across.numpy(), "norm").pvalue > ALPHA
    assert kstest(along.numpy(), "norm").pvalue < ALPHA
    above = (along > mechanism.gamma()).double()
    assert mean_p_value(above, mechanism.above_probability()) > ALPHA
    upper = along[along > mechanism.gamma()].numpy()
    tail = norm.sf(mechanism.gamma())
    assert kstest(upper, lambda a: 1 - norm.sf(a) / tail).pvalue > ALPHA


def test_longer_vectors_are_shortened_to_the_bound() -> None:
    mechanism = PrivUnit(8.0, 2, norm_bound=0.5)
    features = CsrMatrix.from_dense(torch.tensor([[0.6, 0.8]]).expand(NODES, -1))
    rectified = mechanism.perturb(features, generator=seeded()).rectified()
    for column, expected in zip(rectified.T, (0.3, 0.4), strict=True):
        assert mean_p_value(column, expected) > ALPHA


def test_reports_lie_on_one_grid() -> None:
    """So that the lowest digits of a report do not show what it was made of."""
    features = CsrMatrix.from_dense(torch.rand(200, 7, generator=seeded(2)))
    sent = PrivUnit(1.0, 7).perturb(features, generator=seeded()).sent
    assert isinstance(sent, torch.Tensor)
    assert torch.equal(sent * 2**16, (sent * 2**16).round())


class HalfTheNoise(PrivUnit):
    """Broken: the cap is chosen for twice the budget."""

    def above_probability(self) -> float:
        return PrivUnit(2 * self.epsilon, self.num_features).above_probability()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [PrivUnit, HalfTheNoise])
def test_the_audit_tells_honest_from_broken(kind: type[PrivUnit]) -> None:
    audit = audit_features(kind(1.0, 2), draws=10_000, confidence=0.9999, generator=seeded())
    # Drawn in floating point: there is no proof.
    assert audit.verdict == ("not refuted" if kind is PrivUnit else "refuted")
    assert audit.finding.epsilon > 0.6


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_bound_must_be_positive(bad: float) -> None:
    with pytest.raises(InputError, match="norm_bound="):
        PrivUnit(norm_bound=bad)
