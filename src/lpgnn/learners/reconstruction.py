"""RGNN's reconstruction of labels, with label proportions of clusters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from lpgnn.components import check_count, check_number
from lpgnn.errors import InputError
from lpgnn.learners.batch import FLOOR, LabelBatch, mean_weight, one_hot
from lpgnn.learners.batch_parts import estimates_of, parts_of
from lpgnn.learners.learner import Run, Server
from lpgnn.learners.network import NetworkLearner
from lpgnn.propagation.partition import partition

# What negative estimates of proportions become, as in the authors' program.
_LEAST = 1e-5


@dataclass(frozen=True)
class ReconstructedBatch(LabelBatch):
    """Label reports with reconstructed labels, and proportions of classes in clusters."""

    target: Tensor  # [R, c, N]: the reconstructed label, one-hot
    members: Tensor  # [N, B]: 1.0 at the cluster of each node
    proportions: Tensor  # [R, c, B]: of the classes among a cluster's training nodes
    weight: Tensor  # [R, B]: 1 / how many clusters have training nodes; 0 for those without


@dataclass(frozen=True)
class Reconstruction(NetworkLearner):
    """Cross entropy against reconstructed labels, and a KL term for clusters (RGNN, Bhaila et al.).

    Label: argmax_k of T^-1 P^K y' with y' of training and validation nodes, zeros elsewhere, and P
    the mean over a node and its neighbours.  P and T act on different sides, so that P^K of the
    unbiased estimates is the same and holds for every mechanism.  Cluster term: KL(q || p) with p
    the mean of the model's p(y|x) over a cluster's training nodes and q the mean of their
    estimates, negative entries set to 1e-5 and normalised; the mean over all clusters, times alpha.

    Taken from the SDM 2024 paper's abstract and from the authors' program
    (github.com/karuna-bhaila/RGNN); the paper's equations were not at hand.  Not followed:
    METIS (here: ``propagation.partition``); a second softmax in the program's cross entropy; its
    second T^-1, on cluster proportions of labels that are already reconstructed; its choice of the
    epoch by accuracy on reconstructed validation labels (here: by the forward-correction loss, as
    everywhere); clipping of gradients at norm 5.  Its features are GRR-FS, which is a mechanism.
    """

    name: ClassVar[str] = "rgnn"
    open_fields: ClassVar[Mapping[str, str]] = {"steps": "y_steps"}

    steps: int | None = 16  # K; None: from the table of hyper-parameters
    clusters: int = 16
    alpha: float = 1.0

    def __post_init__(self) -> None:
        if self.steps is not None:
            check_count("steps", self.steps)
        check_count("clusters", self.clusters, 1)
        check_number("alpha", self.alpha, 0)

    def prepare(self, runs: Sequence[Run], server: Server) -> ReconstructedBatch:
        if self.steps is None:
            raise InputError("learner.steps", "null", "must be set before the learner is used")
        batch, graph = super().prepare(runs, server), server.graph
        if self.clusters > (nodes := graph.topology.num_nodes):
            allowed = f"must be at most the graph's number of nodes, {nodes}"
            raise InputError("learner.clusters", self.clusters, allowed)
        estimate = estimates_of(runs, server.device)
        operator = graph.aggregation("mean", self_loops=True)
        labels = operator.propagate_classes(estimate, self.steps).argmax(1)  # [R, N]
        part = graph.once(
            ("partition", self.clusters), lambda: partition(graph.topology, self.clusters)
        )
        members = F.one_hot(part, self.clusters).to(server.device, torch.float32)
        q = _cluster_means(estimate, batch.train, members)
        q = torch.where(q < 0, _LEAST, q)
        used = (batch.train @ members > 0).float()  # [R, B]
        return ReconstructedBatch(
            **parts_of(batch),
            target=one_hot(labels, torch.ones_like(labels), estimate.shape[1]),
            members=members,
            proportions=q / q.sum(1, keepdim=True).clamp(min=_LEAST),
            weight=mean_weight(used),
        )

    def loss(self, logits: Tensor, batch: ReconstructedBatch) -> Tensor:
        p, q = logits.softmax(1), batch.proportions
        entropy = batch.train_mean(-(batch.target * (p + FLOOR).log()).sum(1))
        means = _cluster_means(p, batch.train, batch.members)
        divergence = (q * ((q + FLOOR).log() - (means + FLOOR).log())).sum(1)  # [R, B]
        return entropy + self.alpha * (batch.weight * divergence).sum(1)


def _cluster_means(x: Tensor, train: Tensor, members: Tensor) -> Tensor:
    """The mean over the training nodes of each cluster.  [R, c, N] -> [R, c, B]"""
    counts = (train @ members).clamp(min=1)
    return (x * train[:, None]) @ members / counts[:, None]
