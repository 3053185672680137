"""Commands that have nothing left to compute, answered from rows alone.

Settings become configurations only with the classes of their components, which bring torch: most
of a finished command's time.  So what the settings of a command became is kept beside its rows:

    <results_dir>/local/resolved/<sources>/<settings>.json

``sources`` is a digest of the package, its YAML files and the packages that graphs are drawn with,
``settings`` one of what is asked for, with the tables of hyper-parameters that are outside the
package.  Where anything else takes part, such as a class or a graph of the user's own, nothing is
kept, and where nothing is kept everything is resolved as ever.
"""

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from lpgnn.config import SELECTIONS, Settings
from lpgnn.files import make_folder, write_atomically
from lpgnn.hyperparameters import TUNED_FILE, conf_dir
from lpgnn.rows import (
    UNEVALUATED,
    Computation,
    Requirements,
    Row,
    RowStore,
    Summary,
    check_metrics,
    describe_engines,
    engines_of,
    metric_sources,
    summarise,
)

if TYPE_CHECKING:
    from lpgnn.config import Configuration

# Settings that hold for a whole sweep.
SHARED = (
    *("results_dir", "data_dir", "device", "kernels", "selection", "metric", "metrics"),
    *("save", "logger", "force", "time_limit", "workers", "dry_run"),
)
# What decides no configuration; of a data folder only the user's own files would.
_UNRELATED = {*SHARED, "repeats"}
_PACKAGES = ("torch", "numpy", "scipy")


class _Computes(Protocol):
    @property
    def computation(self) -> Computation: ...


Run = TypeVar("Run", bound=_Computes)


@dataclass(frozen=True)
class Known:
    """A configuration in words, and whose rows are its results."""

    computation: Computation
    label: str
    plan: str = ""  # in full, where a command asks for nothing else


def tell_finished(settings: Sequence[Settings]) -> int | None:
    """Print the results of runs that are all done, and return the exit code.

    None if that cannot be known without resolving the settings, or if something is missing.
    """
    if not settings or differing(settings):
        return None
    first = settings[0]
    if first.force or first.dry_run or first.logger is not None:
        return None
    known = _load(settings)
    if known is None:
        return None
    store = RowStore(first.results_path)
    check_metrics(first.metrics)
    required = requirements(first)
    wanted = list(most_repeats(zip(known, settings, strict=True)).values())
    for one, asked in wanted:
        if required.missing(one.computation, range(asked.repeats), store):
            return None
    if len(wanted) == 1:
        ((one, asked),) = wanted
        print_plan(one.plan, done=asked.repeats, repeats=asked.repeats)
    else:
        print_nothing_left(len(wanted))
    return 1 if print_summaries(wanted, store) else 0


def differing(settings: Sequence[Settings]) -> tuple[str, list[str]] | None:
    """A setting that must hold for the whole sweep and has several values, with these."""
    for name in SHARED:
        values = list(dict.fromkeys(str(getattr(one, name)) for one in settings))
        if len(values) > 1:
            return name, values
    return None


def requirements(asked: Settings, engine: str | None = None) -> Requirements:
    """What rows must have for settings.  engine: whose rows alone count, None for all"""
    return Requirements(
        asked.metric, metric_sources(asked.metrics), asked.outputs, asked.force is True, engine
    )


def most_repeats(runs: Iterable[tuple[Run, Settings]]) -> dict[str, tuple[Run, Settings]]:
    """Runs by identity; of those that are asked for twice, the one with the most repeats."""
    found: dict[str, tuple[Run, Settings]] = {}
    for run, asked in sorted(runs, key=lambda pair: -pair[1].repeats):
        found.setdefault(run.computation.identity, (run, asked))
    return found


def print_plan(plan: str, *, done: int, repeats: int) -> None:
    print(f"{plan}; {done} of {repeats} repeats done")


def print_nothing_left(count: int) -> None:
    print(f"nothing to compute: all {count} configurations are done")


