"""The losses of Drop, forward correction and cross entropy on dense matrices."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lpgnn.data.graph import Topology
from lpgnn.errors import InputError
from lpgnn.learners import CrossEntropy, Drop, ForwardCorrection, LabelBatch, NetworkLearner
from lpgnn.learners.batch import FLOOR
from lpgnn.learners.drop import DenoisedBatch, votes
from lpgnn.privacy import (
    Collected,
    LabelMechanism,
    LabelReports,
    LaplaceOneHot,
    RandomizedResponse,
    SubsetSelection,
)
from propagation.graphs import dense_kprop, path_and_isolated, random_topology, seeded

from .block_graph import both_kernels, label_reports, run_of, server_of

N, C = 30, 4

CASES: list[NetworkLearner] = [
    Drop(steps=1),
    Drop(steps=2),
    Drop(steps=5),
    Drop(steps=16),
    Drop(steps=0),
    ForwardCorrection(),
    CrossEntropy(),
]
every_case = pytest.mark.parametrize("learner", CASES, ids=repr)


def server_side(
    labels: Tensor,
    train: Tensor,
    val: Tensor,
    *,
    y_eps: float = 1.0,
    num_classes: int = C,
    topology: Topology | None = None,
    reports: LabelReports | None = None,
) -> Collected:
    return Collected(
        topology=topology or random_topology(N),
        features=None,
        labels=reports or label_reports(labels, y_eps, num_classes),
        train_mask=train,
        val_mask=val,
        x_eps=math.inf,
        y_eps=y_eps,
        parameters={},
    )


def random_run(run: int, y_eps: float = 1.0, num_classes: int = C) -> Collected:
    """Half of the nodes for training, a quarter for validation, one run's own noisy labels."""
    part = torch.randperm(N, generator=seeded(run)) % 4
    labels = torch.randint(num_classes, (N,), generator=seeded(50 + run))
    labels[part == 3] = -1
    return server_side(labels, part < 2, part == 2, y_eps=y_eps, num_classes=num_classes)


def logits_of(runs: int, num_classes: int = C) -> Tensor:
    drawn = 2 * torch.randn(runs, num_classes, N, generator=seeded(9))
    return drawn.requires_grad_()


def batch_of(
    collected: list[Collected], learner: NetworkLearner, kernels: str = "numba"
) -> LabelBatch:
    runs = [run_of(run, own) for run, own in enumerate(collected)]
    return learner.prepare(runs, server_of(collected[0], kernels))


def denoised(collected: Collected, steps: int) -> Tensor:
    """What Drop learns from.  -> [c, N]"""
    batch = batch_of([collected], Drop(steps=steps))
    assert isinstance(batch, DenoisedBatch)
    return batch.target[0]


def log_plain_noisy(logits: Tensor, run: Collected, learner: NetworkLearner) -> Tensor:
    """log(p(y'|x) + FLOOR) with the transition matrix multiplied out.  [N, c] -> [N, c]"""
    p = logits.double().softmax(1)
    if not isinstance(learner, CrossEntropy):
        keep = 1 / (1 + (run.num_classes - 1) * math.exp(-run.y_eps))
        flip = math.exp(-run.y_eps) * keep
        transition = torch.full((run.num_classes, run.num_classes), flip, dtype=torch.float64)
        p = p @ transition.fill_diagonal_(keep)
    return (p + FLOOR).log()


def plain_loss(logits: Tensor, run: Collected, learner: NetworkLearner) -> Tensor:
    """Algorithm 3 lines 8-13 for one run, on dense matrices in double precision.

    logits: [N, c]
    """
    log_p = log_plain_noisy(logits, run, learner)
    train, sent = run.train_mask, run.labels.classes
    steps = learner.steps if isinstance(learner, Drop) else 0
    if not steps:
        return F.nll_loss(log_p[train], sent[train])
    p_k: Tensor = torch.linalg.matrix_power(dense_kprop(run.topology), steps)
    one_hot = torch.zeros(N, run.num_classes, dtype=torch.float64)
    for node in range(N):
        if sent[node] >= 0:
            one_hot[node, sent[node]] = 1
    received = p_k @ one_hot
    reached = train & (received.sum(1) > 0)
    # Eq. p_yt; F.cross_entropy takes the logarithm of the softmax itself.
    return F.cross_entropy((p_k @ log_p.exp())[reached], received.argmax(1)[reached])


