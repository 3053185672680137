"""Parts of a page that needs nothing but itself: what is missing, and how numbers were made."""

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any
from urllib.parse import quote

from lpgnn.counting import counted
from lpgnn.report.evidence import FOLDERS, Cell, Results, other_rule
from lpgnn.report.grid import Grid
from lpgnn.report.notation import canonical
from lpgnn.report.tables import Table
from lpgnn.report.templates import page_templates
from lpgnn.rows import Row

# What an address in double quotes may hold as it is.
_AS_THEY_ARE = " !$'()*+,-./:;<=>?@[]^_`{|}~"


@dataclass(frozen=True)
class Built:
    """An experiment with its tables and the SVG of its figures."""

    results: Results
    tables: dict[str, Table]
    figures: dict[str, bytes]

    @property
    def name(self) -> str:
        return self.results.experiment.name

    def caption(self, figure: str) -> str:
        return str(self.results.experiment.figures[figure].get("caption", figure))


def render(
    template: str, built: Sequence[Built], selection: str, *, results: str = "", **values: Any
) -> str:
    """Fill a template of this package: ``report/page.html.j2`` or one that extends it.

    results: the address of the results folder from the page, as "../"
    """

    environment = page_templates()
    environment.filters["data_uri"] = data_uri
    missing = [row for one in built for row in gaps(one.results)]
    made = origins(built)
    return environment.get_template(template).render(
        built=built,
        selection=selection,
        results=results,
        other_rule=other_rule(selection),
        gaps=Grid.of_text(["Experiment", "Dataset", "What"], missing) if missing else None,
        origins=made,
        linked={one.identity for group in made for one in group.listed},
        interval=_interval(built),
        compute=compute_text(cell for one in built for cell in one.results.cells),
        **values,
    )


def _interval(built: Sequence[Built]) -> str:
    """What a ± stands for, which an experiment decides."""
    kinds = {one.results.experiment.interval for one in built}
    if len(kinds) > 1:
        return "95 % interval (the percentile bootstrap in the paper's own, Student's t in ours)"
    return "95 % t interval" if kinds == {"t"} else "95 % bootstrap interval"


def data_uri(svg: bytes) -> str:
    """A picture as an address in double quotes; as text it takes a quarter less than base 64."""
    from markupsafe import Markup

    return Markup("data:image/svg+xml," + quote(svg.replace(b'"', b"'"), safe=_AS_THEY_ARE))


def gaps(results: Results) -> Iterator[tuple[str, str, str]]:
    """Experiment, dataset, and what is missing or incomplete there."""
    for dataset in dict.fromkeys(cell.dataset for cell in results.cells):
        cells = [cell for cell in results.cells if cell.dataset == dataset]
        absent = [cell for cell in cells if not cell.rows]
        where = (results.experiment.name, dataset)
        if absent:
            what = f"{len(absent)} of {len(cells)} have no rows"
            if len(absent) < len(cells):
                names = [cell.name for cell in absent[:8]] + ["..."] * (len(absent) > 8)
                what += ": " + "; ".join(names)
            obstacles = sorted({cell.obstacle for cell in absent} - {""})
            yield *where, what + "".join(f" ({obstacle})" for obstacle in obstacles)
        for cell in cells:
            if cell.rows and (cell.num_failed or not cell.is_finished):
                failed = f", {cell.num_failed} of them failed" if cell.num_failed else ""
                wanted = cell.point.settings.repeats
                yield *where, f"{cell.name}: {len(cell.rows)} of {wanted} repeats{failed}"


@dataclass(frozen=True)
class Stated:
    """A computation by one metric: its means under both rules, and its repeats."""

    metric: str
    chosen: str
    other: str
    values: str  # of the repeats, under the chosen rule


@dataclass(frozen=True)
class Origin:
    """How a number was made: its command, its repeats, and what else decided it."""

    identity: str
    label: str
    command: str
    stated: tuple[Stated, ...]  # by every metric that a table shows it by
    details: str  # settings that not all of its experiment share, repeats, revision and identity
    files: tuple[str, ...]  # that hold its rows, from the results folder


@dataclass(frozen=True)
class Origins:
    """The computations of an experiment, without those that an earlier one lists."""

    title: str
    listed: list[Origin]
    shared: str  # settings that all of them have
    num_elsewhere: int


def origins(built: Sequence[Built]) -> list[Origins]:
    """Every computation once, under the first experiment that shows it."""
    listed: set[str] = set()
    metrics = _metrics(built)
    return [_origins(one.results, listed, metrics) for one in built]


