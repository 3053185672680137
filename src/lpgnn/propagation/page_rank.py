"""Personalised PageRank."""

from dataclasses import dataclass
from typing import ClassVar

from lpgnn.components import check_number
from lpgnn.propagation.filters import KProp


@dataclass(frozen=True)
class PageRank(KProp):
    """sum_k alpha (1 - alpha)^k P^k: a walk that stops with probability alpha before each step.

    Truncated at K: what still walks then, (1 - alpha)^K, stops there, so that the coefficients sum
    to one.  This is x <- (1 - alpha) P x + alpha x_0, K times.  alpha = 0 is KProp, and alpha = 1
    the identity.
    """

    name: ClassVar[str] = "ppr"

    alpha: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("alpha", self.alpha, 0, 1)

    def coefficients(self) -> tuple[float, ...]:
        steps, walks_on = len(super().coefficients()) - 1, 1 - self.alpha
        return *(self.alpha * walks_on**k for k in range(steps)), walks_on**steps
