from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lpgnn.config import make_component
from lpgnn.data.graph import Graph, Topology
from lpgnn.data.normalise import make_graph
from lpgnn.data.pyg import PygDataset
from lpgnn.data.sbm import BlockModel
from lpgnn.data.splits import PARTS
from lpgnn.errors import InputError

# Importing torch_geometric warns of its own deprecated calls in some versions.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

X = torch.tensor([[0.0, 2.0], [4.0, 0.0], [0.0, 0.0]])
EDGES = torch.tensor([[0, 1], [1, 2]])
Y = torch.tensor([0, 1, 1])


def data(**fields: object):  # type: ignore[no-untyped-def]
    from torch_geometric.data import Data

    return Data(**{"x": X, "edge_index": EDGES, "y": Y, **fields})


def test_directed_edges_become_symmetric_and_features_are_scaled() -> None:
    graph = Graph.from_pyg(data(), ranges="data", name="mine")
    assert graph.name == "mine"
    assert graph.topology.edge_index().tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert graph.features is not None
    assert graph.features.to_dense().tolist() == [[0, 1], [1, 0], [0, 0]]
    assert (graph.num_classes, graph.labels.tolist()) == (2, [0, 1, 1])


@pytest.mark.filterwarnings("ignore:Sparse")
def test_every_form_of_features_and_labels_gives_the_same_graph() -> None:
    expected = Graph.from_pyg(data(), ranges="data").fingerprint
    forms = [X.to_sparse(), X.to_sparse(layout=torch.sparse_csr), X.double(), X.int()]
    for x in forms:
        assert Graph.from_pyg(data(x=x), ranges="data").fingerprint == expected
    assert Graph.from_pyg(data(y=Y[:, None]), ranges="data").fingerprint == expected
    both = torch.cat([EDGES, EDGES.flip(0)], dim=1)
    assert Graph.from_pyg(data(edge_index=both), ranges="data").fingerprint == expected


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("sparse", [False, True])
def test_round_trip_keeps_the_content(sparse: bool) -> None:
    graph = BlockModel(num_nodes=200, num_features=100, num_classes=3).generate()
    there = graph.to_pyg(sparse=sparse)
    assert there.num_nodes == 200
    assert there.is_undirected()
    assert there.x.layout == (torch.sparse_csr if sparse else torch.strided)
    assert Graph.from_pyg(there, ranges="data").fingerprint == graph.fingerprint


