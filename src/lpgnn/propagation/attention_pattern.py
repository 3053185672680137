"""The neighbour lists that attention runs over."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from lpgnn.data.graph import Topology
from lpgnn.data.sparse import CsrMatrix
from lpgnn.kernels import Backend
from lpgnn.propagation.matrices import torch_csr
from lpgnn.propagation.operators import with_self_loops

# Several runs share a call of a compiled loop if they have no more entries than this in all (ten
# runs on Cora).
_CHUNK_ENTRIES = 140_000


@dataclass(frozen=True)
class AttentionPattern:
    """Neighbour lists with one self-loop a node, and the way from an entry to its mirror image."""

    indptr: Tensor  # [N + 1] int32
    columns: Tensor  # [E] int32
    rows: Tensor  # [E] int32
    mirror: Tensor  # [E] int32: entry (i, j) -> position of (j, i); the pattern is symmetric
    compiled: bool  # as in Backend
    _folded: dict[int, "AttentionPattern"] = field(init=False, default_factory=dict)

    @classmethod
    def from_topology(cls, topology: Topology, backend: Backend) -> "AttentionPattern":
        looped = with_self_loops(topology)
        rows, columns = looped.row_indices(), looped.indices
        mirror = (columns * looped.num_nodes + rows).argsort()
        shape = (looped.num_nodes, looped.num_nodes)
        zeros = CsrMatrix(looped.indptr, columns, torch.zeros(columns.numel()), shape)
        empty = torch_csr(zeros, backend.device)
        return cls(
            empty.crow_indices(),
            empty.col_indices(),
            rows.to(backend.device, torch.int32),
            mirror.to(backend.device, torch.int32),
            backend.compiled,
        )

    def folded(self, copies: int) -> "AttentionPattern":
        """The block-diagonal pattern of several copies of the graph, built once."""
        if copies == 1:
            return self
        if copies not in self._folded:
            nodes, entries = self.indptr.numel() - 1, self.columns.numel()
            copy = torch.arange(copies, dtype=torch.int32, device=self.indptr.device)[:, None]
            starts = (self.indptr[:-1] + copy * entries).flatten()
            self._folded[copies] = AttentionPattern(
                torch.cat([starts, self.indptr[-1:] * copies]),
                (self.columns + copy * nodes).flatten(),
                (self.rows + copy * nodes).flatten(),
                (self.mirror + copy * entries).flatten(),
                self.compiled,
            )
        return self._folded[copies]

    @cached_property
    def arrays(self) -> tuple[Any, Any]:
        """Neighbour lists for compiled loops."""
        return self.indptr.numpy(), self.columns.numpy()

    def chunks(self, runs: int) -> Iterator[slice]:
        """Runs to work on at once: as many as have entries that stay in the cache."""
        together = max(1, _CHUNK_ENTRIES // self.columns.numel())
        return (slice(start, start + together) for start in range(0, runs, together))

    @cached_property
    def _long_indptr(self) -> Tensor:  # segment_reduce takes no other
        return self.indptr.long()

    def matrix(self, values: Tensor) -> Tensor:  # [E] -> [N, N] compressed rows
        nodes = self.indptr.numel() - 1
        return torch.sparse_csr_tensor(
            self.indptr, self.columns, values, size=(nodes, nodes), check_invariants=False
        )

    def row_max(self, values: Tensor) -> Tensor:  # [E] -> [N]
        return torch.segment_reduce(values, "max", offsets=self._long_indptr, unsafe=True)

    def row_sums(self, values: Tensor) -> Tensor:  # [E] -> [N]
        return self.matrix(values) @ values.new_ones(self.indptr.numel() - 1)

    def column_sums(self, values: Tensor) -> Tensor:  # [E] -> [N]
        return self.row_sums(values.index_select(0, self.mirror))
