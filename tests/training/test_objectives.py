import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lpgnn.data.graph import Topology
from lpgnn.data.sparse import CsrMatrix
from lpgnn.privacy import Collected, FeatureReports, RandomizedResponse
from lpgnn.propagation import kprop_operator
from lpgnn.training.objectives import (
    FLOOR,
    Learner,
    Objective,
    Targets,
    make_objective,
    make_targets,
    masked_mean,
)
from propagation.graphs import CPU, dense_kprop, path_and_isolated, random_topology, seeded

N, C = 30, 4


def server_side(
    labels: Tensor,
    train: Tensor,
    val: Tensor,
    *,
    y_eps: float = 1.0,
    num_classes: int = C,
    topology: Topology | None = None,
) -> Collected:
    return Collected(
        topology=topology or random_topology(N),
        features=FeatureReports(CsrMatrix.from_dense(torch.zeros(labels.numel(), 1)), 1.0, 0.0),
        labels=labels,
        train_mask=train,
        val_mask=val,
        num_classes=num_classes,
        x_eps=math.inf,
        y_eps=y_eps,
        alpha=0.0,
        beta=1.0,
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


def both(collected: list[Collected], learner: Learner, steps: int) -> tuple[Objective, Targets]:
    operator = kprop_operator(collected[0].topology, "gcn", CPU)
    objective = make_objective(collected, learner, operator, steps, CPU)
    return objective, make_targets(collected, operator, steps, CPU)


def log_plain_noisy(logits: Tensor, run: Collected, learner: Learner) -> Tensor:
    """log(p(y'|x) + FLOOR) with the transition matrix multiplied out.  [N, c] -> [N, c]"""
    p = logits.double().softmax(1)
    if learner != "cross_entropy":
        keep = 1 / (1 + (run.num_classes - 1) * math.exp(-run.y_eps))
        flip = math.exp(-run.y_eps) * keep
        transition = torch.full((run.num_classes, run.num_classes), flip, dtype=torch.float64)
        p = p @ transition.fill_diagonal_(keep)
    return (p + FLOOR).log()


def plain_loss(logits: Tensor, run: Collected, learner: Learner, steps: int) -> Tensor:
    """Algorithm 3 lines 8-13 for one run, on dense matrices in double precision.

    logits: [N, c]
    """
    log_p = log_plain_noisy(logits, run, learner)
    train = run.train_mask
    if steps == 0:
        return F.nll_loss(log_p[train], run.labels[train])
    p_k: Tensor = torch.linalg.matrix_power(dense_kprop(run.topology), steps)
    one_hot = torch.zeros(N, run.num_classes, dtype=torch.float64)
    for node in range(N):
        if run.labels[node] >= 0:
            one_hot[node, run.labels[node]] = 1
    received = p_k @ one_hot
    reached = train & (received.sum(1) > 0)
    # Eq. p_yt; F.cross_entropy takes the logarithm of the softmax itself.
    return F.cross_entropy((p_k @ log_p.exp())[reached], received.argmax(1)[reached])


@pytest.mark.parametrize("y_eps", [0.1, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("num_classes", [2, 4, 7])
def test_noisy_probabilities_equal_the_transition_matrix(y_eps: float, num_classes: int) -> None:
    """log p(y'|x) of Eq. p_yp."""
    objective, _ = both([random_run(0, y_eps, num_classes)], "drop", 0)
    logits = logits_of(1, num_classes).detach()
    transition = RandomizedResponse(y_eps, num_classes).transition().double()
    expected = torch.einsum("yn,yz->zn", logits[0].double().softmax(0), transition).log()
    log_noisy = objective.log_noisy(logits)
    torch.testing.assert_close(log_noisy[0].double(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(log_noisy.exp().sum(1), torch.ones(1, N))


def test_noisy_probabilities_by_hand() -> None:
    """Two classes, e^eps = 3: keep 3/4, flip 1/4; p = (0.9, 0.1) becomes (0.7, 0.3)."""
    objective, _ = both([random_run(0, math.log(3), 2)], "forward", 0)
    logits = torch.tensor([0.9, 0.1]).log().view(1, 2, 1)
    expected = torch.tensor([0.7, 0.3]).log().view(1, 2, 1)
    torch.testing.assert_close(objective.log_noisy(logits), expected)
    raw, _ = both([random_run(0, math.log(3), 2)], "cross_entropy", 0)
    torch.testing.assert_close(raw.log_noisy(logits), torch.tensor([0.9, 0.1]).log().view(1, 2, 1))


CASES: list[tuple[Learner, int]] = [
    ("drop", 1),
    ("drop", 2),
    ("drop", 5),
    ("drop", 16),
    ("drop", 0),
    ("forward", 0),
    ("cross_entropy", 0),
]


@pytest.mark.parametrize(("learner", "steps"), CASES)
def test_training_losses_equal_a_plain_computation(learner: Learner, steps: int) -> None:
    """Values and gradients, for runs with different splits, labels and budgets."""
    collected = [random_run(run, y_eps) for run, y_eps in enumerate([0.5, 1.0, 3.0, 1.0])]
    objective, targets = both(collected, learner, steps)
    logits = logits_of(4)
    losses = objective.training_loss(logits, targets)
    assert losses.shape == (4,)
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    assert len({float(loss) for loss in losses.detach()}) == 4
    for run, own in enumerate(collected):
        rows = logits[run].detach().t().double().requires_grad_()  # [N, c]
        expected = plain_loss(rows, own, learner, steps)
        assert float(losses[run].detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
        (wanted,) = torch.autograd.grad(expected, rows)
        assert float(wanted.abs().max()) > 1e-4
        torch.testing.assert_close(gradient[run].t().double(), wanted, rtol=1e-4, atol=1e-7)


def test_forward_correction_is_drop_without_label_propagation() -> None:
    collected = [random_run(run) for run in range(2)]
    logits = logits_of(2)
    forward, targets = both(collected, "forward", 0)
    drop, drop_targets = both(collected, "drop", 0)
    assert torch.equal(
        forward.training_loss(logits, targets), drop.training_loss(logits, drop_targets)
    )
    deeper, deeper_targets = both(collected, "drop", 2)
    assert not torch.allclose(
        forward.training_loss(logits, targets), deeper.training_loss(logits, deeper_targets)
    )


def test_the_validation_loss_does_not_depend_on_the_label_steps() -> None:
    """It is the forward correction loss on the validation nodes."""
    collected = [random_run(run) for run in range(3)]
    logits = logits_of(3).detach()
    losses = []
    for steps in (0, 1, 2, 16):
        objective, targets = both(collected, "drop", steps)
        losses.append(objective.validation_loss(logits, targets))
    assert all(torch.equal(loss, losses[0]) for loss in losses)
    forward, targets = both(collected, "forward", 0)
    assert torch.equal(forward.validation_loss(logits, targets), losses[0])
    for run, own in enumerate(collected):
        transition = RandomizedResponse(own.y_eps, C).transition()
        noisy = (logits[run].t().softmax(1) @ transition).log()
        expected = F.nll_loss(noisy[own.val_mask], own.labels[own.val_mask])
        torch.testing.assert_close(losses[0][run], expected)


def test_the_cross_entropy_baseline_validates_on_noisy_labels_as_they_are() -> None:
    own = random_run(0)
    objective, targets = both([own], "cross_entropy", 0)
    logits = logits_of(1).detach()
    expected = F.cross_entropy(logits[0].t()[own.val_mask], own.labels[own.val_mask])
    torch.testing.assert_close(objective.validation_loss(logits, targets)[0], expected)


def test_targets_by_hand() -> None:
    """Path 0-1-2 and isolated 3: 0 says class 2 and 3 class 0 (both train), 2 says 1, 1 nothing."""
    labels = torch.tensor([2, -1, 1, 0])
    train = torch.tensor([True, False, False, True])
    val = torch.tensor([False, False, True, False])
    topology = path_and_isolated()
    own = server_side(labels, train, val, num_classes=3, topology=topology)
    operator = kprop_operator(topology, "gcn", CPU)
    targets = make_targets([own], operator, 0, CPU)
    assert torch.equal(targets.noisy[0][labels >= 0], labels[labels >= 0])
    assert torch.equal(targets.train[0], train.float())
    assert torch.equal(targets.val[0], val.float())
    # Two training nodes count half each, at their own labels; one validation node counts whole.
    half_each = torch.tensor([[0, 0, 0, 0.5], [0, 0, 0, 0], [0.5, 0, 0, 0]])
    assert torch.equal(targets.training_weight[0], half_each)
    on_val = torch.tensor([[0.0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]])
    assert torch.equal(targets.validation_weight[0], on_val)
    # After one step only node 1 holds any label, and it does not train: no node takes part.
    one = make_targets([own], operator, 1, CPU)
    assert torch.equal(one.training_weight, torch.zeros(1, 3, 4))
    assert torch.equal(one.validation_weight, targets.validation_weight)


def test_denoised_labels_are_the_majority_of_the_neighbourhood() -> None:
    """Hub 0 with leaves of classes 1, 1, 0: one step says 1 for the hub, and 0 for its leaves."""
    topology = Topology.from_edges(4, torch.tensor([[0, 0, 0], [1, 2, 3]]))
    mask = torch.ones(4, dtype=torch.bool)
    own = server_side(torch.tensor([0, 1, 1, 0]), mask, ~mask, num_classes=2, topology=topology)
    targets = make_targets([own], kprop_operator(topology, "gcn", CPU), 1, CPU)
    expected = torch.tensor([[0.0, 1, 1, 1], [1, 0, 0, 0]]) / 4
    assert torch.equal(targets.training_weight[0], expected)


def test_nodes_that_no_label_reaches_take_no_part() -> None:
    """The isolated last node trains: with K_y = 0 its logits matter, with K_y > 0 they do not."""
    labels = torch.randint(C, (N,), generator=seeded(1))
    mask = torch.ones(N, dtype=torch.bool)
    mask[3] = False
    own = server_side(labels, mask, ~mask)
    logits = logits_of(1)
    for steps, matters in ((1, False), (2, False), (0, True)):
        objective, targets = both([own], "drop", steps)
        loss = objective.training_loss(logits, targets)
        (gradient,) = torch.autograd.grad(loss.sum(), logits)
        assert bool(gradient[0, :, -1].any()) == matters
        # The last two nodes have no neighbour but themselves, and node 3 does not train.
        informed = N - 1 if matters else N - 3
        assert int((targets.training_weight != 0).sum()) == informed
        assert float(targets.training_weight.sum()) == pytest.approx(1)


def test_a_class_without_a_single_label() -> None:
    """Class 1 of 4 and the last class are absent everywhere: shapes stay, losses are finite."""
    labels = torch.where(torch.rand(N, generator=seeded(1)) < 0.5, 0, 2)
    mask = torch.arange(N) % 3 != 0
    own = server_side(labels, mask, ~mask)
    logits = logits_of(1)
    for learner, steps in CASES:
        objective, targets = both([own], learner, steps)
        loss = objective.training_loss(logits, targets)
        rows = logits[0].detach().t().double()
        expected = float(plain_loss(rows, own, learner, steps))
        assert float(loss.detach()) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("learner", "steps"), CASES)
@pytest.mark.parametrize("y_eps", [math.inf, 100.0, 60.0, 40.0, 15.0])
def test_sure_models_break_neither_loss_nor_gradient(
    learner: Learner, steps: int, y_eps: float
) -> None:
    """Large budgets: T is all but the identity.  Logits hundreds apart make probabilities of 0 in
    float32, on nodes that count and on nodes that do not.
    """
    own = random_run(0, y_eps=y_eps)
    objective, targets = both([own], learner, steps)
    for scale in (1.0, 10.0, 300.0):
        logits = (scale * torch.randn(1, C, N, generator=seeded(9))).requires_grad_()
        rows = logits[0].detach().t().double().requires_grad_()
        expected = plain_loss(rows, own, learner, steps)
        (wanted,) = torch.autograd.grad(expected, rows)
        loss = objective.training_loss(logits, targets)[0]
        (gradient,) = torch.autograd.grad(loss, logits)
        assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-3)
        torch.testing.assert_close(gradient[0].t().double(), wanted, rtol=1e-3, atol=1e-4)
        noisy = log_plain_noisy(rows.detach(), own, learner)
        on_val = F.nll_loss(noisy[own.val_mask], own.labels[own.val_mask])
        val_loss = objective.validation_loss(logits.detach(), targets)[0]
        assert float(val_loss) == pytest.approx(float(on_val), rel=1e-3)


def test_runs_with_and_without_label_noise_side_by_side() -> None:
    """Each run's own T, whatever the budgets beside it."""
    budgets = [1.0, math.inf, 0.1, 60.0]
    collected = [random_run(run, y_eps) for run, y_eps in enumerate(budgets)]
    logits = logits_of(4).detach()
    for steps in (0, 2):
        objective, targets = both(collected, "drop", steps)
        losses = objective.training_loss(logits, targets)
        val_losses = objective.validation_loss(logits, targets)
        for run, own in enumerate(collected):
            rows = logits[run].t().double()
            expected = float(plain_loss(rows, own, "drop", steps))
            assert float(losses[run]) == pytest.approx(expected, rel=1e-5)
            alone, own_targets = both([own], "drop", steps)
            torch.testing.assert_close(
                alone.validation_loss(logits[run : run + 1], own_targets)[0], val_losses[run]
            )


@pytest.mark.parametrize("steps", [0, 2])
def test_noisy_labels_bound_the_loss_of_sure_models(steps: int) -> None:
    """With a finite budget nothing is surer than flip; huge logits stay harmless."""
    own = random_run(0, y_eps=1.0)
    objective, targets = both([own], "drop", steps)
    logits = (1e4 * torch.randn(1, C, N, generator=seeded(9))).requires_grad_()
    loss = objective.training_loss(logits, targets)[0]
    (gradient,) = torch.autograd.grad(loss, logits)
    assert bool(gradient.isfinite().all())
    flip = RandomizedResponse(1.0, C).flip_probability()
    assert 0 < float(loss.detach()) < (-math.log(flip) if steps == 0 else 10)


def test_masked_mean() -> None:
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0], [1.0, 1.0, 0.0, 1.0]])
    mask = torch.tensor([[1.0, 0.0, 0.0, 1.0], [1.0, 1.0, 1.0, 0.0]])
    torch.testing.assert_close(masked_mean(x, mask), torch.tensor([2.5, 2 / 3]))


@pytest.mark.parametrize("count", [3, 7, 41, 49, 11_235])
def test_a_mean_of_ones_is_one(count: int) -> None:
    """Not a rounding error above: Acc* = 1 is a bound at eps_y = inf."""
    mask = (torch.arange(2 * count) < count).float()[None]
    correct = torch.ones(1, 2 * count, dtype=torch.bool)
    assert float(masked_mean(correct, mask)) == 1.0
