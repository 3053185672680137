"""Test metrics: the one place where predictions meet clean labels.

A metric is a function ``metric(labels, predictions, probabilities) -> float`` of the test nodes:
labels and predictions are integers [n], probabilities [n, c] or None.  Shares are in per cent.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from numbers import Real
from typing import TYPE_CHECKING, Any

from lpgnn.components import import_target, target_digest
from lpgnn.errors import InputError, error_line

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Labels = NDArray[np.integer[Any]]
    Probabilities = NDArray[np.floating[Any]] | None

DEFAULT_METRICS = {
    "acc": "lpgnn.rows.metrics.accuracy",
    "macro_f1": "lpgnn.rows.metrics.macro_f1",
    "balanced_acc": "lpgnn.rows.metrics.balanced_accuracy",
}

# Known by name, but recorded only where asked for: they need the probabilities.
OTHER_METRICS = {"roc_auc": "lpgnn.rows.metrics.roc_auc"}

_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")  # becomes part of a column's name


def check_metrics(metrics: Mapping[str, str]) -> None:
    """Find a wrong name or an import path that leads nowhere before the work, not after it."""
    for name, target in metrics.items():
        if not _NAME.fullmatch(str(name)):
            allowed = "a metric's name has letters, digits and _ only"
            raise InputError(f"metrics.{name}", target, allowed)
        import_target(f"metrics.{name}", target)


def accuracy(labels: "Labels", predictions: "Labels", probabilities: "Probabilities") -> float:
    """The share of nodes whose class is predicted, in per cent."""
    return 100.0 * float(_sklearn().accuracy_score(labels, predictions))


def macro_f1(labels: "Labels", predictions: "Labels", probabilities: "Probabilities") -> float:
    """The mean over classes of F1 = 2 TP / (2 TP + FP + FN), in per cent.

    The classes are those that occur among the labels or the predictions.
    """
    return 100.0 * float(_sklearn().f1_score(labels, predictions, average="macro", zero_division=0))


def balanced_accuracy(
    labels: "Labels", predictions: "Labels", probabilities: "Probabilities"
) -> float:
    """The mean over the classes of the labels of TP / (TP + FN), in per cent."""
    import numpy as np

    # The same as sklearn's balanced_accuracy_score, which warns if another class is predicted.
    classes = np.unique(labels)
    recall = _sklearn().recall_score(labels, predictions, labels=classes, average="macro")
    return 100.0 * float(recall)


def roc_auc(labels: "Labels", predictions: "Labels", probabilities: "Probabilities") -> float:
    """The area under the ROC curve, in per cent: 50 for scores that know nothing.

    P(p_v > p_u) + P(p_v = p_u) / 2 for a random node v of a class and a random u outside it; with
    more than two classes the mean over those that occur (one against the rest).  NaN where only one
    class occurs.
    """
    import numpy as np

    if probabilities is None:
        raise ValueError("needs the probabilities")
    classes = np.unique(labels)
    if classes.size < 2:
        return float("nan")
    if probabilities.shape[1] == 2:
        classes = np.array([1])
    areas = [_sklearn().roc_auc_score(labels == k, probabilities[:, k]) for k in classes]
    return 100.0 * float(np.mean(areas))


def _sklearn() -> Any:
    """scikit-learn's metrics, without joblib's warning where there is no shared memory.

    It would come from every worker, and nothing here runs in joblib's processes.
    """
    import warnings

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*joblib will operate in serial mode")
        from sklearn import metrics
    return metrics


def evaluate(
    metrics: Mapping[str, str],
    labels: Any,
    predictions: Any,
    probabilities: Any,
    test_mask: Any,
    *,
    on_failed: Callable[[InputError], None] | None = None,
) -> dict[str, float]:
    """Each metric on the test nodes; metrics maps names to import paths.

    labels, predictions, test_mask: tensors or arrays [N]; probabilities: [N, c] or None.
    on_failed: is called for a metric that fails, which is left out; without it, the error is raised
    """
    mask = _array(test_mask)
    if not mask.any():
        raise InputError("metrics", ", ".join(metrics), "need at least one test node")
    arguments = [_array(labels)[mask], _array(predictions)[mask]]
    chances = None if probabilities is None else _array(probabilities)[mask]
    check_metrics(metrics)
    found = {}
    for name, target in metrics.items():
        try:
            found[name] = _value(f"metrics.{name}", target, *arguments, chances)
        except InputError as error:
            if on_failed is None:
                raise
            on_failed(error)
    return found


def _value(setting: str, target: str, *arguments: Any) -> float:
    metric = import_target(setting, target)
    try:
        value = metric(*arguments)
    except Exception as error:
        reason = error_line(error)
        raise InputError(setting, target, f"failed with {reason}") from error
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputError(setting, target, f"must return a number, not {value!r}")
    return float(value)


def metric_sources(metrics: Mapping[str, str]) -> dict[str, str]:
    """Import path and source digest of every metric that is not the default of its name."""
    return {
        name: f"{target} {target_digest(target)}".rstrip()
        for name, target in metrics.items()
        if target != (DEFAULT_METRICS | OTHER_METRICS).get(name)
    }


def recorded_source(row: Mapping[str, str], metric: str) -> str:
    """The source of a metric when a row was computed; empty for the default of its name."""
    return str(_options(row["options"]).get(f"metrics.{metric}", ""))


@lru_cache(maxsize=1024)  # asked for every row, and the rows of a configuration have one text
def _options(text: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(text or "{}")
    return found


def needs_probabilities(metrics: Mapping[str, str]) -> bool:
    """Whether a metric may look at the probabilities: any but those that come with lpgnn."""
    return any(target not in DEFAULT_METRICS.values() for target in metrics.values())


def _array(values: Any) -> "NDArray[Any]":
    import numpy as np

    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
