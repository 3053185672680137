import itertools
import math
from functools import partial

import pytest
import torch
from torch import Tensor

from lpgnn.errors import InputError
from lpgnn.privacy import RandomizedResponse, RRWithPrior
from lpgnn.privacy.audit import audit_labels, label_outputs, worst_log_ratio
from lpgnn.privacy.label_mechanism import class_shares

from .pvalues import ALPHA, counts_p_value, seeded

PRIORS = [(0.5, 0.3, 0.15, 0.05), (0.05, 0.5, 0.05, 0.4), (0.9, 0.05, 0.03, 0.02), (0.25,) * 4]
DRAWS = 60_000


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_the_classes_maximise_the_chance_of_the_label(
    prior: tuple[float, ...], epsilon: float
) -> None:
    """Against every set of classes and randomized response among them."""

    def correct(classes: tuple[int, ...]) -> float:
        e = math.exp(epsilon)
        return e / (e + len(classes) - 1) * sum(prior[y] for y in classes)

    sets = [s for k in range(1, 5) for s in itertools.combinations(range(4), k)]
    found = RRWithPrior(epsilon, 4, prior=prior)
    assert correct(tuple(found.top())) == pytest.approx(max(map(correct, sets)))
    table = found.transition()
    assert float((torch.tensor(prior) * table.diagonal()).sum()) == pytest.approx(
        max(map(correct, sets))
    )


@pytest.mark.parametrize("prior", PRIORS)
def test_the_loss_and_the_sampler(prior: tuple[float, ...]) -> None:
    mechanism = RRWithPrior(1.0, 4, prior=prior)
    k, table = len(mechanism.top()), mechanism.transition()
    spent = worst_log_ratio(partial(label_outputs, mechanism), range(4))
    assert spent == pytest.approx(1.0 if k > 1 else 0.0)
    mechanism.check_budget()
    for label in range(4):
        reports = mechanism.perturb(torch.full((DRAWS,), label), generator=seeded(label))
        counts = torch.bincount(reports, minlength=4).tolist()
        possible = [y for y in range(4) if table[label, y] > 0]
        assert sum(counts[y] for y in possible) == DRAWS
        p = [float(table[label, y]) for y in possible]
        assert counts_p_value([counts[y] for y in possible], p) > ALPHA


@pytest.mark.parametrize("prior", PRIORS)
def test_the_estimate_is_unbiased_for_the_likely_classes(prior: tuple[float, ...]) -> None:
    mechanism = RRWithPrior(1.0, 4, prior=prior)
    top = mechanism.top()
    expected = torch.zeros(4, 4, dtype=torch.float64)
    expected[:, top] = 1 / len(top)
    expected[top] = torch.eye(4, dtype=torch.float64)[top]
    reports = torch.tensor(top)
    found = mechanism.transition()[:, top] @ mechanism.estimate(reports).double()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_without_a_prior_everyone_but_the_pilots_uses_theirs() -> None:
    mechanism = RRWithPrior(1.0, 4, pilot_share=0.25)
    labels = torch.tensor([0, 1]).repeat(2000)  # classes 2 and 3 never occur
    labelled = torch.arange(4000) % 5 != 0
    found = mechanism.collect(labels, labelled, generator=seeded())
    assert bool((found.classes[~labelled] == -1).all())
    # A pilot's report may be any class; that of the others is one of two.
    from_pilots = (found.likelihood[:, labelled] > 0).all(0) & (
        (found.estimate[:, labelled] != 0).all(0)
    )
    assert int(from_pilots.sum()) == 800
    late = found.classes[labelled][~from_pilots]
    assert set(late.tolist()) == {0, 1}
    rr, two = RandomizedResponse(1.0, 4).transition(), RandomizedResponse(1.0, 2).transition()
    torch.testing.assert_close(found.transition[:2, :2], 0.25 * rr[:2, :2] + 0.75 * two)
    torch.testing.assert_close(found.transition.sum(1), torch.ones(4, dtype=torch.float64))


