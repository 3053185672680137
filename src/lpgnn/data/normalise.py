"""From raw features to the clean graph: scaling, validation and the content fingerprint."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from lpgnn.data.graph import Graph, Topology
from lpgnn.data.ranges import RangeChoice, Ranges, declared_ranges
from lpgnn.data.sparse import CsrMatrix
from lpgnn.data.splits import Splits
from lpgnn.errors import InputError


def normalise_features(
    raw: CsrMatrix, choice: RangeChoice = "data", names: Sequence[str] | None = None
) -> tuple[CsrMatrix, Ranges]:
    """Scale every column to [0, 1] by its range; say by which.

    x'_vj = (clamp(x_vj, low_j, high_j) - low_j) / (high_j - low_j)

    Entries that are not stored count as zeros.  By the ranges of the data nothing is clamped and
    constant columns are dropped; by declared ones every column is kept, because which ones vary
    is private.   names: of the columns, where ranges are given by them.   [N, d_raw] -> [N, d]
    """
    declared = declared_ranges(choice, raw.shape[1], names)
    if declared is None:
        low, high = _extremes(raw)
        kept = high > low
        if not bool(kept.any()):
            found = f"{raw.shape[1]} columns"
            raise InputError("features", found, "at least one column must vary")
        scaled, _ = _scaled(raw, low, high, kept)
        return scaled, Ranges("data", low[kept], high[kept])
    assert declared.low is not None
    assert declared.high is not None
    # A bound is compared in the precision of the values: 0.1 as float32 lies above 0.1.
    low, high = (end.to(raw.values.dtype).double() for end in (declared.low, declared.high))
    scaled, clamped = _scaled(raw, low, high, torch.ones(raw.shape[1], dtype=torch.bool))
    return scaled, replace(declared, num_clamped=clamped)


def _extremes(raw: CsrMatrix) -> tuple[Tensor, Tensor]:
    """Minimum and maximum of every column, in float64.  -> [d_raw], [d_raw]"""
    columns, values = raw.indices, raw.values.double()
    # A column with a gap starts from the zero of that gap, a full one from its own values.
    has_gap = torch.bincount(columns, minlength=raw.shape[1]) < raw.shape[0]
    low = torch.where(has_gap, 0.0, torch.inf).double()
    low = low.scatter_reduce(0, columns, values, "amin")
    high = torch.where(has_gap, 0.0, -torch.inf).double()
    return low, high.scatter_reduce(0, columns, values, "amax")


def _scaled(raw: CsrMatrix, low: Tensor, high: Tensor, kept: Tensor) -> tuple[CsrMatrix, int]:
    """The kept columns in [0, 1], and how many values lay outside.

    Only columns whose zeros become positive fill up; zeros are never stored, so that equal matrices
    have equal storage.   low, high, kept: [d_raw]
    """
    num_rows, num_columns = raw.shape
    rows, columns, values = raw.row_indices(), raw.indices, raw.values.double()
    stored = torch.bincount(columns, minlength=num_columns)
    scale = high - low

    entry_kept = kept[columns]
    rows, columns, values = rows[entry_kept], columns[entry_kept], values[entry_kept]
    inside = values.clamp(low[columns], high[columns])
    clamped = int((inside != values).sum())
    scaled = ((inside - low[columns]) / scale[columns]).float()

    zero = torch.zeros(()).double().clamp(low, high)  # what a zero counts as, column by column
    clamped += int(((zero != 0) * (num_rows - stored))[kept].sum())
    filled = kept & (stored < num_rows) & (zero > low)
    if bool(filled.any()):
        block_column = filled.cumsum(0) - 1
        block = ((zero - low) / scale)[filled].float().repeat(num_rows, 1)  # [N, filled]
        in_block = filled[columns]
        block[rows[in_block], block_column[columns[in_block]]] = scaled[in_block]
        block_rows, block_columns = block.nonzero(as_tuple=True)
        rows = torch.cat([rows[~in_block], block_rows])
        columns = torch.cat([columns[~in_block], filled.nonzero().flatten()[block_columns]])
        scaled = torch.cat([scaled[~in_block], block[block_rows, block_columns]])
        order = (rows * num_columns + columns).argsort()
        rows, columns, scaled = rows[order], columns[order], scaled[order]

    nonzero = scaled != 0
    indptr = torch.zeros(num_rows + 1, dtype=torch.int64)
    indptr[1:] = torch.bincount(rows[nonzero], minlength=num_rows).cumsum(0)
    new_column = kept.cumsum(0) - 1  # [d_raw]
    shape = (num_rows, int(kept.sum()))
    return CsrMatrix(indptr, new_column[columns[nonzero]], scaled[nonzero], shape), clamped


def make_graph(
    name: str,
    topology: Topology,
    raw_features: CsrMatrix | None,
    labels: Tensor,
    num_classes: int,
    feature_dim: int | None = None,
    *,
    ranges: RangeChoice = "data",
    splits: Splits | None = None,
    node_ids: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
) -> Graph:
    """Validate what a loader read, scale the features, and make a graph of it.

    labels: [N] integers, -1 where a node has none; ``feature_dim`` is needed, and used, only where
    there are no features.
    """
    _check_topology(topology)
    _check_labels(labels, num_classes, topology.num_nodes)
    _check_names("node_ids", node_ids, topology.num_nodes)
    _check_names("class_names", class_names, num_classes)
    labels = labels.to(torch.int64)
    used = Ranges()
    if raw_features is None:
        if feature_dim is None or feature_dim < 1:
            raise InputError(
                "feature_dim", str(feature_dim), "at least 1 where there are no features"
            )
        features, d, raw_d = None, feature_dim, feature_dim
    else:
        _check_features(raw_features, topology.num_nodes)
        features, used = normalise_features(raw_features, ranges, feature_names)
        d, raw_d = features.shape[1], raw_features.shape[1]
    splits = (splits or Splits()).for_labels(labels)
    return Graph(
        name,
        topology,
        features,
        labels,
        num_classes,
        d,
        raw_d,
        used,
        splits,
        None if node_ids is None else tuple(node_ids),
        None if class_names is None else tuple(class_names),
    )


def fingerprint(
    topology: Topology,
    features: CsrMatrix | None,
    labels: Tensor,
    num_classes: int,
    feature_dim: int,
    splits: Splits | None = None,
) -> str:
    """Hash the content: 16 hex digits of SHA-256 over little-endian bytes, alike on any machine."""
    sizes = [topology.num_nodes, topology.num_entries, num_classes, feature_dim]
    parts = [(torch.tensor(sizes), "<i8"), (topology.indptr, "<i8"), (topology.indices, "<i8")]
    parts.append((labels, "<i8"))
    if features is not None:
        parts += _matrix_parts(features)
    if splits is not None:
        parts += splits.content()
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
    if not -1 <= labels.min() <= labels.max() < num_classes:
        found = f"{int(labels.min())}..{int(labels.max())}"
        raise InputError("labels", found, f"must lie in 0..{num_classes - 1}, or be -1 for none")
    if int(labels.max()) < 0:
        raise InputError("labels", "none", "at least one node needs a label")


def _check_names(setting: str, names: Sequence[str] | None, count: int) -> None:
    if names is not None and (len(names) != count or len(set(names)) != count):
        raise InputError(setting, f"{len(names)} names", f"must be {count} different ones")


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
