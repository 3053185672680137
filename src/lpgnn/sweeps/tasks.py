"""Tasks: the open work of a sweep, cut into runs that train side by side."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from lpgnn.config import Configuration
from lpgnn.engine import Measures, Member, output_files
from lpgnn.errors import InputError
from lpgnn.learners import RULES
from lpgnn.rows import RowStore, recorded_source
from lpgnn.sweeps.costs import CostModel

# Beyond so many runs side by side a CPU gains nothing, and rows come later; a GPU does.
RUNS_ON_CPU, RUNS_ON_GPU = 10, 200

Part = tuple[Configuration, tuple[int, ...]]


@dataclass(frozen=True)
class Task:
    """Runs that train together in one worker: repeats of a configuration, and of others alike."""

    parts: tuple[Part, ...]  # of one ``batch_kind``

    @property
    def configuration(self) -> Configuration:
        return self.parts[0][0]

    @property
    def members(self) -> list[Member]:
        return [(configuration, repeat) for configuration, own in self.parts for repeat in own]

    @property
    def epochs(self) -> int:
        """The work in it: epochs of all its runs."""
        return len(self.members) * self.configuration.max_epochs

    def split(self) -> list["Task"]:
        """The parts, each as a task of its own."""
        return [Task((part,)) for part in self.parts]


@dataclass(frozen=True)
class Execution:
    """Where a sweep reads and writes, and what it computes on."""

    data_dir: Path
    results_dir: Path
    device: str = "auto"
    kernels: str = "auto"
    workers: int | None = None  # None = one per core
    measures: Measures = field(default_factory=Measures)

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise InputError("--workers", self.workers, "must be a whole number >= 1")

    def worker_count(self) -> int:
        if self.workers is not None:
            return self.workers
        allowed = getattr(os, "sched_getaffinity", None)  # not on every system
        return len(allowed(0)) if allowed else os.cpu_count() or 1


@dataclass
class Failure:
    """A configuration that could not be computed."""

    configuration: Configuration
    error: Exception
    details: str = field(default="", repr=False)


def missing_repeats(
    configuration: Configuration,
    repeats: int,
    store: RowStore,
    *,
    metric: str = "acc",
    sources: Mapping[str, str] | None = None,
    save: Sequence[str] = (),
    force: bool = False,
) -> tuple[int, ...]:
    """The repeats that the store does not hold, or not with this metric or these files.

    sources: of metrics that are not the defaults, which are wanted as well (``metric_sources``)
    """
    identity = configuration.identity
    done = {} if force else store.finished(configuration.dataset.name, identity)
    wanted = {metric: "", **(sources or {})}
    columns = [f"{rule}/test/{name}" for rule in RULES for name in wanted]
    files = output_files(save)

    def is_done(repeat: int) -> bool:
        folder = store.run_folder(identity, repeat)
        return (
            repeat in done
            and all(done[repeat].get(column) for column in columns)
            and all(recorded_source(done[repeat], name) == s for name, s in wanted.items())
            and all((folder / name).is_file() for name in files)
        )

    return tuple(repeat for repeat in range(repeats) if not is_done(repeat))


def plan_tasks(
    wanted: Sequence[Part], costs: CostModel, workers: int, together: int = RUNS_ON_CPU
) -> list[Task]:
    """Cut the work into tasks, costly ones first.

    When there are fewer configurations than workers, the repeats of one are shared out; when there
    are many with few repeats each, those that can train side by side share a task.
    """
    open_work = [(configuration, repeats) for configuration, repeats in wanted if repeats]
    cuts = max(1, -(-workers // max(1, len(open_work))))
    pieces = []
    for configuration, repeats in open_work:
        size = -(-len(repeats) // cuts)
        starts = range(0, len(repeats), size)
        pieces += [Task(((configuration, repeats[start : start + size]),)) for start in starts]
    # Every worker gets something to do before tasks grow.
    runs = sum(len(task.members) for task in pieces)
    tasks = _joined(pieces, min(together, max(1, runs // workers)))
    return sorted(tasks, key=costs.seconds, reverse=True)


def _joined(tasks: Sequence[Task], together: int) -> list[Task]:
    """Join tasks of one kind into tasks of up to so many runs."""
    found: list[Task] = []
    growing: dict[str, int] = {}  # kind -> its last task in found
    for task in tasks:
        kind = task.configuration.batch_kind
        last = growing.get(kind)
        fits = last is not None and len(found[last].members) + len(task.members) <= together
        if last is not None and fits:
            found[last] = replace(found[last], parts=found[last].parts + task.parts)
        else:
            growing[kind] = len(found)
            found.append(task)
    return found
