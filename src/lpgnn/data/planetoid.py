"""Cora and Pubmed: the Planetoid pickles, and Cora's original text files."""

import io
import pickle
from collections import defaultdict
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lpgnn.data.graph import Graph, Topology
from lpgnn.data.normalise import make_graph
from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError

PICKLE_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
DAMAGED = "truncated or damaged; delete the file to download it again"


def pickle_files(name: str) -> tuple[str, ...]:
    return tuple(f"ind.{name}.{part}" for part in PICKLE_PARTS)


CORA_TEXT_FILES = ("cora.content", "cora.cites")


def read_planetoid(name: str, raw_dir: Path) -> Graph:
    """Read ``ind.<name>.*``: the nodes of ``allx`` in order, then those listed in ``test.index``.

    Row i of ``tx`` and ``ty`` belongs to node ``test.index[i]``; ``x`` and ``y`` repeat the first
    rows of ``allx`` and ``ally``.  Self-loops (3 in Pubmed) are left out, as in the paper's edge
    counts.
    """
    prefix = raw_dir / f"ind.{name}"
    x, allx, tx = (_features(_part(prefix, part)) for part in ("x", "allx", "tx"))
    y, ally, ty = (_one_hot_labels(_part(prefix, part)) for part in ("y", "ally", "ty"))
    graph_path = _part(prefix, "graph")
    adjacency = _unpickle(graph_path)
    index_path = _part(prefix, "test.index")
    index_lines = _read(index_path).split()
    try:
        test_index = torch.tensor([int(line) for line in index_lines])
    except ValueError as error:
        raise InputError("data_dir", index_path, DAMAGED) from error

    num_train, num_nodes = allx.shape[0], allx.shape[0] + tx.shape[0]
    expected = torch.arange(num_train, num_nodes)
    if test_index.numel() != tx.shape[0] or not torch.equal(test_index.sort().values, expected):
        raise InputError(
            "data_dir", index_path, f"must list the nodes {num_train}..{num_nodes - 1}"
        )
    sizes_agree = (
        ally.shape == (num_train,)
        and ty.shape == test_index.shape
        and y.shape == (x.shape[0],)
        and x.shape[0] <= num_train
        and x.shape[1] == allx.shape[1] == tx.shape[1]
    )
    if not sizes_agree:
        raise InputError("data_dir", raw_dir, f"the ind.{name}.* files disagree in their sizes")

    features = CsrMatrix.from_coo(
        torch.cat([allx.row_indices(), test_index[tx.row_indices()]]),
        torch.cat([allx.indices, tx.indices]),
        torch.cat([allx.values, tx.values]),
        (num_nodes, allx.shape[1]),
    )
    labels = torch.empty(num_nodes, dtype=torch.int64)
    labels[:num_train], labels[test_index] = ally, ty
    topology = _topology(adjacency, num_nodes, graph_path)
    return make_graph(name, topology, features, labels, int(labels.max()) + 1)


def read_cora_text(raw_dir: Path) -> Graph:
    """Read ``cora.content`` (paper, 1433 words, subject) and ``cora.cites`` (cited, citing).

    The same graph as the pickles' with its nodes in another order; classes are numbered in
    alphabetical order of the subjects.
    """
    content_path, cites_path = (raw_dir / name for name in CORA_TEXT_FILES)
    papers, word_lines, subjects = [], [], []
    for line in _read(content_path).decode("latin1").splitlines():
        paper, _, rest = line.partition("\t")
        word_line, _, subject = rest.rpartition("\t")
        papers.append(paper)
        word_lines.append(word_line)
        subjects.append(subject)
    try:
        words = np.loadtxt(word_lines, dtype=np.float32, delimiter="\t", ndmin=2)
        if words.shape[0] != len(papers) or len(set(papers)) != len(papers) or not papers:
            raise ValueError("an empty line or a repeated paper")
    except ValueError as error:
        raise InputError("data_dir", content_path, DAMAGED) from error

    node_of = {paper: node for node, paper in enumerate(papers)}
    cites = [line.split() for line in _read(cites_path).decode("latin1").splitlines()]
    if not cites or any(len(pair) != 2 for pair in cites):
        raise InputError("data_dir", cites_path, DAMAGED)
    unknown = next((paper for pair in cites for paper in pair if paper not in node_of), None)
    if unknown is not None:
        found = f"paper {unknown} in {cites_path}"
        raise InputError("data_dir", found, f"every paper must be in {content_path.name}")
    edges = torch.tensor([(node_of[cited], node_of[citing]) for cited, citing in cites])

    class_of = {subject: label for label, subject in enumerate(sorted(set(subjects)))}
    labels = torch.tensor([class_of[subject] for subject in subjects])
    features = CsrMatrix.from_dense(torch.from_numpy(words))
    topology = Topology.from_edges(len(papers), edges.T).without_self_loops()
    return make_graph("cora", topology, features, labels, len(class_of))


