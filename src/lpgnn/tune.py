"""``python -m lpgnn.tune``: the paper's two-stage search for hyper-parameters, privately.

Stage one fixes KProp's steps and searches learning rate, weight decay and dropout for the four
pairs of private and non-private budgets; stage two fixes what was found and searches the steps for
every pair of budgets.  The only thing looked at is the validation loss against noisy labels
(paper, "Learning with private labels"): nothing that depends on a clean label has a say.
"""

import argparse
import dataclasses
import itertools
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from lpgnn.config import Component, Configuration, Settings, compose_settings
from lpgnn.errors import InputError, exit_code
from lpgnn.hyperparameters import TUNED_FILE, nearest_graph
from lpgnn.results import RowStore, write_atomically
from lpgnn.results.costs import CostModel
from lpgnn.sweep import Place, describe_error, missing_repeats, plan_tasks, run_tasks

# Steps of stage one (paper, "Experiment setup").
FIXED_STEPS = {"cora": (16, 8), "pubmed": (16, 2), "facebook": (4, 2), "lastfm": (8, 2)}
X_BUDGETS = (0.01, 0.1, 1.0, 2.0, 3.0, math.inf)
Y_BUDGETS = (0.5, 1.0, 2.0, 3.0, math.inf)
# The paper's text gives one set for both rates; the authors' search also had no decay, and this
# set for dropout.
GRID: dict[str, tuple[float, ...]] = {
    "learning_rate": (1e-2, 1e-3, 1e-4),
    "weight_decay": (1e-2, 1e-3, 1e-4, 0.0),
    "dropout": (0.0, 0.25, 0.5, 0.75),
    "x_steps": (0, 2, 4, 8, 16),
    "y_steps": (0, 2, 4, 8, 16),
}


@dataclasses.dataclass(frozen=True)
class Search:
    """A search on one graph: where it starts from, and what is open."""

    base: Settings
    grid: dict[str, tuple[Any, ...]]
    x_budgets: tuple[float, ...] = X_BUDGETS
    y_budgets: tuple[float, ...] = Y_BUDGETS

    @property
    def graph(self) -> str:
        """The name under which the table keeps what is found."""
        about = Component.of("dataset", self.base.dataset).all_options("dataset")
        return about.get("tuned_as") or Component.of("dataset", self.base.dataset).name

    def stage_one(self) -> dict[tuple[float, float], list[Settings]]:
        """Candidates for each pair of a private (1) and a non-private budget, at fixed steps."""
        about = Component.of("dataset", self.base.dataset).all_options("dataset")
        like = about.get("tuned_as") or nearest_graph(float(about.get("average_degree", 3.9)))
        x_steps, y_steps = FIXED_STEPS[like]
        names = ("learning_rate", "weight_decay", "dropout")
        pairs = itertools.product(_kinds(self.x_budgets), _kinds(self.y_budgets))
        return {
            (x, y): [
                self._with(
                    x, y, x_steps=x_steps, y_steps=y_steps, **dict(zip(names, v, strict=True))
                )
                for v in itertools.product(*(self.grid[name] for name in names))
            ]
            for x, y in pairs
        }

    def stage_two(
        self, chosen: dict[tuple[float, float], Settings]
    ) -> dict[tuple[float, float], list[Settings]]:
        """Candidates for every pair of budgets, with what stage one chose for its kind."""
        found = {}
        for x, y in itertools.product(self.x_budgets, self.y_budgets):
            best = chosen[_kind(x), _kind(y)]
            found[x, y] = [
                self._with(
                    *(x, y),
                    x_steps=x_steps,
                    y_steps=y_steps,
                    learning_rate=best.learning_rate,
                    weight_decay=best.weight_decay,
                    dropout=best.dropout,
                )
                for x_steps, y_steps in itertools.product(
                    self.grid["x_steps"], self.grid["y_steps"]
                )
            ]
        return found

    def _with(self, x_eps: float, y_eps: float, **values: Any) -> Settings:
        if Component.of("learner", self.base.learner).name != "drop":
            values["y_steps"] = 0
        return dataclasses.replace(self.base, x_eps=x_eps, y_eps=y_eps, **values)


def _kind(eps: float) -> float:
    return math.inf if math.isinf(eps) else 1.0


def _kinds(budgets: Iterable[float]) -> list[float]:
    return list(dict.fromkeys(_kind(eps) for eps in budgets))


def private_criterion(rows: Sequence[dict[str, str]]) -> float:
    """Mean validation loss against noisy labels: all that the search may see of a candidate."""
    losses = [float(row["paper/val/loss"]) for row in rows if row["status"] == "ok"]
    return sum(losses) / len(losses) if losses else math.inf


