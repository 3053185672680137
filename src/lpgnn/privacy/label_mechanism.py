"""How a labelled node perturbs its label: the interface of all label mechanisms.

A mechanism whose report is a class is a subclass of ``ClassMechanism`` with a ``transition``; any
other is a subclass of ``LabelMechanism`` that also says how to read its reports.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar, Self

import torch
from torch import Tensor

from lpgnn.components import UNBOUND, Component
from lpgnn.errors import InputError
from lpgnn.privacy.reports import LabelReports


@dataclass(frozen=True)
class LabelMechanism(Component, ABC):
    """A local randomizer of one node's label; a run binds its budget and the number of classes."""

    kind: ClassVar[str] = "label_mechanism"
    bound_fields: ClassVar[tuple[str, ...]] = ("epsilon", "num_classes")

    epsilon: float = UNBOUND
    num_classes: int = 0

    def __post_init__(self) -> None:
        if not self.is_bound:
            return
        if not self.epsilon > 0:  # written so that NaN is refused
            raise InputError("y_eps", self.epsilon, "must be above 0 (inf: labels as they are)")
        if self.num_classes < 2:
            raise InputError("num_classes", self.num_classes, "must be at least 2")

    @property
    def is_bound(self) -> bool:
        return not (math.isnan(self.epsilon) and self.num_classes == 0)

    def bind(self, epsilon: float, num_classes: int) -> Self:
        """The mechanism at a budget, for c classes."""
        return self.replace(epsilon=epsilon, num_classes=num_classes)

    @abstractmethod
    def perturb(self, labels: Tensor, *, generator: torch.Generator) -> Tensor:
        """Draw the report of every node, independently.  [n] -> [n, ...]"""

    @abstractmethod
    def likelihood(self, reports: Tensor) -> Tensor:
        """p(report | class), up to a factor of the report's own.  [n, ...] -> [n, c]"""

    @abstractmethod
    def estimate(self, reports: Tensor) -> Tensor:
        """An unbiased estimate of the one-hot label.  [n, ...] -> [n, c]"""

    @abstractmethod
    def transition(self) -> Tensor:
        """p(likeliest class = k | label = y), ties broken at random.  -> [c, c] float64"""

    def likeliest(self, reports: Tensor, *, generator: torch.Generator) -> Tensor:
        """The class under which a report is likeliest; ties are broken at random.  -> [n] int64"""
        p = self.likelihood(reports).double()
        top = p == p.max(dim=1, keepdim=True).values
        return (top * torch.rand(p.shape, dtype=torch.float64, generator=generator)).argmax(1)

    def spent(self) -> Decimal | None:
        """A proven bound on what a node spends, rounding included; None: there is no proof."""
        return None

    def check_budget(self) -> None:
        """Refuse to run where more than epsilon would be spent, as far as that is known."""

    def parameters(self) -> dict[str, float]:
        """The public numbers the mechanism runs with, for the plan of a run."""
        return {}

    def collect(
        self, labels: Tensor, labelled: Tensor, *, generator: torch.Generator
    ) -> LabelReports:
        """Have the labelled nodes report.  labels: [N] int64, labelled: [N] bool"""
        own = labels[labelled]
        if bool(((own < 0) | (own >= self.num_classes)).any()):
            found = f"{int(own.min())}..{int(own.max())}"
            raise InputError("labels", found, f"must lie in 0..{self.num_classes - 1}")
        self.check_budget()
        return self.received(self.perturb(own, generator=generator), labelled, generator=generator)

    def received(
        self, reports: Tensor, labelled: Tensor, *, generator: torch.Generator
    ) -> LabelReports:
        """The server's half: what the reports of the labelled nodes say.

        reports: [n, ...], labelled: [N] bool with n ones; ``generator`` breaks ties
        """
        classes = torch.full(labelled.shape, -1, dtype=torch.int64)
        classes[labelled] = self.likeliest(reports, generator=generator)
        likelihood = torch.ones(self.num_classes, labelled.numel())
        likelihood[:, labelled] = self.likelihood(reports).float().t()
        estimate = torch.zeros(self.num_classes, labelled.numel())
        estimate[:, labelled] = self.estimate(reports).float().t()
        shares = class_shares(estimate[:, labelled])
        return LabelReports(classes, likelihood, estimate, self.transition(), shares)


