"""What the private features are worth: accuracy over eps_x beside what holds no private feature."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lpgnn.config import Settings
from lpgnn.report.beyond import GRAPHS, SERIES, X_BUDGETS, Y_BUDGETS, place, value_cells
from lpgnn.report.cells import budget
from lpgnn.report.comparison import decimal
from lpgnn.report.evidence import Evidence
from lpgnn.report.paired import Difference, paired
from lpgnn.report.tables import Grid, markdown
from lpgnn.results import Summary, write_atomically


@dataclass(frozen=True)
class Worth:
    """A dataset at a label budget: the series over eps_x, and the levels that know no eps_x."""

    dataset: str
    y_eps: float
    curves: Mapping[str, Mapping[float, Summary | None]]  # series -> x_eps -> accuracy
    levels: Mapping[str, Summary | None]
    differences: Mapping[float, Difference | None]  # conditioned - blank by x_eps

    @property
    def starts_to_pay(self) -> str:
        """From which eps_x on conditioned reports beat blank ones with an interval above 0."""
        budgets, start = sorted(self.differences), math.inf
        for eps in reversed(budgets):
            one = self.differences[eps]
            if one is None:
                missing = sum(other is None for other in self.differences.values())
                return f"undecided ({missing} of {len(budgets)} budgets missing)"
            if not one.above_zero:
                break
            start = eps
        if math.isfinite(start):
            return f"{start:g}"
        above = [
            f"{x:g}" for x in budgets if (d := self.differences[x]) is not None and d.above_zero
        ]
        nowhere = f"nowhere up to {budgets[-1]:g}"
        return f"{nowhere} for good (only at {', '.join(above)})" if above else nowhere


def worth(base: Settings, evidence: Evidence) -> list[Worth]:
    """Look up everything the table and the figure show, by dataset and label budget."""
    cells = {(cell.dataset, cell.row, cell.column): cell for cell in value_cells(base)}

    def look_up(dataset: str, series: str, column: str) -> Summary | None:
        return evidence.summary(cells[dataset, series, column], base.selection)

    return [
        Worth(
            dataset,
            y_eps,
            {
                series: {x: look_up(dataset, series, place(y_eps, x)) for x in X_BUDGETS}
                for series in ("paper_protocol", "conditioned", "blank")
            },
            {
                series: look_up(dataset, series, place(y_eps))
                for series in ("non_private", "labels_only")
            },
            {
                x: paired(
                    evidence,
                    cells[dataset, "conditioned", place(y_eps, x)],
                    cells[dataset, "blank", place(y_eps, x)],
                    base.selection,
                )
                for x in X_BUDGETS
            },
        )
        for dataset in GRAPHS
        for y_eps in Y_BUDGETS
    ]


def write_worth(found: Sequence[Worth], base: Settings) -> None:
    """Write ``tables/value_of_features.{csv,md}``."""
    folder = Path(base.results_dir) / "tables"
    write_atomically(folder / "value_of_features.csv", _csv(found))
    write_atomically(folder / "value_of_features.md", _markdown(found))


def _csv(found: Sequence[Worth]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        [
            *("dataset", "y_eps", "x_eps"),
            *(f"{series}_{name}" for series in SERIES for name in ("mean", "ci", "count")),
            *("difference", "difference_low", "difference_high", "pairs", "excludes_zero"),
        ]
    )
    for one in found:
        for x_eps in X_BUDGETS:
            summaries = [*(curve[x_eps] for curve in one.curves.values()), *one.levels.values()]
            numbers: list[str] = []
            for summary in summaries:
                if summary is None:
                    numbers += ["", "", "0"]
                else:
                    numbers += [decimal(summary.mean), decimal(summary.ci), str(summary.count)]
            difference = one.differences[x_eps]
            if difference is None:
                numbers += ["", "", "", "0", ""]
            else:
                ends = (difference.mean, difference.low, difference.high)
                numbers += [*map(decimal, ends), str(difference.count)]
                numbers.append(str(difference.excludes_zero).lower())
            writer.writerow([one.dataset, budget(one.y_eps), budget(x_eps), *numbers])
    return text.getvalue()


def budget_text(eps: float) -> str:
    return "∞" if math.isinf(eps) else f"{eps:g}"


def worth_grid(one: Worth) -> Grid:
    """A row a feature budget: the series, and the paired difference, bold where it is no chance."""
    labels = [SERIES[series].text for series in one.curves]
    rows = []
    for x_eps in X_BUDGETS:
        difference = one.differences[x_eps]
        told = "–" if difference is None else str(difference)
        told = f"**{told}**" if difference is not None and difference.excludes_zero else told
        texts = [str(curve[x_eps] or "–") for curve in one.curves.values()]
        rows.append([f"{x_eps:g}", *texts, told])
    return Grid(["ε_x", *labels, "conditioned − blank [95 % CI]"], [rows])


def pays_grid(found: Sequence[Worth]) -> Grid:
    """Dataset and label budget -> the feature budget from which on private features pay."""
    by_key = {(one.dataset, one.y_eps): one.starts_to_pay for one in found}
    rows = [
        [title, *(by_key[dataset, y_eps] for y_eps in Y_BUDGETS)]
        for dataset, title in GRAPHS.items()
    ]
    headings = [f"ε_y={budget_text(y_eps)}" for y_eps in Y_BUDGETS]
    return Grid(["Private features start to pay at ε_x =", *headings], [rows])


def levels_text(one: Worth) -> str:
    return ", ".join(f"{SERIES[key].text} {level or '–'}" for key, level in one.levels.items())


def _markdown(found: Sequence[Worth]) -> str:
    parts = [
        "Private features start to pay at the smallest ε_x from which on conditioned reports beat\n"
        "blank ones, which hold nothing, with a paired 95 % interval above 0 (same splits).\n",
        markdown(pays_grid(found)),
    ]
    for one in found:
        title = f"**{GRAPHS[one.dataset]}, ε_y={budget_text(one.y_eps)}** ({levels_text(one)})\n"
        parts += [title, markdown(worth_grid(one))]
    return "\n".join(parts)
