"""A vector as the choice of one of many public vectors: what devices send in place of PrivUnit."""

import functools
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lpgnn.client import CANDIDATE_BITS, Question, candidate
from lpgnn.privacy.privunit import PrivUnit
from lpgnn.privacy.reports import FeatureReports

# The fewer candidates are near, the more their products vary: the noise of 16 is within 1 %.
_NEAR = 16
_FEWEST, _MOST = 2**8, 2**14


@dataclass(frozen=True)
class Candidates:
    """Subset selection among K public vectors g_k: epsilon-LDP for unit vectors, exactly.

    Modified minimal random coding (Shah, Chen, Balle, Kairouz and Theis, AISTATS 2022).  The t
    candidates with the largest <g_k, u> are near u.  One of them is chosen, each e^eps times as
    likely as any other: that holds whatever the candidates are, and in whole numbers.  Over
    candidates that are normal, it is PrivUnitG with the t-th largest product for its threshold: the
    chosen one has E[g] = mu u and E[g g^T] = I + gamma mu u u^T, the same moments as K grows.
    """

    epsilon: float
    num_candidates: int  # K
    num_near: int  # t

    @classmethod
    def suited(cls, epsilon: float, num_features: int) -> "Candidates":
        """As many as it takes for 16 near ones, from 256 to 16,384: a device goes through all."""
        tail = PrivUnit(epsilon, num_features, norm_bound=1.0).tail()
        size = min(max(2 ** math.ceil(math.log2(_NEAR / tail)), _FEWEST), _MOST)
        return cls(epsilon, size, max(1, round(tail * size)))

    def near_probability(self) -> float:
        """p = t e^eps / (t e^eps + K - t): that any of the near ones is chosen."""
        others = self.num_candidates - self.num_near
        return 1 / (1 + others / self.num_near * math.exp(-self.epsilon))

    def mean(self) -> float:
        """mu = E[a], a the product of the chosen candidate with u."""
        return self._moment(0)

    def gamma(self) -> float:
        """(E[a^2] - 1) / mu, which is PrivUnit's threshold in the limit."""
        return (self._moment(1) - 1) / self.mean()

    def _moment(self, which: int) -> float:
        size, near, p = self.num_candidates, self.num_near, self.near_probability()
        of_near = _moments_of_largest(size, near)[which]
        of_others = (size * which - near * of_near) / (size - near)  # of all: 0 and 1
        return p * of_near + (1 - p) * of_others

    def received(self, question: Question, nodes: Tensor, chosen: Tensor) -> FeatureReports:
        """The chosen candidates of some nodes, as a server makes them anew.  [n], [n] -> [n, d]"""
        d, half = question.num_features, CANDIDATE_BITS // 2
        sent = torch.empty(nodes.numel(), d)
        for row, (node, k) in enumerate(zip(nodes.tolist(), chosen.tolist(), strict=True)):
            bits = np.unpackbits(np.frombuffer(candidate(question, node, k), np.uint8))
            ones = bits.reshape(d + 1, CANDIDATE_BITS).sum(1, dtype=np.int64)[:d]
            sent[row] = torch.from_numpy((ones - half) / math.sqrt(CANDIDATE_BITS / 4))
        return FeatureReports(sent, 1 / self.mean(), 0.0)


@functools.lru_cache(maxsize=64)
def _moments_of_largest(size: int, near: int) -> tuple[float, float]:
    """E[x] and E[x^2] of any of the largest ``near`` of ``size`` normal numbers.

    (K/t) E[x^i P(at most t - 1 of the other K - 1 are larger)], by the trapezoidal rule
    """
    from scipy.special import betainc, ndtr

    x = np.linspace(-12, 12, 24_001)
    density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    among = density * betainc(size - near, near, ndtr(x)) * size / near
    step = x[1] - x[0]
    return float((x * among).sum() * step), float((x**2 * among).sum() * step)
