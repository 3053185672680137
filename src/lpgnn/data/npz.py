"""Graphs in one npz file of plain arrays, in the two layouts that benchmarks are published in.

gnn-benchmark (Shchur et al. 2018): the CSR arrays ``adj_data``, ``adj_indices``, ``adj_indptr``,
``adj_shape``, the same of ``attr`` (or ``attr_matrix``, dense), and ``labels``.

heterophilous-graphs (Platonov et al. 2023): ``node_features`` [N, d], ``node_labels`` [N],
``edges`` [E, 2] and ``train_masks``, ``val_masks``, ``test_masks`` [k, N].

Either may have ``node_names`` and ``class_names``.  A label of -1 is none.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lpgnn.archive import read_npz
from lpgnn.data.frames import dense_to_csr
from lpgnn.data.graph import Graph, Topology
from lpgnn.data.normalise import make_graph
from lpgnn.data.ranges import RangeChoice
from lpgnn.data.sparse import CsrMatrix
from lpgnn.data.splits import Split, SplitChoice, choose_splits
from lpgnn.errors import InputError

Arrays = Mapping[str, NDArray[Any]]

_LAYOUTS = {
    "gnn-benchmark": ("adj_indices", "adj_indptr", "adj_shape", "labels"),
    "heterophilous-graphs": ("node_features", "node_labels", "edges"),
}
_NAMES = ("node_names", "class_names")


def graph_from_npz(
    path: Path, *, ranges: RangeChoice, split: SplitChoice = None, name: str = "custom"
) -> Graph:
    """Read either layout; nothing in the file is unpickled."""
    arrays = _read(path)
    if all(key in arrays for key in _LAYOUTS["gnn-benchmark"]):
        topology, features, labels = _from_csr_arrays(arrays)
    elif all(key in arrays for key in _LAYOUTS["heterophilous-graphs"]):
        topology, features, labels = _from_edge_array(arrays)
    else:
        wanted = " or ".join(", ".join(keys) for keys in _LAYOUTS.values())
        found = ", ".join(list(arrays)[:8]) or "nothing"
        raise InputError("npz", f"arrays {found}", f"needs {wanted}")
    class_names = _strings(arrays.get("class_names"))
    return make_graph(
        name,
        topology,
        features,
        labels,
        len(class_names) if class_names is not None else int(labels.max()) + 1,
        ranges=ranges,
        splits=choose_splits(split, _masks(arrays)),
        node_ids=_strings(arrays.get("node_names")),
        class_names=class_names,
    )


def _read(path: Path) -> Arrays:
    """All arrays; of those that are Python objects only names may be left out."""
    found, objects = read_npz("npz", path, path.name)
    for key in objects:
        if key not in _NAMES and not key.endswith("metadata"):
            raise InputError("npz", key, "must be a plain array, not Python objects")
    return found


def _from_csr_arrays(arrays: Arrays) -> tuple[Topology, CsrMatrix, Tensor]:
    adjacency = _csr("adj", arrays)
    num_nodes = adjacency.shape[0]
    if adjacency.shape[1] != num_nodes:
        raise InputError("adj_shape", adjacency.shape, "must be square")
    nonzero = adjacency.values != 0
    edges = torch.stack([adjacency.row_indices()[nonzero], adjacency.indices[nonzero]])
    if "attr_matrix" in arrays:
        features = _dense("attr_matrix", arrays["attr_matrix"])
    else:
        features = _csr("attr", arrays)
    return Topology.from_edges(num_nodes, edges), features, _labels("labels", arrays["labels"])


def _from_edge_array(arrays: Arrays) -> tuple[Topology, CsrMatrix, Tensor]:
    features = _dense("node_features", arrays["node_features"])
    edges = arrays["edges"]
    if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
        raise InputError("edges", f"{edges.shape} {edges.dtype}", "must be [E, 2] integers")
    ends = torch.from_numpy(edges.astype(np.int64)).t()
    topology = Topology.from_edges(features.shape[0], ends)
    return topology, features, _labels("node_labels", arrays["node_labels"])


def _csr(prefix: str, arrays: Arrays) -> CsrMatrix:
    """Rebuild and check a CSR matrix; repeated entries are refused."""
    keys = [f"{prefix}_{part}" for part in ("indptr", "indices", "shape")]
    for key in keys:
        if key not in arrays or arrays[key].ndim != 1 or arrays[key].dtype.kind not in "iu":
            raise InputError("npz", key, "must be there, as a row of integers")
    indptr, indices, shape = (torch.from_numpy(arrays[key].astype(np.int64)) for key in keys)
    data = arrays.get(f"{prefix}_data", np.ones(indices.numel(), np.float32))
    rows = indptr.numel() - 1
    fits = shape.numel() == 2 and rows == int(shape[0]) and data.shape == (indices.numel(),)
    if not fits or int(indptr[0]) != 0 or int(indptr[-1]) != indices.numel():
        raise InputError("npz", f"{prefix}_*", "the arrays of a CSR matrix do not fit together")
    if bool((indptr.diff() < 0).any()):
        raise InputError("npz", keys[0], "must not fall")
    num_columns = int(shape[1])
    if indices.numel() and not 0 <= indices.min() <= indices.max() < num_columns:
        found = f"{int(indices.min())}..{int(indices.max())}"
        raise InputError(keys[1], found, f"must lie in 0..{num_columns - 1}")
    values = torch.from_numpy(_floats(f"{prefix}_data", data))
    entry_rows = torch.repeat_interleave(torch.arange(rows), indptr.diff())
    order = (entry_rows * num_columns + indices).argsort()
    entries = (entry_rows * num_columns + indices)[order]
    if bool((entries[1:] == entries[:-1]).any()):
        raise InputError("npz", f"{prefix}_indices", "an entry repeats")
    return CsrMatrix(indptr, indices[order], values[order], (rows, num_columns))


def _dense(key: str, x: NDArray[Any]) -> CsrMatrix:
    if x.ndim != 2:
        raise InputError(key, f"shape {x.shape}", "must be [N, d]")
    return dense_to_csr(_floats(key, x))


def _floats(key: str, x: NDArray[Any]) -> NDArray[Any]:
    if x.dtype.kind not in "fiub":
        raise InputError(key, x.dtype, "must be numbers")
    return x if x.dtype in (np.float32, np.float64) else x.astype(np.float64)


def _labels(key: str, labels: NDArray[Any]) -> Tensor:
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise InputError(key, f"shape {labels.shape} {labels.dtype}", "must be one integer a node")
    return torch.from_numpy(labels.astype(np.int64))


def _masks(arrays: Arrays) -> tuple[Split, ...]:
    """``train_masks`` [k, N], or ``train_mask`` [N], and so on."""
    for plural in ("s", ""):
        keys = [f"{part}_mask{plural}" for part in ("train", "val", "test")]
        if all(key in arrays for key in keys):
            masks = [np.atleast_2d(arrays[key]) for key in keys]
            if any(mask.shape != masks[0].shape or mask.ndim != 2 for mask in masks):
                raise InputError("split", ", ".join(keys), "must have one shape, [k, N]")
            drawn = zip(*(torch.from_numpy(mask.astype(bool)) for mask in masks), strict=True)
            return tuple(Split(*parts) for parts in drawn)
    return ()


def _strings(names: NDArray[Any] | None) -> tuple[str, ...] | None:
    """Names of nodes or classes, if they are all different."""
    if names is None or names.ndim != 1:
        return None
    texts = tuple(str(name) for name in names)
    return texts if len(set(texts)) == len(texts) else None
