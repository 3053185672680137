"""``python -m lpgnn.benchmark``: every method under one protocol, and a leaderboard."""

import itertools
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lpgnn.errors import Ended, InputError, error_line, exit_code

_USAGE = """usage: python -m lpgnn.benchmark [run] [KEY=VALUE ...] [--entries NAME,...]
       python -m lpgnn.benchmark add MY_METHOD.yaml [KEY=VALUE ...]
       python -m lpgnn.benchmark page [results_dir=results] [data_dir=data]

run   compute what is missing under the protocol (conf/benchmark/protocol.yaml), then the page;
      dataset=, x_eps= and y_eps= narrow it; any hydra/launcher; --dry-run says what is left of
      search and reported runs
add   put a method of your own on the page: a YAML file like those of conf/benchmark/entries, with
      its Python file beside it; both are copied to results_dir/benchmark/entries
page  rebuild results_dir/benchmark from the rows

All three say at the end what the whole benchmark lacks.

Exit codes: 0 done, 1 a run failed or is missing, 2 bad input."""


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if {"-h", "--help"} & set(words):
        print(_USAGE)
        sys.exit(0)
    return exit_code(lambda: _main(words))


def _main(words: list[str]) -> int:
    from lpgnn.application import BENCHMARK_FLAGS, run_application

    if words[:1] == ["page"]:
        from lpgnn.benchmark.protocol import load_protocol
        from lpgnn.rows import RowStore

        overrides = words[1:]
        for word in overrides:
            key, equals, value = word.partition("=")
            if not equals or key not in ("results_dir", "data_dir"):
                given = value if equals else ...
                raise InputError(key, given, "page takes results_dir=... and data_dir=... only")
        folder = _results_dir(overrides)
        if not RowStore(folder).datasets():  # checked first: planning takes seconds
            raise InputError("results_dir", folder, "has no rows of the benchmark: run it first")
        _write(_complete(load_protocol(), overrides), folder)
        return 0
    if words[:1] == ["add"]:
        from lpgnn.benchmark.entries import read_submission

        if "--entries" in (word.partition("=")[0] for word in words):
            raise InputError("--entries", ..., "goes with run: add has the entry of its file")
        needed = "needs the YAML file of one entry, and then KEY=VALUE"
        if len(words) < 2:
            raise InputError("add", ..., needed)
        path = Path(words[1]).expanduser()
        more = [
            word
            for before, word in itertools.pairwise(words[1:])
            if "=" not in word and not word.startswith("-") and not before.startswith("--")
        ]
        if str(path).startswith("-") or ("=" in str(path) and not path.is_file()) or more:
            raise InputError("add", " ".join([str(path), *more]), needed)
        entry = read_submission(path)
        if '"' in str(path):
            raise InputError("add", path, "must have no quotation mark in its path")
        words = [
            *words[2:],
            f'+added="{path.absolute()}"',
            "--entries",
            f"{entry.name},labels_only",
        ]
    elif words[:1] == ["run"]:
        words = words[1:]
    elif words and "=" not in words[0] and not words[0].startswith("-"):
        raise InputError("benchmark", words[0], "must be run, add, page or KEY=VALUE")
    return run_application(compute, words, is_sweep=True, flags=BENCHMARK_FLAGS)


def compute(config: Any) -> None:
    """Hydra's task: one task of a sweep that a launcher has sent here."""
    if "task" not in config:
        raise InputError("hydra.mode", "RUN", "must be MULTIRUN: a benchmark is a sweep")
    from lpgnn.sweeps.jobs import compute_job

    compute_job(Path(config.task))


def sweep(arguments: Sequence[str], config: Any, launch: Callable[..., Any] | None) -> None:
    """Hydra's sweep: the search, the reported runs with what it found, then the page."""
    from lpgnn.benchmark.entries import add_entry, own_mechanisms
    from lpgnn.benchmark.plan import Plan
    from lpgnn.benchmark.protocol import NARROWED, load_protocol
    from lpgnn.rows import RowStore
    from lpgnn.sweeps.session import Launcher, run_points

    own = ("+entries=", "+added=")
    named = [text.partition("=")[2] for text in arguments if text.startswith("+entries=")]
    added = [text.partition("=")[2].strip('"') for text in arguments if text.startswith("+added=")]
    overrides = _checked([text for text in arguments if not text.startswith(own)])
    chosen = {
        key: value.split(",")
        for key, _, value in (text.partition("=") for text in overrides)
        if key in NARROWED
    }
    protocol = load_protocol().narrowed(chosen)
    kept = tuple(text for text in overrides if text.partition("=")[0] not in chosen)
    folder = _results_dir(kept)
    plan = Plan(protocol, _wanted(named, folder, added), folder, kept, own_mechanisms())

    def compute_points(points: Sequence[Any]) -> int:
        launcher = None
        if launch is not None:
            name = str(config.hydra.runtime.choices["hydra/launcher"])
            launcher = Launcher(name, Path(config.hydra.sweep.dir).absolute(), launch)
        return run_points(points, launcher)

    store = RowStore(folder)  # refuses what is no folder, before the search does
    if not config.dry_run:
        store.check_writable()
    if added:
        _try_out(plan, Path(added[-1]).stem, dry_run=config.dry_run)
        if not config.dry_run:  # it can be run: it is kept from now on
            add_entry(Path(added[-1]), folder)
            plan = replace(plan, entries=_wanted(named, folder))
    code = 0
    if trials := plan.all_trials() if config.dry_run else plan.trials_left():
        print("search:", flush=True)
        code = compute_points(trials)
    values = plan.chosen()
    beside = ""
    candidates = plan.candidates
    if config.dry_run and len(values) < len(candidates):
        # What the search will choose costs about as much as what it tries first.
        left = len(candidates) - len(values)
        beside = f" (the search of {left} of {len(candidates)} settings is not done)"
        values = {setting: tries[0] for setting, tries in candidates.items()} | values
    reported = [point for points in plan.reported(values).values() for point in points]
    if reported:
        print(f"reported runs and their blank controls{beside}:", flush=True)
        code = max(code, compute_points(reported))
    what = _complete(load_protocol(), kept)
    if config.dry_run:
        _say_missing(what)
    else:
        found = _write(what, _results_dir(kept))
        for name in (Path(path).stem for path in added):
            _say_standings(found, name, protocol)
    if code:
        raise Ended(code)


