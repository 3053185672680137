"""``python -m lpgnn.tune``: the paper's two-stage search for hyper-parameters, privately.

Stage one fixes the steps and searches learning rate, weight decay and dropout for the four pairs of
private and non-private budgets; stage two fixes what was found and searches the steps for every
pair of budgets.  Candidates are compared by nothing but the validation loss against noisy labels
(paper, "Learning with private labels"): no clean label plays a part.

A server has one collection to tune on.  So all candidates learn from the same split and the same
reports, and repeats differ only in their initial weights and dropout.  The labels of that split's
test nodes are not even collected.

By default the collection is one of its own, on a seed that no result is reported for.  Its split is
another than those of the reported repeats, so most of their test nodes are labelled nodes here: the
search sees their labels as the label mechanism reports them.  ``--reported`` leaves no such way: it
searches on the collection that is reported, repeat 0 of its seed, and the table serves no other.
"""

import dataclasses
import itertools
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lpgnn.application import TUNE_FLAGS, run_application
from lpgnn.composition import Point, expand
from lpgnn.config import Settings, facts_of
from lpgnn.errors import InputError, exit_code
from lpgnn.hyperparameters import TUNED_FILE, TUNING_SEED, load_table
from lpgnn.rows import Requirements, Row, RowStore, write_atomically

if TYPE_CHECKING:
    from lpgnn.sweeps import Execution

X_BUDGETS = (0.01, 0.1, 1.0, 2.0, 3.0, math.inf)
Y_BUDGETS = (0.5, 1.0, 2.0, 3.0, math.inf)
RATES = ("learning_rate", "weight_decay", "dropout")
# The paper's text gives one set for both rates; the authors' search also had no decay, and this
# set for dropout.
GRID: dict[str, tuple[Any, ...]] = {
    "learning_rate": (1e-2, 1e-3, 1e-4),
    "weight_decay": (1e-2, 1e-3, 1e-4, 0.0),
    "dropout": (0.0, 0.25, 0.5, 0.75),
    "filter.steps": (0, 2, 4, 8, 16),
    "learner.steps": (0, 2, 4, 8, 16),
}
# What is worth a minute on a new graph, at one pair of budgets.
QUICK_GRID: dict[str, tuple[Any, ...]] = {
    "learning_rate": (1e-2, 1e-3),
    "weight_decay": (1e-3, 0.0),
    "dropout": (0.0, 0.5),
    "filter.steps": (2, 4, 16),
    "learner.steps": (0, 2, 8),
}
QUICK_REPEATS, REPEATS = 2, 3
# The names of the steps in a table, and the options that they set.
_STEPS = {"x_steps": "filter.steps", "y_steps": "learner.steps"}

