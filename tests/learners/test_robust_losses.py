"""Backward correction, generalised and symmetric cross entropy, early-learning regularisation."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from lpgnn.errors import InputError
from lpgnn.learners import (
    BackwardCorrection,
    CrossEntropy,
    EarlyLearning,
    GeneralisedCrossEntropy,
    NetworkLearner,
    SymmetricCrossEntropy,
)
from lpgnn.learners.early_learning import RunningBatch
from lpgnn.privacy import Collected, RandomizedResponse
from propagation.graphs import path_and_isolated

from .block_graph import both_kernels, collected, fit, run_of
from .test_losses import C, batch_of, logits_of, random_run, server_side

CASES: list[NetworkLearner] = [
    BackwardCorrection(),
    GeneralisedCrossEntropy(),
    GeneralisedCrossEntropy(q=1),
    SymmetricCrossEntropy(),
    SymmetricCrossEntropy(alpha=2.0, beta=0.5, log_zero=-9.0),
    EarlyLearning(),
    EarlyLearning(weight=1.0, momentum=0.9),
]
every_case = pytest.mark.parametrize("learner", CASES, ids=repr)


def four_nodes(y_eps: float = math.log(3)) -> Collected:
    """Node 0 says class 0, node 1 class 1 (both train), node 2 class 1 (validates), 3 nothing."""
    train = torch.tensor([True, True, False, False])
    val = torch.tensor([False, False, True, False])
    labels = torch.tensor([0, 1, 1, -1])
    return server_side(labels, train, val, y_eps=y_eps, num_classes=2, topology=path_and_isolated())


# p(class 0 | x) of the four nodes.
P0 = torch.tensor([0.8, 0.4, 0.3, 0.5])
LOGITS = torch.stack([P0, 1 - P0]).log()[None]


def loss_of(learner: NetworkLearner, own: Collected, logits: Tensor = LOGITS) -> float:
    return float(learner.loss(logits, batch_of([own], learner))[0])


def test_backward_correction_by_hand() -> None:
    """keep 3/4, flip 1/4: T^-1 = [[1.5, -0.5], [-0.5, 1.5]]."""
    first = -1.5 * math.log(0.8) + 0.5 * math.log(0.2)
    second = 0.5 * math.log(0.4) - 1.5 * math.log(0.6)
    expected = (first + second) / 2
    assert loss_of(BackwardCorrection(), four_nodes()) == pytest.approx(expected, rel=1e-5)


def test_generalised_cross_entropy_by_hand() -> None:
    for q, expected in ((1.0, (0.2 + 0.4) / 2), (0.5, 2 - math.sqrt(0.8) - math.sqrt(0.6))):
        found = loss_of(GeneralisedCrossEntropy(q), four_nodes())
        assert found == pytest.approx(expected, rel=1e-5)


def test_symmetric_cross_entropy_by_hand() -> None:
    forward, reverse = -math.log(0.8 * 0.6) / 2, 4 * (0.2 + 0.4) / 2
    for alpha, beta in ((0.1, 1.0), (2.0, 0.0), (0.0, 0.5)):
        found = loss_of(SymmetricCrossEntropy(alpha, beta), four_nodes())
        assert found == pytest.approx(alpha * forward + beta * reverse, rel=1e-5)


def test_early_learning_by_hand() -> None:
    """Two steps: t = 0.3 p, then 0.7 t + 0.3 p' with another p'."""
    learner = EarlyLearning(weight=3.0, momentum=0.7)
    batch = batch_of([four_nodes()], learner)
    assert isinstance(batch, RunningBatch)
    entropy = -math.log(0.8 * 0.6) / 2
    held = [math.log(1 - 0.3 * (0.64 + 0.04)), math.log(1 - 0.3 * (0.16 + 0.36))]
    found = float(learner.loss(LOGITS, batch)[0])
    assert found == pytest.approx(entropy + 3 * sum(held) / 2, rel=1e-4)
    p = torch.tensor([0.5, 0.9, 0.5, 0.5])
    logits = torch.stack([p, 1 - p]).log()[None]
    entropy = -math.log(0.5 * 0.1) / 2
    first = 0.5 * (0.21 * 0.8 + 0.15) + 0.5 * (0.21 * 0.2 + 0.15)
    second = 0.9 * (0.21 * 0.4 + 0.27) + 0.1 * (0.21 * 0.6 + 0.03)
    held = [math.log(1 - first), math.log(1 - second)]
    found = float(learner.loss(logits, batch)[0])
    assert found == pytest.approx(entropy + 3 * sum(held) / 2, rel=1e-4)


def plain_loss(
    learner: NetworkLearner, logits: Tensor, own: Collected, targets: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The formulas node by node in double precision; and ELR's targets after it.  [N, c]"""
    p = logits.softmax(1)
    if isinstance(learner, EarlyLearning):
        before = torch.zeros_like(p) if targets is None else targets
        targets = learner.momentum * before + (1 - learner.momentum) * p.detach()
    inverse = torch.linalg.inv(RandomizedResponse(own.y_eps, own.num_classes).transition())
    losses = []
    for node in own.train_mask.nonzero().flatten().tolist():
        sent = int(own.labels.classes[node])
        q, log_p = p[node, sent], p[node].log()
        if isinstance(learner, BackwardCorrection):
            losses.append(-(inverse[sent] * log_p).sum())
        elif isinstance(learner, GeneralisedCrossEntropy):
            losses.append((1 - q**learner.q) / learner.q)
        elif isinstance(learner, SymmetricCrossEntropy):
            zeros = torch.full_like(p[node], learner.log_zero)
            zeros[sent] = 0
            losses.append(-learner.alpha * q.log() - learner.beta * (p[node] * zeros).sum())
        else:
            assert isinstance(learner, EarlyLearning)
            assert targets is not None
            held_back = (1 - (p[node] * targets[node]).sum()).log()
            losses.append(-q.log() + learner.weight * held_back)
    return torch.stack(losses).mean(), targets


