import pytest
import torch

from lpgnn.data.graph import Topology
from lpgnn.data.normalise import make_graph
from lpgnn.data.pyg import graph_from_pyg, graph_to_pyg
from lpgnn.data.sbm import BlockModel
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
    graph = graph_from_pyg(data(), name="mine")
    assert graph.name == "mine"
    assert graph.topology.edge_index().tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert graph.features is not None
    assert graph.features.to_dense().tolist() == [[0, 1], [1, 0], [0, 0]]
    assert (graph.num_classes, graph.labels.tolist()) == (2, [0, 1, 1])


@pytest.mark.filterwarnings("ignore:Sparse")
def test_every_form_of_features_and_labels_gives_the_same_graph() -> None:
    expected = graph_from_pyg(data()).fingerprint
    forms = [X.to_sparse(), X.to_sparse(layout=torch.sparse_csr), X.double(), X.int()]
    for x in forms:
        assert graph_from_pyg(data(x=x)).fingerprint == expected
    assert graph_from_pyg(data(y=Y[:, None])).fingerprint == expected
    both = torch.cat([EDGES, EDGES.flip(0)], dim=1)
    assert graph_from_pyg(data(edge_index=both)).fingerprint == expected


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("sparse", [False, True])
def test_round_trip_keeps_the_content(sparse: bool) -> None:
    graph = BlockModel(num_nodes=200, num_features=100, num_classes=3).generate()
    there = graph_to_pyg(graph, sparse=sparse)
    assert there.num_nodes == 200
    assert there.is_undirected()
    assert there.x.layout == (torch.sparse_csr if sparse else torch.strided)
    assert graph_from_pyg(there).fingerprint == graph.fingerprint


def test_round_trip_keeps_absent_classes_and_absent_features() -> None:
    topology = Topology.from_edges(3, EDGES)
    graph = make_graph("toy", topology, None, Y, num_classes=5, feature_dim=8)
    back = graph_from_pyg(graph_to_pyg(graph))
    assert (back.num_classes, back.features, back.feature_dim) == (5, None, 8)
    assert back.fingerprint == graph.fingerprint


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("x", None, r"data\.x=None"),
        ("x", torch.ones(3), r"data\.x=shape \(3,\)"),
        ("x", torch.rand(4, 2), "features=4 rows"),
        ("x", torch.full((3, 2), torch.nan), "features=nan"),
        ("y", None, r"data\.y=NoneType"),
        ("y", torch.tensor([0.0, 1.0, 1.0]), "labels=torch.float32"),
        ("edge_index", None, r"data\.edge_index=NoneType"),
        ("edge_index", torch.tensor([[0], [3]]), r"edges=0\.\.3"),
        ("edge_index", torch.zeros(3, 2, dtype=torch.int64), r"data\.edge_index=shape \(3, 2\)"),
    ],
)
def test_bad_data_is_refused(field: str, value: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        graph_from_pyg(data(**{field: value}))
