import math
from typing import Any

import numpy as np
import pytest
import torch

from lpgnn.config import Settings
from lpgnn.errors import InputError
from lpgnn.rows import (
    DEFAULT_METRICS,
    OTHER_METRICS,
    check_metrics,
    evaluate,
    metric_sources,
    recorded_source,
)
from lpgnn.rows.metrics import (
    accuracy,
    balanced_accuracy,
    macro_f1,
    needs_probabilities,
    roc_auc,
)

# Classes 0, 1, 2 of 3, 2, 1 nodes:  hits 2, 1, 0.
LABELS = np.array([0, 0, 0, 1, 1, 2])
PREDICTIONS = np.array([0, 0, 1, 1, 0, 1])


def test_hand_computed_values() -> None:
    assert accuracy(LABELS, PREDICTIONS, None) == 50.0
    # TP, FP, FN: class 0: 2, 1, 1; class 1: 1, 2, 1; class 2: 0, 0, 1.
    expected = 100 * (4 / 6 + 2 / 5 + 0) / 3
    assert macro_f1(LABELS, PREDICTIONS, None) == pytest.approx(expected, rel=1e-14)
    expected = 100 * (2 / 3 + 1 / 2 + 0) / 3
    assert balanced_accuracy(LABELS, PREDICTIONS, None) == pytest.approx(expected, rel=1e-14)


def area_by_pairs(positive: list[float], negative: list[float]) -> float:
    """P(p_v > p_u) + P(p_v = p_u) / 2 over all pairs."""
    wins = [(p > q) + 0.5 * (p == q) for p in positive for q in negative]
    return 100 * sum(wins) / len(wins)


def test_roc_auc_by_hand() -> None:
    labels = np.array([0, 0, 1, 1, 1])
    p = np.array([0.1, 0.6, 0.6, 0.9, 0.2])
    two = np.stack([1 - p, p], 1)
    # Pairs: 0.6 beats 0.1 and ties 0.6; 0.9 beats both; 0.2 beats 0.1: 4.5 of 6.
    assert roc_auc(labels, labels, two) == pytest.approx(75.0)
    assert roc_auc(labels, labels, two) == pytest.approx(area_by_pairs([0.6, 0.9, 0.2], [0.1, 0.6]))
    assert roc_auc(labels, labels, np.full((5, 2), 0.5)) == 50.0
    assert math.isnan(roc_auc(np.ones(3, int), np.ones(3, int), two[:3]))
    with pytest.raises(InputError, match=r"metrics\.roc_auc=.*needs the probabilities"):
        evaluate(OTHER_METRICS, labels, labels, None, labels >= 0)


def test_roc_auc_of_more_classes_is_the_mean_over_those_that_occur() -> None:
    generator = np.random.default_rng(0)
    p = generator.dirichlet(np.ones(4), size=30).round(2)
    labels = generator.integers(0, 3, 30)  # the fourth class is absent
    each = [area_by_pairs(p[labels == k, k].tolist(), p[labels != k, k].tolist()) for k in range(3)]
    assert roc_auc(labels, labels, p) == pytest.approx(sum(each) / 3)


def test_roc_auc_is_known_by_name_and_recorded_where_asked_for() -> None:
    assert needs_probabilities({**DEFAULT_METRICS, **OTHER_METRICS})
    assert metric_sources({**DEFAULT_METRICS, **OTHER_METRICS}) == {}
    settings = Settings(metric="roc_auc")
    assert settings.metrics == {**DEFAULT_METRICS, **OTHER_METRICS}
    assert Settings().metrics == DEFAULT_METRICS
    assert settings.resolve().identity == Settings().resolve().identity


def test_classes_that_are_predicted_but_absent() -> None:
    labels, predictions = np.array([0, 0, 1, 1]), np.array([0, 0, 1, 5])
    assert accuracy(labels, predictions, None) == 75.0
    # F1: class 0: 1, class 1: 2 / 3, class 5: 0.
    assert macro_f1(labels, predictions, None) == pytest.approx(100 * (1 + 2 / 3 + 0) / 3)
    assert balanced_accuracy(labels, predictions, None) == 75.0  # of classes 0 and 1


def test_one_class_only() -> None:
    ones = np.ones(3, dtype=int)
    for metric in (accuracy, macro_f1, balanced_accuracy):
        assert metric(ones, ones, None) == 100.0
        assert metric(ones, 0 * ones, None) == 0.0


