import dataclasses
import inspect
import math
from typing import Any, get_type_hints

import pytest
import torch
from torch import Tensor

from lpgnn.data.graph import Topology
from lpgnn.errors import InputError
from lpgnn.learners import RULES, LabelPropagation
from lpgnn.learners import label_propagation as module
from lpgnn.learners.label_propagation import Combine, Labels, LabelScores, Walk, label_scores
from lpgnn.privacy import Collected, LabelMechanism, RandomizedResponse, SubsetSelection
from lpgnn.propagation import Aggregator, PreparedGraph
from privacy.own_mechanisms import Skewed
from propagation.graphs import (
    BACKENDS,
    NUMBA,
    dense_kprop,
    kprop_operator,
    prepared_graph,
    random_topology,
    seeded,
)

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

WALKS: tuple[Walk, ...] = ("plain", "lazy", "coded")
COMBINES: tuple[Combine, ...] = ("one", "stack")
FOLDS = 5
LAZY_STEPS = [1, 2, 4, 8, 16, 32, 64]
STEPS: dict[Walk, list[int]] = {
    "plain": [1, 2, 4, 8, 16, 32],
    "lazy": LAZY_STEPS,
    "coded": LAZY_STEPS,
}


def dense_candidates(
    labels: list[int], num_classes: int, y_eps: float, topology: Topology, walk: Walk
) -> dict[str, Tensor]:
    """Every candidate with the matrices multiplied out, node by node.  name -> [N, c] float64"""
    step = dense_kprop(topology)
    p = step if walk == "plain" else (torch.eye(len(labels), dtype=torch.float64) + step) / 2
    stay = math.exp(y_eps) if y_eps < math.inf else math.inf
    keep = 1.0 if y_eps == math.inf else stay / (stay + num_classes - 1)
    flip = 0.0 if y_eps == math.inf else 1 / (stay + num_classes - 1)
    fold: list[int | None] = []
    dealt = 0
    for label in labels:
        dealt += label >= 0
        fold.append(dealt % FOLDS if label >= 0 else None)
    powers = [torch.linalg.matrix_power(p, k) for k in range(max(STEPS[walk]) + 1)]
    matrices: dict[str, Tensor] = {}
    for k in STEPS[walk]:
        if walk == "plain" and k > 1:
            matrices[f"sum to {k}"] = torch.stack(powers[1 : k + 1]).sum(0)
        matrices[f"power {k}"] = powers[k]
    if walk == "coded":
        by_length = {
            f"{name} by length": matrix / matrix.norm(dim=1, keepdim=True).clamp(min=1e-300)
            for name, matrix in matrices.items()
        }
        matrices = by_length | matrices
    out = {name: torch.zeros(len(labels), num_classes, dtype=torch.float64) for name in matrices}
    for v in range(len(labels)):
        seen = torch.zeros(len(labels), num_classes, dtype=torch.float64)
        for u, label in enumerate(labels):
            if label >= 0 and (fold[v] is None or fold[u] != fold[v]):
                seen[u] = -flip / (keep - flip)
                seen[u, label] = (1 - flip) / (keep - flip)
        for name, matrix in matrices.items():
            out[name][v] = matrix[v] @ seen
        if walk == "coded":
            known = seen.abs().sum(1) > 0
            square = float(seen[known].square().sum(1).mean())
            for k in (16, 32):
                # On small graphs a node's code is its row of P^k: kernel ridge regression.
                rows = torch.linalg.matrix_power(step, k)
                rows = rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-300)
                kernel = rows @ rows[known].t()  # [N, seen]
                inner = kernel[known] + 2 * square * torch.eye(int(known.sum()))
                out.setdefault(f"codes {k}", torch.zeros_like(seen))
                out[f"codes {k}"][v] = kernel[v] @ torch.linalg.solve(inner, seen[known])
    return out


def random_labels(num_nodes: int, num_classes: int) -> Tensor:
    """Three nodes of four have a label."""
    labels = torch.randint(num_classes, (num_nodes,), generator=seeded(1))
    return torch.where(torch.rand(num_nodes, generator=seeded(2)) < 0.75, labels, -1)


def held_out(
    labels: Tensor, num_classes: int, y_eps: float, walk: Walk, kernels: str = "numba"
) -> dict[str, Tensor]:
    estimate = label_reports(labels, y_eps, num_classes).estimate
    graph = prepared_graph(random_topology(labels.numel()), BACKENDS[kernels])
    candidates, fold = module._held_out(estimate, labels >= 0, graph, "gcn", walk)
    return {name: module.of_own_fold(z, fold) for name, z in candidates.items()}


