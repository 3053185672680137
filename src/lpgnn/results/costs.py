"""What a run will cost, from the rows of finished runs or from a fitted formula."""

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lpgnn.data.sbm import BlockModel
from lpgnn.results.store import package_version


@dataclass(frozen=True)
class GraphSize:
    """What the cost of an epoch depends on, known before a graph is loaded."""

    nodes: int
    entries: int  # directed: an edge counts twice
    features: int
    classes: int


_SIZES = {
    "cora": GraphSize(2708, 10556, 1432, 7),
    "pubmed": GraphSize(19717, 88648, 500, 3),
    "facebook": GraphSize(22470, 341825, 4714, 4),
    "lastfm": GraphSize(7083, 51628, 7842, 10),
}

# Seconds for each unit of work below, fitted to rows and benchmarks; `python -m lpgnn.bench costs`
# fits them anew to the rows of this version.
FITTED = {
    "base": 6.08e-4,
    "sparse": 8.27e-11,
    "nodes": 1.49e-8,
    "dense": 2.48e-11,
    "attention": 1.50e-8,
}


class CostModel:
    """Seconds of a run: the median of measured runs like it, else a formula.

    Runs are alike if graph, backbone, mechanism, feature, learner and steps agree, and if they were
    computed by this version: an earlier one may have been slower.  The formula is the sum of an
    epoch's ``work`` times ``FITTED`` seconds.
    """

    def __init__(self, rows: Iterable[Mapping[str, str]] = ()) -> None:
        measured: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for row in rows:
            if is_measure(row):
                measured[_kind(row)].append(float(row["duration"]) / int(row["max_epochs"]))
        self.measured = {kind: statistics.median(values) for kind, values in measured.items()}

    def seconds(self, task: Any) -> float:
        """The seconds of a sweep's task on one core."""
        return math.fsum(
            self.epoch_seconds(configuration.columns()) * configuration.max_epochs * len(repeats)
            for configuration, repeats in task.parts
        )

    def epoch_seconds(self, columns: Mapping[str, Any]) -> float:
        kind = _kind(columns)
        if kind in self.measured:
            return self.measured[kind]
        return _total(work(columns), FITTED)


def is_measure(row: Mapping[str, str]) -> bool:
    """Whether a row tells how long this version takes."""
    return (
        row.get("status") == "ok"
        and bool(row.get("duration"))
        and row.get("version") == package_version()
    )


def graph_size(columns: Mapping[str, Any]) -> GraphSize:
    """The size of a row's graph; the block model's is in its options, an unknown one is Cora's."""
    if str(columns["dataset"]) != "sbm":
        return _SIZES.get(str(columns["dataset"]), _SIZES["cora"])
    nodes = _option(columns, "dataset.num_nodes", BlockModel.num_nodes)
    entries = nodes * _option(columns, "dataset.average_degree", BlockModel.average_degree)
    features = _option(columns, "dataset.num_features", BlockModel.num_features)
    classes = _option(columns, "dataset.num_classes", BlockModel.num_classes)
    return GraphSize(round(nodes), round(entries), round(features), round(classes))


def work(columns: Mapping[str, Any]) -> dict[str, float]:
    """Units of work in an epoch of one run.

    sparse: multiply-adds with the adjacency, there and back; nodes: entries of activations; dense:
    multiply-adds with N x d reports, there and back, a third of them for signs; attention: scores
    of edges.
    """
    size, hidden = graph_size(columns), int(columns["hidden_dim"])
    backbone = str(columns["backbone"])
    heads = round(_option(columns, "backbone.heads", 4)) if backbone == "gat" else 1
    projections = {"gcn": 1, "gat": heads}.get(backbone, 2)
    is_dense = (
        columns["mechanism"] in ("lp", "ag")
        or columns["feature"] == "rnd"
        or backbone not in ("gcn", "sage", "gat")  # plug-ins get the features as a matrix
    )
    dense_part = 1.0 if is_dense else 1 / 3 if columns["mechanism"] == "1b" else 0.0
    first = 2 * hidden * heads  # of the first layer's own aggregation, there and back
    second = 3 * size.classes  # and of the second's, once more in the evaluation
    kprop = 2 * hidden * projections * int(columns["x_steps"]) * (not is_dense)
    labels = 2 * size.classes * int(columns["y_steps"])
    return {
        "base": 1.0,
        "sparse": float(size.entries * (first + second + kprop + labels)),
        "nodes": float(size.nodes * (hidden * projections + size.classes)),
        "dense": 2 * size.nodes * size.features * hidden * projections * dense_part,
        "attention": float((size.entries + size.nodes) * (heads + 1) * (backbone == "gat")),
    }


@dataclass(frozen=True)
class Fit:
    """Constants for the formula and how far they are off: the median of |log2(told / measured)|."""

    constants: dict[str, float]
    error: float
    kinds: int


def fit(samples: Iterable[tuple[Mapping[str, Any], float]]) -> Fit:
    """Fit the formula to measured seconds of an epoch by non-negative least squares.

    Runs of a kind count once, by their median, and relative errors are made small: an hour of
    Facebook must not drown the seconds of Cora.
    """
    import numpy as np
    from scipy.optimize import nnls

    kinds: dict[tuple[str, ...], list[float]] = defaultdict(list)
    works: dict[tuple[str, ...], dict[str, float]] = {}
    for columns, seconds in samples:
        kinds[_kind(columns)].append(seconds)
        works.setdefault(_kind(columns), work(columns))
    measured = [statistics.median(values) for values in kinds.values()]
    rows = [works[kind] for kind in kinds]
    relative = np.array([list(row.values()) for row in rows]) / np.array(measured)[:, None]
    scale = relative.max(axis=0)  # base and multiply-adds differ by ten orders of magnitude
    scale[scale == 0] = 1
    found, _ = nnls(relative / scale, np.ones(len(rows)))
    constants = dict(zip(FITTED, (float(value) for value in found / scale), strict=True))
    return Fit(constants, error_of(rows, measured, constants), len(rows))


def error_of(
    rows: Sequence[Mapping[str, float]], measured: Sequence[float], constants: Mapping[str, float]
) -> float:
    """The median of |log2(told / measured)|: 1 is a factor of two."""
    told = (_total(row, constants) for row in rows)
    return statistics.median(
        abs(math.log2(t / seconds)) for t, seconds in zip(told, measured, strict=True)
    )


def _total(units: Mapping[str, float], constants: Mapping[str, float]) -> float:
    return sum(constants[name] * amount for name, amount in units.items())


def _option(columns: Mapping[str, Any], name: str, usual: float) -> float:
    """An option of a row; what is no number is told to the user when the run is built, not here."""
    options = json.loads(columns.get("options") or "{}")
    value = options.get(name, usual)
    return value if isinstance(value, int | float) else usual


def _kind(columns: Mapping[str, Any]) -> tuple[str, ...]:
    names = (
        *("dataset", "options", "backbone", "mechanism", "feature", "learner"),
        *("x_steps", "y_steps", "hidden_dim"),
    )
    mechanism = str(columns["mechanism"])
    form = {"mb": "sparse", "none": "sparse", "1b": "signs"}.get(mechanism, "dense")
    return (form, *(str(columns[name]) for name in names if name != "mechanism"))
