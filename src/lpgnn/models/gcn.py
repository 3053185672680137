"""GCN: two graph convolutions, SELU between them."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lpgnn.models.activation import selu
from lpgnn.models.backbone import Backbone, Network, Shape, Weights
from lpgnn.models.dropout import Dropout
from lpgnn.models.linear import glorot, project
from lpgnn.propagation import PreparedGraph, PropagatedFeatures


@dataclass(frozen=True)
class GCN(Backbone):
    """Kipf and Welling's graph convolution: A^ X W with one self-loop a node."""

    name: ClassVar[str] = "gcn"

    def build(self, shape: Shape, graph: PreparedGraph) -> Network:
        return _GCNNetwork(shape, graph)


class _GCNNetwork(Network):
    def __init__(self, shape: Shape, graph: PreparedGraph) -> None:
        super().__init__(shape, graph)
        self.aggregate = graph.aggregation("gcn", self_loops=True)

    def initial_weights(self, *, generator: torch.Generator) -> Weights:
        d, h, c = self.shape.feature_dim, self.shape.hidden_dim, self.shape.num_classes
        return {
            "weight1": glorot(d, h, generator=generator),
            "bias1": torch.zeros(h),
            "weight2": glorot(h, c, generator=generator),
            "bias2": torch.zeros(c),
        }

    def hidden(self, weights: Weights, x: PropagatedFeatures) -> Tensor:
        mixed = self.aggregate.propagate(x.matmul(weights["weight1"]))  # [R, N, h]
        return selu(mixed, weights["bias1"], self.graph.backend)

    def logits(self, weights: Weights, hidden: Tensor, dropout: Dropout | None) -> Tensor:
        hidden = dropout(hidden) if dropout else hidden
        mixed = self.aggregate.propagate_classes(project(hidden, weights["weight2"]))
        return mixed + weights["bias2"][:, :, None]
