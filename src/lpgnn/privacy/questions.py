"""What a server may ask a node about its features: questions with private answers.

A question is fixed by public things and by answers that others have given already, so that whoever
answers one question in its life spends what that one answer costs, however many rounds there are.
Every answer costs the node's whole feature budget.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError
from lpgnn.privacy.privunit import PrivUnit
from lpgnn.privacy.randomized_response import RandomizedResponse
from lpgnn.privacy.reports import FeatureReports, Received

Answers = FeatureReports | Tensor | Received


def unit_vectors(features: CsrMatrix) -> CsrMatrix:
    """z = sqrt(x) / |sqrt(x)|, which every device computes for itself; zeros stay zeros.

    The root keeps a few large counts from standing for the whole vector.  |z|^2 = 1 wants the sum
    of the entries of x: no entry may be negative.
    """
    if features.nnz and float(features.values.min()) < 0:
        raise InputError("features", float(features.values.min()), "must not be negative")
    total = torch.zeros(features.shape[0], dtype=torch.float64)
    total.index_add_(0, features.row_indices(), features.values.double())
    share = features.values.double() / total[features.row_indices()].clamp(min=1e-300)
    return CsrMatrix(features.indptr, features.indices, share.sqrt().float(), features.shape)


class Question(ABC):
    """Something that nodes are asked about their own unit vectors, once in their life."""

    def fits(self, num_nodes: int, num_features: int) -> bool:
        """Whether it can be put to so many nodes about vectors of this width."""
        return True

    @abstractmethod
    def answers(self, z: CsrMatrix, epsilon: float, *, generator: torch.Generator) -> Answers:
        """Draw the answer of every node from its own vector alone.  [n, d] -> [n, ...]"""


@dataclass(frozen=True)
class VectorQuestion(Question):
    """ "What is your vector?", answered by PrivUnit."""

    num_features: int

    def fits(self, num_nodes: int, num_features: int) -> bool:
        return num_features == self.num_features

    def mechanism(self, epsilon: float) -> PrivUnit:
        return PrivUnit(epsilon, self.num_features, norm_bound=1.0)

    def answers(
        self, z: CsrMatrix, epsilon: float, *, generator: torch.Generator
    ) -> FeatureReports:
        return self.mechanism(epsilon).perturb(z, generator=generator)


@dataclass(frozen=True, eq=False)
class ScoreQuestion(Question):
    """ "In which of k cells lies your score?", answered by k-ary randomized response.

    The score of a node with the pair of classes (a, b) is <w_a - w_b, z>; the cells are cut at the
    thresholds of its pair, which rise.
    """

    directions: Tensor  # [c, d] float32: the published w_k
    pairs: Tensor  # [n, 2] int64, of the nodes that are asked
    thresholds: Tensor  # [c, c, k - 1] float64

    def __post_init__(self) -> None:
        c = self.directions.shape[0]
        if self.thresholds.shape[:2] != (c, c) or self.thresholds.ndim != 3:
            found = tuple(self.thresholds.shape)
            raise InputError("thresholds", found, f"must be [{c}, {c}, cells - 1]")
        if self.pairs.ndim != 2 or self.pairs.shape[1] != 2:
            raise InputError("pairs", tuple(self.pairs.shape), "must be [nodes, 2]")

    def fits(self, num_nodes: int, num_features: int) -> bool:
        return (num_nodes, num_features) == (self.pairs.shape[0], self.directions.shape[1])

    @property
    def num_cells(self) -> int:
        return self.thresholds.shape[2] + 1

    def mechanism(self, epsilon: float) -> RandomizedResponse:
        return RandomizedResponse(epsilon, self.num_cells)

    def cells(self, z: CsrMatrix) -> Tensor:
        """The honest answers, which never leave the devices.  [n, d] -> [n]"""
        a, b = self.pairs.t()
        rows = z.row_indices()
        slope = self.directions[a[rows], z.indices] - self.directions[b[rows], z.indices]
        score = torch.zeros(z.shape[0], dtype=torch.float64)
        score.index_add_(0, rows, slope.double() * z.values.double())
        return (score[:, None] > self.thresholds[a, b]).sum(1)

    def answers(self, z: CsrMatrix, epsilon: float, *, generator: torch.Generator) -> Tensor:
        return self.mechanism(epsilon).perturb(self.cells(z), generator=generator)


def most_cells(epsilon: float, largest: int = 8, kept: float = 0.9) -> int:
    """The largest power of two, at most ``largest``, of cells that are kept often enough.

    Finer cells say more about a score, and are told truly less often.
    """
    found = 2
    while 2 * found <= largest and 1 / (1 + (2 * found - 1) * math.exp(-epsilon)) >= kept:
        found *= 2
    return found
