"""What the numbers beyond the paper say, counted: nothing here is known before the rows are."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from lpgnn.paper.comparison import Verdict, judge
from lpgnn.paper.statistics import DATASETS, dataset
from lpgnn.paper.wording import Count, Family
from lpgnn.report.build import tables_of
from lpgnn.report.evidence import Cell, Source
from lpgnn.report.grid import Grid, Shown
from lpgnn.report.notation import canonical, value_text
from lpgnn.report.paired import Difference
from lpgnn.report.tables import Number, Table

BEYOND = "Beyond the paper: same privacy, conditioned reports and honest controls"
CONTESTS = (
    "Wins over the controls: cells of the mechanisms table (MB, ε_y=∞) and of the denoising table "
    "(Residual, ε_x=1), with intervals of differences paired by repeat."
)
HOURS = "core-hours, one thread per run, busy machine; two cores take half as many hours"

PAPER_TABLES = ("mechanisms", "features", "denoising")
PAPER_EXPERIMENTS = (*PAPER_TABLES, "budgets", "kprop")
BEYOND_EXPERIMENTS = (
    "value_of_features",
    *(f"conditioned_{name}" for name in PAPER_TABLES),
    "conditioned_ablation",
    "learners",
    "equal_labels",
)
# The paper's columns of a graph whose features cannot be had, on blank reports.
WITHOUT_FEATURES = "lastfm_blank"
_BLANK, _DROP_ON_BLANK, _LABELS_ONLY = "Blank (MB)", "Drop on blank reports", "Labels only"
_LAZY_LABELS = "Labels only, learner.walk=lazy, learner.combine=stack"
# Whose place blank reports take in the paper's tables.
_STANDS_FOR = {_BLANK: "mb", _DROP_ON_BLANK: "drop"} | {
    f"Blank, x_eps={eps}": f"MB, x_eps={eps}" for eps in ("0.01", "0.1", "1")
}

Pairs = list[tuple[Number, Number]]


def _pairs(first: Sequence[Number], second: Sequence[Number]) -> Pairs:
    return list(zip(first, second, strict=True))


def family(pairs: Pairs, source: Source) -> Family:
    """first - second of each pair; None where rows are missing or of different engines."""
    results = source.results("mechanisms")
    differences = [results.difference(a.cell, b.cell) for a, b in pairs if a.cell and b.cell]
    return Family(tuple(differences))


def surely_above(pairs: Pairs, source: Source) -> str:
    """In how many pairs the t interval of the paired difference is above 0, and Holm's count."""
    found = family(pairs, source)
    return f"{found.above} ({found.kept[0]} after Holm's correction)"


def above(pairs: Pairs) -> Count:
    """In how many pairs the first mean is higher."""
    means = [(a.summary, b.summary) for a, b in pairs]
    return Count(tuple(None if not a or not b else a.mean > b.mean for a, b in means))


def above_printed(pairs: Pairs, *, ties: bool) -> Count:
    """In how many pairs our mean of the first is above what is printed in place of the second."""
    numbers = [(a.summary, b.printed) for a, b in pairs]
    found = [None if not a or not b else a.mean - b.mean for a, b in numbers]
    return Count(tuple(None if d is None else d > 0 or (ties and d == 0) for d in found))


def starts_to_pay(differences: Mapping[float, Difference | None]) -> str:
    """From which budget on the difference has an interval above 0."""
    found = differences.items()
    return first_for_good({eps: None if d is None else d.above_zero for eps, d in found})


def first_for_good(holds: Mapping[float, bool | None]) -> str:
    """From which budget on something holds; None is a budget without rows."""
    budgets, start = sorted(holds), math.inf
    for eps in reversed(budgets):
        if holds[eps] is None:
            missing = sum(one is None for one in holds.values())
            return f"undecided ({missing} of {len(budgets)} budgets missing)"
        if not holds[eps]:
            break
        start = eps
    if math.isfinite(start):
        return canonical(start)
    once = [canonical(eps) for eps in budgets if holds[eps]]
    nowhere = f"nowhere up to {canonical(budgets[-1])}"
    return f"{nowhere} (at {', '.join(once)}, but not beyond)" if once else nowhere


