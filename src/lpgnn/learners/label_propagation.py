"""Labels only: what private labels and the graph tell without features.

Every report has an unbiased estimate of its one-hot label, and any linear propagation of it is
unbiased for the same propagation of the clean labels.  How far to propagate, and how much to trust
the result, is chosen by the forward-correction loss on held-out labels: the labelled nodes are
dealt into folds, and a fold's scores come from the others' labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from lpgnn.components import before
from lpgnn.errors import InputError
from lpgnn.learners.batch import FLOOR, masked_mean, predict
from lpgnn.learners.learner import Learner, Outcome, Run, Selected, Server
from lpgnn.learners.selection import RULES
from lpgnn.privacy import Collected
from lpgnn.propagation import Aggregator, PreparedGraph, lazy_lengths, spread_codes
from lpgnn.propagation.operators import AGGREGATORS

Walk = Literal["plain", "lazy", "coded"]
Combine = Literal["one", "stack"]
Labels = Literal["train", "train+val"]

_FOLDS = 5
_LAZY_STEPS = (1, 2, 4, 8, 16, 32, 64)
_STEPS: dict[Walk, tuple[int, ...]] = {
    "plain": (1, 2, 4, 8, 16, 32),
    "lazy": _LAZY_STEPS,
    "coded": _LAZY_STEPS,
}
_CODE_STEPS = (16, 32)
_CODE_RIDGE = 2.0  # times the mean square of an estimate, which grows as the budget falls
# Towards the best candidate; a coded walk has more than twice as many of them.
_RIDGE: dict[Walk, float] = {"plain": 1.0, "lazy": 1.0, "coded": 4.0}
_SHARPNESS = tuple(2 ** (i / 2) for i in range(-6, 13))


@dataclass(frozen=True)
class LabelPropagation(Learner):
    """Predict from the propagated labels alone; no features, no network, no training.

    ``walk``: plain takes powers and sums of powers of P, lazy powers of (I + P) / 2.  coded takes
    the latter twice, as they are and divided by the lengths of the walk's rows, which noise grows
    with, and ridge regressions of the labels on codes that tell nodes by their neighbourhoods.
    ``combine``: one takes the best of them by held-out loss, stack a weighted sum of all; a label
    decides on its own node's scores by these choices only.  ``labels``: whose are propagated.
    With clean labels a network learns from those of the training nodes; Drop's targets use the
    validation nodes' as well ("train+val"), half as many again.
    """

    name: ClassVar[str] = "label_propagation"
    uses_network: ClassVar[bool] = False

    walk: Walk = "plain"
    combine: Combine = "one"
    aggregator: Aggregator = "gcn"
    labels: Labels = field(default="train", metadata=before("train+val"))

    def __post_init__(self) -> None:
        check_options(self.walk, self.combine, self.aggregator, self.labels)

    def fit(self, runs: Sequence[Run], server: Server) -> list[Outcome]:
        outcomes = []
        for run in runs:
            scores = label_scores(
                run.collected, server.graph, self.aggregator, self.walk, self.combine, self.labels
            )
            outcomes.append(outcome_of(scores, run.collected))
        if server.on_epoch is not None:
            server.on_epoch()
        return outcomes


def check_options(walk: str, combine: str, aggregator: str, labels: str) -> None:
    """The options that this learner shares with the residual one."""
    for name, value, allowed in (
        ("walk", walk, get_args(Walk)),
        ("combine", combine, get_args(Combine)),
        ("aggregator", aggregator, AGGREGATORS),
        ("labels", labels, get_args(Labels)),
    ):
        if value not in allowed:
            raise InputError(name, value, f"must be one of {', '.join(allowed)}")


@dataclass(frozen=True)
class LabelScores:
    """Class scores of every node; the labels that went into a node's are those of other folds.

    How they were put together is one choice for all nodes, by all labels.
    """

    scores: Tensor  # [c, N]: logits of p(y)
    choice: str  # how they were made
    loss: float  # forward-correction loss on the held-out labels


@dataclass(frozen=True)
class PropagatedLabels(LabelScores):
    """The same, and what every node's scores are without the labels of a fold."""

    without: Tensor  # [F + 1, c, N]: without fold f's labels; the last hides none
    fold: Tensor  # [N]: of a node whose label is propagated, F for the others


