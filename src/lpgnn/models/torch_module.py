"""Any torch-geometric network as a backbone: it gets the filtered features as a dense matrix."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from lpgnn.components import construct, import_target, source_digest
from lpgnn.errors import InputError
from lpgnn.models.backbone import Backbone, Network, Shape, Weights
from lpgnn.models.dropout import Dropout
from lpgnn.propagation import PreparedGraph, PropagatedFeatures


@dataclass(frozen=True)
class TorchModule(Backbone):
    """A module called as ``module(x, edge_index)`` with x: [N, d] that returns [N, c].

    It is built with the arguments that torch-geometric's ready-made networks share
    (in_channels, hidden_channels, num_layers, out_channels, dropout) and those given here.
    """

    name: ClassVar[str] = "pyg"

    module: str = "torch_geometric.nn.models.GIN"
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.arguments, Mapping):
            raise InputError("arguments", self.arguments, "must be a mapping of name to value")

    @property
    def source(self) -> str:
        """A digest of the source that defines the module's class."""
        return super().source + source_digest(self._module_class())

    def _module_class(self) -> Any:
        return import_target("backbone.module", self.module)

    def build_module(self, shape: Shape) -> nn.Module:
        """The module with fresh weights from torch's global stream."""
        shared = {
            "in_channels": shape.feature_dim,
            "hidden_channels": shape.hidden_dim,
            "num_layers": 2,
            "out_channels": shape.num_classes,
            "dropout": shape.dropout,
        }
        built = construct("backbone.module", self._module_class(), shared | {**self.arguments})
        if not isinstance(built, nn.Module):
            raise InputError("backbone.module", self.module, "must be a torch.nn.Module")
        return built

    def build(self, shape: Shape, graph: PreparedGraph) -> Network:
        return _ModuleNetwork(shape, graph, self)

    @property
    def projections(self) -> int:
        return 2  # a guess: nothing is known of the module's first layer

    @property
    def needs_dense(self) -> bool:
        return True

    @property
    def shares_dropout(self) -> bool:
        return True  # the rate is the module's own


class _ModuleNetwork(Network):
    def __init__(self, shape: Shape, graph: PreparedGraph, backbone: TorchModule) -> None:
        super().__init__(shape, graph)
        self.backbone, device = backbone, graph.backend.device
        self.edge_index = graph.once("edge index", lambda: graph.topology.edge_index().to(device))
        self.module = backbone.build_module(shape).to(device)
        self.filtered: tuple[PropagatedFeatures, Tensor] | None = None
        # Running statistics of batch normalisation and the like: a run's own, like its weights.
        self.fresh_buffers = {name: b.clone() for name, b in self.module.named_buffers()}
        self.buffers: dict[int, Weights] = {}
        self.is_checked = False

    def initial_weights(self, *, generator: torch.Generator) -> Weights:
        self.buffers.clear()  # a new training begins
        # Modules draw their weights from torch's global stream: seed it from ours, then restore.
        seed = int(torch.randint(2**62, (), generator=generator))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            fresh = self.backbone.build_module(self.shape)
        return {name: p.detach().clone() for name, p in fresh.named_parameters()}

    def hidden(self, weights: Weights, x: PropagatedFeatures) -> Tensor:
        if self.filtered is None or self.filtered[0] is not x:
            self.filtered = (x, x.dense())  # the same in every epoch
        return self.filtered[1]  # [R, N, d]

    def logits(self, weights: Weights, hidden: Tensor, dropout: Dropout | None) -> Tensor:
        self.module.train(dropout is not None)
        outputs = []
        for run in range(hidden.shape[0]):
            if run not in self.buffers:
                self.buffers[run] = {name: b.clone() for name, b in self.fresh_buffers.items()}
            own = {name: w[run] for name, w in weights.items()} | self.buffers[run]
            inputs = (hidden[run], self.edge_index)
            with torch.random.fork_rng():
                if dropout is not None:
                    torch.manual_seed(dropout.seed(run))
                outputs.append(torch.func.functional_call(self.module, own, inputs))
        if not self.is_checked:
            self._check(outputs[0])
        return torch.stack(outputs).transpose(1, 2)

    def _check(self, output: Any) -> None:
        """A module of another output width would fail far from here, in the loss."""
        wanted = (self.graph.num_nodes, self.shape.num_classes)
        found = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        if found != wanted:
            allowed = f"must return a tensor of shape [N, c] = {list(wanted)}, not {found}"
            raise InputError("backbone.module", self.backbone.module, allowed)
        self.is_checked = True
