"""Ranges of the features: what a node may say about itself, known before anybody reports.

A node scales its features to [0, 1] by them.  A range that is declared costs no privacy; one that
is taken from the data is knowledge about the data.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lpgnn.errors import InputError

# What a loader accepts: the data's own minima and maxima, [0, 1], one range for all columns, or a
# range for each of them: [d, 2], or by the column's name (its number, where columns have none).
RangeChoice = str | Sequence[float] | Tensor | Mapping[str, Sequence[float]]
Source = Literal["data", "unit", "declared", "file"]

ALLOWED = "must be unit, data, [low, high] or one [low, high] per feature"


@dataclass(frozen=True, eq=False)
class Ranges:
    """The range of every feature column, where it came from, and how often it was exceeded.

    ``data`` is the paper's protocol: column minima and maxima of the private data count as public.
    """

    source: Source = "data"
    low: Tensor | None = None  # [d] float64; None: not known, as of a graph without features
    high: Tensor | None = None  # [d] float64
    num_clamped: int = 0  # values outside, which their nodes moved to the nearer end

    @property
    def are_public(self) -> bool:
        return self.source != "data"

    def describe(self) -> str:
        if self.source == "data":
            return "column minima and maxima of the data, taken as public (the paper's protocol)"
        outside = f"{self.num_clamped:,} values outside, clamped by their nodes"
        return f"{self._declared()}, declared; {outside}"

    def _declared(self) -> str:
        if self.source == "unit":
            return "[0, 1]"
        if self.source == "file" or self.low is None or self.high is None:
            return "one per feature"
        return f"[{float(self.low[0]):g}, {float(self.high[0]):g}]"


def declared_ranges(
    choice: RangeChoice, num_columns: int, names: Sequence[str] | None = None
) -> Ranges | None:
    """The ranges that a choice declares for d columns; None for those of the data."""
    if isinstance(choice, Mapping):
        numbers = [str(column) for column in range(num_columns)]
        choice = torch.as_tensor(_by_name(choice, names or numbers), dtype=torch.float64)
    if isinstance(choice, str):
        if choice == "data":
            return None
        if choice != "unit":
            raise InputError("ranges", choice, ALLOWED)
        return Ranges("unit", *_columns([0.0, 1.0], num_columns))
    try:
        bounds = torch.as_tensor(choice, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise InputError("ranges", choice, ALLOWED) from None
    if bounds.shape == (2,):
        found = Ranges("declared", *_columns(bounds.tolist(), num_columns))
    elif bounds.dim() == 2 and bounds.shape[1] == 2:
        if bounds.shape[0] != num_columns:
            allowed = f"there are {num_columns} features"
            raise InputError("ranges", f"{bounds.shape[0]} pairs", allowed)
        found = Ranges("file", bounds[:, 0].clone(), bounds[:, 1].clone())
    else:
        raise InputError("ranges", choice, ALLOWED)
    _check_bounds(found)
    return found


def _by_name(ranges: Mapping[str, Sequence[float]], names: Sequence[str]) -> list[Sequence[float]]:
    for name in ranges:
        if name not in names:
            raise InputError("ranges", f"feature {name!r}", "the graph has no such feature")
    for name in names:
        if name not in ranges:
            raise InputError("ranges", f"none of feature {name!r}", "every feature needs a range")
    return [ranges[name] for name in names]


def _columns(bounds: list[float], num_columns: int) -> tuple[Tensor, Tensor]:
    low, high = (torch.full((num_columns,), end, dtype=torch.float64) for end in bounds)
    return low, high


def _check_bounds(ranges: Ranges) -> None:
    assert ranges.low is not None
    assert ranges.high is not None
    width = ranges.high - ranges.low  # what values are divided by
    usable = width.isfinite() & (width >= torch.finfo(width.dtype).tiny)
    if not bool(usable.all()):
        at = int((~usable).nonzero()[0])
        found = f"[{float(ranges.low[at]):g}, {float(ranges.high[at]):g}] of feature {at}"
        raise InputError("ranges", found, "low must be below high, and both finite")
