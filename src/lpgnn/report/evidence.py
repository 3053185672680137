"""The rows behind every cell, and their summary."""

import math
from collections.abc import Sequence
from pathlib import Path

from lpgnn.config import Configuration
from lpgnn.errors import InputError
from lpgnn.report.cells import Cell
from lpgnn.results import Row, RowStore, Summary, summarise

RULES = ("paper", "released")


def other_rule(selection: str) -> str:
    """The selection rule that is not the chosen one."""
    return RULES[1 - RULES.index(selection)]


class Evidence:
    """The rows of a results folder by the identity of their computation.

    A cell counts the repeats its settings ask for, 0 to ``repeats - 1``; failed repeats have no
    accuracy and are left out of the summary.
    """

    def __init__(self, results_dir: Path | str) -> None:
        self.store = RowStore(results_dir)
        self._rows: dict[str, dict[str, list[Row]]] = {}
        self._configurations: dict[str, Configuration | InputError] = {}
        self._identities: dict[str, str] = {}
        self._summaries: dict[tuple[str, str, int], Summary | None] = {}

    def configuration(self, cell: Cell) -> Configuration | None:
        """What the cell computes; None while its table of hyper-parameters has no such entry."""
        found = self._resolved(cell)
        return None if isinstance(found, InputError) else found

    def obstacle(self, cell: Cell) -> str:
        """Why the cell cannot be computed yet; empty if it can."""
        found = self._resolved(cell)
        if not isinstance(found, InputError):
            return ""
        return f"not covered by hparams={cell.settings.hparams}: {found}"

    def identity(self, cell: Cell) -> str:
        """The identity of the cell's rows; empty while it cannot be resolved."""
        key = repr(cell.settings)
        if key not in self._identities:
            found = self.configuration(cell)
            self._identities[key] = found.identity if found is not None else ""
        return self._identities[key]

    def needs_features(self, cell: Cell) -> bool:
        """Whether the cell is computed from the graph's own features."""
        found = self.configuration(cell)
        return found is not None and found.feature == "raw"

    def rows(self, cell: Cell) -> list[Row]:
        """The cell's rows in the order of their repeats, failed ones among them."""
        wanted = self.rows_by_identity(cell.dataset).get(self.identity(cell), [])
        return [row for row in wanted if int(row["repeat"]) < cell.settings.repeats]

    def summary(self, cell: Cell, selection: str) -> Summary | None:
        """Mean and CI of the test accuracy under a selection rule; None without a row."""
        key = (self.identity(cell), selection, cell.settings.repeats)
        if key not in self._summaries:
            values = list(self.accuracies(cell, selection).values())
            self._summaries[key] = summarise(values) if values else None
        return self._summaries[key]

    def accuracies(self, cell: Cell, selection: str) -> dict[int, float]:
        """The test accuracy of each repeat that did not fail."""
        return {
            int(row["repeat"]): self._accuracy(row, cell, selection)
            for row in succeeded(self.rows(cell))
        }

    def _resolved(self, cell: Cell) -> Configuration | InputError:
        # Kept by their text: settings may hold mappings, which have no hash.
        key = repr(cell.settings)
        if key not in self._configurations:
            try:
                self._configurations[key] = cell.settings.resolve()
            except InputError as error:
                # Only the paper's table is sure to be there: others grow as graphs are tuned.
                if cell.settings.hparams == "paper":
                    raise
                self._configurations[key] = error
        return self._configurations[key]

    def _accuracy(self, row: Row, cell: Cell, selection: str) -> float:
        column = f"{selection}/test/acc"
        try:
            value = float(row[column])
        except (KeyError, TypeError, ValueError):
            value = math.nan
        if not 0 <= value <= 100:
            raise InputError(
                str(self.store.path(cell.dataset)),
                f"row {row['id']}/{row['repeat']}, {column} {row.get(column)!r}",
                "must be an accuracy in per cent",
            )
        return value

    def rows_by_identity(self, dataset: str) -> dict[str, list[Row]]:
        """All rows of a dataset, those that no cell asks for among them."""
        if dataset not in self._rows:
            grouped: dict[str, list[Row]] = {}
            for number, row in enumerate(self.store.read(dataset), start=2):
                if not (row.get("id") and str(row.get("repeat")).isdecimal() and row.get("status")):
                    raise InputError(
                        str(self.store.path(dataset)),
                        f"line {number}",
                        "must be a row of lpgnn.run with id, repeat and status",
                    )
                grouped.setdefault(row["id"], []).append(row)
            for rows in grouped.values():
                rows.sort(key=lambda row: int(row["repeat"]))
            self._rows[dataset] = grouped
        return self._rows[dataset]


def succeeded(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["status"] == "ok"]
