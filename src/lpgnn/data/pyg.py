"""Graphs to and from PyTorch Geometric: its ``Data``, its files, its datasets by name."""

import contextlib
import difflib
import inspect
import random
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from lpgnn.data.dataset import Dataset
from lpgnn.data.frames import dense_to_csr
from lpgnn.data.graph import Graph, Topology
from lpgnn.data.normalise import make_graph
from lpgnn.data.ranges import RangeChoice
from lpgnn.data.sparse import CsrMatrix
from lpgnn.data.splits import PARTS, Split, SplitChoice, choose_splits
from lpgnn.errors import InputError, error_line, one_line

if TYPE_CHECKING:
    from torch_geometric.data import Data


def graph_from_pyg(
    data: "Data", *, ranges: RangeChoice, split: SplitChoice = None, name: str = "custom"
) -> Graph:
    """Take ``x`` [N, d], ``edge_index`` [2, E] and ``y`` [N] or [N, 1] over into a ``Graph``.

    ``x`` may be dense or a torch sparse tensor; ``y`` is -1 where a node has no label.  A directed
    edge_index is made symmetric.  ``train_mask``, ``val_mask`` and ``test_mask``, [N] or [N, k],
    are the graph's own splits.  The number of classes is ``data.num_classes`` if set, else the
    highest label and one.
    """
    edge_index, y = data.edge_index, data.y
    if not isinstance(edge_index, Tensor) or edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise InputError("data.edge_index", _kind(edge_index), "must be a tensor of shape [2, E]")
    if edge_index.dtype.is_floating_point or edge_index.dtype.is_complex:
        raise InputError("data.edge_index", edge_index.dtype, "must be whole numbers")
    if not isinstance(y, Tensor) or y.numel() == 0:
        raise InputError("data.y", _kind(y), "must be a tensor of one integer per node")
    labels = y.cpu().squeeze(1) if y.dim() == 2 and y.shape[1] == 1 else y.cpu()
    if labels.dim() != 1:
        raise InputError("data.y", _kind(y), "must be a tensor of one integer per node")
    num_nodes = labels.shape[0]
    features = None if data.x is None else _to_csr(data.x)
    feature_dim = getattr(data, "feature_dim", None)
    if features is None and feature_dim is None:
        raise InputError(
            "data.x", "None", "must be a tensor of shape [N, d], or set data.feature_dim"
        )
    num_classes = getattr(data, "num_classes", None)
    if num_classes is None:
        num_classes = int(labels.max()) + 1
    topology = Topology.from_edges(num_nodes, edge_index.cpu().to(torch.int64))
    return make_graph(
        name,
        topology,
        features,
        labels,
        int(num_classes),
        feature_dim,
        ranges=ranges,
        splits=choose_splits(split, _own_splits(data)),
        node_ids=_names(data, "node_ids"),
        class_names=_names(data, "class_names"),
    )


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
    for part in PARTS:
        if graph.splits.own:
            masks = [split.parts()[part] for split in graph.splits.own]
            data[f"{part}_mask"] = masks[0] if len(masks) == 1 else torch.stack(masks, 1)
    for key in ("node_ids", "class_names"):
        if (names := getattr(graph, key)) is not None:
            data[key] = list(names)
    return data


def read_pyg_file(path: Path) -> "Data":
    """Read a saved ``Data``, or a dict of its tensors, without running anything in the file."""
    from pickle import UnpicklingError

    from torch_geometric.data import Data

    try:
        with _safe_unpickling():
            found = torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        named = re.search(r"GLOBAL (\S+)", str(error))
        what = f"{named[1]} is not a tensor" if named else "not a file of torch.save"
        allowed = f"must hold nothing but a Data or a dict of tensors: {what}"
        raise InputError("pt", path.name, allowed) from None
    except Exception as error:  # a damaged file can fail anywhere in the unpickler
        reason = one_line(error)[:100] or type(error).__name__
        raise InputError("pt", path.name, f"not a readable file of torch.save: {reason}") from None
    if isinstance(found, Mapping):
        found = Data.from_dict({str(key): value for key, value in found.items()})
    if not isinstance(found, Data):
        allowed = "must hold a torch_geometric.data.Data or a dict of tensors"
        raise InputError("pt", type(found).__name__, allowed)
    return found


