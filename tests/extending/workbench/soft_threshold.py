"""A custom filter that is not linear."""

from dataclasses import dataclass

from torch import Tensor

from lpgnn.propagation import NonlinearFilter, PreparedGraph


@dataclass(frozen=True)
class SoftThreshold(NonlinearFilter):
    """sign(h) max(|h| - mu, 0) of h = P x."""

    mu: float = 0.1

    def transform(self, columns: Tensor, graph: PreparedGraph) -> Tensor:  # [N, b] -> [N, b]
        h = graph.kprop("gcn").propagate(columns[None])[0]
        return h.sign() * (h.abs() - self.mu).clamp(min=0)
