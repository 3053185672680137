"""The exact calibration of the Gaussian mechanism (Balle and Wang, ICML 2018, Theorem 8)."""

import functools
import math

from lpgnn.errors import InputError


def gaussian_delta(sigma: float, epsilon: float, sensitivity: float) -> float:
    """The smallest delta for which noise N(0, sigma^2) is (epsilon, delta)-private.

    delta = Phi(a - b) - e^epsilon Phi(-a - b), a = D / (2 sigma), b = epsilon sigma / D
    """
    if not 0 < sigma < math.inf:
        raise InputError("sigma", sigma, "must be a finite number above 0")
    return math.exp(_log_delta(sigma / sensitivity, epsilon))


@functools.cache
def analytic_gaussian_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """The smallest sigma that is (epsilon, delta)-private for an L2 sensitivity.

    Solves gaussian_delta(sigma) = delta on a log scale, where the curve is smooth and monotone
    over hundreds of orders of magnitude.
    """
    if not 0 < epsilon < math.inf:
        raise InputError("x_eps", epsilon, "must be a finite number above 0")
    if not 0 < delta < 1:
        raise InputError("delta", delta, "must lie strictly between 0 and 1")
    if not 0 < sensitivity < math.inf:
        raise InputError("sensitivity", sensitivity, "must be a finite number above 0")
    from scipy.optimize import brentq

    target = math.log(delta)

    def excess(log_ratio: float) -> float:
        # Far outside the bracket delta underflows to 0; any very negative number serves there.
        return max(_log_delta(math.exp(log_ratio), epsilon), -1e6) - target

    low = high = 0.0  # log of sigma / D
    while excess(low) < 0:
        low -= 1.0
    while excess(high) > 0:
        high += 1.0
    ratio = math.exp(float(brentq(excess, low, high, xtol=1e-14, rtol=1e-14)))
    # The root may lie a rounding error below the true one; the guarantee wants the safe side.
    while _log_delta(ratio, epsilon) > target:
        ratio *= 1 + 1e-14
    return ratio * sensitivity


def _log_delta(ratio: float, epsilon: float) -> float:
    """log delta at ratio = sigma / D, free of the cancellation between the two terms.

    With the normal density phi and the Mills ratio R(t) = Phi(-t) / phi(t),
    e^epsilon phi(a + b) = phi(b - a) because 2ab = epsilon; hence
    delta = phi(b - a) (R(b - a) - R(b + a)).
    """
    from scipy.special import erfcx, ndtr

    def mills(t: float) -> float:
        return math.sqrt(math.pi / 2) * float(erfcx(t / math.sqrt(2)))

    a, b = 1 / (2 * ratio), epsilon * ratio
    log_phi = -((b - a) ** 2) / 2 - math.log(2 * math.pi) / 2
    if b < a:  # R(b - a) may overflow here, and Phi(a - b) >= 1/2 loses nothing
        log_factor = 0.0
        difference = float(ndtr(a - b)) - math.exp(log_phi) * mills(b + a)
    else:
        log_factor = log_phi
        difference = mills(b - a) - mills(b + a)
    return log_factor + math.log(difference) if difference > 0 else -math.inf
