"""Tables of tuned hyper-parameters and KProp steps, and how a run looks itself up in one."""

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from lpgnn.errors import InputError

# Average degrees of the tabulated graphs (paper, dataset table): a graph outside the table takes
# the values of the one whose degree is nearest, because the best number of steps follows the
# degree (paper, "Analyzing the effect of KProp").
AVERAGE_DEGREE = {"cora": 3.90, "pubmed": 4.50, "facebook": 15.21, "lastfm": 7.29}

# Where lpgnn.tune leaves its table in a results folder, and hparams=tuned looks for it.
TUNED_FILE = Path("tuning") / "tuned.yaml"


def conf_dir() -> Path:
    """The configuration folder: inside an installed package, beside src/ in a checkout."""
    packaged = Path(__file__).parent / "conf"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "conf"


def nearest_graph(average_degree: float) -> str:
    """The tabulated graph with the nearest average degree, by ratio."""
    return min(
        AVERAGE_DEGREE, key=lambda name: abs(math.log(AVERAGE_DEGREE[name] / average_degree))
    )


@dataclass(frozen=True)
class TunedValues:
    """One entry of a table."""

    learning_rate: float
    weight_decay: float
    dropout: float
    x_steps: int
    y_steps: int


@dataclass(frozen=True)
class HyperparameterTable:
    """A table as read from ``conf/hparams/<name>.yaml`` or a file of the user's."""

    name: str
    training: dict[str, Any]  # feature -> x budget -> y budget -> graph -> [lr, wd, dropout]
    steps: dict[str, Any]  # graph -> x_eps -> y_eps -> [x_steps, y_steps]

    def look_up(self, graph: str, feature: str, x_eps: float, y_eps: float) -> TunedValues:
        """Values for a graph and a pair of budgets; steps of the nearest tabulated budgets.

        A feature that the table does not know is taken for raw ones; a stand-in, which has no
        budget, for reports at x_eps = 1 where the table has no clean features to take it for.
        """
        try:
            by_feature = self.training.get(feature, self.training["raw"])
            if feature not in ("raw", "blank") and _kind(x_eps) not in by_feature:
                x_eps = 1.0
            learning_rate, weight_decay, dropout = by_feature[_kind(x_eps)][_kind(y_eps)][graph]
            x_steps, y_steps = _nearest(_nearest(self.steps[graph], x_eps), y_eps)
        except KeyError:
            wanted = f"{graph} with feature={feature}, x_eps={x_eps:g}, y_eps={y_eps:g}"
            raise InputError("hparams", self.name, f"has no entry for {wanted}") from None
        return TunedValues(learning_rate, weight_decay, dropout, x_steps, y_steps)


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
    """Read a table: ``paper``, ``tuned`` (of lpgnn.tune in the results folder) or a file."""
    named = conf_dir() / "hparams" / f"{name}.yaml"
    path = named if named.is_file() else Path(name)
    if name == "tuned":
        path = Path(results_dir) / TUNED_FILE
    if not path.is_file():
        raise InputError(
            "hparams", name, f"must be paper, tuned or a file, and {path} is not there"
        )
    return _read_table(name, path, path.stat().st_mtime_ns)


@lru_cache(maxsize=16)
def _read_table(name: str, path: Path, changed: int) -> HyperparameterTable:
    """changed: when the file was written last, so that a table tuned meanwhile is read anew."""
    import yaml

    try:
        content = yaml.safe_load(path.read_text())
        table = HyperparameterTable(name, content["training"], content["steps"])
        _check(table)
    except (yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        allowed = f"must be a table like conf/hparams/paper.yaml ({reason})"
        raise InputError("hparams", name, allowed) from None
    return table


def _check(table: HyperparameterTable) -> None:
    """Look at every entry once, so that a wrong one is told before a run stumbles over it."""
    for by_x in table.training.values():
        for by_y in by_x.values():
            for entries in by_y.values():
                for values in entries.values():
                    rate, decay, dropout = (float(value) for value in values)
                    if not (rate > 0 and decay >= 0 and 0 <= dropout < 1):
                        raise ValueError(f"{values} is no [learning_rate, weight_decay, dropout]")
    for by_budget in table.steps.values():
        for x_eps, by_y in by_budget.items():
            for y_eps, steps in by_y.items():
                x_steps, y_steps = (int(step) for step in steps)
                if not (float(x_eps) > 0 and float(y_eps) > 0 and min(x_steps, y_steps) >= 0):
                    raise ValueError(f"{steps} is no [x_steps, y_steps]")
