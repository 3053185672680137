"""The files that the paper's TeX plots, and its figure of the multi-bit mechanism's variance."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

from lpgnn.report.drawing import GREY, STYLES, new_figure, our_style, save
from lpgnn.report.evidence import Cell, Source
from lpgnn.report.tables import decimal
from lpgnn.rows import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Experiment, key of the x axis, its name in the file, and what a file is called.
_CURVES = (
    ("budgets", "x_eps", "x_eps", "xyeps/model={backbone},dataset={dataset},y_eps={y_eps}"),
    ("kprop", "filter.steps", "x_steps", "kprop/dataset={dataset},x_eps={x_eps}"),
    ("kprop", "learner.steps", "y_steps", "kprop/dataset={dataset},y_eps={y_eps}"),
)

CONVEXITY = "convexity"  # the name of a figure and of its points


def _spelt(key: str, value: str) -> str:
    """Budgets as the paper's TeX spells them: 0.01, 0.1, 1.0, 2.0, 3.0, inf."""
    return str(float(value)) if key.endswith("_eps") else value


def curves(source: Source) -> dict[tuple[str, str], dict[str, Cell]]:
    """File name without suffix and name of its x axis -> coordinate -> cell."""
    found: dict[tuple[str, str], dict[str, Cell]] = {}
    for experiment, key, axis, name in _CURVES:
        for cell in source.results(experiment).cells:
            if key in cell.keys and not cell.point.control:
                spelt = {k: _spelt(k, v) for k, v in cell.keys.items()}
                found.setdefault((name.format_map(spelt), axis), {})[spelt[key]] = cell
    return found


def write_curves(source: Source) -> None:
    """Write the files that the paper's TeX plots; a file needs one point to exist.

    Without a point an older file is removed: it would show numbers that no row supports.
    """
    results = source.results("budgets")
    for (file, axis), cells in curves(source).items():
        points = {x: found for x, cell in cells.items() if (found := results.summary(cell))}
        lines = [f"{x},{decimal(one.mean)},{decimal(one.ci)}" for x, one in points.items()]
        path = source.results_dir / "figures" / f"{file}.csv"
        if lines:
            header = f"{axis},test/acc_mean,test/acc_ci"
            write_atomically(path, "\n".join([header, *lines, ""]))
        else:
            path.unlink(missing_ok=True)


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


def write_convexity(folder: Path) -> bytes:
    """Write f(z) at 0.05, 0.10, ..., 10 and its figure; return the SVG."""
    samples = (i / 20 for i in range(1, 201))
    lines = ["z,f", *(f"{z:.2f},{convexity(z):.6f}" for z in samples)]
    write_atomically(folder / f"{CONVEXITY}.csv", "\n".join(lines) + "\n")
    with our_style():
        return save(_draw_convexity(), folder, CONVEXITY)


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
