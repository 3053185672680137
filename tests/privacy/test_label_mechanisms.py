"""The interface of label mechanisms: the defaults of those that report a class, and one of
another kind.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from lpgnn.errors import InputError
from lpgnn.privacy import (
    ClassMechanism,
    ExactLabels,
    LabelMechanism,
    LaplaceOneHot,
    RandomizedResponse,
    RRWithPrior,
    SubsetSelection,
)
from lpgnn.privacy.audit import worst_log_ratio

from .own_mechanisms import Skewed
from .pvalues import ALPHA, counts_p_value, seeded

DRAWS = 100_000


@dataclass(frozen=True)
class Tabled(ClassMechanism):
    """Randomized response by nothing but its table of probabilities."""

    def transition(self) -> Tensor:
        return RandomizedResponse(self.epsilon, self.num_classes).transition()


@dataclass(frozen=True)
class OffByOne(Tabled):
    """Broken: the draw is compared with the sum that ends after the class before."""

    def perturb(self, labels: Tensor, *, generator: torch.Generator) -> Tensor:
        return (super().perturb(labels, generator=generator) + 1) % self.num_classes


def sampling_p_value(mechanism: ClassMechanism, label: int) -> float:
    """Chi-square: are reports drawn with the probabilities of the label's row?"""
    reports = mechanism.perturb(torch.full((DRAWS,), label), generator=seeded(label))
    counts = torch.bincount(reports, minlength=mechanism.num_classes)
    expected = DRAWS * mechanism.transition()[label]
    possible = expected > 0
    assert int(counts[~possible].sum()) == 0
    return float(chisquare(counts[possible].numpy(), expected[possible].numpy()).pvalue)


@pytest.mark.parametrize("mechanism", [Tabled(1.0, 4), Tabled(0.1, 2), Skewed(1.0, 3)], ids=repr)
def test_reports_are_drawn_from_the_row_of_the_label(mechanism: ClassMechanism) -> None:
    for label in range(mechanism.num_classes):
        assert sampling_p_value(mechanism, label) > ALPHA


