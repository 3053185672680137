"""The runs of a results folder that no experiment shows, as a table of their own."""

import csv
import io
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from lpgnn.report.evidence import Source
from lpgnn.report.grid import Grid
from lpgnn.report.notation import canonical, symbol
from lpgnn.report.tables import decimal
from lpgnn.rows import SETTINGS, Row, Summary, summarise, write_atomically

NAME = "runs"
_KINDS = ("csv", "md", "tex")


@dataclass(frozen=True)
class RunTable:
    """A line for each configuration; what is the same in all of them is told once."""

    keys: tuple[str, ...]  # settings that tell the runs apart, the dataset first
    shared: dict[str, str]
    runs: dict[str, tuple[dict[str, str], Summary]]  # by identity: settings and accuracy

    def grid(self) -> Grid:
        rows = [
            [*(settings.get(key, "–") for key in self.keys), str(found), str(found.count), identity]
            for identity, (settings, found) in self.runs.items()
        ]
        headings = [*map(symbol, self.keys), "Test accuracy", "Repeats", "Identity"]
        return Grid.of_text(headings, rows, labels=len(self.keys))

    def note(self) -> str:
        same = ", ".join(f"{key}={value}" for key, value in self.shared.items())
        return f"All of these: {same}.\n" if same else ""

    def csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*self.keys, "mean", "ci", "count", "id"])
        for identity, (settings, found) in self.runs.items():
            mean = found.mean if found.count else None
            numbers = [decimal(mean), decimal(found.ci), found.count]
            writer.writerow([*(settings.get(key, "") for key in self.keys), *numbers, identity])
        return text.getvalue()

    def write(self, folder: Path) -> None:
        """Write ``runs.csv``, ``.md`` and ``.tex``."""
        grid = self.grid()
        texts = {
            "csv": self.csv(),
            "md": f"{grid.to_markdown()}\n{self.note()}",
            "tex": grid.to_latex("Runs", f"tab:{NAME}"),
        }
        for kind, text in texts.items():
            write_atomically(folder / f"{NAME}.{kind}", text)


def other_runs(
    source: Source, *, shown: Collection[str], datasets: Collection[str]
) -> RunTable | None:
    """The runs with neither an identity in ``shown`` nor a dataset in ``datasets``."""
    found: dict[str, list[Row]] = {}
    for name in source.store.datasets():
        if name not in datasets:
            for row in source.store.stream(name):
                if row["id"] not in shown:
                    found.setdefault(row["id"], []).append(row)
    if not found:
        return None
    settings = {identity: _settings(rows[0]) for identity, rows in found.items()}
    keys = dict.fromkeys(key for one in settings.values() for key in one)
    # What some runs lack, such as the options of another filter, tells none of the others apart.
    values = {key: {one[key] for one in settings.values() if key in one} for key in keys}
    apart = tuple(key for key in keys if key == "dataset" or len(values[key]) > 1)
    everywhere = [key for key in keys if all(key in one for one in settings.values())]
    shared = {key: next(iter(values[key])) for key in everywhere if key not in apart}
    runs = {
        identity: (settings[identity], _summary(rows, source.selection))
        for identity, rows in found.items()
    }
    return RunTable(apart, shared, runs)


def remove_runs(results_dir: Path) -> None:
    for kind in _KINDS:
        (results_dir / "tables" / f"{NAME}.{kind}").unlink(missing_ok=True)


def _settings(row: Mapping[str, str]) -> dict[str, str]:
    """What was asked for, in one spelling, the components' options among it.

    Of the dataset the name is enough.
    """
    own = {key: row[key] for key in SETTINGS if key not in ("options", "fingerprint")}
    options = json.loads(row["options"] or "{}")
    found = own | {k: v for k, v in options.items() if not k.startswith("dataset.")}
    return {key: canonical(value) for key, value in found.items() if value not in ("", None)}


def _summary(rows: list[Row], selection: str) -> Summary:
    column = f"{selection}/test/acc"
    return summarise([float(r[column]) for r in rows if r["status"] == "ok" and r.get(column)])
