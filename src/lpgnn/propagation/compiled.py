"""The same matrices by compiled loops, on a CPU.  Importing this module imports numba."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lpgnn.data.sparse import CsrMatrix
from lpgnn.kernels.panels import COLUMNS, ROWS, panels_times, panels_transposed_times
from lpgnn.kernels.products import affine, columns_to_rows, power, rows_to_columns
from lpgnn.kernels.registers import LANES
from lpgnn.kernels.signs import PAIR, Codes, signs_times, signs_transposed_times
from lpgnn.propagation.matrices import DenseMatrix, SparseMatrix, empty_on_huge_pages, flat

# The narrow class columns of several runs share one product: up to this many columns a product
# costs little more than a single narrow one, beyond it the operand leaves the cache.
_FOLDED_COLUMNS = 32


class CompiledMatrix(SparseMatrix):
    """A matrix in compressed rows, multiplied run by run: narrow operands stay in the cache."""

    def __init__(self, matrix: CsrMatrix, device: torch.device) -> None:
        super().__init__(matrix, device)
        rows, columns = self.tensor.crow_indices(), self.tensor.col_indices()
        # They share their memory with the tensor.
        self.arrays = (rows.numpy(), columns.numpy(), self.tensor.values().numpy())

    def power_into(self, out: Tensor, x: Tensor, steps: int = 1) -> Tensor:
        spare = empty_on_huge_pages(*out.shape, like=out) if steps > 1 else out
        given = (flat(x.contiguous()), flat(out), flat(spare))
        power(*self.arrays, *given, out.shape[1], steps)
        return out

    def affine_into(self, out: Tensor, x: Tensor, offset: float) -> Tensor:
        affine(*self.arrays, offset, flat(x.contiguous()), flat(out), out.shape[1])
        return out

    def filter_runs(self, x: Tensor, coefficients: tuple[float, ...]) -> Tensor:
        out = empty_on_huge_pages(*x.shape, like=x)
        for run in range(len(x)):
            self.filter_into(out[run], x[run], coefficients)
        return out

    def power_classes(self, p: Tensor, steps: int) -> Tensor:
        runs, classes, nodes = p.shape
        p = p.contiguous()
        out = torch.empty_like(p)
        together = max(1, _FOLDED_COLUMNS // classes)
        for start in range(0, runs, together):
            block, target = p[start : start + together], out[start : start + together]
            used = len(block) * classes
            width = used + -used % LANES  # columns that fill no register cost more than a full one
            rows = empty_on_huge_pages(nodes, width, like=p)
            columns_to_rows(flat(block), flat(rows), nodes, used, width)
            rows = self.power_into(empty_on_huge_pages(nodes, width, like=p), rows, steps)
            rows_to_columns(flat(rows), flat(target), nodes, used, width)
        return out


class SignMatrix:
    """A number times a matrix of signs, which takes one bit an entry.

    On one core the product of Facebook's N x d signs with 32 columns takes 12 ms and the way back
    21 ms, two thirds of what the same numbers take as a dense matrix.
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


class PanelMatrix(DenseMatrix):
    """A dense matrix in panels of rows, for AVX-512 (``Backend.prefers_panels``).

    On one core the product of Facebook's N x d matrix with 32 columns takes 25 ms and the way back
    27 ms, where torch takes 96 and 104 ms (medians of one run).
    """

    def __init__(self, rows: int, columns: int, device: torch.device) -> None:
        self.rows = rows
        self.panels = torch.zeros(-(-rows // ROWS), columns, ROWS, device=device)  # [P, d, 12]

    def fill(self, start: int, block: Tensor) -> None:
        width = block.shape[1]
        padded = block.new_zeros(self.panels.shape[0] * ROWS, width)
        padded[: self.rows] = block
        by_panel = padded.view(-1, ROWS, width).transpose(1, 2)  # [P, b, 12]
        self.panels[:, start : start + width] = by_panel

    def matmul(self, weight: Tensor) -> Tensor:
        missing = -weight.shape[1] % COLUMNS
        out = _PanelProduct.apply(F.pad(weight, (0, missing)).contiguous(), self)
        return out[: self.rows, : weight.shape[1]]  # type: ignore[no-any-return]

    def dense(self) -> Tensor:
        by_row = self.panels.transpose(1, 2)  # [P, 12, d]
        return by_row.reshape(-1, by_row.shape[2])[: self.rows]


class _PanelProduct(torch.autograd.Function):
    """X W and its gradient X^T G, with rows up to whole panels.  [d, h] -> [12 P, h]"""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, matrix: PanelMatrix) -> Tensor:
        ctx.matrix, width = matrix, weight.shape[1]
        out = weight.new_empty(matrix.panels.shape[0] * ROWS, width)
        panels_times(flat(matrix.panels), flat(weight), flat(out), width)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        panels, width = ctx.matrix.panels, grad.shape[1]
        out = grad.new_zeros(panels.shape[1], width)
        panels_transposed_times(flat(panels), flat(grad.contiguous()), flat(out), width)
        return out, None