def _metrics(built: Sequence[Built]) -> dict[str, list[str]]:
    """By which metrics tables show a computation."""
    found: dict[str, list[str]] = {}
    for table in (table for one in built for table in one.tables.values()):
        for number in table.numbers.values():
            if number.cell is not None:
                own = found.setdefault(number.cell.identity, [])
                if table.spec.metric not in own:
                    own.append(table.spec.metric)
    return found


def _origins(results: Results, listed: set[str], metrics: Mapping[str, list[str]]) -> Origins:
    cells = {cell.identity: cell for cell in results.cells if cell.rows and cell.identity}
    fresh = [cell for identity, cell in cells.items() if identity not in listed]
    listed.update(cells)
    settings = {cell.identity: _settings_of(cell) for cell in fresh}
    shared = set.intersection(*map(set, settings.values())) if settings else set()
    found = [
        Origin(
            cell.identity,
            cell.point.label or "",
            _command(cell, results),
            _stated_by_all(cell, results, metrics.get(cell.identity, ["acc"])),
            _details(cell, [pair for pair in settings[cell.identity] if pair not in shared]),
            cell.files,
        )
        for cell in fresh
    ]
    common = next(iter(settings.values()), [])
    text = ", ".join(pair for pair in common if pair in shared)
    return Origins(results.experiment.title, found, text, len(cells) - len(fresh))


def _stated_by_all(cell: Cell, results: Results, metrics: Sequence[str]) -> tuple[Stated, ...]:
    """By the metrics that its rows have; by the first, if they have none."""
    found = [_stated(cell, results, metric) for metric in metrics]
    return tuple(one for one in found if one.values) or tuple(found[:1])


def _stated(cell: Cell, results: Results, metric: str) -> Stated:
    other = other_rule(results.selection)
    values = cell.values(results.selection, metric).values()
    return Stated(
        metric,
        str(results.summary(cell, metric=metric) or "–"),
        str(results.summary(cell, metric=metric, rule=other) or "–"),
        " ".join(f"{value:.1f}" for value in values),
    )


def _details(cell: Cell, settings: list[str]) -> str:
    repeats = ranges(int(row["repeat"]) for row in cell.rows)
    revisions = ", ".join(sorted({_revision(row) for row in cell.rows}))
    parts = [", ".join(settings), f"repeats {repeats}", f"revision {revisions}"]
    return "; ".join([*filter(None, parts), f"id {cell.identity}"])


def _command(cell: Cell, results: Results) -> str:
    """The command that computes a cell; where its rows go is the reader's choice."""
    words = results.experiment.overrides(cell.point)
    own = [word for word in words if word.partition("=")[0] not in FOLDERS]
    return shlex.join(["python", "-m", "lpgnn.run", *own])


def _settings_of(cell: Cell) -> list[str]:
    """What decides a cell's numbers beyond its choices: settings, and options not at defaults."""
    assert cell.configuration is not None
    columns = cell.configuration.columns()
    left_out = ("dataset", "options", "fingerprint")
    found = {key: value for key, value in columns.items() if key not in left_out}
    usual = {
        f"{kind}.{one.name}": one.default
        for kind, component in cell.configuration.components().items()
        if is_dataclass(component)
        for one in fields(component)
    }
    options = json.loads(columns["options"])
    found |= {k: v for k, v in options.items() if k not in usual or v != usual[k]}
    return [f"{k}={v}" for k, v in found.items() if cell.keys.get(k) != canonical(v)]


def ranges(numbers: Iterable[int]) -> str:
    """Whole numbers as ranges: 0–9, or 0–3, 5–9."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in found)


def _revision(row: Row) -> str:
    revision = row.get("revision") or f"version {row.get('version') or 'unknown'}"
    return f"{revision} (changed)" if row.get("dirty") == "true" else revision


def compute_text(cells: Iterable[Cell]) -> str:
    """The hours of one core behind the numbers; shared computations count once."""
    rows = {(row["id"], row["repeat"]): row for cell in cells for row in cell.rows}
    total = sum(float(row.get("duration") or 0) for row in rows.values())
    spent = f"{total:.0f} seconds"
    if total >= 3600:
        spent = f"{total / 3600:.1f} hours"
    elif total >= 60:
        spent = f"{total / 60:.1f} minutes"
    return f"{counted(len(rows), 'training')}, {spent} of one core"
