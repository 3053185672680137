"""Tables of tuned hyper-parameters and KProp steps, and how a run finds its values in one."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from lpgnn.errors import InputError, one_line
from lpgnn.unique_keys import parse_yaml

# Where lpgnn.tune leaves its table in a results folder, and hparams=tuned looks for it.
TUNED_FILE = Path("tuning") / "tuned.yaml"
# The lowest seed of a collection to tune on: reported results have smaller ones, from 0 on.
TUNING_SEED = 1000


def conf_dir() -> Path:
    """The configuration folder: inside an installed package, beside src/ in a checkout."""
    packaged = Path(__file__).parent / "conf"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "conf"


class TunedValues(NamedTuple):
    """An entry of a table, and the tabulated graph that it belongs to."""

    graph: str
    values: Mapping[str, Any]  # learning_rate, weight_decay, dropout, x_steps, y_steps


@dataclass(frozen=True)
class HyperparameterTable:
    """A table as read from ``conf/hyperparameters/<name>.yaml`` or a file of the user's."""

    name: str
    training: dict[str, Any]  # feature -> x budget -> y budget -> graph -> [lr, wd, dropout]
    steps: dict[str, Any]  # graph -> x_eps -> y_eps -> [x_steps, y_steps]
    search: dict[str, Any] = field(default_factory=dict)  # graph -> [x_steps, y_steps] of stage one
    reported_seed: int | None = None  # found on the collection of this seed, and for it alone

    def look_up(
        self, graph: str | None, feature: str, x_eps: float, y_eps: float, average_degree: float
    ) -> TunedValues:
        """Values for a graph and a pair of budgets; steps of the nearest tabulated budgets.

        A graph that the table does not have takes the values of the one with the nearest average
        degree.  A feature that it does not have takes those of raw features, at x_eps = 1 if there
        are none for its budget: an ad-hoc feature has none (x_eps = inf).
        """
        if graph not in self.steps:
            graph = self.nearest_graph(average_degree)
        try:
            by_feature = self.training[feature if feature in self.training else "raw"]
            if feature not in self.training and _kind(x_eps) not in by_feature:
                x_eps = 1.0
            learning_rate, weight_decay, dropout = by_feature[_kind(x_eps)][_kind(y_eps)][graph]
            x_steps, y_steps = _nearest(_nearest(self.steps[graph], x_eps), y_eps)
        except KeyError:
            wanted = f"{graph} with feature={feature}, x_eps={x_eps:g}, y_eps={y_eps:g}"
            raise InputError("hparams", self.name, f"has no entry for {wanted}") from None
        values = {
            "learning_rate": float(learning_rate),
            "weight_decay": float(weight_decay),
            "dropout": float(dropout),
            "x_steps": int(x_steps),
            "y_steps": int(y_steps),
        }
        return TunedValues(graph, values)

    def check_collection(self, split: str, seed: int, repeats: int) -> None:
        """Refuse a run on other collections than the one that a table was found on and for.

        Test nodes of other splits have lent the search their labels.
        """
        is_own = seed == self.reported_seed and (repeats == 1 or split == "collection")
        if self.reported_seed is not None and not is_own:
            asked = f"seed={self.reported_seed}, and repeats=1 or split=collection"
            raise InputError("hparams", self.name, f"was tuned for one collection: needs {asked}")

    def search_steps(self, graph: str | None, average_degree: float) -> dict[str, int]:
        """The steps at which a search for the other values is made (paper, "Experiment setup")."""
        if graph not in self.search:
            graph = self.nearest_graph(average_degree)
        if graph not in self.search:
            raise InputError("hparams", self.name, f"has no search_steps for {graph}")
        x_steps, y_steps = self.search[graph]
        return {"x_steps": int(x_steps), "y_steps": int(y_steps)}

    def nearest_graph(self, average_degree: float) -> str:
        """The tabulated graph with the nearest average degree, by ratio.

        The best number of steps follows the degree (paper, "Analyzing the effect of KProp").
        """
        degrees = {graph: _published_degree(graph) for graph in self.steps}
        known = {graph: degree for graph, degree in degrees.items() if degree is not None}
        if not known:
            allowed = (
                f"has entries for {', '.join(self.steps) or 'no graph'} only, of which no average "
                "degree is known; set the values, or take another table"
            )
            raise InputError("hparams", self.name, allowed)
        degree = max(average_degree, 1e-9)  # a graph without edges is nearest to the sparsest
        return min(known, key=lambda graph: abs(math.log(known[graph] / degree)))


