"""The backbones as stacks of torch-geometric's layers, for one run at a time."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from lpgnn.data.graph import Topology
from lpgnn.kernels import Backend
from lpgnn.models import GAT, GCN, Backbone, GraphSAGE, Network, Shape, Weights
from lpgnn.propagation import PreparedGraph

from .pyg import GATConv, GCNConv, SAGEConv

Kind = Literal["gcn", "sage", "gat"]
KINDS: tuple[Kind, ...] = ("gcn", "sage", "gat")
HEADS = 4


BACKBONES: dict[Kind, Backbone] = {"gcn": GCN(), "sage": GraphSAGE(), "gat": GAT(HEADS)}


def build(kind: Kind, topology: Topology, d: int, h: int, c: int, backend: Backend) -> Network:
    return BACKBONES[kind].build(Shape(d, h, c), PreparedGraph(topology, backend))


class Reference:
    """Two torch-geometric layers with SELU between them.

    The weights are handed over at each call under this project's names, so that gradients come
    back under these names too.
    """

    def __init__(self, kind: Kind, topology: Topology, d: int, h: int, c: int) -> None:
        self.kind = kind
        self.edge_index = topology.edge_index()
        self.first: nn.Module
        self.second: nn.Module
        if kind == "gcn":
            self.first, self.second = GCNConv(d, h), GCNConv(h, c)
        elif kind == "sage":
            self.first, self.second = SAGEConv(d, h), SAGEConv(h, c)
        else:
            self.first = GATConv(d, h, heads=HEADS)
            self.second = GATConv(HEADS * h, c, heads=1)

    def hidden(self, weights: Weights, x: Tensor) -> Tensor:  # [N, d] -> [N, h]
        return F.selu(self._call(self.first, weights, "1", x))

    def logits(self, weights: Weights, hidden: Tensor) -> Tensor:  # [N, h] -> [N, c]
        return self._call(self.second, weights, "2", hidden)

    def _call(self, layer: nn.Module, weights: Weights, number: str, x: Tensor) -> Tensor:
        w = {name[:-1]: t for name, t in weights.items() if name.endswith(number)}
        if self.kind == "gcn":
            own = {"lin.weight": w["weight"].t(), "bias": w["bias"]}
        elif self.kind == "sage":
            own = {
                "lin_l.weight": w["left"].t(),
                "lin_l.bias": w["bias"],
                "lin_r.weight": w["right"].t(),
            }
        else:
            # The first layer's weight is [H, d, h], the second's [H h, c].
            transposed = w["weight"].transpose(-1, -2)
            heads = HEADS if number == "1" else 1
            own = {
                "lin.weight": transposed.reshape(-1, transposed.shape[-1]),
                "att_src": w["source"].reshape(1, heads, -1),
                "att_dst": w["target"].reshape(1, heads, -1),
                "bias": w["bias"],
            }
        assert set(own) == {name for name, _ in layer.named_parameters()}
        out: Tensor = functional_call(layer, own, (x, self.edge_index))
        return out


def run_weights(
    network: Network, *, generator: torch.Generator, bias_scale: float = 0.3
) -> Weights:
    """Initial weights of a run, with biases that are not zero."""
    weights = network.initial_weights(generator=generator)
    return {
        name: bias_scale * torch.randn(w.shape, generator=generator) if "bias" in name else w
        for name, w in weights.items()
    }
