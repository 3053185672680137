"""PrivUnitG: a Gaussian vector that leans towards the private one."""

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError
from lpgnn.privacy.exact import greatest_probability
from lpgnn.privacy.mechanism import FeatureMechanism, dense_chunks
from lpgnn.privacy.reports import FeatureReports

# Reports are rounded to multiples of 2^-16: fine beside noise of size one, and coarse beside what
# floats lose, so that the lowest digits of a report say nothing about the vector behind it.
_STEPS = 2.0**16


@dataclass(frozen=True)
class PrivUnit(FeatureMechanism):
    """PrivUnitG (Asi, Feldman and Talwar, ICML 2022): epsilon-LDP for unit vectors.

    For a unit vector u in R^n, g ~ N(0, I) and a ~ N(0, 1), conditioned on a > gamma with
    probability p and on a < gamma otherwise, report z = g + (a - <g, u>) u.  Its density is that of
    N(0, I) times p/q where <z, u> > gamma and (1 - p)/(1 - q) elsewhere, with q = P(N > gamma):
    ln p (1 - q) / ((1 - p) q) = eps.  E[z] = mu u with mu = E[a]; gamma has the least variance.

    A feature vector becomes a unit vector of n = d + 1 entries: y = (x - center) / L with |y| <= 1,
    and sqrt(1 - |y|^2).  Without ``norm_bound`` the center is the middle of the range and L the
    half diagonal of [alpha, beta]^d, which holds every x.  ``norm_bound`` is a public L for
    |x - alpha|, which is far smaller for sparse features; a longer vector is shortened to it.

    The vector is drawn in floating point, in double precision: unlike the bits and the noise on a
    grid of other mechanisms, its ratio of probabilities is e^eps as far as floats are real numbers.
    """

    name: ClassVar[str] = "privunit"
    in_floating_point: ClassVar[bool] = True

    norm_bound: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.norm_bound is not None and not 0 < self.norm_bound < math.inf:
            raise InputError("norm_bound", self.norm_bound, "must be a finite number above 0")
        if self.is_bound and greatest_probability(self.epsilon, self._odds()) <= self.tail():
            raise InputError("x_eps", self.epsilon, "is too small: no direction is likelier")

    @property
    def radius(self) -> float:
        """L"""
        return self.norm_bound or math.sqrt(self.num_features) * self.width / 2

    @property
    def center(self) -> float:
        return self.alpha if self.norm_bound else (self.alpha + self.beta) / 2

    def gamma(self) -> float:
        return _best_gamma(self.epsilon, self.num_features + 1)

    def tail(self) -> float:
        """q"""
        from scipy.special import ndtr

        return float(ndtr(-self.gamma()))

    def above_probability(self) -> float:
        """p = e^eps q / (e^eps q + 1 - q), rounded towards privacy."""
        return greatest_probability(self.epsilon, self._odds())

    def _odds(self) -> Fraction:
        q = Fraction(self.tail())
        return q / (1 - q)

    def mean(self) -> float:
        """mu"""
        return _mean(self.epsilon, self.gamma())

    def perturb(self, features: CsrMatrix, *, generator: torch.Generator) -> FeatureReports:
        self.check_features(features)
        sent = torch.empty(features.shape, dtype=torch.float32)
        for rows, x in dense_chunks(features):
            y = x.sub_(self.center).div_(self.radius)  # [b, d]
            length = y.norm(dim=1, keepdim=True)
            y /= length.clamp(min=1)
            rest = (1 - length**2).clamp_(min=0).sqrt_()  # [b, 1]
            g = torch.randn(len(y), y.shape[1] + 1, dtype=torch.float64, generator=generator)
            along = (g[:, :-1] * y).sum(1, keepdim=True) + g[:, -1:] * rest  # <g, u>
            z = g[:, :-1] + (self._lengths(len(y), generator=generator) - along) * y
            sent[rows] = z.mul_(_STEPS).round_().div_(_STEPS)
        return FeatureReports(sent, self.radius / self.mean(), self.center)

    def _lengths(self, count: int, *, generator: torch.Generator) -> Tensor:
        """a, by the inverse distribution function of either side.  -> [count, 1] float64"""
        from scipy.special import log_ndtr, ndtri_exp

        above, place = torch.rand(2, count, dtype=torch.float64, generator=generator).numpy()
        side = np.where(above < self.above_probability(), -1.0, 1.0)
        # P(N < -gamma) = P(N > gamma), drawn in the lower tail, where logarithms are exact
        log_mass = np.where(side < 0, log_ndtr(-self.gamma()), log_ndtr(self.gamma()))
        drawn = side * ndtri_exp(log_mass + np.log1p(-place))
        return torch.from_numpy(drawn)[:, None]

    def variance(self, x: Tensor) -> Tensor:
        """(L / mu)^2 (1 - y^2 + y^2 Var[a]), with E[a^2] = 1 + gamma mu.

        Of a vector that is not shortened: that of noise across u, and of a along it.
        """
        mu = self.mean()
        y = ((x.double() - self.center) / self.radius).clamp(-1, 1)
        return (self.radius / mu) ** 2 * (1 + y**2 * (self.gamma() * mu - mu**2))

    def parameters(self) -> dict[str, float]:
        return {"gamma": self.gamma(), "p": self.above_probability(), "L": self.radius}


def _mean(epsilon: float, gamma: float) -> float:
    """E[a] = phi(gamma) (p/q - (1 - p)/(1 - q)) = phi (1 - e^-eps) / (q + (1 - q) e^-eps)."""
    from scipy.special import log_ndtr

    density = -(gamma**2) / 2 - math.log(2 * math.pi) / 2
    mass = np.logaddexp(log_ndtr(-gamma), log_ndtr(gamma) - epsilon)
    return float(np.exp(density - mass)) * -math.expm1(-epsilon)


@functools.lru_cache(maxsize=64)
def _best_gamma(epsilon: float, n: int) -> float:
    """The gamma with the least E|z|^2 / mu^2 = (n + gamma mu) / mu^2, in logarithms."""
    from scipy.optimize import minimize_scalar

    def log_error(gamma: float) -> float:
        mu = _mean(epsilon, gamma)
        return math.log(n + gamma * mu) - 2 * math.log(mu)

    # Beyond 37 the tail is too small for a float; no budget of use comes near.
    bounds = (0.0, min(math.sqrt(2 * epsilon) + 1, 37.0))
    return float(minimize_scalar(log_error, bounds=bounds, method="bounded").x)
