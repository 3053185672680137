"""Training and validation losses: cross entropy, forward correction, Drop.

All of them read the model's logits class-major ([R, c, N]), so that softmax runs along contiguous
memory.  A loss is -sum(log p * weight) with a weight of 1 / |V| at the label of each node of V and
0 elsewhere: runs with different splits share one computation, and its gradient needs no scatter.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lpgnn.privacy import Collected, RandomizedResponse
from lpgnn.propagation import Operator

Learner = Literal["drop", "forward", "cross_entropy"]

# The losses are functions of probabilities, and float32 probabilities become zero: log(p + FLOOR).
# It matters where labels are clean and reports are not: rectified reports are large (14,000 on Cora
# at x_eps = 0.1), logits saturate, and the floor keeps hopeless nodes from ruling the gradient. The
# logarithm taken from the logits instead, without a floor, costs Cora MB at x_eps = 0.01 about
# 20 points.
FLOOR = 1e-20


@dataclass(frozen=True)
class Targets:
    """What the losses compare with, for R runs."""

    noisy: Tensor  # [R, N] int64: y', -1 off the labelled nodes
    train: Tensor  # [R, N], 1.0 on training nodes
    val: Tensor  # [R, N], 1.0 on validation nodes
    training_weight: Tensor  # [R, c, N]: at y~ (y' without KProp) of training nodes
    validation_weight: Tensor  # [R, c, N]: at y' of validation nodes


@dataclass(frozen=True)
class Objective:
    """The losses of Algorithm 3, in its order; ``forward`` has no KProp, ``cross_entropy`` no T."""

    learner: Learner
    operator: Operator
    steps: int  # K_y
    keep: Tensor  # [R, 1, 1]: p(y' = y | y)
    flip: Tensor  # [R, 1, 1]: p(y' = k | y) for one other k

    def log_noisy(self, logits: Tensor) -> Tensor:
        """log p(y'|x) from p(y|x) (paper Eq. p_yp), floored.  [R, c, N] -> [R, c, N]"""
        return (self._noisy(logits) + FLOOR).log()

    def _noisy(self, logits: Tensor) -> Tensor:
        """T is flip everywhere and keep on the diagonal, and p(y|x) sums to one."""
        p = logits.softmax(1)
        return p if self.learner == "cross_entropy" else self.flip + (self.keep - self.flip) * p

    def training_loss(self, logits: Tensor, targets: Targets) -> Tensor:
        """The loss that is minimised, a number for each run.  -> [R]"""
        if self.steps == 0:
            return _cross_entropy(self.log_noisy(logits), targets.training_weight)
        propagated = self.operator.propagate_classes(self._noisy(logits), self.steps)
        log_denoised = propagated.log_softmax(1)  # log p(y~|x) (paper Eq. p_yt)
        return _cross_entropy(log_denoised, targets.training_weight)

    def validation_loss(self, logits: Tensor, targets: Targets) -> Tensor:
        """The loss that models are chosen by: against y' itself, whatever K_y.  -> [R]"""
        return _cross_entropy(self.log_noisy(logits), targets.validation_weight)


def _cross_entropy(log_p: Tensor, weight: Tensor) -> Tensor:
    return -(log_p * weight).flatten(1).sum(1)  # [R, c, N] -> [R]


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """The mean over the nodes of a mask.  [R, N], [R, N] -> [R]

    The sum comes first: a mean of ones is then one, not a rounding error above Acc* = 1.
    """
    return (x * mask).sum(1) / mask.sum(1)


def make_objective(
    collected: Sequence[Collected],
    learner: Learner,
    operator: Operator,
    steps: int,
    device: torch.device,
) -> Objective:
    responses = [RandomizedResponse(c.y_eps, c.num_classes) for c in collected]
    keep = torch.tensor([r.keep_probability() for r in responses], device=device)
    flip = torch.tensor([r.flip_probability() for r in responses], device=device)
    return Objective(learner, operator, steps, keep[:, None, None], flip[:, None, None])


def make_targets(
    collected: Sequence[Collected], operator: Operator, steps: int, device: torch.device
) -> Targets:
    """Collect labels and masks of the runs, and denoise the labels with KProp."""
    labels = torch.stack([c.labels for c in collected]).to(device)  # [R, N], -1 = unlabelled
    train = torch.stack([c.train_mask for c in collected]).to(device)
    val = torch.stack([c.val_mask for c in collected]).to(device)
    num_classes = collected[0].num_classes
    received = operator.propagate_classes(_at_label(labels, labels >= 0, num_classes), steps)
    mass, denoised = received.max(dim=1)  # [R, N]
    # A node that no label reaches has no y~ to learn from: it takes no part in the loss.
    informed = train & (mass > 0)
    return Targets(
        noisy=labels,
        train=train.to(received.dtype),
        val=val.to(received.dtype),
        training_weight=_mean_weight(_at_label(denoised, informed, num_classes)),
        validation_weight=_mean_weight(_at_label(labels, val, num_classes)),
    )


def _at_label(labels: Tensor, mask: Tensor, num_classes: int) -> Tensor:
    """1.0 at the label of each masked node.  [R, N], [R, N] -> [R, c, N]"""
    weight = torch.zeros(labels.shape[0], num_classes, labels.shape[1], device=labels.device)
    return weight.scatter_(1, labels.clamp(min=0)[:, None], mask[:, None].to(weight.dtype))


def _mean_weight(weight: Tensor) -> Tensor:
    return weight / weight.sum((1, 2), keepdim=True).clamp(min=1)
