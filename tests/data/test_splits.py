import pytest
import torch
from scipy.stats import chi2

from lpgnn.data.splits import random_split
from lpgnn.errors import InputError

ALPHA = 1e-6


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_parts_are_disjoint_cover_all_and_have_the_sizes() -> None:
    split = random_split(103, generator=generator(0))
    total = split.train.int() + split.val.int() + split.test.int()
    assert bool((total == 1).all())
    assert (int(split.train.sum()), int(split.val.sum()), int(split.test.sum())) == (51, 25, 27)


def test_same_generator_state_gives_the_same_split() -> None:
    first, again = (random_split(100, generator=generator(0)) for _ in range(2))
    other = random_split(100, generator=generator(1))
    assert torch.equal(first.train, again.train)
    assert torch.equal(first.test, again.test)
    assert not torch.equal(first.train, other.train)


def part_p_value(parts: torch.Tensor) -> float:
    """Chi-square of how often each node falls in each part.  parts: [draws, N] in 0..2

    A draw fixes the sizes of the parts, so that nodes are correlated by -1 / (N - 1): the sum is
    distributed as N / (N - 1) times chi-square with 2 (N - 1) degrees of freedom.
    """
    draws, num_nodes = parts.shape
    counts = torch.stack([(parts == part).sum(dim=0) for part in range(3)]).double()  # [3, N]
    expected = draws * torch.tensor([0.5, 0.25, 0.25]).double()[:, None]
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return float(chi2.sf(statistic * (num_nodes - 1) / num_nodes, 2 * (num_nodes - 1)))


def test_every_node_falls_in_every_part_with_its_ratio() -> None:
    shared = generator(3)
    drawn = []
    for _ in range(2000):
        split = random_split(40, generator=shared)
        drawn.append(split.val.int() + 2 * split.test.int())
    parts = torch.stack(drawn)
    assert part_p_value(parts) > ALPHA
    # A shuffle that leaves node 0 in place every third time is found out.
    broken = parts.clone()
    broken[::3, 0] = 0
    assert part_p_value(broken) < ALPHA


def test_every_part_has_a_node() -> None:
    assert int(random_split(4, generator=generator(0)).val.sum()) == 1
    with pytest.raises(InputError, match=r"split=3 nodes: every part must have at least one node"):
        random_split(3, generator=generator(0))


@pytest.mark.parametrize("ratios", [(0.5, 0.5, 0.5), (1.0, 0.0, 0.0), (0.5, 0.7, -0.2)])
def test_ratios_must_sum_to_one(ratios: tuple[float, float, float]) -> None:
    with pytest.raises(InputError, match=r"split\.ratios="):
        random_split(100, generator=generator(0), ratios=ratios)
