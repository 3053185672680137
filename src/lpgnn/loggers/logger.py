"""What a logger is, and what it gets to see of a run."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from lpgnn.components import Component
from lpgnn.errors import InputError
from lpgnn.rows import SETTINGS


@dataclass(frozen=True)
class LoggedRun:
    """A run that has just been trained: its row, and its curves."""

    row: Mapping[str, Any]
    curves: Mapping[str, Sequence[float]]  # name -> one value per epoch, from the first
    results_dir: Path

    @property
    def name(self) -> str:
        return f"{self.row['id']}-{self.row['repeat']}"

    def settings(self) -> dict[str, Any]:
        """What was run: the columns of the row that are settings, options one by one."""
        own = {key: self.row[key] for key in SETTINGS if key != "options"}
        return {**own, **json.loads(self.row["options"]), "repeat": self.row["repeat"]}

    def summary(self) -> dict[str, float]:
        """What came out: for each selection rule its epoch, losses, accuracies and metrics."""
        return {key: float(value) for key, value in self.row.items() if "/" in key}

    def points(self) -> Iterator[tuple[str, float, int]]:
        """Every number with its name and epoch: curves, and results at the epoch a rule chose."""
        for name, values in self.curves.items():
            for epoch, value in enumerate(values, start=1):
                yield f"curves/{name}", value, epoch
        for name, value in self.summary().items():
            yield name, value, int(self.row[f"{name.partition('/')[0]}/epoch"])


@dataclass(frozen=True)
class Logger(Component):
    """Base of all loggers.  A logger watches: it decides no number and is in no identity.

    ``package`` is imported by the logger and comes with the extra of the logger's name.
    """

    kind: ClassVar[str] = "logger"
    package: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if self.package and find_spec(self.package) is None:
            needs = f"needs {self.package}: pip install 'lpgnn[{self.name}]'"
            raise InputError("logger", self.name, needs)

    def prepare(self, results_dir: Path) -> None:
        """Called once before the work, where the sweep is started."""

    def log(self, run: LoggedRun) -> None:
        """Called after each run, in the process that trained it and before its row is stored."""
        raise NotImplementedError
