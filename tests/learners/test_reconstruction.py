"""RGNN's reconstructed labels and its cluster term against hand-made and dense values."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lpgnn.errors import InputError
from lpgnn.learners import CrossEntropy, Reconstruction
from lpgnn.learners.reconstruction import ReconstructedBatch
from lpgnn.privacy import Collected, RandomizedResponse
from lpgnn.propagation.partition import partition
from propagation.graphs import adjacency, dense_mean, path_and_isolated

from .block_graph import both_kernels, server_of
from .test_losses import batch_of, logits_of, random_run, server_side


def batch_for(learner: Reconstruction, own: Collected) -> ReconstructedBatch:
    batch = batch_of([own], learner)
    assert isinstance(batch, ReconstructedBatch)
    return batch


def reconstructed(own: Collected, steps: int) -> Tensor:
    """T^-1 P^K y', one matrix after the other.  -> [N, c]"""
    one_step = dense_mean(adjacency(own.topology).fill_diagonal_(1))
    one_hot = torch.zeros(own.num_nodes, own.num_classes, dtype=torch.float64)
    labelled = own.labels.classes >= 0
    one_hot[labelled, own.labels.classes[labelled]] = 1
    received = torch.linalg.matrix_power(one_step, steps) @ one_hot
    inverse = torch.linalg.inv(RandomizedResponse(own.y_eps, own.num_classes).transition())
    scores: Tensor = received @ inverse
    return scores


def plain_loss(logits: Tensor, labels: Tensor, own: Collected, learner: Reconstruction) -> Tensor:
    """Cluster by cluster, node by node.  logits: [N, c], labels: [N]"""
    train, sent = own.train_mask, own.labels.classes
    entropy = F.cross_entropy(logits[train], labels[train])
    part = partition(own.topology, learner.clusters)
    inverse = torch.linalg.inv(RandomizedResponse(own.y_eps, own.num_classes).transition())
    divergences = []
    for cluster in range(learner.clusters):
        nodes = (train & (part == cluster)).nonzero().flatten()
        if len(nodes) == 0:
            continue
        share = F.one_hot(sent[nodes], own.num_classes).double().mean(0) @ inverse
        share[share < 0] = 1e-5
        share = share / share.sum()
        mean = logits[nodes].softmax(1).mean(0)
        divergences.append((share * (share.clamp(min=1e-20) / mean).log()).sum())
    return entropy + learner.alpha * torch.stack(divergences).mean()


def test_on_four_nodes_by_hand() -> None:
    """Path 0-1-2 and isolated 3; classes 0, 1, 1 and 0 were sent, all but 2 train.

    One step of means with self-loops: node 0 gets (1/2, 1/2), node 1 (1/3, 2/3), node 3 (1, 0).
    keep 3/4, flip 1/4: T^-1 (x, 1 - x) = (2x - 1/2, 3/2 - 2x).
    """
    train = torch.tensor([True, True, False, True])
    labels = torch.tensor([0, 1, 1, 0])
    own = server_side(
        labels, train, ~train, y_eps=math.log(3), num_classes=2, topology=path_and_isolated()
    )
    learner = Reconstruction(steps=1, clusters=1, alpha=2.0)
    batch = batch_for(learner, own)
    assert batch.target[0, :, 1].tolist() == [0, 1]
    assert batch.target[0, :, 3].tolist() == [1, 0]
    # Two of three training nodes say class 0: 2 (2/3) - 1/2 = 5/6.
    torch.testing.assert_close(batch.proportions[0, :, 0], torch.tensor([5 / 6, 1 / 6]))
    p = torch.tensor([0.5, 0.2, 0.9, 0.8])
    logits = torch.stack([p, 1 - p]).log()[None]
    entropy = -(math.log(0.5) + math.log(0.8) + math.log(0.8)) / 3
    kl = 5 / 6 * math.log(5 / 6 / 0.5) + 1 / 6 * math.log(1 / 6 / 0.5)  # the mean p is 1/2
    assert float(learner.loss(logits, batch)) == pytest.approx(entropy + 2 * kl, rel=1e-5)


