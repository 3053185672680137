"""Our accuracies beside the paper's, with a verdict for each of its 124 table cells."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from lpgnn.report.evidence import Cell, other_rule
from lpgnn.report.grid import Grid, Shown
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


@dataclass(frozen=True)
class Judged:
    """A number of a table with the paper's, and ours under the other selection rule."""

    table: str
    number: Number
    cell: Cell
    printed: Printed
    other: Summary | None

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
                judged.append(Judged(table.name, number, number.cell, number.printed, other))
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


def write_comparison(judged: Sequence[Judged], selection: str, folder: Path) -> None:
    """Write ``comparison.csv`` and the verdict counts as ``comparison.md``."""
    import pandas as pd

    other = other_rule(selection)
    lines = []
    for one in judged:
        place = {"table": one.table, "dataset": one.cell.dataset}
        place |= {"row": one.number.place[1], "column": one.number.place[2]}
        printed = {"paper_mean": one.printed.mean, "paper_ci": one.printed.ci}
        ours = {**_numbers(one.printed, one.ours), "verdict": one.verdict.text}
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
        'repeats than wanted so far; "missing": no rows.\n',
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
