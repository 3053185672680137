"""What private labels and the graph tell without features: debiased labels, propagated.

(Y' - q) / (p - q) is unbiased for the one-hot labels (p: kept, q: flipped to one given class), and
so is any linear propagation of it for the same propagation of the clean labels.  How far to
propagate, and how much to trust the result, is chosen by the forward-correction loss on held-out
labels: the labelled nodes are dealt into folds, and a fold's scores come from the others' labels.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from lpgnn.privacy import Collected, RandomizedResponse
from lpgnn.propagation import Operator
from lpgnn.training.objectives import FLOOR

Walk = Literal["plain", "lazy"]
Combine = Literal["one", "stack"]

_FOLDS = 5
_STEPS: dict[Walk, tuple[int, ...]] = {
    "plain": (1, 2, 4, 8, 16, 32),
    "lazy": (1, 2, 4, 8, 16, 32, 64),
}
_SHARPNESS = tuple(2 ** (i / 2) for i in range(-6, 13))


@dataclass(frozen=True)
class LabelScores:
    """Class scores of every node; those of a labelled node are made without its own label."""

    scores: Tensor  # [c, N]: logits of p(y)
    choice: str  # how they were made
    loss: float  # forward-correction loss on the held-out labels


def label_scores(
    collected: Collected, operator: Operator, walk: Walk = "plain", combine: Combine = "one"
) -> LabelScores:
    """Propagate the debiased labels and choose by held-out loss.

    "one" takes the single best power (or sum of powers) and its sharpness; "stack" starts from it
    and fits a weight for each, by the same loss with a small ridge, provided that weights fitted on
    the training nodes lower the loss on the validation nodes by more than its standard error.
    """
    device = operator.matrix.device
    labels = collected.labels.to(device)
    labelled = labels >= 0
    response = RandomizedResponse(collected.y_eps, collected.num_classes)
    keep, flip = response.keep_probability(), response.flip_probability()
    candidates = _held_out(labels, collected.num_classes, keep, flip, operator, walk)
    names = list(candidates)
    known = torch.stack([z[:, labelled] for z in candidates.values()])  # [J, c, L]
    sizes = known.flatten(1).std(1).clamp(min=1e-12)  # [J]
    known = known / sizes[:, None, None]
    target = labels[labelled]

    def losses(logits: Tensor, target: Tensor = target) -> Tensor:  # [..., c, L] -> [..., L]
        noisy = flip + (keep - flip) * logits.softmax(-2)
        index = target.expand(*noisy.shape[:-2], 1, -1)
        return -(noisy.gather(-2, index) + FLOOR).log().squeeze(-2)

    each = torch.stack([losses(sharpness * known) for sharpness in _SHARPNESS])  # [T, J, L]
    sharpest = each.mean(2).argmin(0)  # [J]
    best = _most_cautious(each[sharpest, torch.arange(len(names))])
    sharpness = _SHARPNESS[int(sharpest[best])]
    weights = torch.zeros(len(names), device=device)
    weights[best] = sharpness
    choice = f"{names[best]} x {sharpness:.3g}"
    if combine == "stack":
        learning = collected.train_mask.to(device)[labelled]  # [L]; the others judge
        tried = _fit(weights, known[:, :, learning], partial(losses, target=target[learning]))
        judging = partial(losses, target=target[~learning])
        gain = judging(_mixed(weights, known[:, :, ~learning])) - judging(
            _mixed(tried, known[:, :, ~learning])
        )
        if float(gain.mean()) > float(gain.std()) / gain.numel() ** 0.5:
            weights = _fit(weights, known, losses)
            choice = "stack " + " ".join(f"{w:.2f}" for w in weights.tolist())
    total = torch.zeros_like(next(iter(candidates.values())))
    for weight, size, z in zip(weights, sizes, candidates.values(), strict=True):
        total += weight / size * z
    return LabelScores(total, choice, float(losses(_mixed(weights, known)).mean()))


def _most_cautious(losses: Tensor) -> int:
    """The candidate that propagates furthest among those as good as the best.  [J, L] -> j

    As good: its mean loss exceeds the lowest by at most a standard error of their difference
    (Breiman et al.'s rule for cross-validation).  With little to go by, the lowest is luck.
    """
    excess = losses - losses[losses.mean(1).argmin()]  # [J, L]
    error = excess.std(1) / losses.shape[1] ** 0.5
    return int((excess.mean(1) <= error).nonzero().max())  # candidates go ever further


def debias(labels: Tensor, mask: Tensor, num_classes: int, keep: float, flip: float) -> Tensor:
    """(Y' - q) / (p - q) at the masked nodes, zeros elsewhere.  [N], [N] -> [c, N]"""
    one_hot = torch.zeros(num_classes, labels.numel(), device=labels.device)
    one_hot.scatter_(0, labels.clamp(min=0)[None], 1.0)
    return (one_hot - flip) / (keep - flip) * mask


def _held_out(
    labels: Tensor, num_classes: int, keep: float, flip: float, operator: Operator, walk: Walk
) -> dict[str, Tensor]:
    """The propagated labels, each node's own left out.  name -> [c, N]"""
    labelled = labels >= 0
    # The labelled nodes are a random sample, so dealing them out in turn is random, too.
    fold = torch.where(labelled, labelled.cumsum(0) % _FOLDS, _FOLDS)  # unlabelled: nothing to hide
    z = torch.stack(
        [
            debias(labels, labelled & (fold != hidden), num_classes, keep, flip)
            for hidden in range(_FOLDS + 1)
        ]
    )  # [F + 1, c, N]
    own = fold[None, None].expand(1, num_classes, -1)
    total = torch.zeros_like(z)
    candidates: dict[str, Tensor] = {}
    for step in range(1, max(_STEPS[walk]) + 1):
        reached = operator.propagate_classes(z)
        z = reached if walk == "plain" else (z + reached) / 2
        total += z
        if step in _STEPS[walk]:
            if walk == "plain" and step > 1:
                candidates[f"sum to {step}"] = total.gather(0, own)[0]
            candidates[f"power {step}"] = z.gather(0, own)[0]
    return candidates


def _mixed(weights: Tensor, candidates: Tensor) -> Tensor:  # [J], [J, c, L] -> [c, L]
    return (weights[:, None, None] * candidates).sum(0)


def _fit(start: Tensor, known: Tensor, losses: Callable[[Tensor], Tensor]) -> Tensor:
    """Weights of the candidates, by Newton-like steps from the best single one."""
    weights = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [weights], max_iter=60, tolerance_grad=1e-6, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        ridge = (weights - start).square().sum() / known.shape[2]
        value = losses(_mixed(weights, known)).mean() + ridge
        value.backward()
        return value

    optimizer.step(closure)
    fitted = weights.detach()
    return fitted if bool(fitted.isfinite().all()) else start