Pair = tuple[float, float]  # x_eps and y_eps
Values = Mapping[str, Any]  # setting -> value


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One choice of values, and the settings that try it."""

    values: Values
    settings: Settings


@dataclasses.dataclass(frozen=True)
class Search:
    """A search on one graph: where it starts from, and what is open."""

    base: Settings
    grid: Mapping[str, tuple[Any, ...]]
    x_budgets: tuple[float, ...] = X_BUDGETS
    y_budgets: tuple[float, ...] = Y_BUDGETS

    def stage_one(self) -> dict[Pair, list[Candidate]]:
        """Candidates for each pair of a private (1) and a non-private budget, at fixed steps."""
        steps = self._fixed_steps()
        tried = [dict(zip(RATES, v, strict=True)) for v in _product(self.grid, RATES)]
        pairs = itertools.product(_kinds(self.x_budgets), _kinds(self.y_budgets))
        return {pair: [self._candidate(pair, steps | rates) for rates in tried] for pair in pairs}

    def stage_two(self, chosen: Mapping[Pair, Candidate]) -> dict[Pair, list[Candidate]]:
        """Candidates for every pair of budgets, with what stage one chose for its kind."""
        tried, found = self.tried_steps(), {}
        for pair in itertools.product(self.x_budgets, self.y_budgets):
            best = chosen[_kind(pair[0]), _kind(pair[1])].values
            rates = {name: best[name] for name in RATES}
            found[pair] = [self._candidate(pair, rates | steps) for steps in tried]
        return found

    def tried_steps(self) -> list[dict[str, Any]]:
        """The values of the open steps to try."""
        names = list(self.open_steps())
        return [dict(zip(names, v, strict=True)) for v in _product(self.grid, names)]

    def open_steps(self) -> dict[str, str]:
        """The steps that filter and learner leave open: their setting and their table name."""
        found = {}
        for kind in ("filter", "learner"):
            component = self.base.component(kind)
            for option, name in component.open_fields.items():
                if component.options()[option] is None:
                    found[f"{kind}.{option}"] = name
        return found

    def _fixed_steps(self) -> dict[str, Any]:
        """The steps of stage one: the paper's, of the graph itself or of the nearest one."""
        dataset: Any = self.base.component("dataset")
        degree = facts_of(dataset, self.base.data_path).average_degree
        fixed = load_table("paper").search_steps(dataset.tuned_as, degree)
        # A range that leaves the paper's value out is searched from its nearest one.
        return {
            setting: min(self.grid[setting], key=lambda steps: abs(steps - fixed[name]))
            for setting, name in self.open_steps().items()
        }

    def _candidate(self, pair: Pair, values: Values) -> Candidate:
        changes: dict[str, Any] = {"x_eps": pair[0], "y_eps": pair[1]}
        for setting, value in values.items():
            kind, _, option = setting.partition(".")
            if option:
                component = changes.get(kind) or self.base.component(kind)
                changes[kind] = component.replace(**{option: value})
            else:
                changes[setting] = value
        return Candidate(values, dataclasses.replace(self.base, **changes))


def _product(grid: Mapping[str, tuple[Any, ...]], names: Iterable[str]) -> Iterable[Any]:
    return itertools.product(*(grid[name] for name in names))


def _kind(eps: float) -> float:
    return math.inf if math.isinf(eps) else 1.0


def _kinds(budgets: Iterable[float]) -> list[float]:
    return list(dict.fromkeys(_kind(eps) for eps in budgets))


def private_criterion(rows: Iterable[Row]) -> tuple[int, float]:
    """What the search may see of a candidate; the lowest is the best.

    How many repeats have no epoch within Acc*, and the mean validation loss against noisy labels.
    A network that agrees with noisy labels more often than the truth does has learnt the noise, and
    its loss speaks of nothing else.
    """
    done = [row for row in rows if row["status"] == "ok"]
    losses = [float(row["paper/val/loss"]) for row in done]
    overfitted = sum(row["paper/qualified"] != "true" for row in done)
    return overfitted, sum(losses) / len(losses) if losses else math.inf


def choose(
    candidates: Mapping[Pair, Sequence[Candidate]], execution: "Execution", store: RowStore
) -> dict[Pair, Candidate]:
    """Train what is missing of the candidates and take the best of each pair of budgets."""
    from lpgnn.sweeps import CostModel, plan_tasks, run_tasks  # brings torch

    resolved = {id(one): one.settings.resolve() for group in candidates.values() for one in group}
    work = {
        configuration.identity: (
            configuration,
            Requirements().missing(configuration.computation, range(one.settings.repeats), store),
        )
        for group in candidates.values()
        for one in group
        for configuration in [resolved[id(one)]]
    }
    dataset = next(iter(work.values()))[0].dataset.name
    costs = CostModel(store.stream(dataset))
    tasks = plan_tasks(list(work.values()), costs, execution.worker_count())
    failures = run_tasks(tasks, execution, costs=costs)
    if failures:
        raise failures[0].error

    def criterion(one: Candidate) -> tuple[int, float]:
        return private_criterion(store.finished(dataset, resolved[id(one)].identity).values())

    return {pair: min(group, key=criterion) for pair, group in candidates.items()}


