"""Any torch-geometric network as a backbone: it gets the propagated features as a dense matrix."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from lpgnn.models.backbones import Backbone, Weights
from lpgnn.models.dropout import Dropout
from lpgnn.propagation import PropagatedFeatures


@dataclass
class ModuleBackbone(Backbone):
    """A module called as ``module(x, edge_index)`` with x: [N, d] that returns [N, c].

    It is built with the arguments that torch-geometric's ready-made networks share
    (in_channels, hidden_channels, num_layers, out_channels, dropout) and the given options.
    """

    module_class: type[nn.Module] = nn.Module
    options: dict[str, Any] = field(default_factory=dict)
    dropout: float = 0.0

    def __post_init__(self) -> None:
        self.edge_index = self.topology.edge_index().to(self.device)
        self.module = self._build().to(self.device)
        # Running statistics of batch normalisation and the like: a run's own, like its weights.
        self.propagated: tuple[PropagatedFeatures, Tensor] | None = None
        self.fresh_buffers = {name: b.clone() for name, b in self.module.named_buffers()}
        self.buffers: dict[int, Weights] = {}

    def _build(self) -> nn.Module:
        return self.module_class(
            in_channels=self.feature_dim,
            hidden_channels=self.hidden_dim,
            num_layers=2,
            out_channels=self.num_classes,
            dropout=self.dropout,
            **self.options,
        )

    def initial_weights(self, *, generator: torch.Generator) -> Weights:
        self.buffers.clear()  # a new training begins
        # Modules draw their weights from torch's global stream: seed it from ours, then restore.
        seed = int(torch.randint(2**62, (), generator=generator))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            fresh = self._build()
        return {name: p.detach().clone() for name, p in fresh.named_parameters()}

    def hidden(self, weights: Weights, x: PropagatedFeatures) -> Tensor:
        if self.propagated is None or self.propagated[0] is not x:
            self.propagated = (x, x.dense())  # the same in every epoch
        return self.propagated[1]  # [R, N, d]

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
        return torch.stack(outputs).transpose(1, 2)