class Findings:
    """The counts that the page and the documents show, over the tables of the paper and beyond."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tables: dict[str, Table] = {}
        for name in (*PAPER_EXPERIMENTS, *BEYOND_EXPERIMENTS, WITHOUT_FEATURES):
            self.tables |= tables_of(source.results(name))

    @cached_property
    def _cells(self) -> tuple[list[Cell], list[Cell]]:
        """The paper's own cells, and those beyond it: controls of its tables, and the rest."""
        own = [c for name in PAPER_EXPERIMENTS for c in self.source.results(name).cells]
        more = [c for name in BEYOND_EXPERIMENTS for c in self.source.results(name).cells]
        controls = [cell for cell in own if cell.point.control]
        return [cell for cell in own if not cell.point.control], controls + more

    @cached_property
    def computed(self) -> Count:
        """The distinct computations beyond the paper that have rows."""
        shared = {cell.identity for cell in self._cells[0]} - {""}
        # A cell that cannot be resolved yet has no identity: it counts by what it asks for.
        found = {
            cell.identity or f"{cell.dataset} {cell.name}": bool(cell.rows)
            for cell in self._cells[1]
            if cell.identity not in shared
        }
        return Count(tuple(found.values()))

    @property
    def any_computed(self) -> bool:
        return any(self.computed.verdicts)

    def _numbers(self, table: str, *, row: str = "", column: str = "") -> list[Number]:
        """A row or column of a table by dataset, on the graphs of the conditioned edition."""
        graphs = self.tables["conditioned_mechanisms"].entries["block"]
        return [
            number
            for (block, r, c), number in self.tables[table].numbers.items()
            if block in graphs and r == (row or r) and c == (column or c)
        ]

    def sentences(self) -> list[str]:
        computed = f"{self.computed} numbers beyond the paper are computed."
        if not self.any_computed:
            return [computed]
        mb = self._numbers("conditioned_mechanisms", row="mb")
        residual, drop = (
            self._numbers("conditioned_denoising", column=column) for column in ("Residual", "drop")
        )
        return [
            computed,
            "Multi-bit reports, conditioned by public constants, are at or above the paper's "
            f"printed mean in {above_printed(_pairs(mb, mb), ties=True)} cells of its mechanisms "
            "table.",
            "In the paper's own protocol blank reports are within both CIs of what the paper "
            f"prints for MB and Drop in {self.blank_as_printed()} cells, LastFM's among them, "
            "whose features are not needed for that.",
            "The residual learner is above the paper's printed Drop in "
            f"{above_printed(_pairs(residual, drop), ties=False)} cells of the denoising table.",
        ]

    def contests(self) -> Grid:
        """Private features and the residual learner against their controls, a family a row."""
        mb, blank = (self._numbers("conditioned_mechanisms", row=r) for r in ("mb", _BLANK))
        own_mb, own_blank = (self._numbers("mechanisms", row=r) for r in ("mb", _BLANK))
        residual, labels = (
            self._numbers("conditioned_denoising", column=column)
            for column in ("Residual", _LABELS_ONLY)
        )
        # The denoising table's rows are the learners table's columns: label budgets.
        nothing = self._numbers("learners", row="Residual on blank reports")
        lazy = self._numbers("learners", row=_LAZY_LABELS)
        families = {
            "MB over blank reports, conditioned": _pairs(mb, blank),
            "MB over blank reports, paper's protocol": _pairs(own_mb, own_blank),
            "Residual over labels only (plain walk, one number of steps)": _pairs(residual, labels),
            "Residual over labels only (lazy, stacked walk, as it builds upon)": _pairs(
                residual, lazy
            ),
            "Residual over itself on blank reports": _pairs(residual, nothing),
        }
        rows = []
        for name, pairs in families.items():
            found = family(pairs, self.source)
            rows.append([name, str(above(pairs)), str(found.above), str(found.kept[0])])
        headings = ["Comparison", "Higher mean", "95 % interval above 0", "After Holm"]
        return Grid.of_text(headings, rows)

    def residual_sentence(self) -> str:
        """The residual learner against Drop as printed, labels only, and itself on nothing."""
        residual, drop, labels = (
            self._numbers("conditioned_denoising", column=column)
            for column in ("Residual", "drop", _LABELS_ONLY)
        )
        # The denoising table's rows are the learners table's columns: label budgets.
        nothing = self._numbers("learners", row="Residual on blank reports")
        lazy = self._numbers("learners", row=_LAZY_LABELS)
        over_labels, over_lazy = _pairs(residual, labels), _pairs(residual, lazy)
        over_nothing = _pairs(residual, nothing)
        return (
            "The residual learner beats the paper's printed Drop in "
            f"{above_printed(_pairs(residual, drop), ties=False)} cells of the denoising table, "
            f"labels only (plain walk, one number of steps) in {above(over_labels)} (with a paired "
            f"interval above 0 in {surely_above(over_labels, self.source)}), labels only by the "
            f"lazy, stacked walk that it builds upon itself in {above(over_lazy)} (with a paired "
            f"interval above 0 in {surely_above(over_lazy, self.source)}), and itself on blank "
            "reports in "
            f"{above(over_nothing)} (with a paired interval above 0 in "
            f"{surely_above(over_nothing, self.source)})."
        )

    def _blank_cells(self, graphs: Sequence[str]) -> Iterator[tuple[Cell, Verdict]]:
        """The cells of blank reports, judged as if they were what they stand for."""
        for name in PAPER_TABLES:
            numbers = self.tables[name].numbers
            for (block, row, column), number in numbers.items():
                place = (block, _STANDS_FOR.get(row, row), _STANDS_FOR.get(column, column))
                printed = numbers[place].printed
                if place == number.place or printed is None or number.cell is None:
                    continue
                if number.cell.dataset in graphs:
                    is_finished = number.cell.is_finished
                    yield number.cell, judge(printed, number.summary, is_finished=is_finished)

    def blank_as_printed(self, graphs: Sequence[str] = DATASETS) -> Count:
        """In how many cells of the paper's graphs blank reports are within both CIs."""
        unknown = (Verdict.MISSING, Verdict.UNFINISHED)
        verdicts = (verdict for _, verdict in self._blank_cells(graphs))
        return Count(tuple(None if v in unknown else v is Verdict.WITHIN_CIS for v in verdicts))

    def distinct_blanks(self) -> str:
        """How many computations the cells of blank reports are, as for the paper's own cells."""
        done = [cell.identity for cell, _ in self._blank_cells(DATASETS) if cell.is_finished]
        return f"{len(set(done))} of the {len(done)} computed cells of blank reports are distinct."

    def headline(self) -> Grid:
        """At budgets of 1: the paper's method as printed and as computed, and both controls."""
        settings = {
            "clean": ("mechanisms", [(row, "1") for row in ("mb", _BLANK, _LABELS_ONLY)]),
            "private": ("denoising", [("1", c) for c in ("drop", _DROP_ON_BLANK, _LABELS_ONLY)]),
        }
        blocks = []
        for labels, (name, places) in settings.items():
            rows: list[list[str]] = []
            for graph in DATASETS:
                found = [self.tables[name].numbers[graph, row, column] for row, column in places]
                done = [n.summary if n.cell and n.cell.is_finished else None for n in found]
                texts = [found[0].printed, *done]
                own = ["" if rows else labels, dataset(graph).title]
                rows.append([*own, *(str(text or "–") for text in texts)])
            blocks.append(rows)
        columns = ["the paper", "ours", "blank reports", "labels only"]
        return Grid.of_text(["Labels", "Dataset", *columns], *blocks, labels=2)

    def multi_bit(self) -> Grid:
        """For each dataset the MB row as printed, reproduced and conditioned, and both controls."""
        ours, protocol = self.tables["conditioned_mechanisms"], self.tables["mechanisms"]
        blocks = []
        for block, entry in ours.entries["block"].items():
            rows: list[list[Shown]] = []
            for title, table, row in (
                ("MB, as the paper prints it", ours, "mb"),
                ("MB, paper's protocol", protocol, "mb"),
                ("blank, paper's protocol", protocol, _BLANK),
                ("MB, conditioned", ours, "mb"),
                ("blank, conditioned", ours, _BLANK),
                ("labels only", ours, _LABELS_ONLY),
            ):
                found = [table.numbers[block, row, column] for column in ours.entries["column"]]
                shown = [Shown(str(one.summary or "–"), link=one.show().link) for one in found]
                if not rows:
                    shown = [Shown(str(one.printed or "–")) for one in found]
                rows.append([Shown("" if rows else entry.text), Shown(title), *shown])
            blocks.append(rows)
        columns = [column.text for column in ours.entries["column"].values()]
        return Grid(["Dataset", "", *columns], blocks, labels=2)

    def pays(self) -> Grid:
        """Dataset and label budget -> the feature budget from which on private features pay."""
        table = self.tables["value_of_features"]
        (name,) = table.spec.differences
        found: dict[str, dict[str, str]] = {}
        for block, entry in table.entries["block"].items():
            graph, y_eps = entry.values
            numbers = (n for (b, _, c), n in table.numbers.items() if (b, c) == (block, name))
            differences = {float(number.place[1]): number.difference for number in numbers}
            found.setdefault(graph, {})[f"ε_y={value_text(y_eps)}"] = starts_to_pay(differences)
        headings = ["Private features start to pay at ε_x =", *next(iter(found.values()))]
        rows = [[dataset(graph).title, *texts.values()] for graph, texts in found.items()]
        return Grid.of_text(headings, rows)

    def hours(self) -> Grid:
        """Core-hours behind the rows of the paper's graphs: its own experiments, and all others.

        Runs on other graphs are not counted.
        """
        wanted = {cell.identity for cell in self._cells[0]}
        spent: dict[str, list[float]] = {}
        for name in DATASETS:
            for row in self.source.store.read(name):
                hours = spent.setdefault(dataset(name).title, [0.0, 0.0])
                hours[row["id"] not in wanted] += float(row.get("duration") or 0) / 3600
        spent["all"] = [sum(hours) for hours in zip([0.0, 0.0], *spent.values(), strict=True)]
        rows = [[title, *(f"{one:.2f}" for one in hours)] for title, hours in spent.items()]
        return Grid.of_text(["Core-hours", "paper's experiments", "the rest"], rows)
