"""A custom backbone."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lpgnn.models import Backbone, Dropout, Network, Shape, Weights
from lpgnn.propagation import PreparedGraph, PropagatedFeatures


@dataclass(frozen=True)
class TwoLayerPerceptron(Backbone):
    """No graph in the network: what the filter brings is all there is."""

    def build(self, shape: Shape, graph: PreparedGraph) -> Network:
        return _Perceptron(shape)


@dataclass
class _Perceptron(Network):
    shape: Shape

    def initial_weights(self, *, generator: torch.Generator) -> Weights:
        d, h, c = self.shape.feature_dim, self.shape.hidden_dim, self.shape.num_classes
        first = torch.randn(d, h, generator=generator) / math.sqrt(d)
        return {"first": first, "second": torch.randn(h, c, generator=generator) / math.sqrt(h)}

    def hidden(self, weights: Weights, x: PropagatedFeatures) -> Tensor:  # -> [R, N, h]
        return x.matmul(weights["first"]).relu()

    def logits(self, weights: Weights, hidden: Tensor, dropout: Dropout | None) -> Tensor:
        hidden = dropout(hidden) if dropout else hidden
        return (hidden @ weights["second"]).transpose(1, 2)  # [R, c, N]
