"""Tasks: the open work of a sweep, cut into runs that train side by side."""

import math
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from lpgnn.config import Configuration, Settings
from lpgnn.engine import Measures, Member
from lpgnn.errors import InputError
from lpgnn.kernels import Backend
from lpgnn.provenance import engine_name
from lpgnn.rows import Requirements, Run
from lpgnn.sweeps.costs import CostModel
from lpgnn.sweeps.gpus import gpus_for

# Beyond so many runs side by side a CPU gains nothing, and rows come later; a GPU does.
RUNS_ON_CPU, RUNS_ON_GPU = 10, 200

# A task counts as hung after so many times its estimated cost, and not before half an hour: the
# estimate knows neither a user's own components nor who else is using the machine.
LIMIT_FACTOR, LEAST_LIMIT = 30.0, 1800.0

Part = tuple[Configuration, tuple[int, ...]]

# Seconds that a run may take; auto = from its estimated cost, None = as long as it likes.
TimeLimit = float | str | None


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
        return sum(len(repeats) * configuration.max_epochs for configuration, repeats in self.parts)

    def split(self) -> list["Task"]:
        """Smaller tasks: of one configuration each, or of one run each."""
        if len(self.parts) > 1:
            return [Task((part,)) for part in self.parts]
        return self.singles()

    def singles(self) -> list["Task"]:
        """Every run as a task of its own."""
        return [Task(((configuration, (repeat,)),)) for configuration, repeat in self.members]

    def only(self, runs: Collection[Run]) -> "Task":
        """What is left of it, maybe nothing, if it has only these runs."""
        kept = ((c, tuple(r for r in own if (c.identity, r) in runs)) for c, own in self.parts)
        return Task(tuple((configuration, repeats) for configuration, repeats in kept if repeats))

    def after(self, count: int) -> "Task | None":
        """What is left of it when the rows of the first members are stored."""
        parts = []
        for configuration, repeats in self.parts:
            left = repeats[max(0, count) :]
            count -= len(repeats)
            if left:
                parts.append((configuration, left))
        return Task(tuple(parts)) if parts else None


@dataclass(frozen=True)
class Execution:
    """Where a sweep reads and writes, and what it computes on."""

    data_dir: Path
    results_dir: Path
    device: str = "auto"
    kernels: str = "auto"
    workers: int | None = None  # None = one per GPU or core, 0 = compute in this process
    measures: Measures = field(default_factory=Measures)
    time_limit: TimeLimit = "auto"
    required: Requirements = field(default_factory=Requirements)
    record: Path | None = None  # where the sweep is on record, for others to see

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 0:
            allowed = "must be a whole number >= 1, or 0 to compute in this process"
            raise InputError("workers", self.workers, allowed)

    def worker_count(self) -> int:
        if self.workers is not None:
            return self.workers
        if gpus := gpus_for(self.device, self.kernels):
            return len(gpus)
        allowed = getattr(os, "sched_getaffinity", None)  # not on every system
        return len(allowed(0)) if allowed else os.cpu_count() or 1

    def seconds_for(self, task: Task, costs: CostModel) -> float:
        """How long a task may take before it counts as hung."""
        if self.time_limit is None:
            return math.inf
        if self.time_limit == "auto":
            return max(LEAST_LIMIT, LIMIT_FACTOR * costs.seconds(task))
        return float(self.time_limit) * len(task.members)


def required_engine(settings: Settings) -> str | None:
    """The engine whose rows alone count as done; None: any engine's do."""
    if settings.force != "engine":
        return None
    return engine_name(Backend.choose(settings.device, settings.kernels))


def plan_tasks(
    wanted: Sequence[Part], costs: CostModel, workers: int, together: int = RUNS_ON_CPU
) -> list[Task]:
    """Cut the work into tasks, costly ones first.

    When there are fewer configurations than workers, the repeats of one are shared out; when there
    are many with few repeats each, those that can train side by side share a task.
    """
    workers = max(1, workers)  # without a worker, this process does the work
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
