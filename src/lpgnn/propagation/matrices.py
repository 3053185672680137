"""Sparse matrices on a device, ready for products with dense ones."""

import ctypes
import mmap
import warnings

import torch
from torch import Tensor

from lpgnn.data.sparse import CsrMatrix
from lpgnn.kernels.products import Floats, Indices, affine, power


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


def flat(tensor: Tensor) -> Floats:
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
    """A matrix in compressed rows: compiled loops on a CPU, torch's products on a GPU."""

    def __init__(self, matrix: CsrMatrix, device: torch.device) -> None:
        self.shape, self.device = matrix.shape, device
        self.tensor = torch_csr(matrix, device)  # shares its memory with the arrays
        self.arrays: tuple[Indices, Indices, Floats] | None = None
        if device.type == "cpu":
            rows, columns = self.tensor.crow_indices(), self.tensor.col_indices()
            self.arrays = (rows.numpy(), columns.numpy(), self.tensor.values().numpy())

    def power_into(self, out: Tensor, x: Tensor, steps: int = 1) -> Tensor:
        """out = A^steps x for steps > 0.  [k, h] -> [n, h]

        out is contiguous; torch's own product would fill and copy a fresh one beside the work.
        """
        spare = empty_on_huge_pages(*out.shape, like=out) if steps > 1 else out
        if self.arrays:
            width = out.shape[1]
            given = (flat(x.contiguous()), flat(out), flat(spare))
            power(*self.arrays, *given, width, steps)
            return out
        for step in range(steps, 0, -1):  # the last of the steps writes to out
            target = out if step % 2 == 1 else spare
            x = torch.addmm(target, self.tensor, x, beta=0, out=target)
        return out

    def affine_into(self, out: Tensor, x: Tensor, offset: float) -> Tensor:
        """out = A x + offset 1 (1^T x).  [k, h] -> [n, h]"""
        if self.arrays:
            affine(*self.arrays, offset, flat(x.contiguous()), flat(out), out.shape[1])
            return out
        self.power_into(out, x)
        return out if offset == 0.0 else out.add_(x.sum(0), alpha=offset)

    def to_dense(self) -> Tensor:
        return self.tensor.to_dense()
