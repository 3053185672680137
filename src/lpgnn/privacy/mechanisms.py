"""How a node perturbs its features, and what the server needs to undo the bias.

A new mechanism is a subclass of ``FeatureMechanism`` with a name, ``perturb``, ``variance`` and
``parameters`` (or of ``AdditiveNoise`` with ``noise`` in place of ``perturb``), and its line in
``MECHANISMS``.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError
from lpgnn.privacy.gaussian import analytic_gaussian_sigma
from lpgnn.privacy.reports import FeatureReports

# 2 MB of float64, which stays in the cache: a dense mechanism holds a few such arrays at a time.
CHUNK_ENTRIES = 2**18


@dataclass(frozen=True)
class FeatureMechanism(ABC):
    """A local randomizer of one node's feature vector x in [alpha, beta]^d.

    ``epsilon`` is the total budget of the whole vector, for every mechanism.
    """

    name: ClassVar[str]

    epsilon: float
    num_features: int
    alpha: float = 0.0
    beta: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < math.inf:  # written so that NaN is refused
            raise InputError("x_eps", self.epsilon, "must be a finite number above 0")
        if self.num_features < 1:
            raise InputError("num_features", self.num_features, "must be at least 1")
        if not -math.inf < self.alpha < self.beta < math.inf:
            raise InputError("alpha", self.alpha, f"must be finite and below beta={self.beta}")
        if self.width * self.num_features / self.epsilon > 1e30:
            raise InputError("x_eps", self.epsilon, "is too small: noise of this size overflows")

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
        return math.sqrt(float(self.variance(middle)))

    def check_width(self, features: CsrMatrix) -> None:
        if features.shape[1] != self.num_features:
            allowed = f"must have num_features={self.num_features} columns"
            raise InputError("features", f"{features.shape[1]} columns", allowed)

    def check_range(self, x: Tensor) -> Tensor:
        """Pass x through; outside [alpha, beta] (or NaN) there is no privacy to speak of."""
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
        """
        z = self.epsilon / self.m
        lowest = math.exp(-z) / (1 + math.exp(-z))  # 1 / (e^z + 1) without overflow
        # A float32 feature may lie a rounding error outside [alpha, beta].
        position = ((x.double() - self.alpha) / self.width).clamp_(0, 1)
        return position.mul_(math.tanh(z / 2)).add_(lowest)

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
class MultiBit(BitMechanism):
    """The multi-bit mechanism (paper Algorithm 1 and Eq. est): epsilon-LDP.

    ``num_samples`` overrides the optimal m.
    """

    name: ClassVar[str] = "mb"

    num_samples: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        whole = isinstance(self.num_samples, int | None)
        if not whole or (
            self.num_samples is not None and not 1 <= self.num_samples <= self.num_features
        ):
            allowed = f"must be a whole number in 1..{self.num_features}"
            raise InputError("num_samples", self.num_samples, allowed)

    @property
    def m(self) -> int:
        """Paper Prop. optm: m* = max(1, min(d, floor(eps / 2.18)))."""
        if self.num_samples is not None:
            return self.num_samples
        return max(1, min(self.num_features, math.floor(self.epsilon / 2.18)))

    def perturb(self, features: CsrMatrix, *, generator: torch.Generator) -> FeatureReports:
        """Algorithm 1 for every node at once, in O(N m): unsampled entries are never read."""
        self.check_width(features)
        n, d, m = features.shape[0], self.num_features, self.m
        # 1: S, m dimensions drawn uniformly without replacement
        sampled = sample_dimensions(n, d, m, generator=generator).flatten()  # [N m]
        # 2-3: s_i = 1 on these entries only
        nodes = torch.arange(n).repeat_interleave(m)  # [N m]
        x = self.check_range(features.lookup(nodes, sampled))
        # 4: t_i ~ Bernoulli(p(x_i))
        t = torch.rand(n * m, dtype=torch.float64, generator=generator) < self.bit_probability(x)
        # 5: x*_i = s_i (2 t_i - 1)
        sent = 2 * t.to(torch.float32) - 1
        encoded = CsrMatrix(torch.arange(n + 1) * m, sampled, sent, (n, d))
        return FeatureReports(encoded, self.scale(), self.offset())


def sample_dimensions(n: int, d: int, m: int, *, generator: torch.Generator) -> Tensor:
    """For each of n nodes a uniform m-subset of range(d), in ascending order.  -> [n, m] int64"""
    if 8 * m > d:  # a mask of n x d bytes is no larger than the answer
        return _sample_by_mask(n, d, m, generator=generator)
    # Repeats are drawn anew until none is left. No step treats one dimension unlike another, so
    # every m-subset is equally likely; sorting only serves to find the repeats.
    sampled = torch.randint(d, (n, m), generator=generator).sort(dim=1).values
    pending = torch.arange(n)  # nodes that may still hold a repeat
    while pending.numel() > 0:
        rows = sampled[pending]
        repeats = torch.zeros_like(rows, dtype=torch.bool)
        repeats[:, 1:] = rows[:, 1:] == rows[:, :-1]
        rows[repeats] = torch.randint(d, (int(repeats.sum()),), generator=generator)
        sampled[pending] = rows.sort(dim=1).values
        pending = pending[repeats.any(dim=1)]
    return sampled


