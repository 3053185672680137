"""Matrices with few numbers or few bits, ready for products with dense ones."""

import ctypes
import mmap
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lpgnn.data.sparse import CsrMatrix
from lpgnn.kernels.products import Floats, Indices, affine, power
from lpgnn.kernels.registers import LANES
from lpgnn.kernels.signs import PAIR, Codes, signs_times, signs_transposed_times


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

    @property
    def num_entries(self) -> int:
        return self.tensor.values().numel()

    def to_dense(self) -> Tensor:
        return self.tensor.to_dense()


class SignMatrix:
    """A number times a matrix of signs, which takes one bit an entry; on a CPU only.

    On one core the product of Facebook's N x d signs with 32 columns takes 20 ms and the way back
    29 ms, a third of what the same numbers take as a dense matrix.
    """

    device = torch.device("cpu")

    def __init__(self, codes: Codes, shape: tuple[int, int], scale: float, *, turned: bool) -> None:
        self.codes, self.scale, self.turned = codes, scale, turned
        self.shape = shape  # of what it multiplies with: [d, n] if turned

    @classmethod
    def both_ways(cls, signs: Tensor, scale: float) -> tuple["SignMatrix", "SignMatrix"]:
        """scale B and scale B^T, which share their bits.  signs: [n, d] of 1 and -1"""
        n, d = signs.shape
        packed = np.packbits((signs > 0).numpy(), axis=1, bitorder="little")  # [n, d / 8]
        even = np.pad(packed, ((0, 0), (0, packed.shape[1] % 2)))
        codes = even.T.ravel()
        return cls(codes, (n, d), scale, turned=False), cls(codes, (d, n), scale, turned=True)

    def affine_into(self, out: Tensor, x: Tensor, offset: float) -> Tensor:
        """out = A x + offset 1 (1^T x).  [k, h] -> [n, h]"""
        width = x.shape[1]
        missing = -width % LANES
        given = F.pad(x, (0, missing)).contiguous()
        room = out if missing == 0 else out.new_empty(out.shape[0], width + missing)
        start = given.sum(0) * offset
        sums = out.new_empty(PAIR)
        arrays = (flat(given), flat(room), width + missing, self.scale, flat(start), flat(sums))
        if self.turned:
            signs_transposed_times(self.codes, *arrays)
        else:
            signs_times(self.codes, *arrays)
        return out if room is out else out.copy_(room[:, :width])

    def to_dense(self) -> Tensor:
        """The matrix itself, unless turned."""
        n, d = self.shape
        bits = np.unpackbits(self.codes.reshape(-1, n).T, axis=1, bitorder="little", count=d)
        return torch.from_numpy(bits).float().mul_(2).sub_(1).mul_(self.scale)