def _try_out(plan: Any, name: str, *, dry_run: bool) -> None:
    """Refuse an entry that cannot be planned; unless in a dry run, one that cannot be run, too."""
    from lpgnn.components import exits_raised
    from lpgnn.errors import RunError, StorageError
    from lpgnn.sweeps.session import run_points

    try:
        first = {setting: values[0] for setting, values in plan.candidates.items()}
        for points in plan.reported(first).values():
            for point in points:
                point.settings.resolve(fetch=False)
        tried = plan.first_runs(name)
        for point in tried:
            resolved = point.settings.resolve(fetch=False)
            _ = resolved.filter and resolved.filter.max_steps  # an own filter computes them
        if not dry_run:
            print("a first run:", flush=True)
            with exits_raised():  # it is computed in this very process
                code = run_points(tried[:1])
            if code:
                print(f"entry {name} is not kept: it cannot be run", file=sys.stderr)
                raise Ended(code)
    except (RunError, StorageError):
        raise
    except InputError as error:
        if error.setting.startswith("entry "):
            raise
        raise InputError(f"entry {name}: {error.setting}", error.value, error.allowed) from None
    except Exception as error:
        reason = error_line(error)
        raise InputError(f"entry {name}", ..., f"cannot be run ({reason})") from error


def _complete(protocol: Any, overrides: Sequence[str]) -> Any:
    """What is there of the whole benchmark, whatever part of it was asked for."""
    from lpgnn.benchmark.entries import known_entries, own_mechanisms
    from lpgnn.benchmark.plan import Plan
    from lpgnn.benchmark.standings import computed
    from lpgnn.report.evidence import Source

    folder = _results_dir(overrides)
    kept = tuple(t for t in overrides if t.partition("=")[0] in ("results_dir", "data_dir"))
    plan = Plan(protocol, known_entries(folder), folder, kept, own_mechanisms())
    return computed(plan, Source(folder))


def _write(what: Any, folder: Path) -> Any:
    """Write the page and everything beside it; returns the standings."""
    from lpgnn.benchmark.page import write_benchmark
    from lpgnn.benchmark.standings import standings

    if not what.has_rows:
        raise InputError("results_dir", folder, "has no rows of the benchmark: run it first")
    found = standings(what)
    page = write_benchmark(what, found, folder)
    _say_missing(what)
    print(f"page: {page}")
    return found


def _say_standings(found: Any, name: str, protocol: Any) -> None:
    """How an entry stands where it was asked for."""
    for one in found:
        here = one.dataset in protocol.datasets and one.y_eps in protocol.y_eps
        if one.entry.name == name and here and one.x_eps in protocol.x_eps:
            print(one.line)


def _say_missing(what: Any) -> None:
    for name in what.absent():
        print(f"entry {name} has no rows, or its source has changed since: add it again")
    for line in what.unfinished_text():
        print(f"still missing from the whole benchmark: {line}")


def _checked(words: Sequence[str]) -> list[str]:
    """The protocol is fixed: what would change it is refused."""
    from lpgnn.benchmark.protocol import FREE, NARROWED

    for word in words:
        key, _, value = word.partition("=")
        if key not in (*FREE, *NARROWED):
            given = value.removeprefix("choice(").removesuffix(")")  # as Hydra has a sweep's words
            allowed = f"the protocol is fixed; may be set: {', '.join((*NARROWED, *FREE))}"
            raise InputError(key, given, allowed)
    return list(words)


def _results_dir(words: Sequence[str]) -> Path:
    given = [w.partition("=")[2].strip("'\"") for w in words if w.startswith("results_dir=")]
    if given and not given[-1]:
        raise InputError("results_dir", "", "must be a folder")
    return Path(given[-1] if given else "results").expanduser()


def _wanted(named: Sequence[str], results_dir: Path, added: Sequence[str] = ()) -> dict[str, Any]:
    """The entries of --entries NAME,..., all without it; added: files that are not kept yet."""
    from lpgnn.benchmark.entries import known_entries, load_submission

    new = [load_submission(Path(path), results_dir) for path in added]
    known = known_entries(results_dir) | {entry.name: entry for entry in new}
    wanted = [name for text in named for name in text.split(",")]
    for name in wanted:
        if name not in known:
            raise InputError("--entries", name, f"must be among {', '.join(known)}")
    return {name: entry for name, entry in known.items() if not named or name in wanted}


if __name__ == "__main__":
    # By its own name, by which the sweeper and a launcher's process find it.
    from lpgnn.benchmark.__main__ import main as benchmark_main

    sys.exit(benchmark_main())