def test_round_trip_keeps_absent_classes_and_absent_features() -> None:
    topology = Topology.from_edges(3, EDGES)
    graph = make_graph("toy", topology, None, Y, num_classes=5, feature_dim=8)
    back = Graph.from_pyg(graph.to_pyg(), ranges="data")
    assert (back.num_classes, back.features, back.feature_dim) == (5, None, 8)
    assert back.fingerprint == graph.fingerprint


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("x", None, r"data\.x=None"),
        ("x", torch.ones(3), r"data\.x=shape \(3,\)"),
        ("x", torch.rand(4, 2), "features=4 rows"),
        ("x", torch.full((3, 2), torch.nan), "features=nan"),
        ("x", torch.ones(3, 2, dtype=torch.complex64), r"data\.x=torch\.complex64"),
        ("y", None, r"data\.y=NoneType"),
        ("y", torch.zeros(3, 2), r"data\.y=shape \(3, 2\)"),
        ("edge_index", torch.tensor([[0.5], [1.5]]), r"data\.edge_index=torch\.float32"),
        ("y", torch.tensor([0.0, 1.0, 1.0]), "labels=torch.float32"),
        ("edge_index", None, r"data\.edge_index=NoneType"),
        ("edge_index", torch.tensor([[0], [3]]), r"edges=0\.\.3"),
        ("edge_index", torch.zeros(3, 2, dtype=torch.int64), r"data\.edge_index=shape \(3, 2\)"),
    ],
)
def test_bad_data_is_refused(field: str, value: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Graph.from_pyg(data(**{field: value}), ranges="data")


class Trap:
    """Code in a pickle that must never run."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (exec, ("raise SystemExit('the file ran')",))


def pyg_dataset(**options: Any) -> PygDataset:
    return PygDataset(**{"class_": "FakeDataset", "ranges": [-5, 5], **options})


FAKE = {"num_graphs": 1, "avg_num_nodes": 60, "num_classes": 3, "num_channels": 8, "task": "node"}


def test_a_dataset_by_the_name_of_its_class(tmp_path: Path) -> None:
    """Whatever it draws at random it draws alike each time, and leaves global seeds alone."""
    dataset = pyg_dataset(arguments=FAKE)
    before = torch.random.get_rng_state()
    one, two = dataset.load(tmp_path), dataset.load(tmp_path)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert one.fingerprint == two.fingerprint
    assert (one.feature_dim, one.name) == (8, dataset.name)
    assert dataset.name.startswith("FakeDataset-1-60-3")
    named = make_component(
        "dataset",
        {
            "_target_": "lpgnn.data.pyg.PygDataset",
            "class": "FakeDataset",
            "arguments": FAKE,
            "ranges": [-5, 5],
        },
    )
    assert named == dataset
    assert named.options()["class"] == "FakeDataset"


def test_a_dataset_that_lies_in_its_root(tmp_path: Path) -> None:
    """WebKB's files, made here, are read without the network, and nothing in them is run."""
    raw = tmp_path / "pyg" / "WebKB" / "cornell" / "raw"
    raw.mkdir(parents=True)
    nodes = ["node_id\tfeature\tlabel"] + [f"{v}\t{v % 2},1,0\t{v % 2}" for v in range(12)]
    edges = ["a\tb"] + [f"{v}\t{(v + 2) % 12}" for v in range(12)]
    (raw / "out1_node_feature_label.txt").write_text("\n".join(nodes) + "\n")
    (raw / "out1_graph_edges.txt").write_text("\n".join(edges) + "\n")
    parts = np.arange(12) % 4
    masks = {"train": parts < 2, "val": parts == 2, "test": parts == 3}
    for number in range(10):
        content = {f"{part}_mask": mask.astype(int) for part, mask in masks.items()}
        np.savez(raw / f"cornell_split_0.6_0.2_{number}.npz", **content)
    options: dict[str, Any] = {
        "class_": "WebKB",
        "arguments": {"name": "Cornell"},
        "ranges": "unit",
    }
    graph = PygDataset(**options).load(tmp_path)
    assert (graph.num_nodes, graph.num_classes, graph.feature_dim) == (12, 2, 3)
    assert len(graph.splits.own) == 10
    assert graph.splits.own[3].test.nonzero().flatten().tolist() == [3, 7, 11]
    assert PygDataset(**options, split="random").load(tmp_path).splits.own == ()
    processed = tmp_path / "pyg" / "WebKB" / "cornell" / "processed" / "data.pt"
    torch.save(Trap(), processed)
    with pytest.raises(InputError, match="Weights only load failed"):
        PygDataset(**options).load(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"class_": "Planetoit"}, r"class=Planetoit: .*did you mean Planetoid"),
        ({"class_": "???"}, "must be a class of torch_geometric.datasets"),
        ({"ranges": None}, "ranges=null: must be declared"),
        ({"arguments": [1]}, "arguments="),
        ({"class_": "KarateClub", "arguments": {"colour": 1}}, "cannot be loaded: TypeError"),
        ({"arguments": {"num_graphs": 3}}, r"with 3 graphs of type Data: must be one graph"),
        ({"class_": "FakeHeteroDataset", "arguments": {"num_graphs": 1}}, "of type HeteroData"),
    ],
)
def test_bad_pyg_datasets_are_refused(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        pyg_dataset(**options).load(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        ([[1, 0, 0], [1, 1, 0], [0, 0, 1]], "split=a node in two parts"),
        ([[1, 0, 0], [0, 1, 0], [0, 0, 0]], "split=no test node"),
    ],
)
def test_bad_masks_are_refused(masks: list[list[int]], message: str) -> None:
    parts = {f"{p}_mask": torch.tensor(m) for p, m in zip(PARTS, masks, strict=True)}
    with pytest.raises(InputError, match=message):
        Graph.from_pyg(data(**parts), ranges="data")
