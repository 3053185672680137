"""Graph attention as sparse products: per-edge scores, no per-edge features."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lpgnn.data.graph import Topology
from lpgnn.data.sparse import CsrMatrix
from lpgnn.kernels.attention import aggregate, attention_gradients, score_gaps
from lpgnn.kernels.registers import LANES
from lpgnn.propagation.matrices import flat, torch_csr
from lpgnn.propagation.operators import with_self_loops

_SLOPE = 0.2  # of the leaky ReLU on the scores, as in the GAT paper and torch-geometric

# Weights below e^-60 of their row's largest are taken for e^-60: no float32 sum can tell, but
# where exp underflows it takes up to thirty times as long.
_LOWEST = -60.0


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
    _folded: dict[int, "AttentionPattern"] = field(init=False, default_factory=dict)

    @classmethod
    def from_topology(cls, topology: Topology, device: torch.device) -> "AttentionPattern":
        looped = with_self_loops(topology)
        rows, columns = looped.row_indices(), looped.indices
        mirror = (columns * looped.num_nodes + rows).argsort()
        shape = (looped.num_nodes, looped.num_nodes)
        zeros = CsrMatrix(looped.indptr, columns, torch.zeros(columns.numel()), shape)
        empty = torch_csr(zeros, device)
        return cls(
            empty.crow_indices(),
            empty.col_indices(),
            rows.to(device, torch.int32),
            mirror.to(device, torch.int32),
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


def attend(pattern: AttentionPattern, source: Tensor, target: Tensor, value: Tensor) -> Tensor:
    """One attention head of every run.

    out_i = sum_j a_ij value_j,  a_i = softmax over j in N(i) + {i} of
    leaky_relu(source_j + target_i).  source, target: [R, N]; value: [R, N, f] -> [R, N, f]
    """
    if not value.is_cuda:
        return _CompiledAttend.apply(source, target, value, pattern)  # type: ignore[no-any-return]
    out = _Attend.apply(
        *(source.flatten(), target.flatten(), value.flatten(0, 1)), pattern.folded(len(value))
    )
    return out.view(value.shape)  # type: ignore[no-any-return]


class _CompiledAttend(torch.autograd.Function):
    """The formula above by compiled loops.  [R, N], [R, N], [R, N, f] -> [R, N, f]"""

    @staticmethod
    def forward(
        ctx: Any, source: Tensor, target: Tensor, value: Tensor, pattern: AttentionPattern
    ) -> Tensor:
        runs, _, width = value.shape
        source, target = source.contiguous(), target.contiguous()
        value = _whole_registers(value)
        weight = source.new_empty(runs, pattern.columns.numel())
        out, total = torch.empty_like(value), torch.empty_like(source)
        for some in pattern.chunks(runs):
            own = (flat(source[some]), flat(target[some]))
            score_gaps(*pattern.arrays, *own, _SLOPE, _LOWEST, flat(weight[some]))
            for of_run in weight[some]:
                # Each for itself: torch rounds the last few numbers of an array differently.
                of_run.exp_()
            given = (flat(weight[some]), flat(value[some]))
            aggregate(*pattern.arrays, *given, flat(out[some]), flat(total[some]), value.shape[2])
        ctx.pattern, ctx.width = pattern, width
        ctx.save_for_backward(source, target, weight, total, value, out)
        return out[:, :, :width]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        pattern: AttentionPattern = ctx.pattern
        source, target, weight, total, value, out = ctx.saved_tensors
        grad = _whole_registers(grad, copy=True)
        d_source, d_target = torch.zeros_like(source), torch.empty_like(target)
        d_value = torch.zeros_like(value)
        for some in pattern.chunks(len(value)):
            given = (flat(weight[some]), flat(total[some]), flat(value[some]), flat(out[some]))
            wanted = (flat(d_source[some]), flat(d_target[some]), flat(d_value[some]))
            attention_gradients(
                *(*pattern.arrays, flat(source[some]), flat(target[some])),
                *(_SLOPE, value.shape[2]),
                *(*given, flat(grad[some]), *wanted),
            )
        return d_source, d_target, d_value[:, :, : ctx.width], None


def _whole_registers(x: Tensor, *, copy: bool = False) -> Tensor:
    """Contiguous rows, filled up with zeros to whole registers.  [R, N, f] -> [R, N, F]"""
    missing = -x.shape[2] % LANES
    if missing:
        return F.pad(x, (0, missing))
    return x.clone(memory_format=torch.contiguous_format) if copy else x.contiguous()


class _Attend(torch.autograd.Function):
    """The same by torch's operations, for a GPU, on one graph.  [N], [N], [N, f] -> [N, f]

    The softmax is never formed: with w_ij its numerators and n_i their sum,
    out_i = (sum_j w_ij value_j) / n_i, and the gradient g_i of out_i is divided by n_i likewise:
    d score_ij = w_ij (g_i . value_j - g_i . out_i) / n_i,  d value = W^T (g / n).
    """

    @staticmethod
    def forward(
        ctx: Any, source: Tensor, target: Tensor, value: Tensor, pattern: AttentionPattern
    ) -> Tensor:
        at_source = source.index_select(0, pattern.columns)  # [E]
        # The largest score of a row sits at its largest source: the leaky ReLU is monotone.
        top = F.leaky_relu(pattern.row_max(at_source) + target, _SLOPE)  # [N]
        score = at_source.add_(target.index_select(0, pattern.rows))
        gap = F.leaky_relu(score, _SLOPE).sub_(top.index_select(0, pattern.rows))
        weight = gap.clamp_(min=_LOWEST).exp_()
        total = pattern.row_sums(weight)[:, None]  # [N, 1], at least 1
        value = value.contiguous()
        out = (pattern.matrix(weight) @ value).div_(total)
        ctx.pattern = pattern
        ctx.save_for_backward(score, weight, total, value, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        pattern: AttentionPattern = ctx.pattern
        score, weight, total, value, out = ctx.saved_tensors
        grad = grad / total
        inner = (grad * out).sum(1).neg_()  # [N]
        # g_i . value_j - g_i . out_i, at the pattern's entries only.
        d_score = pattern.matrix(inner.index_select(0, pattern.rows))
        torch.sparse.sampled_addmm(d_score, _even(grad), _even(value).t(), out=d_score)
        d_leaky = d_score.values().mul_(weight)
        d_sum = torch.ops.aten.leaky_relu_backward(d_leaky, score, _SLOPE, False)
        transposed = pattern.matrix(weight.index_select(0, pattern.mirror))
        d_value = transposed @ grad
        return pattern.column_sums(d_sum), pattern.row_sums(d_sum), d_value, None


def _even(x: Tensor) -> Tensor:
    """Pad columns to eights: torch's sampled product takes seven times as long on 4 as on 8."""
    return F.pad(x, (0, -x.shape[1] % 8)) if x.shape[1] % 8 else x
