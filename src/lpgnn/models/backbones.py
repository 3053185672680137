"""The three backbones of the paper: two graph convolutions, SELU between them.

A backbone works on R runs at once: every weight and every activation has a leading run
dimension, and nothing mixes runs.  ``hidden`` is the first layer: nothing in it is random, so an
epoch's evaluation and the next epoch's training step share it; dropout comes at the head of
``logits``.  Initial weights follow torch-geometric's layers.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from lpgnn.data.graph import Topology
from lpgnn.errors import InputError
from lpgnn.models.activation import selu
from lpgnn.models.attention import AttentionPattern, attend
from lpgnn.models.dropout import Dropout
from lpgnn.propagation import PropagatedFeatures, aggregation, with_self_loops

Weights = dict[str, Tensor]


@dataclass
class Backbone(ABC):
    """A two-layer graph network from d propagated features to c classes."""

    topology: Topology
    feature_dim: int
    hidden_dim: int
    num_classes: int
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @abstractmethod
    def __post_init__(self) -> None:
        """Build the operators that the layers apply."""

    @abstractmethod
    def initial_weights(self, *, generator: torch.Generator) -> Weights:
        """Weights of one run, without the run dimension, drawn on the CPU."""

    @abstractmethod
    def hidden(self, weights: Weights, x: PropagatedFeatures) -> Tensor:
        """The first layer after its activation.  -> [R, N, h]"""

    @abstractmethod
    def logits(self, weights: Weights, hidden: Tensor, dropout: Dropout | None) -> Tensor:
        """Dropout (in training) and the second layer.  [R, N, h] -> [R, c, N]"""


class GCN(Backbone):
    """Kipf and Welling's graph convolution: A^ X W with one self-loop a node."""

    def __post_init__(self) -> None:
        self.aggregate = aggregation(with_self_loops(self.topology), "gcn", self.device)

    def initial_weights(self, *, generator: torch.Generator) -> Weights:
        return {
            "weight1": _glorot(self.feature_dim, self.hidden_dim, generator=generator),
            "bias1": torch.zeros(self.hidden_dim),
            "weight2": _glorot(self.hidden_dim, self.num_classes, generator=generator),
            "bias2": torch.zeros(self.num_classes),
        }

    def hidden(self, weights: Weights, x: PropagatedFeatures) -> Tensor:
        mixed = self.aggregate.propagate(x.matmul(weights["weight1"]))  # [R, N, h]
        return selu(mixed, weights["bias1"])

    def logits(self, weights: Weights, hidden: Tensor, dropout: Dropout | None) -> Tensor:
        hidden = dropout(hidden) if dropout else hidden
        mixed = self.aggregate.propagate_classes(_project(hidden, weights["weight2"]))
        return mixed + weights["bias2"][:, :, None]


class GraphSAGE(Backbone):
    """Hamilton et al.'s layer with mean aggregation: mean of neighbours W_l + own W_r."""

    def __post_init__(self) -> None:
        self.aggregate = aggregation(self.topology, "mean", self.device)

    def initial_weights(self, *, generator: torch.Generator) -> Weights:
        d, h, c = self.feature_dim, self.hidden_dim, self.num_classes
        return {
            "left1": _uniform(d, h, fan_in=d, generator=generator),
            "bias1": _uniform(h, fan_in=d, generator=generator),
            "right1": _uniform(d, h, fan_in=d, generator=generator),
            "left2": _uniform(h, c, fan_in=h, generator=generator),
            "bias2": _uniform(c, fan_in=h, generator=generator),
            "right2": _uniform(h, c, fan_in=h, generator=generator),
        }

    def hidden(self, weights: Weights, x: PropagatedFeatures) -> Tensor:
        left, right = x.matmul_each([weights["left1"], weights["right1"]])  # [R, N, h] each
        mixed = self.aggregate.propagate(left).add_(right)
        return selu(mixed, weights["bias1"])

    def logits(self, weights: Weights, hidden: Tensor, dropout: Dropout | None) -> Tensor:
        hidden = dropout(hidden) if dropout else hidden
        both = _project(hidden, torch.cat([weights["left2"], weights["right2"]], dim=2))
        left, right = both.chunk(2, dim=1)  # [R, c, N] each
        return self.aggregate.propagate_classes(left) + right + weights["bias2"][:, :, None]


