"""The paper's tables from our rows, as CSV, Markdown and LaTeX."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from lpgnn.config import Settings
from lpgnn.errors import InputError
from lpgnn.report.beyond import CONTROLS, EDITIONS, LEARNERS, with_controls
from lpgnn.report.cells import DATASETS, TABLES, Cell, Entry, Table
from lpgnn.report.comparison import decimal
from lpgnn.report.evidence import Evidence
from lpgnn.report.printed import Printed, paper_numbers
from lpgnn.results import Summary, write_atomically

STATISTICS = ("num_classes", "num_nodes", "num_edges", "num_features", "average_degree")
_HEADINGS = ("#Classes", "#Nodes", "#Edges", "#Features", "Avg. Deg.")


class StatisticsOfGraph(Protocol):
    """What the dataset table tells of a graph; ``lpgnn.data.statistics`` computes it."""

    @property
    def num_classes(self) -> int: ...
    @property
    def num_nodes(self) -> int: ...
    @property
    def num_edges(self) -> int: ...
    @property
    def num_features(self) -> int: ...
    @property
    def average_degree(self) -> float: ...


Key = tuple[str, str, str]  # dataset, row and column of a table


@dataclass(frozen=True)
class FilledCell:
    """A cell with its number, whether it is the best of those it is compared with, and the paper's.

    ``printed``: what the paper prints in this place of its own table, if it has that place.
    """

    cell: Cell
    identity: str
    summary: Summary | None
    best: bool
    printed: Printed | None = None


class HasMean(Protocol):
    @property
    def mean(self) -> float: ...


def best_of(table: Table, numbers: Mapping[Key, HasMean | None]) -> set[Key]:
    """The keys with the highest unrounded mean of each comparison; ties are all best.

    A comparison that lacks a number has no best: it might be the missing one.
    """
    groups: dict[tuple[str, str], list[Key]] = {}
    for dataset, row, column in numbers:
        group = (dataset, column if table.compared == "rows" else row)
        groups.setdefault(group, []).append((dataset, row, column))
    best: set[Key] = set()
    for keys in groups.values():
        means = {key: number.mean for key in keys if (number := numbers[key]) is not None}
        if len(means) == len(keys):
            best |= {key for key, mean in means.items() if mean == max(means.values())}
    return best


def fill(table: Table, base: Settings, evidence: Evidence) -> dict[Key, FilledCell]:
    """Look up a table's numbers and mark the best."""
    cells = {(cell.dataset, cell.row, cell.column): cell for cell in table.cells(base)}
    summaries = {key: evidence.summary(cell, base.selection) for key, cell in cells.items()}
    best, printed = best_of(table, summaries), paper_numbers()
    name = table.edition_of or table.name
    return {
        key: FilledCell(
            cell, evidence.identity(cell), summaries[key], key in best, printed.get((name, *key))
        )
        for key, cell in cells.items()
    }


def fill_controls(table: Table, base: Settings, evidence: Evidence) -> dict[Key, FilledCell]:
    """Look up the controls beside a table of the paper; none of them is its best."""
    filled = fill(CONTROLS[table.name], base, evidence)
    return {key: replace(one, best=False) for key, one in filled.items()}


@dataclass(frozen=True)
class Grid:
    """A table in the paper's layout: headings, and blocks of rows of text between rules."""

    headings: list[str]
    blocks: list[list[list[str]]]
    labels: int = 1  # leading columns that hold labels, not numbers


def lay_out(table: Table, cell_text: Mapping[Key, str], *, tex: bool) -> Grid:
    """Arrange the cells' texts as the paper does: dataset blocks, or datasets side by side."""
    row_heading = table.row_heading.tex if tex else table.row_heading.text
    names = {row.key: row.tex if tex else row.text for row in table.rows}
    columns = [column.tex if tex else column.text for column in table.columns]
    if not table.datasets_side_by_side:
        blocks = [
            [
                [
                    title if row is table.rows[0] else "",
                    names[row.key],
                    *(cell_text[dataset, row.key, column.key] for column in table.columns),
                ]
                for row in table.rows
            ]
            for dataset, title in table.datasets.items()
        ]
        return Grid(["Dataset", row_heading, *columns], blocks, labels=2)
    (column,) = table.columns
    blocks = [[]]
    for row in table.rows:
        if row.key in table.rule_before:
            blocks.append([])
        texts = [cell_text[dataset, row.key, column.key] for dataset in table.datasets]
        blocks[-1].append([names[row.key], *texts])
    return Grid([row_heading, *table.datasets.values()], blocks)


