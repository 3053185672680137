"""How a node perturbs its features: the interface of all feature mechanisms.

A new mechanism is a subclass of ``FeatureMechanism`` with ``perturb``, ``variance`` and
``parameters``, or of ``AdditiveNoise`` with ``noise`` in place of ``perturb``; for noise that keeps
its budget exactly see ``privacy.grid``.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import ClassVar, Self

import torch
from torch import Tensor

from lpgnn.components import UNBOUND, Component
from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError
from lpgnn.privacy.exact import least_probability, share
from lpgnn.privacy.reports import FeatureReports, Form

# 2 MB of float64, which stays in the cache: a dense mechanism holds a few such arrays at a time.
CHUNK_ENTRIES = 2**18
# Beyond this budget nothing is left of privacy and formulas overflow.
LARGEST_EPSILON = 1e6


@dataclass(frozen=True)
class FeatureMechanism(Component, ABC):
    """A local randomizer of one node's feature vector x in [alpha, beta]^d.

    ``epsilon`` is the total budget of the whole vector, for every mechanism.  A run binds it and
    the number of features; a mechanism as a user names it in a config has neither.
    """

    kind: ClassVar[str] = "mechanism"
    bound_fields: ClassVar[tuple[str, ...]] = ("epsilon", "num_features")
    form: ClassVar[Form] = "dense"  # how its reports are stored
    # Whether reports are drawn as floats: the budget then holds as far as these are real numbers.
    in_floating_point: ClassVar[bool] = False

    epsilon: float = UNBOUND
    num_features: int = 0
    alpha: float = 0.0
    beta: float = 1.0

    def __post_init__(self) -> None:
        if not -math.inf < self.alpha < self.beta < math.inf:
            raise InputError("alpha", self.alpha, f"must be finite and below beta={self.beta}")
        if not self.is_bound:
            return
        if not 0 < self.epsilon <= LARGEST_EPSILON:  # written so that NaN is refused
            allowed = f"must be above 0 and at most {LARGEST_EPSILON:g}, or inf for no perturbation"
            raise InputError("x_eps", self.epsilon, allowed)
        if self.num_features < 1:
            raise InputError("num_features", self.num_features, "must be at least 1")
        if self.width * self.num_features / self.epsilon > 1e30:
            raise InputError("x_eps", self.epsilon, "is too small: noise of this size overflows")

    @property
    def is_bound(self) -> bool:
        return not (math.isnan(self.epsilon) and self.num_features == 0)

    def bind(self, epsilon: float, num_features: int) -> Self:
        """The mechanism at a budget, for vectors of d features."""
        return self.replace(epsilon=epsilon, num_features=num_features)

    @property
    def width(self) -> float:
        return self.beta - self.alpha

    @abstractmethod
    def perturb(self, features: CsrMatrix, *, generator: torch.Generator) -> FeatureReports:
        """Draw the report of every node, independently.  [N, d] -> [N, d]"""

    @abstractmethod
    def variance(self, x: Tensor) -> Tensor:
        """The exact variance of a rectified entry whose clean value is x."""

    @abstractmethod
    def parameters(self) -> dict[str, float]:
        """The public numbers the mechanism runs with."""

    def magnitude(self) -> float:
        """The noise's standard deviation half-way between alpha and beta: a public constant."""
        middle = torch.tensor((self.alpha + self.beta) / 2, dtype=torch.float64)
        variance = self.variance(middle)
        is_one = isinstance(variance, Tensor) and variance.numel() == 1
        if not is_one or not 0 <= float(variance) < math.inf:
            allowed = f"must have a variance >= 0 for each number, not {variance}"
            raise InputError("mechanism", self.name, allowed)
        return math.sqrt(float(variance))

    def spent(self) -> Decimal | None:
        """A proven bound on what a node spends, rounding included; None: there is no proof."""
        return None

    def received(self, reports: FeatureReports) -> FeatureReports:
        """The server's half: what the reports of all nodes say, with the public size of a number.

        It sees nothing but reports, so that it costs no privacy whatever it does.
        """
        return replace(reports, magnitude=self.magnitude())

    def check_features(self, features: CsrMatrix) -> None:
        """Refuse what has no privacy to speak of: other columns, values outside [alpha, beta]."""
        if features.shape[1] != self.num_features:
            allowed = f"must have num_features={self.num_features} columns"
            raise InputError("features", f"{features.shape[1]} columns", allowed)
        self.check_range(features.values)
        if features.nnz < features.shape[0] * features.shape[1]:  # an absent entry is zero
            self.check_range(torch.zeros(1))

    def check_range(self, x: Tensor) -> Tensor:
        """Pass x through if all of it is in range; NaN is not."""
        # Features are float32: 0.1 as a feature lies above 0.1 as a bound.
        low, high = torch.tensor([self.alpha, self.beta], dtype=torch.float32).tolist()
        outside = ~((x >= low) & (x <= high))
        if bool(outside.any()):
            allowed = f"every value must lie in [alpha, beta] = [{self.alpha}, {self.beta}]"
            raise InputError("features", float(x[outside][0]), allowed)
        return x


