"""Which epoch's model is kept: the paper's rule and that of the authors' released program.

Both rules watch every run at once, on the device, without a look from the host.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True)
class EpochMetrics:
    """What the server can measure after an epoch; accuracies are against noisy labels.  [R] each"""

    train_loss: Tensor  # of the step, in dropout mode
    dropout_train_acc: Tensor  # in dropout mode, before the step
    train_acc: Tensor
    val_loss: Tensor
    val_acc: Tensor

    @classmethod
    def curves(cls, history: "Sequence[EpochMetrics]") -> dict[str, Tensor]:
        """All epochs of all runs, brought to the host at once.  name -> [T, R]"""
        return {
            f.name: torch.stack([getattr(metrics, f.name) for metrics in history]).cpu()
            for f in fields(cls)
        }


class Rule(Protocol):
    """Watches the epochs of all runs and says which of them are the best so far."""

    qualified: Tensor  # [R] bool: whether an epoch kept within Acc*

    def improves(self, epoch: int, metrics: EpochMetrics) -> Tensor:
        """Whether this epoch replaces the best.  -> [R] bool"""
        ...


class PaperRule:
    """Lowest validation loss among epochs with both accuracies at most Acc*.

    Until an epoch qualifies, the lowest loss so far is kept: what remains if none ever does.
    """

    def __init__(self, bound: Tensor) -> None:  # [R]: Acc*
        self.bound = bound
        self.qualified = torch.zeros_like(bound, dtype=torch.bool)
        self.best_loss = torch.full_like(bound, torch.inf)

    def improves(self, epoch: int, metrics: EpochMetrics) -> Tensor:  # -> [R] bool
        qualifies = (metrics.train_acc <= self.bound) & (metrics.val_acc <= self.bound)
        first = qualifies & ~self.qualified
        lower = (metrics.val_loss < self.best_loss) & (qualifies == self.qualified)
        better = first | lower
        self.qualified = self.qualified | qualifies
        self.best_loss = torch.where(better, metrics.val_loss, self.best_loss)
        return better


class ReleasedRule:
    """Replace the best only if validation loss falls and both accuracies rise within bounds.

    The training accuracy is the one in dropout mode, its bound 1.05 Acc*; the first epoch is
    taken as it is.
    """

    def __init__(self, bound: Tensor) -> None:
        self.bound = bound
        self.qualified = torch.ones_like(bound, dtype=torch.bool)
        self.best_loss = torch.full_like(bound, torch.inf)
        self.best_val_acc = torch.full_like(bound, -torch.inf)
        self.best_train_acc = torch.full_like(bound, -torch.inf)

    def improves(self, epoch: int, metrics: EpochMetrics) -> Tensor:
        train_acc = metrics.dropout_train_acc
        better = (
            (metrics.val_loss < self.best_loss)
            & (metrics.val_acc > self.best_val_acc)
            & (metrics.val_acc <= self.bound)
            & (train_acc > self.best_train_acc)
            & (train_acc <= 1.05 * self.bound)
        )
        if epoch == 1:
            better = torch.ones_like(better)
        self.best_loss = torch.where(better, metrics.val_loss, self.best_loss)
        self.best_val_acc = torch.where(better, metrics.val_acc, self.best_val_acc)
        self.best_train_acc = torch.where(better, train_acc, self.best_train_acc)
        return better


class AtEpoch:
    """Takes given epochs, whatever their metrics: those that a rule chose in an earlier fit."""

    def __init__(self, chosen: "BestEpoch") -> None:
        self.epochs, self.qualified = chosen.epoch, chosen.rule.qualified

    def improves(self, epoch: int, metrics: EpochMetrics) -> Tensor:
        return self.epochs == epoch


# The rules by their names; every run records the choice of each.
RULES: dict[str, type[PaperRule] | type[ReleasedRule]] = {
    "paper": PaperRule,
    "released": ReleasedRule,
}


class BestEpoch:
    """Keeps, for every run, the state of the epoch that a rule prefers so far."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.epoch = torch.zeros_like(rule.qualified, dtype=torch.int64)  # 0: none yet
        self.state: dict[str, Tensor] = {}

    def update(self, epoch: int, metrics: EpochMetrics, state: dict[str, Tensor]) -> None:
        """state: tensors with a leading run dimension."""
        better = self.rule.improves(epoch, metrics)
        self.epoch = torch.where(better, epoch, self.epoch)
        if not self.state:
            self.state = {name: tensor.clone() for name, tensor in state.items()}
            return
        for name, tensor in state.items():
            mask = better.view(-1, *[1] * (tensor.dim() - 1))
            torch.where(mask, tensor, self.state[name], out=self.state[name])