def test_the_prior_looks_at_no_label_but_through_the_pilots_reports() -> None:
    """The labels of all others can change without changing who is a pilot or what is estimated."""
    mechanism = RRWithPrior(2.0, 3, pilot_share=0.5)
    labels = torch.randint(3, (300,), generator=seeded(4))
    everyone = torch.ones(300, dtype=torch.bool)
    before = mechanism.collect(labels, everyone, generator=seeded())
    pilots = torch.zeros(300, dtype=torch.bool)
    pilots[torch.randperm(300, generator=seeded())[:150]] = True
    other = torch.where(pilots, labels, (labels + 1) % 3)
    after = mechanism.collect(other, everyone, generator=seeded())
    assert torch.equal(before.transition, after.transition)  # hence the same k
    assert torch.equal(before.classes[pilots], after.classes[pilots])
    assert not torch.equal(before.classes, after.classes)


def test_estimated_shares_of_classes_by_hand() -> None:
    # Means 0.9, 0.4, -0.3: the nearest probabilities are 0.75, 0.25, 0.
    estimates = torch.tensor([[0.8, 1.0], [0.4, 0.4], [-0.2, -0.4]])
    assert class_shares(estimates).tolist() == pytest.approx((0.75, 0.25, 0.0))
    assert class_shares(torch.zeros(4, 0)).tolist() == [0.25] * 4


@pytest.mark.parametrize("given", [True, False], ids=["public prior", "pilots"])
def test_acc_star_is_how_often_a_report_is_the_label(given: bool) -> None:
    """Classes of unequal frequency: the mean of the diagonal is far from it."""
    shares = torch.tensor([0.55, 0.3, 0.1, 0.05], dtype=torch.float64)
    labels = torch.multinomial(shares, DRAWS, replacement=True, generator=seeded(7))
    prior = tuple(shares.tolist()) if given else None
    mechanism = RRWithPrior(1.0, 4, prior=prior)
    everyone = torch.ones(DRAWS, dtype=torch.bool)
    found = mechanism.collect(labels, everyone, generator=seeded(8))
    right = float((found.classes == labels).double().mean())
    # 12,000 pilots estimate a frequency with a standard error of about 0.01.
    assert float(found.accuracy) == pytest.approx(right, abs=0.01 if given else 0.04)
    assert float(found.transition.diagonal().mean()) < right - 0.1


def test_earlier_rows_are_named_and_not_computed() -> None:
    mechanism = RRWithPrior(1.0, 2, shares="equal")
    nodes = torch.zeros(3, dtype=torch.int64)
    with pytest.raises(
        InputError, match=r"shares=equal: names earlier rows; a run must have prior"
    ):
        mechanism.collect(nodes, nodes == 0, generator=seeded())


class KeepsTheRest(RRWithPrior):
    """Broken: a label outside the likely classes is sent as it is."""

    def perturb(self, labels: Tensor, *, generator: torch.Generator) -> Tensor:
        sent = super().perturb(labels, generator=generator)
        return torch.where(torch.isin(labels, torch.tensor(self.top())), sent, labels)


@pytest.mark.parametrize("kind", [RRWithPrior, KeepsTheRest])
def test_the_audit_tells_honest_from_broken(kind: type[RRWithPrior]) -> None:
    mechanism = kind(1.0, 4, prior=PRIORS[0])
    audit = audit_labels(mechanism, draws=20_000, confidence=0.9999, generator=seeded())
    assert audit.verdict == ("holds" if kind is RRWithPrior else "refuted")
    assert audit.finding.epsilon > 0.8


@pytest.mark.parametrize(
    ("options", "setting"),
    [
        ({"prior": (0.5, 0.6)}, "prior"),
        ({"prior": (1.5, -0.5)}, "prior"),
        ({"prior": (0.5, 0.25, 0.25)}, "prior"),  # two classes
        ({"prior": "half"}, "prior"),
        ({"prior": ("0.5", "0.5")}, "prior"),
        ({"prior": 0.5}, "prior"),
        ({"pilot_share": 0.0}, "pilot_share"),
        ({"pilot_share": 1.0}, "pilot_share"),
        ({"shares": "estimated"}, "shares"),
    ],
)
def test_bad_settings_are_named(options: dict[str, object], setting: str) -> None:
    with pytest.raises(InputError) as caught:
        RRWithPrior(1.0, 2, **options)  # type: ignore[arg-type]
    assert caught.value.setting == setting