def write_table(
    path: Path,
    graph: str,
    feature: str,
    training: Mapping[Pair, Candidate],
    steps: Mapping[Pair, Candidate],
    reported_seed: int | None = None,
) -> None:
    """Put a graph's values into a table that ``hparams=`` reads, beside those of other graphs.

    reported_seed: they were found on the collection of this seed, and are for it alone
    """
    import yaml

    table = _table_to_extend(path, reported_seed)
    table["source"] = "lpgnn.tune, by private validation loss on one collection"
    if reported_seed is not None:
        table["reported_seed"] = reported_seed
    by_x = table.setdefault("training", {}).setdefault(feature, {})
    for (x, y), best in training.items():
        by_y = by_x.setdefault("inf" if math.isinf(x) else "finite", {})
        values = [best.values[name] for name in RATES]
        by_y.setdefault("inf" if math.isinf(y) else "finite", {})[graph] = values
    by_budget = table.setdefault("steps", {}).setdefault(graph, {})
    for (x, y), best in steps.items():
        pair = [best.values.get(setting, 0) for setting in _STEPS.values()]
        by_budget.setdefault(str(x), {})[str(y)] = pair
    write_atomically(path, yaml.safe_dump(table, sort_keys=True, default_flow_style=None))


def _table_to_extend(path: Path, reported_seed: int | None) -> dict[str, Any]:
    """What a table has so far; values that serve one collection and others do not mix."""
    import yaml

    if not path.is_file():
        return {}
    known = load_table(str(path.resolve())).reported_seed
    if known != reported_seed:
        served = "any run" if known is None else f"the collection of seed {known} alone"
        raise InputError("table", path, f"its values are for {served}: give another --table")
    table: dict[str, Any] = yaml.safe_load(path.read_text())
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    return exit_code(lambda: run_application(compute, arguments, is_sweep=True, flags=TUNE_FLAGS))


def compute(config: Any) -> None:
    """Hydra's task; a search is always a sweep."""
    raise InputError("hydra.mode", "RUN", "must be MULTIRUN: a search tries many values")


def sweep(arguments: Sequence[str], config: Any, launch: Callable[..., Any] | None) -> None:
    """Hydra's sweep: comma-separated values narrow the search."""
    if launch is not None:
        allowed = "must be basic: a search runs on this machine"
        raise InputError("hydra/launcher", config.hydra.runtime.choices["hydra/launcher"], allowed)
    own = ("+table=", "+quick=", "+reported=")
    overrides = [text for text in arguments if not text.startswith(own)]
    table = Path(config.table).expanduser() if "table" in config else None
    flags = {name: config.get(name, False) for name in ("quick", "reported")}
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise InputError(name, value, "must be true or false")
    tune(
        overrides,
        quick=flags["quick"],
        reported=flags["reported"],
        table=table,
        hydra_overrides=config.hydra.overrides.hydra,
    )


