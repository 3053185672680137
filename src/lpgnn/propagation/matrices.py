"""Matrices with few numbers, ready for products with dense ones."""

import ctypes
import mmap
import warnings

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lpgnn.data.sparse import CsrMatrix
from lpgnn.kernels import Backend


def torch_csr(matrix: CsrMatrix, device: torch.device) -> Tensor:
    """Hand a matrix to torch's own products; 32-bit indices halve the traffic of a product."""
    with warnings.catch_warnings():
        # torch says once in a process that the layout is in beta.
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
        return torch.sparse_csr_tensor(
            matrix.indptr.to(torch.int32),
            matrix.indices.to(torch.int32),
            matrix.values,
            size=matrix.shape,
            device=device,
            check_invariants=False,
        )


def flat(tensor: Tensor) -> npt.NDArray[np.float32]:
    """The numbers of a contiguous tensor on the CPU, shared with it, for compiled loops."""
    return tensor.detach().view(-1).numpy()


# Tensors from this size on are put on huge pages: the rows that a product over a million nodes asks
# for lie on as many pages, and it would wait for their addresses.  Smaller ones would only pay for
# the clearing of pages that are mostly unused.
_HUGE_BYTES = 32_000_000
_PAGE = 4096


def empty_on_huge_pages(*shape: int, like: Tensor) -> Tensor:
    """An uninitialised tensor; where the system does not know huge pages, an ordinary one."""
    tensor = like.new_empty(shape)
    size = tensor.numel() * tensor.element_size()
    if size >= _HUGE_BYTES and not tensor.is_cuda and hasattr(mmap, "MADV_HUGEPAGE"):
        start = -(-tensor.data_ptr() // _PAGE) * _PAGE
        length = tensor.data_ptr() + size - start
        # A hint: that it is not followed is no error.
        ctypes.CDLL(None).madvise(
            ctypes.c_void_p(start), ctypes.c_size_t(length), mmap.MADV_HUGEPAGE
        )
    return tensor


class SparseMatrix:
    """A matrix in compressed rows, multiplied by torch's operations.

    ``CompiledMatrix`` does the same by compiled loops; ``sparse_matrix`` builds the right one.
    """

    def __init__(self, matrix: CsrMatrix, device: torch.device) -> None:
        self.shape, self.device = matrix.shape, device
        self.tensor = torch_csr(matrix, device)

    def power_into(self, out: Tensor, x: Tensor, steps: int = 1) -> Tensor:
        """out = A^steps x for steps > 0.  [k, h] -> [n, h]

        out is contiguous; torch's own product would fill and copy a fresh one beside the work.
        """
        spare = empty_on_huge_pages(*out.shape, like=out) if steps > 1 else out
        for step in range(steps, 0, -1):  # the last of the steps writes to out
            target = out if step % 2 == 1 else spare
            x = torch.addmm(target, self.tensor, x, beta=0, out=target)
        return out

    def affine_into(self, out: Tensor, x: Tensor, offset: float) -> Tensor:
        """out = A x + offset 1 (1^T x).  [k, h] -> [n, h]"""
        self.power_into(out, x)
        return out if offset == 0.0 else out.add_(x.sum(0), alpha=offset)

    def filter_into(self, out: Tensor, x: Tensor, coefficients: tuple[float, ...]) -> Tensor:
        """out = sum_k theta_k A^k x, by Horner's rule: as many products as the highest power.

        [n, h] -> [n, h]; a single power with theta = 1 is ``power_into`` and nothing else.
        """
        powers = [power for power, theta in enumerate(coefficients) if theta != 0]
        if not powers:
            return out.zero_()
        highest = powers[-1]
        if highest == 0:
            return torch.mul(x, coefficients[0], out=out)
        # Between two powers that count lie so many products; the last ones write to out.
        stops = [*reversed(powers[:-1])] if powers[0] == 0 else [*reversed(powers[:-1]), 0]
        spare = empty_on_huge_pages(*out.shape, like=out) if len(stops) > 1 else out
        reached = x if coefficients[highest] == 1 else x * coefficients[highest]
        for index, stop in enumerate(stops):
            target = out if (len(stops) - index) % 2 == 1 else spare
            reached = self.power_into(target, reached, highest - stop)
            highest = stop
            if coefficients[stop] != 0:
                reached.add_(x, alpha=coefficients[stop])
        return out

    def filter_runs(self, x: Tensor, coefficients: tuple[float, ...]) -> Tensor:
        """The same for the node rows of several runs.  [R, N, h] -> [R, N, h]"""
        runs, nodes, width = x.shape
        wide = x.permute(1, 0, 2).reshape(nodes, runs * width)  # [N, R h]: one launch a step
        wide = self.filter_into(torch.empty_like(wide), wide, coefficients)
        # No view: layers add to the result in place, which autograd refuses for views.
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        return out.copy_(wide.view(nodes, runs, width).permute(1, 0, 2))

    def power_classes(self, p: Tensor, steps: int) -> Tensor:
        """A^steps for the class columns of several runs.  [R, c, N] -> [R, c, N]"""
        runs, classes, nodes = p.shape
        rows = p.reshape(-1, nodes).t().contiguous()  # [N, R c]
        rows = self.power_into(torch.empty_like(rows), rows, steps)
        out = torch.empty_like(p, memory_format=torch.contiguous_format)
        return out.copy_(rows.t().view(runs, classes, nodes))

    @property
    def num_entries(self) -> int:
        return self.tensor.values().numel()

    def to_dense(self) -> Tensor:
        return self.tensor.to_dense()


def sparse_matrix(matrix: CsrMatrix, backend: Backend) -> SparseMatrix:
    """A matrix for the products of a backend."""
    if backend.compiled:
        from lpgnn.propagation.compiled import CompiledMatrix

        return CompiledMatrix(matrix, backend.device)
    return SparseMatrix(matrix, backend.device)


class DenseMatrix:
    """A dense matrix, multiplied by torch."""

    def __init__(self, rows: int, columns: int, device: torch.device) -> None:
        self.matrix = torch.empty(rows, columns, device=device)

    def fill(self, start: int, block: Tensor) -> None:
        """Set columns from ``start`` on.  block: [N, b]"""
        self.matrix[:, start : start + block.shape[1]] = block

    def matmul(self, weight: Tensor) -> Tensor:  # [d, h] -> [N, h]
        return self.matrix @ weight

    def dense(self) -> Tensor:
        return self.matrix
