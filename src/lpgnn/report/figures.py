"""Figures from an experiment's YAML and rows, as PNG and SVG.

Filled markers are ours with their interval, hollow ones printed values, pale ones have fewer
repeats than were asked for.  What knows no x is a level line with its interval as a band.  Series
and panels without a number of ours are left out.  Drawing twice gives the same bytes.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lpgnn.report.drawing import (
    BLANK_STYLES,
    CONTROL_STYLES,
    GREY,
    LABELS_ONLY_STYLES,
    STYLES,
    Style,
    add_legend,
    line_of,
    new_figure,
    our_style,
    save,
)
from lpgnn.report.evidence import Results
from lpgnn.report.notation import as_number, mathtext, symbol
from lpgnn.report.placing import Entry, Placed, place, spread, unique
from lpgnn.report.tables import Printed
from lpgnn.rows import Summary
from lpgnn.shown import FigureSpec, parse_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase
    from matplotlib.lines import Line2D

_METRICS = {
    "acc": "Accuracy (%)",
    "balanced_acc": "Balanced accuracy (%)",
    "roc_auc": "ROC AUC (%)",
}
Group = tuple[str | None, bool]  # a series, and whether its points are controls

_PALE = 0.4
_LOOK = ("color", "marker", "linestyle", "markerfacecolor")
_METRICS = {
    **{"acc": "Accuracy (%)", "balanced_acc": "Balanced accuracy (%)"},
    **{"macro_f1": "Macro-F1 (%)", "roc_auc": "ROC AUC (%)"},
}


@dataclass(frozen=True)
class Strip:
    """A grid of panels with one legend; what is placed at x = None is a level."""

    spec: FigureSpec
    results: Results
    printed: Mapping[str, Printed]  # by identity
    placed: list[Placed]
    entries: dict[str, dict[str, Entry]]
    styles: Mapping[Group, Style]

    def summary(self, one: Placed) -> Summary | None:
        return self.results.summary(one.cell, metric=self.spec.metric)

    def is_drawn(self, one: Placed) -> bool:
        """Whether there is a number to draw: ours, or a printed one beside which ours belongs."""
        is_printed = one.at["x"] is not None and not one.cell.point.control
        return bool(self.summary(one)) or (is_printed and one.cell.identity in self.printed)

    def is_complete(self, one: Placed) -> bool:
        found = self.summary(one)
        return found is not None and found.count >= one.cell.point.settings.repeats

    @cached_property
    def groups(self) -> dict[Group, list[Placed]]:
        """The points of each series, and apart from them of controls."""
        return _grouped(self.placed)

    @cached_property
    def panels(self) -> set[tuple[str | None, str | None]]:
        """Row and column of the panels with a point of ours."""
        ours = (one for one in self.placed if one.at["x"] is not None and self.summary(one))
        return {(one.at["panel_row"], one.at["panel"]) for one in ours}

    def heading(self, key: str) -> str:
        return self.spec.names.get(key, symbol(key))

    @cached_property
    def curves(self) -> list[Group]:
        """The groups that are not levels."""
        return [g for g, found in self.groups.items() if any(one.at["x"] for one in found)]

    def level_colour(self, group: Group, one: Placed) -> str:
        """A series' own colour; a control takes that of the series whose key it shares."""
        is_control = group[1]
        hue = one.cell.keys.get((*self.spec.axes["series"], "")[0])
        own = self.styles[group]
        return (self.styles.get((hue, False), own) if is_control else own)[0]


def _grouped(placed: Iterable[Placed]) -> dict[Group, list[Placed]]:
    found: dict[Group, list[Placed]] = {}
    for one in placed:
        found.setdefault((one.at["series"], one.cell.point.control), []).append(one)
    return found


