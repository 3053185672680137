"""``python -m lpgnn.report``: tables, figures and pages from the rows of a results folder."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lpgnn.commands import Command
from lpgnn.composition import experiment_names, load_experiment
from lpgnn.config import Settings
from lpgnn.counting import counted
from lpgnn.errors import InputError, exit_code

if TYPE_CHECKING:
    from lpgnn.report.evidence import Source
    from lpgnn.report.page import Built

_SETTINGS = ("results_dir", "selection", "data_dir")


def main(arguments: Sequence[str] | None = None) -> int:
    command = Command(
        "report",
        "Build tables and figures of experiments from the rows of a results folder.",
        "Settings: experiment=NAME (may be repeated; without it all that have rows, the paper's\n"
        "comparison and report.html if they are among them, and a list of the runs on other\n"
        "graphs, tables/runs), results_dir=results, selection=paper|released, data_dir=data, and\n"
        "what else the run was given, such as dataset=cora or max_epochs=50.\n"
        "Exit codes: 0 done, 2 bad input.",
    )
    command.takes_settings()
    given = command.read(arguments)
    return exit_code(lambda: _report(given.overrides, given.config_dir))


def _report(words: Sequence[str], config_dirs: Sequence[Path]) -> int:
    names, settings, overrides = parse(words)
    from lpgnn.report.evidence import Source  # brings torch

    folders = tuple(folder.expanduser() for folder in config_dirs)
    data_dir = str(settings.data_dir)
    source = Source(settings.results_path, settings.selection, data_dir, overrides, folders)
    for name in names:
        load_experiment(name, folders)  # an unknown one is told before a folder without rows
    if not source.store.datasets():
        allowed = "no rows there: must be a folder that lpgnn.run has written to"
        raise InputError("results_dir", settings.results_dir, allowed)
    try:
        if names:
            _build_named(names, source)
        else:
            _build_all(source)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        allowed = f"must be a readable and writable folder ({reason})"
        raise InputError("results_dir", settings.results_dir, allowed) from None
    return 0


def _build_named(names: Sequence[str], source: Source) -> None:
    for name in names:
        results = source.results(name)
        if not results.has_rows:
            obstacles = [cell.obstacle for cell in results.cells if cell.obstacle]
            reason = obstacles[0] if obstacles else "run it first"
            raise InputError("experiment", name, f"no rows in {source.results_dir}: {reason}")
    from lpgnn.report.build import build

    for name in names:
        _show(build(name, source), source)


def _show(built: Built, source: Source) -> None:
    """Say where an experiment's tables and figures are, and write its page."""
    from lpgnn.report.build import write_page

    for table in built.tables:
        print(f"table:  {source.results_dir}/tables/{table}.csv, .md, .tex")
    for figure in built.figures:
        print(f"figure: {source.results_dir}/figures/{figure}.png, .svg")
    print(f"page:   {write_page(built, source)}")


def _build_all(source: Source) -> None:
    from lpgnn.paper import write_paper
    from lpgnn.report.build import build, remove

    ours, built = set(experiment_names()), []
    for name in experiment_names(source.config_dirs):
        if source.results(name).has_rows:
            built.append(build(name, source))
        else:
            remove(source.results(name), source.results_dir)
    _list_others(built, ours, source)
    if any(one.name in ours for one in built):
        print(write_paper(built, source))
        print(f"page: {source.results_dir}/report.html")
    else:
        for one in built:
            _show(one, source)


def _list_others(built: Sequence[Built], ours: Collection[str], source: Source) -> None:
    """Runs on the user's own graphs: those that neither an experiment nor the benchmark shows."""
    from lpgnn.report.runs import NAME, other_runs, remove_runs

    cells = {one.name: one.results.cells for one in built}
    others = other_runs(
        source,
        shown={cell.identity for found in cells.values() for cell in found},
        datasets={
            *(cell.dataset for name in cells if name in ours for cell in cells[name]),
            # A graph that the benchmark has runs of has a table there.
            *(path.stem for path in (source.results_dir / "benchmark").glob("*.md")),
        },
    )
    if others is None:
        remove_runs(source.results_dir)
        return
    others.write(source.results_dir / "tables")
    print(f"{counted(len(others.runs), 'run')} of no experiment (selection={source.selection}):\n")
    print(f"{others.grid().to_markdown()}\n{others.note()}")
    print(f"table:  {source.results_dir}/tables/{NAME}.csv, .md, .tex")
    print("A table, figure and page of your own choice: an experiment, experiment=NAME")


def parse(words: Sequence[str]) -> tuple[list[str], Settings, tuple[str, ...]]:
    """Experiments, the report's own settings, and overrides of the experiments."""
    names: list[str] = []
    own: dict[str, str] = {}
    overrides: list[str] = []
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise InputError("settings", word, "must be KEY=VALUE")
        if key.lstrip("+") == "experiment":
            names += [name for name in value.split(",") if name]
        elif key in _SETTINGS:
            own[key] = value
        else:
            overrides.append(word)
    return list(dict.fromkeys(names)), Settings(**own), tuple(overrides)  # type: ignore[arg-type]


if __name__ == "__main__":
    sys.exit(main())
