"""Locally private GNN training (paper Algorithm 3), server side, for R runs side by side."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lpgnn.models import Backbone, Weights
from lpgnn.models.dropout import Dropout
from lpgnn.privacy import Collected, RandomizedResponse
from lpgnn.propagation import Operator, propagated_features
from lpgnn.training.adam import Adam
from lpgnn.training.labels import LabelScores
from lpgnn.training.objectives import (
    Learner,
    Objective,
    Targets,
    make_objective,
    make_targets,
    masked_mean,
)
from lpgnn.training.selection import (
    SELECTIONS,
    EpochMetrics,
    Keeper,
    PaperRule,
    ReleasedRule,
    Selection,
)


@dataclass(frozen=True)
class Hyperparameters:
    """What may differ between runs that train side by side."""

    learning_rate: float
    weight_decay: float
    dropout: float


@dataclass(frozen=True)
class Run:
    """One training: what the server collected, its hyper-parameters and its random streams."""

    collected: Collected
    hyperparameters: Hyperparameters
    weights_generator: torch.Generator
    dropout_generator: torch.Generator


@dataclass(frozen=True)
class Selected:
    """The epoch that a rule chose, and the model's predictions then."""

    epoch: int  # from 1
    qualified: bool  # False: no epoch kept within Acc*, the lowest loss was taken
    predictions: Tensor  # [N] uint8
    weights: Weights  # empty unless asked for
    logits: Tensor | None = None  # [c, N], on the device; None unless asked for


@dataclass(frozen=True)
class Trained:
    """The outcome of one run."""

    history: dict[str, Tensor]  # each [T]: train_loss, dropout_train_acc, train_acc, val_*
    selected: dict[Selection, Selected]

    @property
    def failed_epoch(self) -> int | None:
        """The first epoch whose loss is not a number, if any."""
        broken = ~(self.history["train_loss"].isfinite() & self.history["val_loss"].isfinite())
        return int(broken.nonzero()[0, 0]) + 1 if bool(broken.any()) else None


def train(
    runs: Sequence[Run],
    backbone: Backbone,
    operator: Operator,
    *,
    learner: Learner,
    x_steps: int,
    y_steps: int,
    max_epochs: int,
    row_factors: Tensor | None = None,
    prior: Tensor | None = None,
    keep_weights: bool = False,
    keep_logits: bool = False,
    on_epoch: Callable[[], None] | None = None,
) -> list[Trained]:
    """Train runs on the same graph side by side; nothing that one run does reaches another.

    operator: one step of KProp; y_steps is 0 unless the learner is Drop; row_factors: [N], the
    conditioning of P^K X'; prior: [R, c, N], logits that the network's are added to.
    """
    device = backbone.device
    collected = [run.collected for run in runs]
    reports = [c.features for c in collected]
    x = propagated_features(reports, operator, x_steps, device, row_factors)
    targets = make_targets(collected, operator, y_steps, device)
    objective = make_objective(collected, learner, operator, y_steps, device)
    weights = _initial_weights(runs, backbone)
    tuned = [run.hyperparameters for run in runs]
    adam = Adam(
        weights,
        torch.tensor([t.learning_rate for t in tuned], device=device),
        torch.tensor([t.weight_decay for t in tuned], device=device),
    )
    dropout = Dropout([t.dropout for t in tuned], [run.dropout_generator for run in runs])
    bound = _accuracy_bound(collected, learner, device)
    keepers: dict[Selection, Keeper] = {
        "paper": Keeper(PaperRule(bound), len(runs), device),
        "released": Keeper(ReleasedRule(bound), len(runs), device),
    }

    # Not compiled: torch.compile of the loss and its gradient takes 1.71 instead of 1.84 ms for ten
    # runs on Cora and 5.1 instead of 3.2 ms for five on Facebook, a minute for its first call, and
    # a C++ compiler on the user's machine.
    history = []
    hidden = backbone.hidden(weights, x)
    for epoch in range(1, max_epochs + 1):
        logits = _plus(backbone.logits(weights, hidden, dropout), prior)  # [R, c, N]
        loss = objective.training_loss(logits, targets)  # [R]
        # The runs share no weight, so the gradient of the sum is each run's own gradient.
        gradients = torch.autograd.grad(loss.sum(), list(weights.values()))
        adam.step(dict(zip(weights, gradients, strict=True)))
        hidden = backbone.hidden(weights, x)  # for the evaluation and the next step
        with torch.no_grad():
            clean = _plus(backbone.logits(weights, hidden, None), prior)
            metrics, predictions = _evaluate(clean, objective, targets, loss, logits)
        state = {"predictions": predictions} | (weights if keep_weights else {})
        if keep_logits:
            state["logits"] = clean
        for keeper in keepers.values():
            keeper.watch(epoch, metrics, {name: t.detach() for name, t in state.items()})
        history.append(metrics)
        if on_epoch is not None:
            on_epoch()
    return _outcomes(history, keepers, len(runs))


