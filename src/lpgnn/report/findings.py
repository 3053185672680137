"""What the numbers beyond the paper say, counted: nothing here is known before the rows are."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lpgnn.config import Settings
from lpgnn.report.beyond import (
    BLANK_RESIDUAL,
    DENOISING,
    LEARNERS,
    MECHANISMS,
    STANDS_FOR,
    beyond_cells,
)
from lpgnn.report.cells import DATASETS, TABLES, all_cells
from lpgnn.report.comparison import MISSING, UNFINISHED, WITHIN_CIS, judge
from lpgnn.report.evidence import Evidence
from lpgnn.report.paired import paired
from lpgnn.report.printed import paper_numbers
from lpgnn.report.tables import FilledCell, Grid, Key, fill, fill_controls

BEYOND = "Beyond the paper: same privacy, conditioned reports and honest controls"


@dataclass(frozen=True)
class Count:
    """In how many cells something holds; None is a cell that is not computed."""

    verdicts: tuple[bool | None, ...]

    @property
    def missing(self) -> int:
        return sum(one is None for one in self.verdicts)

    def __str__(self) -> str:
        text = f"{sum(one is True for one in self.verdicts)} of {len(self.verdicts)}"
        return f"{text} ({self.missing} missing)" if self.missing else text


@dataclass(frozen=True)
class Findings:
    """The counts that the page and the README tell, and the MB rows side by side."""

    computed: Count  # the distinct cells beyond the paper that have rows
    at_paper: Count  # MB cells: conditioned >= the paper's printed mean
    above_blank: Count  # MB cells: conditioned - blank, paired interval above 0
    blank_as_printed: Count  # blank reports in the paper's protocol: within both CIs of the paper
    protocol_above_blank: Count  # MB cells in the paper's protocol: MB - blank, above 0
    above_drop: Count  # denoising cells: residual > the paper's printed Drop
    above_labels: Count  # denoising cells: residual > labels only, by the mean
    surely_above_labels: Count  # the same, paired interval above 0
    above_blank_residual: Count
    surely_above_blank_residual: Count
    multi_bit: Grid

    @property
    def any_computed(self) -> bool:
        return any(self.computed.verdicts)

    def sentences(self) -> list[str]:
        computed = f"{self.computed} numbers beyond the paper are computed."
        if not self.any_computed:
            return [computed]
        return [
            computed,
            "Multi-bit reports, conditioned by public constants, are at or above the paper's "
            f"printed mean in {self.at_paper} cells of its mechanisms table; they beat blank "
            "reports, which hold nothing, by a paired 95 % interval above 0 in "
            f"{self.above_blank}.",
            "In the paper's own protocol blank reports are within both CIs of what the paper "
            f"prints for MB and Drop in {self.blank_as_printed} cells, LastFM's among them, whose "
            "features are not needed for that; MB beats them, by a paired interval above 0, in "
            f"{self.protocol_above_blank} cells of the mechanisms table.",
            "The residual learner beats the paper's printed Drop in "
            f"{self.above_drop} cells of the denoising table, labels only in "
            f"{self.above_labels} (with a paired interval above 0 in {self.surely_above_labels}), "
            f"and itself on blank reports in {self.above_blank_residual} (with a paired interval "
            f"above 0 in {self.surely_above_blank_residual}).",
        ]


def findings(base: Settings, evidence: Evidence) -> Findings:
    """Count over the twelve MB cells and the nine denoising cells of the conditioned edition."""
    rule = base.selection
    mechanisms, denoising, learners = (
        fill(table, base, evidence) for table in (MECHANISMS, DENOISING, LEARNERS)
    )
    multi_bit = [
        (mechanisms[dataset, "mb", column.key], mechanisms[dataset, "blank", column.key])
        for dataset in MECHANISMS.datasets
        for column in MECHANISMS.columns
    ]
    protocol = fill(TABLES[0], base, evidence) | fill_controls(TABLES[0], base, evidence)
    as_in_paper = [
        (protocol[dataset, "mb", column.key], protocol[dataset, "blank", column.key])
        for dataset in MECHANISMS.datasets
        for column in MECHANISMS.columns
    ]
    nine = [(dataset, row.key) for dataset in DENOISING.datasets for row in DENOISING.rows]
    residual = [denoising[dataset, row, "residual"] for dataset, row in nine]
    labels_only = [denoising[dataset, row, "labels_only"] for dataset, row in nine]
    # The denoising table's rows are the learners table's columns: label budgets.
    blank = [learners[dataset, BLANK_RESIDUAL, row] for dataset, row in nine]
    drop = [denoising[dataset, row, "drop"] for dataset, row in nine]

    def surely(pairs: Iterable[tuple[FilledCell, FilledCell]]) -> Count:
        differences = (paired(evidence, a.cell, b.cell, rule) for a, b in pairs)
        return Count(tuple(None if one is None else one.above_zero for one in differences))

    def by_mean(pairs: Iterable[tuple[FilledCell, FilledCell]]) -> Count:
        return Count(
            tuple(
                None if a.summary is None or b.summary is None else a.summary.mean > b.summary.mean
                for a, b in pairs
            )
        )

    against_labels = list(zip(residual, labels_only, strict=True))
    against_blank = list(zip(residual, blank, strict=True))
    return Findings(
        computed=_computed(base, evidence),
        at_paper=Count(tuple(_above_printed(one, one, ties=True) for one, _ in multi_bit)),
        above_blank=surely(multi_bit),
        blank_as_printed=_blank_as_printed(base, evidence),
        protocol_above_blank=surely(as_in_paper),
        above_drop=Count(
            tuple(_above_printed(a, b, ties=False) for a, b in zip(residual, drop, strict=True))
        ),
        above_labels=by_mean(against_labels),
        surely_above_labels=surely(against_labels),
        above_blank_residual=by_mean(against_blank),
        surely_above_blank_residual=surely(against_blank),
        multi_bit=_multi_bit_grid(mechanisms, protocol),
    )


def _above_printed(ours: FilledCell, place: FilledCell, *, ties: bool) -> bool | None:
    if ours.summary is None or place.printed is None:
        return None
    difference = ours.summary.mean - place.printed.mean
    return difference >= 0 if ties else difference > 0


def _blank_as_printed(base: Settings, evidence: Evidence) -> Count:
    """Blank reports judged as if they were what they stand for, on all graphs of the paper."""
    printed, verdicts = paper_numbers(), []
    for table in TABLES:
        for (dataset, row, column), one in fill_controls(table, base, evidence).items():
            place = (dataset, STANDS_FOR.get(row, row), STANDS_FOR.get(column, column))
            if (number := printed.get((table.name, *place))) is not None:
                finished = len(evidence.rows(one.cell)) >= base.repeats
                verdict = judge(number, one.summary, is_finished=finished)
                verdicts.append(None if verdict in (MISSING, UNFINISHED) else verdict == WITHIN_CIS)
    return Count(tuple(verdicts))


def _computed(base: Settings, evidence: Evidence) -> Count:
    """The cells beyond the paper: not those whose computation the paper's experiments share."""
    shared = {evidence.identity(cell) for cell in all_cells(base)}
    verdicts: dict[str, bool | None] = {}
    for cell in beyond_cells(base):
        identity = evidence.identity(cell)
        if identity not in shared:
            # A cell that cannot be resolved yet has no identity: it counts by what it asks for.
            verdicts[identity or repr(cell.settings)] = bool(evidence.rows(cell))
    return Count(tuple(verdicts.values()))