class _PickledCsr:
    """Stands in for scipy's csr_matrix while unpickling: the arrays, and no scipy to import."""

    data: Any
    indices: Any
    indptr: Any
    _shape: Any

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.data, self.indices, self.indptr = state["data"], state["indices"], state["indptr"]
        self._shape = state["_shape"]

    def matrix(self) -> CsrMatrix:
        num_rows, num_columns = (int(size) for size in self._shape)
        indptr = torch.from_numpy(np.asarray(self.indptr, dtype=np.int64))
        columns = torch.from_numpy(np.asarray(self.indices, dtype=np.int64))
        values = torch.from_numpy(np.asarray(self.data, dtype=np.float32))
        if indptr.numel() != num_rows + 1 or not columns.numel() == values.numel() == indptr[-1]:
            raise ValueError("the arrays of a sparse matrix disagree")
        if columns.numel() and not 0 <= columns.min() <= columns.max() < num_columns:
            raise ValueError("a column out of range")
        rows = torch.repeat_interleave(torch.arange(num_rows), indptr.diff())
        # The files do not promise sorted columns; from_coo sorts them.
        return CsrMatrix.from_coo(rows, columns, values, (num_rows, num_columns))


# numpy has moved this function between versions; an array knows where it is.
_RECONSTRUCT = np.zeros(0).__reduce__()[0]

# The files date from Python 2 and early scipy, hence the old module names.
_ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("scipy.sparse.csr", "csr_matrix"): _PickledCsr,
    ("scipy.sparse._csr", "csr_matrix"): _PickledCsr,
    ("collections", "defaultdict"): defaultdict,
    ("__builtin__", "list"): list,
    ("builtins", "list"): list,
}


class _ArrayUnpickler(pickle.Unpickler):
    """Unpickles arrays, lists and dictionaries, and calls nothing else a file may name."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ADMITTED:
            raise _RefusedError(f"{module}.{name}")
        return _ADMITTED[module, name]


class _RefusedError(Exception):
    """A pickle names something other than an array type."""


def _unpickle(path: Path) -> Any:
    content = _read(path)
    try:
        return _ArrayUnpickler(io.BytesIO(content), encoding="latin1").load()
    except _RefusedError as error:
        raise InputError(
            "data_dir", path, f"refused: the pickle names {error}, only arrays are allowed"
        ) from error
    # A damaged pickle can fail with almost any exception, as the pickle module documents.
    except Exception as error:
        raise InputError("data_dir", path, DAMAGED) from error


def _features(path: Path) -> CsrMatrix:
    pickled = _unpickle(path)
    if not isinstance(pickled, _PickledCsr):
        raise InputError("data_dir", path, "must hold a sparse matrix in compressed rows")
    try:
        return pickled.matrix()
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        raise InputError("data_dir", path, DAMAGED) from error


def _one_hot_labels(path: Path) -> torch.Tensor:
    one_hot = _unpickle(path)
    if not isinstance(one_hot, np.ndarray) or one_hot.ndim != 2 or one_hot.dtype.kind not in "iuf":
        raise InputError("data_dir", path, "must hold one-hot labels, one row per node")
    if not ((one_hot != 0).sum(axis=1) == 1).all():
        raise InputError("data_dir", path, "every row must have exactly one label")
    return torch.from_numpy(one_hot.argmax(axis=1))


def _topology(adjacency: Any, num_nodes: int, path: Path) -> Topology:
    try:
        neighbours = [np.asarray(row, dtype=np.int64) for row in adjacency.values()]
        nodes = np.fromiter(adjacency.keys(), dtype=np.int64)
        source = np.repeat(nodes, [row.size for row in neighbours])
        edges = torch.from_numpy(np.stack([source, np.fromiter(chain(*neighbours), np.int64)]))
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError("data_dir", path, "must hold a dictionary of neighbour lists") from error
    if edges.numel() and not 0 <= edges.min() <= edges.max() < num_nodes:
        found = f"node {int(edges.max())} in {path}"
        raise InputError("data_dir", found, f"node ids must lie in 0..{num_nodes - 1}")
    return Topology.from_edges(num_nodes, edges).without_self_loops()


def _part(prefix: Path, part: str) -> Path:
    return prefix.with_name(f"{prefix.name}.{part}")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError("data_dir", path, "the file is missing or cannot be read") from error
