"""The analytic Gaussian mechanism and its exact calibration (Balle and Wang, ICML 2018)."""

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import torch
from torch import Tensor

from lpgnn.errors import InputError
from lpgnn.privacy.grid import GridNoise, draw_gaussian


def gaussian_delta(sigma: float, epsilon: float, sensitivity: float) -> float:
    """The smallest delta for which noise N(0, sigma^2) is (epsilon, delta)-private.

    delta = Phi(a - b) - e^epsilon Phi(-a - b), a = D / (2 sigma), b = epsilon sigma / D

    The second term as it stands overflows times underflows.  Since 2ab = epsilon,
    e^epsilon phi(a + b) = phi(b - a), so it equals phi(b - a) R(a + b) with the normal density
    phi and the Mills ratio R(t) = Phi(-t) / phi(t), which is smooth and never extreme.
    """
    if not 0 < sigma < math.inf:
        raise InputError("sigma", sigma, "must be a finite number above 0")
    from scipy.special import erfcx, ndtr

    a, b = sensitivity / (2 * sigma), epsilon * sigma / sensitivity
    density = math.exp(-((b - a) ** 2) / 2) / math.sqrt(2 * math.pi)
    mills = math.sqrt(math.pi / 2) * float(erfcx((a + b) / math.sqrt(2)))
    return max(0.0, float(ndtr(a - b)) - density * mills)


@functools.cache
def analytic_gaussian_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """The smallest sigma that is (epsilon, delta)-private for an L2 sensitivity D.

    Solves gaussian_delta(sigma) = delta in logs of both: delta falls over hundreds of orders of
    magnitude as sigma grows.
    """
    if not 0 < epsilon < math.inf:
        raise InputError("x_eps", epsilon, "must be a finite number above 0")
    if not 0 < delta < 1:
        raise InputError("delta", delta, "must lie strictly between 0 and 1")
    if not 0 < sensitivity < math.inf:
        raise InputError("sensitivity", sensitivity, "must be a finite number above 0")
    from scipy.optimize import brentq

    def excess(log_ratio: float) -> float:
        found = gaussian_delta(math.exp(log_ratio), epsilon, 1.0)
        return math.log(max(found, 1e-320) / delta)

    low = high = 0.0  # log of sigma / D
    while excess(low) < 0:
        low -= 1.0
    while excess(high) > 0:
        high += 1.0
    ratio = math.exp(float(brentq(excess, low, high, xtol=1e-14, rtol=1e-14)))
    # The root may lie a rounding error below the true one; the guarantee wants the safe side.
    while gaussian_delta(ratio, epsilon, 1.0) > delta:
        ratio *= 1 + 1e-14
    return ratio * sensitivity


@dataclass(frozen=True)
class AnalyticGaussian(GridNoise):
    """The analytic Gaussian mechanism (Balle and Wang 2018): (epsilon, delta)-LDP.

    The L2 sensitivity of the whole vector is (beta - alpha) sqrt(d).  An entry is x, rounded to the
    grid, plus normal noise, rounded to it: the noise of the paper's mechanism, rounded afterwards,
    so its (epsilon, delta) holds as it is.  Two more things are paid for by a sigma that is larger
    by one part in 10^8, which lowers a small delta by as much or more:
    - noise of 64 sigma or more is drawn again.  A report that x gives and x' cannot is 64 sigma
      from x', hence 32 from x, as sigma >= (beta - alpha) / 32: its probability is below
      2 d Phi(-32) < d 1e-223;
    - probabilities are rounded at 2^-512, and delta is computed to nine digits.
    """

    name: ClassVar[str] = "ag"

    delta: float = 1e-10

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.delta < 1:
            raise InputError("delta", self.delta, "must lie strictly between 0 and 1")

    def sigma(self) -> float:
        sensitivity = self.width * math.sqrt(self.num_features)
        return analytic_gaussian_sigma(self.epsilon, self.delta, sensitivity) * (1 + 1e-8)

    @property
    def steps(self) -> int:
        """At least 2^16, and 2^20 to a sigma; fewer only where 63 digits would not hold them."""
        size = math.log2(self.sigma() / self.width)
        return 1 << min(max(16, 20 + math.ceil(-size)), 54 - math.ceil(size))

    @property
    def farthest(self) -> int:
        """Noise has an end of its own, which is not the same report for every x."""
        return 2**62

    def deviation(self) -> Fraction:
        """sigma in steps."""
        return Fraction(self.sigma()) / Fraction(self.width) * self.steps

    def draw(self, count: int, *, generator: torch.Generator) -> Tensor:
        return draw_gaussian(self.deviation(), count, generator=generator)

    def variance(self, x: Tensor) -> Tensor:
        return torch.full_like(x, self.sigma() ** 2, dtype=torch.float64)

    def parameters(self) -> dict[str, float]:
        return {"sigma": self.sigma(), "delta": self.delta}