def print_summaries(wanted: Sequence[tuple[Known, Settings]], store: RowStore) -> int:
    """Print mean and CI of every configuration; return how many of their rows failed."""
    broken = 0
    for known, asked in wanted:
        finished = store.finished(known.computation.dataset, known.computation.identity)
        rows = [row for repeat, row in sorted(finished.items()) if repeat < asked.repeats]
        failed = [r for r in rows if r["status"] not in ("ok", UNEVALUATED)]
        broken += len(failed)
        for row in failed:
            print(f"{known.label} repeat {row['repeat']} {row['status']}")
        if rows and not known.computation.has_truth:
            column, ok = f"{asked.selection}/val/acc", [r for r in rows if r not in failed]
            seen = summarise([float(r[column]) for r in ok])
            print(
                f"{known.label}: validation accuracy against private labels {seen} "
                f"({asked.selection} rule; labels=FILE evaluates)"
            )
        elif rows:
            others = [rule for rule in SELECTIONS if rule != asked.selection]
            beside = "; ".join(
                f"{rule} rule {summary_of(rows, rule, asked.metric)}" for rule in others
            )
            count = f"; {len(rows)} repeats" if len(rows) > 1 else ""
            print(
                f"{known.label}: test {asked.metric} "
                f"{summary_of(rows, asked.selection, asked.metric)} "
                f"({asked.selection} rule; {beside}{count})"
            )
        if len(engines := engines_of(rows)) > 1:
            mixed = describe_engines(engines)
            print(f"{known.label}: {mixed}; force=engine computes those of others again")
    print(f"rows: {store.results_dir}")
    return broken


def summary_of(rows: Sequence[Row], rule: str, metric: str = "acc") -> Summary:
    column = f"{rule}/test/{metric}"
    return summarise([float(r[column]) for r in rows if r["status"] == "ok" and r.get(column)])


def keep_resolved(
    runs: Sequence[tuple["Configuration", Known]], settings: Sequence[Settings], path: Path | None
) -> None:
    """Keep what each of the settings became, if nothing but lpgnn itself decided it.

    path: ``resolved_path`` from before the settings were resolved; a table that has changed since
    may have been read either way.  That is for speed only: where it cannot be written it is not
    there.
    """
    if path is None or path != resolved_path(settings):
        return
    if not all(_is_decided(configuration) for configuration, _ in runs):
        return
    with contextlib.suppress(OSError):
        for other in path.parent.parent.glob("*"):
            if other != path.parent:  # of other sources
                shutil.rmtree(other, ignore_errors=True)
        make_folder(path.parent, settings[0].results_path)
        known = [asdict(one) for _, one in runs]
        write_atomically(path, json.dumps({"known": known, "digest": _digest(known)}))


def _is_decided(configuration: "Configuration") -> bool:
    """Whether settings and the package's own sources decide all of a configuration."""
    components = [one for one in configuration.components().values() if one is not None]
    ours = all(one.target.startswith("lpgnn.") and not one.source for one in components)
    return ours and configuration.dataset.is_fixed


def _load(settings: Sequence[Settings]) -> list[Known] | None:
    """What was kept of the settings; None if there is nothing, or nothing that can be read."""
    path = resolved_path(settings)
    if path is None:
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["digest"] != _digest(content["known"]):
            return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return [
        Known(Computation(**one["computation"]), one["label"], one["plan"])
        for one in content["known"]
    ]


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def resolved_path(settings: Sequence[Settings]) -> Path | None:
    """Where it is kept what settings became; None for settings that are no plain values."""
    names = [f.name for f in fields(Settings) if f.name not in _UNRELATED]
    asked = [{name: getattr(one, name) for name in names} for one in settings]
    first = settings[0]
    tables = {first.results_path / TUNED_FILE}
    tables |= {Path(one.hparams).expanduser() for one in settings if one.hparams}
    try:
        content = json.dumps([asked, [_content(path) for path in sorted(tables)]], sort_keys=True)
        sources = _sources()
    except (TypeError, OSError):  # a component or a graph, not its name; or a source is unreadable
        return None
    name = hashlib.sha256(content.encode()).hexdigest()[:24]
    return first.results_path / "local" / "resolved" / sources / f"{name}.json"


def _content(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


@lru_cache(maxsize=1)
def _sources() -> str:
    """A digest of all that decides what settings mean, beside themselves."""
    digest = hashlib.sha256()
    package = Path(__file__).parent
    for path in (*sorted(package.rglob("*.py")), *sorted(conf_dir().rglob("*.yaml"))):
        digest.update(str(path).encode() + b"\0" + path.read_bytes() + b"\0")
    for name in _PACKAGES:
        digest.update(version(name).encode() + b"\0")
    return digest.hexdigest()[:16]