def tune(
    overrides: Sequence[str],
    *,
    quick: bool = False,
    reported: bool = False,
    table: Path | None = None,
    hydra_overrides: Sequence[str] = (),
) -> Path:
    """Search on one graph; returns the path of the table.

    quick: one pair of budgets, fewer values and repeats
    reported: on the collection that is reported, that of the seed's repeat 0
    """
    given = {text.split("=", 1)[0].lstrip("+") for text in overrides}
    searched = {*GRID, "x_eps", "y_eps"}
    defaults = {"repeats": QUICK_REPEATS if quick else REPEATS, "split": "collection"}
    defaults |= {} if reported else {"seed": TUNING_SEED}
    # What is searched is taken out of the settings, so that it stays open there.
    fixed = [text for text in overrides if text.split("=", 1)[0].lstrip("+") not in searched]
    fixed += [f"{name}={value}" for name, value in defaults.items() if name not in given]
    points = expand(fixed, multirun=True, hydra_overrides=hydra_overrides)
    if len(points) > 1:
        raise InputError("overrides", " ".join(fixed), "must be one graph and one method at a time")
    base = points[0].settings
    if base.split != "collection":
        raise InputError("split", base.split, "must be collection: a server tunes on one")
    if base.seed < TUNING_SEED and not reported:
        allowed = f"must be at least {TUNING_SEED}, as smaller seeds are reported, or needs"
        raise InputError("seed", base.seed, f"{allowed} --reported, for that collection alone")
    learner: Any = base.component("learner")
    if not learner.uses_network:
        raise InputError("learner", learner.name, "has nothing to tune: it trains no network")
    narrowed = expand([t for t in overrides if t not in fixed], multirun=True)

    def values(name: str, default: tuple[Any, ...]) -> tuple[Any, ...]:
        if name not in given:
            return default
        kind, _, option = name.partition(".")
        found = (getattr(point.settings, kind) for point in narrowed)
        return tuple(dict.fromkeys(one[option] if option else one for one in found))

    grid = QUICK_GRID if quick else GRID
    search = Search(
        base,
        {name: values(name, default) for name, default in grid.items()},
        tuple(float(x) for x in values("x_eps", (base.x_eps,) if quick else X_BUDGETS)),
        tuple(float(y) for y in values("y_eps", (base.y_eps,) if quick else Y_BUDGETS)),
    )
    _check_steps(search, narrowed, given)
    path = table or base.results_path / TUNED_FILE
    reported_seed = base.seed if reported else None
    _table_to_extend(path, reported_seed)  # a table of another kind shows before the search
    folder = base.results_path / "tuning"
    store = RowStore(folder)
    if base.dry_run:
        first = [one for found in search.stage_one().values() for one in found]
        second = len(search.x_budgets) * len(search.y_budgets) * len(search.tried_steps())
        print(
            f"on the collection of seed={base.seed}, {base.repeats} repeats each: {len(first)} "
            f"candidates for {', '.join(RATES)}, then {second} for "
            f"{', '.join(search.open_steps()) or 'no steps'}"
        )
        return path
    store.check_writable()
    from lpgnn.sweeps import Execution  # brings torch

    execution = Execution(
        *(base.data_path, folder, base.device, base.kernels, base.workers),
        time_limit=base.time_limit,
    )
    training = choose(search.stage_one(), execution, store)
    steps = choose(search.stage_two(training), execution, store)
    dataset: Any = base.component("dataset")
    graph = dataset.tuned_as or dataset.name
    feature: Any = base.component("feature")
    # Blank reports are trained as raw ones are.
    kind = "raw" if feature.spends_budget else feature.name
    write_table(path, graph, kind, training, steps, reported_seed)
    print(f"found on one collection, that of seed={base.seed}:")
    for (x, y), best in steps.items():
        shown = " ".join(f"{name}={value:g}" for name, value in best.values.items())
        print(f"x_eps={x:g} y_eps={y:g}: {shown}")
    run = f"hparams={'tuned' if table is None else path}"
    run += f" seed={base.seed} repeats=1" if reported else ""
    print(f"table: {path} (use it with {run})")
    return path


def _check_steps(search: Search, narrowed: Sequence[Point], given: Set[str]) -> None:
    """Check the steps to try before the first stage, not after it."""
    for setting in _STEPS.values():
        kind, _, option = setting.partition(".")
        if setting in given and setting not in search.open_steps():
            name = search.base.component(kind).name
            tried = ",".join(str(getattr(point.settings, kind)[option]) for point in narrowed)
            raise InputError(setting, tried, f"{name} has no such option")
        for point in narrowed:
            point.settings.component(kind)


if __name__ == "__main__":
    from lpgnn.tune import main as tune_main  # by its own name, by which the sweeper finds it

    sys.exit(tune_main())
