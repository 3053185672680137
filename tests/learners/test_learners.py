"""What all learners have in common: options, canonical forms, any label mechanism, own losses."""

import dataclasses
import math
from typing import Any

import pytest
import torch

from lpgnn.errors import InputError
from lpgnn.learners import (
    RULES,
    BackwardCorrection,
    CrossEntropy,
    Drop,
    EarlyLearning,
    ForwardCorrection,
    LabelBatch,
    LabelPropagation,
    Learner,
    NoiseGovernance,
    Outcome,
    Reconstruction,
    Residual,
    SymmetricCrossEntropy,
)
from lpgnn.learners import GeneralisedCrossEntropy as BuiltIn
from lpgnn.privacy import ExactLabels, LabelMechanism, SubsetSelection
from privacy.own_mechanisms import Skewed
from propagation.graphs import CPU, seeded

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
)
from .own_learner import GeneralisedCrossEntropy

LEARNERS: list[Learner] = [
    Drop(steps=2),
    ForwardCorrection(),
    CrossEntropy(),
    LabelPropagation(),
    Residual(),
]
SUCCESSORS: list[Learner] = [
    BackwardCorrection(),
    BuiltIn(),
    SymmetricCrossEntropy(),
    EarlyLearning(),
    Reconstruction(2, clusters=4),
    NoiseGovernance(ramp=20),
]
# Those that read more of a report than its likeliest class, and cross entropy, which copes.
READERS = [*LEARNERS, BackwardCorrection(), Reconstruction(2, clusters=4)]
every_learner = pytest.mark.parametrize(
    "learner", LEARNERS + SUCCESSORS, ids=lambda learner: learner.name
)


@pytest.mark.parametrize("exact", [False, True])
def test_one_computation_has_one_name(exact: bool) -> None:
    expected: list[tuple[Learner, Learner]] = [
        (Drop(steps=2), Drop(steps=2)),
        (Drop(), Drop()),  # still open
        (Drop(steps=0), CrossEntropy() if exact else ForwardCorrection()),
        (Drop(steps=0, aggregator="mean"), CrossEntropy() if exact else ForwardCorrection()),
        (ForwardCorrection(), CrossEntropy() if exact else ForwardCorrection()),
        (CrossEntropy(), CrossEntropy()),
        (LabelPropagation(), LabelPropagation()),
        (Residual(), Residual()),  # a kind of forward correction, but not on exact labels
    ]
    for learner, canonical in expected:
        assert learner.canonical(labels_are_exact=exact) == canonical


@pytest.mark.slow
@both_kernels
@pytest.mark.parametrize("y_eps", [1.0, math.inf])
def test_a_canonical_learner_computes_the_same(y_eps: float, kernels: str) -> None:
    run = run_of(0, collected(y_eps=y_eps))
    for learner in (Drop(steps=0), ForwardCorrection()):
        canonical = learner.canonical(labels_are_exact=y_eps == math.inf)
        (one,), (other,) = fit(learner, [run], kernels), fit(canonical, [run], kernels)
        for name, curve in one.history.items():
            assert torch.equal(other.history[name], curve)
        for rule in RULES:
            assert one.selected[rule].weights
            for name, weight in one.selected[rule].weights.items():
                assert torch.equal(other.selected[rule].weights[name], weight)
    (uncorrected,) = fit(CrossEntropy(), [run], kernels)
    same = torch.equal(one.history["train_loss"], uncorrected.history["train_loss"])
    assert same == (y_eps == math.inf)


def test_what_a_plan_counts_on() -> None:
    assert [learner.name for learner in LEARNERS] == [
        "drop",
        "forward",
        "cross_entropy",
        "label_propagation",
        "residual",
    ]
    assert [learner.uses_network for learner in LEARNERS] == [True, True, True, False, True]
    assert [learner.label_steps for learner in LEARNERS] == [2, 0, 0, 0, 0]
    assert Drop().label_steps == 0
    assert Drop.open_fields == {"steps": "y_steps"}
    assert Residual.suggests["filter.conditioning"] == "node"


