"""Few features of a node, each by a mechanism for one number: what PM, HM and SW share."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar

import torch
from torch import Tensor

from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError
from lpgnn.privacy.exact import share
from lpgnn.privacy.mechanism import FeatureMechanism
from lpgnn.privacy.multi_bit import sample_dimensions
from lpgnn.privacy.reports import FeatureReports, Form
from lpgnn.privacy.sliding_window import SlidingWindow

# Below this budget of a number its probabilities have no place in 53 binary places.
LEAST_PER_VALUE = 2.0**-40


@dataclass(frozen=True)
class SampledValues(FeatureMechanism):
    """k of d features, each at eps / k (Wang et al., ICDE 2019, Algorithm 4): epsilon-LDP.

    A sampled feature, as t in [-1, 1], is estimated without bias and multiplied by d / k; the
    others count as the middle of the range.
    """

    form: ClassVar[Form] = "sparse"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.is_bound and self.value_epsilon < LEAST_PER_VALUE:
            allowed = f"must be at least {LEAST_PER_VALUE * self.k:.2g}, or inf for no perturbation"
            raise InputError("x_eps", self.epsilon, allowed)

    @property
    def k(self) -> int:
        """max(1, min(d, floor(eps / 2.5)))"""
        return max(1, min(self.num_features, math.floor(self.epsilon / 2.5)))

    @property
    def value_epsilon(self) -> float:
        """What each sampled feature may spend."""
        return share(self.epsilon, self.k)

    @abstractmethod
    def randomize(self, t: Tensor, *, generator: torch.Generator) -> Tensor:
        """An unbiased private estimate of each number.  [n] in [-1, 1] -> [n] float64"""

    @abstractmethod
    def value_variance(self, t: Tensor) -> Tensor:
        """The variance of that estimate."""

    @abstractmethod
    def value_spent(self) -> Decimal:
        """The largest log ratio of an estimate's probabilities."""

    def positions(self, x: Tensor) -> Tensor:
        """Features as numbers in [-1, 1], also those that float32 rounds out of [alpha, beta]."""
        return ((x.double() - self.offset()) * (2 / self.width)).clamp_(-1, 1)

    def scale(self) -> float:
        return self.num_features / self.k * self.width / 2

    def offset(self) -> float:
        return (self.alpha + self.beta) / 2

    def perturb(self, features: CsrMatrix, *, generator: torch.Generator) -> FeatureReports:
        self.check_features(features)
        n, d, k = features.shape[0], self.num_features, self.k
        sampled = sample_dimensions(n, d, k, generator=generator).flatten()  # [N k]
        x = features.lookup(torch.arange(n).repeat_interleave(k), sampled)
        sent = self.randomize(self.positions(x), generator=generator).float()
        encoded = CsrMatrix(torch.arange(n + 1) * k, sampled, sent, (n, d))
        return FeatureReports(encoded, self.scale(), self.offset())

    def variance(self, x: Tensor) -> Tensor:
        """(width / 2)^2 (d / k E[t'^2] - t^2)"""
        t = self.positions(x)
        second = self.value_variance(t) + t**2
        return (self.width / 2) ** 2 * (self.num_features / self.k * second - t**2)

    def spent(self) -> Decimal:
        return self.k * self.value_spent()

    def parameters(self) -> dict[str, float]:
        return {"k": float(self.k)}


@dataclass(frozen=True)
class WindowValues(SampledValues):
    """Sampled features by a window that slides with the number."""

    @abstractmethod
    def window(self) -> SlidingWindow:
        """The window at ``value_epsilon``."""

    def randomize(self, t: Tensor, *, generator: torch.Generator) -> Tensor:
        window = self.window()
        return window.estimate(window.draw(t, generator=generator))

    def value_variance(self, t: Tensor) -> Tensor:
        return self.window().variance(t)

    def value_spent(self) -> Decimal:
        return self.window().spent()
