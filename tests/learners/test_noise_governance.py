"""RTGNN's pair of networks against its formulas, node by node."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from lpgnn.errors import InputError
from lpgnn.learners import RULES, CrossEntropy, NoiseGovernance
from lpgnn.learners.noise_governance import GovernedBatch
from lpgnn.privacy import Collected
from propagation.graphs import adjacency, path_and_isolated, seeded

from .block_graph import both_kernels, collected, fit, run_of, server_of
from .test_losses import C, N, batch_of, random_run, server_side


def batch_at(
    learner: NoiseGovernance, own_runs: list[Collected], epoch: int = 0, kernels: str = "numba"
) -> GovernedBatch:
    """The batch of pairs of networks, each run given twice, after some steps."""
    batch = batch_of(own_runs * 2, learner, kernels)
    assert isinstance(batch, GovernedBatch)
    batch.epoch.fill_(epoch)
    return batch


def divergence(p: Tensor, q: Tensor) -> Tensor:
    return (p * (p.log() - q.log())).sum()


def plain_loss(
    one: Tensor, other: Tensor, own: Collected, learner: NoiseGovernance, epoch: int
) -> Tensor:
    """The pair's loss with lists of nodes.  one, other: [N, c]"""
    p, q = one.softmax(1), other.softmax(1)
    sent, train = own.labels.classes, own.train_mask.nonzero().flatten().tolist()
    stage, n = min(1.0, epoch / learner.ramp), len(train)

    def entropy(node: int, label: int) -> Tensor:
        return -p[node, label].log() - q[node, label].log()

    losses = {node: entropy(node, int(sent[node])) for node in train}
    values = {node: float(loss.detach()) for node, loss in losses.items()}
    mean = sum(values.values()) / n
    share = max(1 - stage / 2, sum(value < mean for value in values.values()) / n)
    ordered = sorted(train, key=lambda node: values[node])
    clean, others = ordered[: int(share * n + 1e-9)], ordered[int(share * n + 1e-9) :]
    total = sum((losses[node] for node in clean), torch.zeros((), dtype=one.dtype))

    def named(node: int) -> int | None:
        label = int(p[node].argmax())
        return label if label == int(q[node].argmax()) else None

    enough = 1 - (1 - min(0.5, 1 / n)) * stage
    for node in others:
        label, sure = named(node), p[node].max() * q[node].max()
        if label is not None and label != int(sent[node]) and float(sure.detach()) > enough:
            total = total + sure ** (0.5 - 0.5 * stage) * entropy(node, label)
        else:
            total = total + learner.down_weight * losses[node]
    total = total / n
    both = {v: divergence(p[v], q[v]) + divergence(q[v], p[v]) for v in range(N)}
    near = adjacency(own.topology).fill_diagonal_(0)
    if epoch > 0:
        total = total + learner.consistency * sum(both[v] for v in train) / n
    around = [
        divergence(r[u].detach(), r[v]) / near[v].sum()
        for v in train
        for u in near[v].nonzero().flatten().tolist()
        for r in (p, q)
    ]
    total = total + learner.consistency * torch.stack(around).sum() / n
    added = [
        v
        for v in range(N)
        if v not in train
        and named(v) is not None
        and float((p[v].max() * q[v].max()).detach()) > learner.threshold**2
    ]
    if added:
        pseudo = [entropy(v, int(p[v].argmax())) + learner.consistency * both[v] for v in added]
        total = total + torch.stack(pseudo).mean()
    return total


@both_kernels
@pytest.mark.parametrize("epoch", [0, 1, 60, 150, 200, 400])
@pytest.mark.parametrize(
    "learner",
    [NoiseGovernance(), NoiseGovernance(0.6, consistency=1.0, down_weight=0.3, ramp=100)],
    ids=repr,
)
def test_values_and_gradients_equal_the_plain_formula(
    learner: NoiseGovernance, epoch: int, kernels: str
) -> None:
    own_runs = [random_run(run, y_eps) for run, y_eps in enumerate([0.5, 2.0])]
    batch = batch_at(learner, own_runs, epoch, kernels)
    shared = 3 * torch.randn(2, C, N, generator=seeded(9))  # so that networks often agree
    apart = torch.randn(4, C, N, generator=seeded(10))
    logits = (shared.repeat(2, 1, 1) + apart).requires_grad_()
    losses = learner.loss(logits, batch)
    assert torch.equal(losses[:2], losses[2:])
    assert float(batch.epoch) == epoch + 1
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    for run, own in enumerate(own_runs):
        one, other = (
            logits[index].detach().t().double().requires_grad_() for index in (run, run + 2)
        )
        expected = plain_loss(one, other, own, learner, epoch)
        wanted = torch.autograd.grad(expected, (one, other))
        assert float(2 * losses[run].detach()) == pytest.approx(float(expected.detach()), rel=1e-4)
        for index, grad in zip((run, run + 2), wanted, strict=True):
            torch.testing.assert_close(gradient[index].t().double(), grad, rtol=1e-3, atol=1e-5)


