"""A sweep from its points to their summaries: what is done is dropped, the rest computed."""

import math
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lpgnn.composition import Point
from lpgnn.config import Configuration, Settings, facts_of
from lpgnn.data import Dataset
from lpgnn.describe import describe, label
from lpgnn.engine import Measures
from lpgnn.errors import InputError, full_errors
from lpgnn.finished import (
    Known,
    differing,
    keep_resolved,
    most_repeats,
    print_nothing_left,
    print_plan,
    print_summaries,
    requirements,
    resolved_path,
)
from lpgnn.kernels import Backend
from lpgnn.loggers import Logger
from lpgnn.rows import RowStore, SweepRecord, Wanted, check_metrics
from lpgnn.sweeps.costs import CostModel
from lpgnn.sweeps.failures import Failure, describe_error, explain
from lpgnn.sweeps.jobs import ended_if_lost, failures_of, wait_for_others, write_jobs
from lpgnn.sweeps.outdated import outdated_rows
from lpgnn.sweeps.pool import run_tasks
from lpgnn.sweeps.slurm import SlurmQueue
from lpgnn.sweeps.tasks import (
    RUNS_ON_CPU,
    RUNS_ON_GPU,
    Execution,
    Task,
    plan_tasks,
    required_engine,
)


@dataclass(frozen=True)
class Launcher:
    """Sends jobs elsewhere: each is a list of overrides that tells it its task."""

    name: str
    outputs: Path  # where it leaves what it writes itself: scripts and logs of the jobs
    launch: Callable[[Sequence[Sequence[str]]], Any]


def run_points(points: Sequence[Point], launcher: Launcher | None = None) -> int:
    """Compute what is missing of the points and summarise all of it; return the exit code."""
    if not points:
        raise InputError("grid", "", "is empty: a range or glob of it matches nothing")
    settings = [point.settings for point in points]
    first = settings[0]
    if found := differing(settings):
        name, values = found
        raise InputError(name, ",".join(values), "must be one value for the whole grid")
    dry_run = first.dry_run
    store = RowStore(first.results_path)
    kept_at = resolved_path(settings)
    resolved, stopped = _resolve(points, fetch=not dry_run)
    if not resolved and all(isinstance(one.error, InputError) for one in stopped):
        _print_stopped(stopped)
        return 2
    check_metrics(first.metrics)
    required = requirements(first, required_engine(first))
    wanted = most_repeats(resolved)
    work = [
        (configuration, required.missing(configuration.computation, range(one.repeats), store))
        for configuration, one in wanted.values()
    ]
    execution = Execution(
        first.data_path,
        first.results_path,
        first.device,
        first.kernels,
        first.workers,
        Measures.of(first, store),
        first.time_limit,
        required,
    )
    for reason, count in outdated_rows(work, store, required.sources).items():
        rows = "row no longer counts" if count == 1 else "rows no longer count"
        print(f"{count} earlier {rows}: {reason}")
    datasets = {configuration.dataset.name for configuration, _ in wanted.values()}
    costs = CostModel(row for name in datasets for row in store.stream(name))
    on_gpu = str(first.device).startswith("cuda")
    if any(repeats for _, repeats in work) and not dry_run and launcher is None:
        # A wrong device is reported before the work, not by each worker.
        on_gpu = Backend.choose(first.device, first.kernels).device.type == "cuda"
    together = RUNS_ON_GPU if on_gpu else RUNS_ON_CPU
    tasks = plan_tasks(work, costs, execution.worker_count(), together)
    if dry_run:
        done = sum(not repeats for _, repeats in work)
        busy = min(execution.worker_count(), len(tasks)) or 1
        seconds = sum(costs.seconds(task) for task in tasks) / busy
        many = "s" if len(work) != 1 else ""
        print(f"{len(work)} configuration{many}, {done} done, {len(work) - done} to do, ", end="")
        workers = f"{busy} workers" if busy > 1 else "1 worker"
        print(f"about {_duration(seconds)} on {workers}, start-up not counted")
        _print_stopped(stopped)
        return 1 if stopped else 0
    known = {
        identity: Known(c.computation, label(c), describe(c) if len(wanted) == 1 else "")
        for identity, (c, _) in wanted.items()
    }
    if len(wanted) == 1:
        ((configuration, one),) = wanted.values()
        ((_, repeats),) = work
        done = one.repeats - len(repeats)
        print_plan(known[configuration.identity].plan, done=done, repeats=one.repeats)
    failures = []
    if tasks:
        store.check_writable()
        if execution.measures.logger is not None:
            _prepare(execution.measures.logger, store.results_dir)
        failures = _compute(tasks, execution, costs, launcher, wanted)
    elif len(wanted) > 1:
        print_nothing_left(len(work))
    broken = print_summaries([(known[key], one) for key, (_, one) in wanted.items()], store)
    stopped += [Stopped(label(f.configuration), f.error, f.details) for f in failures]
    _print_stopped(stopped)
    if failures and len(points) == 1 and isinstance(failures[0].error, InputError):
        return 2
    if not stopped:
        keep_resolved([(c, known[c.identity]) for c, _ in resolved], settings, kept_at)
    return 1 if stopped or broken else 0


