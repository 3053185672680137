"""The paper's table of datasets, from their published facts."""

import csv
from importlib.resources import files
from pathlib import Path

from lpgnn.config import make_component
from lpgnn.data import Dataset
from lpgnn.report.grid import Grid, Shown
from lpgnn.rows import write_atomically

DATASETS = ("cora", "pubmed", "facebook", "lastfm")
_COLUMNS = {
    "num_classes": "#Classes",
    "num_nodes": "#Nodes",
    "num_edges": "#Edges",
    "num_features": "#Features",
    "average_degree": "Avg. Deg.",
}


def dataset(name: str) -> Dataset:
    found = make_component("dataset", name)
    assert isinstance(found, Dataset)
    return found


def statistics() -> dict[str, dict[str, str]]:
    """The dataset table's columns by dataset; features count with constant columns."""
    found = {}
    for name in DATASETS:
        facts = dataset(name).facts
        assert facts is not None
        counts = (facts.num_classes, facts.num_nodes, facts.num_edges, facts.raw_num_features)
        values = [*map(str, counts), f"{facts.average_degree:.2f}"]
        found[name] = dict(zip(_COLUMNS, values, strict=True))
    return found


def printed_statistics() -> dict[str, dict[str, str]]:
    """The paper's dataset table as printed."""
    text = (files("lpgnn.paper") / "datasets.csv").read_text("utf-8")
    return {row.pop("dataset"): row for row in csv.DictReader(text.splitlines())}


def _spelt(value: str) -> str:
    """Thousands separated, as the paper prints them."""
    return value if "." in value else f"{int(value):,}"


def statistics_grid(*, with_printed: bool = False) -> Grid:
    printed, rows = printed_statistics() if with_printed else {}, []
    for name, row in statistics().items():
        paper = {column: _spelt(value) for column, value in printed.get(name, {}).items()}
        numbers = [Shown(_spelt(row[column]), below=paper.get(column, "")) for column in _COLUMNS]
        rows.append([Shown(dataset(name).title), *numbers])
    return Grid(["Dataset", *_COLUMNS.values()], [rows])


def write_statistics(folder: Path) -> None:
    """Write ``datasets.csv``, ``.md`` and ``.tex``."""
    lines = [",".join(("dataset", *_COLUMNS))]
    lines += [",".join((name, *row.values())) for name, row in statistics().items()]
    grid, caption = statistics_grid(), "Descriptive statistics of the used datasets"
    write_atomically(folder / "datasets.csv", "\n".join([*lines, ""]))
    write_atomically(folder / "datasets.md", grid.to_markdown())
    write_atomically(folder / "datasets.tex", grid.to_latex(caption, "tab:dataset"))
