"""An experiment's tables and figures, written to a results folder."""

from pathlib import Path

from lpgnn.report.evidence import Results, Source
from lpgnn.report.figures import draw_figure
from lpgnn.report.maps import draw_map
from lpgnn.report.page import Built, render
from lpgnn.report.tables import Printed, Table, build_table
from lpgnn.rows import write_atomically
from lpgnn.shown import as_keys, parse_figure


def tables_of(results: Results) -> dict[str, Table]:
    specs = results.experiment.tables
    return {name: build_table(name, options, results) for name, options in specs.items()}


def printed_values(results: Results) -> dict[str, Printed]:
    """The printed number of each computation that stands in a table with printed numbers."""
    return {
        number.cell.identity: number.printed
        for table in tables_of(results).values()
        for number in table.numbers.values()
        if number.printed is not None and number.cell is not None and not number.is_control
    }


def build(name: str, source: Source) -> Built:
    """Write an experiment's tables and figures to ``tables/`` and ``figures/``."""
    results = source.results(name)
    tables, figures = tables_of(results), {}
    for table in tables.values():
        table.write(source.results_dir / "tables")
    folder = source.results_dir / "figures"
    for figure, options in results.experiment.figures.items():
        spec = parse_figure(figure, options)[0]
        if spec.map:
            drawn = draw_map(figure, tables[spec.map], folder)
        else:
            printed: dict[str, Printed] = {}
            for other in (name, *as_keys(spec.printed)):
                printed |= printed_values(source.results(other))
            drawn = draw_figure(figure, options, results, printed, folder)
        if drawn is not None:
            figures[figure] = drawn
    return Built(results, tables, figures)


def write_page(built: Built, source: Source) -> Path:
    """Write ``pages/<experiment>.html``."""
    path = source.results_dir / "pages" / f"{built.name}.html"
    write_atomically(path, render("report/page.html.j2", [built], source.selection, results="../"))
    return path


def remove(results: Results, results_dir: Path) -> None:
    """Remove what an experiment without rows has left behind: no row supports it any more."""
    shown = results.experiment
    stale = [f"tables/{name}.{kind}" for name in shown.tables for kind in ("csv", "md", "tex")]
    stale += [f"figures/{name}.{kind}" for name in shown.figures for kind in ("png", "svg")]
    for name in stale:
        (results_dir / name).unlink(missing_ok=True)
