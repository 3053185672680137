"""GAT: two attention layers, SELU between them."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lpgnn.errors import InputError
from lpgnn.models.activation import selu
from lpgnn.models.attention import attend
from lpgnn.models.backbone import Backbone, Network, Shape, Weights
from lpgnn.models.dropout import Dropout
from lpgnn.models.linear import glorot, project
from lpgnn.propagation import PreparedGraph, PropagatedFeatures


@dataclass(frozen=True)
class GAT(Backbone):
    """Velickovic et al.'s attention: concatenated heads, then one head for the classes."""

    name: ClassVar[str] = "gat"

    heads: int = 4

    def __post_init__(self) -> None:
        is_count = isinstance(self.heads, int) and not isinstance(self.heads, bool)
        if not is_count or self.heads < 1:
            raise InputError("heads", self.heads, "must be a whole number >= 1")

    def build(self, shape: Shape, graph: PreparedGraph) -> Network:
        return _GATNetwork(shape, graph, self.heads)

    @property
    def projections(self) -> int:
        return self.heads

    @property
    def attention_heads(self) -> int:
        return self.heads


class _GATNetwork(Network):
    def __init__(self, shape: Shape, graph: PreparedGraph, heads: int) -> None:
        super().__init__(shape, graph)
        self.heads, self.pattern = heads, graph.attention

    def initial_weights(self, *, generator: torch.Generator) -> Weights:
        d, h, c = self.shape.feature_dim, self.shape.hidden_dim, self.shape.num_classes
        heads = self.heads
        # torch-geometric draws the heads as one d x (heads h) matrix: its bound is kept here.
        weight1 = glorot(d, heads * h, generator=generator)
        return {
            "weight1": weight1.view(d, heads, h).permute(1, 0, 2).contiguous(),  # [H, d, h]
            "source1": glorot(heads, h, generator=generator),
            "target1": glorot(heads, h, generator=generator),
            "bias1": torch.zeros(heads * h),
            "weight2": glorot(heads * h, c, generator=generator),
            "source2": glorot(1, c, generator=generator)[0],
            "target2": glorot(1, c, generator=generator)[0],
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
        return selu(mixed, weights["bias1"], self.graph.backend)

    def logits(self, weights: Weights, hidden: Tensor, dropout: Dropout | None) -> Tensor:
        hidden = dropout(hidden) if dropout else hidden
        value = project(hidden, weights["weight2"])  # [R, c, N]
        both = torch.stack([weights["source2"], weights["target2"]], dim=1) @ value  # [R, 2, N]
        mixed = attend(self.pattern, both[:, 0], both[:, 1], value.transpose(1, 2))  # [R, N, c]
        return mixed.transpose(1, 2) + weights["bias2"][:, :, None]


def _scores(value: Tensor, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Both halves of the attention scores.  [R, N, f], [R, f], [R, f] -> [R, N], [R, N]"""
    both = project(value, torch.stack([source, target], dim=2))  # [R, 2, N]
    return both[:, 0], both[:, 1]
