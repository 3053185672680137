import itertools
import math
from collections import Counter

import pytest
import torch

from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError
from lpgnn.privacy import Duchi, FeatureReports, OneBit
from lpgnn.privacy.audit import audit_features, corners, worst_log_ratio

from .pvalues import ALPHA, counts_p_value, moments_p_value, seeded

NODES = 60_000


def outputs(mechanism: Duchi, x: tuple[float, ...]) -> dict[tuple[int, ...], float]:
    """p(report | x), by enumeration of v and s."""
    d, p = mechanism.num_features, mechanism.positive_probability()
    every = list(itertools.product((-1, 1), repeat=d))
    positive = sum(sum(s) > 0 for s in every)
    table: dict[tuple[int, ...], float] = dict.fromkeys(every, 0.0)
    for v in every:
        of_v = math.prod(one if sign > 0 else 1 - one for sign, one in zip(v, x, strict=True))
        for s in every:
            of_s = p / positive if sum(s) > 0 else (1 - p) / (2**d - positive)
            table[tuple(a * b for a, b in zip(v, s, strict=True))] += of_v * of_s
    return table


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_it_loses_exactly_epsilon(d: int, epsilon: float) -> None:
    mechanism = Duchi(epsilon, d)

    def logs(x: tuple[float, ...]) -> dict[tuple[int, ...], float]:
        return {y: math.log(p) for y, p in outputs(mechanism, x).items()}

    assert worst_log_ratio(logs, corners(mechanism)) == pytest.approx(epsilon, rel=1e-9)
    assert float(mechanism.spent()) == pytest.approx(epsilon, rel=1e-9)
    assert float(mechanism.spent()) <= epsilon


@pytest.mark.parametrize("x", [(0.0, 0.3, 1.0), (0.2, 0.45, 0.9, 0.0)])
def test_it_is_unbiased_with_the_stated_variance(x: tuple[float, ...]) -> None:
    """By enumeration, and as drawn."""
    mechanism = Duchi(1.3, len(x), alpha=0.0, beta=1.0)
    table = outputs(mechanism, x)
    reports = torch.tensor(list(table), dtype=torch.float64)
    p = torch.tensor(list(table.values()), dtype=torch.float64)[:, None]
    rectified = reports * mechanism.scale() + mechanism.offset()
    clean = torch.tensor(x)
    mean = (p * rectified).sum(0)
    torch.testing.assert_close(mean, clean.double(), rtol=0, atol=1e-7)
    variance = (p * (rectified - mean) ** 2).sum(0)
    torch.testing.assert_close(variance, mechanism.variance(clean), rtol=1e-6, atol=0)
    drawn = mechanism.perturb(CsrMatrix.from_dense(clean.expand(NODES, -1)), generator=seeded())
    assert moments_p_value(drawn.rectified(), clean, mechanism.variance(clean)) > ALPHA
    assert isinstance(drawn.sent, torch.Tensor)
    counts = Counter(map(tuple, drawn.sent.tolist()))
    assert counts_p_value([counts[y] for y in table], p[:, 0].tolist()) > ALPHA
    other = outputs(Duchi(1.1, len(x)), x)
    assert counts_p_value([counts[y] for y in table], [other[y] for y in table]) < ALPHA


@pytest.mark.parametrize("d", [1, 2, 7, 10, 61])
def test_the_scale_is_the_closed_form_of_the_paper(d: int) -> None:
    e = math.e
    if d % 2:
        positive, one = 2 ** (d - 1), math.comb(d - 1, (d - 1) // 2)
    else:
        positive, one = 2 ** (d - 1) - math.comb(d, d // 2) // 2, math.comb(d - 1, d // 2)
    expected = (2**d + positive * (e - 1)) / (one * (e - 1))
    assert Duchi(1.0, d).parameters()["B"] == pytest.approx(expected, rel=1e-9)


def test_one_feature_is_one_bit() -> None:
    assert Duchi(1.0, 1).scale() == pytest.approx(OneBit(1.0, 1).scale())


def test_many_features() -> None:
    mechanism = Duchi(1.0, 4714)
    assert float(mechanism.spent()) == pytest.approx(1.0)
    # sqrt(pi d / 2) (e + 1) / (e - 1) for large d
    expected = math.sqrt(math.pi * 4714 / 2) / math.tanh(0.5)
    assert mechanism.parameters()["B"] == pytest.approx(expected, rel=0.01)


class TiesOnBothSides(Duchi):
    """Broken, for two features: balanced signs belong to both sides, each e^eps : 1.

    Of the 3 vectors of either side 2 are balanced, so that these have 1/3 each and the others
    e^eps / 3 (e^eps + 1) and 1 / 3 (e^eps + 1): a loss of ln (e^eps + 1).
    """

    def perturb(self, features: CsrMatrix, *, generator: torch.Generator) -> FeatureReports:
        clean = (2 * features.to_dense() - 1).round()  # of corners only
        e = math.exp(self.epsilon)
        p = torch.tensor([1 / 3, 1 / 3, e / (3 * (e + 1)), 1 / (3 * (e + 1))])
        drawn = torch.multinomial(p, len(clean), replacement=True, generator=generator)
        signs = torch.tensor([[1, -1], [-1, 1], [1, 1], [-1, -1]])[drawn]
        return FeatureReports((clean * signs).to(torch.int8), self.scale(), self.offset())


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Duchi, TiesOnBothSides])
def test_the_audit_tells_honest_from_broken(kind: type[Duchi]) -> None:
    audit = audit_features(kind(1.0, 2), draws=20_000, confidence=0.9999, generator=seeded())
    assert audit.verdict == ("holds" if kind is Duchi else "refuted")
    assert audit.finding.epsilon > 0.8


def test_a_budget_too_small_to_say_anything_is_refused() -> None:
    with pytest.raises(InputError, match="x_eps=1e-17: is too small"):
        Duchi(1e-17, 3)
