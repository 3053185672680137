"""What the benchmark shows: a leaderboard page, a table per setting, a picture and the costs."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from lpgnn.benchmark import caveats
from lpgnn.benchmark.notes import notes, summary
from lpgnn.benchmark.pareto import draw_pareto
from lpgnn.benchmark.plan import BLANK
from lpgnn.benchmark.printed import printed_numbers
from lpgnn.benchmark.protocol import Protocol
from lpgnn.benchmark.standings import (
    Against,
    Computed,
    Overall,
    Standing,
    overall,
    rule_sentence,
    sentence,
    standings,
    to_csv,
)
from lpgnn.report.evidence import other_rule
from lpgnn.report.grid import Grid, Shown
from lpgnn.report.notation import canonical, symbol, value_text
from lpgnn.report.templates import page_templates
from lpgnn.rows import write_atomically

_RULE_TEXTS = {
    "paper": "that of the lowest loss on noisy validation labels while no accuracy is above Acc*, "
    "by which the trials are judged, too",
    "released": "that of the authors' released program",
}


def write_benchmark(what: Computed, found: Sequence[Standing], results_dir: Path) -> Path:
    """Write the standings and all that they tell to results_dir/benchmark; returns the page."""
    folder, protocol = results_dir / "benchmark", what.plan.protocol
    other = other_rule(protocol.selection)
    whole = [one for one in found if one.dataset in what.whole]
    with_features = [one for one in whole if not one.is_on_blank]
    changes = rule_sentence(with_features, standings(what, other), other)
    write_atomically(folder / "standings.csv", to_csv(found, protocol.selection))
    datasets = [name for name in protocol.datasets if any(s.dataset == name for s in found)]
    bought = {name: sentence(name, whole) for name in what.whole}
    for dataset in protocol.datasets:
        here = [one for one in found if one.dataset == dataset]
        if here:
            write_atomically(folder / f"{dataset}.md", _tables(dataset, here, protocol, bought))
        else:  # a table of rows that are gone
            (folder / f"{dataset}.md").unlink(missing_ok=True)
    write_atomically(folder / "cost.md", _costs(found))
    write_atomically(folder / "ranks.md", _ranks(with_features))
    write_atomically(folder / "printed.md", printed_numbers(found, protocol))
    write_atomically(folder / "notes.md", notes(what, found, changes))
    write_atomically(folder / "summary.md", summary(what, found))
    drawing = draw_pareto(with_features or found, datasets, folder)
    page = folder / "leaderboard.html"
    write_atomically(page, _page(what, found, with_features, bought, changes, drawing))
    return page


def _tables(
    dataset: str, here: Sequence[Standing], protocol: Protocol, bought: Mapping[str, str]
) -> str:
    """A table for each label budget: entries by feature budget, and what is above the controls."""
    said = bought.get(dataset, "Not complete: some entries have no rows here yet.")
    parts = [f"# {dataset}: {here[0].metric}\n\n{said}\n", _READ]
    for y_eps in sorted({one.y_eps for one in here}):
        group = [one for one in here if one.y_eps == y_eps]
        budgets = sorted({one.x_eps for one in group if math.isfinite(one.x_eps)})
        entries: dict[str, list[Standing]] = {}
        for one in group:
            entries.setdefault(one.entry.name, []).append(one)
        rows = []
        for own in sorted(entries.values(), key=_mean_rank):
            at = {one.x_eps: one for one in own}
            cells = [at.get(x_eps) or at.get(math.inf) for x_eps in budgets]
            shown = (_shown(one, protocol.selection) for one in cells)
            rows.append([Shown(own[0].entry.title), *shown])
        headings = ["Entry", *(f"ε_x={canonical(x_eps)}" for x_eps in budgets)]
        title = f"ε_y={value_text(canonical(y_eps))}"
        parts.append(f"## {title}\n\n{Grid(headings, [rows]).to_markdown()}")
    parts.append(
        f"± is half a 95 % t interval over {protocol.repeats} repeats; the epoch is that of the "
        f"{protocol.selection} rule. Entries stand in the order of their mean rank, behind the "
        "controls. Labels only and features without noise spend no ε_x, and are the same at every "
        f"one. {BLANK} Printed: what the method's own paper says, under its own protocol. "
        f"{caveats.MARKS}\n"
    )
    return "\n".join(parts)


_READ = (
    "In brackets: the difference to blank reports through the same method / to labels only; – "
    "where a control is missing, or where there are no features. Bold: above both controls after "
    "Holm's correction over all comparisons on this graph.\n"
)


def _mean_rank(own: Sequence[Standing]) -> tuple[int, float]:
    """Controls, then the ranked, then what is not complete."""
    ranks = [one.rank for one in own if one.rank is not None]
    if own[0].entry.is_control:
        return 0, 0.0
    return (1, fmean(ranks)) if ranks else (2, 0.0)


def _shown(one: Standing | None, rule: str) -> Shown:
    if one is None:
        return Shown("–")
    parts = [_gain(against) for against in (one.blank, one.labels_only)]
    behind = "" if one.entry.is_control else f" ({' / '.join(parts)})"
    below = [f"printed: {_printed(one)}"] if one.printed is not None else []
    if not one.is_complete:
        below.append(f"{one.summary.count} of {one.cell.point.settings.repeats} repeats")
    marks = one.marks(rule)
    return Shown(
        f"{one.summary}{marks and ' ' + marks}{behind}", one.beats_both is True, "; ".join(below)
    )


def _printed(one: Standing) -> str:
    return f"{one.printed}, with features" if one.is_on_blank else str(one.printed)


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
    return (
        f"# Cost\n\n{grid.to_markdown()}\nMeans over all settings that an entry has: learners and "
        "label mechanisms run with private labels only, and LPGNN as published for 500 epochs. "
        "Measured on machines with other work, so compare with care.\n"
    )


def _ranks(whole: Sequence[Standing]) -> str:
    """Entries over all settings: a graph with a feature and a label budget is one setting."""
    parts = ["# Ranks\n"]
    for text, lines in _ranked(whole):
        grid = Grid.of_text([*RANKS.values()], lines)
        parts.append(f"## ε_y={text}\n\n{grid.to_markdown()}")
    graphs = ", ".join(dict.fromkeys(one.dataset for one in whole)) or "none yet"
    parts.append(
        f"Graphs that are complete: {graphs}. Place: the share of the other entries of a setting "
        "that it is above, in percent, on average; equal ones count half, 100 is first everywhere. "
        "Above: after Holm's correction over all comparisons on a graph.\n"
    )
    return "\n".join(parts)


def _ranked(whole: Sequence[Standing]) -> list[tuple[str, list[list[str]]]]:
    """The lines of the ranks, by label budget: learners run with private labels only."""
    return [
        (
            value_text(canonical(y_eps)),
            [
                [one.entry.title, str(one.settings), f"{one.place:.0f}", *map(str, _counts(one))]
                for one in overall([s for s in whole if s.y_eps == y_eps])
            ],
        )
        for y_eps in dict.fromkeys(one.y_eps for one in whole)
    ]


RANKS = {
    **{"entry": "Entry", "settings": "Settings", "place": "Place", "firsts": "First"},
    **{"blank": "Above blank", "labels": "Above labels only", "both": "Above both"},
}


def _counts(one: Overall) -> tuple[int, int, int, int]:
    return one.firsts, one.above_blank, one.above_labels_only, one.above_both


def _page(
    what: Computed,
    found: Sequence[Standing],
    whole: Sequence[Standing],
    bought: Mapping[str, str],
    changes: str,
    drawing: bytes,
) -> str:
    import base64

    environment = page_templates("benchmark")
    plan = what.plan
    return environment.get_template("leaderboard.html.j2").render(
        rows=json.dumps([_row(one, plan.protocol.selection) for one in found]).replace(
            "</", "<\\/"
        ),
        datasets=list(dict.fromkeys(one.dataset for one in found)),
        bought=bought,
        x_budgets=[canonical(x) for x in plan.protocol.x_eps],
        y_budgets=[(canonical(y), value_text(canonical(y))) for y in plan.protocol.y_eps],
        rank_headings=list(RANKS.values()),
        ranks=_ranked(whole),
        families=list(dict.fromkeys(one.entry.family for one in found)),
        protocol=plan.protocol,
        symbols={key: symbol(key) for key in ("x_eps", "y_eps")},
        changes=changes,
        rule_text=_RULE_TEXTS[plan.protocol.selection],
        blank_text=BLANK,
        search_text=caveats.search_text(plan),
        labels_text=caveats.LABELS,
        engines=caveats.engines(whole),
        marks_text=caveats.MARKS,
        unfinished=what.unfinished_text(),
        pareto=base64.b64encode(drawing).decode(),
    )


def _row(one: Standing, rule: str) -> dict[str, Any]:
    def against(found: Against | None) -> list[Any] | None:
        if found is None:
            return None
        between = found.difference
        return [round(x, 4) for x in (between.mean, between.low, between.high)] + [found.verdict]

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
        "mean": round(one.summary.mean, 4),
        "ci": None if one.summary.ci is None else round(one.summary.ci, 4),
        "count": one.summary.count,
        "printed": None if one.printed is None else _printed(one),
        "blank": against(one.blank),
        "labels": against(one.labels_only),
        "beats": one.beats_both,
        "mark": one.marks(rule),
        "lacks": ", ".join(one.lacks),
        "total": canonical(one.total_eps),
        "seconds": round(one.seconds, 2),
        "chose": " ".join(f"{key}={canonical(value)}" for key, value in one.values.items()),
        "command": one.command,
        "id": one.cell.identity,
    }
