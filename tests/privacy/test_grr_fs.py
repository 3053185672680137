import itertools
import math
from collections import Counter
from functools import partial

import pytest
import torch

from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError
from lpgnn.privacy import GrrFs, MultiBit, OneBit
from lpgnn.privacy.audit import audit_features, corners, worst_log_ratio

from .pvalues import ALPHA, counts_p_value, moments_p_value, seeded

NODES = 60_000


def outputs(mechanism: GrrFs, x: tuple[float, ...]) -> dict[tuple[int, ...], float]:
    """log p(report | x), over all samples."""
    d, bits = mechanism.num_features, mechanism.bits()
    one = bits.bit_probability(torch.tensor(x, dtype=torch.float64)).tolist()
    samples = list(itertools.combinations(range(d), bits.m))
    return {
        y: math.log(
            sum(
                math.prod(one[i] if y[i] > 0 else 1 - one[i] for i in sample) / 2 ** (d - bits.m)
                for sample in samples
            )
            / len(samples)
        )
        for y in itertools.product((-1, 1), repeat=d)
    }


@pytest.mark.parametrize(("d", "m"), [(1, 1), (3, 1), (4, 2), (4, 4)])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_it_loses_exactly_epsilon(epsilon: float, d: int, m: int) -> None:
    mechanism = GrrFs(epsilon, d, num_samples=m)
    loss = worst_log_ratio(partial(outputs, mechanism), corners(mechanism))
    assert loss == pytest.approx(epsilon, rel=1e-9)
    assert float(mechanism.spent()) == pytest.approx(epsilon, rel=1e-9)


def test_reports_are_drawn_as_stated() -> None:
    x = (0.0, 0.3, 1.0)
    mechanism, clean = GrrFs(2.0, 3, num_samples=2), torch.tensor(x)
    reports = mechanism.perturb(CsrMatrix.from_dense(clean.expand(NODES, -1)), generator=seeded())
    assert isinstance(reports.sent, torch.Tensor)
    counts = Counter(map(tuple, reports.sent.tolist()))
    for stated, holds in ((mechanism, True), (GrrFs(2.0, 3, num_samples=3), False)):
        table = outputs(stated, x)
        p = [math.exp(v) for v in table.values()]
        assert (counts_p_value([counts[y] for y in table], p) > ALPHA) == holds
    assert moments_p_value(reports.rectified(), clean, mechanism.variance(clean)) > ALPHA
    silent = MultiBit(2.0, 3, num_samples=2).variance(clean)  # not a coin where nothing is sampled
    assert moments_p_value(reports.rectified(), clean, silent) < ALPHA


def test_all_features_are_one_bit() -> None:
    x = torch.tensor([0.0, 0.3, 1.0])
    torch.testing.assert_close(GrrFs(2.0, 3, num_samples=3).variance(x), OneBit(2.0, 3).variance(x))
    assert GrrFs(7.0, 30).parameters() == MultiBit(7.0, 30).parameters() == {"m": 3.0}


class PerFeature(GrrFs):
    """Broken, as a total: eps for each feature that is sampled."""

    def bits(self) -> MultiBit:
        m = super().bits().m
        return MultiBit(m * self.epsilon, self.num_features, num_samples=m)


@pytest.mark.slow
def test_the_audit_refutes_a_budget_per_feature() -> None:
    broken = PerFeature(1.0, 3, num_samples=3)
    audit = audit_features(broken, draws=20_000, confidence=0.9999, generator=seeded())
    assert audit.finding.epsilon > 1.5


@pytest.mark.parametrize("bad", [0, 4])
def test_samples_out_of_range_are_refused(bad: int) -> None:
    with pytest.raises(InputError, match=r"num_samples=.*1\.\.3"):
        GrrFs(1.0, 3, num_samples=bad)
