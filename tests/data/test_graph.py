from dataclasses import replace

import pytest
import torch

from lpgnn.data import BlockModel
from lpgnn.data.graph import Topology
from lpgnn.data.sparse import sorted_unique
from lpgnn.errors import InputError


def test_from_edges_symmetrises_and_counts_duplicates_once() -> None:
    # 0-1 given twice in both directions, 1-2 once, a loop at 3.
    edges = torch.tensor([[0, 1, 1, 3], [1, 0, 2, 3]])
    topology = Topology.from_edges(5, edges)
    assert topology.edge_index().tolist() == [[0, 1, 1, 2, 3], [1, 0, 2, 1, 3]]
    assert topology.indptr.tolist() == [0, 1, 3, 4, 5, 5]
    assert (topology.num_entries, topology.num_edges, topology.num_self_loops()) == (5, 2, 1)


@pytest.mark.parametrize("edges", [[[0], [4]], [[-1], [0]]])
def test_from_edges_refuses_ids_out_of_range(edges: list[list[int]]) -> None:
    # Unchecked, 0-4 among four nodes would pass as the edge 1-0.
    with pytest.raises(InputError, match=r"edges=.*0\.\.3"):
        Topology.from_edges(4, torch.tensor(edges))


def test_sorted_unique() -> None:
    assert sorted_unique(torch.tensor([3, 1, 3, 2, 1])).tolist() == [1, 2, 3]
    assert sorted_unique(torch.empty(0, dtype=torch.int64)).tolist() == []


def test_a_graph_made_from_another_has_a_fingerprint_of_its_own() -> None:
    graph = BlockModel(num_nodes=300, num_classes=4, num_features=90).generate()
    assert replace(graph).fingerprint == graph.fingerprint
    assert replace(graph, name="other").fingerprint == graph.fingerprint  # content, not the name
    assert replace(graph, labels=graph.labels.flip(0)).fingerprint != graph.fingerprint
    assert replace(graph, features=None).fingerprint != graph.fingerprint
