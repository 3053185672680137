"""What crosses from the users to the server, as types."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from lpgnn.data.graph import Topology
from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError


@dataclass(frozen=True, eq=False)
class FeatureReports:
    """The feature reports of all nodes and their rectifier (paper Eq. est), never multiplied out.

    X' = scale * sent + offset, on every entry of [N, d], absent ones included
    """

    sent: CsrMatrix | Tensor  # [N, d]; dense: float32 or int8
    scale: float
    offset: float
    magnitude: float | None = None  # public size of an entry of X'; None: nothing public is known

    def __post_init__(self) -> None:
        if isinstance(self.sent, Tensor):
            if self.sent.ndim != 2:
                raise InputError("sent", f"{self.sent.ndim} dimensions", "must be [N, d]")
            if self.sent.dtype not in (torch.float32, torch.int8):
                raise InputError("sent", self.sent.dtype, "must be float32 or int8")

    @property
    def num_nodes(self) -> int:
        return self.sent.shape[0]

    @property
    def num_features(self) -> int:
        return self.sent.shape[1]

    @property
    def is_sparse(self) -> bool:
        return isinstance(self.sent, CsrMatrix)

    def rectified(self) -> Tensor:
        """X' multiplied out, for tests and plug-ins; training never needs it.  -> [N, d] float32"""
        if isinstance(self.sent, CsrMatrix):
            return self.sent.to_dense().mul_(self.scale).add_(self.offset)
        return self.sent.to(torch.float32).mul(self.scale).add_(self.offset)


@dataclass(frozen=True, eq=False)
class Collected:
    """The privacy boundary: everything the server holds, and nothing else.

    The topology, the perturbed reports and public numbers.  No clean feature, no clean label (but
    for budgets of inf), nothing about the labels of unlabelled nodes, and no tensor shared with
    the clean graph.
    """

    topology: Topology
    features: FeatureReports  # [N, d]
    labels: Tensor  # [N] int64, perturbed; -1 where a node is not labelled
    train_mask: Tensor  # [N] bool
    val_mask: Tensor  # [N] bool, disjoint from train_mask
    num_classes: int
    x_eps: float
    y_eps: float
    alpha: float
    beta: float
    parameters: Mapping[str, float]  # public numbers of the feature mechanism

    def __post_init__(self) -> None:
        nodes = (self.topology.num_nodes,)
        if self.features.num_nodes != nodes[0]:
            raise InputError(
                "features", f"{self.features.num_nodes} rows", f"must have {nodes[0]} rows"
            )
        for name, tensor, dtype in (
            ("labels", self.labels, torch.int64),
            ("train_mask", self.train_mask, torch.bool),
            ("val_mask", self.val_mask, torch.bool),
        ):
            if tensor.shape != nodes or tensor.dtype != dtype:
                found = f"{tuple(tensor.shape)} {tensor.dtype}"
                raise InputError(name, found, f"must be {nodes} {dtype}")
        if bool((self.train_mask & self.val_mask).any()):
            raise InputError("val_mask", "overlapping", "must be disjoint from train_mask")
        labelled = self.train_mask | self.val_mask
        if bool((self.labels[~labelled] != -1).any()):
            raise InputError("labels", "set outside the masks", "must be -1 on unlabelled nodes")
        known = self.labels[labelled]
        if bool(((known < 0) | (known >= self.num_classes)).any()):
            raise InputError(
                "labels",
                f"{int(known.min())}..{int(known.max())}",
                f"must lie in 0..{self.num_classes - 1} on labelled nodes",
            )

    @property
    def num_nodes(self) -> int:
        return self.topology.num_nodes

    @property
    def num_features(self) -> int:
        return self.features.num_features
