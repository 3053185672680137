import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from lpgnn.errors import InputError
from lpgnn.learners import (
    RULES,
    ForwardCorrection,
    Outcome,
    Residual,
    Run,
    Server,
)
from lpgnn.learners.label_propagation import Labels, label_scores
from lpgnn.learners.residual import smoothed, with_reports
from lpgnn.privacy import Collected, RandomizedResponse
from lpgnn.propagation import KProp
from propagation.graphs import NUMBA, dense_kprop, kprop_operator, seeded

from .block_graph import (
    C,
    N,
    block_graph,
    block_split,
    both_kernels,
    collected,
    fit,
    label_reports,
    run_of,
    server_of,
)


def some_probabilities(seed: int = 0) -> Tensor:
    return torch.randn(C, N, generator=seeded(seed)).softmax(0)


def test_a_report_updates_the_probabilities_by_bayes_rule() -> None:
    # eps = ln 4 with three classes keeps with 2/3 and sends each of the others with 1/6.
    own = collected(y_eps=math.log(4))
    response = RandomizedResponse(own.y_eps, C)
    assert (response.keep_probability(), response.flip_probability()) == pytest.approx(
        (2 / 3, 1 / 6)
    )
    p = torch.tensor([0.5, 0.3, 0.2])[:, None].expand(C, N)
    updated = with_reports(p, own.labels)
    node = int((own.labels.classes == 1).nonzero()[0, 0])
    # 0.5 / 6, 0.3 * 2 / 3, 0.2 / 6 in proportion: 5, 12, 2.
    torch.testing.assert_close(updated[:, node], torch.tensor([5.0, 12.0, 2.0]) / 19)
    unlabelled = own.labels.classes < 0
    assert bool(unlabelled.any())
    assert torch.equal(updated[:, unlabelled], p[:, unlabelled])


def test_a_clean_label_is_taken_as_it_is_unless_the_model_excludes_it() -> None:
    own = collected(y_eps=math.inf)
    p, classes = some_probabilities(), own.labels.classes
    known = classes >= 0
    assert torch.equal(with_reports(p, own.labels)[:, known].argmax(0), classes[known])
    node = int(known.nonzero()[0, 0])
    impossible = p.clone()
    impossible[:, node] = torch.tensor([0.5, 0.3, 0.2]).roll(1)
    impossible[classes[node], node] = 0.0
    updated = with_reports(impossible, own.labels)
    assert torch.equal(updated[:, node], impossible[:, node])
    assert bool(updated.isfinite().all())


def finished(
    own: Collected, smooth: int, kernels: str = "numba", labels: Labels = "train+val"
) -> Tensor:
    """The last word on some probabilities.  -> [c, N]"""
    learner = Residual(smooth=smooth, labels=labels)
    return learner.finish(some_probabilities(), run_of(0, own), server_of(own, kernels))


@both_kernels
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_smoothing_equals_the_dense_formula(steps: int, kernels: str) -> None:
    own = collected()
    out = finished(own, steps, kernels)
    p = with_reports(some_probabilities(), own.labels).double().t()  # [N, c]
    lazy = (torch.eye(N, dtype=torch.float64) + dense_kprop(own.topology)) / 2
    expected = torch.linalg.matrix_power(lazy, steps) @ p
    torch.testing.assert_close(out.double().t(), expected, rtol=1e-5, atol=1e-6)
    if steps:
        assert not torch.allclose(out.double().t(), p, atol=1e-2)


def test_smoothing_by_hand() -> None:
    """One lazy step over the edge 0-1: the mean of the two."""
    topology = block_graph().topology.from_edges(2, torch.tensor([[0], [1]]))
    operator = kprop_operator(topology, "gcn", NUMBA)
    p = torch.tensor([[1.0, 0.5], [0.0, 0.5]])
    torch.testing.assert_close(smoothed(p, operator, 1), torch.tensor([[0.75] * 2, [0.25] * 2]))
    assert smoothed(p, operator, 0) is p


@pytest.mark.parametrize(("labels", "same"), [("train", True), ("train+val", False)])
def test_validation_reports_are_learnt_from_only_if_asked(labels: Labels, same: bool) -> None:
    own = collected(y_eps=2.0)
    changed = with_label_changed(own, own.val_mask)
    first, second = (finished(one, 4, labels=labels) for one in (own, changed))
    assert torch.equal(first, second) == same


def test_nothing_but_what_the_server_has_is_read() -> None:
    """Masks and reports of features play no part, the private labels do."""
    own = collected()
    before = finished(own, 4)
    assert torch.equal(finished(collected(x_eps=0.1), 4), before)
    assert not torch.equal(finished(with_label_changed(own), 4), before)


def with_label_changed(own: Collected, among: Tensor | None = None) -> Collected:
    sent = own.labels.classes.clone()
    node = int(((sent >= 0) if among is None else among).nonzero()[0, 0])
    sent[node] = (sent[node] + 1) % C
    return dataclasses.replace(own, labels=label_reports(sent, own.y_eps, C))