def markdown(grid: Grid) -> str:
    lines = ["| " + " | ".join(grid.headings) + " |", "|" + "---|" * len(grid.headings)]
    lines += ["| " + " | ".join(row) + " |" for block in grid.blocks for row in block]
    return "\n".join(lines) + "\n"


def latex(grid: Grid, caption: str, label: str) -> str:
    r"""A table environment; needs the package booktabs, as the paper's tables do."""
    numbers = len(grid.headings) - grid.labels
    lines = [
        r"\begin{table}[t]",
        r"  \centering",
        rf"  \caption{{{caption}}}",
        rf"  \label{{{label}}}",
        r"  \small",
        rf"  \begin{{tabular}}{{{'l' * grid.labels}{'c' * numbers}}}",
        r"    \toprule",
        f"    {' & '.join(grid.headings)} \\\\",
    ]
    for block in grid.blocks:
        lines.append(r"    \midrule")
        lines += [f"    {' & '.join(row)} \\\\" for row in block]
    lines += [r"    \bottomrule", r"  \end{tabular}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def markdown_text(filled: FilledCell) -> str:
    if filled.summary is None:
        return "–"
    return f"**{filled.summary}**" if filled.best else str(filled.summary)


def tex_text(filled: FilledCell) -> str:
    if filled.summary is None:
        return "--"
    number = f"{filled.summary.mean:.1f} $\\pm$ {filled.summary.ci:.1f}"
    return rf"\textbf{{{number}}}" if filled.best else number


def edition_text(filled: FilledCell) -> str:
    """Ours, and in brackets the mean the paper prints there."""
    text = markdown_text(filled)
    return text if filled.printed is None else f"{text} ({filled.printed.mean:.1f})"


def write_tables(base: Settings, evidence: Evidence) -> None:
    """Write ``tables/``: the paper's, their conditioned editions, learners and datasets."""
    folder = Path(base.results_dir) / "tables"
    for table in TABLES:
        filled = fill(table, base, evidence) | fill_controls(table, base, evidence)
        texts = {key: markdown_text(one) for key, one in filled.items()}
        _write_table(folder, with_controls(table), filled, texts)
    for table in EDITIONS:
        filled = fill(table, base, evidence)
        texts = {key: edition_text(one) for key, one in filled.items()}
        note = "\nIn brackets: the mean that the paper prints.\n"
        _write_table(folder, table, filled, texts, note)
    filled, printed = fill(LEARNERS, base, evidence), printed_drop()
    texts = {k: markdown_text(v) for k, v in filled.items()} | {
        k: str(v) for k, v in printed.items()
    }
    write_atomically(folder / "learners.csv", _csv(filled, printed))
    write_atomically(folder / "learners.md", markdown(lay_out(WITH_DROP, texts, tex=False)))
    _write_dataset_table(Path(base.results_dir))


def _write_table(
    folder: Path,
    table: Table,
    filled: Mapping[Key, FilledCell],
    texts: Mapping[Key, str],
    note: str = "",
) -> None:
    grid = lay_out(table, texts, tex=False)
    tex_grid = lay_out(table, {k: tex_text(v) for k, v in filled.items()}, tex=True)
    write_atomically(folder / f"{table.name}.csv", _csv(filled))
    write_atomically(folder / f"{table.name}.md", markdown(grid) + note)
    tex = latex(tex_grid, table.tex_caption, f"tab:{table.name}")
    write_atomically(folder / f"{table.name}.tex", tex)


_DROP = Entry("drop paper", "Drop, as the paper prints it", "Drop, as the paper prints it")
WITH_DROP = replace(LEARNERS, rows=(*LEARNERS.rows, _DROP))


def printed_drop() -> dict[Key, Printed]:
    """The paper's Drop as one more row of the learners table."""
    printed = paper_numbers()
    return {
        (dataset, _DROP.key, column.key): printed["denoising", dataset, column.key, "drop"]
        for dataset in LEARNERS.datasets
        for column in LEARNERS.columns
    }


def _csv(filled: Mapping[Key, FilledCell], printed: Mapping[Key, Printed] | None = None) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["dataset", "row", "column", "mean", "ci", "count", "best", "id"])
    for (dataset, row, column), one in filled.items():
        numbers: list[str] = ["", "", "0"]
        if one.summary is not None:
            numbers = [decimal(one.summary.mean), decimal(one.summary.ci), str(one.summary.count)]
        writer.writerow([dataset, row, column, *numbers, str(one.best).lower(), one.identity])
    for key, one_printed in (printed or {}).items():
        writer.writerow([*key, decimal(one_printed.mean), decimal(one_printed.ci), "", "", ""])
    return text.getvalue()