def test_the_sampling_check_rejects_a_broken_sampler() -> None:
    assert sampling_p_value(OffByOne(1.0, 4), 0) < ALPHA


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0, 60.0])
@pytest.mark.parametrize("c", [2, 3, 7])
def test_the_defaults_equal_the_closed_forms_of_randomized_response(epsilon: float, c: int) -> None:
    tabled, closed = Tabled(epsilon, c), RandomizedResponse(epsilon, c)
    every_report = torch.arange(c)
    keep, flip = closed.keep_probability(), closed.flip_probability()
    expected = torch.full((c, c), flip, dtype=torch.float64).fill_diagonal_(keep)
    assert torch.equal(tabled.likelihood(every_report), expected)
    assert torch.equal(closed.likelihood(every_report), expected)
    inverse = (torch.eye(c, dtype=torch.float64) - flip) / (keep - flip)
    torch.testing.assert_close(tabled.estimate(every_report), inverse, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(
        closed.estimate(every_report).double(), inverse, rtol=1e-5, atol=1e-5
    )
    reports = torch.tensor([0, c - 1, 1])
    for mechanism in (tabled, closed):
        assert torch.equal(mechanism.likeliest(reports, generator=seeded()), reports)


def test_the_likelihood_of_a_report_is_a_column_of_the_table() -> None:
    """By hand, where rows and columns are not the same."""
    found = Skewed(1.0, 3).likelihood(torch.tensor([0, 2]))
    expected = torch.tensor([[0.7, 0.05, 0.3], [0.1, 0.0, 0.4]], dtype=torch.float64)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("mechanism", [Tabled(0.3, 5), Skewed(1.0, 3)], ids=repr)
def test_the_default_estimate_is_unbiased(mechanism: ClassMechanism) -> None:
    c = mechanism.num_classes
    of_report = mechanism.estimate(torch.arange(c))
    identity = torch.eye(c, dtype=torch.float64)
    torch.testing.assert_close(mechanism.transition() @ of_report, identity)
    # The transposed table would be another mechanism's estimate.
    swapped = torch.linalg.inv(mechanism.transition().t())
    symmetric = torch.equal(mechanism.transition(), mechanism.transition().t())
    assert torch.allclose(mechanism.transition() @ swapped, identity) == symmetric


def test_exact_labels() -> None:
    exact, labels = ExactLabels(math.inf, 3), torch.tensor([2, 0, 1, 2])
    sent = exact.perturb(labels, generator=seeded())
    assert torch.equal(sent, labels)
    assert sent.data_ptr() != labels.data_ptr()
    found = exact.collect(labels, torch.tensor([True, True, True, False]), generator=seeded())
    assert found.classes.tolist() == [2, 0, 1, -1]
    one_hot = torch.tensor([[0.0, 1, 0], [0, 0, 1], [1, 0, 0]])
    assert torch.equal(found.likelihood, torch.cat([one_hot, torch.ones(3, 1)], dim=1))
    assert torch.equal(found.estimate, torch.cat([one_hot, torch.zeros(3, 1)], dim=1))
    assert torch.equal(found.transition, torch.eye(3, dtype=torch.float64))


@pytest.mark.parametrize(
    "kind", [RandomizedResponse, SubsetSelection, LaplaceOneHot, RRWithPrior, Tabled]
)
def test_a_mechanism_is_bound_by_the_run(kind: Callable[..., LabelMechanism]) -> None:
    unbound = kind()
    assert not unbound.is_bound
    bound = unbound.bind(2.0, 5)
    assert bound == kind(2.0, 5)
    assert bound.options() == unbound.options()
    for epsilon in (0.0, -1.0, math.nan):
        with pytest.raises(InputError, match="y_eps="):
            unbound.bind(epsilon, 5)
    with pytest.raises(InputError, match="num_classes="):
        unbound.bind(1.0, 1)


SUBSETS = [
    SubsetSelection(1.0, 4, subset_size=2),
    SubsetSelection(0.3, 5, subset_size=3),
    SubsetSelection(3.0, 3, subset_size=1),
]


def every_subset(mechanism: SubsetSelection) -> Tensor:
    """All reports there are.  -> [S, c]"""
    c = mechanism.num_classes
    chosen = list(itertools.combinations(range(c), mechanism.w))
    reports = torch.zeros(len(chosen), c)
    for row, subset in zip(reports, chosen, strict=True):
        row[list(subset)] = 1
    return reports


@pytest.mark.parametrize("mechanism", SUBSETS, ids=repr)
def test_subset_selection_is_unbiased_and_private(mechanism: SubsetSelection) -> None:
    """By enumeration of all reports."""
    reports, c = every_subset(mechanism), mechanism.num_classes
    p = mechanism.likelihood(reports).double()  # [S, c]: p(report | class)
    torch.testing.assert_close(p.sum(0), torch.ones(c, dtype=torch.float64))
    expectation = p.t() @ mechanism.estimate(reports).double()
    identity = torch.eye(c, dtype=torch.float64)
    torch.testing.assert_close(expectation, identity, rtol=0, atol=1e-5)

    def outputs(label: int) -> dict[int, float]:
        return dict(enumerate(p[:, label].log().tolist()))

    assert worst_log_ratio(outputs, range(c)) == pytest.approx(mechanism.epsilon, rel=1e-5)


def enumerated_transition(mechanism: SubsetSelection) -> Tensor:
    """p(likeliest class | label): each report's mass, shared by the classes that tie."""
    reports = every_subset(mechanism)
    p = mechanism.likelihood(reports).double()
    top = (p == p.amax(1, keepdim=True)).double()
    return p.t() @ (top / top.sum(1, keepdim=True))


@dataclass(frozen=True)
class ForgetsTies(SubsetSelection):
    """Broken: takes the report for the label whenever the label is in it."""

    def transition(self) -> Tensor:
        c, right = self.num_classes, self.own_probability()
        wrong = torch.full((c, c), (1 - right) / (c - 1), dtype=torch.float64)
        return wrong.fill_diagonal_(right)


@pytest.mark.parametrize("mechanism", SUBSETS, ids=repr)
def test_the_transition_counts_ties(mechanism: SubsetSelection) -> None:
    expected = enumerated_transition(mechanism)
    torch.testing.assert_close(mechanism.transition(), expected, rtol=1e-5, atol=1e-7)
    broken = ForgetsTies(
        mechanism.epsilon, mechanism.num_classes, subset_size=mechanism.w
    ).transition()
    assert torch.allclose(broken, expected, atol=1e-3) == (mechanism.w == 1)


def collected_p_value(mechanism: SubsetSelection, label: int, expected: list[float]) -> float:
    """Are the classes that the server reads from reports distributed like this?"""
    labels = torch.full((DRAWS,), label)
    everyone = torch.ones(DRAWS, dtype=torch.bool)
    classes = mechanism.collect(labels, everyone, generator=seeded()).classes
    counts = torch.bincount(classes, minlength=mechanism.num_classes).tolist()
    return counts_p_value(counts, expected)


@dataclass(frozen=True)
class FirstOfTies(SubsetSelection):
    """Broken: the first of the likeliest classes, not a random one."""

    def likeliest(self, reports: Tensor, *, generator: torch.Generator) -> Tensor:
        return self.likelihood(reports).argmax(1)


@pytest.mark.parametrize("mechanism", SUBSETS, ids=repr)
def test_ties_are_broken_at_random(mechanism: SubsetSelection) -> None:
    expected = enumerated_transition(mechanism)
    broken = FirstOfTies(mechanism.epsilon, mechanism.num_classes, subset_size=mechanism.w)
    for label in range(mechanism.num_classes):
        row = expected[label].tolist()
        assert collected_p_value(mechanism, label, row) > ALPHA
        assert (collected_p_value(broken, label, row) > ALPHA) == (mechanism.w == 1)


def test_subsets_are_drawn_with_their_likelihood() -> None:
    mechanism = SUBSETS[0]
    sent = mechanism.perturb(torch.full((DRAWS,), 2), generator=seeded())
    counts = Counter(map(tuple, sent.tolist()))
    reports = every_subset(mechanism)
    p = mechanism.likelihood(reports)[:, 2].double().tolist()
    assert counts_p_value([counts[tuple(row)] for row in reports.tolist()], p) > ALPHA


def test_what_the_server_holds_of_subsets() -> None:
    """Each column belongs to its own node's report."""
    mechanism, labels = SubsetSelection(1.0, 4, subset_size=2), torch.arange(40) % 4
    labelled = torch.arange(40) % 5 != 0
    found = mechanism.collect(labels, labelled, generator=seeded(3))
    reports = mechanism.perturb(labels[labelled], generator=seeded(3))
    likelihood, estimate = mechanism.likelihood(reports), mechanism.estimate(reports)
    torch.testing.assert_close(found.likelihood[:, labelled], likelihood.t().float())
    torch.testing.assert_close(found.estimate[:, labelled], estimate.t().float())
    assert bool((found.likelihood[:, ~labelled] == 1).all())
    assert bool((found.estimate[:, ~labelled] == 0).all())
    assert bool((found.classes[~labelled] == -1).all())
    # The class that is read from a report is one of it.
    read = reports.gather(1, found.classes[labelled][:, None])
    assert bool((read == 1).all())


def test_subsets_of_one_class_are_randomized_response() -> None:
    subset, response = SubsetSelection(1.3, 5, subset_size=1), RandomizedResponse(1.3, 5)
    reports = torch.arange(5)
    one_hot = torch.eye(5)
    for of_subset, of_class in (
        (subset.likelihood(one_hot), response.likelihood(reports)),
        (subset.estimate(one_hot), response.estimate(reports)),
        (subset.transition(), response.transition()),
    ):
        torch.testing.assert_close(of_subset.double(), of_class.double(), rtol=1e-5, atol=1e-5)


def test_labels_out_of_range_are_refused() -> None:
    everyone = torch.ones(2, dtype=torch.bool)
    for mechanism in (
        SubsetSelection(1.0, 3, subset_size=2),
        Tabled(1.0, 3),
        ExactLabels(math.inf, 3),
    ):
        collect = partial(mechanism.collect, generator=seeded())
        for bad in (-1, 3):
            with pytest.raises(InputError, match=r"labels=.*must lie in 0\.\.2"):
                collect(torch.tensor([0, bad]), everyone)
            # A node without a report may have any label: nobody looks at it.
            collect(torch.tensor([0, bad]), torch.tensor([True, False]))


@dataclass(frozen=True)
class _Spender(ClassMechanism):
    """Randomized response at a multiple of its budget."""

    factor: float = 1.0

    def transition(self) -> Tensor:
        return RandomizedResponse(self.factor * self.epsilon, self.num_classes).transition()


def test_a_table_that_spends_more_than_its_budget_is_refused() -> None:
    labels, labelled = torch.arange(3).repeat(4), torch.ones(12, dtype=torch.bool)
    for factor in (0.5, 1.0):
        _Spender(1.0, 3, factor).collect(labels, labelled, generator=seeded())
    with pytest.raises(InputError, match=r"must spend no more than y_eps=1, but spends 2"):
        _Spender(1.0, 3, 2.0).collect(labels, labelled, generator=seeded())
