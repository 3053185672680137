"""``report.html``: the whole reproduction on one page that needs nothing but itself."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lpgnn.config import Configuration, Settings
from lpgnn.report.beyond import (
    CONTROLS,
    EDITIONS,
    GRAPHS,
    LEARNERS,
    beyond_cells,
    label_cells,
    value_cells,
    with_controls,
)
from lpgnn.report.cells import BACKBONES, DATASETS, TABLES, Cell, Table, all_cells, curves
from lpgnn.report.comparison import (
    ABOVE,
    BELOW,
    MISSING,
    UNFINISHED,
    WITHIN_CIS,
    WITHIN_POINTS,
    Judged,
    verdict_counts,
)
from lpgnn.report.evidence import Evidence, other_rule, succeeded
from lpgnn.report.findings import BEYOND, COMPUTE_TIME, Findings, compute_hours
from lpgnn.report.printed import paper_statistics
from lpgnn.report.tables import (
    WITH_DROP,
    FilledCell,
    Key,
    best_of,
    fill,
    fill_controls,
    lay_out,
    printed_drop,
    printed_statistics,
    read_statistics,
)
from lpgnn.report.value import Worth, budget_text, levels_text, pays_grid, worth_grid
from lpgnn.results import Row, write_atomically

# Class name and symbol of a verdict: the symbol tells it without colour.
MARKS = {
    WITHIN_CIS: ("cis", "●"),
    WITHIN_POINTS: ("points", "◐"),
    ABOVE: ("above", "▲"),
    BELOW: ("below", "▼"),
    UNFINISHED: ("missing", "◌"),
    MISSING: ("missing", "–"),
}
CAPTIONS = {
    "budgets": "Accuracy under varying feature and label budgets: a row a backbone, x: ε_x, "
    "series: ε_y. Dotted: the labels alone, without features or network.",
    "kprop": "Effect of the KProp steps: upper row K_x at ε_y=1, lower row K_y at ε_x=1. "
    "Dotted: the labels alone. The y axis does not start at zero.",
    "mechanisms": "The mechanisms table as a picture (ε_y=∞), with the controls.",
    "features": "The features table as a picture (ε_y=1), with the controls.",
    "denoising": "The denoising table as a picture (ε_x=1), with the controls.",
    "convexity": "f(z) = z coth²(z/2), the multi-bit mechanism's variance bound up to a constant, "
    "and its minimum (closed form).",
    "value_of_features": "What the private features are worth: accuracy over ε_x, with ε_y=∞ above "
    "and ε_y=1 below; bands are what knows no ε_x. The y axis does not start at zero.",
}

# What is shown point by point, not as a table of cells.
FIGURES_OF_POINTS = ("xyeps", "kprop", "value_of_features")

# Why LastFM is missing wherever a private feature is needed.
NO_LASTFM_FEATURES = "LastFM’s features.csv was not available; ones, ohd and rnd do without it"


@dataclass(frozen=True)
class Gap:
    """Something that is not there: where, how much of it, and what is known about it."""

    where: str
    dataset: str
    what: str


@dataclass(frozen=True)
class Origin:
    """How a number was made."""

    identity: str
    where: str
    config: str
    result: str
    other: str
    repeats: str
    seed: str
    revision: str


def write_page(
    base: Settings,
    evidence: Evidence,
    judged: Sequence[Judged],
    said: Findings,
    found: Sequence[Worth],
    drawn: Mapping[str, bytes],
) -> None:
    """Fill the template and write ``report.html``."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("lpgnn.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["symbols"] = _symbols
    verdicts = [one.verdict for one in judged]
    pictures = {name: base64.b64encode(svg).decode() for name, svg in drawn.items()}
    value = pictures.pop("value_of_features", None)
    page = environment.get_template("page.html.j2").render(
        selection=base.selection,
        other_selection=other_rule(base.selection),
        num_cells=len(judged),
        num_found=sum(one.is_finished and one.ours is not None for one in judged),
        counts=verdict_counts(verdicts),
        other_counts=verdict_counts([one.other_verdict for one in judged]),
        per_table=[
            (table.name, verdict_counts([o.verdict for o in judged if o.cell.table == table.name]))
            for table in TABLES
        ],
        marks=MARKS,
        statistics=_statistics(base),
        tables=[(table, *_shown_table(table, judged, base, evidence)) for table in TABLES],
        figures=[(name, CAPTIONS[name], data) for name, data in pictures.items()],
        beyond=BEYOND,
        sentences=said.sentences(),
        multi_bit=said.multi_bit,
        value_figure=(value, CAPTIONS["value_of_features"]) if value else None,
        pays=pays_grid(found),
        worths=[
            (f"{GRAPHS[one.dataset]}, ε_y={budget_text(one.y_eps)}", levels_text(one), _worth(one))
            for one in found
        ],
        beyond_tables=list(_beyond_tables(base, evidence)),
        hours=compute_hours(base, evidence),
        hours_told=COMPUTE_TIME,
        gaps=list(_gaps(base, evidence)),
        origins=list(_origins(base, evidence)),
        compute=_compute(base, evidence),
    )
    write_atomically(Path(base.results_dir) / "report.html", page)