def _sample_by_mask(n: int, d: int, m: int, *, generator: torch.Generator) -> Tensor:
    """``sample_dimensions`` by Floyd's algorithm (Bentley and Floyd, CACM 1987), nodes abreast."""
    drawn = min(m, d - m)  # the smaller of the subset and its complement
    mask = torch.zeros(n, d, dtype=torch.bool)
    for last in range(d - drawn, d):
        t = torch.randint(last + 1, (n, 1), generator=generator)
        mask.scatter_(1, torch.where(mask.gather(1, t), last, t), True)
    if drawn < m:
        mask.logical_not_()
    return mask.nonzero()[:, 1].view(n, m)


@dataclass(frozen=True)
class OneBit(BitMechanism):
    """The 1-bit mechanism (Ding et al. 2017): Algorithm 1 with m = d, hence dense reports."""

    name: ClassVar[str] = "1b"

    @property
    def m(self) -> int:
        return self.num_features

    def perturb(self, features: CsrMatrix, *, generator: torch.Generator) -> FeatureReports:
        self.check_width(features)
        sent = torch.empty(features.shape, dtype=torch.int8)
        for rows, x in dense_chunks(features):
            p = self.bit_probability(self.check_range(x))
            t = torch.rand(x.shape, dtype=torch.float64, generator=generator) < p
            sent[rows] = 2 * t.to(torch.int8) - 1
        return FeatureReports(sent, self.scale(), self.offset())


@dataclass(frozen=True)
class AdditiveNoise(FeatureMechanism):
    """x + noise, independent in every entry: unbiased as it is, so nothing to rectify."""

    @abstractmethod
    def noise(self, shape: torch.Size, *, generator: torch.Generator) -> Tensor:
        """Draw float64 noise: float32 draws cut the tails that delta = 1e-10 is about."""

    def perturb(self, features: CsrMatrix, *, generator: torch.Generator) -> FeatureReports:
        self.check_width(features)
        sent = torch.empty(features.shape, dtype=torch.float32)
        for rows, x in dense_chunks(features):
            sent[rows] = self.noise(x.shape, generator=generator).add_(self.check_range(x))
        return FeatureReports(sent, scale=1.0, offset=0.0)


@dataclass(frozen=True)
class Laplace(AdditiveNoise):
    """The Laplace mechanism: epsilon-LDP with scale (beta - alpha) d / eps in every entry."""

    name: ClassVar[str] = "lp"

    def scale(self) -> float:
        return self.width * self.num_features / self.epsilon

    def noise(self, shape: torch.Size, *, generator: torch.Generator) -> Tensor:
        """The inverse distribution function: -scale sign(u) log(1 - 2|u|), u in [-1/2, 1/2)."""
        u = torch.rand(shape, dtype=torch.float64, generator=generator).sub_(0.5)
        # u = -1/2, one draw in 2^53, would be infinite noise.
        magnitude = u.abs().mul_(-2).clamp_(min=-1 + 2**-53).log1p_().mul_(-self.scale())
        return magnitude.copysign_(u)

    def variance(self, x: Tensor) -> Tensor:
        return torch.full_like(x, 2 * self.scale() ** 2, dtype=torch.float64)

    def parameters(self) -> dict[str, float]:
        return {"scale": self.scale()}


@dataclass(frozen=True)
class AnalyticGaussian(AdditiveNoise):
    """The analytic Gaussian mechanism (Balle and Wang 2018): (epsilon, delta)-LDP.

    The L2 sensitivity of the whole vector is (beta - alpha) sqrt(d).
    """

    name: ClassVar[str] = "ag"

    delta: float = 1e-10

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.delta < 1:
            raise InputError("delta", self.delta, "must lie strictly between 0 and 1")

    def sigma(self) -> float:
        sensitivity = self.width * math.sqrt(self.num_features)
        return analytic_gaussian_sigma(self.epsilon, self.delta, sensitivity)

    def noise(self, shape: torch.Size, *, generator: torch.Generator) -> Tensor:
        noise = torch.empty(shape, dtype=torch.float64)
        return noise.normal_(0, self.sigma(), generator=generator)

    def variance(self, x: Tensor) -> Tensor:
        return torch.full_like(x, self.sigma() ** 2, dtype=torch.float64)

    def parameters(self) -> dict[str, float]:
        return {"sigma": self.sigma(), "delta": self.delta}


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


MECHANISMS: dict[str, type[FeatureMechanism]] = {
    mechanism.name: mechanism for mechanism in (MultiBit, OneBit, Laplace, AnalyticGaussian)
}
