"""RTGNN: two networks that tell clean labels from noisy ones."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from lpgnn.components import check_count, check_number
from lpgnn.learners.batch import FLOOR, masked_mean, one_hot
from lpgnn.learners.batch_parts import parts_of
from lpgnn.learners.learner import Outcome, Run, Server
from lpgnn.learners.robust import ReportedBatch, RobustLearner
from lpgnn.propagation import Operator
from lpgnn.randomness import ServerStreams


@dataclass(frozen=True)
class GovernedBatch(ReportedBatch):
    """With how far the training is, and the neighbours' means."""

    epoch: Tensor  # []: steps taken so far; the loss counts them
    neighbours: Operator


@dataclass(frozen=True)
class NoiseGovernance(RobustLearner):
    """RTGNN (Qian et al. 2023) on the graph as it is: two networks train on one another's counsel.

    With L a node's cross entropy summed over both networks and s = min(1, epoch / ramp):

    - clean: the training nodes of lowest L, max(1 - s / 2, the share with L below its mean) of
      them; they learn their reported class.
    - corrected: of the others, those for which both networks name one class, not the reported one,
      with p1 p2 > 1 - s (1 - min(1/2, 1/n)); they learn that class, times (p1 p2)^((1 - s) / 2).
    - the rest learn their reported class, times ``down_weight``.
    - nodes without a training label for which both networks name one class with p1 p2 >
      threshold^2 learn it: the mean over them.
    - consistency, times ``consistency``: KL both ways between the networks, on training nodes from
      the second epoch on and on the pseudo-labelled ones; and KL(p_u || p_v) of a training node v
      to the mean over its neighbours u, through p_v only, in each network.

    Taken from the authors' program (github.com/GhostQ99/RobustTrainingGNN); the paper's equations
    were not at hand.  Left out: its edges between nodes of like features (K = 0 there), which noisy
    reports do not tell; then its edge estimator is without effect.  Two slips of it are not
    followed: the first training node is never found noisy, and the neighbours' KL is averaged over
    edges before it is weighted.  Its n is the number of training nodes, as here.  The first network
    predicts; the loss recorded is half of the pair's.
    """

    name: ClassVar[str] = "rtgnn"

    threshold: float = 0.95
    consistency: float = 0.1
    down_weight: float = 0.1
    ramp: int = 200  # epochs; the program's number of epochs in all

    def __post_init__(self) -> None:
        check_number("threshold", self.threshold, 0, 1)
        check_number("consistency", self.consistency, 0)
        check_number("down_weight", self.down_weight, 0)
        check_count("ramp", self.ramp, 1)

    def fit(self, runs: Sequence[Run], server: Server) -> list[Outcome]:
        # The second network draws from streams of its own.
        seconds = [replace(run, streams=ServerStreams({}, run.streams.other)) for run in runs]
        return super().fit([*runs, *seconds], server)[: len(runs)]

    def prepare(self, runs: Sequence[Run], server: Server) -> GovernedBatch:
        batch = super().prepare(runs, server)
        return GovernedBatch(
            **parts_of(batch),
            reported=batch.reported,
            epoch=torch.zeros((), device=server.device),
            neighbours=server.graph.kprop("mean"),
        )

    def loss(self, logits: Tensor, batch: GovernedBatch) -> Tensor:  # [2 R, c, N] -> [2 R]
        pairs = len(logits) // 2
        stage = (batch.epoch / self.ramp).clamp(max=1)
        train, reported = batch.train[:pairs], batch.reported[:pairs]
        first, second = logits.softmax(1).chunk(2)
        logs = (first + FLOOR).log(), (second + FLOOR).log()
        sure1, named1 = first.max(1)  # [R, N]
        sure2, named2 = second.max(1)
        agreed, sure = named1 == named2, sure1 * sure2
        counsel = one_hot(named1, torch.ones_like(named1), first.shape[1])

        by_report, by_counsel = (
            -((logs[0] + logs[1]) * target).sum(1) for target in (reported, counsel)
        )
        clean = train * _small(by_report.detach(), train, stage)
        n = train.sum(1, keepdim=True)
        enough = 1 - stage * (1 - (1 / n).clamp(max=0.5))
        differs = (counsel * reported).sum(1) == 0
        corrected = (train - clean) * (agreed & differs & (sure > enough))
        rest = train - clean - corrected
        labelled = clean * by_report + self.down_weight * rest * by_report
        labelled = labelled + corrected * sure ** ((1 - stage) / 2) * by_counsel

        pseudo = (1 - train) * (agreed & (sure > self.threshold**2))
        between = ((first - second) * (logs[0] - logs[1])).sum(1)  # KL both ways
        around = sum(
            _from_neighbours(p, log_p, batch.neighbours)
            for p, log_p in zip((first, second), logs, strict=True)
        )
        consistent = masked_mean((batch.epoch > 0) * between + around, train)
        consistent = consistent + _mean_or_zero(between, pseudo)
        pair = masked_mean(labelled, train) + _mean_or_zero(by_counsel, pseudo)
        pair = pair + self.consistency * consistent
        batch.epoch.add_(1)
        return (pair / 2).repeat(2)


def _small(losses: Tensor, train: Tensor, stage: Tensor) -> Tensor:
    """1.0 at the training nodes whose losses count as small.  [R, N] -> [R, N]"""
    n = train.sum(1, keepdim=True)
    below = (losses < masked_mean(losses, train)[:, None]) * train
    share = torch.maximum(1 - stage / 2, below.sum(1, keepdim=True) / n)
    ordered = torch.where(train > 0, losses, torch.inf).argsort(dim=1, stable=True)
    rank = ordered.argsort(dim=1)
    # A float32 share of n may lie a rounding error below the whole number that it stands for.
    return (rank < (share * n + 1e-3).floor()).to(train.dtype)


def _from_neighbours(p: Tensor, log_p: Tensor, neighbours: Operator) -> Tensor:
    """The mean over u in N(v) of KL(p_u || p_v), without a gradient in p_u.  [R, c, N] -> [R, N]"""
    fixed, fixed_log = p.detach(), log_p.detach()
    mean = neighbours.propagate_classes(fixed)
    entropy = neighbours.propagate_classes((fixed * fixed_log).sum(1, keepdim=True))[:, 0]
    return entropy - (mean * log_p).sum(1)


def _mean_or_zero(x: Tensor, mask: Tensor) -> Tensor:
    """The mean over the nodes of a mask, 0 if there are none.  [R, N] -> [R]"""
    return (x * mask).sum(1) / mask.sum(1).clamp(min=1)
