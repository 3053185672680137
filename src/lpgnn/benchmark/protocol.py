"""The protocol: graphs, budgets, settings and search that are the same for every entry."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lpgnn.errors import InputError
from lpgnn.hyperparameters import conf_dir

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
    search_at: Mapping[str, Any]
    search: Mapping[str, Sequence[Any]]

    @property
    def datasets(self) -> tuple[str, ...]:
        return tuple(self.metrics)

    def narrowed(self, chosen: Mapping[str, Sequence[str]]) -> "Protocol":
        """Only these graphs and budgets, which must be among the protocol's."""
        found = self
        for setting, texts in chosen.items():
            known = {"dataset": self.datasets, "x_eps": self.x_eps, "y_eps": self.y_eps}[setting]
            values = [text if setting == "dataset" else _number(setting, text) for text in texts]
            if not set(values) <= set(known):
                listed = ", ".join(f"{one:g}" if isinstance(one, float) else one for one in known)
                raise InputError(setting, ",".join(texts), f"must be among {listed}")
            if setting == "dataset":
                metrics = {name: self.metrics[name] for name in known if name in values}
                found = replace(found, metrics=metrics)
            else:
                kept = tuple(one for one in known if one in values)
                found = replace(found, **{setting: kept})
        return found


def load_protocol() -> Protocol:
    import yaml

    content = yaml.safe_load((conf_dir() / "benchmark" / "protocol.yaml").read_text("utf-8"))
    for setting in ("x_eps", "y_eps"):
        content[setting] = tuple(float(eps) for eps in content[setting])
    return Protocol(**content)


def _number(setting: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(setting, text, "must be a number, or inf") from None

