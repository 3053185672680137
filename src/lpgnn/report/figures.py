"""The paper's figures: the CSV files its TeX plots, and the same figures drawn.

Where a point of a figure is the same computation as a cell of a printed table, the paper's value
is drawn beside ours as a hollow marker.  Drawing twice gives the same bytes.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lpgnn.config import Settings
from lpgnn.report.beyond import (
    GRAPHS,
    SERIES,
    STANDS_FOR,
    X_BUDGETS,
    Y_BUDGETS,
    labels_only_cell,
)
from lpgnn.report.cells import BACKBONES, DATASETS, TABLES, Curve, Entry, Table, curves
from lpgnn.report.comparison import Judged, decimal
from lpgnn.report.drawing import GREY, STYLES, Style, new_figure, our_style, save
from lpgnn.report.evidence import Evidence
from lpgnn.report.printed import Printed
from lpgnn.report.tables import fill_controls
from lpgnn.report.value import Worth
from lpgnn.results import Summary, write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

_LEVELS = ((GREY, "--"), ("#CC79A7", ":"))  # non-private, labels only: bands, not series
_BLANK: Style = ("#222222", "x")  # reports that hold nothing
FIGURES = (
    *("budgets", "mechanisms", "features", "kprop", "denoising", "convexity"),
    "value_of_features",
)


def convexity(z: float) -> float:
    """f(z) = z coth^2(z / 2) (paper Figure "z"): the variance bound of MB, up to a constant."""
    return z / math.tanh(z / 2) ** 2


def convexity_minimum() -> float:
    """The z > 0 with sinh(z) = 2 z, where f'(z) = 0 (paper, proof of Proposition "optm")."""
    low, high = 1.0, 4.0  # sinh(1) < 2 and sinh(4) > 8
    while high - low > 1e-14:
        middle = (low + high) / 2
        low, high = (middle, high) if math.sinh(middle) < 2 * middle else (low, middle)
    return (low + high) / 2


def write_curves(base: Settings, evidence: Evidence) -> None:
    """Write the CSV files that the paper's TeX plots; a file needs one point to exist.

    Without a point an older file is removed: it would show numbers that no row supports.
    """
    folder = Path(base.results_dir) / "figures"
    for curve in curves(base):
        points = [
            f"{cell.column},{decimal(summary.mean)},{decimal(summary.ci)}"
            for cell in curve.cells
            if (summary := evidence.summary(cell, base.selection)) is not None
        ]
        path = folder / curve.figure / f"{curve.name}.csv"
        if points:
            lines = [f"{curve.axis},test/acc_mean,test/acc_ci", *points]
            write_atomically(path, "\n".join(lines) + "\n")
        else:
            path.unlink(missing_ok=True)
    write_convexity(base.results_dir)


def write_convexity(results_dir: Path | str) -> Path:
    """Write f(z) at 0.05, 0.10, ..., 10."""
    samples = (i / 20 for i in range(1, 201))
    lines = ["z,f", *(f"{z:.2f},{convexity(z):.6f}" for z in samples)]
    path = Path(results_dir) / "figures" / "convexity.csv"
    write_atomically(path, "\n".join(lines) + "\n")
    return path


def draw_figures(
    base: Settings, evidence: Evidence, judged: Sequence[Judged], found: Sequence[Worth]
) -> dict[str, bytes]:
    """Draw all figures to ``figures/<name>.{png,svg}``; return the SVG of each by name."""
    folder = Path(base.results_dir) / "figures"
    by_identity = {one.identity: one.printed for one in judged}
    all_curves = list(curves(base))
    drawn: dict[str, bytes] = {}
    with our_style():
        for name in FIGURES:
            if name == "budgets":
                figure = _draw_budgets(all_curves, base, evidence, by_identity)
            elif name == "kprop":
                figure = _draw_kprop(all_curves, base, evidence, by_identity)
            elif name == "convexity":
                figure = _draw_convexity()
            elif name == "value_of_features":
                figure = _draw_worth(found)
            else:
                (table,) = (table for table in TABLES if table.name == name)
                figure = _draw_table(table, judged, base, evidence)
            drawn[name] = save(figure, folder, name)
    return drawn


def _bar(
    axes: "Axes", x: Sequence[float], points: Sequence[Summary], style: Style, line: str
) -> None:
    color, marker = style
    axes.errorbar(
        x,
        [p.mean for p in points],
        yerr=[p.ci for p in points],
        color=color,
        marker=marker,
        linestyle=line,
        linewidth=1.4,
        elinewidth=1.2,
    )