def _styles(groups: Mapping[Group, Sequence[Placed]]) -> dict[Group, Style]:
    """A style for each series: the controls have theirs, whatever they are called."""
    own, blank, labels, others = map(
        itertools.cycle, (STYLES, BLANK_STYLES, LABELS_ONLY_STYLES, CONTROL_STYLES)
    )
    found = {}
    for group, placed in groups.items():
        cells = [one.cell for one in placed]
        left = others if group[1] else own
        if not any(cell.reads_features for cell in cells):
            left = labels
        elif all(cell.is_blank for cell in cells):
            left = blank
        found[group] = next(left)
    return found


def draw_figure(
    name: str, options: Any, results: Results, printed: Mapping[str, Printed], folder: Path
) -> bytes | None:
    """Draw a figure to ``<name>.png`` and ``.svg``; return the SVG, None if there is no point."""
    # What others have printed are accuracies.
    strips = [
        _strip(spec, results, printed if spec.metric == "acc" else {})
        for spec in parse_figure(name, options)
    ]
    strips = [strip for strip in strips if strip.placed]
    if not strips:
        return None
    shapes = [_shape(strip, wraps=len(strips) == 1) for strip in strips]
    columns, rows = max(columns for _, columns in shapes), sum(rows for rows, _ in shapes)
    width, height = {1: (6, 4), 2: (5, 3.4), 3: (3.7, 3.1)}.get(columns, (3, 2.7))
    height = min(height, 8.4 / rows) * rows + 0.3 * len(strips)
    with our_style():
        figure = new_figure(columns * width, height)
        parts: Sequence[FigureBase] = [figure]
        if len(strips) > 1:
            parts = list(figure.subfigures(len(strips), 1, squeeze=False).flat)
        for strip, part, shape in zip(strips, parts, shapes, strict=True):
            _draw_strip(strip, part, shape)
        legends = _shared_legend(strips) or [list(_legend(strip)) for strip in strips]
        for strip, part, handles in zip(strips, parts, legends, strict=False):
            add_legend(part, handles, mathtext(strip.spec.legend))
        return save(figure, folder, name)


def _strip(spec: FigureSpec, results: Results, printed: Mapping[str, Printed]) -> Strip:
    placed, entries = place(results, spec, bare="x")
    if spec.scale == "log":  # what has no place on the axis is a level
        entries["x"] = {x: entry for x, entry in entries["x"].items() if _on_log_axis(x)}
        placed = [
            one if one.at["x"] in entries["x"] else replace(one, at={**one.at, "x": None})
            for one in placed
        ]
    for axis in ("panel_row", "panel"):
        placed = spread(placed, axis, spec.name_axis, entries[axis])
    curves = {one.at["series"] for one in placed if one.at["x"] is not None}
    levels = [o for o in placed if o.at["x"] is None and o.at["series"] not in curves]
    placed = [*unique((one for one in placed if one.at["x"] is not None), spec.setting), *levels]
    groups = _grouped(placed)
    strip = Strip(spec, results, printed, placed, entries, _styles(groups))
    # A series needs a number of ours, and a panel a point: level lines alone make none.
    computed = {group for group, found in groups.items() if any(map(strip.summary, found))}
    placed = [
        one
        for one in placed
        if (one.at["series"], one.cell.point.control) in computed
        and (one.at["panel_row"], one.at["panel"]) in strip.panels
    ]
    shown = {
        axis: {
            key: entries[axis][key] for key in entries[axis] if key in {p[i] for p in strip.panels}
        }
        for i, axis in enumerate(("panel_row", "panel"))
    }
    return replace(strip, placed=placed, entries={**entries, **shown})


def _on_log_axis(x: str) -> bool:
    number = as_number(x)
    return number is not None and 0 < number < math.inf


def _shape(strip: Strip, *, wraps: bool) -> tuple[int, int]:
    """Rows and columns of panels; more than three panels of one key wrap to two rows."""
    rows, columns = len(strip.entries["panel_row"]), len(strip.entries["panel"])
    return (2, math.ceil(columns / 2)) if wraps and rows == 1 and columns > 3 else (rows, columns)


