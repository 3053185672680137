"""The partition of a public graph: sizes, edges cut, and what it depends on."""

import pytest
import torch

from lpgnn.data.graph import Topology
from lpgnn.propagation.partition import partition

from .graphs import path_and_isolated, random_topology, seeded


def cliques(count: int, size: int) -> Topology:
    """Cliques in a ring, neighbouring ones joined by one edge."""
    pairs = torch.combinations(torch.arange(size)).T
    inside = [pairs + size * clique for clique in range(count)]
    starts = size * torch.arange(count)
    joints = torch.stack([starts, (starts + size + 1) % (count * size)])
    return Topology.from_edges(count * size, torch.cat([*inside, joints], dim=1))


def test_cliques_stay_whole() -> None:
    part = partition(cliques(8, 12), 8)
    for clique in part.view(8, 12):
        assert len(clique.unique()) == 1
    assert sorted(part.unique().tolist()) == list(range(8))


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 16])
def test_parts_are_of_equal_size(parts: int) -> None:
    topology = random_topology(200, 500)
    sizes = torch.bincount(partition(topology, parts), minlength=parts)
    assert int(sizes.sum()) == 200
    assert int(sizes.max() - sizes.min()) <= 2


def test_fewer_edges_are_cut_than_by_chance() -> None:
    labels = torch.arange(300) % 2
    drawn = torch.rand(300, 300, generator=seeded()) < torch.where(
        labels[:, None] == labels, 0.08, 0.005
    )
    topology = Topology.from_edges(300, drawn.triu(1).nonzero().t())
    part, (rows, columns) = partition(topology, 2), topology.edge_index()
    inside = float((part[rows] == part[columns]).float().mean())
    assert inside > 0.8  # a half by chance


def test_more_parts_than_nodes_and_no_edges_at_all() -> None:
    assert len(partition(path_and_isolated(), 9)) == 4
    alone = Topology.from_edges(5, torch.empty(2, 0, dtype=torch.int64))
    assert torch.bincount(partition(alone, 2)).tolist() in ([2, 3], [3, 2])


def test_the_same_graph_is_cut_the_same_way() -> None:
    one, other = (partition(random_topology(100, 300), 5) for _ in range(2))
    assert torch.equal(one, other)