@dataclass
class GAT(Backbone):
    """Velickovic et al.'s attention: concatenated heads, then one head for the classes."""

    heads: int = 4

    def __post_init__(self) -> None:
        if not isinstance(self.heads, int) or self.heads < 1:
            raise InputError("backbone.heads", self.heads, "must be a whole number >= 1")
        self.pattern = AttentionPattern.from_topology(self.topology, self.device)

    def initial_weights(self, *, generator: torch.Generator) -> Weights:
        d, h, c, heads = self.feature_dim, self.hidden_dim, self.num_classes, self.heads
        # torch-geometric draws the heads as one d x (heads h) matrix: its bound is kept here.
        weight1 = _glorot(d, heads * h, generator=generator)
        return {
            "weight1": weight1.view(d, heads, h).permute(1, 0, 2).contiguous(),  # [H, d, h]
            "source1": _glorot(heads, h, generator=generator),
            "target1": _glorot(heads, h, generator=generator),
            "bias1": torch.zeros(heads * h),
            "weight2": _glorot(heads * h, c, generator=generator),
            "source2": _glorot(1, c, generator=generator)[0],
            "target2": _glorot(1, c, generator=generator)[0],
            "bias2": torch.zeros(c),
        }

    def hidden(self, weights: Weights, x: PropagatedFeatures) -> Tensor:
        outputs = []
        values = x.matmul_each([weights["weight1"][:, head] for head in range(self.heads)])
        for head, value in enumerate(values):  # [R, N, h]
            source, target = _scores(
                value, weights["source1"][:, head], weights["target1"][:, head]
            )
            outputs.append(attend(self.pattern, source, target, value))
        mixed = torch.cat(outputs, dim=2)  # [R, N, H h]
        return selu(mixed, weights["bias1"])

    def logits(self, weights: Weights, hidden: Tensor, dropout: Dropout | None) -> Tensor:
        hidden = dropout(hidden) if dropout else hidden
        value = _project(hidden, weights["weight2"])  # [R, c, N]
        both = torch.stack([weights["source2"], weights["target2"]], dim=1) @ value  # [R, 2, N]
        mixed = attend(self.pattern, both[:, 0], both[:, 1], value.transpose(1, 2))  # [R, N, c]
        return mixed.transpose(1, 2) + weights["bias2"][:, :, None]


def _project(hidden: Tensor, weight: Tensor) -> Tensor:
    """hidden W, class-major.  [R, N, h], [R, h, c] -> [R, c, N]"""
    return _Project.apply(hidden, weight)  # type: ignore[no-any-return]


class _Project(torch.autograd.Function):
    """The product above; torch's own gradient of ``hidden`` would come back with strides of N,
    and every step before it would crawl."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(hidden, weight)
        # A contiguous weight: on three strided classes the product takes twice as long.
        return torch.bmm(weight.transpose(1, 2).contiguous(), hidden.transpose(1, 2))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:  # grad: [R, c, N]
        hidden, weight = ctx.saved_tensors
        d_hidden = torch.bmm(grad.transpose(1, 2), weight.transpose(1, 2))  # [R, N, h]
        d_weight = torch.bmm(grad, hidden)  # [R, c, h]
        return d_hidden, d_weight.transpose(1, 2)


def _scores(value: Tensor, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Both halves of the attention scores.  [R, N, f], [R, f], [R, f] -> [R, N], [R, N]"""
    both = _project(value, torch.stack([source, target], dim=2))  # [R, 2, N]
    return both[:, 0], both[:, 1]


def _uniform(*shape: int, fan_in: int, generator: torch.Generator) -> Tensor:
    """U(-b, b) with b = 1 / sqrt(fan_in): torch's own linear layer."""
    return (2 * torch.rand(shape, generator=generator) - 1) / math.sqrt(fan_in)


def _glorot(rows: int, columns: int, *, generator: torch.Generator) -> Tensor:
    """U(-b, b) with b = sqrt(6 / (rows + columns))."""
    bound = math.sqrt(6 / (rows + columns))
    return (2 * torch.rand(rows, columns, generator=generator) - 1) * bound