def outcome_of(scores: LabelScores, collected: Collected) -> Outcome:
    """The scores in the form of a training of one epoch."""
    predictions = predict(scores.scores[None])[0].cpu()
    agrees = (predictions == collected.labels.classes).float()
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
    selected = Selected(1, True, predictions, scores.scores.softmax(0).cpu())
    return Outcome(history, dict.fromkeys(RULES, selected))


def label_scores(
    collected: Collected,
    graph: PreparedGraph,
    aggregator: Aggregator = "gcn",
    walk: Walk = "plain",
    combine: Combine = "one",
    labels: Labels = "train",
) -> PropagatedLabels:
    """Propagate the estimated labels and choose by held-out loss.

    The loss looks at the reports of training and validation nodes, whichever labels are propagated,
    as a network's choice of its epoch does.

    "one" takes the single best power (or sum of powers) and its sharpness; "stack" starts from it
    and fits a weight for each, by the same loss with a small ridge, provided that weights fitted on
    the training nodes lower the loss on the validation nodes by more than its standard error.
    """
    device = graph.backend.device
    labelled = (collected.labels.classes >= 0).to(device)
    sending = labelled if labels == "train+val" else collected.train_mask.to(device)
    estimate = collected.labels.estimate.to(device)
    candidates, fold = _held_out(estimate, sending, graph, aggregator, walk)
    names = list(candidates)
    known = torch.stack([of_own_fold(z, fold)[:, labelled] for z in candidates.values()])
    sizes = known.flatten(1).std(1).clamp(min=1e-12)  # [J]
    known = known / sizes[:, None, None]  # [J, c, L]
    reports = collected.labels.likelihood.to(device)[:, labelled]  # [c, L]
    losses = partial(report_losses, reports=reports)
    each = torch.stack([losses(sharpness * known) for sharpness in _SHARPNESS])  # [T, J, L]
    sharpest = each.mean(2).argmin(0)  # [J]
    best = _most_cautious(each[sharpest, torch.arange(len(names))])
    sharpness = _SHARPNESS[int(sharpest[best])]
    weights = torch.zeros(len(names), device=device)
    weights[best] = sharpness
    choice = f"{names[best]} x {sharpness:.3g}"
    learning = collected.train_mask.to(device)[labelled]  # [L]; the others judge
    if combine == "stack" and 0 < int(learning.sum()) < len(learning) - 1:
        ridge = _RIDGE[walk]
        tried = fit_weights(weights, known[:, :, learning], reports[:, learning], ridge)
        judging = partial(report_losses, reports=reports[:, ~learning])
        gain = judging(_mixed(weights, known[:, :, ~learning])) - judging(
            _mixed(tried, known[:, :, ~learning])
        )
        if float(gain.mean()) > float(gain.std()) / gain.numel() ** 0.5:
            weights = fit_weights(weights, known, reports, ridge)
            choice = "stack " + " ".join(f"{w:.2f}" for w in weights.tolist())
    total = torch.zeros_like(next(iter(candidates.values())))
    for weight, size, z in zip(weights, sizes, candidates.values(), strict=True):
        total += weight / size * z
    loss = float(losses(_mixed(weights, known)).mean())
    return PropagatedLabels(of_own_fold(total, fold), choice, loss, total, fold)


def report_losses(logits: Tensor, reports: Tensor) -> Tensor:
    """-log p(report) under the logits' classes.  [..., c, L], [c, L] -> [..., L]

    reports: p(report | class)
    """
    lowest = reports.amin(0)
    likelihood = lowest + ((reports - lowest) * logits.softmax(-2)).sum(-2)
    return -(likelihood + FLOOR).log()


def _most_cautious(losses: Tensor) -> int:
    """The last candidate, of those that go ever further, that is as good as the best.  [J, L] -> j

    As good: its mean loss exceeds the lowest by at most a standard error of their difference
    (Breiman et al.'s rule for cross-validation).  With little to go by, the lowest is luck.
    """
    best = losses.mean(1).argmin()
    if losses.shape[1] < 2:
        return int(best)
    excess = losses - losses[best]  # [J, L]
    error = excess.std(1) / losses.shape[1] ** 0.5
    return int((excess.mean(1) <= error).nonzero().max())


