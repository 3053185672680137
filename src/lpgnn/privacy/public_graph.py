"""What everybody may know before any report: the graph, and who is asked for a label."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lpgnn.archive import Array, digest, read_arrays, write_arrays
from lpgnn.data.graph import Topology
from lpgnn.errors import InputError

GRAPH_ARRAYS = {
    **{"indptr": "i", "indices": "i", "train": "b", "val": "b"},
    **{"node_ids?": "U", "class_names?": "U"},
}


@dataclass(frozen=True, eq=False)
class PublicGraph:
    """The public part of a collection: topology, masks, and the names of nodes and classes.

    The nodes of both masks are asked for their label, and no other node is.
    """

    topology: Topology
    train: Tensor  # [N] bool
    val: Tensor  # [N] bool, disjoint from train
    node_ids: tuple[str, ...] | None = None  # [N]; None: 0..N-1
    class_names: tuple[str, ...] | None = None  # [c]; None: 0..c-1

    @property
    def num_nodes(self) -> int:
        return self.topology.num_nodes

    @property
    def asked(self) -> Tensor:
        """Which nodes are asked for their label.  -> [N] bool"""
        return self.train | self.val

    @property
    def digest(self) -> str:
        """A hash of all of it, which the task quotes."""
        arrays = self.arrays()
        return digest(*(part for name in sorted(arrays) for part in (name.encode(), arrays[name])))

    def arrays(self) -> dict[str, Array]:
        found: dict[str, Array] = {
            "indptr": self.topology.indptr.numpy().astype("<i8", copy=False),
            "indices": self.topology.indices.numpy().astype("<i8", copy=False),
            "train": self.train.numpy(),
            "val": self.val.numpy(),
        }
        for name, texts in (("node_ids", self.node_ids), ("class_names", self.class_names)):
            if texts is not None:
                found[name] = np.array(texts, dtype=np.str_)
        return found

    def save(self, path: Path) -> None:
        write_arrays(path, self.arrays())

    @classmethod
    def load(cls, setting: str, path: Path) -> "PublicGraph":
        return cls.from_arrays(setting, path, read_arrays(setting, path, GRAPH_ARRAYS))

    @classmethod
    def from_arrays(cls, setting: str, path: Path, arrays: dict[str, Array]) -> "PublicGraph":
        def refuse(reason: str) -> InputError:
            return InputError(setting, path, f"does not hold a graph: {reason}")

        indptr, indices = arrays["indptr"], arrays["indices"]
        n = len(indptr) - 1
        if indptr.ndim != 1 or indices.ndim != 1 or n < 1:
            raise refuse("indptr and indices must be neighbour lists of at least one node")
        if indptr[0] != 0 or indptr[-1] != len(indices) or (np.diff(indptr) < 0).any():
            raise refuse(f"indptr must rise from 0 to {len(indices)}")
        if len(indices) and not (indices.min() >= 0 and indices.max() < n):
            raise refuse(f"indices must lie in 0..{n - 1}")
        rows = np.repeat(np.arange(n), np.diff(indptr))
        keys = rows * n + indices
        if (keys[1:] <= keys[:-1]).any():
            raise refuse("neighbour lists must be ascending, no neighbour twice")
        back = indices * n + rows
        back.sort()
        if not np.array_equal(keys, back):
            raise refuse("every edge must be there in both directions")
        for name in ("train", "val"):
            if arrays[name].shape != (n,):
                raise refuse(f"{name} must be a mask of {n} nodes")
        if (arrays["train"] & arrays["val"]).any():
            raise refuse("train and val must be disjoint")
        if "node_ids" in arrays and arrays["node_ids"].shape != (n,):
            raise refuse(f"node_ids must be {n} texts")
        topology = Topology(
            torch.from_numpy(indptr.astype(np.int64, copy=False)),
            torch.from_numpy(indices.astype(np.int64, copy=False)),
        )
        train, val = (torch.from_numpy(arrays[name].copy()) for name in ("train", "val"))
        node_ids, class_names = (
            tuple(arrays[name].tolist()) if name in arrays else None
            for name in ("node_ids", "class_names")
        )
        return cls(topology, train, val, node_ids, class_names)