@dataclass(frozen=True)
class BitMechanism(FeatureMechanism):
    """m of d features as one bit each: what the multi-bit and the 1-bit mechanism share."""

    @property
    @abstractmethod
    def m(self) -> int:
        """How many features a node reports."""

    def bit_probability(self, x: Tensor) -> Tensor:
        """p(t = 1 | x) of Algorithm 1, line 4.  float64: eps/m may be as small as 1e-6

        1 / (e^z + 1) + (x - alpha) / (beta - alpha) * (e^z - 1) / (e^z + 1), z = eps / m

        It is drawn by comparison with a random number of 53 binary places, so a ratio of at most
        e^z wants bounds that are rounded to them, away from 0 and 1.  They also hold a float32
        feature that lies a rounding error outside [alpha, beta].
        """
        z = share(self.epsilon, self.m)
        lowest = math.exp(-z) / (1 + math.exp(-z))  # 1 / (e^z + 1) without overflow
        bound = least_probability(z)
        position = (x.double() - self.alpha) / self.width
        return position.mul_(math.tanh(z / 2)).add_(lowest).clamp_(bound, 1 - bound)

    def scale(self) -> float:
        """The rectifier's factor (paper Eq. est): d (beta - alpha) / 2m * coth(z / 2)."""
        d, m = self.num_features, self.m
        return d * self.width / (2 * m) / math.tanh(self.epsilon / m / 2)

    def offset(self) -> float:
        return (self.alpha + self.beta) / 2

    def variance(self, x: Tensor) -> Tensor:
        """Paper Prop. var: d/m ((beta - alpha)/2 coth(z/2))^2 - (x - (alpha + beta)/2)^2."""
        return self.m / self.num_features * self.scale() ** 2 - (x.double() - self.offset()) ** 2

    def parameters(self) -> dict[str, float]:
        return {"m": float(self.m)}


@dataclass(frozen=True)
class AdditiveNoise(FeatureMechanism):
    """x + noise, independent in every entry: unbiased as it is, so nothing to rectify.

    Its sum in floating point keeps the budget only as far as floats do (Mironov, CCS 2012); the
    mechanisms of ``privacy.grid`` keep it exactly.
    """

    in_floating_point: ClassVar[bool] = True

    @abstractmethod
    def noise(self, shape: torch.Size, *, generator: torch.Generator) -> Tensor:
        """Draw float64 noise: float32 draws cut the tails that delta = 1e-10 is about."""

    def perturb(self, features: CsrMatrix, *, generator: torch.Generator) -> FeatureReports:
        self.check_features(features)
        sent = torch.empty(features.shape, dtype=torch.float32)
        for rows, x in dense_chunks(features):
            noise = self.noise(x.shape, generator=generator)
            if not isinstance(noise, Tensor) or noise.shape != x.shape:
                given = f"shape {tuple(noise.shape)}" if isinstance(noise, Tensor) else noise
                allowed = f"must draw noise of shape {tuple(x.shape)}, not {given}"
                raise InputError("mechanism", self.name, allowed)
            sent[rows] = noise.add_(x)
        return FeatureReports(sent, scale=1.0, offset=0.0)


def dense_chunks(features: CsrMatrix) -> Iterator[tuple[slice, Tensor]]:
    """Blocks of whole rows as fresh dense arrays, so that N x d never exists in float64.

    Yields (rows, [len(rows), d] float64).
    """
    n, d = features.shape
    step = max(1, CHUNK_ENTRIES // d)
    for start in range(0, n, step):
        stop = min(n, start + step)
        indptr = features.indptr[start : stop + 1]
        entries = slice(int(indptr[0]), int(indptr[-1]))
        rows = torch.arange(stop - start).repeat_interleave(indptr.diff())
        x = torch.zeros(stop - start, d, dtype=torch.float64)
        x[rows, features.indices[entries]] = features.values[entries].double()
        yield slice(start, stop), x
