"""What the paper's tables and figures consist of: every number as the settings that compute it.

All of it is data.  ``tables(base)`` and ``curves(base)`` put the changes of a cell over ``base``,
so another edition of the same tables is another base.  A cell is never found by its columns but
by the identity of its settings, because rows spell computations canonically.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from lpgnn.config import Settings

DATASETS = {"cora": "Cora", "pubmed": "Pubmed", "facebook": "Facebook", "lastfm": "LastFM"}
BACKBONES = {"gcn": "GCN", "gat": "GAT", "sage": "GraphSAGE"}


@dataclass(frozen=True)
class Entry:
    """A row or a column: its key in our files, its label as text and in TeX, and its settings."""

    key: str
    text: str
    tex: str
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """One number of a table or a figure."""

    table: str
    dataset: str
    row: str
    column: str
    settings: Settings


@dataclass(frozen=True)
class Table:
    """An accuracy table: rows and columns for each dataset, laid out as the paper does.

    ``compared`` says among what the best is sought: the rows of a column or the columns of a row.
    Datasets are blocks of rows, or, where there is one column only, stand side by side.
    Another edition of a paper's table has its own name and ``edition_of`` names the paper's.
    """

    name: str
    caption: str
    tex_caption: str
    row_heading: Entry
    rows: tuple[Entry, ...]
    columns: tuple[Entry, ...]
    compared: Literal["rows", "columns"]
    datasets_side_by_side: bool = False
    rule_before: tuple[str, ...] = ()  # rows that start a new block
    datasets: Mapping[str, str] = field(default_factory=lambda: DATASETS)
    changes: Mapping[str, Any] = field(default_factory=dict)  # under those of row and column
    edition_of: str = ""

    def cells(self, base: Settings) -> Iterator[Cell]:
        """The cells in the order of the paper: by dataset, row and column."""
        for dataset in self.datasets:
            for row in self.rows:
                for column in self.columns:
                    changes = {**self.changes, **row.changes, **column.changes}
                    settings = replace(base, dataset=dataset, **changes)
                    yield Cell(self.name, dataset, row.key, column.key, settings)


@dataclass(frozen=True)
class Curve:
    """One series of a figure: the paper's TeX reads it from ``figures/<figure>/<name>.csv``."""

    figure: str
    name: str
    dataset: str
    panel: str  # the row of panels it belongs to
    label: str  # of its budget in the legend, in TeX
    axis: str  # the column of x coordinates
    cells: tuple[Cell, ...]


def budget(eps: float) -> str:
    """A budget as the paper's figure files spell it: 0.01, 0.1, 1.0, 2.0, 3.0, inf."""
    return str(float(eps))


def budget_entries(name: str, values: tuple[float, ...], symbol: str) -> tuple[Entry, ...]:
    return tuple(
        Entry(f"{name}={budget(v)}", f"ε_{symbol}={v:g}", rf"$\epsilon_{symbol}={v:g}$", {name: v})
        for v in values
    )


def _mechanism(name: str) -> Entry:
    return Entry(name, name.upper(), name.upper(), {"mechanism": name, "y_eps": math.inf})


def _ad_hoc(name: str) -> Entry:
    return Entry(name, name.capitalize(), name.capitalize(), {"feature": name})


def _multi_bit(eps: float) -> Entry:
    return Entry(
        f"mb x_eps={budget(eps)}",
        f"MB (ε_x={eps:g})",
        rf"MB ($\epsilon_x={eps:g}$)",
        {"feature": "raw", "mechanism": "mb", "x_eps": eps},
    )


def _learner(name: str, label: str) -> Entry:
    return Entry(name, label, label, {"learner": name, "x_eps": 1.0})