@dataclass(frozen=True)
class OnScores(ForwardCorrection):
    """Forward correction on top of the propagated labels: the residual learner, spelled out."""

    def prior(self, runs: Sequence[Run], server: Server) -> Tensor:
        scores = (
            label_scores(r.collected, server.graph, "gcn", "lazy", "stack", "train+val")
            for r in runs
        )
        return torch.stack([own.scores for own in scores])


NODE = KProp(steps=2, conditioning="node")


def trained(learner: ForwardCorrection, runs: Sequence[Run], kernels: str) -> list[Outcome]:
    server = server_of(runs[0].collected, kernels, filter=NODE, keep_probabilities=True)
    return learner.fit(runs, server)


@both_kernels
def test_the_network_trains_on_top_of_the_propagated_labels(kernels: str) -> None:
    """Each run builds on its own; smoothing changes predictions and nothing before them."""
    runs = [run_of(r, collected(r, y_eps=2.0)) for r in range(3)]
    spelled_out = trained(OnScores(), runs, kernels)
    rough = trained(Residual(smooth=0, labels="train+val"), runs, kernels)
    smooth = trained(Residual(labels="train+val"), runs, kernels)
    moved = 0
    for run, plain, zero, four in zip(runs, spelled_out, rough, smooth, strict=True):
        for name, curve in plain.history.items():
            assert torch.equal(zero.history[name], curve)
            assert torch.equal(four.history[name], curve)
        for rule in RULES:
            a, b, c = (outcome.selected[rule] for outcome in (plain, zero, four))
            assert a.epoch == b.epoch == c.epoch
            assert a.weights
            for name, weight in a.weights.items():
                assert torch.equal(b.weights[name], weight)
                assert torch.equal(c.weights[name], weight)
            assert torch.equal(a.predictions, b.predictions)
            assert a.probabilities is not None
            assert c.probabilities is not None
            updated = with_reports(a.probabilities, run.collected.labels)
            operator = kprop_operator(run.collected.topology, "gcn", NUMBA)
            # A step over the graph keeps no sum: what is kept are probabilities again.
            expected = smoothed(updated, operator, 4)
            torch.testing.assert_close(c.probabilities, expected / expected.sum(0))
            torch.testing.assert_close(c.probabilities.sum(0), torch.ones(N))
            assert torch.equal(c.probabilities.argmax(0), c.predictions.long())
            moved += int((c.predictions != a.predictions).sum())
    assert moved > 0


@both_kernels
def test_smoothed_predictions_do_not_depend_on_what_is_kept(kernels: str) -> None:
    runs = [run_of(r, collected(r, y_eps=2.0)) for r in range(2)]
    kept = trained(Residual(), runs, kernels)
    plain = fit(Residual(), runs, kernels, filter=NODE)
    for one, other in zip(kept, plain, strict=True):
        for rule in RULES:
            assert torch.equal(one.selected[rule].predictions, other.selected[rule].predictions)
            assert other.selected[rule].probabilities is None


@both_kernels
def test_a_run_alone_is_the_run_among_others(kernels: str) -> None:
    runs = [run_of(r, collected(r, y_eps=1.0 + r)) for r in range(3)]
    together = trained(Residual(), runs, kernels)
    (alone,) = trained(Residual(), runs[1:2], kernels)
    for name, curve in alone.history.items():
        torch.testing.assert_close(together[1].history[name], curve, rtol=1e-4, atol=1e-5)


@both_kernels
def test_every_option_matters(kernels: str) -> None:
    runs = [run_of(0, collected(0, y_eps=3.0))]
    (first,) = trained(Residual(), runs, kernels)
    assert first.selected["paper"].probabilities is not None
    for other in (
        Residual(walk="plain"),
        Residual(combine="one"),
        Residual(smooth=2),
        Residual(aggregator="mean"),
        Residual(labels="train"),
        Residual(refit=True),
    ):
        (second,) = trained(other, runs, kernels)
        found = second.selected["paper"].probabilities
        assert found is not None
        assert not torch.equal(first.selected["paper"].probabilities, found), other


@both_kernels
def test_it_learns(kernels: str) -> None:
    """Clean labels and features: a third would be chance."""
    run = run_of(0, collected(0, None, y_eps=math.inf), dropout=0.0)
    (outcome,) = fit(Residual(), [run], kernels, max_epochs=30)
    agrees = outcome.selected["paper"].predictions.long() == block_graph().labels
    assert float(agrees[block_split().test].float().mean()) > 0.8


@pytest.mark.parametrize(
    ("setting", "options"),
    [
        ("walk", {"walk": "random"}),
        ("combine", {"combine": "all"}),
        ("aggregator", {"aggregator": "sum"}),
        ("labels", {"labels": "val"}),
        ("smooth", {"smooth": -1}),
        ("smooth", {"smooth": 1.5}),
        ("smooth", {"smooth": True}),
    ],
)
def test_bad_options_are_named(setting: str, options: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        Residual(**options)
    assert caught.value.setting == setting
