"""The numbers of an experiment: its points and the rows behind each."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median

from lpgnn.composition import Experiment, Point, read_experiment
from lpgnn.config import Configuration
from lpgnn.errors import InputError
from lpgnn.report.notation import canonical
from lpgnn.report.paired import Difference, paired
from lpgnn.rows import Row, RowStore, Summary, metric_sources, recorded_source, summarise
from lpgnn.rows.schema import RULES
from lpgnn.rows.summary import Interval


def other_rule(selection: str) -> str:
    """The selection rule that is not the chosen one."""
    return RULES[1 - RULES.index(selection)]


@dataclass(frozen=True)
class Cell:
    """A point of a grid with its rows: one number of a table or a figure.

    It counts the repeats its settings ask for, 0 to ``repeats - 1``; failed repeats have no
    accuracy and are left out of the summary.
    """

    point: Point
    configuration: Configuration | None
    obstacle: str  # why the point cannot be resolved, empty if it can
    rows: list[Row] = field(repr=False)
    files: tuple[str, ...] = ()  # that hold the rows, from the results folder

    @cached_property
    def identity(self) -> str:
        return "" if self.configuration is None else self.configuration.identity

    @cached_property
    def keys(self) -> dict[str, str]:
        """The point's choices in one spelling, the dataset and the label among them."""
        chosen = {k: canonical(v) for k, v in self.point.keys.items() if k not in FOLDERS}
        label = {"label": str(self.point.label)} if self.point.label else {}
        return chosen | {"dataset": self.dataset} | label

    @property
    def dataset(self) -> str:
        known = self.configuration
        return str(self.point.keys.get("dataset", "")) if known is None else known.dataset.name

    @property
    def name(self) -> str:
        """What tells the cell from the others of its dataset."""
        named = {k: v if k == "label" else f"{k}={v}" for k, v in self.keys.items()}
        return ", ".join(text for key, text in named.items() if key != "dataset")

    @property
    def trains(self) -> bool:
        return self.configuration is None or self.configuration.trains

    @property
    def asks(self) -> bool:
        return self.configuration is not None and self.configuration.asks

    @property
    def reads_features(self) -> bool:
        return self.configuration is None or self.configuration.reads_features

    @property
    def is_blank(self) -> bool:
        """Whether the reports hold nothing."""
        known = self.configuration
        return known is not None and known.feature is not None and known.feature.name == "blank"

    @property
    def is_finished(self) -> bool:
        """All wanted repeats have a row, be it a failed one."""
        return len(self.rows) >= self.point.settings.repeats

    @property
    def num_failed(self) -> int:
        return sum(row["status"] != "ok" for row in self.rows)

    @cached_property
    def engines(self) -> dict[int, str]:
        """What computed each repeat; of rows from before engines were recorded, the revision.

        Changed sources have no name: such a row is like no other.
        """
        found = {}
        for row in self.rows:
            unknown = f" of {row['id']}" if row.get("dirty") == "true" else ""
            found[int(row["repeat"])] = (row.get("engine") or row["revision"]) + unknown
        return found

    def kept_epochs(self, selection: str) -> tuple[int, ...]:
        """The epoch that a rule keeps in each repeat; none where no network is trained."""
        known = self.configuration
        if known is not None and not known.learner.uses_network:
            return ()
        kept = (row.get(f"{selection}/epoch") for row in self.rows if row["status"] == "ok")
        return tuple(int(epoch) for epoch in kept if epoch)

    def fitted_noise(self, selection: str) -> tuple[bool, ...]:
        """Of each repeat's network whether no epoch was within Acc*, so that all had to do."""
        known = self.configuration
        if known is not None and not known.learner.uses_network:
            return ()
        rows = (row for row in self.rows if row["status"] == "ok")
        return tuple(row.get(f"{selection}/qualified") == "false" for row in rows)

    def values(self, selection: str, metric: str = "acc") -> dict[int, float]:
        """A test metric of each repeat that did not fail; rows without the metric are left out.

        So are rows with an earlier version of it.
        """
        column = f"{selection}/test/{metric}"
        rows = [row for row in self.rows if row["status"] == "ok" and row.get(column)]
        source = metric_sources(self.point.settings.metrics).get(metric, "")
        rows = [row for row in rows if recorded_source(row, metric) == source]
        found = {int(row["repeat"]): float(row[column]) for row in rows}
        return {repeat: value for repeat, value in found.items() if math.isfinite(value)}


