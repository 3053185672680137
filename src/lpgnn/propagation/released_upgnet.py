"""What UPGNET's released program does to the features, which is not what its paper says."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lpgnn.components import check_count, check_number
from lpgnn.propagation.filters import NonlinearFilter
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

    def transform(self, columns: Tensor, graph: PreparedGraph) -> Tensor:
        x = cut(graph.kprop("mean").propagate(columns[None])[0], self.mu)
        if self.steps == 0:
            return x
        degree = graph.topology.without_self_loops().indptr.diff().clamp(min=1)
        degree = degree.to(x.device, x.dtype)[:, None]
        total = torch.zeros_like(x)
        for _ in range(self.steps):
            x = graph.kprop("gcn").propagate(x[None])[0] / degree
            total += x
        return total / self.steps


def cut(x: Tensor, mu: float) -> Tensor:
    """sign(x) (|x| - mu) where |x| > 2 mu, else 0."""
    return torch.where(x.abs() > 2 * mu, x - mu * x.sign(), 0.0)
