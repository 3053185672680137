"""Noise on a grid: features and noise are whole numbers of steps, and so is what is sent.

Noise in floating point betrays its input: which numbers can be reached depends on what the noise
was added to (Mironov, CCS 2012).  Here a feature is rounded to a multiple of a public step, the
noise is drawn in integers with probabilities that are known exactly, and the sum is turned into a
float32 only then, which looks at nothing but the sum.
"""

import functools
import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError
from lpgnn.kernels.backend import numba_problem
from lpgnn.privacy.exact import PLACES, gaussian_acceptance, geometric_digits
from lpgnn.privacy.mechanism import FeatureMechanism, dense_chunks
from lpgnn.privacy.reports import FeatureReports

# What one feature may spend: beyond, probabilities have no place in PLACES binary places, or the
# noise in 63 digits.
MOST_PER_FEATURE = 64
LEAST_PER_FEATURE = 2.0**-40
# By how much floats may err where they decide for the exact comparison; they err by far less.
DOUBT = 2.0**-24


@dataclass(frozen=True)
class GridNoise(FeatureMechanism):
    """x + noise in whole steps of (beta - alpha) / 2^j: unbiased up to the rounding of x."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.is_bound:
            return
        least, most = (bound * self.num_features for bound in (LEAST_PER_FEATURE, MOST_PER_FEATURE))
        if not least <= self.epsilon <= most:
            allowed = f"must lie in {least:.2g}..{most:g} for {self.num_features} features"
            raise InputError("x_eps", self.epsilon, f"{allowed}, or be inf for no perturbation")

    @property
    @abstractmethod
    def steps(self) -> int:
        """How many steps there are from alpha to beta: a power of two."""

    @property
    @abstractmethod
    def farthest(self) -> int:
        """No noise is larger; a report that is out of reach for some x is moved to the nearest."""

    @abstractmethod
    def draw(self, count: int, *, generator: torch.Generator) -> Tensor:
        """Noise in steps, at most farthest + 1 away from zero.  -> [count] int64"""

    def perturb(self, features: CsrMatrix, *, generator: torch.Generator) -> FeatureReports:
        self.check_features(features)
        steps = self.steps
        sent = torch.empty(features.shape, dtype=torch.float32)
        for rows, x in dense_chunks(features):
            position = x.sub_(self.alpha).mul_(steps / self.width).round_().clamp_(0, steps)
            report = self.with_noise(position.to(torch.int64), generator=generator)
            sent[rows] = report.double().mul_(self.width / steps).add_(self.alpha)
        return FeatureReports(sent, scale=1.0, offset=0.0)

    def with_noise(self, position: Tensor, *, generator: torch.Generator) -> Tensor:
        """Noise on top of whole steps from alpha, moved into what every x can give.  int64"""
        report = self.draw(position.numel(), generator=generator).view(position.shape)
        report += position
        return report.clamp_(self.steps - self.farthest, self.farthest)


def draw_laplace(digits: Sequence[int], count: int, *, generator: torch.Generator) -> Tensor:
    """Whole numbers with P(n) ~ q^|n|, drawn by the digits of ``exact.geometric_digits``.

    The last digit stands for all that is larger, which comes out as the next power of two.
    """
    out = np.empty(count, dtype=np.int64)
    _loops().fill_laplace(_places(tuple(digits)), _seed(generator), out)
    return torch.from_numpy(out)


def draw_gaussian(
    deviation: Fraction, count: int, *, generator: torch.Generator, doubt: float = DOUBT
) -> Tensor:
    """Rounded normal numbers by rejection (Canonne, Kamath and Steinke 2020), |n| < 128 s.

    deviation: s >= 2^20.  Two-sided geometric numbers of rate 1/s are kept with the probability
    of ``exact.gaussian_acceptance``.  Floats decide, but for the few comparisons within ``doubt``,
    which are made in 512 binary places.
    """
    digits, out = _gaussian_digits(deviation), np.empty(count, dtype=np.int64)
    open_, at = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.uint64)
    options = (_places(digits), _seed(generator), float(1 / deviation), doubt)
    noted = _loops().fill_gaussian(*options, out, open_, at)
    for place, drawn in zip(open_[:noted].tolist(), at[:noted].tolist(), strict=True):
        for _ in range(PLACES // 64 - 1):
            drawn = drawn << 64 | int(_seed(generator))
        if drawn >= gaussian_acceptance(abs(int(out[place])), deviation):
            another = draw_gaussian(deviation, 1, generator=generator, doubt=doubt)
            out[place] = int(another)
    return torch.from_numpy(out)


@functools.lru_cache(maxsize=16)
def _gaussian_digits(deviation: Fraction) -> tuple[int, ...]:
    return tuple(geometric_digits(1 / deviation, math.ceil(math.log2(64 * deviation))))


@functools.lru_cache(maxsize=16)
def _places(digits: tuple[int, ...]) -> Any:
    """The binary places of the digits' probabilities, as words of ones or zeros.  -> [PLACES, D]"""
    ones = 2**64 - 1
    rows = [[ones * (digit >> place & 1) for digit in digits] for place in reversed(range(PLACES))]
    return np.array(rows, dtype=np.uint64)


def _seed(generator: torch.Generator) -> np.uint64:
    """64 random bits."""
    low, high = torch.randint(2**32, (2,), generator=generator).tolist()
    return np.uint64(high << 32 | low)


def _loops() -> Any:
    if numba_problem() is None:
        from lpgnn.kernels import geometric

        return geometric
    from lpgnn.kernels import plain_geometric

    return plain_geometric