@both_kernels
@pytest.mark.parametrize(
    "learner",
    [
        Reconstruction(2, clusters=3),
        Reconstruction(5, clusters=4, alpha=0.3),
        Reconstruction(1, clusters=20),  # clusters without a training node among them
        Reconstruction(0, alpha=0.0),
    ],
    ids=repr,
)
def test_values_and_gradients_equal_the_dense_formula(
    learner: Reconstruction, kernels: str
) -> None:
    own_runs = [random_run(run, y_eps) for run, y_eps in enumerate([0.5, 1.0, 3.0])]
    batch = batch_of(own_runs, learner, kernels)
    assert isinstance(batch, ReconstructedBatch)
    assert learner.steps is not None
    logits = logits_of(3)
    losses = learner.loss(logits, batch)
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    for run, own in enumerate(own_runs):
        rows = logits[run].detach().t().double().requires_grad_()
        labels, scores = batch.target[run].argmax(0), reconstructed(own, learner.steps)
        at_labels = scores.gather(1, labels[:, None])[:, 0]
        torch.testing.assert_close(at_labels, scores.amax(1), rtol=0, atol=1e-6)  # ties are many
        expected = plain_loss(rows, labels, own, learner)
        (wanted,) = torch.autograd.grad(expected, rows)
        assert float(losses[run].detach()) == pytest.approx(float(expected.detach()), rel=1e-4)
        torch.testing.assert_close(gradient[run].t().double(), wanted, rtol=1e-3, atol=1e-6)


def test_without_steps_and_clusters_it_is_cross_entropy() -> None:
    own, logits = random_run(0), logits_of(1).detach()
    plain = CrossEntropy().loss(logits, batch_of([own], CrossEntropy()))
    learner = Reconstruction(0, alpha=0.0)
    torch.testing.assert_close(learner.loss(logits, batch_for(learner, own)), plain)
    for other in (Reconstruction(2, alpha=0.0), Reconstruction(0)):
        assert abs(float(other.loss(logits, batch_for(other, own)) - plain)) > 1e-2


def test_reconstruction_brings_back_the_majority() -> None:
    """Communities of one class each: most of the reports of the few that lie are put right."""
    from .block_graph import block_graph, collected

    own, truth = collected(0, y_eps=2.0), block_graph().labels
    train = own.train_mask
    before = (own.labels.classes == truth)[train].float().mean()
    found = batch_for(Reconstruction(2), own).target[0].argmax(0)
    after = (found == truth)[train].float().mean()
    assert float(after) > float(before) + 0.1


def test_the_partition_is_made_once_for_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    from lpgnn.learners import reconstruction

    from .block_graph import run_of

    calls: list[int] = []

    def counted(topology: Any, parts: int) -> Tensor:
        calls.append(parts)
        return partition(topology, parts)

    monkeypatch.setattr(reconstruction, "partition", counted)
    own = random_run(0)
    server = server_of(own)
    for clusters in (3, 3, 4):
        Reconstruction(2, clusters=clusters).prepare([run_of(0, own)], server)
    assert calls == [3, 4]


def test_test_nodes_and_their_order_of_labels_play_no_part() -> None:
    """Reports of validation nodes are propagated; the loss itself is on training nodes."""
    own, learner = random_run(0), Reconstruction(2)
    logits = logits_of(1)
    (gradient,) = torch.autograd.grad(learner.loss(logits, batch_for(learner, own)).sum(), logits)
    assert not gradient[0][:, ~own.train_mask].any()
    assert bool((gradient[0][:, own.train_mask] != 0).any())


@pytest.mark.parametrize(
    "options",
    [
        {"steps": -1},
        {"steps": 1.0},
        {"clusters": 0},
        {"clusters": 2.5},
        {"alpha": -1},
        {"alpha": math.nan},
    ],
)
def test_bad_options_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        Reconstruction(**options)
    assert caught.value.setting == next(iter(options))


def test_there_are_at_most_as_many_clusters_as_nodes() -> None:
    own = random_run(0)
    batch_for(Reconstruction(1, clusters=own.num_nodes), own)
    allowed = f"must be at most the graph's number of nodes, {own.num_nodes}"
    with pytest.raises(InputError, match=rf"^learner.clusters=\d+: {allowed}$"):
        batch_for(Reconstruction(1, clusters=own.num_nodes + 1), own)


def test_steps_may_be_left_to_the_table() -> None:
    assert Reconstruction.open_fields == {"steps": "y_steps"}
    with pytest.raises(InputError, match=r"^learner.steps=null: must be set"):
        batch_of([random_run(0)], Reconstruction(None))
