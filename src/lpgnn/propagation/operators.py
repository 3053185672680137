"""Sparse operators of a graph, applied to batches of runs."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from lpgnn.data.graph import Topology
from lpgnn.data.sparse import CsrMatrix
from lpgnn.kernels.products import columns_to_rows, rows_to_columns
from lpgnn.kernels.registers import LANES
from lpgnn.propagation.matrices import SparseMatrix, empty_on_huge_pages, flat

Aggregator = Literal["gcn", "mean"]

# On a CPU the narrow class columns of several runs share one product: up to this many columns
# a product costs little more than a single narrow one, beyond it the operand leaves the cache.
_FOLDED_COLUMNS = 32


@dataclass(frozen=True)
class Operator:
    """A sparse N x N matrix and its transpose, which the backward pass needs."""

    matrix: SparseMatrix  # [N, N]
    transposed: SparseMatrix  # [N, N]; the same object where the matrix is symmetric

    @classmethod
    def from_csr(
        cls, matrix: CsrMatrix, device: torch.device, *, symmetric: bool = False
    ) -> "Operator":
        forward = SparseMatrix(matrix, device)
        return cls(forward, forward if symmetric else SparseMatrix(matrix.transpose(), device))

    def propagate(self, x: Tensor, steps: int = 1) -> Tensor:
        """Apply the operator ``steps`` times to node rows.  [R, N, h] -> [R, N, h]"""
        return x if steps == 0 else _Power.apply(x, self, steps)

    def propagate_classes(self, p: Tensor, steps: int = 1) -> Tensor:
        """Apply the operator ``steps`` times to class rows.  [R, c, N] -> [R, c, N]

        Class-major is the layout in which softmax runs along contiguous memory; it also lets
        several runs share one product at no cost but the transposition both ways.
        """
        if steps == 0:
            return p
        return _ClassPower.apply(p, self, steps)  # type: ignore[no-any-return]


def _power_runs(matrix: SparseMatrix, x: Tensor, steps: int) -> Tensor:  # [R, N, h] -> [R, N, h]
    runs, nodes, width = x.shape
    if x.is_cuda:
        wide = x.permute(1, 0, 2).reshape(nodes, runs * width)  # [N, R h]: one launch a step
        wide = matrix.power_into(torch.empty_like(wide), wide, steps)
        return wide.view(nodes, runs, width).permute(1, 0, 2)
    out = empty_on_huge_pages(*x.shape, like=x)
    for run in range(runs):
        matrix.power_into(out[run], x[run], steps)
    return out


def _power_classes(matrix: SparseMatrix, p: Tensor, steps: int) -> Tensor:
    """[R, c, N] -> [R, c, N]"""
    runs, classes, nodes = p.shape
    if p.is_cuda:
        rows = p.reshape(-1, nodes).t().contiguous()  # [N, R c]
        rows = matrix.power_into(torch.empty_like(rows), rows, steps)
        return rows.t().reshape(p.shape)
    p = p.contiguous()
    out = torch.empty_like(p)
    together = max(1, _FOLDED_COLUMNS // classes)
    for start in range(0, runs, together):
        block, target = p[start : start + together], out[start : start + together]
        used = len(block) * classes
        width = used + -used % LANES  # columns that fill no register cost more than a full one
        rows = empty_on_huge_pages(nodes, width, like=p)
        columns_to_rows(flat(block), flat(rows), nodes, used, width)
        rows = matrix.power_into(empty_on_huge_pages(nodes, width, like=p), rows, steps)
        rows_to_columns(flat(rows), flat(target), nodes, used, width)
    return out


class _Power(torch.autograd.Function):
    """A^K x; its gradient is (A^T)^K g, so that no step keeps anything for the way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, operator: Operator, steps: int) -> Tensor:
        ctx.operator, ctx.steps = operator, steps
        return _power_runs(operator.matrix, x, steps)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _power_runs(ctx.operator.transposed, grad.contiguous(), ctx.steps), None, None


class _ClassPower(torch.autograd.Function):
    """The same for class-major columns."""

    @staticmethod
    def forward(ctx: Any, p: Tensor, operator: Operator, steps: int) -> Tensor:
        ctx.operator, ctx.steps = operator, steps
        return _power_classes(operator.matrix, p, steps)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _power_classes(ctx.operator.transposed, grad, ctx.steps), None, None


def with_self_loops(topology: Topology) -> Topology:
    """Give every node exactly one self-loop (GCN and GAT; existing loops count once)."""
    nodes = torch.arange(topology.num_nodes)
    edges = torch.cat([topology.edge_index(), torch.stack([nodes, nodes])], dim=1)
    return Topology.from_edges(topology.num_nodes, edges)


def normalised_adjacency(topology: Topology, aggregator: Aggregator) -> CsrMatrix:
    """Edge weights of the GCN aggregator (paper Eq. gcn) or the mean; isolated nodes get zeros.

    gcn: 1 / sqrt(|N(u)| |N(v)|), symmetric; mean: 1 / |N(v)| for the row's node v.
    """
    rows, columns = topology.row_indices(), topology.indices
    degree = topology.indptr.diff().to(torch.float64)
    if aggregator == "gcn":
        values = (degree[rows] * degree[columns]).rsqrt()
    else:
        values = degree[rows].reciprocal()
    shape = (topology.num_nodes, topology.num_nodes)
    return CsrMatrix(topology.indptr, columns, values.to(torch.float32), shape)


def aggregation(topology: Topology, aggregator: Aggregator, device: torch.device) -> Operator:
    """The aggregator over the topology's neighbour lists as they are."""
    matrix = normalised_adjacency(topology, aggregator)
    return Operator.from_csr(matrix, device, symmetric=aggregator == "gcn")


def kprop_operator(topology: Topology, aggregator: Aggregator, device: torch.device) -> Operator:
    """One step of KProp (paper Algorithm 2): aggregation over N(v) - {v}."""
    return aggregation(topology.without_self_loops(), aggregator, device)
