"""``python -m lpgnn.run``: one private training, or a grid of them."""

import argparse
import math
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lpgnn.composition import Point, expand
from lpgnn.config import Configuration, Settings, facts_of
from lpgnn.data import Dataset
from lpgnn.describe import describe, label
from lpgnn.engine import Measures
from lpgnn.errors import InputError, exit_code
from lpgnn.kernels import Backend
from lpgnn.learners import RULES
from lpgnn.rows import Row, RowStore, Summary, check_metrics, metric_sources, summarise
from lpgnn.sweeps import (
    CostModel,
    Execution,
    describe_error,
    explain,
    missing_repeats,
    outdated_rows,
    plan_tasks,
    run_tasks,
)
from lpgnn.sweeps.tasks import RUNS_ON_CPU, RUNS_ON_GPU

USAGE = """\
Overrides are Hydra's: dataset=cora x_eps=0.1 backbone=gat ...; with -m comma-separated values make
a grid, and +experiment=NAME[,NAME] runs the grids of experiments.  conf/config.yaml lists all keys.
Exit codes: 0 done, 1 a run failed or its row is missing, 2 bad input, 130 interrupted.
HYDRA_FULL_ERROR=1 shows the stack trace of what failed."""

# Settings that hold for a whole sweep.
_SHARED = (
    *("results_dir", "data_dir", "device", "kernels", "selection", "metric", "metrics"),
    *("save", "force", "time_limit"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lpgnn.run",
        description="Train graph neural networks on locally private data.",
        epilog=USAGE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-m", "--multirun", action="store_true", help="run a grid")
    parser.add_argument("--dry-run", action="store_true", help="show what there is to do, and stop")
    parser.add_argument(
        "--workers", type=int, help="processes (default: one per core; 0: this one)"
    )
    add_config_dir(parser)
    parser.add_argument("overrides", nargs="*", help="KEY=VALUE", metavar="OVERRIDE")
    options = parser.parse_intermixed_args(arguments)
    return exit_code(lambda: _run(options))


def add_config_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config-dir",
        type=Path,
        action="append",
        default=[],
        help="a folder with YAML files of your own, laid out like conf/; may be repeated",
    )


def _run(options: argparse.Namespace) -> int:
    points = expand(options.overrides, multirun=options.multirun, config_dirs=options.config_dir)
    return run(points, workers=options.workers, dry_run=options.dry_run)


def run(points: Sequence[Point], *, workers: int | None, dry_run: bool = False) -> int:
    """Compute what is missing of the points and summarise all of it."""
    settings = [point.settings for point in points]
    first = settings[0]
    for name in _SHARED:
        values = list(dict.fromkeys(str(getattr(one, name)) for one in settings))
        if len(values) > 1:
            raise InputError(name, ",".join(values), "must be one value for the whole grid")
    store = RowStore(first.results_path)
    resolved, stopped = _resolve(points, fetch=not dry_run)
    check_metrics(first.metrics)
    sources = metric_sources(first.metrics)
    wanted: dict[str, tuple[Configuration, Settings]] = {}
    for configuration, one in sorted(resolved, key=lambda pair: -pair[1].repeats):
        wanted.setdefault(configuration.identity, (configuration, one))  # the most repeats
    work = [
        (
            configuration,
            missing_repeats(
                configuration,
                one.repeats,
                store,
                metric=one.metric,
                sources=sources,
                save=one.outputs,
                force=one.force,
            ),
        )
        for configuration, one in wanted.values()
    ]
    execution = Execution(
        first.data_path,
        first.results_path,
        first.device,
        first.kernels,
        workers,
        Measures(first.metrics, first.outputs, store),
        first.time_limit,
    )
    for reason, count in outdated_rows(work, store, sources).items():
        print(f"{count} earlier rows no longer count: {reason}")
    datasets = {configuration.dataset.name for configuration, _ in wanted.values()}
    costs = CostModel(row for name in datasets for row in store.stream(name))
    together = RUNS_ON_CPU
    if any(repeats for _, repeats in work) and not dry_run:
        # A wrong device is reported before the work, not by each worker.
        backend = Backend.choose(first.device, first.kernels)
        together = RUNS_ON_GPU if backend.device.type == "cuda" else RUNS_ON_CPU
    tasks = plan_tasks(work, costs, execution.worker_count(), together)
    if dry_run:
        done = sum(not repeats for _, repeats in work)
        busy = min(execution.worker_count(), len(tasks)) or 1
        seconds = sum(costs.seconds(task) for task in tasks) / busy
        many = "s" if len(work) != 1 else ""
        print(f"{len(work)} configuration{many}, {done} done, {len(work) - done} to do, ", end="")
        print(f"about {_duration(seconds)} on {busy} worker{'s' if busy > 1 else ''}")
        _print_stopped(stopped)
        return 1 if stopped else 0
    if len(wanted) == 1:
        ((configuration, repeats),) = work
        ((_, one),) = wanted.values()
        print(describe(configuration, done=one.repeats - len(repeats), repeats=one.repeats))
    failures = []
    if tasks:
        store.check_writable()
        failures = run_tasks(tasks, execution, costs=costs)
    elif len(wanted) > 1:
        print(f"nothing to compute: all {len(work)} configurations are done")
    broken = print_summaries([(c, one) for c, one in wanted.values()], store)
    stopped += [Stopped(label(f.configuration), f.error, f.details) for f in failures]
    _print_stopped(stopped)
    if failures and len(points) == 1 and isinstance(failures[0].error, InputError):
        return 2
    return 1 if stopped or broken else 0


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
        if repr(dataset) not in unusable:
            try:
                facts_of(dataset, point.settings.data_path, fetch=fetch)
            except (Exception, SystemExit) as error:  # a user's own loader may raise anything
                if isinstance(error, InputError) and len(points) == 1:
                    raise
                unusable[repr(dataset)] = (explain(error, [dataset]), traceback.format_exc())
        if repr(dataset) in unusable:
            name = " ".join(f"{key}={value}" for key, value in point.keys.items())
            stopped.append(Stopped(name or dataset.name, *unusable[repr(dataset)]))
        else:
            found.append((point.settings.resolve(fetch=fetch), point.settings))
    return found, stopped


def print_summaries(wanted: Sequence[tuple[Configuration, Settings]], store: RowStore) -> int:
    """Print mean and CI of every configuration; return how many of their rows failed."""
    broken = 0
    for configuration, one in wanted:
        finished = store.finished(configuration.dataset.name, configuration.identity)
        rows = [row for repeat, row in sorted(finished.items()) if repeat < one.repeats]
        failed = [r for r in rows if r["status"] != "ok"]
        broken += len(failed)
        for row in failed:
            print(f"{label(configuration)} repeat {row['repeat']} {row['status']}")
        if rows:
            others = [rule for rule in RULES if rule != one.selection]
            beside = "; ".join(
                f"{rule} rule {summary_of(rows, rule, one.metric)}" for rule in others
            )
            count = f"; {len(rows)} repeats" if len(rows) > 1 else ""
            print(
                f"{label(configuration)}: test {one.metric} "
                f"{summary_of(rows, one.selection, one.metric)} "
                f"({one.selection} rule; {beside}{count})"
            )
    print(f"rows: {store.results_dir}")
    return broken


def summary_of(rows: Sequence[Row], rule: str, metric: str = "acc") -> Summary:
    column = f"{rule}/test/{metric}"
    return summarise([float(r[column]) for r in rows if r["status"] == "ok" and r.get(column)])


def _print_stopped(stopped: Sequence[Stopped]) -> None:
    """Each error once, with the runs that it stopped."""
    by_text: dict[str, list[Stopped]] = {}
    for one in stopped:
        by_text.setdefault(describe_error(one.error), []).append(one)
    for text, alike in by_text.items():
        names = list(dict.fromkeys(one.name for one in alike))
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        print(f"error: {text} ({names[0]}{more})", file=sys.stderr)
        if os.environ.get("HYDRA_FULL_ERROR") == "1" and alike[0].details:
            print(alike[0].details, file=sys.stderr)


def _duration(seconds: float) -> str:
    if not math.isfinite(seconds) or seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"


if __name__ == "__main__":
    sys.exit(main())
