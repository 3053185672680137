"""The labels of a batch of runs, as losses and metrics read them.

Everything is class-major ([R, c, N]), so that softmax runs along contiguous memory.  A mean over
nodes is a weighted sum with weights of 1 / |V| on V and 0 elsewhere: runs with different splits
share one computation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from lpgnn.privacy import Collected, LabelReports

# The losses are functions of probabilities, and float32 probabilities become zero: log(p + FLOOR).
# It matters where labels are clean and reports are not: rectified reports are large (14,000 on Cora
# at x_eps = 0.1), logits saturate, and the floor keeps hopeless nodes from ruling the gradient. The
# logarithm taken from the logits instead, without a floor, costs Cora MB at x_eps = 0.01 about
# 20 points.
FLOOR = 1e-20


@dataclass(frozen=True)
class LabelBatch:
    """Label reports and masks of R runs, on the device."""

    classes: Tensor  # [R, N] int64: the likeliest class, -1 off the labelled nodes
    lowest: Tensor  # [R, N]: the smallest likelihood of a node's report over the classes
    excess: Tensor  # [R, c, N]: the likelihood above it
    noise_floor: Tensor  # [R, c, 1]: the smallest p(likeliest class = k | y) over y
    noise_excess: Tensor  # [R, c, c] above it as a matrix, or [R, c, 1] if that is diagonal
    train: Tensor  # [R, N], 1.0 on training nodes
    val: Tensor  # [R, N], 1.0 on validation nodes
    accuracy_bound: Tensor  # [R]: Acc*, how often the likeliest class is the true one

    @classmethod
    def of(
        cls, collected: Sequence[Collected], device: torch.device, *, with_val: bool = False
    ) -> "LabelBatch":
        """with_val: the validation nodes count as training nodes, too."""
        labels = [c.labels for c in collected]
        train = [c.train_mask | c.val_mask if with_val else c.train_mask for c in collected]
        likelihood = torch.stack([own.likelihood for own in labels]).to(device)  # [R, c, N]
        lowest = likelihood.amin(1)
        transition = torch.stack([own.transition for own in labels])  # [R, y, k]
        by_class = transition.to(device, torch.float32).transpose(1, 2)  # [R, k, y]
        noise_floor = by_class.amin(2, keepdim=True)
        noise_excess = by_class - noise_floor
        diagonal = noise_excess.diagonal(dim1=1, dim2=2)  # [R, k]
        if all(_is_diagonal_above_floor(own) for own in labels):
            noise_excess = diagonal[:, :, None]
        return cls(
            classes=torch.stack([own.classes for own in labels]).to(device),
            lowest=lowest,
            excess=likelihood - lowest[:, None],
            noise_floor=noise_floor,
            noise_excess=noise_excess,
            train=torch.stack(train).to(device, torch.float32),
            val=torch.stack([c.val_mask for c in collected]).to(device, torch.float32),
            accuracy_bound=torch.stack([own.accuracy for own in labels]).to(device, torch.float32),
        )

    def taken_as_exact(self) -> "LabelBatch":
        """The same with the likeliest class taken for the truth, as if there was no noise."""
        c = self.excess.shape[1]
        labelled = self.classes >= 0
        return replace(
            self,
            lowest=(~labelled).to(self.lowest.dtype),
            excess=one_hot(self.classes, labelled, c),
            noise_floor=torch.zeros_like(self.noise_floor),
            noise_excess=torch.ones_like(self.noise_floor),
            accuracy_bound=torch.ones_like(self.accuracy_bound),
        )

    def surprise(self, logits: Tensor) -> Tensor:
        """-log p(report | x), floored: the forward-correction loss of each node.

        p(report | x) = sum_y p(report | y) p(y | x) (paper Eq. p_yp); p(y | x) sums to one.
        [R, c, N] -> [R, N]
        """
        likelihood = self.lowest + (self.excess * logits.softmax(1)).sum(1)
        return -(likelihood + FLOOR).log()

    def noisy_posterior(self, logits: Tensor) -> Tensor:
        """p(likeliest class = k | x) from p(y | x).  [R, c, N] -> [R, c, N]"""
        p = logits.softmax(1)
        is_diagonal = self.noise_excess.shape[2] == 1
        return self.noise_floor + (self.noise_excess * p if is_diagonal else self.noise_excess @ p)

    def train_mean(self, x: Tensor) -> Tensor:
        """The mean over each run's training nodes.  [R, N] -> [R]"""
        return (x * self._train_weight).sum(1)

    def val_mean(self, x: Tensor) -> Tensor:
        """The mean over each run's validation nodes.  [R, N] -> [R]"""
        return (x * self._val_weight).sum(1)

    @cached_property
    def _train_weight(self) -> Tensor:
        return mean_weight(self.train)

    @cached_property
    def _val_weight(self) -> Tensor:
        return mean_weight(self.val)


def _is_diagonal_above_floor(labels: LabelReports) -> bool:
    """Whether every wrong class is equally likely, as in randomized response."""
    above = labels.transition - labels.transition.amin(0)
    return bool((above - torch.diag(above.diagonal()) == 0).all())


def one_hot(classes: Tensor, mask: Tensor, num_classes: int) -> Tensor:
    """1.0 at the class of each masked node.  [R, N], [R, N] -> [R, c, N]"""
    out = torch.zeros(classes.shape[0], num_classes, classes.shape[1], device=classes.device)
    return out.scatter_(1, classes.clamp(min=0)[:, None], mask[:, None].to(out.dtype))


def mean_weight(mask: Tensor) -> Tensor:
    """1 / |V| on the nodes of a mask.  [R, ...] -> [R, ...]"""
    return mask / mask.flatten(1).sum(1).clamp(min=1).view(-1, *[1] * (mask.dim() - 1))


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """The mean over the nodes of a mask.  [R, N], [R, N] -> [R]

    The sum comes first: a mean of ones is then one, not a rounding error above Acc* = 1.
    """
    return (x * mask).sum(1) / mask.sum(1)


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
