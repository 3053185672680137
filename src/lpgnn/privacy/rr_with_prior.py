"""Randomized response among the classes that a prior makes likely."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from lpgnn.components import before
from lpgnn.errors import InputError
from lpgnn.privacy.label_mechanism import ClassMechanism
from lpgnn.privacy.randomized_response import RandomizedResponse
from lpgnn.privacy.reports import LabelReports


@dataclass(frozen=True)
class RRWithPrior(ClassMechanism):
    """RRWithPrior (Ghazi, Golowich, Kumar, Manurangsi and Zhang, NeurIPS 2021): epsilon-LDP.

    Of the k likeliest classes under the prior, a label among them is kept with probability
    e^eps / (e^eps + k - 1) and else becomes one of the others; any other label becomes one of the
    k at random.  k maximises the probability that the report is the label.

    ``prior`` is public.  Without one, ``pilot_share`` of the labelled nodes, chosen without looking
    at their labels, report first by plain randomized response at the same budget; the prior of the
    others is what is estimated from these reports.  Every node reports once and spends eps, and the
    prior is a function of reports that others have sent already.

    Reports say nothing of a class outside the k: the estimate is unbiased for labels among them
    and 1/k for each of the k otherwise.
    """

    name: ClassVar[str] = "rr_prior"

    prior: Sequence[float] | None = None
    pilot_share: float = 0.2
    # equal names earlier rows, whose Acc* took classes as equally frequent; no more are made.
    shares: Literal["prior", "equal"] = field(default="prior", metadata=before("equal"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.pilot_share < 1:
            raise InputError("pilot_share", self.pilot_share, "must lie strictly between 0 and 1")
        if self.shares not in ("prior", "equal"):
            raise InputError("shares", self.shares, "must be prior")
        if self.prior is not None:
            given: object = self.prior
            if isinstance(given, str) or not isinstance(given, Sequence):
                raise InputError("prior", given, "must be a list of probabilities, or null")
            object.__setattr__(self, "prior", tuple(self.prior))
            self._check_prior(tuple(self.prior))
        if self.is_bound:
            RandomizedResponse(self.epsilon, self.num_classes)  # refuses budgets that say nothing

    def _check_prior(self, prior: tuple[float, ...]) -> None:
        numbers = all(isinstance(p, int | float) and not isinstance(p, bool) for p in prior)
        if not numbers or not all(p >= 0 for p in prior) or not abs(math.fsum(prior) - 1) < 1e-6:
            raise InputError("prior", list(prior), "must be probabilities that add up to 1")
        if self.is_bound and len(prior) != self.num_classes:
            allowed = f"must have one probability for each of the {self.num_classes} classes"
            raise InputError("prior", list(prior), allowed)

    def top(self) -> list[int]:
        """The k likeliest classes; all of them where nothing is known."""
        c = self.num_classes
        prior = self.prior or (1 / c,) * c
        order = sorted(range(c), key=lambda y: -prior[y])  # a tie goes to the first
        correct = [
            math.fsum(prior[y] for y in order[:k]) / (1 + (k - 1) * math.exp(-self.epsilon))
            for k in range(1, c + 1)
        ]
        return sorted(order[: 1 + correct.index(max(correct))])

    def response(self) -> RandomizedResponse | None:
        """What a label among the k goes through; None: there is but one class to report."""
        k = len(self.top())
        return RandomizedResponse(self.epsilon, k) if k > 1 else None

    def transition(self) -> Tensor:
        top, response = self.top(), self.response()
        table = torch.zeros(self.num_classes, self.num_classes, dtype=torch.float64)
        table[:, top] = 1 / len(top)
        if response is not None:
            table[torch.tensor(top)[:, None], top] = response.transition()
        return table

    def perturb(self, labels: Tensor, *, generator: torch.Generator) -> Tensor:
        top, response = torch.tensor(self.top()), self.response()
        place = torch.randint(len(top), labels.shape, generator=generator)  # of labels outside
        for i, y in enumerate(top.tolist()):
            place[labels == y] = i
        if response is None:
            return top[place]
        inside = torch.isin(labels, top)
        sent = response.perturb(place, generator=generator)
        return top[torch.where(inside, sent, place)]

    def estimate(self, reports: Tensor) -> Tensor:
        top, response = torch.tensor(self.top()), self.response()
        found = torch.zeros(len(reports), self.num_classes, dtype=torch.float64)
        if response is None:
            found[:, top] = 1.0
        else:
            found[:, top] = response.estimate(torch.searchsorted(top, reports)).double()
        return found

    def collect(
        self, labels: Tensor, labelled: Tensor, *, generator: torch.Generator
    ) -> LabelReports:
        if self.shares != "prior":
            allowed = "names earlier rows; a run must have prior"
            raise InputError("label_mechanism.shares", self.shares, allowed)
        if self.prior is not None:
            return super().collect(labels, labelled, generator=generator)
        order = labelled.nonzero()[:, 0]
        order = order[torch.randperm(len(order), generator=generator)]
        count = round(self.pilot_share * len(order))
        pilots = torch.zeros_like(labelled)
        pilots[order[:count]] = True
        first = RandomizedResponse(self.epsilon, self.num_classes)
        early = first.collect(labels, pilots, generator=generator)
        informed = self.replace(prior=tuple(early.shares.tolist()))
        late = informed.collect(labels, labelled & ~pilots, generator=generator)
        share = count / max(1, len(order))
        return LabelReports(
            torch.where(pilots, early.classes, late.classes),
            torch.where(pilots, early.likelihood, late.likelihood),
            torch.where(pilots, early.estimate, late.estimate),
            share * early.transition + (1 - share) * late.transition,
            early.shares,
        )

    def received(
        self, reports: Tensor, labelled: Tensor, *, generator: torch.Generator
    ) -> LabelReports:
        found = super().received(reports, labelled, generator=generator)
        if self.prior is None:
            return found
        # Reports are silent on the classes outside the k; the prior is not.
        return replace(found, shares=torch.tensor(self.prior, dtype=torch.float64))

    def parameters(self) -> dict[str, float]:
        if self.prior is None:
            return {"pilot_share": self.pilot_share}
        return {"k": float(len(self.top()))}
