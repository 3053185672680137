"""From raw features to the clean graph: scaling, validation and the content fingerprint."""

import hashlib

import numpy as np
import torch
from torch import Tensor

from lpgnn.data.graph import Graph, Topology
from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError


def normalise_features(raw: CsrMatrix) -> CsrMatrix:
    """Scale every column to [0, 1] and drop the constant ones.

    x'_vj = (x_vj - min_j) / (max_j - min_j), where entries that are not stored count as zeros.
    Only columns with a negative minimum fill up; zeros are never stored, so that equal matrices
    have equal storage.   [N, d_raw] -> [N, d]
    """
    num_rows, num_columns = raw.shape
    rows, columns, values = raw.row_indices(), raw.indices, raw.values.double()
    stored = torch.bincount(columns, minlength=num_columns)
    # A column with a gap starts from the zero of that gap, a full one from its own values.
    has_gap = stored < num_rows
    low = torch.where(has_gap, 0.0, torch.inf).double()
    low = low.scatter_reduce(0, columns, values, "amin")  # [d_raw]
    high = torch.where(has_gap, 0.0, -torch.inf).double()
    high = high.scatter_reduce(0, columns, values, "amax")  # [d_raw]

    kept = high > low
    d = int(kept.sum())
    if d == 0:
        raise InputError("features", f"{num_columns} columns", "at least one column must vary")
    new_column = kept.cumsum(0) - 1  # [d_raw]
    scale = high - low

    entry_kept = kept[columns]
    rows, columns, values = rows[entry_kept], columns[entry_kept], values[entry_kept]
    scaled = ((values - low[columns]) / scale[columns]).float()

    filled = kept & has_gap & (low < 0)  # zeros of these columns become positive
    if bool(filled.any()):
        block_column = filled.cumsum(0) - 1
        block = (-low / scale)[filled].float().repeat(num_rows, 1)  # [N, filled]
        inside = filled[columns]
        block[rows[inside], block_column[columns[inside]]] = scaled[inside]
        block_rows, block_columns = block.nonzero(as_tuple=True)
        rows = torch.cat([rows[~inside], block_rows])
        columns = torch.cat([columns[~inside], filled.nonzero().flatten()[block_columns]])
        scaled = torch.cat([scaled[~inside], block[block_rows, block_columns]])
        order = (rows * num_columns + columns).argsort()
        rows, columns, scaled = rows[order], columns[order], scaled[order]

    nonzero = scaled != 0
    indptr = torch.zeros(num_rows + 1, dtype=torch.int64)
    indptr[1:] = torch.bincount(rows[nonzero], minlength=num_rows).cumsum(0)
    return CsrMatrix(indptr, new_column[columns[nonzero]], scaled[nonzero], (num_rows, d))


def make_graph(
    name: str,
    topology: Topology,
    raw_features: CsrMatrix | None,
    labels: Tensor,
    num_classes: int,
    feature_dim: int | None = None,
) -> Graph:
    """Validate what a loader read, scale the features, and make a graph of it.

    labels: [N] integers; ``feature_dim`` is needed, and used, only where there are no features.
    """
    _check_topology(topology)
    _check_labels(labels, num_classes, topology.num_nodes)
    labels = labels.to(torch.int64)
    if raw_features is None:
        if feature_dim is None or feature_dim < 1:
            raise InputError("feature_dim", feature_dim, "at least 1 where there are no features")
        features, d, raw_d = None, feature_dim, feature_dim
    else:
        _check_features(raw_features, topology.num_nodes)
        features = normalise_features(raw_features)
        d, raw_d = features.shape[1], raw_features.shape[1]
    return Graph(name, topology, features, labels, num_classes, d, raw_d)


def fingerprint(
    topology: Topology,
    features: CsrMatrix | None,
    labels: Tensor,
    num_classes: int,
    feature_dim: int,
) -> str:
    """Hash the content: 16 hex digits of SHA-256 over little-endian bytes, alike on any machine."""
    sizes = [topology.num_nodes, topology.num_entries, num_classes, feature_dim]
    parts = [(torch.tensor(sizes), "<i8"), (topology.indptr, "<i8"), (topology.indices, "<i8")]
    parts.append((labels, "<i8"))
    if features is not None:
        parts += _matrix_parts(features)
    return _hash(parts)


def matrix_fingerprint(matrix: CsrMatrix) -> str:
    """Hash a matrix as ``fingerprint`` does a graph: the same however its file orders the rows."""
    return _hash([(torch.tensor(matrix.shape), "<i8"), *_matrix_parts(matrix)])


def _matrix_parts(matrix: CsrMatrix) -> list[tuple[Tensor, str]]:
    return [(matrix.indptr, "<i8"), (matrix.indices, "<i8"), (matrix.values, "<f4")]


def _hash(parts: list[tuple[Tensor, str]]) -> str:
    digest = hashlib.sha256()
    for tensor, dtype in parts:
        digest.update(np.ascontiguousarray(tensor.cpu().numpy(), dtype=dtype).data)
    return digest.hexdigest()[:16]


def _check_topology(topology: Topology) -> None:
    num_nodes, indptr, indices = topology.num_nodes, topology.indptr, topology.indices
    if num_nodes < 1:
        raise InputError("graph", f"{num_nodes} nodes", "at least one node is needed")
    if int(indptr[0]) != 0 or int(indptr[-1]) != indices.numel() or bool((indptr.diff() < 0).any()):
        raise InputError("edges", "indptr", f"must rise from 0 to {indices.numel()} entries")
    if indices.numel() and not 0 <= indices.min() <= indices.max() < num_nodes:
        found = f"{int(indices.min())}..{int(indices.max())}"
        raise InputError("edges", found, f"node ids must lie in 0..{num_nodes - 1}")


def _check_labels(labels: Tensor, num_classes: int, num_nodes: int) -> None:
    if num_classes < 2:
        raise InputError("num_classes", num_classes, "at least 2 classes are needed")
    if labels.shape != (num_nodes,):
        raise InputError(
            "labels", f"shape {tuple(labels.shape)}", f"must be one per node: {num_nodes}"
        )
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise InputError("labels", labels.dtype, "must be integers")
    if not 0 <= labels.min() <= labels.max() < num_classes:
        found = f"{int(labels.min())}..{int(labels.max())}"
        raise InputError("labels", found, f"must lie in 0..{num_classes - 1}")


def _check_features(raw: CsrMatrix, num_nodes: int) -> None:
    if raw.shape[0] != num_nodes:
        raise InputError("features", f"{raw.shape[0]} rows", f"must be one per node: {num_nodes}")
    if raw.nnz and not 0 <= raw.indices.min() <= raw.indices.max() < raw.shape[1]:
        found = f"column {int(raw.indices.max())}"
        raise InputError("features", found, f"columns must lie in 0..{raw.shape[1] - 1}")
    finite = torch.isfinite(raw.values)
    if not bool(finite.all()):
        bad = int((~finite).nonzero()[0])
        node, column = int(raw.row_indices()[bad]), int(raw.indices[bad])
        found = f"{float(raw.values[bad])} (node {node}, column {column})"
        raise InputError("features", found, "must be finite numbers")
