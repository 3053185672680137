"""Graph attention as sparse products: per-edge scores, no per-edge features."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lpgnn.data.graph import Topology
from lpgnn.data.sparse import CsrMatrix
from lpgnn.propagation.operators import multiply_into, torch_csr, with_self_loops

_SLOPE = 0.2  # of the leaky ReLU on the scores, as in the GAT paper and torch-geometric


@dataclass(frozen=True)
class AttentionPattern:
    """Neighbour lists with one self-loop a node, and the way from an entry to its mirror image."""

    empty: Tensor  # [N, N] compressed rows of zeros
    rows: Tensor  # [E] int32
    mirror: Tensor  # [E] int64: entry (i, j) -> position of (j, i); the pattern is symmetric

    @classmethod
    def from_topology(cls, topology: Topology, device: torch.device) -> "AttentionPattern":
        looped = with_self_loops(topology)
        rows, columns = looped.row_indices(), looped.indices
        mirror = (columns * looped.num_nodes + rows).argsort()
        shape = (looped.num_nodes, looped.num_nodes)
        zeros = CsrMatrix(looped.indptr, columns, torch.zeros(columns.numel()), shape)
        return cls(torch_csr(zeros, device), rows.to(device, torch.int32), mirror.to(device))

    @property
    def indptr(self) -> Tensor:  # [N + 1] int32
        return self.empty.crow_indices()

    @property
    def columns(self) -> Tensor:  # [E] int32
        return self.empty.col_indices()

    def matrix(self, values: Tensor) -> Tensor:  # [E] -> [N, N] compressed rows
        return torch.sparse_csr_tensor(
            self.indptr, self.columns, values, size=self.empty.shape, check_invariants=False
        )


def attend(pattern: AttentionPattern, source: Tensor, target: Tensor, value: Tensor) -> Tensor:
    """One attention head of every run.

    out_i = sum_j a_ij value_j,  a_i = softmax over j in N(i) + {i} of
    leaky_relu(source_j + target_i).  source, target: [R, N]; value: [R, N, f] -> [R, N, f]
    """
    return _Attend.apply(source, target, value.contiguous(), pattern)  # type: ignore[no-any-return]


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, source: Tensor, target: Tensor, value: Tensor, pattern: AttentionPattern
    ) -> Tensor:
        ones = value.new_ones(value.shape[1], 1)
        weights, slopes, out = [], [], torch.empty_like(value)
        for run in range(value.shape[0]):
            # The largest score of a row sits at its largest source: the leaky ReLU is monotone.
            at_source = source[run].index_select(0, pattern.columns)  # [E]
            top = torch.segment_reduce(at_source, "max", offsets=pattern.indptr.long(), unsafe=True)
            score = at_source.add_(target[run].index_select(0, pattern.rows))
            positive = score > 0
            shift = torch.nn.functional.leaky_relu(top + target[run], _SLOPE)  # [N]
            score = torch.nn.functional.leaky_relu_(score, _SLOPE)
            weight = score.sub_(shift.index_select(0, pattern.rows)).exp_()
            total = (pattern.matrix(weight) @ ones)[:, 0]  # [N], at least 1
            weight.div_(total.index_select(0, pattern.rows))
            multiply_into(out[run], pattern.matrix(weight), value[run])
            weights.append(weight)
            slopes.append(positive)
        ctx.pattern, ctx.weights, ctx.slopes = pattern, weights, slopes
        ctx.save_for_backward(value, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        pattern: AttentionPattern = ctx.pattern
        value, out = ctx.saved_tensors
        grad = grad.contiguous()
        ones = value.new_ones(value.shape[1], 1)
        d_value = torch.empty_like(value)
        d_source = value.new_empty(value.shape[:2])
        d_target = torch.empty_like(d_source)
        for run, (weight, positive) in enumerate(zip(ctx.weights, ctx.slopes, strict=True)):
            # d loss / d a_ij = grad_i . value_j, read at the pattern's entries only.
            products = torch.sparse.sampled_addmm(
                pattern.empty, grad[run], value[run].t(), beta=0.0
            )
            # The softmax's inner product sum_j a_ij grad_i . value_j is grad_i . out_i.
            inner = (grad[run] * out[run]).sum(1)  # [N]
            d_score = products.values().sub_(inner.index_select(0, pattern.rows)).mul_(weight)
            d_score = torch.where(positive, d_score, _SLOPE * d_score)
            d_target[run] = (pattern.matrix(d_score) @ ones)[:, 0]
            mirrored = d_score.index_select(0, pattern.mirror)
            d_source[run] = (pattern.matrix(mirrored) @ ones)[:, 0]
            transposed = pattern.matrix(weight.index_select(0, pattern.mirror))
            multiply_into(d_value[run], transposed, grad[run])
        return d_source, d_target, d_value, None
