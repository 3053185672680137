"""Label reports as the losses read them, against dense formulas in double precision."""

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lpgnn.learners import LabelBatch
from lpgnn.learners.batch import FLOOR, masked_mean, mean_weight, one_hot
from lpgnn.privacy import (
    ClassMechanism,
    Collected,
    LabelMechanism,
    RandomizedResponse,
    SubsetSelection,
)
from privacy.own_mechanisms import Skewed
from propagation.graphs import CPU, seeded

from .block_graph import C, N, block_graph, collected


def batch_of(*reports: Collected) -> LabelBatch:
    return LabelBatch.of(reports, CPU)


def some_logits(runs: int = 1, scale: float = 2.0) -> Tensor:
    return scale * torch.randn(runs, C, N, generator=seeded(9))


def reports_and_mechanism(
    mechanism: LabelMechanism, repeat: int = 0
) -> tuple[Collected, LabelMechanism]:
    bound = mechanism.bind(1.0, C)
    return collected(repeat, labels=mechanism), bound


MECHANISMS: list[LabelMechanism] = [RandomizedResponse(), Skewed(), SubsetSelection(subset_size=2)]
every_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: m.name)
CLASS_MECHANISMS: list[ClassMechanism] = [RandomizedResponse(), Skewed()]


@pytest.mark.parametrize("mechanism", CLASS_MECHANISMS, ids=lambda m: m.name)
@pytest.mark.parametrize("scale", [1.0, 10.0, 300.0])
def test_surprise_equals_the_dense_formula(mechanism: ClassMechanism, scale: float) -> None:
    """-log(sum_y p(report | y) p(y | x) + FLOOR), node by node; reports are classes here."""
    own, bound = reports_and_mechanism(mechanism)
    logits = some_logits(scale=scale).requires_grad_()
    found = batch_of(own).surprise(logits)
    rows = logits.detach()[0].t().double().requires_grad_()  # [N, c]
    noisy = rows.softmax(1) @ bound.transition()  # p(report | x)
    labelled = own.labels.classes >= 0
    nodes = labelled.nonzero().flatten()
    expected = -(noisy[nodes, own.labels.classes[nodes]] + FLOOR).log()
    torch.testing.assert_close(found[0, nodes].double(), expected, rtol=1e-3, atol=1e-5)
    assert bool((found[0, ~labelled].abs() < 1e-6).all())  # no report, no surprise
    (gradient,) = torch.autograd.grad(found.sum(), logits)
    (wanted,) = torch.autograd.grad(expected.sum(), rows)
    # A saturated model's steepest entry hardly moves; the others' do.
    assert (float(wanted.abs().max()) > 1e-2) == (scale <= 100)
    torch.testing.assert_close(gradient[0].t().double(), wanted, rtol=1e-3, atol=1e-4)


def test_the_skewed_table_is_not_read_the_wrong_way_round() -> None:
    """The transposed table gives another surprise: the check above can fail."""
    own, bound = reports_and_mechanism(Skewed())
    p = some_logits()[0].t().double().softmax(1)
    nodes = (own.labels.classes >= 0).nonzero().flatten()
    sent = own.labels.classes[nodes]
    right, wrong = (
        -(p @ table)[nodes, sent].log() for table in (bound.transition(), bound.transition().t())
    )
    assert float((right - wrong).abs().max()) > 0.1


def test_surprise_of_subsets_equals_the_dense_formula() -> None:
    mechanism = SubsetSelection(1.0, C, subset_size=2)
    own = collected(labels=SubsetSelection(subset_size=2))
    labelled = own.train_mask | own.val_mask
    # The same draws as in the collection.
    sent = mechanism.perturb(block_graph().labels[labelled], generator=seeded(200))
    logits = some_logits()
    p = logits[0].t().double().softmax(1)[labelled]
    likelihood = torch.where(
        sent > 0, mechanism.own_probability() / 2, (1 - mechanism.own_probability()) / 1
    ).double()  # two classes of three: C(2, 1) subsets with the own class, C(2, 2) without
    expected = -(likelihood * p).sum(1).log()
    found = batch_of(own).surprise(logits)
    torch.testing.assert_close(found[0, labelled].double(), expected, rtol=1e-5, atol=1e-5)


@every_mechanism
def test_the_noisy_posterior_is_the_transition_applied(mechanism: LabelMechanism) -> None:
    own, bound = reports_and_mechanism(mechanism)
    logits = some_logits()
    found = batch_of(own).noisy_posterior(logits)
    expected = torch.einsum("yn,yk->kn", logits[0].double().softmax(0), bound.transition())
    torch.testing.assert_close(found[0].double(), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.sum(1), torch.ones(1, N))


def test_tables_that_need_no_matrix_are_recognised() -> None:
    widths = [batch_of(collected(labels=m)).noise_excess.shape[2] for m in MECHANISMS]
    assert widths == [1, C, 1]