@both_kernels
@every_case
def test_values_and_gradients_equal_the_plain_formula(
    learner: NetworkLearner, kernels: str
) -> None:
    """Over two steps, for runs with different splits, labels and budgets."""
    own_runs = [random_run(run, y_eps) for run, y_eps in enumerate([0.5, 1.0, 3.0])]
    batch = batch_of(own_runs, learner, kernels)
    targets: list[Tensor | None] = [None] * 3
    for step in range(2):
        logits = (logits_of(3).detach() / (1 + step)).requires_grad_()
        losses = learner.loss(logits, batch)
        (gradient,) = torch.autograd.grad(losses.sum(), logits)
        for run, own in enumerate(own_runs):
            rows = logits[run].detach().t().double().requires_grad_()
            expected, targets[run] = plain_loss(learner, rows, own, targets[run])
            (wanted,) = torch.autograd.grad(expected, rows)
            # ELR keeps probabilities 1e-4 away from 0 and 1.
            rel, atol = (1e-2, 3e-4) if isinstance(learner, EarlyLearning) else (1e-4, 1e-6)
            assert float(losses[run].detach()) == pytest.approx(float(expected.detach()), rel=rel)
            assert float(wanted.abs().max()) > 1e-3
            torch.testing.assert_close(gradient[run].t().double(), wanted, rtol=rel, atol=atol)


LIMITS: list[tuple[NetworkLearner, float]] = [
    (BackwardCorrection(), math.inf),  # T = I
    (BackwardCorrection(), 40.0),
    (GeneralisedCrossEntropy(q=1e-4), 1.0),
    (SymmetricCrossEntropy(alpha=1, beta=0), 1.0),
    (EarlyLearning(weight=0), 1.0),
]


@pytest.mark.parametrize(("learner", "y_eps"), LIMITS, ids=repr)
def test_each_is_cross_entropy_in_a_limit(learner: NetworkLearner, y_eps: float) -> None:
    own = random_run(0, y_eps)
    logits = logits_of(1).detach()
    found, expected = loss_of(learner, own, logits), loss_of(CrossEntropy(), own, logits)
    assert found == pytest.approx(expected, rel=1e-3)
    other = {"q": 0.7} if isinstance(learner, GeneralisedCrossEntropy) else {}
    if isinstance(learner, SymmetricCrossEntropy):
        other = {"beta": 1.0}
    if isinstance(learner, EarlyLearning):
        other = {"weight": 1.0}
    away = loss_of(learner.replace(**other), random_run(0, 0.5), logits)
    plain = loss_of(CrossEntropy(), random_run(0, 0.5), logits)
    assert abs(away - plain) > 0.05