def _initial_weights(runs: Sequence[Run], backbone: Backbone) -> Weights:
    drawn = [backbone.initial_weights(generator=run.weights_generator) for run in runs]
    return {
        name: torch.stack([w[name] for w in drawn]).to(backbone.device).requires_grad_()
        for name in drawn[0]
    }


def _accuracy_bound(
    collected: Sequence[Collected], learner: Learner, device: torch.device
) -> Tensor:
    """Acc* of each run; the cross-entropy baseline takes its labels for clean ones.  -> [R]"""
    if learner == "cross_entropy":
        return torch.ones(len(collected), device=device)
    responses = [RandomizedResponse(c.y_eps, c.num_classes) for c in collected]
    return torch.tensor([r.keep_probability() for r in responses], device=device)


def _plus(logits: Tensor, prior: Tensor | None) -> Tensor:
    return logits if prior is None else logits + prior


def _evaluate(
    logits: Tensor,
    objective: Objective,
    targets: Targets,
    train_loss: Tensor,
    train_logits: Tensor,
) -> tuple[EpochMetrics, Tensor]:
    """Measure the updated model without dropout, as far as the server can.  logits: [R, c, N]"""
    predictions = predict(logits)  # [R, N]
    correct = predictions == targets.noisy
    correct_in_training = predict(train_logits) == targets.noisy
    return EpochMetrics(
        train_loss=train_loss.detach(),
        dropout_train_acc=masked_mean(correct_in_training, targets.train),
        train_acc=masked_mean(correct, targets.train),
        val_loss=objective.validation_loss(logits, targets),
        val_acc=masked_mean(correct, targets.val),
    ), predictions


def by_labels(scores: LabelScores, collected: Collected) -> Trained:
    """The outcome of the labels-only learner, in the form of a training of one epoch."""
    predictions = predict(scores.scores[None])[0].cpu()
    agrees = (predictions == collected.labels).float()
    train_acc = masked_mean(agrees[None], collected.train_mask[None].float())
    val_acc = masked_mean(agrees[None], collected.val_mask[None].float())
    loss = torch.tensor([scores.loss])
    history = {
        "train_loss": loss,
        "dropout_train_acc": train_acc,
        "train_acc": train_acc,
        "val_loss": loss,
        "val_acc": val_acc,
    }
    selected = Selected(epoch=1, qualified=True, predictions=predictions, weights={})
    return Trained(history, dict.fromkeys(SELECTIONS, selected))


def predict(logits: Tensor) -> Tensor:
    """The likeliest class.  [R, c, N] -> [R, N]

    argmax along a short, strided dimension takes longer on a CPU than the whole of training.
    """
    classes = logits.shape[1]
    # The first class ranks highest, so that it wins a tie.
    rank = torch.arange(classes, 0, -1, dtype=logits.dtype, device=logits.device)[:, None]
    # Ones and zeros in the logits' own type: comparisons into bool are not vectorised.
    at_top = torch.eq(logits, logits.amax(1, keepdim=True), out=torch.empty_like(logits))
    chosen = classes - at_top.mul_(rank).amax(1)  # [R, N]
    return chosen.to(torch.uint8 if classes < 256 else torch.int32)


def _outcomes(
    history: Sequence[EpochMetrics], keepers: dict[Selection, Keeper], runs: int
) -> list[Trained]:
    """Bring everything to the host, once, and take the runs apart."""
    names = ("train_loss", "dropout_train_acc", "train_acc", "val_loss", "val_acc")
    columns = {
        name: torch.stack([getattr(metrics, name) for metrics in history]).cpu() for name in names
    }  # [T, R]
    outcomes = []
    for run in range(runs):
        selected: dict[Selection, Selected] = {}
        for selection in SELECTIONS:
            keeper = keepers[selection]
            kept = {name: tensor[run] for name, tensor in keeper.kept.items()}
            logits = kept.pop("logits", None)
            kept = {name: tensor.cpu() for name, tensor in kept.items()}
            predictions = kept.pop("predictions")
            epoch, qualified = int(keeper.epoch[run]), bool(keeper.rule.qualified[run])
            selected[selection] = Selected(epoch, qualified, predictions, kept, logits)
        own = {name: column[:, run] for name, column in columns.items()}
        outcomes.append(Trained(own, selected))
    return outcomes
