"""What all backbones share.

A backbone is a component: its options.  On a graph it builds a network, which works on R runs at
once: every weight and every activation has a leading run dimension, and nothing mixes runs.
``hidden`` is the first layer: nothing in it is random, so an epoch's evaluation and the next
epoch's training step share it; dropout comes at the head of ``logits``.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lpgnn.components import Component
from lpgnn.models.dropout import Dropout
from lpgnn.propagation import PreparedGraph, PropagatedFeatures

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Shape:
    """The sizes of a network, and its dropout rate."""

    feature_dim: int  # d
    hidden_dim: int  # h
    num_classes: int  # c
    dropout: float = 0.0  # for modules that bring their own; others get a ``Dropout`` by call


class Network(ABC):
    """A graph network from d filtered features to c classes, without its weights."""

    def __init__(self, shape: Shape, graph: PreparedGraph) -> None:
        self.shape, self.graph = shape, graph

    @abstractmethod
    def initial_weights(self, *, generator: torch.Generator) -> Weights:
        """Weights of one run, without the run dimension, drawn on the CPU."""

    @abstractmethod
    def hidden(self, weights: Weights, x: PropagatedFeatures) -> Tensor:
        """The first layer after its activation.  -> [R, N, h]"""

    @abstractmethod
    def logits(self, weights: Weights, hidden: Tensor, dropout: Dropout | None) -> Tensor:
        """Dropout (in training) and the second layer.  [R, N, h] -> [R, c, N]"""


@dataclass(frozen=True)
class Backbone(Component, ABC):
    """The options of a network, and what others need to know of it for costs and batches."""

    kind: ClassVar[str] = "backbone"

    @abstractmethod
    def build(self, shape: Shape, graph: PreparedGraph) -> Network:
        """The network on a graph."""

    @property
    def projections(self) -> int:
        """How many d x h products the first layer takes."""
        return 1

    @property
    def attention_heads(self) -> int:
        """How many heads score every edge in the first layer; 0 without attention."""
        return 0

    @property
    def needs_dense(self) -> bool:
        """Whether the network reads the filtered features as a matrix of N x d."""
        return False

    @property
    def shares_dropout(self) -> bool:
        """Whether runs that train side by side must have the same dropout rate."""
        return False