@dataclass(frozen=True)
class PygDataset(Dataset):
    """A dataset of ``torch_geometric.datasets`` by the name of its class.

    ``arguments`` go to its constructor; its files are kept below ``<data_dir>/pyg``.  The class
    downloads what it likes; what it has processed is unpickled only if it is a plain Data.
    """

    class_: str = "???"
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)
    ranges: Any = None  # unit | data | [low, high]
    split: Any = None  # own | random | [train, val, test]; None: own where there are any

    def __post_init__(self) -> None:
        if not isinstance(self.arguments, Mapping):
            raise InputError("arguments", self.arguments, "must map names to values")
        for name in ("ranges", "split"):
            if isinstance(value := getattr(self, name), list):
                object.__setattr__(self, name, tuple(value))
        _dataset_class(self.class_)
        if self.ranges is None:
            allowed = (
                "must be declared: unit, [low, high], or data for the data's own (not private)"
            )
            raise InputError("ranges", None, allowed)
        words = [self.class_, *(str(value) for value in self.arguments.values())]
        object.__setattr__(self, "name", re.sub(r"[^A-Za-z0-9._-]", "_", "-".join(words))[:100])

    def load(self, data_dir: Path) -> Graph:
        build = _dataset_class(self.class_)
        arguments = {str(key): value for key, value in self.arguments.items()}
        if "root" in inspect.signature(build).parameters:
            arguments.setdefault("root", str(Path(data_dir) / "pyg" / self.class_))
        try:
            with _seeded(), _safe_unpickling():
                found = build(**arguments)
                count, data = len(found), found[0]
        except Exception as error:  # any of a hundred classes, and the network
            reason = error_line(error)[:200]
            raise InputError("dataset.class", self.class_, f"cannot be loaded: {reason}") from None
        from torch_geometric.data import Data

        if count != 1 or type(data) is not Data:
            found_text = f"{self.class_} with {count} graphs of type {type(data).__name__}"
            raise InputError("dataset.class", found_text, "must be one graph of type Data")
        return graph_from_pyg(data, ranges=self.ranges, split=self.split, name=self.name)


def _dataset_class(name: str) -> Any:
    from torch_geometric import datasets

    known = [one for one in datasets.__all__ if inspect.isclass(getattr(datasets, one, None))]
    if name not in known:
        near = difflib.get_close_matches(str(name), known, 3)
        hint = f" (did you mean {', '.join(near)}?)" if near else ", such as Planetoid"
        raise InputError("class", name, f"must be a class of torch_geometric.datasets{hint}")
    return getattr(datasets, name)


@contextlib.contextmanager
def _safe_unpickling() -> Iterator[None]:
    """Let torch.load(weights_only=True) rebuild a Data, and nothing that is not one.

    Where that fails, torch-geometric's datasets warn and unpickle anything: here that is an error.
    """
    from torch.serialization import safe_globals
    from torch_geometric.data import Data
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    known = [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]
    with safe_globals(known), warnings.catch_warnings():
        warnings.filterwarnings("error", "Weights only load failed")
        warnings.filterwarnings("ignore", "Detected pickle protocol")  # it is refused if it matters
        yield


@contextlib.contextmanager
def _seeded() -> Iterator[None]:
    """Fixed global seeds while a dataset is made: some are drawn anew each time they are loaded."""
    states = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            random.seed(0)
            np.random.seed(0)  # noqa: NPY002
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002


def _own_splits(data: "Data") -> tuple[Split, ...]:
    masks = [getattr(data, f"{part}_mask", None) for part in PARTS]
    if any(mask is None for mask in masks):
        return ()
    columns = []
    for part, mask in zip(PARTS, masks, strict=True):
        if not isinstance(mask, Tensor) or mask.dim() not in (1, 2):
            raise InputError(
                "split", f"{part}_mask {_kind(mask)}", "must be a tensor [N] or [N, k]"
            )
        columns.append(mask.cpu().bool().view(mask.shape[0], -1))
    count = max(mask.shape[1] for mask in columns)
    if any(mask.shape[1] not in (1, count) for mask in columns):
        raise InputError("split", [mask.shape[1] for mask in columns], "masks of one width [N, k]")
    # Some published graphs have many training masks and one test mask.
    return tuple(
        Split(*(mask[:, number if mask.shape[1] > 1 else 0] for mask in columns))
        for number in range(count)
    )


def _names(data: "Data", key: str) -> list[str] | None:
    names = getattr(data, key, None)
    return None if names is None else [str(name) for name in names]


def _to_csr(x: object) -> CsrMatrix:
    if not isinstance(x, Tensor) or x.dim() != 2:
        raise InputError("data.x", _kind(x), "must be a dense or torch sparse tensor [N, d]")
    if x.dtype.is_complex:
        raise InputError("data.x", x.dtype, "must be real numbers")
    if x.layout == torch.strided:
        exact = x if x.dtype in (torch.float32, torch.float64) else x.double()
        return dense_to_csr(exact.detach().cpu().numpy())
    coo = (x if x.layout == torch.sparse_coo else x.to_sparse(layout=torch.sparse_coo)).coalesce()
    rows, columns = coo.indices().cpu()
    return CsrMatrix.from_coo(rows, columns, coo.values().cpu(), (x.shape[0], x.shape[1]))


def _to_torch_csr(matrix: CsrMatrix) -> Tensor:
    return torch.sparse_csr_tensor(
        matrix.indptr, matrix.indices, matrix.values, matrix.shape, check_invariants=True
    )


def _kind(value: object) -> str:
    return f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
