"""GraphSAGE: two layers with mean aggregation, SELU between them."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lpgnn.models.activation import selu
from lpgnn.models.backbone import Backbone, Network, Shape, Weights
from lpgnn.models.dropout import Dropout
from lpgnn.models.linear import project, uniform
from lpgnn.propagation import PreparedGraph, PropagatedFeatures


@dataclass(frozen=True)
class GraphSAGE(Backbone):
    """Hamilton et al.'s layer with mean aggregation: mean of neighbours W_l + own W_r."""

    name: ClassVar[str] = "sage"

    def build(self, shape: Shape, graph: PreparedGraph) -> Network:
        return _SAGENetwork(shape, graph)

    @property
    def projections(self) -> int:
        return 2


class _SAGENetwork(Network):
    def __init__(self, shape: Shape, graph: PreparedGraph) -> None:
        super().__init__(shape, graph)
        self.aggregate = graph.aggregation("mean", self_loops=False)

    def initial_weights(self, *, generator: torch.Generator) -> Weights:
        d, h, c = self.shape.feature_dim, self.shape.hidden_dim, self.shape.num_classes
        return {
            "left1": uniform(d, h, fan_in=d, generator=generator),
            "bias1": uniform(h, fan_in=d, generator=generator),
            "right1": uniform(d, h, fan_in=d, generator=generator),
            "left2": uniform(h, c, fan_in=h, generator=generator),
            "bias2": uniform(c, fan_in=h, generator=generator),
            "right2": uniform(h, c, fan_in=h, generator=generator),
        }

    def hidden(self, weights: Weights, x: PropagatedFeatures) -> Tensor:
        left, right = x.matmul_each([weights["left1"], weights["right1"]])  # [R, N, h] each
        mixed = self.aggregate.propagate(left).add_(right)
        return selu(mixed, weights["bias1"], self.graph.backend)

    def logits(self, weights: Weights, hidden: Tensor, dropout: Dropout | None) -> Tensor:
        hidden = dropout(hidden) if dropout else hidden
        both = project(hidden, torch.cat([weights["left2"], weights["right2"]], dim=2))
        left, right = both.chunk(2, dim=1)  # [R, c, N] each
        return self.aggregate.propagate_classes(left) + right + weights["bias2"][:, :, None]