def _prepare(logger: Logger, results_dir: Path) -> None:
    try:
        logger.prepare(results_dir)
    except Exception as error:  # of somebody else's package
        raise InputError("logger", logger.name, f"cannot log: {describe_error(error)}") from error


def _compute(
    tasks: Sequence[Task],
    execution: Execution,
    costs: CostModel,
    launcher: Launcher | None,
    wanted: Mapping[str, tuple[Configuration, Settings]],
) -> list[Failure]:
    """Compute tasks here or elsewhere, on record for ``lpgnn.status`` meanwhile."""
    runs = [
        Wanted(c.identity, c.dataset.name, label(c), repeats, costs.epoch_seconds(c) * c.max_epochs)
        for task in tasks
        for c, repeats in task.parts
    ]
    # What a launcher writes goes with the record, unless the user wants to have it elsewhere.
    beside = None if launcher is None else launcher.outputs
    record = SweepRecord.start(execution.results_dir, runs, beside)
    forks = launcher is None and execution.worker_count() > 0
    with record.alive(beats=not forks):
        if launcher is None:
            execution = replace(execution, record=record.folder)
            failures = run_tasks(tasks, execution, costs=costs)
        else:
            failures = _launch(tasks, launcher, record.folder, wanted)
    record.finish(failed=bool(failures))
    return failures


def _launch(
    tasks: Sequence[Task],
    launcher: Launcher,
    folder: Path,
    wanted: Mapping[str, tuple[Configuration, Settings]],
) -> list[Failure]:
    """Have tasks computed elsewhere.  folder: the sweep's record, where jobs find their tasks"""
    jobs = write_jobs(folder, tasks, {key: one for key, (_, one) in wanted.items()})
    many = "s" if len(jobs) > 1 else ""
    print(f"{len(jobs)} task{many} for {launcher.name}; lpgnn status follows them", flush=True)
    queue = SlurmQueue(launcher.outputs, len(tasks))
    with ended_if_lost(folder, tasks, queue):
        try:
            launcher.launch(jobs)
        except Exception as error:  # one lost job must not hide what became of the others
            print(f"{launcher.name}: {describe_error(error)}", file=sys.stderr)
            wait_for_others(folder, tasks, queue)
    return failures_of(folder, tasks)


@dataclass(frozen=True)
class Stopped:
    """A run that could not be computed, and why."""

    name: str
    error: Exception
    details: str


def _resolve(
    points: Sequence[Point], *, fetch: bool
) -> tuple[list[tuple[Configuration, Settings]], list[Stopped]]:
    """The points' configurations, and the points whose graph cannot be loaded.

    A graph that cannot be loaded stops no other run of a grid; a wrong setting stops all.
    """
    found: list[tuple[Configuration, Settings]] = []
    stopped: list[Stopped] = []
    unusable: dict[str, tuple[Exception, str]] = {}  # by dataset: each is tried once
    for point in points:
        dataset = point.settings.component("dataset")
        assert isinstance(dataset, Dataset)
        key = repr(dataset)
        if key not in unusable:
            try:
                facts_of(dataset, point.settings.data_path, fetch=fetch)
            except (Exception, SystemExit) as error:  # a user's own loader may raise anything
                if isinstance(error, InputError) and len(points) == 1:
                    raise
                unusable[key] = (explain(error, [dataset]), traceback.format_exc())
        if key in unusable:
            name = " ".join(f"{key}={value}" for key, value in point.keys.items())
            stopped.append(Stopped(name or dataset.name, *unusable[key]))
        else:
            configuration, asked = point.settings.resolve(fetch=fetch), point.settings
            if configuration.asks and asked.reports is not None:
                asked = replace(asked, repeats=1)  # its users have answered once: no other is left
            found.append((configuration, asked))
    return found, stopped


def _print_stopped(stopped: Sequence[Stopped]) -> None:
    """Each error once, with the runs that it stopped."""
    by_text: dict[str, list[Stopped]] = {}
    for one in stopped:
        by_text.setdefault(describe_error(one.error), []).append(one)
    for text, alike in by_text.items():
        names = list(dict.fromkeys(one.name for one in alike))
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        print(f"error: {text} ({names[0]}{more})", file=sys.stderr)
        if full_errors() and alike[0].details:
            print(alike[0].details, file=sys.stderr)


def _duration(seconds: float) -> str:
    if not math.isfinite(seconds) or seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"
