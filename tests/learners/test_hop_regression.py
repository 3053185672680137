import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from lpgnn.describe import describe, label
from lpgnn.errors import InputError
from lpgnn.learners import HopRegression
from lpgnn.learners import hop_regression as module
from lpgnn.learners.hop_regression import regress, standardised
from lpgnn.propagation import Aggregator
from propagation.graphs import adjacency, dense_gcn, dense_mean, seeded
from propagation.mechanisms import MECHANISMS
from small_run import small

from .block_graph import (
    C,
    D,
    N,
    block_graph,
    block_split,
    both_kernels,
    collected,
    fit,
    run_of,
    server_of,
)


def one_hot(labels: Tensor, num_classes: int = C) -> Tensor:  # [L] -> [c, L] float64
    return torch.nn.functional.one_hot(labels, num_classes).double().t()


@both_kernels
@pytest.mark.parametrize("aggregator", ["gcn", "mean"])
@pytest.mark.parametrize("mechanism", ["mb", "1b", "lp"])  # few numbers, bits, a full matrix
def test_inputs_equal_the_dense_products(
    mechanism: str, aggregator: Aggregator, kernels: str
) -> None:
    own = collected(mechanism=mechanism, y_eps=1.0)
    found = HopRegression(2, aggregator).inputs(own, server_of(own, kernels).graph)

    adjacent = adjacency(own.topology)
    adjacent.fill_diagonal_(0)
    p = dense_gcn(adjacent) if aggregator == "gcn" else dense_mean(adjacent)
    assert own.features is not None
    x = own.features.rectified().double()
    known = own.labels.estimate.double().t().clone()
    known[~own.train_mask] = 0
    expected = torch.cat([x, p @ x, p @ p @ x, p @ known], dim=1)
    expected = (expected - expected.mean(0)) / expected.std(0, correction=0)
    expected = expected.nan_to_num(0.0)  # of a feature that nobody has sampled
    assert found.shape == (N, 3 * D + C + 1)
    torch.testing.assert_close(found[:, :-1], expected, rtol=1e-4, atol=1e-4)
    assert torch.equal(found[:, -1], torch.ones(N, dtype=torch.float64))


def test_no_node_reads_its_own_label() -> None:
    own, learner = collected(y_eps=math.inf), HopRegression()
    graph = server_of(own).graph
    known = learner.columns(own, graph)
    with_neighbours = own.train_mask & (adjacency(own.topology).fill_diagonal_(0).sum(1) > 0)
    for node in with_neighbours.nonzero().flatten().tolist()[:10]:
        estimate = own.labels.estimate.clone()
        estimate[:, node] = 7.0
        labels = dataclasses.replace(own.labels, estimate=estimate)
        changed = learner.columns(dataclasses.replace(own, labels=labels), graph)
        assert torch.equal(changed[node], known[node])
        assert not torch.equal(changed, known)  # its neighbours do


def test_columns_without_variance_become_zero() -> None:
    x = torch.tensor([[0.1, 1.0, 1e6], [0.1, 3.0, 1e6], [0.1, 5.0, 1e6]], dtype=torch.float64)
    x[0, 2] += 1e-3  # float32 would not have seen it
    found = standardised(x)
    assert found[:, 0].abs().max() == 0
    assert found[:, 2].abs().max() == 0
    assert found[:, 1].tolist() == pytest.approx([-(1.5**0.5), 0, 1.5**0.5])


@pytest.mark.parametrize("ridge", [0.001, 0.1, 10.0])
def test_it_is_logistic_regression(ridge: float) -> None:
    """On clean labels the minimum is scikit-learn's, with its own name for the ridge."""
    x = torch.randn(200, 5, generator=seeded(1), dtype=torch.float64)
    labels = (x[:, :C] + torch.randn(200, C, generator=seeded(2))).argmax(1)
    ones = torch.cat([x, x.new_ones(200, 1)], dim=1)
    weights = regress(ones, one_hot(labels), ridge, x.new_zeros(6, C))
    theirs = LogisticRegression(C=1 / (ridge * 200), tol=1e-10, max_iter=10_000)
    theirs.fit(x.numpy(), labels.numpy())
    expected = theirs.predict_proba(x.numpy())
    np.testing.assert_allclose((ones @ weights).softmax(1).numpy(), expected, atol=1e-4)


