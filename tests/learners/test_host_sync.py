"""An epoch never waits for the host: on a GPU the host only queues work."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from lpgnn.learners import (
    BackwardCorrection,
    CrossEntropy,
    Drop,
    EarlyLearning,
    ForwardCorrection,
    NetworkLearner,
    NoiseGovernance,
    Reconstruction,
    Residual,
    SymmetricCrossEntropy,
)
from lpgnn.models import Backbone
from lpgnn.propagation import KProp
from models.reference import BACKBONES, KINDS, Kind
from no_host_sync import HostSync, NoHostSync
from privacy.own_mechanisms import Skewed

from .block_graph import GCN, collected, run_of, server_of
from .own_learner import GeneralisedCrossEntropy

EPOCHS = 4


class WatchedEpochs:
    """Watches whole epochs, from the end of the first to the end of the last but one."""

    def __init__(self) -> None:
        self.epoch, self.watched, self.mode = 0, 0, NoHostSync()

    def __call__(self) -> None:
        self.epoch += 1
        if self.epoch == 1:
            self.mode.__enter__()
        elif self.epoch < EPOCHS:
            self.watched += 1
            if self.epoch == EPOCHS - 1:
                self.mode.__exit__(None, None, None)

    def close(self) -> None:
        if 1 <= self.epoch < EPOCHS - 1:  # an epoch failed
            self.mode.__exit__(None, None, None)


def watch(
    learner: NetworkLearner, mechanism: str = "mb", backbone: Backbone = GCN, **options: Any
) -> int:
    """Train three runs and return how many epochs were watched."""
    runs = [
        run_of(r, collected(r, mechanism, x_eps=1.0 + r, **options), dropout=0.3 * r)
        for r in range(3)
    ]
    server = server_of(
        runs[0].collected,
        "torch",
        filter=KProp(steps=2, conditioning="node"),
        backbone=backbone,
        max_epochs=EPOCHS,
        keep_probabilities=True,
    )
    epochs = WatchedEpochs()
    try:
        learner.fit(runs, replace(server, on_epoch=epochs))
    finally:
        epochs.close()
    return epochs.watched


LEARNERS: list[NetworkLearner] = [
    Drop(steps=2),
    Drop(steps=0),
    ForwardCorrection(),
    CrossEntropy(),
    Residual(),
    GeneralisedCrossEntropy(),
    BackwardCorrection(),
    SymmetricCrossEntropy(),
    EarlyLearning(),
    Reconstruction(2),
    NoiseGovernance(),
]


@pytest.mark.parametrize("learner", LEARNERS, ids=repr)
def test_an_epoch_never_waits_for_the_host(learner: NetworkLearner) -> None:
    assert watch(learner) == EPOCHS - 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mechanism", ["mb", "1b", "lp"])
def test_nor_does_any_backbone_on_any_form_of_reports(kind: Kind, mechanism: str) -> None:
    assert watch(Drop(steps=2), mechanism, BACKBONES[kind]) == EPOCHS - 2


def test_nor_does_a_table_that_is_no_diagonal() -> None:
    assert watch(Drop(steps=2), labels=Skewed()) == EPOCHS - 2


@dataclass(frozen=True)
class LooksAtItsLoss(CrossEntropy):
    """Reads a number in every epoch."""

    def loss(self, logits: Tensor, batch: Any) -> Tensor:
        loss = super().loss(logits, batch)
        if float(loss.detach().max()) > 1e9:
            raise AssertionError
        return loss


@dataclass(frozen=True)
class CountsItsNodes(CrossEntropy):
    """Picks the training nodes by a mask, whose size the host must know."""

    def loss(self, logits: Tensor, batch: Any) -> Tensor:
        surprise = batch.surprise(logits)
        return torch.stack(
            [own[mask > 0].mean() for own, mask in zip(surprise, batch.train, strict=True)]
        )


@pytest.mark.parametrize("learner", [LooksAtItsLoss(), CountsItsNodes()], ids=repr)
def test_the_check_refuses_a_learner_that_waits(learner: NetworkLearner) -> None:
    with pytest.raises(HostSync):
        watch(learner)