def test_backward_correction_is_unbiased_for_the_clean_cross_entropy() -> None:
    """The mean over all reports of one node, each with its probability."""
    logits = torch.randn(1, C, 30, generator=torch.Generator().manual_seed(4))
    table = RandomizedResponse(1.0, C).transition()
    train = torch.zeros(30, dtype=torch.bool)
    train[3] = True
    for label in range(C):
        total = 0.0
        for sent in range(C):
            labels = torch.full((30,), -1)
            labels[3] = sent
            labels[4] = 0
            val = torch.zeros(30, dtype=torch.bool)
            val[4] = True
            own = server_side(labels, train, val)
            total += float(table[label, sent]) * loss_of(BackwardCorrection(), own, logits)
        clean = -float(logits[0].log_softmax(0)[label, 3])
        assert total == pytest.approx(clean, rel=1e-4)


@every_case
def test_epochs_are_chosen_by_the_likelihood_of_validation_reports(
    learner: NetworkLearner,
) -> None:
    """Node 2 says class 1 with p = (0.3, 0.7): 0.7 keep + 0.3 flip = 0.6."""
    batch = batch_of([four_nodes()], learner)
    found = float(learner.validation_loss(LOGITS, batch)[0])
    assert found == pytest.approx(-math.log(0.6), rel=1e-5)


@every_case
def test_sure_models_break_neither_loss_nor_gradient(learner: NetworkLearner) -> None:
    own = random_run(0)
    batch = batch_of([own], learner)
    for scale in (30.0, 1e4):
        logits = (scale * logits_of(1).detach()).requires_grad_()
        for _ in range(3):
            loss = learner.loss(logits, batch)
            (gradient,) = torch.autograd.grad(loss.sum(), logits)
            assert bool(loss.isfinite().all())
            assert bool(gradient.isfinite().all())


def test_running_targets_belong_to_one_training() -> None:
    """A second fit starts from none, and a refit does: the curves of both fits are one."""
    runs = [run_of(r, collected(r)) for r in range(2)]
    once, again = (fit(EarlyLearning(), runs, max_epochs=5) for _ in range(2))
    for one, other in zip(once, again, strict=True):
        for name, curve in one.history.items():
            assert torch.equal(curve, other.history[name])
    (other,) = fit(EarlyLearning(momentum=0.1), runs[:1], max_epochs=5)
    assert not torch.allclose(other.history["train_loss"], once[0].history["train_loss"])


def test_only_backward_correction_has_another_name_on_exact_labels() -> None:
    for learner in CASES:
        named = learner.canonical(labels_are_exact=True)
        exact = CrossEntropy() if isinstance(learner, BackwardCorrection) else learner
        assert named == exact
        assert learner.canonical(labels_are_exact=False) == learner
    refitted = BackwardCorrection(refit=True)
    assert refitted.canonical(labels_are_exact=True) == CrossEntropy(refit=True)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (GeneralisedCrossEntropy, {"q": 0}),
        (GeneralisedCrossEntropy, {"q": 1.5}),
        (GeneralisedCrossEntropy, {"q": math.nan}),
        (GeneralisedCrossEntropy, {"q": "0.7"}),
        (SymmetricCrossEntropy, {"alpha": -1}),
        (SymmetricCrossEntropy, {"beta": math.inf}),
        (SymmetricCrossEntropy, {"log_zero": 1}),
        (SymmetricCrossEntropy, {"beta": 0, "alpha": 0}),
        (EarlyLearning, {"weight": -0.1}),
        (EarlyLearning, {"momentum": 1.1}),
        (EarlyLearning, {"momentum": True}),
    ],
)
def test_bad_options_are_named(kind: type[NetworkLearner], options: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        kind(**options)
    assert caught.value.setting == next(iter(options))
    assert "must be" in str(caught.value)