@both_kernels
@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("y_eps", [1.0, math.inf])
def test_candidates_equal_the_dense_walks_without_the_own_fold(
    walk: Walk, y_eps: float, kernels: str
) -> None:
    labels = random_labels(30, 4)
    found = held_out(labels, 4, y_eps, walk, kernels)
    expected = dense_candidates(labels.tolist(), 4, y_eps, random_topology(30), walk)
    assert list(found) == list(expected)  # ever further
    for name, scores in found.items():
        torch.testing.assert_close(scores.t().double(), expected[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("walk", WALKS)
def test_a_label_reaches_others_but_not_its_own_node(walk: Walk) -> None:
    labels = random_labels(30, 4)
    before = held_out(labels, 4, 1.0, walk)
    operator = kprop_operator(random_topology(30), "gcn", NUMBA)
    degree = random_topology(30).without_self_loops().indptr.diff()
    reached_others = returned = 0
    for v in ((labels >= 0) & (degree > 0)).nonzero().flatten().tolist():
        other = labels.clone()
        other[v] = (labels[v] + 1) % 4
        after = held_out(other, 4, 1.0, walk)
        for name, scores in after.items():
            assert torch.equal(scores[:, v], before[name][:, v]), (name, v)
        rest = torch.arange(30) != v
        reached_others += any(
            not torch.equal(s[:, rest], before[n][:, rest]) for n, s in after.items()
        )
        # Hiding is what does it: the walk over all labels returns to where it started.
        shown = [label_reports(one, 1.0, 4).estimate[None] for one in (labels, other)]
        walked = [operator.propagate_classes(z, 2)[0, :, v] for z in shown]
        returned += not torch.equal(*walked)
    assert reached_others == returned >= 15


def test_the_most_cautious_by_hand() -> None:
    best = torch.tensor([1.0, 2.0, 1.0, 2.0])
    noisy = torch.tensor([1.0, -1.0, 1.0, -1.0])  # its mean has a standard error of 0.577
    choose = module._most_cautious
    assert choose(torch.stack([best, best + 0.1])) == 0  # worse for certain, if by little
    assert choose(torch.stack([best, best + 0.1 + noisy])) == 1  # as good as can be told
    assert choose(torch.stack([best, best + 0.6 + noisy])) == 0  # beyond a standard error
    assert choose(torch.stack([best, best + 0.5 + noisy, best + 0.1])) == 1
    assert choose(torch.stack([best, best + 0.5 + noisy, best + 0.5 - noisy])) == 2  # furthest
    assert choose(torch.stack([best + 1, best])) == 1
    assert choose(best[None]) == 0
    assert choose(torch.tensor([[2.0], [1.0]])) == 1  # one label: no standard error


def scores_of(
    own: Collected,
    walk: Walk = "plain",
    combine: Combine = "one",
    topology: Topology | None = None,
    labels: Labels = "train+val",
) -> LabelScores:
    graph = prepared_graph(topology or own.topology, NUMBA)
    return label_scores(own, graph, "gcn", walk, combine, labels)


def plain_losses(logits: Tensor, own: Collected) -> Tensor:
    """Forward correction with the transition matrix multiplied out.  [N, c] -> [labelled]"""
    transition = RandomizedResponse(own.y_eps, own.num_classes).transition()
    noisy = logits.double().softmax(1) @ transition
    labelled = (own.labels.classes >= 0).nonzero().flatten()
    return -noisy[labelled, own.labels.classes[labelled]].log()


@pytest.mark.parametrize("y_eps", [1.0, 3.0])
@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("combine", COMBINES)
def test_the_reported_loss_is_that_of_the_scores(
    y_eps: float, walk: Walk, combine: Combine
) -> None:
    own = collected(y_eps=y_eps)
    result = scores_of(own, walk, combine)
    assert result.scores.shape == (C, N)
    expected = float(plain_losses(result.scores.t(), own).mean())
    assert result.loss == pytest.approx(expected, rel=1e-4)
    doubled = float(plain_losses(2 * result.scores.t(), own).mean())
    assert doubled != pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("y_eps", [0.5, 1.0, 3.0, math.inf])
@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("labels", ["train", "train+val"])
def test_the_choice_is_that_of_a_plain_search(y_eps: float, walk: Walk, labels: Labels) -> None:
    """All candidates at all sharpnesses on the held-out labels, and one standard error of grace.

    Whichever labels are propagated, training and validation nodes judge.
    """
    own = collected(y_eps=y_eps)
    hidden = torch.tensor(labels == "train") & own.val_mask
    sent = torch.where(hidden, -1, own.labels.classes)
    candidates = dense_candidates(sent.tolist(), C, y_eps, own.topology, walk)
    best: dict[str, tuple[float, Tensor, Tensor]] = {}
    for name, z in candidates.items():
        size = float(z[own.labels.classes >= 0].std())
        for half_octaves in range(-6, 13):
            logits = 2 ** (half_octaves / 2) * z / size
            losses = plain_losses(logits, own)
            if name not in best or float(losses.mean()) < best[name][0]:
                best[name] = (float(losses.mean()), losses, logits)
    lowest = min(best.values(), key=lambda found: found[0])
    chosen = ""
    for name, (_, losses, _) in best.items():
        excess = losses - lowest[1]
        if float(excess.mean()) <= float(excess.std()) / len(excess) ** 0.5:
            chosen = name
    result = scores_of(own, walk, labels=labels)
    assert result.choice.startswith(f"{chosen} x ")
    loss, _, logits = best[chosen]
    assert result.loss == pytest.approx(loss, rel=1e-3)
    scores = result.scores.t().double()
    if walk == "coded" and y_eps == 0.5:  # saturated: one loss at several sharpnesses
        scores, logits = (z / z.std() for z in (scores, logits))
    torch.testing.assert_close(scores, logits, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("walk", WALKS)
def test_a_stack_is_at_least_as_good_on_held_out_labels(walk: Walk) -> None:
    """It starts from the single best, where the ridge is zero, and can only go down."""
    stacked = 0
    for y_eps in (1.0, 2.0, math.inf):
        own = collected(y_eps=y_eps)
        one, stack = scores_of(own, walk, "one"), scores_of(own, walk, "stack")
        assert stack.loss <= one.loss + 1e-6
        if stack.choice.startswith("stack "):
            stacked += 1
            assert stack.loss < one.loss - 1e-4
            assert len(stack.choice.split()) == 1 + {"plain": 11, "lazy": 7, "coded": 16}[walk]
        else:  # it would not have helped on nodes that it was not fitted to
            assert stack.choice == one.choice
            assert torch.equal(stack.scores, one.scores)
    assert stacked >= 1


def test_a_stack_that_does_not_help_elsewhere_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = collected(y_eps=math.inf)
    one = scores_of(own, "lazy", "one")
    assert scores_of(own, "lazy", "stack").choice.startswith("stack ")
    monkeypatch.setattr(module, "fit_weights", lambda start, *_: -start)  # every class but its own
    refused = scores_of(own, "lazy", "stack")
    assert (refused.choice, refused.loss) == (one.choice, one.loss)
    assert torch.equal(refused.scores, one.scores)


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("combine", COMBINES)
def test_labels_and_the_graph_tell_the_class(walk: Walk, combine: Combine) -> None:
    graph, split = block_graph(), block_split()
    for y_eps, floor in ((math.inf, 0.8), (3.0, 0.7)):  # a third by chance
        own = collected(y_eps=y_eps, graph=graph, split=split)
        predictions = scores_of(own, walk, combine).scores.argmax(0)
        accuracy = float((predictions == graph.labels)[split.test].float().mean())
        assert accuracy > floor
    # Over another graph the same labels tell nothing.
    shuffled = torch.randperm(N, generator=seeded(1))
    elsewhere = Topology.from_edges(N, shuffled[graph.topology.edge_index()])
    predictions = scores_of(own, walk, combine, elsewhere).scores.argmax(0)
    assert float((predictions == graph.labels)[split.test].float().mean()) < 0.6


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("combine", COMBINES)
def test_clean_labels_have_no_way_in(walk: Walk, combine: Combine) -> None:
    hints = get_type_hints(label_scores)
    assert set(hints) == {*inspect.signature(label_scores).parameters, "return"}
    assert {hints[name] for name in hints if name != "return"} == {
        Collected,
        PreparedGraph,
        Aggregator,
        Walk,
        Combine,
        Labels,
    }
    graph, split = block_graph(), block_split()
    plain = scores_of(collected(graph=graph, split=split), walk, combine)
    for part, same in ((split.test, True), (split.train, False)):
        changed = torch.where(part, (graph.labels + 1) % C, graph.labels)
        other = dataclasses.replace(graph, labels=changed)
        result = scores_of(collected(graph=other, split=split), walk, combine)
        assert torch.equal(result.scores, plain.scores) == same
        assert (result.loss == plain.loss) == same
        if same:
            assert result.choice == plain.choice


def test_reports_of_features_play_no_part() -> None:
    noisy, none = collected(0, "mb"), collected(0, None, feature=None)
    assert torch.equal(noisy.labels.classes, none.labels.classes)
    assert torch.equal(scores_of(noisy).scores, scores_of(none).scores)


@both_kernels
@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("combine", COMBINES)
def test_the_outcome_of_the_labels_only_learner(walk: Walk, combine: Combine, kernels: str) -> None:
    """Each run's own, whoever is beside it; without features, in one epoch."""
    runs = [run_of(r, collected(r, feature=None)) for r in range(2)]
    outcomes = fit(LabelPropagation(walk, combine), runs, kernels)
    for run, outcome in zip(runs, outcomes, strict=True):
        own = run.collected
        scores = scores_of(own, walk, combine, labels="train")
        predictions = scores.scores.argmax(0)
        for rule in RULES:
            chosen = outcome.selected[rule]
            assert (chosen.epoch, chosen.qualified, chosen.weights) == (1, True, {})
            assert torch.equal(chosen.predictions.long(), predictions)
            assert chosen.probabilities is not None
            torch.testing.assert_close(
                chosen.probabilities, scores.scores.softmax(0), rtol=1e-3, atol=1e-3
            )
        agrees = (predictions == own.labels.classes).float()
        assert outcome.history["train_acc"].tolist() == pytest.approx(
            [float(agrees[own.train_mask].mean())]
        )
        assert outcome.history["val_acc"].tolist() == pytest.approx(
            [float(agrees[own.val_mask].mean())]
        )
        assert outcome.history["val_loss"].tolist() == pytest.approx([scores.loss], rel=1e-4)
        assert outcome.failed_epoch is None
    assert not torch.equal(outcomes[0].history["val_loss"], outcomes[1].history["val_loss"])


@pytest.mark.parametrize("labels", [Skewed(), SubsetSelection(subset_size=2)], ids=lambda m: m.name)
@pytest.mark.parametrize("combine", COMBINES)
def test_the_loss_of_any_mechanisms_reports_is_that_of_the_scores(
    labels: LabelMechanism, combine: Combine
) -> None:
    """-log sum_y p(report | y) p(y), written out node by node."""
    own = collected(y_eps=2.0, labels=labels)
    result = scores_of(own, "lazy", combine)
    p = result.scores.double().softmax(0)
    nodes = (own.labels.classes >= 0).nonzero().flatten()
    expected = -(own.labels.likelihood[:, nodes].double() * p[:, nodes]).sum(0).log().mean()
    assert result.loss == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.parametrize(
    ("setting", "options"),
    [
        ("walk", {"walk": "random"}),
        ("combine", {"combine": "all"}),
        ("aggregator", {"aggregator": "sum"}),
    ],
)
def test_bad_options_are_named(setting: str, options: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        LabelPropagation(**options)
    assert caught.value.setting == setting


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("combine", COMBINES)
@pytest.mark.parametrize(("train", "val"), [(1, 0), (6, 0), (1, 1), (0, 3), (2, 2)])
def test_very_few_labels_are_enough(walk: Walk, combine: Combine, train: int, val: int) -> None:
    own = collected(y_eps=1.0)
    kept = torch.zeros(N, dtype=torch.bool)
    for mask, count in ((own.train_mask, train), (own.val_mask, val)):
        kept[mask.nonzero().flatten()[:count]] = True
    few = dataclasses.replace(
        own,
        train_mask=own.train_mask & kept,
        val_mask=own.val_mask & kept,
        labels=label_reports(torch.where(kept, own.labels.classes, -1), 1.0, C),
    )
    result = scores_of(few, walk, combine)
    assert bool(result.scores.isfinite().all())
    assert math.isfinite(result.loss)


def test_nodes_that_no_label_reaches_keep_scores_of_zero() -> None:
    graph = block_graph()  # the last node is isolated
    for walk in WALKS:
        scores = scores_of(collected(graph=graph), walk).scores
        assert bool(scores.isfinite().all())
        assert bool((scores[:, -1] == 0).all())