def _multi_bit_grid(
    conditioned: Mapping[Key, FilledCell], protocol: Mapping[Key, FilledCell]
) -> Grid:
    """For each dataset the MB row as printed, reproduced and conditioned, and both controls."""
    blocks = []
    for dataset, title in MECHANISMS.datasets.items():
        columns = [column.key for column in MECHANISMS.columns]
        mine = [conditioned[dataset, "mb", column] for column in columns]
        rows = {
            "MB, as the paper prints it": [str(one.printed or "–") for one in mine],
            "MB, paper's protocol": [
                str(protocol[dataset, "mb", column].summary or "–") for column in columns
            ],
            "blank, paper's protocol": [
                str(protocol[dataset, "blank", column].summary or "–") for column in columns
            ],
            "MB, conditioned": [str(one.summary or "–") for one in mine],
        }
        for key, label in (("blank", "blank, conditioned"), ("labels_only", "labels only")):
            found = (conditioned[dataset, key, column].summary for column in columns)
            rows[label] = [str(summary or "–") for summary in found]
        blocks.append(
            [
                [title if index == 0 else "", label, *texts]
                for index, (label, texts) in enumerate(rows.items())
            ]
        )
    return Grid(["Dataset", "", *(column.text for column in MECHANISMS.columns)], blocks, labels=2)


COMPUTE_TIME = "core-hours, one thread a run, busy machine; two cores take half as many hours"


def compute_hours(base: Settings, evidence: Evidence) -> Grid:
    """Core-hours behind the rows of the paper's graphs: the paper's experiments, and all others.

    Runs on other graphs (``make run`` makes some) do not change what is told of the paper's.
    """
    wanted = {evidence.identity(cell) for cell in all_cells(base)}
    rows, totals = [], [0.0, 0.0]
    for dataset, title in DATASETS.items():
        spent = [0.0, 0.0]
        of_graph = evidence.rows_by_identity(dataset)
        for identity, found in of_graph.items():
            seconds = sum(float(row.get("duration") or 0) for row in found)
            spent[identity not in wanted] += seconds / 3600
        totals = [total + one for total, one in zip(totals, spent, strict=True)]
        if of_graph:
            rows.append([title, *(f"{hours:.2f}" for hours in spent)])
    rows.append(["all", *(f"{hours:.2f}" for hours in totals)])
    return Grid(["Core-hours", "paper's experiments", "the rest"], [rows])
