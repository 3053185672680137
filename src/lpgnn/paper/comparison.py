"""Our accuracies beside the paper's, with a verdict for each of its 124 table cells."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from statistics import fmean, variance

from lpgnn.report.evidence import Cell, other_rule
from lpgnn.report.grid import Grid, Shown
from lpgnn.report.paired import Difference, holm
from lpgnn.report.tables import Number, Printed, Table, decimal
from lpgnn.rows import Summary, write_atomically

# Printed numbers are decimal fractions: a difference of exactly the bound is within it.
_ROUNDING = 1e-9


class Verdict(Enum):
    """What a comparison says; on the page a class and a symbol that tells it without colour."""

    WITHIN_CIS = "within both CIs", "cis", "●"
    WITHIN_POINTS = "within 2 points", "points", "◐"
    ABOVE = "above", "above", "▲"
    BELOW = "below", "below", "▼"
    UNFINISHED = "unfinished", "unfinished", "◌"
    MISSING = "missing", "missing", ""

    def __init__(self, text: str, mark: str, symbol: str) -> None:
        self.text, self.mark, self.symbol = text, mark, symbol


def judge(printed: Printed, ours: Summary | None, *, is_finished: bool = True) -> Verdict:
    """The verdict on our mean m ± c against the printed M ± C.

    "within both CIs" if |m - M| <= c + C, else "within 2 points" if |m - M| <= 2, else above or
    below the paper; "unfinished" with fewer repeats than wanted, "missing" without a row.
    """
    if ours is None:
        return Verdict.MISSING
    if not is_finished:
        return Verdict.UNFINISHED
    difference = ours.mean - printed.mean
    if abs(difference) <= (ours.ci or 0.0) + printed.ci + _ROUNDING:
        return Verdict.WITHIN_CIS
    if abs(difference) <= 2 + _ROUNDING:
        return Verdict.WITHIN_POINTS
    return Verdict.ABOVE if difference > 0 else Verdict.BELOW


# The repeats behind a printed number, and the normal quantile of a 95 % interval.
_PRINTED_REPEATS = 10
_QUANTILE = 1.959964


def root_sum_square(printed: Printed, ours: Summary) -> bool:
    """Whether |m - M| <= sqrt(c^2 + C^2), the half width of the difference of two means."""
    bound = math.hypot(ours.ci or 0.0, printed.ci)
    return abs(ours.mean - printed.mean) <= bound + _ROUNDING


def printed_difference(printed: Printed, ours: Sequence[float]) -> Difference:
    """Our mean minus the printed one, with Welch's 95 % t interval and two-sided p-value.

    The printed half width of a bootstrap over ten repeats is about 1.96 s sqrt(9/10) / sqrt(10).
    """
    from scipy.special import stdtr, stdtrit

    n, m = len(ours), _PRINTED_REPEATS
    mine = variance(ours) / n
    theirs = (printed.ci / _QUANTILE) ** 2 * m / (m - 1)
    total, mean = mine + theirs, fmean(ours) - printed.mean
    if total == 0:
        return Difference(mean, mean, mean, n, 1.0 if mean == 0 else 0.0)
    freedom, error = total**2 / (mine**2 / (n - 1) + theirs**2 / (m - 1)), math.sqrt(total)
    half = float(stdtrit(freedom, 0.975)) * error
    p = 2 * float(stdtr(freedom, -abs(mean) / error))
    return Difference(mean, mean - half, mean + half, n, p)


@dataclass(frozen=True)
class Judged:
    """A number of a table with the paper's, and ours under the other selection rule."""

    table: str
    number: Number
    cell: Cell
    printed: Printed
    other: Summary | None
    values: tuple[float, ...] = ()  # ours, one for each repeat

    @property
    def within_root_sum_square(self) -> bool | None:
        """None unless all repeats are there."""
        if self.ours is None or not self.cell.is_finished:
            return None
        return root_sum_square(self.printed, self.ours)

    @property
    def welch_p(self) -> float | None:
        if not self.cell.is_finished or len(self.values) < 2:
            return None
        return printed_difference(self.printed, self.values).p

    @property
    def ours(self) -> Summary | None:
        return self.number.summary

    @property
    def verdict(self) -> Verdict:
        return judge(self.printed, self.ours, is_finished=self.cell.is_finished)

    @property
    def other_verdict(self) -> Verdict:
        return judge(self.printed, self.other, is_finished=self.cell.is_finished)

    @property
    def is_computed(self) -> bool:
        return self.ours is not None and self.cell.is_finished


def compare(tables: Iterable[Table]) -> list[Judged]:
    """Judge every printed cell of the paper's own tables."""
    judged = []
    for table in tables:
        rule = other_rule(table.results.selection)
        for number in table.numbers.values():
            if number.cell is not None and number.printed is not None:
                other = table.results.summary(number.cell, rule=rule)
                values = tuple(number.cell.values(table.results.selection).values())
                judged.append(
                    Judged(table.name, number, number.cell, number.printed, other, values)
                )
    return judged