def test_the_matrix_path_equals_the_diagonal_path() -> None:
    own = [collected(run, y_eps=y_eps) for run, y_eps in enumerate((0.5, 2.0, math.inf))]
    diagonal = batch_of(*own)
    assert diagonal.noise_excess.shape == (3, C, 1)
    matrix = dataclasses.replace(
        diagonal, noise_excess=torch.diag_embed(diagonal.noise_excess[:, :, 0])
    )
    logits = some_logits(3)
    torch.testing.assert_close(matrix.noisy_posterior(logits), diagonal.noisy_posterior(logits))


def test_mechanisms_may_differ_side_by_side() -> None:
    """A run without a need for a matrix beside one that has it."""
    own = [collected(0), collected(1, labels=Skewed()), collected(2, y_eps=math.inf)]
    together, logits = batch_of(*own), some_logits(3)
    assert together.noise_excess.shape == (3, C, C)
    for run, reports in enumerate(own):
        alone, single = batch_of(reports), logits[run : run + 1]
        torch.testing.assert_close(
            together.noisy_posterior(logits)[run], alone.noisy_posterior(single)[0]
        )
        assert torch.equal(together.surprise(logits)[run], alone.surprise(single)[0])


def test_noisy_probabilities_by_hand() -> None:
    """Three classes, e^eps = 4: keep 2/3, flip 1/6; p = (0.8, 0.1, 0.1) becomes
    (17/30, 13/60, 13/60): 1/6 + 1/2 * 0.8 and 1/6 + 1/2 * 0.1.
    """
    own = collected(y_eps=math.log(4))
    logits = torch.tensor([0.8, 0.1, 0.1]).log()[None, :, None].expand(1, C, N)
    batch = batch_of(own)
    expected = torch.tensor([17 / 30, 13 / 60, 13 / 60])
    torch.testing.assert_close(batch.noisy_posterior(logits)[0, :, 5], expected)
    surprise = batch.surprise(logits)[0]
    for node, sent in enumerate(own.labels.classes.tolist()):
        wanted = 0.0 if sent < 0 else -math.log(expected[sent])
        assert float(surprise[node]) == pytest.approx(wanted, abs=1e-6)
    exact = batch.taken_as_exact()
    torch.testing.assert_close(exact.noisy_posterior(logits), logits.exp())


@every_mechanism
def test_taken_as_exact_is_plain_cross_entropy(mechanism: LabelMechanism) -> None:
    own, _ = reports_and_mechanism(mechanism)
    batch, logits = batch_of(own).taken_as_exact(), some_logits()
    labelled = own.labels.classes >= 0
    expected = F.cross_entropy(
        logits[0].t()[labelled], own.labels.classes[labelled], reduction="none"
    )
    surprise = batch.surprise(logits)[0]
    torch.testing.assert_close(surprise[labelled], expected)
    assert bool((surprise[~labelled] == 0).all())
    assert batch.accuracy_bound.tolist() == [1.0]
    torch.testing.assert_close(batch.noisy_posterior(logits), logits.softmax(1))
    assert torch.equal(batch.classes[0], own.labels.classes)
    assert torch.equal(batch.train[0].bool(), own.train_mask)


@every_mechanism
def test_the_accuracy_bound_is_how_often_the_class_read_is_right(mechanism: LabelMechanism) -> None:
    own, bound = reports_and_mechanism(mechanism)
    # By class, and by how frequent the reports say that a class is.
    expected = float(own.labels.shares @ bound.transition().diagonal())
    assert float(batch_of(own).accuracy_bound[0]) == pytest.approx(expected, rel=1e-6)
    if isinstance(bound, RandomizedResponse):
        assert expected == pytest.approx(bound.keep_probability())


def test_masks_and_means_by_hand() -> None:
    own = collected()
    batch = batch_of(own)
    x = torch.arange(float(N))[None]
    assert float(batch.train_mean(x)) == pytest.approx(float(x[0, own.train_mask].mean()))
    assert float(batch.val_mean(x)) == pytest.approx(float(x[0, own.val_mask].mean()))
    assert torch.equal(batch.train[0], own.train_mask.float())
    assert torch.equal(batch.val[0], own.val_mask.float())


def test_one_hot_and_mean_weight_by_hand() -> None:
    classes = torch.tensor([[2, -1, 0], [1, 1, -1]])
    mask = torch.tensor([[True, False, True], [False, True, False]])
    expected = torch.zeros(2, 3, 3)
    expected[0, 2, 0] = expected[0, 0, 2] = expected[1, 1, 1] = 1
    assert torch.equal(one_hot(classes, mask, 3), expected)
    expected[0] /= 2
    assert torch.equal(mean_weight(one_hot(classes, mask, 3)), expected)
    assert torch.equal(mean_weight(torch.zeros(1, 4)), torch.zeros(1, 4))  # nobody: no 0 / 0


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