def test_noisy_reports_are_corrected() -> None:
    """Two kinds of nodes whose reports come as often as they should: the truth, to the digit.

    A label is kept with probability 0.75.  Of class 1 are 80 % of one kind and 30 % of the other,
    so that 0.8 * 0.75 + 0.2 * 0.25 = 65 % and 0.3 * 0.75 + 0.7 * 0.25 = 40 % report it.
    """
    kind = torch.arange(200) // 100
    sent = torch.cat([torch.arange(100) < 65, torch.arange(100) < 40]).long()
    reports = 0.25 + 0.5 * one_hot(sent, 2)  # p(report | class)
    x = torch.stack([1.0 - 2.0 * kind, torch.ones(200)], dim=1).double()
    p = (x @ regress(x, reports, 0.0, x.new_zeros(2, 2))).softmax(1)[:, 1]
    assert float(p[0]) == pytest.approx(0.8, abs=1e-5)
    assert float(p[-1]) == pytest.approx(0.3, abs=1e-5)
    taken_as_exact = (x @ regress(x, one_hot(sent, 2), 0.0, x.new_zeros(2, 2))).softmax(1)[:, 1]
    assert float(taken_as_exact[0]) == pytest.approx(0.65, abs=1e-5)


def accuracy(predictions: Tensor, repeat: int) -> float:
    agrees = predictions.long() == block_graph().labels
    return float(agrees[block_split(repeat).test].float().mean())


@both_kernels
@pytest.mark.parametrize("y_eps", [3.0, math.inf])
def test_it_learns_from_features(y_eps: float, kernels: str) -> None:
    (outcome,) = fit(HopRegression(), [run_of(0, collected(0, None, y_eps=y_eps))], kernels)
    assert outcome.failed_epoch is None
    chosen = outcome.selected["paper"]
    assert accuracy(chosen.predictions, 0) > (0.85 if y_eps == math.inf else 0.75)
    assert chosen.probabilities is not None
    torch.testing.assert_close(chosen.probabilities.sum(0), torch.ones(N))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_it_takes_every_mechanism(mechanism: str) -> None:
    runs = [run_of(r, collected(r, mechanism)) for r in range(2)]
    both = fit(HopRegression(hops=1), runs)
    for run, outcome in zip(runs, both, strict=True):
        (alone,) = fit(HopRegression(hops=1), [run])
        assert torch.equal(
            outcome.selected["paper"].predictions, alone.selected["paper"].predictions
        )
        assert outcome.failed_epoch is None


def test_the_ridge_is_weakened_while_that_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    own = collected(0, x_eps=20.0, y_eps=math.inf)
    graph, learner = server_of(own).graph, HopRegression()
    x, train, val = learner.inputs(own, graph), own.train_mask, own.val_mask
    losses, logits = {}, {}
    weights = x.new_zeros(x.shape[1], C)
    for ridge in (10.0, 1.0, 0.1, 0.01, 0.001, 0.0001):
        weights = regress(x[train], own.labels.likelihood[:, train].double(), ridge, weights)
        logits[ridge] = x @ weights
        chosen = logits[ridge].log_softmax(1)[val, own.labels.classes[val]]
        losses[ridge] = float(-chosen.mean())
    found = learner.scores(own, graph)
    values, ridges = list(losses.values()), list(losses)
    first_rise = next((i for i in range(1, 6) if values[i] >= values[i - 1]), 6)
    best = ridges[first_rise - 1]
    assert 10.0 > best > 0.0001  # the test would not see a rule that takes an end
    assert found.choice == f"ridge {best:g}"
    assert found.loss == pytest.approx(losses[best], rel=1e-6)
    torch.testing.assert_close(found.scores, logits[best].t().float())

    monkeypatch.setattr(module, "_RIDGES", (math.nan,))
    (outcome,) = fit(learner, [run_of(0, own)])
    assert outcome.failed_epoch == 1


BAD: list[dict[str, Any]] = [
    {"hops": -1},
    {"hops": 17},
    {"hops": 1.0},
    {"hops": True},
    {"hops": "2"},
    {"aggregator": "sum"},
]


@pytest.mark.parametrize("options", BAD, ids=str)
def test_bad_options_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        HopRegression(**options)
    assert caught.value.setting in options


def test_its_configuration_has_reports_and_no_network() -> None:
    own = small(learner="hop_regression", x_eps=2.0)
    assert (own.filter, own.backbone, own.max_epochs) == (None, None, 1)
    assert own.mechanism is not None
    assert own.reads_features
    assert not own.trains
    assert own.total_budget == 2.0 + own.y_eps
    unread: dict[str, Any] = {
        "backbone": "gat",
        "filter": "hoa",
        "learning_rate": 0.5,
        "weight_decay": 0.5,
        "dropout": 0.1,
        "max_epochs": 7,
        "hidden_dim": 3,
    }
    for name, value in unread.items():
        same = small(learner="hop_regression", x_eps=2.0, **{name: value})
        assert same.identity == own.identity, name
    read: dict[str, Any] = {
        "x_eps": 3.0,
        "mechanism": "lp",
        "feature": "blank",
        "y_eps": 2.5,
        "learner": HopRegression(hops=1),
    }
    for name, value in read.items():
        settings = {"learner": "hop_regression", "x_eps": 2.0, name: value}
        assert small(**settings).identity != own.identity, name
    assert "hop_regression" in describe(own)
    assert " mb x_eps=2 " in label(own)
    assert label(own).endswith("hop_regression")
