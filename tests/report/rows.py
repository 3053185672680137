"""Synthetic rows: what lpgnn.run would have written for a cell, with accuracies of ours."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lpgnn.config import Settings
from lpgnn.report.cells import Cell, curves, table_cells
from lpgnn.results import RowStore


def cell_of(table: str, dataset: str, row: str, column: str) -> Cell:
    (found,) = (
        cell
        for cell in table_cells(Settings())
        if (cell.table, cell.dataset, cell.row, cell.column) == (table, dataset, row, column)
    )
    return found


def point_of(name: str, coordinate: str) -> Cell:
    (found,) = (
        cell
        for curve in curves(Settings())
        for cell in curve.cells
        if (cell.row, cell.column) == (name, coordinate)
    )
    return found


def add_rows(
    results_dir: Path,
    settings: Settings,
    paper: Sequence[float],
    released: Sequence[float] | None = None,
    *,
    failed: Sequence[int] = (),
) -> str:
    """Store a row a value; return their identity."""
    configuration = settings.resolve()
    rows: list[dict[str, Any]] = []
    for repeat, (ours, other) in enumerate(zip(paper, released or paper, strict=True)):
        bad = repeat in failed
        rows.append(
            {
                "id": configuration.identity,
                "repeat": repeat,
                **configuration.columns(),
                "status": "failed: loss is not finite at epoch 3" if bad else "ok",
                "paper/test/acc": "" if bad else f"{ours:.3f}",
                "released/test/acc": "" if bad else f"{other:.3f}",
                "duration": "1.50",
                "version": "0.1.0",
                "revision": "0123456789",
                "dirty": False,
            }
        )
    RowStore(results_dir).add(configuration.dataset.name, rows)
    return configuration.identity
