"""The first layer's input P^K X', kept as a product and never formed where reports are sparse.

Reports are X' = s B + o 11^T.  A first layer needs P^K X' W only, and
P^K X' W = P^K (s B W + o 1 (1^T W)): project first (d -> h), then propagate N x h.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from lpgnn.data.sparse import CsrMatrix
from lpgnn.kernels.panels import COLUMNS, ROWS, panels_times, panels_transposed_times
from lpgnn.privacy.reports import FeatureReports
from lpgnn.propagation.matrices import SignMatrix, SparseMatrix, empty_on_huge_pages, flat
from lpgnn.propagation.operators import Operator

_Sent = SparseMatrix | SignMatrix

# So many entries of a dense product cost as much, beyond their bits, as one entry of P in a step.
_ENTRIES_OF_A_STEP = 4


class PropagatedFeatures(Protocol):
    """P^K X' of R runs as a linear map on weights."""

    def matmul(self, weight: Tensor) -> Tensor:
        """P^K X' W.  [R, d, h] -> [R, N, h]"""
        ...

    def matmul_each(self, weights: Sequence[Tensor]) -> Sequence[Tensor]:
        """P^K X' W for several W of one width, in whichever way is cheaper together."""
        ...

    def dense(self) -> Tensor:
        """P^K X' itself, for backbones that need it.  -> [R, N, d]"""
        ...


class FactoredFeatures:
    """Reports of few numbers, or of one bit each: project, then propagate."""

    def __init__(
        self,
        reports: Sequence[FeatureReports],
        operator: Operator,
        steps: int,
        device: torch.device,
        row_factors: Tensor | None = None,
    ) -> None:
        self.operator, self.steps = operator, steps
        self.row_factors = None if row_factors is None else row_factors[:, None]  # [N, 1]
        self.offsets = [r.offset for r in reports]
        built: dict[tuple[int, float], tuple[_Sent, _Sent]] = {}
        for report in reports:
            key = (id(report.sent), report.scale)
            if key not in built:  # runs that share a report share its matrices
                built[key] = _sent_both_ways(report, device)
        pairs = [built[id(report.sent), report.scale] for report in reports]
        self.sent = [sent for sent, _ in pairs]
        self.sent_transposed = [transposed for _, transposed in pairs]

    def matmul(self, weight: Tensor) -> Tensor:
        if weight.is_cuda:  # one launch a step for all runs
            propagated = self.operator.propagate(_Project.apply(weight, self), self.steps)
            return propagated if self.row_factors is None else propagated * self.row_factors
        return _ProjectAndPropagate.apply(weight, self)  # type: ignore[no-any-return]

    def matmul_each(self, weights: Sequence[Tensor]) -> Sequence[Tensor]:
        return [self.matmul(weight) for weight in weights]  # narrow operands stay in the cache

    def dense(self) -> Tensor:
        offsets = torch.tensor(self.offsets, device=self.sent[0].device)[:, None, None]
        rectified = torch.stack([sent.to_dense() for sent in self.sent]) + offsets
        propagated = self.operator.propagate(rectified, self.steps)
        return propagated if self.row_factors is None else propagated * self.row_factors


class DenseFeatures:
    """Dense reports: P^K X' is formed once, by column blocks, then multiplied.

    Projecting first would read the same N x d numbers each epoch and propagate on top of it.
    """

    def __init__(
        self,
        reports: Sequence[FeatureReports],
        operator: Operator,
        steps: int,
        device: torch.device,
        row_factors: Tensor | None = None,
    ) -> None:
        form = DenseMatrix if device.type == "cuda" else PanelMatrix
        self.propagated: list[DenseMatrix | PanelMatrix] = []
        for report in reports:
            matrix = form(report.num_nodes, report.num_features, device)
            for start, block in _propagated_blocks(report, operator, steps, device):
                matrix.fill(start, block if row_factors is None else block * row_factors[:, None])
            self.propagated.append(matrix)

    def matmul(self, weight: Tensor) -> Tensor:
        pairs = zip(self.propagated, weight, strict=True)
        return torch.stack([x.matmul(w) for x, w in pairs])

    def matmul_each(self, weights: Sequence[Tensor]) -> Sequence[Tensor]:
        return self.matmul(torch.cat(list(weights), dim=2)).chunk(len(weights), dim=2)  # one pass

    def dense(self) -> Tensor:
        return torch.stack([x.dense() for x in self.propagated])


class DenseMatrix:
    """A dense matrix on a GPU."""

    def __init__(self, rows: int, columns: int, device: torch.device) -> None:
        self.matrix = torch.empty(rows, columns, device=device)

    def fill(self, start: int, block: Tensor) -> None:
        """Set columns from ``start`` on.  block: [N, b]"""
        self.matrix[:, start : start + block.shape[1]] = block

    def matmul(self, weight: Tensor) -> Tensor:  # [d, h] -> [N, h]
        return self.matrix @ weight

    def dense(self) -> Tensor:
        return self.matrix