def choose(
    candidates: dict[tuple[float, float], list[Settings]], place: Place, store: RowStore
) -> dict[tuple[float, float], Settings]:
    """Train what is missing of the candidates and take the best of each pair of budgets."""
    every = {s.resolve().identity: s for group in candidates.values() for s in group}
    work: list[tuple[Configuration, tuple[int, ...]]] = []
    for settings in every.values():
        configuration = settings.resolve()
        work.append((configuration, missing_repeats(configuration, settings.repeats, store)))
    name = work[0][0].dataset.name
    costs = CostModel(store.read(name))
    failures = run_tasks(plan_tasks(work, costs, place.worker_count()), place, costs=costs)
    if failures:
        error = failures[0].error
        if isinstance(error, InputError):
            raise error
        raise RuntimeError(describe_error(error)) from error
    by_id: dict[str, list[dict[str, str]]] = {}
    for row in store.read(name):
        by_id.setdefault(row["id"], []).append(row)
    return {
        pair: min(group, key=lambda s: private_criterion(by_id[s.resolve().identity]))
        for pair, group in candidates.items()
    }


def write_table(
    path: Path,
    graph: str,
    feature: str,
    training: dict[tuple[float, float], Settings],
    steps: dict[tuple[float, float], Settings],
) -> None:
    """Put a graph's values into a table that ``hparams=`` reads, beside those of other graphs."""
    import yaml

    table: dict[str, Any] = yaml.safe_load(path.read_text()) if path.is_file() else {}
    table["source"] = "lpgnn.tune, by private validation loss"
    by_x = table.setdefault("training", {}).setdefault(feature, {})
    for (x, y), best in training.items():
        by_y = by_x.setdefault("inf" if math.isinf(x) else "finite", {})
        values = [best.learning_rate, best.weight_decay, best.dropout]
        by_y.setdefault("inf" if math.isinf(y) else "finite", {})[graph] = values
    by_budget = table.setdefault("steps", {}).setdefault(graph, {})
    for (x, y), best in steps.items():
        by_budget.setdefault(str(x), {})[str(y)] = [best.x_steps, best.y_steps]
    write_atomically(path, yaml.safe_dump(table, sort_keys=True, default_flow_style=None))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lpgnn.tune",
        description="Search hyper-parameters by private validation loss (the paper's two stages).",
        epilog="Overrides as for lpgnn.run; comma-separated values of learning_rate, weight_decay, "
        "dropout, x_steps, y_steps, x_eps or y_eps narrow the search. repeats defaults to 3.",
    )
    parser.add_argument("--workers", type=int, help="processes (default: one a core)")
    parser.add_argument("--table", type=Path, help=f"to write (default: RESULTS_DIR/{TUNED_FILE})")
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE")
    options = parser.parse_intermixed_args(arguments)

    def work() -> int:
        tune(options.overrides, workers=options.workers, table=options.table)
        return 0

    return exit_code(work)


def tune(
    overrides: Sequence[str], *, workers: int | None = None, table: Path | None = None
) -> Path:
    """Search on one graph; returns the path of the table."""
    said = {text.split("=", 1)[0] for text in overrides}
    texts = [*overrides, *([] if "repeats" in said else ["repeats=3"])]
    settings = compose_settings(texts, multirun=True)
    base = settings[0]

    def values(name: str, usual: tuple[Any, ...]) -> tuple[Any, ...]:
        given = tuple(dict.fromkeys(getattr(s, name) for s in settings))
        return given if name in said else usual

    search = Search(
        base,
        {name: values(name, usual) for name, usual in GRID.items()},
        tuple(float(eps) for eps in values("x_eps", X_BUDGETS)),
        tuple(float(eps) for eps in values("y_eps", Y_BUDGETS)),
    )
    if len({str(s.dataset) for s in settings}) > 1:
        raise InputError("dataset", "a grid", "must be one graph at a time")
    folder = Path(base.results_dir) / "tuning"
    store = RowStore(folder)
    store.check_writable()
    place = Place(Path(base.data_dir), folder, base.device, workers)
    training = choose(search.stage_one(), place, store)
    steps = choose(search.stage_two(training), place, store)
    path = table or Path(base.results_dir) / TUNED_FILE
    write_table(path, search.graph, Component.of("feature", base.feature).name, training, steps)
    for (x, y), best in training.items():
        print(
            f"x_eps={x:g} y_eps={y:g}: learning_rate={best.learning_rate:g} "
            f"weight_decay={best.weight_decay:g} dropout={best.dropout:g}"
        )
    for (x, y), best in steps.items():
        print(f"x_eps={x:g} y_eps={y:g}: x_steps={best.x_steps} y_steps={best.y_steps}")
    print(f"table: {path} (use it with hparams={'tuned' if table is None else path})")
    return path


if __name__ == "__main__":
    sys.exit(main())
