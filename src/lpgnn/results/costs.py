"""What a run will cost, from the rows of finished runs or from a fitted model."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

# Entries, nodes and clean columns of the paper's graphs, for estimates before a graph is loaded.
_SIZES = {
    "cora": (2708, 10556, 1432),
    "pubmed": (19717, 88648, 500),
    "facebook": (22470, 341825, 4714),
    "lastfm": (7083, 51628, 7842),
}


class CostModel:
    """Seconds of a run: the median of measured runs like it, else a formula.

    Runs are alike if graph, backbone, mechanism, feature, learner and steps agree.  The formula
    counts multiply-adds of an epoch: sparse products by the steps, dense ones by N d.
    """

    # Seconds, and seconds per multiply-add, fitted to the durations of Cora's and Facebook's rows.
    base, sparse, dense = 2.1e-3, 4.4e-10, 3.1e-11

    def __init__(self, rows: Iterable[Mapping[str, str]] = ()) -> None:
        measured: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for row in rows:
            if row.get("status") == "ok" and row.get("duration"):
                measured[_kind(row)].append(float(row["duration"]) / int(row["max_epochs"]))
        self.measured = {kind: statistics.median(values) for kind, values in measured.items()}

    def seconds(self, task: Any) -> float:
        """The seconds of a sweep's task on one core."""
        return self.epoch_seconds(task.configuration.columns()) * float(task.epochs)

    def epoch_seconds(self, columns: Mapping[str, Any]) -> float:
        kind = _kind(columns)
        if kind in self.measured:
            return self.measured[kind]
        nodes, entries, width = _SIZES.get(str(columns["dataset"]), _SIZES["cora"])
        hidden = int(columns["hidden_dim"])
        layers = {"gat": 6.0}.get(str(columns["backbone"]), 1.0)
        hops = (2 * int(columns["x_steps"]) + 2) * 2 * hidden * layers + 16 * int(
            columns["y_steps"]
        )
        work = self.sparse * (entries * hops + nodes * 30 * hidden * layers)
        if columns["mechanism"] in ("1b", "lp", "ag") or columns["feature"] == "rnd":
            work += self.dense * nodes * width * hidden * 4 * min(layers, 2.0)
        return self.base + work


def _kind(columns: Mapping[str, Any]) -> tuple[str, ...]:
    names = (
        *("dataset", "options", "backbone", "mechanism", "feature", "learner"),
        *("x_steps", "y_steps", "hidden_dim"),
    )
    dense = "" if columns["mechanism"] in ("mb", "none") else "dense"
    return (dense, *(str(columns[name]) for name in names if name != "mechanism"))