def of_own_fold(z: Tensor, fold: Tensor) -> Tensor:
    """What each node gets when its own fold is hidden.  [F + 1, c, N], [N] -> [c, N]"""
    return z.gather(0, fold[None, None].expand(1, z.shape[1], -1))[0]


def _held_out(
    estimate: Tensor, sending: Tensor, graph: PreparedGraph, aggregator: Aggregator, walk: Walk
) -> tuple[dict[str, Tensor], Tensor]:
    """The estimates of some nodes, propagated, without those of each fold and with all.

    [c, N], [N] -> name -> [F + 1, c, N], and the fold of each node [N]
    """
    operator = graph.kprop(aggregator)
    # The sending nodes are a random sample, so dealing them out in turn is random, too.
    fold = torch.where(sending, sending.cumsum(0) % _FOLDS, _FOLDS)  # the others hide nothing
    z = torch.stack(
        [estimate * (sending & (fold != hidden)) for hidden in range(_FOLDS + 1)]
    )  # [F + 1, c, N]
    total = torch.zeros_like(z)
    candidates: dict[str, Tensor] = {}
    for step in range(1, max(_STEPS[walk]) + 1):
        reached = operator.propagate_classes(z)
        z = reached if walk == "plain" else (z + reached) / 2
        if walk == "plain":
            total += z
        if step in _STEPS[walk]:
            if walk == "plain" and step > 1:
                candidates[f"sum to {step}"] = total.clone()
            candidates[f"power {step}"] = z
    if walk != "coded":
        return candidates, fold
    lengths = graph.once(("lazy lengths", aggregator), lambda: lazy_lengths(operator, _LAZY_STEPS))
    codes = graph.once(("codes", aggregator), lambda: spread_codes(operator, _CODE_STEPS))
    smallest = torch.finfo(z.dtype).tiny
    by_length = {
        f"power {step} by length": candidates[f"power {step}"] / length.clamp(min=smallest)
        for step, length in lengths.items()
    }
    coded = {f"codes {step}": _regressed(x, estimate, fold) for step, x in codes.items()}
    return by_length | candidates | coded, fold


def _regressed(codes: Tensor, estimate: Tensor, fold: Tensor) -> Tensor:
    """Ridge regression of estimates on codes, without those of each fold and with all.

    [N, w], [c, N], [N] -> [F + 1, c, N]
    """
    second, mixed, squares, counts = [], [], [], []
    for own in (fold == hidden for hidden in range(_FOLDS)):
        x, y = codes[own], estimate[:, own]
        second.append((x.t() @ x).double())
        mixed.append((x.t() @ y.t()).double())
        squares.append(y.double().square().sum())
        counts.append(y.shape[1])
    unit = torch.eye(codes.shape[1], dtype=torch.float64, device=codes.device)
    found = []
    for hidden in range(_FOLDS + 1):
        seen = [f for f in range(_FOLDS) if f != hidden]
        count = sum(counts[f] for f in seen)
        noise = sum(squares[f] for f in seen) / count if count else 1.0
        matrix = sum((second[f] for f in seen), _CODE_RIDGE * noise * unit)
        weights = torch.linalg.solve(matrix, sum(mixed[f] for f in seen))  # [w, c]
        found.append((codes @ weights.to(codes.dtype)).t())
    return torch.stack(found)


def _mixed(weights: Tensor, candidates: Tensor) -> Tensor:  # [J], [J, c, L] -> [c, L]
    return (weights[:, None, None] * candidates).sum(0)


def fit_weights(start: Tensor, known: Tensor, reports: Tensor, ridge: float = 1.0) -> Tensor:
    """Weights of candidate scores by forward-corrected loss, with a small ridge to the start.

    [J], [J, c, L], [c, L] -> [J]
    """
    weights = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [weights], max_iter=60, tolerance_grad=1e-6, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        away = ridge * (weights - start).square().sum() / known.shape[2]
        value = report_losses(_mixed(weights, known), reports).mean() + away
        value.backward()
        return value

    optimizer.step(closure)
    fitted = weights.detach()
    return fitted if bool(fitted.isfinite().all()) else start