def _draw_strip(strip: Strip, part: "FigureBase", shape: tuple[int, int]) -> None:
    rows, columns = (strip.entries[axis].values() for axis in ("panel_row", "panel"))
    keys = list(itertools.product(rows, columns))
    metric = _METRICS.get(strip.spec.metric, symbol(strip.spec.metric))
    is_numeric = None not in map(as_number, strip.entries["x"])
    # A panel has its column's name if none is above it, its row's if none is left of it.
    drawn = [i for i, (row, column) in enumerate(keys) if (row.key, column.key) in strip.panels]
    first_of_row = {index // shape[1]: index for index in reversed(drawn)}
    ends = {index % shape[1]: index for index in drawn}
    tops = {index % shape[1]: index for index in reversed(drawn)}
    for index, axes in enumerate(part.subplots(*shape, squeeze=False).flat):
        if index not in drawn:
            axes.set_axis_off()
            continue
        row, column = keys[index]
        _draw_panel(strip, axes, row.key, column.key)
        if len(rows) == 1 or index in tops.values():
            axes.set_title(mathtext(column.text), fontweight="bold")
        if index in first_of_row.values():
            above = filter(None, (strip.spec.title, row.text, metric))
            axes.set_ylabel(mathtext("\n".join(above)))
        if is_numeric and (len(rows) == 1 or index in ends.values()):
            axes.set_xlabel(mathtext(strip.heading(strip.spec.axes["x"][0])))


def _draw_panel(strip: Strip, axes: "Axes", row: str, column: str) -> None:
    for group, found in strip.groups.items():
        mine = [one for one in found if (one.at["panel_row"], one.at["panel"]) == (row, column)]
        _draw_points(strip, axes, group, [one for one in mine if one.at["x"] is not None])
        for one in mine:
            if one.at["x"] is None and (level := strip.summary(one)) is not None:
                colour, ci = strip.level_colour(group, one), level.ci or 0
                ends = (level.mean - ci, level.mean + ci)
                axes.axhspan(*ends, color=colour, alpha=0.12, linewidth=0)
                axes.axhline(
                    level.mean,
                    color=colour,
                    linestyle=line_of(strip.styles[group], is_level=True),
                    linewidth=1.2,
                    zorder=1,
                    alpha=None if strip.is_complete(one) else _PALE,
                )
    order = list(strip.entries["x"])
    if strip.spec.scale == "log":
        ticks = [float(x) for x in order]
        axes.set_xscale("log")
        axes.set_xlim(min(ticks) / 1.8, max(ticks) * 1.8)
        axes.minorticks_off()
    else:
        ticks = [float(i) for i in range(len(order))]
        axes.set_xlim(-0.5, len(order) - 0.5)
        for tick in ticks[:-1] if not strip.spec.lines else ():
            axes.axvline(tick + 0.5, color="#e4e4e4", linewidth=0.8)
    crowded = len(order) > 6
    texts = [_tick(entry.text, crowded) for entry in strip.entries["x"].values()]
    axes.set_xticks(ticks, texts, fontsize=7 if crowded else None)


def _aside(order: Sequence[str], apart: int) -> float:
    """How many times further right the next of some series stands on a logarithmic axis.

    All of them take no more than half of the smallest gap between two ticks.
    """
    ticks = sorted(float(x) for x in order)
    gaps = [after / before for before, after in itertools.pairwise(ticks)]
    return min(1.1, math.pow(min(gaps, default=math.inf), 0.5 / max(apart, 1)))


def _tick(text: str, crowded: bool) -> str:
    """Details in brackets go to a second line, and where it is crowded the second word, too."""
    if "(" in text:
        return mathtext(text.replace(" (", "\n").replace(")", ""))
    return mathtext(text.replace(" ", "\n", 1) if crowded else text)


def _draw_points(strip: Strip, axes: "Axes", group: Group, points: list[Placed]) -> None:
    """A series with intervals, side by side with the others, and its printed values."""
    order, has_lines = list(strip.entries["x"]), strip.spec.lines
    apart = len(strip.curves) if strip.spec.series else 1
    shift = strip.curves.index(group) - (apart - 1) / 2 if points and apart > 1 else 0.0
    slot = 0.1 if has_lines else 0.8 / apart

    def position(x: str, aside: float) -> float:
        if strip.spec.scale == "log":
            return float(x) * math.pow(_aside(order, apart), shift + aside)
        return order.index(x) + (shift + aside) * slot

    by_x = {str(one.at["x"]): one for one in points}
    ours = {x: found for x in order if x in by_x and (found := strip.summary(by_x[x]))}
    printed = {
        x: strip.printed[by_x[x].cell.identity]
        for x in order
        if x in by_x and not group[1] and by_x[x].cell.identity in strip.printed
    }
    aside = -0.2 if printed and not has_lines else 0.0
    colour, marker = style = strip.styles[group]
    if has_lines and ours:
        means = [number.mean for number in ours.values()]
        positions = [position(x, aside) for x in ours]
        axes.plot(positions, means, color=colour, linestyle=line_of(style), linewidth=1.4)
    whole = {x: number for x, number in ours.items() if strip.is_complete(by_x[x])}
    numbers: Mapping[str, Summary | Printed]
    for numbers, offset, is_hollow, alpha in (
        (whole, aside, False, None),
        ({x: number for x, number in ours.items() if x not in whole}, aside, False, _PALE),
        (printed, 0.45 if has_lines else 0.2, True, None),
    ):
        if numbers:
            axes.errorbar(
                [position(x, offset) for x in numbers],
                [number.mean for number in numbers.values()],
                yerr=[number.ci or 0.0 for number in numbers.values()],
                color=colour,
                marker=marker,
                elinewidth=1.1,
                linestyle="none",
                markerfacecolor="white" if is_hollow else None,
                alpha=alpha,
            )


def _legend(strip: Strip) -> Iterator["Line2D"]:
    """The series, the levels, and what filled, pale and hollow mean."""
    from matplotlib.lines import Line2D

    for group, found in strip.groups.items():
        text = strip.entries["series"][str(group[0])].text
        label = mathtext(text or ("controls" if group[1] else "ours"))
        if not any(strip.is_drawn(one) for one in found):
            continue
        colour, marker = style = strip.styles[group]
        if group in strip.curves:
            kind = line_of(style) if strip.spec.lines else "none"
            yield Line2D([], [], color=colour, marker=marker, linestyle=kind, label=label)
        else:
            line = line_of(style, is_level=True)
            yield Line2D([], [], color=colour, linestyle=line, label=label)
    own = (one.cell for one in strip.placed if one.at["x"] and not one.cell.point.control)
    if any(cell.identity in strip.printed for cell in own):
        colour = GREY if strip.spec.series else STYLES[0][0]
        if strip.spec.series:
            yield Line2D([], [], color=colour, marker="o", linestyle="none", label="ours")
        hollow = Line2D([], [], color=colour, marker="o", linestyle="none", label="as printed")
        hollow.set_markerfacecolor("white")
        yield hollow
    if any(strip.summary(one) and not strip.is_complete(one) for one in strip.placed):
        pale = Line2D([], [], color=GREY, marker="o", linestyle="none", label="fewer repeats")
        pale.set_alpha(_PALE)
        yield pale


def _shared_legend(strips: Sequence[Strip]) -> list[list["Line2D"]]:
    """One legend for all strips, none if their series or what a name looks like differ."""
    found: dict[object, Line2D] = {}
    for handle in itertools.chain(*map(_legend, strips)):
        known = found.setdefault(handle.get_label(), handle)
        if any(getattr(known, f"get_{one}")() != getattr(handle, f"get_{one}")() for one in _LOOK):
            return []
    return (
        [list(found.values())] if len({strip.spec.axes["series"] for strip in strips}) == 1 else []
    )
