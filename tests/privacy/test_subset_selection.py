"""What is special to subset selection; its moments and its ratio are among all label mechanisms."""

import math

import pytest
import torch
from torch import Tensor

from lpgnn.errors import InputError
from lpgnn.privacy import SubsetSelection
from lpgnn.privacy.audit import audit_labels

from .pvalues import seeded


def test_the_size_of_a_subset() -> None:
    sizes = {(0.01, 10): 5, (1.0, 7): 2, (1.0, 4): 1, (2.0, 40): 5, (8.0, 3): 1}
    assert {key: SubsetSelection(*key).w for key in sizes} == sizes


def error(epsilon: float, c: int, w: int) -> float:
    """The sum of the estimate's variances: q (1 - q) of c - 1 entries and p (1 - p) of one."""
    p = w * math.exp(epsilon) / (w * math.exp(epsilon) + c - w)
    q = (w - p) / (c - 1)
    return (p * (1 - p) + (c - 1) * q * (1 - q)) / (p - q) ** 2


@pytest.mark.parametrize(("epsilon", "c"), [(0.1, 4), (1.0, 7), (1.0, 18), (3.0, 40)])
def test_the_default_size_is_the_best_or_next_to_it(epsilon: float, c: int) -> None:
    errors = [error(epsilon, c, w) for w in range(1, c)]
    assert errors[SubsetSelection(epsilon, c).w - 1] <= 1.03 * min(errors)


def test_the_budget_is_kept_with_rounding() -> None:
    for epsilon, c in ((1e-4, 3), (0.5, 18), (2.0, 70), (30.0, 5)):
        spent = float(SubsetSelection(epsilon, c).spent())
        assert spent <= epsilon
        assert spent == pytest.approx(epsilon, rel=1e-3 if epsilon < 1e-3 or epsilon > 20 else 1e-6)


class OwnTooOften(SubsetSelection):
    """Broken: the own class is in as often as if only one class was sent."""

    def perturb(self, labels: Tensor, *, generator: torch.Generator) -> Tensor:
        eager = SubsetSelection(2 * self.epsilon, self.num_classes, self.subset_size)
        return eager.perturb(labels, generator=generator)


def test_the_audit_refutes_a_broken_one() -> None:
    broken = OwnTooOften(1.0, 5, subset_size=2)
    assert audit_labels(broken, draws=20_000, confidence=0.9999, generator=seeded()).refuted


@pytest.mark.parametrize("bad", [0, 4, True, 1.5])
def test_sizes_out_of_range_are_refused(bad: int) -> None:
    with pytest.raises(InputError, match=r"subset_size=.*1\.\.3"):
        SubsetSelection(1.0, 4, subset_size=bad)