@pytest.mark.parametrize(
    ("setting", "options"),
    [
        ("steps", {"steps": -1}),
        ("steps", {"steps": 1.0}),
        ("steps", {"steps": True}),
        ("steps", {"steps": "2"}),
        ("aggregator", {"aggregator": "sum"}),
    ],
)
def test_bad_options_of_drop_are_named(setting: str, options: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        Drop(**options)
    assert caught.value.setting == setting


def accuracy(outcome: Outcome, rule: str = "paper") -> float:
    agrees = outcome.selected[rule].predictions.long() == block_graph().labels
    return float(agrees[block_split().test].float().mean())


@pytest.mark.slow
@both_kernels
@pytest.mark.parametrize("learner", READERS, ids=lambda learner: learner.name)
def test_reports_that_are_no_classes_can_be_learned_from(learner: Learner, kernels: str) -> None:
    """Subsets of two of the three classes, with clean features: far above a third."""
    reports = collected(4, None, y_eps=5.0, labels=SubsetSelection(subset_size=2))
    run = run_of(4, reports, learning_rate=0.05, dropout=0.0)
    (outcome,) = fit(learner, [run], kernels, max_epochs=40)
    assert outcome.failed_epoch is None
    assert accuracy(outcome) > 0.6
    # Reports about somebody else's label are worth nothing.
    graph = block_graph()
    shuffled = graph.labels[torch.randperm(N, generator=seeded(1))]
    graph = dataclasses.replace(graph, labels=shuffled)
    reports = collected(0, None, y_eps=5.0, labels=SubsetSelection(subset_size=2), graph=graph)
    misled = run_of(0, reports, learning_rate=0.05, dropout=0.0)
    assert accuracy(fit(learner, [misled], kernels, max_epochs=40)[0]) < 0.6


@pytest.mark.slow
@both_kernels
@pytest.mark.parametrize("learner", SUCCESSORS, ids=lambda learner: learner.name)
def test_robust_ones_learn_from_mild_noise(learner: Learner, kernels: str) -> None:
    """One report in 28 is wrong."""
    run = run_of(0, collected(0, None, y_eps=4.0), learning_rate=0.05, dropout=0.0)
    (outcome,) = fit(learner, [run], kernels, max_epochs=60)
    assert outcome.failed_epoch is None
    assert accuracy(outcome) > 0.7


@both_kernels
@every_learner
def test_subsets_of_one_class_train_like_randomized_response(
    learner: Learner, kernels: str
) -> None:
    """The same reports, read by another mechanism's formulas."""
    own = collected(y_eps=2.0)
    mechanism, sent = SubsetSelection(2.0, C, subset_size=1), own.labels.classes
    one_hot = torch.nn.functional.one_hot(sent.clamp(min=0), C).float()
    labelled = sent >= 0
    likelihood, estimate = torch.ones(C, N), torch.zeros(C, N)
    likelihood[:, labelled] = mechanism.likelihood(one_hot[labelled]).float().t()
    estimate[:, labelled] = mechanism.estimate(one_hot[labelled]).float().t()
    labels = dataclasses.replace(
        own.labels, likelihood=likelihood, estimate=estimate, transition=mechanism.transition()
    )
    other = dataclasses.replace(own, labels=labels)
    (expected,) = fit(learner, [run_of(0, own)], kernels)
    (found,) = fit(learner, [run_of(0, other)], kernels)
    for name, curve in expected.history.items():
        torch.testing.assert_close(found.history[name], curve, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
@both_kernels
@every_learner
def test_mechanisms_of_all_kinds_side_by_side(learner: Learner, kernels: str) -> None:
    """A batch of three mechanisms: each run is what it is alone."""
    mechanisms: list[LabelMechanism] = [SubsetSelection(subset_size=2), Skewed(), ExactLabels()]
    runs = [run_of(r, collected(r, labels=labels)) for r, labels in enumerate(mechanisms)]
    together = fit(learner, runs, kernels)
    for run, outcome in zip(runs, together, strict=True):
        (alone,) = fit(learner, [run], kernels)
        assert outcome.failed_epoch is None
        for name, curve in alone.history.items():
            torch.testing.assert_close(outcome.history[name], curve, rtol=1e-3, atol=1e-4)


def test_an_own_loss_equals_its_formula() -> None:
    own = collected()
    batch = LabelBatch.of([own], CPU).taken_as_exact()
    logits = 2 * torch.randn(1, C, N, generator=seeded(1))
    train = own.train_mask.nonzero().flatten()
    p = logits[0].double().softmax(0)[own.labels.classes[train], train]
    for q in (0.01, 0.7, 1.0):
        found = GeneralisedCrossEntropy(q).loss(logits, batch)
        assert float(found) == pytest.approx(float((1 - p**q).mean() / q), rel=1e-4)


@both_kernels
def test_an_own_learner_trains(kernels: str) -> None:
    clean = run_of(0, collected(0, None, y_eps=math.inf), learning_rate=0.05, dropout=0.0)
    (outcome,) = fit(GeneralisedCrossEntropy(), [clean], kernels, max_epochs=40)
    losses = outcome.history["train_loss"]
    assert float(losses[-1]) < 0.5 * float(losses[0])
    assert accuracy(outcome) > 0.8

    noisy = [run_of(r, collected(r, y_eps=2.0)) for r in range(2)]
    own, plain, limit = (
        fit(learner, noisy, kernels)
        for learner in (
            GeneralisedCrossEntropy(),
            CrossEntropy(),
            GeneralisedCrossEntropy(q=1e-3),
        )
    )
    for a, b, c in zip(own, plain, limit, strict=True):
        one, other = (outcome.selected["paper"].weights["weight1"] for outcome in (a, b))
        assert not torch.allclose(one, other, atol=1e-3)
        # The validation loss is the interface's own, and so is the limit of q = 0.
        torch.testing.assert_close(
            c.history["train_loss"], b.history["train_loss"], rtol=1e-2, atol=1e-2
        )


def test_an_own_learner_is_named_by_its_class_and_has_an_identity() -> None:
    learner = GeneralisedCrossEntropy(q=1)
    assert learner.name == "GeneralisedCrossEntropy"
    assert learner.identity["options"] == {"q": 1.0}
    assert isinstance(learner.identity["options"]["q"], float)
    assert learner.identity["source"]
    assert learner.identity != GeneralisedCrossEntropy(q=0.7).identity
    with pytest.raises(InputError, match="q=0: must lie in"):
        GeneralisedCrossEntropy(q=0)


def test_given_reports_are_read_as_they_are() -> None:
    """The tests' own helper: the classes sent are the classes held."""
    sent = torch.tensor([2, -1, 0])
    assert torch.equal(label_reports(sent, 1.0, 3).classes, sent)


def test_the_simplest_name_of_a_learner_still_refits() -> None:
    assert Drop(0, refit=True).canonical(labels_are_exact=False) == ForwardCorrection(refit=True)
    assert Drop(0, refit=True).canonical(labels_are_exact=True) == CrossEntropy(refit=True)
    forward = ForwardCorrection(refit=True)
    assert forward.canonical(labels_are_exact=True) == CrossEntropy(refit=True)


class _OwnForward(ForwardCorrection):
    """A user's own: what it computes is not known."""


class _OwnDrop(Drop):
    """A user's own."""


def test_a_subclass_is_never_taken_for_another_learner() -> None:
    for exact in (False, True):
        for own in (_OwnForward(), _OwnDrop(0)):
            assert own.canonical(labels_are_exact=exact) is own
