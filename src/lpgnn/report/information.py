"""What bit reports tell about private features: the file of measurements, a table and a figure."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lpgnn.errors import InputError
from lpgnn.privacy import MultiBit, expected_informative_bits
from lpgnn.report.drawing import GREY, STYLES, new_figure, our_style, save
from lpgnn.report.grid import Grid
from lpgnn.report.notation import canonical, mathtext
from lpgnn.rows import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FILE = "information.csv"
FIGURE = "informative_bits"
CAPTION = (
    "How many of the multi-bit mechanism's bits depend on the private features: expected "
    "(N m density tanh(ε/2m), line) and counted (mean and range over the repeats; a range down to "
    "0 is cut at a third of the mean)."
)


@dataclass(frozen=True)
class Information:
    """A line of ``information.csv``: one graph at one budget."""

    dataset: str
    title: str
    fingerprint: str
    num_nodes: int
    num_features: int
    density: float
    class_distance_squared: float  # mean squared distance of the classes' mean features
    mechanism: str
    x_eps: float
    m: int
    expected: float  # of bits that depend on the features
    mean: float  # of the counts, and their range
    low: int
    high: int
    unchanged: int  # repeats without a single such bit
    repeats: int
    seed: int
    signal_to_noise: float

    @property
    def num_bits(self) -> int:
        return self.num_nodes * self.m


def read_information(results_dir: Path) -> list[Information]:
    """The measurements of a results folder, none if there are none."""
    path = results_dir / FILE
    if not path.is_file():
        return []
    try:
        lines = csv.DictReader(path.read_text("utf-8").splitlines())
        return [_parsed(line) for line in lines]
    except (KeyError, TypeError, ValueError):
        raise InputError("results_dir", path, "must be as lpgnn.information writes it") from None


def _parsed(line: Mapping[str, str]) -> Information:
    kinds: dict[str, Any] = {f.name: f.type for f in fields(Information)}
    return Information(**{name: kinds[name](text) for name, text in line.items()})


def renew_information(found: Sequence[Information], results_dir: Path) -> Path:
    """Write measurements in place of earlier ones of their datasets; other datasets' stay."""
    renewed, known = {one.dataset for one in found}, read_information(results_dir)
    order = dict.fromkeys(one.dataset for one in (*known, *found))
    lines = [
        one
        for name in order
        for one in (found if name in renewed else known)
        if one.dataset == name
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, [f.name for f in fields(Information)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(one) for one in lines)
    write_atomically(results_dir / FILE, text.getvalue())
    return results_dir / FILE


def information_grid(found: Iterable[Information]) -> Grid:
    """Dataset and budget, bits sent and informative ones, and the signal-to-noise ratio."""
    headings = ["Dataset", "ε_x", "bits", "informative, expected", "counted", "range", "S"]
    rows = [
        [
            one.title,
            canonical(one.x_eps),
            f"{one.num_bits:,}",
            _count(one.expected),
            _count(one.mean),
            f"{one.low:,}–{one.high:,}",
            f"{one.signal_to_noise:.2g}",
        ]
        for one in found
    ]
    return Grid.of_text(headings, rows, labels=2)


def _count(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"


def draw_informative_bits(found: Sequence[Information], folder: Path) -> bytes | None:
    """Draw ``informative_bits.png`` and ``.svg``, a panel for each graph; return the SVG.

    Without measurements an older picture is removed, and None returned.
    """
    found = [one for one in found if one.mechanism == MultiBit.name]
    titles = list(dict.fromkeys(one.title for one in found))
    if not titles:
        for kind in ("png", "svg"):
            (folder / f"{FIGURE}.{kind}").unlink(missing_ok=True)
        return None
    with our_style():
        figure = new_figure(max(6.0, 3.0 * len(titles)), 3.3)
        panels = figure.subplots(1, len(titles), sharex=True, sharey=True, squeeze=False).flat
        for axes, title in zip(panels, titles, strict=True):
            _draw_panel(axes, [one for one in found if one.title == title])
            axes.set_title(title, fontweight="bold")
        panels[0].set_ylabel("bits")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
        return save(figure, folder, FIGURE)


def _draw_panel(axes: "Axes", found: Sequence[Information]) -> None:
    first, budgets = found[0], [one.x_eps for one in found]
    low, high = min(budgets), max(budgets)
    smooth = [low * (high / low) ** (i / 200) for i in range(201)]
    bound = [MultiBit(epsilon=eps, num_features=first.num_features) for eps in smooth]
    sent = [first.num_nodes * one.m for one in bound]
    expected = [expected_informative_bits(first.num_nodes, first.density, one) for one in bound]
    axes.plot(smooth, sent, color=GREY, linestyle="--", linewidth=1.2, label="sent: N m")
    axes.plot(
        smooth, expected, color=STYLES[0][0], linewidth=1.6, label="depend on features: expected"
    )
    counted = [one for one in found if one.mean > 0]  # a logarithmic axis has no zero
    means = [one.mean for one in counted]
    ends = [
        [mean - (one.low or mean / 3) for one, mean in zip(counted, means, strict=True)],
        [one.high - mean for one, mean in zip(counted, means, strict=True)],
    ]
    axes.errorbar(
        [one.x_eps for one in counted],
        means,
        yerr=ends,
        color=STYLES[1][0],
        marker=STYLES[1][1],
        linestyle="none",
        elinewidth=1.1,
        label="depend on features: counted",
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(budgets, [canonical(eps) for eps in budgets])
    axes.minorticks_off()
    axes.set_xlabel(mathtext("ε_x"))