class PanelMatrix:
    """The same on a CPU, in panels of rows for compiled products.

    On one core the product of Facebook's N x d matrix with 32 columns takes 68 ms and the way back
    70 ms, where torch's usual library takes 147 and 140 ms and oneDNN 66 and 113 ms.
    """

    def __init__(self, rows: int, columns: int, device: torch.device) -> None:
        self.rows = rows
        self.panels = torch.zeros(-(-rows // ROWS), columns, ROWS)  # [P, d, 12]

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


def propagated_features(
    reports: Sequence[FeatureReports],
    operator: Operator,
    steps: int,
    device: torch.device,
    row_factors: Tensor | None = None,
) -> PropagatedFeatures:
    """Choose the cheaper form: factored for reports of few numbers or bits, dense otherwise.

    row_factors: [N], a factor of each row of P^K X' (``conditioning``), or None.
    """
    # An epoch spares about two thirds of a dense product and pays for the steps instead.
    entries = reports[0].num_nodes * reports[0].num_features
    bits_pay = (
        device.type == "cpu" and _ENTRIES_OF_A_STEP * steps * operator.matrix.num_entries < entries
    )
    factored = all(r.is_sparse or (bits_pay and _are_signs(r.sent)) for r in reports)
    form = FactoredFeatures if factored else DenseFeatures
    return form(reports, operator, steps, device, row_factors)


def _are_signs(sent: CsrMatrix | Tensor) -> bool:
    return isinstance(sent, Tensor) and sent.dtype == torch.int8 and bool((sent.abs() == 1).all())


def _sent_both_ways(report: FeatureReports, device: torch.device) -> tuple[_Sent, _Sent]:
    """s B and s B^T."""
    sent = report.sent
    if isinstance(sent, Tensor):
        return SignMatrix.both_ways(sent, report.scale)
    scaled = CsrMatrix(sent.indptr, sent.indices, sent.values * report.scale, sent.shape)
    return SparseMatrix(scaled, device), SparseMatrix(scaled.transpose(), device)


def _propagated_blocks(
    report: FeatureReports, operator: Operator, steps: int, device: torch.device
) -> Iterator[tuple[int, Tensor]]:
    """P^K X' by blocks of columns: the working set of a block is small beside the whole."""
    sent = report.sent.to_dense() if isinstance(report.sent, CsrMatrix) else report.sent
    for start in range(0, sent.shape[1], 128):
        columns = sent[:, start : start + 128].to(device, torch.float32)
        columns = (columns * report.scale + report.offset).unsqueeze(0)  # [1, N, block]
        yield start, operator.propagate(columns, steps)[0]


class _Project(torch.autograd.Function):
    """s B W + o 1 (1^T W), and its gradient s B^T G + o 1 (1^T G).  [R, d, h] -> [R, N, h]"""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, features: FactoredFeatures) -> Tensor:
        ctx.features = features
        return _affine_runs(features.sent, features.offsets, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        features = ctx.features
        return _affine_runs(features.sent_transposed, features.offsets, grad), None


class _ProjectAndPropagate(torch.autograd.Function):
    """The same and the K steps, run by run: what lies between two products stays in the cache."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, features: FactoredFeatures) -> Tensor:
        ctx.features = features
        matrix, steps = features.operator.matrix, features.steps
        out = empty_on_huge_pages(len(features.sent), matrix.shape[0], weight.shape[2], like=weight)
        for run, (sent, offset) in enumerate(zip(features.sent, features.offsets, strict=True)):
            if steps == 0:
                sent.affine_into(out[run], weight[run], offset)
            else:
                room = empty_on_huge_pages(*out[run].shape, like=out)
                projected = sent.affine_into(room, weight[run], offset)
                matrix.power_into(out[run], projected, steps)
            if features.row_factors is not None:
                out[run] *= features.row_factors
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # grad: [R, N, h]
        features, grad = ctx.features, grad.contiguous()
        matrix, steps = features.operator.transposed, features.steps
        out = grad.new_empty(grad.shape[0], features.sent[0].shape[1], grad.shape[2])
        for run, (sent, offset) in enumerate(
            zip(features.sent_transposed, features.offsets, strict=True)
        ):
            own = grad[run]
            if features.row_factors is not None:
                own = own * features.row_factors
            if steps > 0:
                own = matrix.power_into(empty_on_huge_pages(*own.shape, like=own), own, steps)
            sent.affine_into(out[run], own, offset)
        return out, None


def _affine_runs(matrices: list[_Sent], offsets: list[float], x: Tensor) -> Tensor:
    out = x.new_empty(len(matrices), matrices[0].shape[0], x.shape[2])
    for run, (matrix, offset) in enumerate(zip(matrices, offsets, strict=True)):
        matrix.affine_into(out[run], x[run], offset)
    return out
