"""Parts of a page that needs nothing but itself: what is missing, and how numbers were made."""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lpgnn.report.evidence import Cell, Results, other_rule
from lpgnn.report.grid import Grid
from lpgnn.report.notation import html_text
from lpgnn.report.tables import Table
from lpgnn.rows import Row


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


def render(template: str, built: Sequence[Built], selection: str, **values: Any) -> str:
    """Fill a template of this package: ``report/page.html.j2`` or one that extends it."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("lpgnn", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["symbols"] = lambda text: Markup(html_text(text))
    environment.filters["base64"] = lambda data: base64.b64encode(data).decode()
    missing = [row for one in built for row in gaps(one.results)]
    return environment.get_template(template).render(
        built=built,
        selection=selection,
        gaps=Grid.of_text(["Experiment", "Dataset", "What"], missing) if missing else None,
        origins=[(one.results.experiment.title, origins(one.results)) for one in built],
        compute=compute_text(cell for one in built for cell in one.results.cells),
        **values,
    )


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


def origins(results: Results) -> Grid:
    """How each number was made; a computation that cells share is listed once."""
    rule, other = results.selection, other_rule(results.selection)
    rows: dict[str, list[str]] = {}
    for cell in results.cells:
        if cell.rows and cell.configuration is not None and cell.identity not in rows:
            rows[cell.identity] = [
                f"{cell.dataset} · {cell.name}",
                *(str(results.summary(cell, rule=one) or "–") for one in (rule, other)),
                _configuration_text(cell.configuration.columns()),
                str(cell.configuration.seed),
                ranges(int(row["repeat"]) for row in cell.rows),
                ", ".join(sorted({_revision(row) for row in cell.rows})),
                cell.identity,
            ]
    headings = ["Number", f"{rule} rule", f"{other} rule", "Configuration", "Seed", "Repeats"]
    return Grid.of_text([*headings, "Revision", "Identity"], rows.values())


def _configuration_text(columns: Mapping[str, Any]) -> str:
    """The columns of a row that decide its numbers, options among them."""
    left_out = ("dataset", "seed", "options", "fingerprint")
    shown = {key: value for key, value in columns.items() if key not in left_out}
    return ", ".join(f"{k}={v}" for k, v in (shown | json.loads(columns["options"])).items())


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
    spent = f"{total / 3600:.1f} hours" if total >= 3600 else f"{total / 60:.1f} minutes"
    return f"{len(rows):,} trainings, {spent} of one core"
