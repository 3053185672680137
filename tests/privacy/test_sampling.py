import itertools
import math
from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from lpgnn.privacy.multi_bit import sample_dimensions

from .pvalues import ALPHA, counts_p_value, seeded

DRAWS = 60_000


def uniformity_p_value(sample: Callable[[int, int, int], Tensor], d: int, m: int) -> float:
    """Is every m-subset of range(d) equally likely?"""
    counts = Counter(map(tuple, sample(DRAWS, d, m).tolist()))
    subsets = list(itertools.combinations(range(d), m))
    assert set(counts) <= set(subsets)
    return counts_p_value([counts[s] for s in subsets], [1 / math.comb(d, m)] * len(subsets))


def correct(n: int, d: int, m: int) -> Tensor:
    return sample_dimensions(n, d, m, generator=seeded())


def moves_repeats_on(n: int, d: int, m: int) -> Tensor:
    """Broken: a repeat takes the next dimension instead of a fresh draw (m = 2 only)."""
    sampled = torch.randint(d, (n, m), generator=seeded())
    repeat = sampled[:, 0] == sampled[:, 1]
    sampled[repeat, 1] = (sampled[repeat, 1] + 1) % d
    return sampled.sort(dim=1).values


@pytest.mark.slow
# 8 m <= d is the regime of redrawn repeats, the others that of the mask.
@pytest.mark.parametrize(
    ("d", "m"), [(8, 1), (16, 2), (24, 3), (5, 1), (5, 2), (5, 3), (6, 5), (4, 4), (1, 1)]
)
def test_every_subset_is_equally_likely(d: int, m: int) -> None:
    assert uniformity_p_value(correct, d, m) > ALPHA


@pytest.mark.parametrize("d", [5, 16])
def test_the_check_rejects_a_biased_sampler(d: int) -> None:
    assert uniformity_p_value(moves_repeats_on, d, 2) < ALPHA


def test_nodes_draw_independently() -> None:
    sampled = correct(2 * DRAWS, 8, 1).view(DRAWS, 2)
    counts = Counter(map(tuple, sampled.tolist()))
    pairs = list(itertools.product(range(8), repeat=2))
    assert counts_p_value([counts[p] for p in pairs], [1 / 64] * 64) > ALPHA


@pytest.mark.parametrize(("d", "m"), [(1000, 100), (1000, 700), (1000, 1000), (5000, 1)])
def test_dimensions_ascend_without_repeats(d: int, m: int) -> None:
    sampled = correct(50, d, m)
    assert sampled.shape == (50, m)
    assert bool((sampled[:, 1:] > sampled[:, :-1]).all())
    assert int(sampled.min()) >= 0
    assert int(sampled.max()) < d
