"""What UPGNET's released program does to the features, which is not what its paper says."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from lpgnn.components import check_count, check_number
from lpgnn.privacy.reports import FeatureReports
from lpgnn.propagation.features import PropagatedFeatures, few_numbers, linear_features
from lpgnn.propagation.filters import NonlinearFilter
from lpgnn.propagation.operators import IDENTITY, Operator, normalised_adjacency
from lpgnn.propagation.prepared import PreparedGraph


@dataclass(frozen=True)
class ReleasedUPGNet(NonlinearFilter):
    """A cut of the neighbours' mean, then sums of powers of D^-1 P (github.com/helongzhu/UPGNet).

    Four things differ from the paper's HOA and NFR.  The threshold comes before the aggregator,
    behind one step with the mean of the neighbours.  It works in place, entry by entry in three
    assignments, and the last of them takes away what the first two have shrunk: nothing up to
    2 mu is left (``cut``).  The aggregator multiplies by the GCN weights and takes the mean on top
    of it, so that a step is D^-1 P and not P.  And mu is 1, whatever the budget.

    Its data keep the self-loops of a raw graph; here P is over N(v) - {v}, as everywhere.
    """

    name: ClassVar[str] = "upgnet_released"

    steps: int = 2  # K
    mu: float = 1.0

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        check_number("mu", self.mu, 0)

    def features(
        self, reports: Sequence[FeatureReports], graph: PreparedGraph
    ) -> PropagatedFeatures:
        # Of reports of few numbers the cut leaves few, and the powers that follow are linear.
        few = few_numbers(reports, lambda _, columns: self._cut(columns, graph), graph.backend)
        if few is None:
            return super().features(reports, graph)
        return linear_features(few, _walk(graph), self._coefficients(), graph.backend)

    def transform(self, columns: Tensor, graph: PreparedGraph) -> Tensor:
        return _walk(graph).filter(self._cut(columns, graph)[None], self._coefficients())[0]

    def _cut(self, columns: Tensor, graph: PreparedGraph) -> Tensor:
        return cut(graph.kprop("mean").propagate(columns[None])[0], self.mu)

    def _coefficients(self) -> tuple[float, ...]:
        return (0.0,) + (1 / self.steps,) * self.steps if self.steps else IDENTITY


def _walk(graph: PreparedGraph) -> Operator:
    """D^-1 P over N(v) - {v}."""

    def build() -> Operator:
        topology = graph.topology.without_self_loops()
        weights = normalised_adjacency(topology, "gcn")
        degree = topology.indptr.diff()[topology.row_indices()]
        return Operator.from_csr(replace(weights, values=weights.values / degree), graph.backend)

    return graph.once("upgnet walk", build)


def cut(x: Tensor, mu: float) -> Tensor:
    """sign(x) (|x| - mu) where |x| > 2 mu, else 0."""
    return torch.where(x.abs() > 2 * mu, x - mu * x.sign(), 0.0)
