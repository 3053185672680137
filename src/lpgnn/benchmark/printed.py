"""Our numbers beside those that the methods' own papers print."""

import math
from collections.abc import Sequence

from lpgnn.benchmark.entries import Entry
from lpgnn.benchmark.protocol import Protocol
from lpgnn.benchmark.standings import Standing
from lpgnn.report.grid import Grid
from lpgnn.report.notation import canonical, value_text


def printed_numbers(found: Sequence[Standing], protocol: Protocol) -> str:
    """What papers print on these graphs at these budgets, and what their ε is in total."""
    rows = [
        [
            *(one.entry.title, _printer(one.entry), _graph(one)),
            *(value_text(canonical(eps)) for eps in (one.x_eps, one.y_eps)),
            *(str(one.summary), str(one.printed), f"{one.summary.mean - one.printed.mean:+.1f}"),
        ]
        for one in found
        if one.printed is not None
    ]
    headings = [*("Entry", "Printed in", "Graph", "ε_x", "ε_y", "Here", "Printed", "Difference")]
    without = dict.fromkeys(
        one.entry.title for one in found if not one.entry.printed and not one.entry.is_control
    )
    parts = [
        "# Beside what the papers print\n",
        "The protocols differ: here every entry has the same splits, conditioned reports, "
        f"{protocol.trials} trials and the {protocol.selection} rule unless it says otherwise "
        "(LPGNN as published: the authors' filter, hyper-parameters and epochs); a paper has its "
        "own splits, filter, hyper-parameters and choice of the epoch. A difference is no verdict "
        "on either. `../tables/conditioned_mechanisms.md` shows what conditioning alone does, "
        "`../comparison.md` the runs under LPGNN's own protocol.\n",
        Grid.of_text(headings, rows, labels=3).to_markdown() if rows else "No cell yet.\n",
        "\n## How a paper counts its budget\n",
        _counted(found),
    ]
    if without:
        parts.append(
            f"No printed number at these graphs and budgets is on file for: {'; '.join(without)}.\n"
        )
    return "\n".join(parts)


def _graph(one: Standing) -> str:
    return f"{one.dataset} (blank reports here)" if one.is_on_blank else one.dataset


def _printer(entry: Entry) -> str:
    """Who prints an entry's numbers: the files of ``lpgnn.paper`` are LPGNN's tables."""
    ours = any(str(source["file"]).startswith("paper/") for source in entry.printed)
    return "LPGNN (2021)" if ours else entry.source


def _counted(found: Sequence[Standing]) -> str:
    """What ε = 1 of a paper is here; nothing is said of papers whose entry does not say it."""
    total = dict.fromkeys(
        one.entry.title for one in found if one.entry.counts == "total" and one.entry.printed
    )
    widths = {
        one.dataset: one.cell.configuration.graph.num_features
        for one in found
        if one.cell.configuration is not None and math.isfinite(one.x_eps)
    }
    each = dict.fromkeys(one.entry.title for one in found if one.entry.counts == "feature")
    text = (
        "ε_x is a node's total in every line of the benchmark. So it is in LPGNN's paper"
        + (f", which prints the numbers of: {'; '.join(total)}" if total else "")
        + ".\n"
    )
    if each:
        grid = Grid.of_text(
            ["ε = 1 of the paper is a total of", *widths],
            [[title, *(f"{width:,}" for width in widths.values())] for title in each],
        )
        text += (
            "\nThese papers count ε for each feature. By their default all features of a node are "
            f"reported, each at ε, which sums to d times as much:\n\n{grid.to_markdown()}"
        )
    return text + "\nHow other papers count is not known here.\n"
