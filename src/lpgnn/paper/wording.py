"""Words for numbers: a sentence follows from its rows, or it says that they are missing."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lpgnn.report.paired import Difference, holm
from lpgnn.report.tables import Printed
from lpgnn.rows import Summary

MISSING = "–"
UNDECIDED = "undecided (rows are missing)"

# A mean with its half width, ours or printed; None without all of its rows.
Mean = Summary | Printed | None


def claim(condition: bool | None, yes: str, no: str) -> str:
    """One of two statements; None is undecided."""
    return UNDECIDED if condition is None else yes if condition else no


def mean(value: Mean) -> str:
    return MISSING if value is None else f"{value.mean:.1f}"


def interval(value: Mean) -> str:
    """Mean and half width: 84.7 ± 0.7."""
    return MISSING if value is None else str(value)


def points(value: float | None) -> str:
    """A difference with its sign; what rounds to nothing has none."""
    if value is None:
        return MISSING
    text = f"{value:+.1f}"
    return "0.0" if float(text) == 0 else text


def between(low: str, high: str) -> str:
    """A range as it is written: 1 to 2, or one of them if they are the same."""
    return low if low == high else f"{low} to {high}"


def span(values: Iterable[Mean]) -> str:
    """The range of means: 84.4 to 84.8; a missing one is named."""
    found = list(values)
    known = [value.mean for value in found if value is not None]
    if not known:
        return MISSING
    text = between(f"{min(known):.1f}", f"{max(known):.1f}")
    missing = len(found) - len(known)
    return f"{text} ({missing} missing)" if missing else text


def listed(parts: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


def gap(first: Mean, second: Mean) -> float | None:
    """first - second, None if one is missing."""
    return None if first is None or second is None else first.mean - second.mean


def apart(first: Mean, second: Mean) -> bool | None:
    """Whether two means differ by more than both half widths together."""
    if first is None or second is None:
        return None
    return abs(first.mean - second.mean) > (first.ci or 0.0) + (second.ci or 0.0)


@dataclass(frozen=True)
class Count:
    """In how many cells something holds; None is a cell that is not computed."""

    verdicts: tuple[bool | None, ...]

    @property
    def true(self) -> int:
        return sum(one is True for one in self.verdicts)

    @property
    def missing(self) -> int:
        return sum(one is None for one in self.verdicts)

    @property
    def holds(self) -> bool | None:
        """Whether it holds in every cell; None where a missing one decides."""
        if any(one is False for one in self.verdicts):
            return False
        return None if self.missing or not self.verdicts else True

    def __str__(self) -> str:
        known = self.missing < len(self.verdicts)
        text = f"{self.true if known else MISSING} of {len(self.verdicts)}"
        return f"{text} ({self.missing} missing)" if self.missing else text


def verdict(count: Count) -> str:
    """How true a statement about many cells is."""
    if count.missing == len(count.verdicts):
        return UNDECIDED
    if count.missing == 0 and count.true in (0, len(count.verdicts)):
        return f"{'true' if count.true else 'false'} in all {len(count.verdicts)}"
    return f"true in {count}"


@dataclass(frozen=True)
class Family:
    """Paired differences that are one family of tests; None has no rows of one engine."""

    differences: tuple[Difference | None, ...]

    @property
    def above(self) -> Count:
        return Count(tuple(None if d is None else d.above_zero for d in self.differences))

    @property
    def below(self) -> Count:
        return Count(tuple(None if d is None else d.below_zero for d in self.differences))

    @property
    def kept(self) -> tuple[int, int]:
        """How many stay above and below 0 after Holm's correction."""
        known = [one for one in self.differences if one is not None]
        adjusted = zip(known, holm([one.p for one in known]), strict=True)
        sure = [one for one, p in adjusted if p < 0.05]
        return sum(one.above_zero for one in sure), sum(one.below_zero for one in sure)

    @property
    def mean(self) -> float | None:
        """The mean of the differences, None if one is missing."""
        means = [one.mean for one in self.differences if one is not None]
        complete = bool(means) and len(means) == len(self.differences)
        return sum(means) / len(means) if complete else None

    def __str__(self) -> str:
        if self.above.missing == len(self.differences):
            return f"not known in any of {len(self.differences)} (no rows of one engine)"
        above, below = self.kept
        return (
            f"above 0 in {self.above} and below 0 in {self.below.true} "
            f"({above} and {below} after Holm's correction)"
        )


@dataclass(frozen=True)
class Contest:
    """Means side by side, and whether the one of a candidate is the highest."""

    where: str
    candidate: str
    values: Mapping[str, Mean]

    @property
    def own(self) -> Mean:
        return self.values[self.candidate]

    @property
    def rival(self) -> str | None:
        """The best of the others; None while one of them is missing."""
        others = {name: v.mean for name, v in self.values.items() if v and name != self.candidate}
        complete = len(others) == len(self.values) - 1
        return max(others, key=lambda name: others[name]) if complete else None

    @property
    def margin(self) -> float | None:
        return None if self.rival is None else gap(self.own, self.values[self.rival])

    @property
    def wins(self) -> bool | None:
        """Whether the candidate's mean is highest; ties count."""
        return None if self.margin is None else self.margin >= 0

    @property
    def keeps_up(self) -> bool | None:
        """Whether the candidate wins, or is within both intervals of the best."""
        if self.wins is None or self.rival is None:
            return None
        return self.wins or not apart(self.own, self.values[self.rival])

    @property
    def clearly_loses(self) -> bool | None:
        """Whether the candidate is below the best by more than both intervals."""
        return None if self.keeps_up is None else not self.keeps_up

    def __str__(self) -> str:
        rival = "" if self.rival is None else self.rival
        return (
            f"{self.where}: {self.candidate} {interval(self.own)}, {rival} "
            f"{interval(self.values.get(rival))}"
        )


def wins(contests: Iterable[Contest]) -> Count:
    return Count(tuple(one.wins for one in contests))


def clearly_loses(contests: Iterable[Contest]) -> Count:
    return Count(tuple(one.clearly_loses for one in contests))
