import math
from decimal import Decimal

import pytest
import torch
from torch import Tensor

from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError
from lpgnn.privacy import FeatureReports, SquareWave
from lpgnn.privacy.audit import audit_features
from lpgnn.privacy.sliding_window import STEPS
from lpgnn.privacy.square_wave import bin_probabilities, estimated_distribution

from .pvalues import ALPHA, moments_p_value, seeded

NODES = 100_000


def repeated(x: Tensor, n: int = NODES) -> CsrMatrix:
    return CsrMatrix.from_dense(x.expand(n, -1))


@pytest.mark.parametrize("e", [1e-5, 1e-3, 0.1, 1.0, 2.5, 8.0])
def test_the_width_is_that_of_the_paper(e: float) -> None:
    with_digits = Decimal(e)
    grown = with_digits.exp()
    b = (with_digits * grown - grown + 1) / (2 * grown * (grown - 1 - with_digits))
    window = SquareWave(e, 1).window()
    assert window.width / STEPS == pytest.approx(float(2 * b), abs=1 / STEPS)


@pytest.mark.parametrize(("epsilon", "d"), [(0.5, 3), (5.5, 4)])
def test_reports_are_unbiased_with_the_stated_variance(epsilon: float, d: int) -> None:
    mechanism, x = SquareWave(epsilon, d), torch.linspace(0, 1, d)
    rectified = mechanism.perturb(repeated(x), generator=seeded()).rectified()
    assert moments_p_value(rectified, x, mechanism.variance(x)) > ALPHA
    assert moments_p_value(rectified, x, 1.05 * mechanism.variance(x)) < ALPHA


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_the_budget_is_kept_exactly(epsilon: float) -> None:
    spent = float(SquareWave(epsilon, 5).spent())
    assert spent <= epsilon
    assert spent == pytest.approx(epsilon, rel=1e-8)


class AsPublished(SquareWave):
    """What PrivGE's program does: two of three kinds are drawn around zero, not the number."""

    def randomize(self, t: Tensor, *, generator: torch.Generator) -> Tensor:
        e = math.exp(self.value_epsilon)
        b = self.window().width / STEPS
        p = e / (2 * b * e + 2)
        draw, place = torch.rand(2, *t.shape, dtype=torch.float64, generator=generator)
        left = p / e * (t + 1)
        middle = torch.where(draw < left + 2 * b * p, 2 * b * place - b, place + b)
        return torch.where(draw < left, place * (t + 1) - b - 1, middle)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [SquareWave, AsPublished])
def test_the_audit_tells_honest_from_published(kind: type[SquareWave]) -> None:
    audit = audit_features(kind(1.0, 1), draws=20_000, confidence=0.9999, generator=seeded())
    if kind is SquareWave:
        assert audit.verdict == "holds"
        assert audit.finding.epsilon > 0.5
    else:
        assert audit.finding.epsilon > 3.0


def test_bins_have_their_share_of_reports() -> None:
    window = SquareWave(1.2, 1).window()
    table = bin_probabilities(window)
    torch.testing.assert_close(table.sum(0), torch.ones(65, dtype=torch.float64))
    t = torch.linspace(-1, 1, 65, dtype=torch.float64)[20]
    cells = window.draw(t.expand(200_000), generator=seeded())
    bins = (cells * (256 / (STEPS + window.width))).long()
    counts = torch.bincount(bins, minlength=256).double()
    expected = 200_000 * table[:, 20]
    chi = float(((counts - expected) ** 2 / expected).sum())
    assert abs(chi - 255) < 6 * math.sqrt(2 * 255)


def test_em_finds_the_distribution_of_two_values() -> None:
    """A fifth of ones among zeros, at a budget that shows it."""
    table = bin_probabilities(SquareWave(3.0, 1).window())
    truth = torch.zeros(65, dtype=torch.float64)
    truth[0], truth[-1] = 0.8, 0.2
    counts = 100_000 * table @ truth
    found = estimated_distribution(table, counts, 3.0)
    assert float(found.sum()) == pytest.approx(1.0)
    assert float(found[:8].sum()) == pytest.approx(0.8, abs=0.05)
    assert float(found[-8:].sum()) == pytest.approx(0.2, abs=0.05)

    def likelihood(f: Tensor) -> float:
        return float((counts * (table @ f).log()).sum())

    uniform = torch.full_like(truth, 1 / 65)
    assert likelihood(uniform) < likelihood(found) <= likelihood(truth) + 1e-6


def collected(estimate: str, x: CsrMatrix) -> FeatureReports:
    mechanism = SquareWave(3.0, 6, estimate=estimate)  # type: ignore[arg-type]
    return mechanism.received(mechanism.perturb(x, generator=seeded()))


def test_em_is_nearer_to_the_features_and_stays_sparse() -> None:
    clean = (torch.rand(5000, 6, generator=seeded(1)) < 0.2).float()
    x = CsrMatrix.from_dense(clean)
    unbiased, em = collected("unbiased", x), collected("em", x)
    errors = [float((r.rectified() - clean).square().mean()) for r in (unbiased, em)]
    assert errors[1] < 0.16 < 2.0 < errors[0]  # 0.16: of a constant
    assert em.form == "sparse"
    assert isinstance(em.sent, CsrMatrix)
    assert isinstance(unbiased.sent, CsrMatrix)
    assert torch.equal(em.sent.indices, unbiased.sent.indices)
    assert em.offset == pytest.approx(0.2, abs=0.05)
    spread = (em.rectified() - em.offset).double().square().mean().sqrt()
    assert em.magnitude == pytest.approx(float(spread), rel=1e-5)
    # What is sampled is between the ends.
    values = em.sent.values + em.offset
    assert 0 <= float(values.min()) < float(values.max()) <= 1


def test_deviations_are_the_estimates_less_the_mean_of_all() -> None:
    x = CsrMatrix.from_dense((torch.rand(500, 6, generator=seeded(1)) < 0.2).float())
    em, deviation = collected("em", x), collected("em_deviation", x)
    assert (deviation.offset, deviation.magnitude) == (0.0, em.magnitude)
    torch.testing.assert_close(deviation.rectified() + em.offset, em.rectified())
    assert em.magnitude is not None
    assert em.offset > em.magnitude  # what all nodes share is larger than what they differ in


def test_em_of_blank_reports_is_finite() -> None:
    reports = collected("em", CsrMatrix.from_dense(torch.zeros(500, 6)))
    assert bool(reports.rectified().isfinite().all())
    assert reports.magnitude is not None
    assert reports.magnitude > 0


def test_unknown_estimates_are_refused() -> None:
    with pytest.raises(InputError, match="estimate=mle: must be unbiased, em or em_deviation"):
        SquareWave(estimate="mle")  # type: ignore[arg-type]
