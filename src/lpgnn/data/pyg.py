"""Graphs to and from PyTorch Geometric's ``Data``."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lpgnn.data.graph import Graph, Topology
from lpgnn.data.normalise import make_graph
from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError

if TYPE_CHECKING:
    from torch_geometric.data import Data


def graph_from_pyg(data: "Data", name: str = "custom") -> Graph:
    """Take ``x`` [N, d], ``edge_index`` [2, E] and ``y`` [N] or [N, 1] over into a ``Graph``.

    ``x`` may be dense or a torch sparse tensor.  A directed edge_index is made symmetric, features
    are scaled to [0, 1], and masks are left behind: splits are drawn again.  The number of classes
    is ``data.num_classes`` if set, else the highest label and one.
    """
    edge_index, y = data.edge_index, data.y
    if not isinstance(edge_index, Tensor) or edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise InputError("data.edge_index", _kind(edge_index), "must be a tensor of shape [2, E]")
    if not isinstance(y, Tensor) or y.numel() == 0:
        raise InputError("data.y", _kind(y), "must be a tensor of one integer per node")
    labels = y.cpu().squeeze(1) if y.dim() == 2 and y.shape[1] == 1 else y.cpu()
    num_nodes = labels.shape[0]
    features = None if data.x is None else _to_csr(data.x)
    feature_dim = getattr(data, "feature_dim", None)
    if features is None and feature_dim is None:
        raise InputError(
            "data.x", None, "must be a tensor of shape [N, d], or set data.feature_dim"
        )
    num_classes = getattr(data, "num_classes", None)
    if num_classes is None:
        num_classes = int(labels.max()) + 1
    topology = Topology.from_edges(num_nodes, edge_index.cpu().to(torch.int64))
    return make_graph(name, topology, features, labels, int(num_classes), feature_dim)


def graph_to_pyg(graph: Graph, *, sparse: bool = False) -> "Data":
    """Return ``Data`` with both directions of every edge and x [N, d].

    PyG's layers expect a dense x; ``sparse=True`` gives a CSR tensor where that would not fit.
    """
    from torch_geometric.data import Data

    x = None
    if graph.features is not None:
        x = _to_torch_csr(graph.features) if sparse else graph.features.to_dense()
    data = Data(x=x, edge_index=graph.topology.edge_index(), y=graph.labels)
    data.num_nodes = graph.num_nodes
    data.num_classes = graph.num_classes
    data.feature_dim = graph.feature_dim
    return data


def _to_csr(x: object) -> CsrMatrix:
    if not isinstance(x, Tensor) or x.dim() != 2:
        raise InputError("data.x", _kind(x), "must be a dense or torch sparse tensor [N, d]")
    if x.layout == torch.strided:
        return CsrMatrix.from_dense(x.cpu().float())
    coo = (x if x.layout == torch.sparse_coo else x.to_sparse(layout=torch.sparse_coo)).coalesce()
    rows, columns = coo.indices().cpu()
    return CsrMatrix.from_coo(rows, columns, coo.values().cpu(), (x.shape[0], x.shape[1]))


def _to_torch_csr(matrix: CsrMatrix) -> Tensor:
    return torch.sparse_csr_tensor(
        matrix.indptr, matrix.indices, matrix.values, matrix.shape, check_invariants=True
    )


def _kind(value: object) -> str:
    return f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
