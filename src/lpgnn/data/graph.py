"""The clean graph: a public topology and the private data of its nodes."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lpgnn.data.ranges import RangeChoice, Ranges
from lpgnn.data.sparse import CsrMatrix, sorted_unique
from lpgnn.data.splits import SplitChoice, Splits
from lpgnn.errors import InputError

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd
    from torch_geometric.data import Data


@dataclass(frozen=True)
class Topology:
    """An undirected graph as the sorted neighbour lists of its nodes, self-loops as given."""

    indptr: Tensor  # [N + 1] int64
    indices: Tensor  # [entries] int64, sorted and unique in each row

    @classmethod
    def from_edges(cls, num_nodes: int, edge_index: Tensor) -> "Topology":
        """Build from edges in either or both directions; duplicates count once.

        edge_index: [2, E] int64
        """
        # An id out of range would alias another edge's key below and pass unseen.
        if edge_index.numel() and not 0 <= edge_index.min() <= edge_index.max() < num_nodes:
            found = f"{int(edge_index.min())}..{int(edge_index.max())}"
            raise InputError("edges", found, f"node ids must lie in 0..{num_nodes - 1}")
        source, target = edge_index
        both = torch.cat([source * num_nodes + target, target * num_nodes + source])
        both = sorted_unique(both)
        rows = torch.div(both, num_nodes, rounding_mode="floor")
        indptr = torch.zeros(num_nodes + 1, dtype=torch.int64)
        indptr[1:] = torch.bincount(rows, minlength=num_nodes).cumsum(0)
        return cls(indptr, both % num_nodes)

    @property
    def num_nodes(self) -> int:
        return self.indptr.numel() - 1

    @property
    def num_entries(self) -> int:
        """Directed entries: an edge counts twice, a self-loop once."""
        return self.indices.numel()

    @property
    def num_edges(self) -> int:
        """Edges as the paper's dataset table counts them."""
        return self.num_entries // 2

    def row_indices(self) -> Tensor:
        return torch.repeat_interleave(torch.arange(self.num_nodes), self.indptr.diff())

    def edge_index(self) -> Tensor:
        """Both directions of every edge.  -> [2, entries]"""
        return torch.stack([self.row_indices(), self.indices])

    def num_self_loops(self) -> int:
        return int((self.row_indices() == self.indices).sum())

    def without_self_loops(self) -> "Topology":
        rows = self.row_indices()
        keep = rows != self.indices
        indptr = torch.zeros_like(self.indptr)
        indptr[1:] = torch.bincount(rows[keep], minlength=self.num_nodes).cumsum(0)
        return Topology(indptr, self.indices[keep])


@dataclass(frozen=True)
class Graph:
    """A graph before collection: everything but the topology is private to the nodes.

    ``features`` lie in [0, 1], scaled by ``ranges`` (see ``lpgnn.data.normalise``); they are
    ``None`` where only the topology and labels are available, and ``feature_dim`` then says how
    wide they would be.  A node without a label is in no split: no loss, no validation, no test.
    """

    name: str
    topology: Topology
    features: CsrMatrix | None  # [N, d]
    labels: Tensor  # [N] int64 in [0, num_classes); -1 = unlabelled
    num_classes: int
    feature_dim: int
    raw_feature_dim: int  # before constant columns were dropped
    ranges: Ranges = field(default_factory=Ranges)
    splits: Splits = field(default_factory=Splits)
    node_ids: tuple[str, ...] | None = None  # [N] the user's own; None: 0..N-1
    class_names: tuple[str, ...] | None = None  # [c] the user's own; None: 0..c-1
    fingerprint: str = field(init=False)  # of topology, features, labels and splits

    def __post_init__(self) -> None:
        # Computed, not given: a graph made by dataclasses.replace must not pass for the first one.
        from lpgnn.data.normalise import fingerprint

        digest = fingerprint(
            *(self.topology, self.features, self.labels),
            *(self.num_classes, self.feature_dim, self.splits),
        )
        object.__setattr__(self, "fingerprint", digest)

    @property
    def num_nodes(self) -> int:
        return self.topology.num_nodes

    @classmethod
    def from_pyg(
        cls,
        data: "Data",
        *,
        ranges: RangeChoice,
        split: SplitChoice = None,
        name: str = "custom",
    ) -> "Graph":
        """A graph from PyTorch Geometric's ``Data``; see ``lpgnn.data.pyg``."""
        from lpgnn.data.pyg import graph_from_pyg

        return graph_from_pyg(data, ranges=ranges, split=split, name=name)

    @classmethod
    def from_networkx(
        cls,
        network: "nx.Graph",
        *,
        ranges: RangeChoice,
        split: SplitChoice = None,
        label: str = "label",
        name: str = "custom",
    ) -> "Graph":
        """A graph from networkx, with node attributes; see ``lpgnn.data.networks``."""
        from lpgnn.data.networks import graph_from_networkx

        return graph_from_networkx(network, ranges=ranges, split=split, label=label, name=name)

    @classmethod
    def from_frames(
        cls,
        nodes: "pd.DataFrame",
        edges: "pd.DataFrame",
        *,
        ranges: RangeChoice,
        split: SplitChoice = None,
        label: str = "label",
        name: str = "custom",
    ) -> "Graph":
        """A graph from a table of nodes and one of edges; see ``lpgnn.data.frames``."""
        from lpgnn.data.frames import graph_from_frames

        return graph_from_frames(nodes, edges, ranges=ranges, split=split, label=label, name=name)

    def to_pyg(self, *, sparse: bool = False) -> "Data":
        """PyTorch Geometric's ``Data``; sparse: x as a CSR tensor, where [N, d] would not fit."""
        from lpgnn.data.pyg import graph_to_pyg

        return graph_to_pyg(self, sparse=sparse)