TABLES = (
    Table(
        "mechanisms",
        "Accuracy of LPGNN with different LDP mechanisms (ε_y=∞)",
        r"Accuracy of LPGNN with different LDP mechanisms ($\epsilon_y=\infty$)",
        Entry("row", "Mech.", "Mech."),
        tuple(_mechanism(name) for name in ("1b", "lp", "ag", "mb")),
        budget_entries("x_eps", (0.01, 0.1, 1.0, 2.0), "x"),
        compared="rows",
    ),
    Table(
        "features",
        "Accuracy of LPGNN with different features (ε_y=1)",
        r"Accuracy of LPGNN with different features ($\epsilon_y=1$)",
        Entry("row", "Feature", "Feature"),
        (
            *(_ad_hoc(name) for name in ("ones", "ohd", "rnd")),
            *(_multi_bit(eps) for eps in (0.01, 0.1, 1.0)),
        ),
        budget_entries("y_eps", (1.0,), "y"),
        compared="rows",
        datasets_side_by_side=True,
        rule_before=("mb x_eps=0.01",),
    ),
    Table(
        "denoising",
        "Effect of Drop on the accuracy of LPGNN (ε_x=1)",
        r"Effect of Drop on the accuracy of LPGNN ($\epsilon_x=1$)",
        Entry("row", "ε_y", r"$\epsilon_y$"),
        tuple(
            replace(entry, text=budget(eps), tex=budget(eps))
            for eps in (0.5, 1.0, 2.0)
            for entry in budget_entries("y_eps", (eps,), "y")
        ),
        (
            _learner("cross_entropy", "Cross Entropy"),
            _learner("forward", "Forward Correction"),
            _learner("drop", "Drop"),
        ),
        compared="columns",
    ),
)


def _curve(
    base: Settings,
    figure: str,
    name: str,
    dataset: str,
    panel: str,
    label: str,
    fixed: Mapping[str, Any],
    axis: str,
    values: Mapping[str, Any],
) -> Curve:
    cells = tuple(
        Cell(
            figure,
            dataset,
            name,
            coordinate,
            replace(base, dataset=dataset, **{**fixed, axis: value}),
        )
        for coordinate, value in values.items()
    )
    return Curve(figure, name, dataset, panel, label, axis, cells)


def _label(eps: float, symbol: str) -> str:
    value = r"\infty" if math.isinf(eps) else f"{eps:g}"
    return rf"$\epsilon_{symbol}={value}$"


def curves(base: Settings) -> Iterator[Curve]:
    """The series of the figures "eps" (folder xyeps) and "kprop" (folder kprop)."""
    x_budgets = {budget(eps): eps for eps in (0.01, 0.1, 1.0, 2.0, 3.0, math.inf)}
    steps = {str(k): k for k in (0, 2, 4, 8, 16)}
    for dataset in DATASETS:
        for backbone in BACKBONES:
            for y_eps in (1.0, 2.0, 3.0, math.inf):
                name = f"model={backbone},dataset={dataset},y_eps={budget(y_eps)}"
                fixed = {"backbone": backbone, "y_eps": y_eps}
                label = _label(y_eps, "y")
                yield _curve(
                    base, "xyeps", name, dataset, backbone, label, fixed, "x_eps", x_budgets
                )
    for dataset in DATASETS:
        for x_eps in (0.01, 0.1, 1.0):
            name = f"dataset={dataset},x_eps={budget(x_eps)}"
            fixed = {"x_eps": x_eps, "y_eps": 1.0}
            label = _label(x_eps, "x")
            yield _curve(base, "kprop", name, dataset, "x_steps", label, fixed, "x_steps", steps)
        for y_eps in (0.5, 1.0, 2.0):
            name = f"dataset={dataset},y_eps={budget(y_eps)}"
            fixed = {"x_eps": 1.0, "y_eps": y_eps}
            label = _label(y_eps, "y")
            yield _curve(base, "kprop", name, dataset, "y_steps", label, fixed, "y_steps", steps)


def table_cells(base: Settings) -> Iterator[Cell]:
    """The 124 cells of the three accuracy tables."""
    for table in TABLES:
        yield from table.cells(base)


def all_cells(base: Settings) -> Iterator[Cell]:
    """Every number of the paper that the report shows, tables first."""
    yield from table_cells(base)
    for curve in curves(base):
        yield from curve.cells