def _symbols(text: str) -> str:
    """Escape a label and set its indices: ε_x, ε_y, K_x, K_y."""
    from markupsafe import Markup, escape

    escaped = str(escape(text))
    for symbol in ("ε_x", "ε_y", "K_x", "K_y"):
        escaped = escaped.replace(symbol, f"{symbol[0]}<sub>{symbol[-1]}</sub>")
    return Markup(escaped)


def _shown_table(
    table: Table, judged: Sequence[Judged], base: Settings, evidence: Evidence
) -> tuple[list[str], list[list[list[str]]]]:
    """Headings and blocks of rows, in the layout of the paper; cells are small HTML."""
    from markupsafe import Markup

    mine = {
        (one.cell.dataset, one.cell.row, one.cell.column): one
        for one in judged
        if one.cell.table == table.name
    }
    best = best_of(table, {key: one.ours for key, one in mine.items()})
    printed_best = best_of(table, {key: one.printed for key, one in mine.items()})
    texts: dict[Key, str] = {}
    for key, one in mine.items():
        kind, symbol = MARKS[one.verdict]
        ours = "–" if one.ours is None else str(one.ours)
        title = one.verdict
        if one.ours is not None:
            difference = one.ours.mean - one.printed.mean
            title += f", {difference:+.1f} points, {one.ours.count} repeats"
        texts[key] = Markup(
            '<span class="cell {kind}" title="{title}"><span class="ours">'
            '<i aria-label="{verdict}">{symbol}</i>{ours}</span>'
            '<span class="printed">{printed}</span></span>'
        ).format(
            kind=kind,
            title=title,
            verdict=one.verdict,
            symbol=symbol,
            ours=_bold(ours, key in best),
            printed=_bold(str(one.printed), key in printed_best),
        )
    controls = fill_controls(table, base, evidence)
    texts |= {key: _shown_edition(one) for key, one in controls.items()}
    grid = lay_out(with_controls(table), texts, tex=False)
    return grid.headings, grid.blocks


def _beyond_tables(
    base: Settings, evidence: Evidence
) -> Iterable[tuple[Table, list[str], list[list[list[str]]]]]:
    """The conditioned editions, with the paper's mean in grey, and the learners."""
    for table in EDITIONS:
        texts = {key: _shown_edition(one) for key, one in fill(table, base, evidence).items()}
        grid = lay_out(table, texts, tex=False)
        yield table, grid.headings, grid.blocks
    texts = {key: _shown_edition(one) for key, one in fill(LEARNERS, base, evidence).items()}
    texts |= {key: str(one) for key, one in printed_drop().items()}
    grid = lay_out(WITH_DROP, texts, tex=False)
    yield LEARNERS, grid.headings, grid.blocks


def _shown_edition(one: FilledCell) -> str:
    """Ours, and below it what the paper prints in that place, with the difference."""
    from markupsafe import Markup

    ours = "–" if one.summary is None else str(one.summary)
    below = ""
    if one.printed is not None:
        below = f"{one.printed.mean:.1f}"
        if one.summary is not None:
            below += f" ({one.summary.mean - one.printed.mean:+.1f})"
    kind = "missing" if one.summary is None else "beyond"
    return Markup(
        '<span class="cell {kind}"><span class="ours">{ours}</span>'
        '<span class="printed">{below}</span></span>'
    ).format(kind=kind, ours=_bold(ours, one.best), below=below)


def _worth(one: Worth) -> tuple[list[str], list[list[list[str]]]]:
    """The Markdown grid with its bold turned into HTML."""
    grid = worth_grid(one)
    blocks = [
        [[_bold(text.strip("*"), text.startswith("**")) for text in row] for row in block]
        for block in grid.blocks
    ]
    return grid.headings, blocks


def _bold(text: str, bold: bool) -> str:
    from markupsafe import Markup

    return Markup("<b>{}</b>").format(text) if bold else text


def _statistics(base: Settings) -> list[tuple[str, list[tuple[str, str]]]]:
    """Dataset, and ours beside the paper's for each column; a dash where nothing is recorded."""
    recorded, printed = read_statistics(base.results_dir), paper_statistics()
    if not any(name in recorded for name in DATASETS):
        return []
    shown = []
    for name, title in DATASETS.items():
        paper = printed_statistics(printed[name])
        ours = printed_statistics(recorded[name]) if name in recorded else ["–"] * len(paper)
        shown.append((title, list(zip(ours, paper, strict=True))))
    return shown