def _hollow(axes: "Axes", x: Sequence[float], points: Sequence[Printed], style: Style) -> None:
    """The paper's values: hollow markers and thin bars."""
    color, marker = style
    axes.errorbar(
        x,
        [p.mean for p in points],
        yerr=[p.ci for p in points],
        color=color,
        marker=marker,
        markerfacecolor="white",
        linestyle="none",
        elinewidth=0.9,
    )


def _empty(axes: "Axes") -> None:
    axes.text(0.5, 0.5, "no rows yet", transform=axes.transAxes, ha="center", color="#999999")
    axes.set_yticks([])


def _legend(
    figure: "FigureBase", labels: Sequence[str], *, line: str = "none", blank: bool = False
) -> None:
    """One legend above all panels: the series, what filled and hollow mean, and the controls."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=color, marker=marker, linestyle=line, label=label)
        for (color, marker), label in zip(STYLES, labels, strict=False)
    ]
    paper = "paper, as printed"
    handles += [
        Line2D([], [], color=GREY, marker="o", linestyle="none", label="ours"),
        Line2D([], [], color=GREY, marker="o", mfc="white", linestyle="none", label=paper),
    ]
    if len(labels) == 1:  # a single series needs no name, only the two kinds of marker
        for handle in handles[1:]:
            handle.set_color(STYLES[0][0])
        handles = handles[1:]
    if blank:
        color, marker = _BLANK
        told = "blank reports"
        handles.append(Line2D([], [], color=color, marker=marker, linestyle="none", label=told))
    handles.append(Line2D([], [], color=GREY, linestyle=":", label="labels only"))
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))


def _draw_series(
    axes: "Axes",
    mine: Sequence[Curve],
    base: Settings,
    evidence: Evidence,
    printed: Mapping[str, Printed],
    *,
    dodge: float,
    line: str,
) -> None:
    """The curves of one panel, side by side at each coordinate, and the paper's values.

    The labels alone are a level for each label budget, in the colour of its curve if it has one.
    """
    coordinates = [cell.column for cell in mine[0].cells]
    shown = False
    for index, (curve, style) in enumerate(zip(mine, STYLES, strict=False)):
        shift = (index - (len(mine) - 1) / 2) * dodge
        points = list(enumerate(curve.cells))
        ours = [
            (x + shift, summary)
            for x, cell in points
            if (summary := evidence.summary(cell, base.selection)) is not None
        ]
        paper = [
            (x + shift + 0.45 * dodge, printed[identity])
            for x, cell in points
            if (identity := evidence.identity(cell)) in printed
        ]
        shown = shown or bool(ours or paper)
        if ours:
            _bar(axes, [x for x, _ in ours], [s for _, s in ours], style, line)
        if paper:
            _hollow(axes, [x for x, _ in paper], [p for _, p in paper], style)
    colours: dict[float, str] = {}
    for curve, (colour, _) in zip(mine, STYLES, strict=False):
        y_eps = curve.cells[0].settings.y_eps
        colours[y_eps] = GREY if y_eps in colours else colour
    for y_eps, colour in colours.items():
        level = evidence.summary(labels_only_cell(base, mine[0].dataset, y_eps), base.selection)
        if level is not None:
            axes.axhline(level.mean, color=colour, linestyle=":", linewidth=1.1, zorder=1)
            shown = True
    labels = [r"$\infty$" if c == "inf" else f"{float(c):g}" for c in coordinates]
    axes.set_xticks(range(len(coordinates)), labels)
    axes.set_xlim(-0.5, len(coordinates) - 0.5)
    if not shown:
        _empty(axes)


def _draw_budgets(
    all_curves: Sequence[Curve],
    base: Settings,
    evidence: Evidence,
    printed: Mapping[str, Printed],
) -> "Figure":
    """Figure "eps": a row a backbone, a column a dataset; x: eps_x, series: eps_y."""
    figure = new_figure(12, 7.8)
    panels = figure.subplots(len(BACKBONES), len(DATASETS), sharex=True, squeeze=False)
    for i, (backbone, title) in enumerate(BACKBONES.items()):
        for j, (dataset, name) in enumerate(DATASETS.items()):
            axes = panels[i, j]
            mine = [c for c in all_curves if (c.panel, c.dataset) == (backbone, dataset)]
            axes.set_ylim(0, 100)
            _draw_series(axes, mine, base, evidence, printed, dodge=0.19, line="none")
            if i == 0:
                axes.set_title(name, fontweight="bold")
            if i == len(BACKBONES) - 1:
                axes.set_xlabel(r"$\epsilon_x$")
            if j == 0:
                axes.set_ylabel(f"{title}\nAccuracy (%)")
    _legend(figure, [c.label for c in all_curves if c.figure == "xyeps"][:4])
    return figure


def _draw_kprop(
    all_curves: Sequence[Curve],
    base: Settings,
    evidence: Evidence,
    printed: Mapping[str, Printed],
) -> "Figure":
    """Figure "kprop": accuracy over K_x (upper row) and K_y (lower row), a column a dataset."""
    figure = new_figure(12, 6.6)
    # A colour means another budget in each row, so each row is a subfigure with its own legend.
    strips = figure.subfigures(2, 1, squeeze=False).flat
    for strip, axis, symbol in zip(strips, ("x_steps", "y_steps"), ("$K_x$", "$K_y$"), strict=True):
        panels = strip.subplots(1, len(DATASETS))
        for axes, (dataset, name) in zip(panels, DATASETS.items(), strict=True):
            mine = [c for c in all_curves if (c.panel, c.dataset) == (axis, dataset)]
            _draw_series(axes, mine, base, evidence, printed, dodge=0.1, line="-")
            axes.set_title(name, fontweight="bold")
            axes.set_xlabel(symbol)
        panels[0].set_ylabel("Accuracy (%)")
        _legend(strip, [c.label for c in all_curves if c.panel == axis][:3], line="-")
    return figure


def _draw_table(
    table: Table, judged: Sequence[Judged], base: Settings, evidence: Evidence
) -> "Figure":
    """An accuracy table as a picture: ours filled, the paper's printed values hollow beside it.

    x runs over what is not compared, the compared entries are the series; a table with one column
    has one series over its rows.  The controls stand where their budgets do.
    """
    controls = fill_controls(table, base, evidence)
    by_key = {
        (one.cell.dataset, one.cell.row, one.cell.column): one
        for one in judged
        if one.cell.table == table.name
    }
    series: tuple[Entry | None, ...]
    if len(table.columns) == 1:
        positions, series = table.rows, (None,)
    elif table.compared == "rows":
        positions, series = table.columns, table.rows
    else:
        positions, series = table.rows, table.columns

    def find(dataset: str, position: Entry, one: Entry | None) -> Judged:
        if one is None:
            return by_key[dataset, position.key, table.columns[0].key]
        row, column = (one, position) if table.compared == "rows" else (position, one)
        return by_key[dataset, row.key, column.key]

    def control(dataset: str, position: Entry, *, blank: bool) -> Summary | None:
        """A control at a position: in its row or column, or standing for what is there."""
        for (graph, row, column), one in controls.items():
            places = {row, column, STANDS_FOR.get(row)}
            if len(table.columns) == 1 and not blank:
                places.add(position.key)  # the labels alone: a level over all rows
            is_blank = one.cell.settings.feature == "blank"
            if graph == dataset and is_blank == blank and position.key in places:
                return one.summary
        return None

    figure = new_figure(10, 6.8)
    panels = figure.subplots(2, 2)
    width = 0.8 / len(series) if len(series) > 1 else 0.4
    for axes, (dataset, name) in zip(panels.flat, DATASETS.items(), strict=True):
        for index, (one, style) in enumerate(zip(series, STYLES, strict=False)):
            shift = (index - (len(series) - 1) / 2) * width
            cells = [(x + shift, find(dataset, p, one)) for x, p in enumerate(positions)]
            ours = [(x - 0.2 * width, c.ours) for x, c in cells if c.ours is not None]
            if ours:
                _bar(axes, [x for x, _ in ours], [s for _, s in ours], style, "none")
            _hollow(axes, [x + 0.2 * width for x, _ in cells], [c.printed for _, c in cells], style)
        for x, position in enumerate(positions):
            if (cross := control(dataset, position, blank=True)) is not None:
                _bar(axes, [x + (0.45 if len(series) > 1 else 0.28)], [cross], _BLANK, "none")
            if (level := control(dataset, position, blank=False)) is not None:
                ends = (x - 0.5, x + 0.5)
                axes.plot(ends, [level.mean] * 2, color=GREY, linestyle=":", linewidth=1.3)
        for edge in range(len(positions) - 1):
            axes.axvline(edge + 0.5, color="#e4e4e4", linewidth=0.8)
        small = 8 if len(series) == 1 else None
        axes.set_xticks(range(len(positions)), [_tick(table, p) for p in positions], fontsize=small)
        axes.set_xlim(-0.5, len(positions) - 0.5)
        axes.set_title(name, fontweight="bold")
        axes.set_ylabel("Accuracy (%)")
    _legend(figure, [one.text if one is not None else "" for one in series], blank=True)
    return figure


def _tick(table: Table, entry: Entry) -> str:
    if len(table.columns) == 1:
        return entry.tex.replace(" (", "\n").replace(")", "")
    return entry.tex if entry.tex.startswith("$") else f"{table.row_heading.tex}={entry.tex}"


def _draw_worth(found: Sequence[Worth]) -> "Figure":
    """What the private features are worth: a row a label budget, a column a dataset; x: eps_x."""
    figure = new_figure(11, 6.4)
    panels = figure.subplots(len(Y_BUDGETS), len(GRAPHS), sharex=True, squeeze=False)
    for one in found:
        i, j = Y_BUDGETS.index(one.y_eps), list(GRAPHS).index(one.dataset)
        axes, shown = panels[i, j], False
        axes.set_xscale("log")
        for level, (color, line) in zip(one.levels.values(), _LEVELS, strict=True):
            if level is not None:
                low, high = level.mean - level.ci, level.mean + level.ci
                axes.axhspan(low, high, color=color, alpha=0.15, linewidth=0)
                axes.axhline(level.mean, color=color, linestyle=line, linewidth=1.3)
                shown = True
        for index, (curve, style) in enumerate(zip(one.curves.values(), STYLES, strict=False)):
            # Side by side on a logarithmic axis: a factor apart, so that bars do not hide bars.
            points = [(x * 1.1 ** (index - 1), s) for x, s in curve.items() if s is not None]
            if points:
                _bar(axes, [x for x, _ in points], [s for _, s in points], style, "-")
                shown = True
        axes.set_xlim(X_BUDGETS[0] / 1.8, X_BUDGETS[-1] * 1.8)
        axes.set_xticks(X_BUDGETS, [f"{x:g}" for x in X_BUDGETS], fontsize=7)
        axes.minorticks_off()
        if not shown:
            _empty(axes)
        if i == 0:
            axes.set_title(GRAPHS[one.dataset], fontweight="bold")
        if i == len(Y_BUDGETS) - 1:
            axes.set_xlabel(r"$\epsilon_x$")
        if j == 0:
            axes.set_ylabel(f"{_label_budget(one.y_eps)}\nAccuracy (%)")
    _worth_legend(figure, found[0])
    return figure


def _label_budget(y_eps: float) -> str:
    return r"$\epsilon_y=\infty$" if math.isinf(y_eps) else rf"$\epsilon_y={y_eps:g}$"


def _worth_legend(figure: "Figure", one: Worth) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=color, marker=marker, label=SERIES[key].text)
        for key, (color, marker) in zip(one.curves, STYLES, strict=False)
    ]
    handles += [
        Line2D([], [], color=color, linestyle=line, label=SERIES[key].text)
        for key, (color, line) in zip(one.levels, _LEVELS, strict=True)
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))


def _draw_convexity() -> "Figure":
    """Figure "z": f(z) = z coth^2(z / 2) on (0, 10], with its minimum."""
    figure = new_figure(5, 3.4)
    axes, minimum = figure.subplots(), convexity_minimum()
    z = [i / 100 for i in range(1, 1001) if convexity(i / 100) <= 20]
    axes.plot(z, [convexity(value) for value in z], color=STYLES[0][0], linewidth=1.8)
    axes.axvline(minimum, color=GREY, linestyle="--", linewidth=1.2)
    axes.plot([minimum], [convexity(minimum)], color=STYLES[1][0], marker="o", linestyle="none")
    note = f"minimum at $z^\\star$ = {minimum:.4f}\n$f(z^\\star)$ = {convexity(minimum):.4f}"
    axes.annotate(note, (minimum, convexity(minimum)), (10, -28), textcoords="offset points")
    axes.set_xlim(0, 10)
    axes.set_ylim(0, 20)
    axes.set_xlabel("$z$")
    axes.set_ylabel(r"$f(z) = z\,\coth^2(z/2)$")
    return figure