@pytest.mark.parametrize("y_eps", [0.1, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("num_classes", [2, 4, 7])
def test_noisy_probabilities_equal_the_transition_matrix(y_eps: float, num_classes: int) -> None:
    """p(y'|x) of Eq. p_yp, as Drop propagates it and as forward correction reads it."""
    own = random_run(0, y_eps, num_classes)
    batch = batch_of([own], Drop(steps=2))
    logits = logits_of(1, num_classes).detach()
    transition = RandomizedResponse(y_eps, num_classes).transition()
    expected = torch.einsum("yn,yz->zn", logits[0].double().softmax(0), transition)
    noisy = batch.noisy_posterior(logits)
    torch.testing.assert_close(noisy[0].double(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(noisy.sum(1), torch.ones(1, N))
    nodes = (own.labels.classes >= 0).nonzero().flatten()
    at_report = expected[own.labels.classes[nodes], nodes]
    surprise = batch.surprise(logits)[0, nodes].double()
    torch.testing.assert_close(surprise, -at_report.log(), rtol=1e-5, atol=1e-5)


def test_noisy_probabilities_by_hand() -> None:
    """Two classes, e^eps = 3: keep 3/4, flip 1/4; p = (0.9, 0.1) becomes (0.7, 0.3)."""
    own = random_run(0, math.log(3), 2)
    logits = torch.tensor([0.9, 0.1]).log().view(1, 2, 1).expand(1, 2, N)
    forward, raw = batch_of([own], ForwardCorrection()), batch_of([own], CrossEntropy())
    for node in (own.labels.classes >= 0).nonzero().flatten().tolist():
        sent = int(own.labels.classes[node])
        assert float(forward.surprise(logits)[0, node]) == pytest.approx(
            -math.log([0.7, 0.3][sent])
        )
        assert float(raw.surprise(logits)[0, node]) == pytest.approx(-math.log([0.9, 0.1][sent]))
    expected = torch.tensor([0.7, 0.3]).view(1, 2, 1).expand(1, 2, N)
    torch.testing.assert_close(forward.noisy_posterior(logits), expected)


@both_kernels
@every_case
def test_training_losses_equal_a_plain_computation(learner: NetworkLearner, kernels: str) -> None:
    """Values and gradients, for runs with different splits, labels and budgets."""
    collected = [random_run(run, y_eps) for run, y_eps in enumerate([0.5, 1.0, 3.0, 1.0])]
    batch = batch_of(collected, learner, kernels)
    logits = logits_of(4)
    losses = learner.loss(logits, batch)
    assert losses.shape == (4,)
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    assert len({float(loss) for loss in losses.detach()}) == 4
    for run, own in enumerate(collected):
        rows = logits[run].detach().t().double().requires_grad_()  # [N, c]
        expected = plain_loss(rows, own, learner)
        assert float(losses[run].detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
        (wanted,) = torch.autograd.grad(expected, rows)
        assert float(wanted.abs().max()) > 1e-4
        torch.testing.assert_close(gradient[run].t().double(), wanted, rtol=1e-4, atol=1e-7)


def test_forward_correction_is_drop_without_label_propagation() -> None:
    collected = [random_run(run) for run in range(2)]
    logits = logits_of(2)

    def loss(learner: NetworkLearner) -> Tensor:
        return learner.loss(logits, batch_of(collected, learner))

    assert torch.equal(loss(ForwardCorrection()), loss(Drop(steps=0)))
    assert not torch.allclose(loss(ForwardCorrection()), loss(Drop(steps=2)))


def test_the_validation_loss_does_not_depend_on_the_label_steps() -> None:
    """It is the forward correction loss on the validation nodes."""
    collected = [random_run(run) for run in range(3)]
    logits = logits_of(3).detach()
    learners = [*(Drop(steps=steps) for steps in (0, 1, 2, 16)), ForwardCorrection()]
    losses = [own.validation_loss(logits, batch_of(collected, own)) for own in learners]
    assert all(torch.equal(loss, losses[0]) for loss in losses)
    for run, own in enumerate(collected):
        transition = RandomizedResponse(own.y_eps, C).transition().float()
        noisy = (logits[run].t().softmax(1) @ transition).log()
        expected = F.nll_loss(noisy[own.val_mask], own.labels.classes[own.val_mask])
        torch.testing.assert_close(losses[0][run], expected)


def test_the_cross_entropy_baseline_validates_on_noisy_labels_as_they_are() -> None:
    own, learner = random_run(0), CrossEntropy()
    logits = logits_of(1).detach()
    expected = F.cross_entropy(logits[0].t()[own.val_mask], own.labels.classes[own.val_mask])
    found = learner.validation_loss(logits, batch_of([own], learner))
    torch.testing.assert_close(found[0], expected)


def test_targets_by_hand() -> None:
    """Path 0-1-2 and isolated 3: 0 says class 2 and 3 class 0 (both train), 2 says 1, 1 nothing."""
    labels = torch.tensor([2, -1, 1, 0])
    train = torch.tensor([True, False, False, True])
    val = torch.tensor([False, False, True, False])
    own = server_side(labels, train, val, num_classes=3, topology=path_and_isolated())
    batch = batch_of([own], Drop(steps=1))
    assert torch.equal(batch.classes[0], labels)
    assert torch.equal(batch.train[0], train.float())
    assert torch.equal(batch.val[0], val.float())
    # Two training nodes count half each, at their own labels; one validation node counts whole.
    half_each = torch.tensor([[0, 0, 0, 0.5], [0, 0, 0, 0], [0.5, 0, 0, 0]])
    assert torch.equal(denoised(own, 0), half_each)
    assert float(batch.val_mean(torch.tensor([[1.0, 2.0, 4.0, 8.0]]))) == 4.0
    assert float(batch.train_mean(torch.tensor([[1.0, 2.0, 4.0, 8.0]]))) == 4.5
    # After one step only node 1 holds any label, and it does not train: no node takes part.
    assert torch.equal(denoised(own, 1), torch.zeros(3, 4))


def test_denoised_labels_are_the_majority_of_the_neighbourhood() -> None:
    """Hub 0 with leaves of classes 1, 1, 0: one step says 1 for the hub, and 0 for its leaves."""
    topology = Topology.from_edges(4, torch.tensor([[0, 0, 0], [1, 2, 3]]))
    mask = torch.ones(4, dtype=torch.bool)
    own = server_side(torch.tensor([0, 1, 1, 0]), mask, ~mask, num_classes=2, topology=topology)
    expected = torch.tensor([[0.0, 1, 1, 1], [1, 0, 0, 0]]) / 4
    assert torch.equal(denoised(own, 1), expected)


def test_nodes_that_no_label_reaches_take_no_part() -> None:
    """The isolated last node trains: with K_y = 0 its logits matter, with K_y > 0 they do not."""
    labels = torch.randint(C, (N,), generator=seeded(1))
    mask = torch.ones(N, dtype=torch.bool)
    mask[3] = False
    own = server_side(labels, mask, ~mask)
    logits = logits_of(1)
    for steps, matters in ((1, False), (2, False), (0, True)):
        learner: NetworkLearner = Drop(steps=steps)
        loss = learner.loss(logits, batch_of([own], learner))
        (gradient,) = torch.autograd.grad(loss.sum(), logits)
        assert bool(gradient[0, :, -1].any()) == matters
        # The last two nodes have no neighbour but themselves, and node 3 does not train.
        informed = N - 1 if matters else N - 3
        assert int((denoised(own, steps) != 0).sum()) == informed
        assert float(denoised(own, steps).sum()) == pytest.approx(1)


def test_a_class_without_a_single_label() -> None:
    """Class 1 of 4 and the last class are absent everywhere: shapes stay, losses are finite."""
    labels = torch.where(torch.rand(N, generator=seeded(1)) < 0.5, 0, 2)
    mask = torch.arange(N) % 3 != 0
    own = server_side(labels, mask, ~mask)
    logits = logits_of(1)
    for learner in CASES:
        loss = learner.loss(logits, batch_of([own], learner))
        rows = logits[0].detach().t().double()
        expected = float(plain_loss(rows, own, learner))
        assert float(loss.detach()) == pytest.approx(expected, rel=1e-5)


@every_case
@pytest.mark.parametrize("y_eps", [math.inf, 100.0, 60.0, 40.0, 15.0])
def test_sure_models_break_neither_loss_nor_gradient(learner: NetworkLearner, y_eps: float) -> None:
    """Large budgets: T is all but the identity.  Logits hundreds apart make probabilities of 0 in
    float32, on nodes that count and on nodes that do not.
    """
    own = random_run(0, y_eps=y_eps)
    batch = batch_of([own], learner)
    for scale in (1.0, 10.0, 300.0):
        logits = (scale * torch.randn(1, C, N, generator=seeded(9))).requires_grad_()
        rows = logits[0].detach().t().double().requires_grad_()
        expected = plain_loss(rows, own, learner)
        (wanted,) = torch.autograd.grad(expected, rows)
        loss = learner.loss(logits, batch)[0]
        (gradient,) = torch.autograd.grad(loss, logits)
        assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-3)
        torch.testing.assert_close(gradient[0].t().double(), wanted, rtol=1e-3, atol=1e-4)
        noisy = log_plain_noisy(rows.detach(), own, learner)
        on_val = F.nll_loss(noisy[own.val_mask], own.labels.classes[own.val_mask])
        val_loss = learner.validation_loss(logits.detach(), batch)[0]
        assert float(val_loss) == pytest.approx(float(on_val), rel=1e-3)


def test_runs_with_and_without_label_noise_side_by_side() -> None:
    """Each run's own T, whatever the budgets beside it."""
    budgets = [1.0, math.inf, 0.1, 60.0]
    collected = [random_run(run, y_eps) for run, y_eps in enumerate(budgets)]
    logits = logits_of(4).detach()
    for steps in (0, 2):
        learner: NetworkLearner = Drop(steps=steps)
        batch = batch_of(collected, learner)
        losses = learner.loss(logits, batch)
        val_losses = learner.validation_loss(logits, batch)
        for run, own in enumerate(collected):
            rows = logits[run].t().double()
            expected = float(plain_loss(rows, own, learner))
            assert float(losses[run]) == pytest.approx(expected, rel=1e-5)
            alone = learner.validation_loss(logits[run : run + 1], batch_of([own], learner))
            torch.testing.assert_close(alone[0], val_losses[run])


@pytest.mark.parametrize("steps", [0, 2])
def test_noisy_labels_bound_the_loss_of_sure_models(steps: int) -> None:
    """With a finite budget nothing is surer than flip; huge logits stay harmless."""
    own = random_run(0, y_eps=1.0)
    learner: NetworkLearner = Drop(steps=steps)
    logits = (1e4 * torch.randn(1, C, N, generator=seeded(9))).requires_grad_()
    loss = learner.loss(logits, batch_of([own], learner))[0]
    (gradient,) = torch.autograd.grad(loss, logits)
    assert bool(gradient.isfinite().all())
    flip = RandomizedResponse(1.0, C).flip_probability()
    assert 0 < float(loss.detach()) < (-math.log(flip) if steps == 0 else 10)


def test_label_steps_that_are_still_open_are_refused() -> None:
    with pytest.raises(InputError, match=r"learner\.steps=null: must be set"):
        batch_of([random_run(0)], Drop())


@pytest.mark.parametrize(
    "mechanism", [LaplaceOneHot(), SubsetSelection(subset_size=2)], ids=lambda m: m.name
)
@pytest.mark.parametrize("steps", [1, 3])
def test_drop_propagates_estimates_where_a_report_is_more_than_a_class(
    mechanism: LabelMechanism, steps: int
) -> None:
    own = random_run(2)
    labels = torch.randint(C, (N,), generator=seeded(7))
    labelled = own.train_mask | own.val_mask
    reports = mechanism.bind(1.0, C).collect(labels, labelled, generator=seeded(8))
    own = server_side(labels, own.train_mask, own.val_mask, reports=reports)
    propagation = torch.linalg.matrix_power(dense_kprop(random_topology(N)), steps)
    received = propagation @ own.labels.estimate.double().t()  # [N, c]
    found = denoised(own, steps)
    informed = own.train_mask & (received.abs().amax(1) > 0)
    assert torch.equal(found.sum(0) > 0, informed)
    assert torch.equal(found.argmax(0)[informed], received.argmax(1)[informed])
    classes = torch.zeros(N, C, dtype=torch.float64)
    classes[labelled, own.labels.classes[labelled]] = 1
    # The likeliest classes alone say something else.
    assert not torch.equal(
        received.argmax(1)[informed], (propagation @ classes).argmax(1)[informed]
    )


def test_forward_correction_of_laplace_reports_follows_alibis_bayes_targets() -> None:
    """log sum_y L(y) p(y) and the targets L p / sum L p, held fixed, have the same gradient."""
    labels = torch.randint(C, (N,), generator=seeded(5))
    mechanism = LaplaceOneHot(epsilon=1.0, num_classes=C)
    everyone = torch.ones(N, dtype=torch.bool)
    reports = mechanism.perturb(labels, generator=seeded(6))
    received = mechanism.received(reports, everyone, generator=seeded(7))
    collected = server_side(labels, everyone, ~everyone, reports=received)
    batch = LabelBatch.of([collected], torch.device("cpu"))
    logits = logits_of(1).requires_grad_()
    (found,) = torch.autograd.grad(ForwardCorrection().loss(logits, batch).sum(), logits)

    scores = (reports.abs() - (reports - 1).abs()) / mechanism.scale()  # log p(report | y)
    prior = logits[0].softmax(0).t().detach().double()
    targets = torch.softmax(scores + prior.log(), 1)  # [N, c]
    cross_entropy = -(targets.float() * logits[0].t().log_softmax(1)).sum(1).mean()
    (expected,) = torch.autograd.grad(cross_entropy, logits)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-7)
    uniform = torch.softmax(scores, 1).float()  # the test can tell another prior
    (other,) = torch.autograd.grad(-(uniform * logits[0].t().log_softmax(1)).sum(1).mean(), logits)
    assert (found - other).abs().max() > 1e-3


def test_votes_of_randomized_response_are_its_classes() -> None:
    labels = random_run(0).labels
    counted = votes(labels)
    assert torch.equal(counted.sum(0) > 0, labels.classes >= 0)
    assert torch.equal(counted.argmax(0)[labels.classes >= 0], labels.classes[labels.classes >= 0])
    assert set(counted.unique().tolist()) == {0.0, 1.0}
