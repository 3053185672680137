"""What a run will cost, from the rows of finished runs or from a fitted formula."""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lpgnn.config import KINDS, Configuration, component_name
from lpgnn.rows import package_version

# Seconds for each unit of work below, fitted to rows and benchmarks; `python -m lpgnn.bench costs`
# fits them again to the rows of this version.
FITTED = {
    "base": 6.08e-4,
    "sparse": 8.27e-11,
    "nodes": 1.49e-8,
    "dense": 2.48e-11,
    "attention": 1.50e-8,
}

# Products with the adjacency that a learner without a network makes, for every class, each followed
# by work on the nodes' scores: six folds, up to 64 steps.
_LABEL_PRODUCTS = 6 * 64
# What asking in rounds costs beside that, by the rows of two rounds on seven graphs: evidence that
# is read for every fold, and some hundred products of class directions with the N x d answers.
_ASKING_BASE, _ASKING_PRODUCTS = 500, 300
# A regression on reports without a network: its products with all its columns and every class, in
# float64 and for all ridges, and its softmaxes, by runs on Tolokers, Cora and Actor.
_REGRESSION_PRODUCTS, _REGRESSION_SCORES = 2700, 300


class CostModel:
    """Seconds of a run: the median of measured runs like it, else a formula.

    Runs are alike if their components with all options agree, and if they were computed by this
    version: an earlier one may have been slower.  The formula is the sum of an epoch's ``work``
    times ``FITTED`` seconds.
    """

    def __init__(self, rows: Iterable[Mapping[str, str]] = ()) -> None:
        measured: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for row in rows:
            if is_measure(row):
                measured[cost_kind(row)].append(float(row["duration"]) / int(row["max_epochs"]))
        self.measured = {kind: statistics.median(values) for kind, values in measured.items()}
        self.known: dict[tuple[str, ...], float] = {}

    def seconds(self, task: Any) -> float:
        """The seconds of a sweep's task on one core."""
        return math.fsum(
            self.epoch_seconds(configuration) * configuration.max_epochs * len(repeats)
            for configuration, repeats in task.parts
        )

    def epoch_seconds(self, configuration: Configuration) -> float:
        kind = cost_kind(configuration.columns())
        if kind not in self.known:
            formula = weighted_sum(work(configuration), FITTED)
            self.known[kind] = self.measured.get(kind, formula)
        return self.known[kind]


def is_measure(row: Mapping[str, str]) -> bool:
    """Whether a row shows how long this version takes."""
    return (
        row.get("status") == "ok"
        and bool(row.get("duration"))
        and row.get("version") == package_version()
    )


def cost_kind(columns: Mapping[str, Any]) -> tuple[str, ...]:
    """What runs of the same cost share."""
    names = (component_name(columns, kind) for kind in KINDS)
    return (*names, str(columns["options"]), str(columns["hidden_dim"]))


def work(configuration: Configuration) -> dict[str, float]:
    """Units of work in an epoch of one run.

    sparse: multiply-adds with the adjacency, there and back; nodes: entries of activations; dense:
    multiply-adds with N x d reports, there and back, a third of them for signs; attention: scores
    of edges.
    """
    c, size = configuration, configuration.graph
    if c.learner.reads_reports:
        scores = size.num_nodes * size.num_classes
        columns = c.learner.report_columns(size.num_features)
        return {
            "base": 1.0,
            "nodes": float(scores * _REGRESSION_SCORES),
            "dense": float(scores * columns * _REGRESSION_PRODUCTS),
        }
    if c.filter is None or c.backbone is None:
        columns = size.num_classes * _LABEL_PRODUCTS
        labels = {
            "base": 1.0,
            "sparse": float(size.num_entries * columns),
            "nodes": float(size.num_nodes * columns),
        }
        if not c.asks:
            return labels
        scores = size.num_nodes * size.num_features * size.num_classes
        dense = float(scores * _ASKING_PRODUCTS)
        return {**labels, "base": float(_ASKING_BASE), "dense": dense}
    heads = max(1, c.backbone.attention_heads)
    dense_part = 1.0 if c.forms_matrix else 1 / 3 if c.report_form == "signs" else 0.0
    first = 2 * c.hidden_dim * heads  # of the first layer's own aggregation, there and back
    second = 3 * size.num_classes  # and of the second's, once more in the evaluation
    projections = c.backbone.projections
    steps = 0 if c.forms_matrix else 2 * c.hidden_dim * projections * c.filter.max_steps
    label_steps = 2 * size.num_classes * c.learner.label_steps
    scores = (heads + 1) * (c.backbone.attention_heads > 0)
    return {
        "base": 1.0,
        "sparse": float(size.num_entries * (first + second + steps + label_steps)),
        "nodes": float(size.num_nodes * (c.hidden_dim * projections + size.num_classes)),
        "dense": 2 * size.num_nodes * size.num_features * c.hidden_dim * projections * dense_part,
        "attention": float((size.num_entries + size.num_nodes) * scores),
    }


@dataclass(frozen=True)
class Fit:
    """Constants for the formula, and their error: the median of |log2(fitted / measured)|."""

    constants: dict[str, float]
    error: float
    kinds: int


def fit(samples: Iterable[tuple[Configuration, float]]) -> Fit:
    """Fit the formula to measured seconds of an epoch by non-negative least squares.

    Runs of a kind count once, by their median, and relative errors are made small: an hour of
    Facebook must not drown the seconds of Cora.
    """
    import numpy as np
    from scipy.optimize import nnls

    kinds: dict[tuple[str, ...], list[float]] = defaultdict(list)
    works: dict[tuple[str, ...], dict[str, float]] = {}
    for configuration, seconds in samples:
        kind = cost_kind(configuration.columns())
        kinds[kind].append(seconds)
        works.setdefault(kind, work(configuration))
    measured = [statistics.median(values) for values in kinds.values()]
    rows = [{name: works[kind].get(name, 0.0) for name in FITTED} for kind in kinds]
    relative = np.array([list(row.values()) for row in rows]) / np.array(measured)[:, None]
    scale = relative.max(axis=0)  # base and multiply-adds differ by ten orders of magnitude
    scale[scale == 0] = 1
    found, _ = nnls(relative / scale, np.ones(len(rows)))
    constants = dict(zip(FITTED, (float(value) for value in found / scale), strict=True))
    return Fit(constants, error_of(rows, measured, constants), len(rows))


def error_of(
    rows: Sequence[Mapping[str, float]], measured: Sequence[float], constants: Mapping[str, float]
) -> float:
    """The median of |log2(fitted / measured)|: 1 is a factor of two."""
    fitted = (weighted_sum(row, constants) for row in rows)
    return statistics.median(
        abs(math.log2(one / seconds)) for one, seconds in zip(fitted, measured, strict=True)
    )


def weighted_sum(units: Mapping[str, float], constants: Mapping[str, float]) -> float:
    return sum(constants[name] * amount for name, amount in units.items())