def test_accuracy_is_what_it_was_to_the_last_bit() -> None:
    """Committed rows were computed with torch's mean in double precision."""
    generator = torch.Generator().manual_seed(0)
    for number in (*range(1, 300), 677, 4930, 5618, 22470):
        labels = torch.randint(3, (number,), generator=generator)
        predictions = torch.randint(3, (number,), generator=generator)
        before = 100.0 * float((predictions == labels).double().mean())
        assert accuracy(labels.numpy(), predictions.numpy(), None) == before


def test_evaluation_looks_at_test_nodes_only() -> None:
    mask = torch.tensor([True, True, False, True, False, False])
    labels, predictions = torch.tensor(LABELS), torch.tensor(PREDICTIONS)
    found = evaluate(DEFAULT_METRICS, labels, predictions, None, mask)
    assert found == {"acc": 100.0, "macro_f1": 100.0, "balanced_acc": 100.0}
    labels[~mask] = 9
    predictions[~mask] = 7
    assert evaluate(DEFAULT_METRICS, labels, predictions, None, mask) == found
    labels[0] = 1
    assert evaluate(DEFAULT_METRICS, labels, predictions, None, mask)["acc"] == pytest.approx(
        200 / 3
    )


def test_no_test_node() -> None:
    with pytest.raises(InputError, match="at least one test node"):
        evaluate(DEFAULT_METRICS, LABELS, PREDICTIONS, None, LABELS > 5)


def confidence(labels: Any, predictions: Any, probabilities: Any) -> Any:
    assert isinstance(labels, np.ndarray)
    assert isinstance(predictions, np.ndarray)
    return probabilities[np.arange(len(labels)), labels].mean()  # a numpy float32


def raising(labels: Any, predictions: Any, probabilities: Any) -> float:
    raise KeyError("two\nlines")


def a_word(labels: Any, predictions: Any, probabilities: Any) -> str:
    return "good"


def an_array(labels: Any, predictions: Any, probabilities: Any) -> Any:
    return labels


def a_truth(labels: Any, predictions: Any, probabilities: Any) -> bool:
    return True


def undefined(labels: Any, predictions: Any, probabilities: Any) -> float:
    return math.nan


confidence.needs_probabilities = True  # type: ignore[attr-defined]


def test_an_own_metric_with_probabilities() -> None:
    probabilities = torch.tensor([[0.25, 0.75], [0.5, 0.5], [1.0, 0.0]])
    labels, mask = torch.tensor([1, 0, 1]), torch.tensor([True, True, False])
    own = {"sure": f"{__name__}.confidence"}
    assert evaluate(own, labels, labels, probabilities, mask) == {"sure": 0.625}
    assert needs_probabilities(own)
    assert not needs_probabilities(DEFAULT_METRICS)


@pytest.mark.parametrize(
    ("name", "target", "message"),
    [
        ("mine", "raising", "failed with KeyError: 'two\\\\nlines'"),
        ("mine", "a_word", "must return a number, not 'good'"),
        ("mine", "an_array", "must return a number"),
        ("mine", "a_truth", "must return a number, not True"),
        ("mine", "missing", "importable"),
        ("a/b", "undefined", "name has letters"),
        ("a,b", "undefined", "name has letters"),
    ],
)
def test_bad_metrics(name: str, target: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        evaluate({name: f"{__name__}.{target}"}, LABELS, PREDICTIONS, None, LABELS >= 0)
    assert caught.value.setting == f"metrics.{name}"
    assert "\n" not in str(caught.value)


def test_a_metric_may_be_undefined() -> None:
    own = {"mine": f"{__name__}.undefined"}
    assert math.isnan(evaluate(own, LABELS, PREDICTIONS, None, LABELS >= 0)["mine"])


def test_a_metric_is_recorded_unless_it_is_the_default_of_its_name() -> None:
    assert metric_sources(DEFAULT_METRICS) == {}
    other = {"acc": "lpgnn.rows.metrics.macro_f1", "best": "lpgnn.rows.metrics.accuracy"}
    assert metric_sources(other) == other  # lpgnn's own have no digest
    row = {"options": '{"metrics.best": "lpgnn.rows.metrics.accuracy"}'}
    assert recorded_source(row, "best") == "lpgnn.rows.metrics.accuracy"
    assert recorded_source(row, "acc") == ""
    assert recorded_source({"options": ""}, "acc") == ""


def test_names_and_paths_are_checked_before_the_work() -> None:
    check_metrics(DEFAULT_METRICS)
    with pytest.raises(InputError, match=r"metrics.a-b=x.y: a metric's name has letters"):
        check_metrics({"a-b": "x.y"})
    with pytest.raises(InputError, match=r"metrics.mine=no.such: must be an importable"):
        check_metrics({"mine": "no.such"})