def record_statistics(
    graph_statistics: Mapping[str, StatisticsOfGraph], results_dir: Path | str
) -> None:
    """Keep the statistics of loaded graphs in ``datasets.csv``, the dataset table's source.

    The report is made from the results folder alone, without the graphs.  Datasets recorded
    earlier stay.
    """
    path = Path(results_dir) / "datasets.csv"
    known = read_statistics(results_dir)
    for name, found in graph_statistics.items():
        whole = [int(getattr(found, column)) for column in STATISTICS[:-1]]
        values = [*map(str, whole), f"{found.average_degree:.2f}"]
        known[name] = dict(zip(STATISTICS, values, strict=True))
    write_atomically(path, _statistics_csv(known))


def read_statistics(results_dir: Path | str) -> dict[str, dict[str, str]]:
    """The recorded statistics by dataset, the paper's datasets first; empty if there are none."""
    path = Path(results_dir) / "datasets.csv"
    if not path.is_file():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        if not row.get("dataset") or any(not row.get(column) for column in STATISTICS):
            needed = ", ".join(("dataset", *STATISTICS))
            raise InputError("datasets.csv", path, f"must have the columns {needed}")
    return {row["dataset"]: {column: row[column] for column in STATISTICS} for row in rows}


def _statistics_csv(statistics: Mapping[str, Mapping[str, str]]) -> str:
    order = [*DATASETS, *sorted(set(statistics) - set(DATASETS))]
    lines = [",".join(("dataset", *STATISTICS))]
    lines += [
        ",".join((name, *(statistics[name][column] for column in STATISTICS)))
        for name in order
        if name in statistics
    ]
    return "\n".join(lines) + "\n"


def _write_dataset_table(results_dir: Path) -> None:
    folder = results_dir / "tables"
    statistics = {k: v for k, v in read_statistics(results_dir).items() if k in DATASETS}
    if not statistics:
        for suffix in ("csv", "md", "tex"):
            (folder / f"datasets.{suffix}").unlink(missing_ok=True)
        return
    blocks = [[[DATASETS[name], *printed_statistics(row)] for name, row in statistics.items()]]
    grid = Grid(["Dataset", *_HEADINGS], blocks)
    tex_grid = Grid([heading.replace("#", r"\#") for heading in grid.headings], blocks)
    write_atomically(folder / "datasets.csv", _statistics_csv(statistics))
    write_atomically(folder / "datasets.md", markdown(grid))
    caption = "Descriptive statistics of the used datasets"
    write_atomically(folder / "datasets.tex", latex(tex_grid, caption, "tab:dataset"))


def printed_statistics(row: Mapping[str, str]) -> Sequence[str]:
    """A row of statistics as the paper prints it: thousands separated, degree with two decimals."""
    counts = [f"{int(row[column]):,}" for column in STATISTICS[:-1]]
    return [*counts, f"{float(row['average_degree']):.2f}"]
