"""``python -m lpgnn.run``: one private training, or with ``-m`` a grid of them."""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from lpgnn.config import Configuration, Settings, compose_settings
from lpgnn.errors import InputError, exit_code
from lpgnn.results import RowStore, Summary, summarise
from lpgnn.results.costs import CostModel
from lpgnn.sweep import (
    RUNS_ON_CPU,
    RUNS_ON_GPU,
    Failure,
    Place,
    describe_error,
    missing_repeats,
    plan_tasks,
    run_tasks,
)

USAGE = """\
Overrides are Hydra's: dataset=cora x_eps=0.1 backbone=gat ...; with -m comma-separated values
make a grid, and +experiment=NAME adds an experiment of the paper.  conf/config.yaml lists all keys.
Exit codes: 0 done, 1 a configuration failed, 2 bad input, 130 interrupted."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lpgnn.run",
        description="Train graph neural networks on locally private data.",
        epilog=USAGE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-m", "--multirun", action="store_true", help="run a grid")
    parser.add_argument("--dry-run", action="store_true", help="say what there is to do, and stop")
    parser.add_argument("--workers", type=int, help="processes (default: one a core)")
    parser.add_argument("overrides", nargs="*", help="KEY=VALUE", metavar="OVERRIDE")
    options = parser.parse_intermixed_args(arguments)
    return exit_code(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    if options.workers is not None and options.workers < 1:
        raise InputError("--workers", options.workers, "must be a whole number >= 1")
    settings = compose_settings(options.overrides, multirun=options.multirun)
    if settings[0].task != "train":
        return run_other_task(
            settings, options.overrides, workers=options.workers, dry_run=options.dry_run
        )
    return run(settings, workers=options.workers, dry_run=options.dry_run)


def run(settings: Sequence[Settings], *, workers: int | None, dry_run: bool = False) -> int:
    """Compute what is missing of the settings and summarise all of it."""
    first = settings[0]
    for name in ("results_dir", "data_dir", "device", "selection", "force"):
        values = list(dict.fromkeys(str(getattr(one, name)) for one in settings))
        if len(values) > 1:
            raise InputError(name, ",".join(values), "must be one value for the whole grid")
    store = RowStore(first.results_dir)
    wanted: dict[str, tuple[Configuration, Settings]] = {}
    for one in sorted(settings, key=lambda one: -one.repeats):  # of the same run, most repeats
        configuration = one.resolve()
        wanted.setdefault(configuration.identity, (configuration, one))
    place = Place(Path(first.data_dir), Path(first.results_dir), first.device, workers)
    rows = [r for name in {c.dataset.name for c, _ in wanted.values()} for r in store.read(name)]
    costs = CostModel(rows)
    work = [
        (configuration, missing_repeats(configuration, one.repeats, store, force=one.force))
        for configuration, one in wanted.values()
    ]
    together = RUNS_ON_CPU
    if any(repeats for _, repeats in work) and not dry_run:
        from lpgnn.experiment import pick_device

        # A wrong device is said before the work, not by each worker.
        together = RUNS_ON_GPU if pick_device(first.device).type == "cuda" else RUNS_ON_CPU
    tasks = plan_tasks(work, costs, place.worker_count(), together)
    if dry_run:
        done = sum(not repeats for _, repeats in work)
        busy = min(place.worker_count(), len(tasks)) or 1
        seconds = sum(costs.seconds(task) for task in tasks) / busy
        print(f"{len(work)} configurations, {done} done, {len(work) - done} to do, ", end="")
        print(f"about {_duration(seconds)} on {busy} worker{'s' if busy > 1 else ''}")
        return 0
    store.check_writable()
    if len(wanted) == 1:
        from lpgnn.plan import describe

        print(describe(work[0][0], first, missing=work[0][1]))
    failures = run_tasks(tasks, place, costs=costs) if tasks else []
    broken = print_summaries([(c, one) for c, one in wanted.values()], store)
    _print_failures(failures)
    if failures and len(wanted) == 1 and isinstance(failures[0].error, InputError):
        return 2
    return 1 if failures or broken else 0


def run_other_task(
    settings: Sequence[Settings],
    overrides: Sequence[str],
    *,
    workers: int | None,
    dry_run: bool,
) -> int:
    """The experiments that are no grid of trainings."""
    first = settings[0]
    if dry_run:
        print(f"task {first.task} for {len(settings)} settings; how long it takes is not estimated")
        return 0
    if first.task == "convexity":
        from lpgnn.report import write_convexity

        print(f"f(z) = z coth^2(z / 2): {write_convexity(first.results_dir)}")
    for configuration in {s.resolve().dataset: s.resolve() for s in settings}.values():
        if first.task == "statistics":
            from lpgnn.data import statistics
            from lpgnn.experiment import load_dataset
            from lpgnn.report import record_statistics

            RowStore(first.results_dir).check_writable()
            graph = load_dataset(configuration, first.data_dir)
            record_statistics({graph.name: statistics(graph)}, first.results_dir)
            print(f"{graph.name}: {statistics(graph)}")
        elif first.task == "tuning":
            from lpgnn.tune import tune

            others = [text for text in overrides if not text.startswith("dataset=")]
            tune([*others, f"dataset={configuration.dataset.name}"], workers=workers)
    return 0


def print_summaries(wanted: Sequence[tuple[Configuration, Settings]], store: RowStore) -> int:
    """Print mean and CI of every configuration; return how many of their rows failed."""
    by_id: dict[str, list[dict[str, str]]] = {}
    for name in {configuration.dataset.name for configuration, _ in wanted}:
        for row in store.read(name):
            by_id.setdefault(row["id"], []).append(row)
    broken = 0
    for configuration, one in wanted:
        rows = [r for r in by_id.get(configuration.identity, []) if int(r["repeat"]) < one.repeats]
        failed = [r for r in rows if r["status"] != "ok"]
        broken += len(failed)
        for row in failed:
            print(f"{label(configuration)} repeat {row['repeat']} {row['status']}")
        if rows:
            mine, other = (one.selection, "released" if one.selection == "paper" else "paper")
            print(
                f"{label(configuration)}: test accuracy {summary_of(rows, mine)} "
                f"({mine} rule; {other} rule {summary_of(rows, other)}; {len(rows)} repeats)"
            )
    print(f"rows: {store.folder}")
    return broken


def summary_of(rows: Sequence[dict[str, str]], selection: str) -> Summary:
    return summarise([float(r[f"{selection}/test/acc"]) for r in rows if r["status"] == "ok"])


def label(configuration: Configuration) -> str:
    """A configuration in a few words."""
    c = configuration
    learner = " ".join([c.learner.name, *(str(value) for _, value in c.learner.options)])
    if c.learner.name == "propagation":
        return f"{c.dataset.name} labels only y_eps={c.y_eps:g} {learner}"
    reports = c.mechanism.name if c.feature == "raw" else c.feature
    if c.conditioning != "none":
        reports += f" conditioned by {c.conditioning}"
    return (
        f"{c.dataset.name} {c.backbone.name} {reports} x_eps={c.x_eps:g} y_eps={c.y_eps:g} "
        f"{learner} K={c.x_steps},{c.y_steps}"
    )


def _print_failures(failures: Sequence[Failure]) -> None:
    """Each error once, with the configurations that it stopped."""
    by_text: dict[str, list[Failure]] = {}
    for failure in failures:
        by_text.setdefault(describe_error(failure.error), []).append(failure)
    for text, stopped in by_text.items():
        names = list(dict.fromkeys(label(failure.configuration) for failure in stopped))
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        print(f"error: {text} ({names[0]}{more})", file=sys.stderr)
        if not isinstance(stopped[0].error, InputError) and stopped[0].details:
            print(stopped[0].details, file=sys.stderr)


def _duration(seconds: float) -> str:
    if not math.isfinite(seconds) or seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"


if __name__ == "__main__":
    sys.exit(main())
