"""Commands that have nothing left to compute, answered from rows alone.

Settings become configurations only with the classes of their components, which bring torch: most
of a finished command's time.  Most of the rest is Hydra's, which makes settings of the words of a
command.  So what both came to is kept beside the rows:

    <results_dir>/local/asked/<sources>/<words>.json        the settings that words stand for
    <results_dir>/local/resolved/<sources>/<settings>.json  the configurations that settings became

``sources`` is a digest of the package, its YAML files, Hydra and its plug-ins, and the versions of
the packages that graphs are drawn with, ``words`` one of a command's, and ``settings`` one of what
is asked for, with the tables of hyper-parameters that are outside the package.  Where anything else
takes part, such as YAML files, a class or a graph of the user's own, nothing is kept, and where
nothing is kept everything is composed and resolved as ever.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from lpgnn.config import SELECTIONS, Settings
from lpgnn.counting import counted
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
# Packages that take part, by the folders that say which versions are installed.
_PACKAGES = re.compile(r"(torch|numpy|scipy|hydra_core|omegaconf)-.*\.(dist|egg)-info")
# Words that mean the same wherever the same YAML files are: overrides without ~ and $, which may
# stand for a home folder or for the environment, and flags that name no file.
_LASTING = re.compile(r"-m|--multirun|--workers(=\d+)?|\d+|\+{0,2}(?!hydra\b)[\w./@-]+=[^$~]*")
_RESULTS = "results_dir="


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


def tell_asked(path: Path | None) -> int | None:
    """Print the results of a command that has nothing left to compute, and return the exit code.

    None if that cannot be known from its words (``asked_path``), or if something is missing.
    """
    content = None if path is None else _read(path)
    return None if content is None else tell_finished(_settings(content))


def keep_asked(settings: Sequence[Settings], words: Sequence[str], path: Path | None) -> None:
    """Keep the settings that words stand for, if nothing but conf/ and the words decides them.

    path: ``asked_path`` from before they were composed; a file that has changed since may have been
    read either way
    """
    if path is None or path != asked_path(words):
        return
    if str(settings[0].results_dir) != _named_folder(words):
        return
    first = vars(settings[0])
    content = [
        first,
        *(
            {k: v for k, v in vars(one).items() if repr(v) != repr(first[k])}
            for one in settings[1:]
        ),
    ]
    with contextlib.suppress(TypeError):  # a component that is no plain value
        if _settings(json.loads(json.dumps(content))) == list(settings):
            _write(path, content, settings[0].results_path)


def _settings(content: Sequence[dict[str, Any]]) -> list[Settings]:
    """Settings from all values of the first, and of the others those that differ."""
    return [Settings(**(content[0] | one)) for one in content]


def asked_path(words: Sequence[str]) -> Path | None:
    """Where it is kept what words stand for; None for words whose meaning may change."""
    if not all(_LASTING.fullmatch(word) for word in words):
        return None
    try:
        sources = _sources()
    except OSError:
        return None
    folder = Path(_named_folder(words)) / "local" / "asked" / sources
    return folder / f"{_digest(list(words))[:24]}.json"


def _named_folder(words: Sequence[str]) -> str:
    """The results folder that words name, as far as can be seen without Hydra."""
    named = [word.removeprefix(_RESULTS) for word in words if word.startswith(_RESULTS)]
    return named[-1] if named else str(Settings.results_dir)


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
                f"{rule} rule {summary_of(rows, rule, asked.metric).short}" for rule in others
            )
            print(
                f"{known.label}: test {asked.metric} "
                f"{summary_of(rows, asked.selection, asked.metric).short} "
                f"({asked.selection} rule; {beside}; {counted(len(rows), 'repeat')})"
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
    _write(path, [asdict(one) for _, one in runs], settings[0].results_path)


def _is_decided(configuration: "Configuration") -> bool:
    """Whether settings and the package's own sources decide all of a configuration."""
    components = [one for one in configuration.components().values() if one is not None]
    ours = all(one.target.startswith("lpgnn.") and not one.source for one in components)
    return ours and configuration.dataset.is_fixed


def _load(settings: Sequence[Settings]) -> list[Known] | None:
    """What was kept of the settings; None if there is nothing, or nothing that can be read."""
    path = resolved_path(settings)
    content = None if path is None else _read(path)
    if content is None:
        return None
    return [Known(Computation(**one["computation"]), one["label"], one["plan"]) for one in content]


def _write(path: Path, content: Any, results_dir: Path) -> None:
    """Keep something in the folder of these sources, and drop what is of others."""
    with contextlib.suppress(OSError):
        for other in path.parent.parent.glob("*"):
            if other != path.parent:
                shutil.rmtree(other, ignore_errors=True)
        make_folder(path.parent, results_dir)
        write_atomically(path, json.dumps({"kept": content, "digest": _digest(content)}))


def _read(path: Path) -> Any:
    """What was kept; None if there is nothing, or nothing that is as it was written."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return content["kept"] if content["digest"] == _digest(content["kept"]) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


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


def _sources() -> str:
    """A digest of all that decides what words and settings mean, beside themselves."""
    digest = hashlib.sha256()
    package = Path(__file__).parent
    for path in (*sorted(package.rglob("*.py")), *sorted(conf_dir().rglob("*.yaml"))):
        digest.update(str(path).encode() + b"\0" + path.read_bytes() + b"\0")
    for place in sys.path:
        for name in (*_installed(place), *_names(os.path.join(place, "hydra_plugins"))):
            digest.update(name.encode() + b"\0")
    return digest.hexdigest()[:16]


def _installed(place: str) -> list[str]:
    """The packages in a folder, with their versions: importlib.metadata takes long to import."""
    return [name for name in _names(place) if _PACKAGES.match(name)]


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder or "."))
    except OSError:
        return []
