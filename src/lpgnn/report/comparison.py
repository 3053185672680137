"""Our accuracies beside the paper's, with a verdict for each of the 124 cells."""

import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lpgnn.config import Settings
from lpgnn.report.cells import TABLES, Cell, table_cells
from lpgnn.report.evidence import Evidence, other_rule
from lpgnn.report.printed import Printed, paper_numbers
from lpgnn.results import Summary, write_atomically

WITHIN_CIS = "within both CIs"
WITHIN_POINTS = "within 2 points"
ABOVE = "above"
BELOW = "below"
UNFINISHED = "unfinished"
MISSING = "missing"
VERDICTS = (WITHIN_CIS, WITHIN_POINTS, ABOVE, BELOW, UNFINISHED, MISSING)

# Printed numbers are decimal fractions: a difference of exactly the bound is within it.
_ROUNDING = 1e-9


def judge(printed: Printed, ours: Summary | None, *, is_finished: bool = True) -> str:
    """The verdict on our mean m ± c against the printed M ± C.

    "within both CIs" if |m - M| <= c + C, else "within 2 points" if |m - M| <= 2, else above or
    below the paper; "unfinished" with fewer repeats than wanted, "missing" without a row.
    """
    if ours is None:
        return MISSING
    if not is_finished:
        return UNFINISHED
    difference = ours.mean - printed.mean
    if abs(difference) <= ours.ci + printed.ci + _ROUNDING:
        return WITHIN_CIS
    if abs(difference) <= 2 + _ROUNDING:
        return WITHIN_POINTS
    return ABOVE if difference > 0 else BELOW


@dataclass(frozen=True)
class Judged:
    """A cell with the paper's number, ours, and ours under the other selection rule."""

    cell: Cell
    identity: str
    printed: Printed
    ours: Summary | None
    other: Summary | None
    is_finished: bool  # all repeats that are wanted have a row, be it a failed one

    @property
    def verdict(self) -> str:
        return judge(self.printed, self.ours, is_finished=self.is_finished)

    @property
    def other_verdict(self) -> str:
        return judge(self.printed, self.other, is_finished=self.is_finished)


def compare(base: Settings, evidence: Evidence) -> list[Judged]:
    """Judge every cell of the paper's three accuracy tables, in their order."""
    rule, printed = base.selection, paper_numbers()
    return [
        Judged(
            cell,
            evidence.identity(cell),
            printed[cell.table, cell.dataset, cell.row, cell.column],
            evidence.summary(cell, rule),
            evidence.summary(cell, other_rule(rule)),
            len(evidence.rows(cell)) >= base.repeats,
        )
        for cell in table_cells(base)
    ]


def verdict_counts(verdicts: Sequence[str]) -> dict[str, int]:
    """How often each verdict was given, in a fixed order, zeros included."""
    counts = Counter(verdicts)
    return {verdict: counts[verdict] for verdict in VERDICTS}


def decimal(value: float) -> str:
    """A number of a CSV file: four decimals, which a mean of ten recorded accuracies fills."""
    return f"{value:.4f}"


def _numbers(printed: Printed, summary: Summary | None) -> list[str]:
    """mean, ci, count, difference"""
    if summary is None:
        return ["", "", "0", ""]
    difference = decimal(summary.mean - printed.mean)
    return [decimal(summary.mean), decimal(summary.ci), str(summary.count), difference]


def write_comparison(judged: Sequence[Judged], base: Settings) -> None:
    """Write ``comparison.csv`` and the verdict counts as ``comparison.md``."""
    folder, rule = Path(base.results_dir), base.selection
    other = other_rule(rule)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        [
            *("table", "dataset", "row", "column", "paper_mean", "paper_ci"),
            *("mean", "ci", "count", "difference", "verdict"),
            *(f"{name}_{other}" for name in ("mean", "ci", "difference", "verdict")),
            "id",
        ]
    )
    for one in judged:
        cell = one.cell
        mean, ci, _, difference = _numbers(one.printed, one.other)
        writer.writerow(
            [
                *(cell.table, cell.dataset, cell.row, cell.column),
                *(one.printed.mean, one.printed.ci),
                *(*_numbers(one.printed, one.ours), one.verdict),
                *(mean, ci, difference, one.other_verdict),
                one.identity,
            ]
        )
    write_atomically(folder / "comparison.csv", text.getvalue())
    write_atomically(folder / "comparison.md", _markdown(judged, rule))


def _markdown(judged: Sequence[Judged], rule: str) -> str:
    lines = [
        f"Verdicts on the paper's {len(judged)} table cells (selection={rule}):",
        "",
        f"| Table | {' | '.join(VERDICTS)} | cells |",
        f"|---|{'---:|' * (len(VERDICTS) + 1)}",
    ]

    def line(name: str, verdicts: Sequence[str]) -> str:
        counts = verdict_counts(verdicts)
        return f"| {name} | {' | '.join(map(str, counts.values()))} | {len(verdicts)} |"

    for table in TABLES:
        mine = [one.verdict for one in judged if one.cell.table == table.name]
        lines.append(line(table.name, mine))
    lines.append(line("**all**", [one.verdict for one in judged]))
    lines.append(line(f"all, selection={other_rule(rule)}", [one.other_verdict for one in judged]))
    lines += [
        "",
        '"within both CIs": the means differ by no more than both 95 % half widths together; else',
        '"within 2 points" of accuracy; else "above" or "below" the paper; "unfinished": fewer',
        'repeats than wanted so far; "missing": no rows.',
    ]
    return "\n".join(lines) + "\n"
