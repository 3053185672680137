import math
from fractions import Fraction

import pytest
import torch

from lpgnn.errors import InputError
from lpgnn.privacy import RandomizedResponse
from lpgnn.privacy.exact import greatest_keep_probability, least_label_epsilon

from .pvalues import ALPHA, counts_p_value, seeded


class KeepsTooRarely(RandomizedResponse):
    """Broken: counts c other labels instead of c - 1."""

    def keep_probability(self) -> float:
        return 1 / (1 + self.num_classes * math.exp(-self.epsilon))


def response_p_value(sampler: RandomizedResponse, label: int) -> float:
    """Do the perturbed labels follow Eq. rr?"""
    c = sampler.num_classes
    stay = math.exp(sampler.epsilon)
    expected = [(stay if y == label else 1.0) / (stay + c - 1) for y in range(c)]
    perturbed = sampler.perturb(torch.full((100_000,), label), generator=seeded())
    return counts_p_value(torch.bincount(perturbed, minlength=c).tolist(), expected)


@pytest.mark.parametrize(("epsilon", "c"), [(0.1, 2), (1.0, 3), (1.0, 7), (3.0, 4)])
def test_perturbed_labels_follow_the_formula(epsilon: float, c: int) -> None:
    for label in range(c):
        assert response_p_value(RandomizedResponse(epsilon, c), label) > ALPHA


def test_the_check_rejects_a_wrong_keep_probability() -> None:
    assert response_p_value(KeepsTooRarely(1.0, 4), 2) < ALPHA


def test_probabilities_by_hand() -> None:
    response = RandomizedResponse(math.log(3), 4)  # 3 / (3 + 3) and 1 / (3 + 3)
    assert response.keep_probability() == pytest.approx(1 / 2)
    assert response.flip_probability() == pytest.approx(1 / 6)
    expected = torch.full((4, 4), 1 / 6, dtype=torch.float64).fill_diagonal_(1 / 2)
    torch.testing.assert_close(response.transition(), expected)


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 50.0, 1000.0, math.inf])
def test_probabilities_are_stable(epsilon: float) -> None:
    response = RandomizedResponse(epsilon, 5)
    total = response.keep_probability() + 4 * response.flip_probability()
    assert total == pytest.approx(1, rel=1e-12)
    torch.testing.assert_close(response.transition().sum(dim=1), torch.ones(5, dtype=torch.float64))


def test_an_infinite_budget_is_the_identity_on_a_copy() -> None:
    response = RandomizedResponse(math.inf, 3)
    labels = torch.tensor([0, 2, 1])
    perturbed = response.perturb(labels, generator=seeded())
    assert torch.equal(perturbed, labels)
    assert perturbed.data_ptr() != labels.data_ptr()
    assert torch.equal(response.transition(), torch.eye(3, dtype=torch.float64))


def test_perturbing_depends_on_the_seed_and_leaves_the_labels() -> None:
    labels = torch.arange(5).repeat(20)
    response = RandomizedResponse(1.0, 5)
    first = response.perturb(labels, generator=seeded(0))
    assert torch.equal(first, response.perturb(labels, generator=seeded(0)))
    assert not torch.equal(first, response.perturb(labels, generator=seeded(1)))
    assert torch.equal(labels, torch.arange(5).repeat(20))
    assert first.dtype == torch.int64


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, -math.inf])
def test_bad_budgets_are_refused(epsilon: float) -> None:
    with pytest.raises(InputError, match="y_eps="):
        RandomizedResponse(epsilon, 3)


def test_bad_classes_and_labels_are_refused() -> None:
    with pytest.raises(InputError, match="num_classes=1"):
        RandomizedResponse(1.0, 1)
    for bad in (-1, 3):
        with pytest.raises(InputError, match="labels="):
            RandomizedResponse(1.0, 3).collect(
                torch.tensor([0, bad]), torch.ones(2, dtype=torch.bool), generator=seeded()
            )


@pytest.mark.parametrize("num_classes", [2, 3, 7])
@pytest.mark.parametrize("y_eps", [0.1, 1.0, 4.0, math.inf])
def test_estimated_labels_are_unbiased(num_classes: int, y_eps: float) -> None:
    """The expectation over what randomized response sends is the one-hot label, exactly."""
    response = RandomizedResponse(y_eps, num_classes)
    # Row y' is what the server makes of the report y'.
    of_report = response.estimate(torch.arange(num_classes)).double()
    identity = torch.eye(num_classes, dtype=torch.float64)
    expectation = response.transition() @ of_report  # sum over y' of p(y'|y)
    torch.testing.assert_close(expectation, identity, rtol=0, atol=1e-5)
    if y_eps == math.inf:
        assert torch.equal(of_report, identity)
    else:  # the labels as they were sent are not
        assert not torch.allclose(response.transition(), identity, atol=1e-2)


def test_what_the_server_holds_of_labels_by_hand() -> None:
    # eps = ln 3 with two classes keeps 3 labels of 4: (1 - 1/4) / (1/2) and (0 - 1/4) / (1/2).
    labels = torch.tensor([0, 1, 1, 1])
    labelled = torch.tensor([True, True, False, False])
    response = RandomizedResponse(math.log(3), 2)
    seen = set()
    for seed in range(60):
        found = response.collect(labels, labelled, generator=seeded(seed))
        sent = response.perturb(labels[labelled], generator=seeded(seed)).tolist()
        seen.add(tuple(sent))
        assert found.classes.tolist() == [*sent, -1, -1]
        nothing = torch.zeros(2, 2)
        estimate = torch.tensor([[1.5, -0.5], [-0.5, 1.5]])[sent].t()
        torch.testing.assert_close(found.estimate, torch.cat([estimate, nothing], dim=1))
        likelihood = torch.tensor([[0.75, 0.25], [0.25, 0.75]])[sent].t()
        torch.testing.assert_close(found.likelihood, torch.cat([likelihood, nothing + 1], dim=1))
        assert torch.equal(found.transition, response.transition())
    assert len(seen) == 4  # both kept, one of them flipped, both flipped


@pytest.mark.parametrize("others", [1, 2, 3, 6, 9, 1000])
def test_the_least_budget_is_that_of_drawing_another_label(others: int) -> None:
    """Outputs of p, and of (1 - p) times the most and the least often drawn of the others."""
    most, fewest = -(-(2**32) // others), 2**32 // others
    least = least_label_epsilon(others)
    assert (least == 0) == (most == fewest)
    for epsilon in (max(least, 1e-6), 0.1, 1.0):
        p = Fraction(greatest_keep_probability(epsilon, others))
        chances = [p, (1 - p) * Fraction(most, 2**32), (1 - p) * Fraction(fewest, 2**32)]
        assert log_ratio(max(chances) / min(chances)) <= epsilon
    if least:
        at = Fraction(greatest_keep_probability(least, others))
        chances = [at, (1 - at) * Fraction(most, 2**32), (1 - at) * Fraction(fewest, 2**32)]
        assert log_ratio(max(chances) / min(chances)) <= least
        assert log_ratio(Fraction(most, fewest)) > least * (1 - 1e-9)  # no less would do
        with pytest.raises(InputError, match=r"y_eps=.*must be at least"):
            RandomizedResponse(least * 0.99, others + 1)
        RandomizedResponse(least, others + 1)


def log_ratio(ratio: Fraction) -> float:
    return math.log1p(float(ratio - 1))