@lru_cache(maxsize=64)
def _published_degree(graph: str) -> float | None:
    """The average degree of a dataset with a file in conf/dataset, None if it is not published."""
    import yaml

    from lpgnn.data.dataset import dataset_from_target

    path = conf_dir() / "dataset" / f"{graph}.yaml"
    if not path.is_file():
        return None
    options = yaml.safe_load(path.read_text())
    facts = dataset_from_target(options.pop("_target_"), options).facts
    return None if facts is None else facts.average_degree


def _kind(eps: float) -> str:
    return "inf" if math.isinf(eps) else "finite"


def _nearest(table: dict[Any, Any], eps: float) -> Any:
    """The entry of the nearest budget by ratio; inf is near to nothing but itself."""
    entries = {float(key): value for key, value in table.items()}
    if math.isinf(eps):
        return entries[math.inf]
    finite = [key for key in entries if math.isfinite(key)]
    if not finite:
        raise KeyError(eps)
    return entries[min(finite, key=lambda key: abs(math.log(key / eps)))]


def load_table(name: str, results_dir: str | Path = "results") -> HyperparameterTable:
    """A table: one of conf/hyperparameters, ``tuned`` (of lpgnn.tune in results_dir) or a file."""
    folder = conf_dir() / "hyperparameters"
    named = folder / f"{name}.yaml"
    path = named if named.is_file() else Path(name).expanduser()
    if name == "tuned":
        path = Path(results_dir) / TUNED_FILE
    if not path.is_file():
        names = sorted(file.stem for file in folder.glob("*.yaml"))
        allowed = f"must be {', '.join(names)}, tuned or a file, and {path} does not exist"
        raise InputError("hparams", name, allowed)
    return _read_table(name, path, path.stat().st_mtime_ns)


@lru_cache(maxsize=16)
def _read_table(name: str, path: Path, changed: int) -> HyperparameterTable:
    """changed: when the file was last written, so that a table tuned meanwhile is read again."""
    import yaml

    try:
        content = parse_yaml(path.read_text())
        table = HyperparameterTable(
            *(name, content["training"], content["steps"]),
            content.get("search_steps") or {},
            content.get("reported_seed"),
        )
        _check(table)
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        reason = one_line(error) or type(error).__name__
        allowed = f"must be a table like conf/hyperparameters/paper.yaml ({reason})"
        raise InputError("hparams", name, allowed) from None
    return table


def _check(table: HyperparameterTable) -> None:
    """Check every entry on reading, so that a wrong one shows before a run needs it."""
    if table.reported_seed is not None and not isinstance(table.reported_seed, int):
        raise ValueError(f"reported_seed {table.reported_seed!r} is no whole number")
    for by_x in table.training.values():
        for by_y in by_x.values():
            for entries in by_y.values():
                for values in entries.values():
                    rate, decay, dropout = (float(value) for value in values)
                    if not (0 < rate < math.inf and 0 <= decay < math.inf and 0 <= dropout < 1):
                        raise ValueError(f"{values} is no [learning_rate, weight_decay, dropout]")
    for by_budget in table.steps.values():
        for x_eps, by_y in by_budget.items():
            for y_eps, steps in by_y.items():
                x_steps, y_steps = (int(step) for step in steps)
                if not (float(x_eps) > 0 and float(y_eps) > 0 and min(x_steps, y_steps) >= 0):
                    raise ValueError(f"{steps} is no [x_steps, y_steps]")
                if [x_steps, y_steps] != list(steps):
                    raise ValueError(f"{steps} are no whole numbers")
