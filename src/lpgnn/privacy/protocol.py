"""Who is asked for what, and when: in one round, or in two.

In one round every node sends its features through the mechanism.  In two rounds some labelled
nodes send theirs, the server publishes what it has learnt, and all others answer one question
about it.  Every node answers once: the budget of a node is the same.
"""

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar

from lpgnn.components import Component
from lpgnn.errors import InputError
from lpgnn.privacy.questions import VectorQuestion, most_cells

# Reports for each feature that round one collects, in units of a report's variance and of a label's
# noise: a direction in d dimensions is learnt from some multiple of d reports.  More of them would
# leave fewer who answer.
_REPORTS = 100
_LEAST_SHARE, _LARGEST_SHARE = 0.2, 0.7


@dataclass(frozen=True)
class Protocol(Component, ABC):
    """``asks``: nodes answer questions while the server learns, instead of reporting before."""

    kind: ClassVar[str] = "protocol"
    asks: ClassVar[bool] = False


@dataclass(frozen=True)
class OneRound(Protocol):
    """Every node sends its features at once, through the feature mechanism."""

    name: ClassVar[str] = "one_round"


@dataclass(frozen=True)
class TwoRound(Protocol):
    """Some labelled nodes send their features by PrivUnit, all others answer one question.

    ``share``: of the labelled nodes that are asked in round one; ``cells``: of the question of
    round two.  None: what suits the budget and the number of features.
    """

    name: ClassVar[str] = "two_round"
    asks: ClassVar[bool] = True

    share: float | None = None
    cells: int | None = None

    def __post_init__(self) -> None:
        if self.share is not None and not (_is_number(self.share) and 0 < self.share < 1):
            raise InputError("share", self.share, "must be a number in (0, 1), or null")
        whole = isinstance(self.cells, int) and not isinstance(self.cells, bool)
        if self.cells is not None and not (whole and 2 <= self.cells <= 64):
            raise InputError("cells", self.cells, "must be a whole number in 2..64, or null")

    def num_first(
        self,
        num_labelled: int,
        question: VectorQuestion,
        epsilon: float,
        label_noise: float = 1.0,
    ) -> int:
        """How many labelled nodes are asked in round one.

        label_noise: the mean square of an estimated one-hot label, 1 for clean ones
        """
        share = self.share
        if share is None:
            variance = question.mechanism(epsilon).mean() ** -2 * label_noise
            share = _REPORTS * question.num_features * variance / num_labelled
            share = min(max(share, _LEAST_SHARE), _LARGEST_SHARE)
        return max(1, min(num_labelled - 1, round(share * num_labelled)))

    def num_cells(self, epsilon: float) -> int:
        return self.cells or most_cells(epsilon)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