def test_the_formula_corrects_and_adds_labels_on_these_numbers() -> None:
    """What the test above compares does occur: another share, another threshold, another loss."""
    own = random_run(0)
    shared = 3 * torch.randn(1, C, N, generator=seeded(9))
    logits = shared.repeat(2, 1, 1) + torch.randn(2, C, N, generator=seeded(10))

    def loss(learner: NoiseGovernance, epoch: int) -> float:
        return float(learner.loss(logits, batch_at(learner, [own], epoch))[0])

    assert abs(loss(NoiseGovernance(), 200) - loss(NoiseGovernance(), 1)) > 0.1
    assert abs(loss(NoiseGovernance(0.6), 1) - loss(NoiseGovernance(1.0), 1)) > 0.01
    assert loss(NoiseGovernance(down_weight=0.5), 200) > loss(NoiseGovernance(), 200) + 0.01


def test_on_four_nodes_by_hand() -> None:
    """Path 0-1-2 and isolated 3; 0 and 1 train on class 0, 2 validates, 3 has no label.

    Both networks say (0.9, 0.1), (0.1, 0.9), (0.5, 0.5), (0.99, 0.01).  At the end of the ramp the
    share of clean labels is a half: node 0.  Node 1 is corrected, as 0.81 > 1/2, by a whole weight.
    """
    train = torch.tensor([True, True, False, False])
    val = torch.tensor([False, False, True, False])
    own = server_side(
        torch.tensor([0, 0, 0, -1]), train, val, num_classes=2, topology=path_and_isolated()
    )
    learner = NoiseGovernance(consistency=0.0)
    p = torch.tensor([0.9, 0.1, 0.5, 0.99])
    logits = torch.stack([p, 1 - p]).log().repeat(2, 1, 1)
    found = float(learner.loss(logits, batch_at(learner, [own], 200))[0])
    pair = (-2 * math.log(0.9) - 2 * math.log(0.9)) / 2 - 2 * math.log(0.99)
    assert found == pytest.approx(pair / 2, rel=1e-5)
    # Its neighbours' mean of KL(p_u || p_v) on top: node 0 has node 1, node 1 has 0 and 2.
    from_one = 0.1 * math.log(1 / 9) + 0.9 * math.log(9)
    from_two = 0.5 * math.log(5) + 0.5 * math.log(5 / 9)
    around = 2 * (from_one + (from_one + from_two) / 2) / 2
    learner = NoiseGovernance(consistency=0.3)
    found = float(learner.loss(logits, batch_at(learner, [own], 200))[0])
    assert found == pytest.approx((pair + 0.3 * around) / 2, rel=1e-4)


def test_at_first_it_is_cross_entropy_of_two_networks() -> None:
    own = random_run(0)
    logits = 2 * torch.randn(2, C, N, generator=seeded(9))
    learner = NoiseGovernance(threshold=1.0, consistency=0.0)
    found = learner.loss(logits, batch_at(learner, [own]))
    plain = CrossEntropy().loss(logits, batch_of([own, own], CrossEntropy()))
    torch.testing.assert_close(found, plain.mean().expand(2))


@both_kernels
def test_two_networks_of_a_run_differ_and_leave_other_runs_alone(kernels: str) -> None:
    runs = [run_of(r, collected(r)) for r in range(3)]
    learner = NoiseGovernance(ramp=5)
    together = fit(learner, runs, kernels)
    assert len(together) == 3
    for run, outcome in zip(runs, together, strict=True):
        (alone,) = fit(learner, [run], kernels)
        for name, curve in alone.history.items():
            torch.testing.assert_close(outcome.history[name], curve, rtol=1e-3, atol=1e-4)
        for rule in RULES:
            weights = alone.selected[rule].weights
            assert set(outcome.selected[rule].weights) == set(weights)
    # Were the networks the same, nothing would lie between them.
    apart, alike = (
        fit(NoiseGovernance(threshold=1.0, consistency=weight), runs[:1], kernels)[0]
        for weight in (5.0, 0.0)
    )
    assert not torch.allclose(apart.history["train_loss"][1:], alike.history["train_loss"][1:])


def test_the_weights_are_those_of_the_first_network() -> None:
    run = run_of(0, collected(0))
    server = server_of(run.collected, keep_probabilities=True)
    (outcome,) = NoiseGovernance().fit([run], server)
    chosen = outcome.selected["paper"]
    applied = NoiseGovernance().apply(chosen.weights, run, server, "paper")
    assert chosen.probabilities is not None
    torch.testing.assert_close(applied, chosen.probabilities, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"threshold": 1.5},
        {"threshold": "high"},
        {"consistency": -1},
        {"down_weight": math.nan},
        {"ramp": 0},
        {"ramp": 1.5},
    ],
)
def test_bad_options_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        NoiseGovernance(**options)
    assert caught.value.setting == next(iter(options))
