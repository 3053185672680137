from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lpgnn.data.graph import Topology
from lpgnn.data.karateclub import TableLayout, induced_topology, keep_largest_classes
from lpgnn.errors import InputError

LAYOUT = TableLayout("toy", num_nodes=4, num_features=3, num_edge_rows=4, num_feature_rows=4)
EDGES = "id_1,id_2\n0,1\n1,2\n2,3\n3,3\n"
TARGET = "id,target\n1,1\n0,0\n3,0\n2,2\n"
FEATURES = "node_id,feature_id,value\n3,2,1.0\n0,0,1.0\n1,1,2.0\n0,1,1.0\n"
DENSE = [[1.0, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 1.0]]


def write(folder: Path, edges: str = EDGES, target: str = TARGET, features: str = FEATURES) -> Path:
    (folder / "edges.csv").write_text(edges)
    (folder / "target.csv").write_text(target)
    (folder / "features.csv").write_text(features)
    return folder


def test_tables_become_a_graph(tmp_path: Path) -> None:
    graph = LAYOUT.read(write(tmp_path))
    assert graph.topology.edge_index().tolist() == [[0, 1, 1, 2, 2, 3, 3], [1, 0, 2, 1, 3, 2, 3]]
    assert graph.labels.tolist() == [0, 1, 2, 0]
    assert graph.features is not None
    assert graph.features.to_dense().tolist() == DENSE


def test_order_of_rows_and_windows_line_ends_do_not_matter(tmp_path: Path) -> None:
    graph = LAYOUT.read(write(tmp_path))
    header, *rows = FEATURES.splitlines()
    shuffled = "\r\n".join([header, *reversed(rows)]) + "\r\n"
    assert LAYOUT.read(write(tmp_path, features=shuffled)).fingerprint == graph.fingerprint


def test_a_missing_value_column_means_ones(tmp_path: Path) -> None:
    features = "node_id,feature_id\n3,2\n0,0\n1,1\n0,1\n"
    graph = LAYOUT.read(write(tmp_path, features=features))
    assert graph.features is not None
    assert graph.features.to_dense().tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1]]


def test_without_features_the_graph_still_loads(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "features.csv").unlink()
    graph = LAYOUT.read(tmp_path)
    assert (graph.features, graph.feature_dim, graph.raw_feature_dim) == (None, 3, 3)


def test_largest_classes_are_kept_and_relabelled_in_order() -> None:
    # Sizes: class 0 one, 1 two, 2 one, 3 three; of the classes of one node the lower one stays.
    nodes, labels = keep_largest_classes(torch.tensor([3, 1, 2, 3, 0, 1, 3]), 3)
    assert nodes.tolist() == [0, 1, 3, 4, 5, 6]
    assert labels.tolist() == [2, 1, 2, 0, 1, 2]


def test_induced_topology_renumbers() -> None:
    topology = Topology.from_edges(5, torch.tensor([[0, 1, 2, 3, 2], [1, 2, 3, 4, 2]]))
    kept = induced_topology(topology, torch.tensor([0, 2, 3]))
    assert kept.edge_index().tolist() == [[1, 1, 2], [1, 2, 1]]
    assert kept.num_nodes == 3


def test_largest_classes_take_edges_and_features_along(tmp_path: Path) -> None:
    target = "id,target\n0,5\n1,2\n2,5\n3,3\n"
    edges = "id_1,id_2\n0,1\n1,2\n2,3\n0,2\n"
    layout = replace(LAYOUT, largest_classes=2)
    graph = layout.read(write(tmp_path, target=target, edges=edges))
    assert graph.labels.tolist() == [1, 0, 1]  # class 2 and class 5; class 3 ties with 2
    assert graph.topology.edge_index().tolist() == [[0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1]]
    assert graph.features is not None
    assert graph.features.to_dense().tolist() == [[1.0, 0.5], [0.0, 1.0], [0.0, 0.0]]
    assert graph.raw_feature_dim == 3


@pytest.mark.parametrize(
    ("edges", "target", "features", "message"),
    [
        (EDGES + "0,4\n", TARGET, FEATURES, r"node id 4 in .*edges.csv.*0\.\.3"),
        (EDGES + "0,-1\n", TARGET, FEATURES, r"node id -1 in .*edges.csv"),
        (EDGES + "0,1.5\n", TARGET, FEATURES, r"node id 1.5 in .*edges.csv"),
        (EDGES + "0,nan\n", TARGET, FEATURES, r"node id nan in .*edges.csv"),
        (EDGES[:-4], TARGET, FEATURES, r"edges.csv with 3 rows.*truncated"),
        (EDGES[:-3], TARGET, FEATURES, r"edges.csv.*(truncated|damaged)"),
        ("id_1,id_2\n", TARGET, FEATURES, r"edges.csv.*truncated"),
        ("", TARGET, FEATURES, r"edges.csv: the first line must be 'id_1,id_2'"),
        ("a,b\n0,1\n", TARGET, FEATURES, r"'a,b' in .*edges.csv: the first line must be"),
        (EDGES, TARGET[:-4], FEATURES, r"target.csv with 3 rows.*truncated"),
        (EDGES, "id,target\n0,0\n0,0\n1,1\n2,1\n", FEATURES, r"target.csv.*must occur once"),
        (EDGES, TARGET + "4,0\n", FEATURES, r"node id 4 in .*target.csv"),
        (EDGES, "id,target\n0,0\n1,-1\n2,1\n3,1\n", FEATURES, r"labels=-1\.\.1"),
        (EDGES, TARGET, FEATURES + "4,0,1.0\n", r"node id 4 in .*features.csv"),
        (EDGES, TARGET, FEATURES + "2,3,1.0\n", r"feature id 3 in .*features.csv.*0\.\.2"),
        (EDGES, TARGET, FEATURES + "0,1,1.0\n", r"features.csv.*pair repeats"),
        (EDGES, TARGET, FEATURES + "2,0,nan\n", r"features=nan \(node 2, column 0\)"),
        (EDGES, TARGET, FEATURES[:-8], r"features.csv with 3 rows.*truncated"),
        (EDGES, TARGET, FEATURES[:-5], r"features.csv.*truncated"),
        (EDGES, TARGET, FEATURES + "2,0,x\n", r"features.csv.*damaged"),
    ],
)
def test_bad_tables_are_refused(
    tmp_path: Path, edges: str, target: str, features: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        LAYOUT.read(write(tmp_path, edges, target, features))


@pytest.mark.parametrize("name", ["edges.csv", "target.csv"])
def test_missing_tables_are_named(tmp_path: Path, name: str) -> None:
    write(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(InputError, match=f"{name}.*missing"):
        LAYOUT.read(tmp_path)
