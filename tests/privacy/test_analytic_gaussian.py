import math
from typing import Any

import pytest

from lpgnn.errors import InputError
from lpgnn.privacy.analytic_gaussian import analytic_gaussian_sigma, gaussian_delta

mpmath: Any = pytest.importorskip("mpmath", reason="comes with torch, by way of sympy")

EPSILONS = [1e-3, 0.01, 0.1, 1.0, 10.0, 100.0]


def precise_delta(sigma: float, epsilon: float, sensitivity: float) -> float:
    """Balle and Wang's formula as printed, in 80 digits."""
    with mpmath.workdps(80):
        s, e, big_d = mpmath.mpf(sigma), mpmath.mpf(epsilon), mpmath.mpf(sensitivity)
        a, b = big_d / (2 * s), e * s / big_d
        return float(mpmath.ncdf(a - b) - mpmath.exp(e) * mpmath.ncdf(-a - b))


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", [1e-10, 1e-5, 0.3])
@pytest.mark.parametrize("sensitivity", [1.0, math.sqrt(4714)])
def test_sigma_meets_its_delta_with_equality(
    epsilon: float, delta: float, sensitivity: float
) -> None:
    sigma = analytic_gaussian_sigma(epsilon, delta, sensitivity)
    assert precise_delta(sigma, epsilon, sensitivity) == pytest.approx(delta, rel=1e-9, abs=0)
    # A little less noise breaks the guarantee, so sigma is the smallest.
    assert precise_delta(sigma * (1 - 1e-6), epsilon, sensitivity) > delta


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("sigma", [0.005, 0.3, 1.0, 7.0, 300.0])
def test_delta_against_high_precision(epsilon: float, sigma: float) -> None:
    expected = precise_delta(sigma, epsilon, 1.0)
    assert gaussian_delta(sigma, epsilon, 1.0) == pytest.approx(expected, rel=1e-9, abs=1e-300)


def test_sigma_is_monotone_and_scales_with_the_sensitivity() -> None:
    by_epsilon = [analytic_gaussian_sigma(e, 1e-10, 1.0) for e in EPSILONS]
    by_delta = [analytic_gaussian_sigma(1.0, 10.0**-k, 1.0) for k in range(1, 16)]
    assert by_epsilon == sorted(by_epsilon, reverse=True)
    assert by_delta == sorted(by_delta)
    assert len(set(by_epsilon)) == len(by_epsilon)
    assert analytic_gaussian_sigma(1.0, 1e-10, 8.0) == pytest.approx(8 * by_epsilon[3])


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.9])
def test_sigma_beats_the_classical_bound(epsilon: float) -> None:
    classical = math.sqrt(2 * math.log(1.25 / 1e-10)) / epsilon  # Dwork and Roth, eps < 1
    assert 0.5 * classical < analytic_gaussian_sigma(epsilon, 1e-10, 1.0) < classical


@pytest.mark.parametrize(
    ("setting", "epsilon", "delta", "sensitivity"),
    [
        ("x_eps", 0.0, 1e-10, 1.0),
        ("x_eps", math.nan, 1e-10, 1.0),
        ("x_eps", math.inf, 1e-10, 1.0),
        ("delta", 1.0, 0.0, 1.0),
        ("delta", 1.0, 1.0, 1.0),
        ("sensitivity", 1.0, 1e-10, 0.0),
    ],
)
def test_bad_input_is_named(setting: str, epsilon: float, delta: float, sensitivity: float) -> None:
    with pytest.raises(InputError) as caught:
        analytic_gaussian_sigma(epsilon, delta, sensitivity)
    assert caught.value.setting == setting


def test_a_sigma_of_zero_is_refused() -> None:
    with pytest.raises(InputError, match="sigma="):
        gaussian_delta(0.0, 1.0, 1.0)