# A network that is kept this early has hardly been trained.
EARLY = 3
DAGGER, DOUBLE_DAGGER = "†", "‡"


def hardly_trained(epochs: Sequence[int]) -> bool:
    """Whether at least half of some networks are kept too early to have learned much."""
    return bool(epochs) and median(epochs) <= EARLY


FOLDERS = ("results_dir", "data_dir")


@dataclass(frozen=True)
class Results:
    """An experiment with the rows of all its points, under one selection rule."""

    experiment: Experiment
    cells: list[Cell]
    selection: str
    config_dirs: tuple[Path, ...] = ()
    _summaries: dict[tuple[str, str, int], Summary | None] = field(default_factory=dict, repr=False)

    @property
    def has_rows(self) -> bool:
        return any(cell.rows for cell in self.cells)

    def summary(self, cell: Cell, *, metric: str = "acc", rule: str = "") -> Summary | None:
        """Mean and CI of a test metric under a selection rule; None without a number."""
        rule = rule or self.selection
        key = (cell.identity, f"{rule}/{metric}", cell.point.settings.repeats)
        if key not in self._summaries:
            values = list(cell.values(rule, metric).values())
            self._summaries[key] = _summary(values, self.experiment.interval)
        return self._summaries[key]

    def difference(self, first: Cell, second: Cell, metric: str = "acc") -> Difference | None:
        """first - second, paired by repeat; None if two engines trained them.

        What is computed without training is the same by every engine.  What asks questions is as
        good as the same, and is paired with a network of any engine, but not with itself: another
        engine may be an earlier version of its source.
        """
        values = [cell.values(self.selection, metric) for cell in (first, second)]
        common = values[0].keys() & values[1].keys()
        alike = (first.trains and second.trains) or (first.asks and second.asks)
        if alike and any(first.engines[one] != second.engines[one] for one in common):
            return None
        return paired(*values)


@dataclass(frozen=True)
class Source:
    """Where a report's numbers come from, and which rule chooses the epoch.

    ``overrides`` are put over every experiment, as on the command line of the run that made its
    rows.
    """

    results_dir: Path
    selection: str = "released"
    data_dir: str = "data"
    overrides: tuple[str, ...] = ()
    config_dirs: tuple[Path, ...] = ()
    _known: dict[str, Results] = field(default_factory=dict, repr=False)

    @cached_property
    def store(self) -> RowStore:
        return RowStore(self.results_dir)

    def results(self, name: str) -> Results:
        """Expand an experiment's grid and look up its rows, once."""
        if name not in self._known:
            folders = zip(FOLDERS, map(_quoted, (self.results_dir, self.data_dir)), strict=True)
            overrides = [*map("=".join, folders), *self.overrides]
            experiment, points = read_experiment(name, overrides, self.config_dirs)
            cells = [cell_of(point, self.store) for point in points]
            self._known[name] = Results(experiment, cells, self.selection, self.config_dirs)
        return self._known[name]


def _summary(values: list[float], interval: Interval) -> Summary | None:
    return summarise(values, interval) if values else None


def _quoted(value: object) -> str:
    return "'" + str(value).replace("'", r"\'") + "'"


def cell_of(point: Point, store: RowStore) -> Cell:
    """A point with its rows."""
    try:
        configuration = point.settings.resolve(fetch=False)
    except InputError as error:
        # A table of hyper-parameters grows as graphs are tuned: what it lacks is a gap.
        return Cell(point, None, str(error), [])
    finished = store.finished(configuration.dataset.name, configuration.identity)
    wanted = sorted(repeat for repeat in finished if repeat < point.settings.repeats)
    files = store.files_of(configuration.dataset.name, configuration.identity)
    return Cell(point, configuration, "", [finished[repeat] for repeat in wanted], files)
