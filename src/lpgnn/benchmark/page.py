"""What the benchmark shows: a leaderboard page, a table per setting, a picture and the costs."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from lpgnn.benchmark.plan import Plan
from lpgnn.benchmark.standings import (
    LABELS_ONLY,
    Against,
    Overall,
    Standing,
    overall,
    sentence,
    to_csv,
)
from lpgnn.report.drawing import CONTROL_STYLES, STYLES, new_figure, our_style, save
from lpgnn.report.grid import Grid, Shown
from lpgnn.report.notation import canonical, symbol, value_text
from lpgnn.rows import write_atomically


def write_benchmark(found: Sequence[Standing], plan: Plan, results_dir: Path) -> Path:
    """Write everything to results_dir/benchmark; returns the path of the page."""
    folder = results_dir / "benchmark"
    write_atomically(folder / "standings.csv", to_csv(found))
    datasets = [name for name in plan.protocol.datasets if any(s.dataset == name for s in found)]
    for dataset in datasets:
        here = [one for one in found if one.dataset == dataset]
        write_atomically(folder / f"{dataset}.md", _tables(dataset, here))
    write_atomically(folder / "cost.md", _costs(found))
    write_atomically(folder / "ranks.md", _ranks(found))
    drawing = _pareto(found, datasets, folder)
    page = folder / "leaderboard.html"
    write_atomically(page, _page(found, datasets, plan, drawing))
    return page


def _tables(dataset: str, here: Sequence[Standing]) -> str:
    """A table for each label budget: entries by feature budget, and what is above the controls."""
    parts = [f"# {dataset}: {here[0].metric}\n\n{sentence(dataset, here)}\n"]
    for y_eps in sorted({one.y_eps for one in here}):
        group = [one for one in here if one.y_eps == y_eps]
        budgets = sorted({one.x_eps for one in group if math.isfinite(one.x_eps)})
        rows = []
        for name in dict.fromkeys(one.entry.name for one in sorted(group, key=_mean_rank)):
            own = {one.x_eps: one for one in group if one.entry.name == name}
            entry = next(iter(own.values())).entry
            cells = [own.get(x_eps) or own.get(math.inf) for x_eps in budgets]
            rows.append([Shown(entry.title), *(_shown(one) for one in cells)])
        headings = ["Entry", *(f"ε_x={canonical(x_eps)}" for x_eps in budgets)]
        title = f"ε_y={value_text(canonical(y_eps))}"
        parts.append(f"## {title}\n\n{Grid(headings, [rows]).to_markdown()}")
    parts.append(
        "± is half a 95 % t interval over ten repeats. Behind it: the paired difference to blank "
        "reports through the same method / to labels only. Bold: above both controls after Holm's "
        "correction over the entries of a setting. Printed: what the method's own paper says, "
        "under its own protocol.\n"
    )
    return "\n".join(parts)


def _mean_rank(one: Standing) -> float:
    return -math.inf if one.rank is None else float(one.rank)


def _shown(one: Standing | None) -> Shown:
    if one is None:
        return Shown("–")
    parts = [_gain(against) for against in (one.blank, one.labels_only)]
    behind = "" if one.entry.is_control else f" ({' / '.join(parts)})"
    printed = "" if one.printed is None else f"printed: {one.printed}"
    return Shown(f"{one.summary}{behind}", one.beats_both is True, printed)


def _gain(against: Against | None) -> str:
    return "–" if against is None else f"{against.difference.mean:+.1f}"


def _costs(found: Sequence[Standing]) -> str:
    """Seconds of one core for a run, by entry and graph."""
    datasets = list(dict.fromkeys(one.dataset for one in found))
    rows = []
    for name in dict.fromkeys(one.entry.name for one in found):
        own = [one for one in found if one.entry.name == name]
        cells = [[one.seconds for one in own if one.dataset == dataset] for dataset in datasets]
        rows.append([own[0].entry.title, *(f"{fmean(c):.2f}" if c else "–" for c in cells)])
    grid = Grid.of_text(["Seconds of one core per run", *datasets], rows)
    return "# Cost\n\n" + grid.to_markdown() + "\nMeasured on a busy machine.\n"


def _ranks(found: Sequence[Standing]) -> str:
    """Entries over all settings: a graph with a feature and a label budget is one setting."""
    rows = [
        [one.entry.title, str(one.settings), f"{one.place:.0f}", *map(str, _counts(one))]
        for one in overall(found)
    ]
    grid = Grid.of_text([*RANKS.values()], rows)
    return (
        "# Ranks\n\n" + grid.to_markdown() + "\nPlace: the share of the other entries of a setting "
        "that it is above, in percent, on average; 100 is first everywhere. Above: after Holm's "
        "correction over the entries of a setting. Entries for private labels have half of the "
        "settings.\n"
    )


RANKS = {
    **{"entry": "Entry", "settings": "Settings", "place": "Place", "firsts": "First"},
    **{"blank": "Above blank", "labels": "Above labels only", "both": "Above both"},
}


def _counts(one: Overall) -> tuple[int, int, int, int]:
    return one.firsts, one.above_blank, one.above_labels_only, one.above_both


def _pareto(found: Sequence[Standing], datasets: Sequence[str], folder: Path) -> bytes:
    """Accuracy against the total budget of a node, a panel per graph."""
    with our_style():
        figure = new_figure(3.2 * min(3, len(datasets)), 2.6 * math.ceil(len(datasets) / 3))
        axes = figure.subplots(math.ceil(len(datasets) / 3), min(3, len(datasets)), squeeze=False)
        for axis in axes.flat[len(datasets) :]:
            axis.remove()
        for axis, dataset in zip(axes.flat, datasets, strict=False):
            here = [one for one in found if one.dataset == dataset]
            _draw_panel(axis, here)
            axis.set_title(dataset)
            axis.set_xlabel("total budget of a node")
            axis.set_ylabel(here[0].metric)
        handles, labels = axes.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4)
        return save(figure, folder, "pareto")


def _draw_panel(axis: Any, here: Sequence[Standing]) -> None:
    """Where labels are private: all entries as dots, the best at each total, and labels only."""
    private = [one for one in here if math.isfinite(one.y_eps)]
    own = [one for one in private if not one.entry.is_control]
    axis.set_xscale("log")
    colour, marker = STYLES[0]
    axis.plot(
        [one.total_eps for one in own],
        [one.summary.mean for one in own],
        *(marker,),
        color=colour,
        alpha=0.35,
        label="entries",
    )
    best: dict[float, float] = {}
    for one in own:
        best[one.total_eps] = max(best.get(one.total_eps, -math.inf), one.summary.mean)
    axis.plot(sorted(best), [best[eps] for eps in sorted(best)], color=colour, label="best entry")
    for one in private:
        if one.entry.name == LABELS_ONLY:
            axis.axhline(one.summary.mean, color=CONTROL_STYLES[0][0], ls="--", label="labels only")


def _page(found: Sequence[Standing], datasets: Sequence[str], plan: Plan, drawing: bytes) -> str:
    import base64

    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("lpgnn", "benchmark"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("leaderboard.html.j2").render(
        rows=json.dumps([_row(one) for one in found]).replace("</", "<\\/"),
        datasets=[(name, sentence(name, found)) for name in datasets],
        x_budgets=[canonical(x) for x in plan.protocol.x_eps],
        y_budgets=[(canonical(y), value_text(canonical(y))) for y in plan.protocol.y_eps],
        rank_headings=list(RANKS.values()),
        ranks=[
            (one.entry.title, one.settings, f"{one.place:.0f}", *_counts(one))
            for one in overall(found)
        ],
        families=list(dict.fromkeys(one.entry.family for one in found)),
        protocol=plan.protocol,
        symbols={key: symbol(key) for key in ("x_eps", "y_eps")},
        pareto=base64.b64encode(drawing).decode(),
    )


def _row(one: Standing) -> dict[str, Any]:
    def against(found: Against | None) -> list[Any] | None:
        if found is None:
            return None
        between = found.difference
        return [round(x, 2) for x in (between.mean, between.low, between.high)] + [found.verdict]

    return {
        "entry": one.entry.title,
        "family": one.entry.family,
        "source": one.entry.source,
        "note": one.entry.note,
        "dataset": one.dataset,
        "metric": one.metric,
        "x": canonical(one.x_eps),
        "y": canonical(one.y_eps),
        "rank": one.rank,
        "mean": round(one.summary.mean, 2),
        "ci": None if one.summary.ci is None else round(one.summary.ci, 2),
        "count": one.summary.count,
        "printed": None if one.printed is None else str(one.printed),
        "blank": against(one.blank),
        "labels": against(one.labels_only),
        "beats": one.beats_both,
        "seconds": round(one.seconds, 2),
        "chose": " ".join(f"{key}={canonical(value)}" for key, value in one.values.items()),
        "command": one.command,
        "id": one.cell.identity,
    }
