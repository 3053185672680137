"""The look of all our pictures: one palette, one style, and bytes that depend on the data only."""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lpgnn.report.svg import compact
from lpgnn.rows import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure, FigureBase
    from matplotlib.lines import Line2D

Style = tuple[str, str]  # a colour and a marker

# Okabe and Ito's palette, safe for colour-blind readers; markers tell the series apart in grey.
STYLES: tuple[Style, ...] = (
    *(("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "D")),
    *(("#E69F00", "v"), ("#56B4E9", "P"), ("#7A5195", "*")),
)
# The two controls look the same in every picture; the last styles are for others.
LABELS_ONLY_STYLES: tuple[Style, ...] = (("#222222", "x"), ("#222222", "2"))
BLANK_STYLES: tuple[Style, ...] = (("#8A8A8A", "+"), ("#8A8A8A", "1"))
CONTROL_STYLES: tuple[Style, ...] = (("#222222", "3"), ("#222222", "4"))
_LINES = {
    **dict.fromkeys(LABELS_ONLY_STYLES, ":"),
    **dict.fromkeys(BLANK_STYLES, "-."),
    **dict.fromkeys(CONTROL_STYLES, "--"),
}
GREY = "#555555"

_STYLE = {
    "svg.hashsalt": "lpgnn",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "lines.markersize": 5,
}


def line_of(style: Style, *, is_level: bool = False) -> str:
    """How the points of a series are joined; levels are not joined points, and never solid."""
    return _LINES.get(style, "--" if is_level else "-")


@contextmanager
def our_style() -> Iterator[None]:
    import matplotlib

    # The defaults, not the user's matplotlibrc: the same rows give the same picture everywhere.
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def new_figure(width: float, height: float) -> "Figure":
    """A figure without pyplot's global state."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def add_legend(part: "FigureBase", handles: Sequence["Line2D"], title: str = "") -> None:
    """One legend above all panels, in as many columns as fit: none of its entries is cut off."""
    for columns in range(min(len(handles), 8), 0, -1):
        legend = part.legend(
            handles=handles, loc="outside upper center", ncols=columns, title=title or None
        )
        if columns == 1 or legend.get_window_extent().width <= part.get_window_extent().width:
            return
        legend.remove()


def save(figure: "Figure", folder: Path, name: str) -> bytes:
    """Write ``<name>.svg`` and ``<name>.png``; return the SVG."""
    drawing = compact(_render(figure, "svg"))
    write_atomically(folder / f"{name}.svg", drawing)
    figure.set_layout_engine("none")  # laid out once is enough, and it is slow
    write_atomically(folder / f"{name}.png", _render(figure, "png"))
    return drawing


def _render(figure: "Figure", kind: str) -> bytes:
    # Neither dates nor versions: the bytes must depend on the data only.
    metadata = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}[kind]
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=150, metadata=metadata)
    return buffer.getvalue()
