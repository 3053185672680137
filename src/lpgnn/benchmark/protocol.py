"""The protocol: graphs, budgets, settings and search that are the same for every entry."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from lpgnn.errors import InputError
from lpgnn.hyperparameters import conf_dir
from lpgnn.report.notation import canonical
from lpgnn.rows.schema import RULES

T = TypeVar("T")

# What the command line may narrow, and what it may set: all else is the protocol's.
NARROWED = ("dataset", "x_eps", "y_eps")
FREE = ("data_dir", "results_dir", "workers", "device", "kernels", "force", "time_limit", "dry_run")


@dataclass(frozen=True)
class Protocol:
    """As ``conf/benchmark/protocol.yaml`` has it."""

    metrics: Mapping[str, str]  # dataset -> metric
    x_eps: tuple[float, ...]
    y_eps: tuple[float, ...]
    repeats: int
    seed: int
    settings: Mapping[str, Any]
    exact_labels: Mapping[str, Any]
    trials: int
    collections: int  # splits and reports that judge a trial
    search_at: Mapping[str, Any]
    search: Mapping[str, Sequence[Any]]
    exact_epochs: Mapping[str, int] = field(default_factory=dict)  # dataset -> with clean labels
    # Graphs whose features were not available: entries stand there on blank reports.
    without_features: Sequence[str] = ()
    # Which epoch's model is reported: by the rule that judges the trials, too.
    selection: str = "paper"

    def __post_init__(self) -> None:
        if self.selection not in RULES:
            raise InputError("selection", self.selection, f"must be among {', '.join(RULES)}")
        for name in self.without_features:
            if name not in self.metrics:
                known = ", ".join(self.metrics)
                raise InputError("without_features", name, f"must be among {known}")

    @property
    def datasets(self) -> tuple[str, ...]:
        return tuple(self.metrics)

    def settings_at(self, dataset: str, y_eps: float) -> dict[str, Any]:
        """What an entry does not set itself."""
        found = dict(self.settings)
        if math.isinf(y_eps):
            found |= self.exact_labels
            if dataset in self.exact_epochs:
                found["max_epochs"] = self.exact_epochs[dataset]
        return found

    def narrowed(self, chosen: Mapping[str, Sequence[str]]) -> "Protocol":
        """Only these graphs and budgets, which must be among the protocol's."""
        names = _among("dataset", chosen, {name: name for name in self.metrics})
        x_eps, y_eps = (
            _among(setting, chosen, {canonical(eps): eps for eps in getattr(self, setting)})
            for setting in ("x_eps", "y_eps")
        )
        metrics = {name: self.metrics[name] for name in names}
        without = tuple(name for name in self.without_features if name in metrics)
        return replace(self, metrics=metrics, x_eps=x_eps, y_eps=y_eps, without_features=without)


def _among(
    setting: str, chosen: Mapping[str, Sequence[str]], known: Mapping[str, T]
) -> tuple[T, ...]:
    """The chosen of the known values, all if none is chosen; in the protocol's order."""
    texts = [canonical(text) for text in chosen.get(setting, known)]
    if not set(texts) <= known.keys():
        raise InputError(setting, ",".join(texts), f"must be among {', '.join(known)}")
    return tuple(value for text, value in known.items() if text in texts)


def load_protocol() -> Protocol:
    import yaml

    content = yaml.safe_load((conf_dir() / "benchmark" / "protocol.yaml").read_text("utf-8"))
    for setting in ("x_eps", "y_eps"):
        content[setting] = tuple(float(eps) for eps in content[setting])
    return Protocol(**content)
