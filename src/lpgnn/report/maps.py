"""Maps: a table's paired differences as colours, a panel for each difference."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from lpgnn.report.drawing import new_figure, our_style, save
from lpgnn.report.notation import as_number, mathtext, symbol
from lpgnn.report.placing import Entry
from lpgnn.report.tables import Number, Table
from lpgnn.shown import TABLE_AXES as AXES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap, Normalize

# Orange below 0 and purple above it, which colour-blind readers tell apart.
_COLOURS = "PuOr"
_MISSING = "#dddddd"
_ABREAST = 4  # more panels than these stand in rows


def draw_map(name: str, table: Table, folder: Path) -> bytes | None:
    """Draw the differences of a table; None if it has none.

    Blocks go down, and of rows and columns those without names go across.  A number is bold where
    Holm's rule rejects 0.
    """
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    there = {at: number for at, number in table.numbers.items() if number.difference}
    found = [number.difference for number in there.values() if number.difference]
    if not found:
        return None
    across = "column" if table.spec.name_axis == "row" else "row"
    # What has no difference at all gets neither a line nor a panel.
    shown = [{at[AXES.index(axis)] for at in there} for axis in ("block", across)]
    down, columns = (
        _in_order(entry for key, entry in table.entries[axis].items() if key in keys)
        for axis, keys in zip(("block", across), shown, strict=True)
    )
    widest = max(abs(one.mean) for one in found) or 1.0
    scale, colours = Normalize(-widest, widest), colormaps[_COLOURS].with_extremes(bad=_MISSING)
    known = {at[AXES.index(table.spec.name_axis)] for at in there}
    names = [name for name in table.spec.differences if name in known]
    with our_style():
        rows = -(-len(names) // _ABREAST)
        abreast = -(-len(names) // rows)
        width = max(0.5 * len(columns) + 0.6, 1.9 if rows > 1 else 0.0) * abreast + 1.4
        figure = new_figure(max(width, 5), (0.36 * len(down) + 1.1) * rows)
        panels = figure.subplots(rows, abreast, squeeze=False, sharey=True)
        for unused in panels.flat[len(names) :]:
            unused.remove()
        for panel, difference in zip(panels.flat, names, strict=False):
            numbers = {
                (block.key, entry.key): table.numbers.get(
                    (block.key, difference, entry.key)
                    if across == "column"
                    else (block.key, entry.key, difference)
                )
                for block in down
                for entry in columns
            }
            cells = [[numbers[block.key, entry.key] for entry in columns] for block in down]
            _draw_panel(panel, cells, colours, scale)
            panel.set_title(mathtext(difference), fontweight="bold")
            panel.set_xticks(range(len(columns)), [mathtext(entry.values[0]) for entry in columns])
            panel.set_xlabel(mathtext(_heading(table, across)))
        for panel in panels[:, 0]:
            panel.set_yticks(range(len(down)), [mathtext(", ".join(one.values)) for one in down])
            panel.set_ylabel(mathtext(_heading(table, "block")))
        used = list(panels.flat[: len(names)])
        bar = figure.colorbar(ScalarMappable(scale, colours), ax=used, fraction=0.04, pad=0.02)
        bar.outline.set_visible(False)
        bar.set_label("points")
        return save(figure, folder, name)


def _in_order(entries: Iterable[Entry]) -> list[Entry]:
    """By their numbers, if they are numbers; a grid may begin with what its members share."""
    found = list(entries)
    numbers = [[as_number(value) for value in entry.values] for entry in found]
    if any(None in line for line in numbers):
        return found
    return [entry for _, entry in sorted(zip(numbers, found, strict=True), key=lambda one: one[0])]


def _heading(table: Table, axis: str) -> str:
    return ", ".join(table.spec.names.get(key, symbol(key)) for key in table.spec.axes[axis])


def _draw_panel(
    axes: "Axes", cells: list[list[Number | None]], colours: "Colormap", scale: "Normalize"
) -> None:
    means = [
        [cell.difference.mean if cell and cell.difference else math.nan for cell in line]
        for line in cells
    ]
    axes.imshow(means, aspect="auto", cmap=colours, norm=scale)
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    limit = scale.vmax or 1.0
    for y, line in enumerate(cells):
        for x, cell in enumerate(line):
            if cell is not None and cell.difference is not None:
                axes.text(
                    *(x, y, f"{cell.difference.mean:+.1f}"),
                    ha="center",
                    va="center",
                    fontsize=7,
                    # White on the dark ends of the scale.
                    color="white" if abs(cell.difference.mean) > 0.55 * limit else "#222222",
                    fontweight="bold" if (cell.holm_p or 1.0) < 0.05 else "normal",
                )