@dataclass(frozen=True)
class ClassMechanism(LabelMechanism):
    """A mechanism that reports a class: ``transition()[y, k]`` = p(report = k | label = y)."""

    def check_budget(self) -> None:
        table = self.transition()
        shape = (self.num_classes, self.num_classes)
        if table.shape != shape:
            allowed = f"must have a transition of shape {shape}, not {tuple(table.shape)}"
            raise InputError("label_mechanism", self.name, allowed)
        if not bool((table >= 0).all()) or not bool(((table.sum(1) - 1).abs() < 1e-6).all()):
            allowed = "each line of its transition must be >= 0 and sum to 1"
            raise InputError("label_mechanism", self.name, allowed)
        table = table[:, table.amax(0) > 0]  # a report that no label gives costs nothing
        spent = float((table.amax(0) / table.amin(0)).log().max())  # inf where a class is ruled out
        if not spent <= self.epsilon * (1 + 1e-9) + 1e-12:
            allowed = f"must spend no more than y_eps={self.epsilon:g}, but spends {spent:.4g}"
            if math.isinf(spent):
                allowed += " (a report rules a label out; y_eps=inf does without noise)"
            raise InputError("label_mechanism", self.name, allowed)

    def perturb(self, labels: Tensor, *, generator: torch.Generator) -> Tensor:
        """Draw by the inverse distribution function of the label's row.  [n] -> [n]"""
        cumulative = self.transition().cumsum(1)[labels]  # [n, c]
        # Double precision: the 24 bits of a float32 draw would round small probabilities.
        draw = torch.rand(labels.shape, dtype=torch.float64, generator=generator)
        return (draw[:, None] >= cumulative).sum(1).clamp_(max=self.num_classes - 1)

    def likelihood(self, reports: Tensor) -> Tensor:
        return self.transition().t()[reports]

    def estimate(self, reports: Tensor) -> Tensor:
        """Rows of the inverse T^-1: sum_k T[y, k] T^-1[k] is the one-hot vector of y."""
        inverse, failed = torch.linalg.inv_ex(self.transition())
        if int(failed) or not bool(inverse.isfinite().all()):
            allowed = "its transition has no inverse: the labels cannot be estimated"
            raise InputError("label_mechanism", self.name, allowed)
        estimates: Tensor = inverse[reports]
        return estimates

    def likeliest(self, reports: Tensor, *, generator: torch.Generator) -> Tensor:
        return reports


@dataclass(frozen=True)
class ExactLabels(ClassMechanism):
    """Labels as they are: what y_eps = inf means, whichever mechanism is named."""

    name: ClassVar[str] = "none"

    def transition(self) -> Tensor:
        return torch.eye(self.num_classes, dtype=torch.float64)

    def check_budget(self) -> None:
        """There is none to keep."""

    def perturb(self, labels: Tensor, *, generator: torch.Generator) -> Tensor:
        return labels.clone()


def class_shares(estimates: Tensor) -> Tensor:
    """Class frequencies from unbiased estimates of labels, as probabilities.  [c, n] -> [c] float64

    The nearest vector of probabilities to their mean; equal ones if there is no report.
    """
    c, n = estimates.shape
    if n == 0:
        return torch.full((c,), 1 / c, dtype=torch.float64)
    mean = estimates.double().mean(1)
    falling = mean.sort(descending=True).values
    excess = (falling.cumsum(0) - 1) / torch.arange(1, c + 1)
    shift = excess[(falling > excess).nonzero()[-1]]
    shares = (mean - shift).clamp_(min=0)
    return shares / shares.sum()