def verdict_counts(verdicts: Iterable[Verdict]) -> dict[Verdict, int]:
    """How often each verdict was given, in a fixed order, zeros included."""
    counts = Counter(verdicts)
    return {verdict: counts[verdict] for verdict in Verdict}


def counts_text(verdicts: Iterable[Verdict], *, zeros: bool = False) -> str:
    counts = verdict_counts(verdicts).items()
    return ", ".join(f"{count} {verdict.text}" for verdict, count in counts if count or zeros)


def _numbers(printed: Printed, summary: Summary | None) -> dict[str, str]:
    if summary is None:
        return {"mean": "", "ci": "", "count": "0", "difference": ""}
    difference = decimal(summary.mean - printed.mean)
    numbers = {"mean": decimal(summary.mean), "ci": decimal(summary.ci)}
    return {**numbers, "count": str(summary.count), "difference": difference}


def write_comparison(
    judged: Sequence[Judged], selection: str, folder: Path, *, stricter: str
) -> None:
    """Write ``comparison.csv``, and the verdict counts and stricter rules as ``comparison.md``."""
    import pandas as pd

    other = other_rule(selection)
    lines = []
    for one in judged:
        place = {"table": one.table, "dataset": one.cell.dataset}
        place |= {"row": one.number.place[1], "column": one.number.place[2]}
        printed = {"paper_mean": one.printed.mean, "paper_ci": one.printed.ci}
        ours = {**_numbers(one.printed, one.ours), "verdict": one.verdict.text}
        within = one.within_root_sum_square
        ours |= {"within_root_sum_square": "" if within is None else str(within).lower()}
        ours |= {"welch_p": decimal(one.welch_p)}
        theirs = {**_numbers(one.printed, one.other), "verdict": one.other_verdict.text}
        more = {f"{name}_{other}": text for name, text in theirs.items() if name != "count"}
        lines.append({**place, **printed, **ours, **more, "id": one.cell.identity})
    write_atomically(folder / "comparison.csv", pd.DataFrame(lines).to_csv(index=False))
    write_atomically(
        folder / "comparison.md",
        f"Verdicts on the paper's {len(judged)} table cells (selection={selection}):\n\n"
        f"{verdict_grid(judged, selection).to_markdown()}\n"
        '"within both CIs": the means differ by no more than both 95 % half widths together; else\n'
        '"within 2 points" of accuracy; else "above" or "below" the paper; "unfinished": fewer\n'
        'repeats than wanted so far; "missing": no rows.\n'
        f"\n{stricter}\n",
    )


def stricter_rules(judged: Sequence[Judged]) -> str:
    """How many cells agree by stricter rules, and how many computations the cells are."""
    done = [one for one in judged if one.is_computed]
    square = sum(one.within_root_sum_square is True for one in done)
    p_values = [one.welch_p for one in done if one.welch_p is not None]
    kept = sum(p >= 0.05 for p in p_values)
    after_holm = sum(p >= 0.05 for p in holm(p_values))
    distinct = len({one.cell.identity for one in done})
    return (
        f"Stricter rules over the {len(done)} computed cells: {square} lie within the root of the "
        f"sum of both squared half widths, Welch's t test keeps {kept} at 5 %, and {after_holm} "
        f"after Holm's correction for {len(p_values)} tests. The cells are {distinct} distinct "
        "computations."
    )


def verdict_grid(judged: Sequence[Judged], selection: str) -> Grid:
    """The verdicts counted by table, and for all tables under either rule."""

    def line(name: str, verdicts: Sequence[Verdict], *, bold: bool = False) -> list[Shown]:
        counts = [*map(str, verdict_counts(verdicts).values()), str(len(verdicts))]
        return [Shown(text, bold) for text in (name, *counts)]

    tables = dict.fromkeys(one.table for one in judged)
    by_table = [line(t, [one.verdict for one in judged if one.table == t]) for t in tables]
    both = [
        line("all", [one.verdict for one in judged], bold=True),
        line(f"all, selection={other_rule(selection)}", [one.other_verdict for one in judged]),
    ]
    return Grid(["Table", *(verdict.text for verdict in Verdict), "cells"], [by_table, both])


def compared_grid(table: Table, judged: Sequence[Judged]) -> Grid:
    """A table of the paper with verdicts as marks, and the printed values below ours."""
    mine = {one.number.place: one for one in judged if one.table == table.name}

    def show(number: Number) -> Shown:
        if (one := mine.get(number.place)) is None:
            return number.show()
        title = one.verdict.text
        if one.ours is not None:
            difference = one.ours.mean - one.printed.mean
            title += f", {difference:+.1f} points, {one.ours.count} repeats"
        mark = one.verdict.mark
        return replace(number.show(), below=str(one.printed), mark=mark, title=title)

    return table.grid(show)