def _gaps(base: Settings, evidence: Evidence) -> Iterable[Gap]:
    """What is missing or incomplete, by table or figure and dataset."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in (*all_cells(base), *beyond_cells(base)):
        kind = "figure" if cell.table in FIGURES_OF_POINTS else "table"
        groups.setdefault((f"{kind} {cell.table}", cell.dataset), []).append(cell)
    for (where, dataset), cells in groups.items():
        absent = [cell for cell in cells if not evidence.rows(cell)]
        if absent:
            unit = "cells" if where.startswith("table") else "points"
            what = f"{len(absent)} of {len(cells)} {unit} have no rows"
            if where.startswith("table") and len(absent) < len(cells):
                what += ": " + "; ".join(f"{cell.row}, {cell.column}" for cell in absent)
            if dataset == "lastfm" and all(evidence.needs_features(cell) for cell in absent):
                what += f" ({NO_LASTFM_FEATURES})"
            for obstacle in sorted({evidence.obstacle(cell) for cell in absent} - {""}):
                what += f" ({obstacle})"
            yield Gap(where, dataset, what)
        for cell in cells:
            rows = evidence.rows(cell)
            failed = len(rows) - len(succeeded(rows))
            if rows and (failed or len(rows) < cell.settings.repeats):
                what = f"{len(rows)} of {cell.settings.repeats} repeats"
                what += f", {failed} of them failed" if failed else ""
                yield Gap(where, dataset, f"{cell.row}, at {cell.column}: {what}")


def _origins(base: Settings, evidence: Evidence) -> Iterable[tuple[str, list[Origin]]]:
    """How each number was made, by table and figure."""
    for table in TABLES:
        yield f"Table {table.name}", _origins_of(table.cells(base), base, evidence)
    for figure in ("xyeps", "kprop"):
        cells = (c for curve in curves(base) if curve.figure == figure for c in curve.cells)
        yield f"Figure {figure}", _origins_of(cells, base, evidence)
    for table in (*CONTROLS.values(), *EDITIONS, LEARNERS):
        yield f"Table {table.name}", _origins_of(table.cells(base), base, evidence)
    yield "Labels only", _origins_of(label_cells(base), base, evidence)
    yield "Value of features", _origins_of(value_cells(base), base, evidence)


def _origins_of(cells: Iterable[Cell], base: Settings, evidence: Evidence) -> list[Origin]:
    found: list[Origin] = []
    for cell in cells:
        rows, c = evidence.rows(cell), evidence.configuration(cell)
        if not rows or c is None:
            continue
        where = f"{cell.row} · {cell.column}"
        if cell.dataset not in cell.row:
            where = f"{cell.dataset} · {where}"
        other = evidence.summary(cell, other_rule(base.selection))
        found.append(
            Origin(
                evidence.identity(cell),
                where,
                _configuration_text(c),
                str(evidence.summary(cell, base.selection) or "–"),
                str(other or "–"),
                _repeats(rows),
                str(c.seed),
                ", ".join(sorted({_revision(row) for row in rows})),
            )
        )
    return found


def _configuration_text(c: Configuration) -> str:
    learner = c.learner.name
    if options := c.learner.all_options("learner"):
        learner += f" ({', '.join(map(str, options.values()))})"
    if learner.startswith("propagation"):
        return f"labels only: {learner}, ε_y={c.y_eps:g}, split {c.split}"
    features = {"raw": c.mechanism.name, "blank": f"blank through {c.mechanism.name}"}
    conditioning = "" if c.conditioning == "none" else f", conditioned by {c.conditioning}"
    return (
        f"{features.get(c.feature, c.feature)}{conditioning}, "
        f"{BACKBONES.get(c.backbone.name, c.backbone.name)}, {learner}, "
        f"ε_x={c.x_eps:g}, ε_y={c.y_eps:g}, K_x={c.x_steps}, K_y={c.y_steps}, "
        f"lr {c.learning_rate:g}, wd {c.weight_decay:g}, dropout {c.dropout:g}, "
        f"{c.max_epochs} epochs, split {c.split}"
    )


def _repeats(rows: Sequence[Row]) -> str:
    """The repeats as ranges: 0–9, or 0–3, 5–9."""
    numbers = [int(row["repeat"]) for row in rows]
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in ranges)


def _revision(row: Row) -> str:
    revision = row.get("revision") or f"version {row.get('version') or 'unknown'}"
    return f"{revision} (changed)" if row.get("dirty") == "true" else revision


def _compute(base: Settings, evidence: Evidence) -> str:
    """The hours of one core behind all numbers of the page; shared computations count once."""
    seconds: dict[tuple[str, str], float] = {}
    for cell in (*all_cells(base), *beyond_cells(base)):
        for row in evidence.rows(cell):
            seconds[row["id"], row["repeat"]] = float(row.get("duration") or 0)
    total = sum(seconds.values())
    spent = f"{total / 3600:.1f} hours" if total >= 3600 else f"{total / 60:.1f} minutes"
    return f"{len(seconds):,} trainings, {spent} of one core"
