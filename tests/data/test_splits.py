import pytest
import torch
from scipy.stats import chi2

from lpgnn.data.graph import Topology
from lpgnn.data.normalise import make_graph
from lpgnn.data.splits import Split, Splits, random_split
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
    with pytest.raises(
        InputError, match=r"split=3 labelled nodes: too few: every part must have one"
    ):
        random_split(3, generator=generator(0))


@pytest.mark.parametrize("ratios", [(0.5, 0.5, 0.5), (1.0, 0.0, 0.0), (0.5, 0.7, -0.2)])
def test_ratios_must_sum_to_one(ratios: tuple[float, float, float]) -> None:
    with pytest.raises(InputError, match=r"split\.ratios="):
        random_split(100, generator=generator(0), ratios=ratios)


LABELLED = torch.tensor([True, True, False, True, True, False, True, True, True, True])


def masks(train: list[int], val: list[int], test: list[int], size: int = 10) -> Split:
    found = []
    for nodes in (train, val, test):
        mask = torch.zeros(size, dtype=torch.bool)
        mask[nodes] = True
        found.append(mask)
    return Split(*found)


def test_unlabelled_nodes_are_in_no_part() -> None:
    for seed in range(20):
        split = Splits().draw(LABELLED, 0, generator=generator(seed))
        assert torch.equal(split.train | split.val | split.test, LABELLED)
        assert [int(part.sum()) for part in split.parts().values()] == [4, 2, 2]


def test_where_all_are_labelled_the_split_is_the_plain_one() -> None:
    plain = random_split(40, generator=generator(5))
    drawn = Splits().draw(torch.ones(40, dtype=torch.bool), 3, generator=generator(5))
    for one, other in zip(plain.parts().values(), drawn.parts().values(), strict=True):
        assert torch.equal(one, other)


def test_own_ratios_are_kept() -> None:
    split = Splits((0.8, 0.1, 0.1)).draw(
        torch.ones(50, dtype=torch.bool), 0, generator=generator(0)
    )
    assert [int(part.sum()) for part in split.parts().values()] == [40, 5, 5]


def test_own_masks_are_taken_in_turn_without_their_unlabelled_nodes() -> None:
    labels = torch.where(LABELLED, 1, -1)
    two = Splits(own=(masks([0, 1, 2], [3, 4, 5], [6, 7]), masks([6], [7], [8, 9])))
    splits = two.for_labels(labels)
    first, second, third = (splits.draw(LABELLED, n, generator=generator(0)) for n in range(3))
    assert first.train.nonzero().flatten().tolist() == [0, 1]
    assert first.val.nonzero().flatten().tolist() == [3, 4]
    assert second.test.nonzero().flatten().tolist() == [8, 9]
    assert third is first
    assert "2 splits in turn" in splits.describe()


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (masks([0], [0, 1], [3]), "split=a node in two parts"),
        (masks([0], [1], [1, 3]), "split=a node in two parts"),
        (masks([0, 1], [2, 5], [3]), "split=no val node: needs a node with a label"),
        (masks([0], [1], []), "split=no test node"),
        (masks([0], [1], [2], size=9), r"split=train mask \(9,\)"),
    ],
)
def test_bad_masks_are_refused(split: Split, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Splits(own=(split,)).for_labels(torch.where(LABELLED, 1, -1))


def test_a_fingerprint_covers_masks_and_ratios() -> None:
    own = Splits(own=(masks([0], [1], [3]),))
    other = Splits(own=(masks([0], [3], [1]),))
    topology = Topology.from_edges(10, torch.tensor([[0], [1]]))
    labels = torch.arange(10) % 2
    digests = {
        make_graph("toy", topology, None, labels, 2, feature_dim=1, splits=splits).fingerprint
        for splits in (None, Splits(), Splits((0.6, 0.2, 0.2)), own, other)
    }
    assert len(digests) == 4
