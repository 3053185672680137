"""Sparse operators of a graph, applied to batches of runs."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from lpgnn.data.graph import Topology
from lpgnn.data.sparse import CsrMatrix
from lpgnn.kernels import Backend
from lpgnn.propagation.matrices import SparseMatrix, sparse_matrix

Aggregator = Literal["gcn", "mean"]
AGGREGATORS: tuple[Aggregator, ...] = ("gcn", "mean")

IDENTITY = (1.0,)  # the coefficients of P^0


@dataclass(frozen=True)
class Operator:
    """A sparse N x N matrix and its transpose, which the backward pass needs."""

    matrix: SparseMatrix  # [N, N]
    transposed: SparseMatrix  # [N, N]; the same object where the matrix is symmetric

    @classmethod
    def from_csr(
        cls, matrix: CsrMatrix, backend: Backend, *, symmetric: bool = False
    ) -> "Operator":
        forward = sparse_matrix(matrix, backend)
        return cls(forward, forward if symmetric else sparse_matrix(matrix.transpose(), backend))

    def propagate(self, x: Tensor, steps: int = 1) -> Tensor:
        """Apply the operator ``steps`` times to node rows.  [R, N, h] -> [R, N, h]"""
        return self.filter(x, (0.0,) * steps + IDENTITY)

    def filter(self, x: Tensor, coefficients: tuple[float, ...]) -> Tensor:
        """sum_k theta_k P^k x, at the cost of the highest power.  [R, N, h] -> [R, N, h]"""
        if coefficients == IDENTITY:
            return x
        return _Filter.apply(x, self, coefficients)  # type: ignore[no-any-return]

    def propagate_classes(self, p: Tensor, steps: int = 1) -> Tensor:
        """Apply the operator ``steps`` times to class rows.  [R, c, N] -> [R, c, N]

        Class-major is the layout in which softmax runs along contiguous memory; it also lets
        several runs share one product at no cost but the transposition both ways.
        """
        if steps == 0:
            return p
        return _ClassPower.apply(p, self, steps)  # type: ignore[no-any-return]


class _Filter(torch.autograd.Function):
    """f(A) x; its gradient is f(A^T) g, so that no step keeps anything for the way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, operator: Operator, coefficients: tuple[float, ...]) -> Tensor:
        ctx.operator, ctx.coefficients = operator, coefficients
        return operator.matrix.filter_runs(x, coefficients)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        matrix: SparseMatrix = ctx.operator.transposed
        return matrix.filter_runs(grad.contiguous(), ctx.coefficients), None, None


class _ClassPower(torch.autograd.Function):
    """A^K for class-major columns."""

    @staticmethod
    def forward(ctx: Any, p: Tensor, operator: Operator, steps: int) -> Tensor:
        ctx.operator, ctx.steps = operator, steps
        return operator.matrix.power_classes(p, steps)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        matrix: SparseMatrix = ctx.operator.transposed
        return matrix.power_classes(grad, ctx.steps), None, None


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


def aggregation(topology: Topology, aggregator: Aggregator, backend: Backend) -> Operator:
    """The aggregator over the topology's neighbour lists as they are."""
    matrix = normalised_adjacency(topology, aggregator)
    return Operator.from_csr(matrix, backend, symmetric=aggregator == "gcn")
