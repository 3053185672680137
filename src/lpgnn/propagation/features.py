"""The first layer's input F X', kept as a product and not formed where reports are sparse.

Reports are X' = s B + o 11^T, and a linear filter is F = sum_k theta_k P^k.  A first layer needs
F X' W only, and F X' W = F (s B W + o 1 (1^T W)): project first (d -> h), then filter N x h.  Where
features are few, F X' has fewer numbers than the steps of an epoch have products: it is formed.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from lpgnn.data.sparse import CsrMatrix
from lpgnn.kernels import Backend
from lpgnn.privacy.reports import FeatureReports
from lpgnn.propagation.matrices import (
    DenseMatrix,
    SparseMatrix,
    empty_on_huge_pages,
    sparse_matrix,
)
from lpgnn.propagation.operators import IDENTITY, Operator

if TYPE_CHECKING:
    from lpgnn.propagation.compiled import SignMatrix

    _Sent = SparseMatrix | SignMatrix

# The factor of each row of F X' for a report, [N] (``conditioning``).
RowFactors = Callable[[FeatureReports], Tensor]

# So many entries of a dense product cost as much as one entry of P in a step.
_ENTRIES_OF_A_STEP = 4
# Columns that a dense filter works on at once: its working set is small beside the whole.
_BLOCK = 128


class PropagatedFeatures(Protocol):
    """F X' of R runs as a linear map on weights."""

    def matmul(self, weight: Tensor) -> Tensor:
        """F X' W.  [R, d, h] -> [R, N, h]"""
        ...

    def matmul_each(self, weights: Sequence[Tensor]) -> Sequence[Tensor]:
        """F X' W for several W of one width, in whichever way is cheaper together."""
        ...

    def dense(self) -> Tensor:
        """F X' itself, for backbones that need it.  -> [R, N, d]"""
        ...


class FactoredFeatures:
    """Reports of few numbers, or of one bit each: project, then filter."""

    def __init__(
        self,
        reports: Sequence[FeatureReports],
        operator: Operator,
        coefficients: tuple[float, ...],
        backend: Backend,
        row_factors: RowFactors | None = None,
    ) -> None:
        self.operator, self.coefficients, self.backend = operator, coefficients, backend
        self.row_factors: Tensor | None = None  # [R, N, 1]
        if row_factors is not None:
            self.row_factors = torch.stack([row_factors(r) for r in reports])[:, :, None]
        self.offsets = [r.offset for r in reports]
        built: dict[tuple[int, float], tuple[_Sent, _Sent]] = {}
        for report in reports:
            key = (id(report.sent), report.scale)
            if key not in built:  # runs that share a report share its matrices
                built[key] = _sent_both_ways(report, backend)
        pairs = [built[id(report.sent), report.scale] for report in reports]
        self.sent = [sent for sent, _ in pairs]
        self.sent_transposed = [transposed for _, transposed in pairs]

    def matmul(self, weight: Tensor) -> Tensor:
        if self.backend.compiled:
            return _ProjectAndFilter.apply(weight, self)  # type: ignore[no-any-return]
        # One launch a step for all runs.
        filtered = self.operator.filter(_Project.apply(weight, self), self.coefficients)
        return filtered if self.row_factors is None else filtered * self.row_factors

    def matmul_each(self, weights: Sequence[Tensor]) -> Sequence[Tensor]:
        return [self.matmul(weight) for weight in weights]  # narrow operands stay in the cache

    def dense(self) -> Tensor:
        offsets = torch.tensor(self.offsets, device=self.sent[0].device)[:, None, None]
        rectified = torch.stack([sent.to_dense() for sent in self.sent]) + offsets
        filtered = self.operator.filter(rectified, self.coefficients)
        return filtered if self.row_factors is None else filtered * self.row_factors


class DenseFeatures:
    """F X' of dense or narrow reports: formed once, by blocks of columns, then multiplied.

    Projecting dense ones first would read as many numbers each epoch and filter on top of it.

    transform: what the filter makes of some columns of a report's X'.  [N, b] -> [N, b]
    """

    def __init__(
        self,
        reports: Sequence[FeatureReports],
        transform: Callable[[FeatureReports, Tensor], Tensor],
        backend: Backend,
    ) -> None:
        built: dict[tuple[Any, ...], DenseMatrix] = {}
        self.filtered: list[DenseMatrix] = []
        for report in reports:
            key = (id(report.sent), report.scale, report.offset, report.magnitude)
            if key not in built:  # runs that share a report share its matrix
                built[key] = _filtered_by_blocks(report, transform, backend)
            self.filtered.append(built[key])

    def matmul(self, weight: Tensor) -> Tensor:
        pairs = zip(self.filtered, weight, strict=True)
        return torch.stack([x.matmul(w) for x, w in pairs])

    def matmul_each(self, weights: Sequence[Tensor]) -> Sequence[Tensor]:
        return self.matmul(torch.cat(list(weights), dim=2)).chunk(len(weights), dim=2)  # one pass

    def dense(self) -> Tensor:
        return torch.stack([x.dense() for x in self.filtered])


def storing_pays(num_nodes: int, num_features: int, num_entries: int, num_steps: int) -> bool:
    """Whether an epoch's products with the N x d numbers of F X' cost less than its steps over P.

    num_entries: of P.  Without steps reports of few numbers, or bits, are always cheaper as such.
    """
    return num_nodes * num_features < _ENTRIES_OF_A_STEP * num_steps * num_entries


def linear_features(
    reports: Sequence[FeatureReports],
    operator: Operator,
    coefficients: tuple[float, ...],
    backend: Backend,
    row_factors: RowFactors | None = None,
) -> PropagatedFeatures:
    """Choose the cheaper form: factored for reports of few numbers or bits, unless narrow."""
    size, entries = (reports[0].num_nodes, reports[0].num_features), operator.matrix.num_entries
    factors = ("sparse", "signs") if backend.compiled else ("sparse",)
    stored = storing_pays(*size, entries, len(coefficients) - 1)
    if not stored and all(report.form in factors for report in reports):
        return FactoredFeatures(reports, operator, coefficients, backend, row_factors)

    def transform(report: FeatureReports, columns: Tensor) -> Tensor:
        filtered = operator.filter(columns[None], coefficients)[0]
        return filtered if row_factors is None else filtered * row_factors(report)[:, None]

    return DenseFeatures(reports, transform, backend)


def _sent_both_ways(report: FeatureReports, backend: Backend) -> "tuple[_Sent, _Sent]":
    """s B and s B^T."""
    sent = report.sent
    if isinstance(sent, Tensor):
        from lpgnn.propagation.compiled import SignMatrix

        return SignMatrix.both_ways(sent, report.scale)
    scaled = CsrMatrix(sent.indptr, sent.indices, sent.values * report.scale, sent.shape)
    return sparse_matrix(scaled, backend), sparse_matrix(scaled.transpose(), backend)


@torch.no_grad()
def _filtered_by_blocks(
    report: FeatureReports,
    transform: Callable[[FeatureReports, Tensor], Tensor],
    backend: Backend,
) -> DenseMatrix:
    matrix = _dense_matrix(report.num_nodes, report.num_features, backend)
    sent = report.sent.to_dense() if isinstance(report.sent, CsrMatrix) else report.sent
    for start in range(0, sent.shape[1], _BLOCK):
        columns = sent[:, start : start + _BLOCK].to(backend.device, torch.float32)
        columns = columns * report.scale + report.offset  # [N, b]: of X'
        matrix.fill(start, transform(report, columns))
    return matrix


def _dense_matrix(rows: int, columns: int, backend: Backend) -> DenseMatrix:
    if backend.prefers_panels:
        from lpgnn.propagation.compiled import PanelMatrix

        return PanelMatrix(rows, columns, backend.device)
    return DenseMatrix(rows, columns, backend.device)


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


class _ProjectAndFilter(torch.autograd.Function):
    """The same and the filter, run by run: what lies between two products stays in the cache."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, features: FactoredFeatures) -> Tensor:
        ctx.features = features
        matrix, coefficients = features.operator.matrix, features.coefficients
        out = empty_on_huge_pages(len(features.sent), matrix.shape[0], weight.shape[2], like=weight)
        for run, (sent, offset) in enumerate(zip(features.sent, features.offsets, strict=True)):
            if coefficients == IDENTITY:
                sent.affine_into(out[run], weight[run], offset)
            else:
                room = empty_on_huge_pages(*out[run].shape, like=out)
                projected = sent.affine_into(room, weight[run], offset)
                matrix.filter_into(out[run], projected, coefficients)
            if features.row_factors is not None:
                out[run] *= features.row_factors[run]
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # grad: [R, N, h]
        features, grad = ctx.features, grad.contiguous()
        matrix, coefficients = features.operator.transposed, features.coefficients
        out = grad.new_empty(grad.shape[0], features.sent[0].shape[1], grad.shape[2])
        for run, (sent, offset) in enumerate(
            zip(features.sent_transposed, features.offsets, strict=True)
        ):
            own = grad[run]
            if features.row_factors is not None:
                own = own * features.row_factors[run]
            if coefficients != IDENTITY:
                room = empty_on_huge_pages(*own.shape, like=own)
                own = matrix.filter_into(room, own, coefficients)
            sent.affine_into(out[run], own, offset)
        return out, None


def _affine_runs(matrices: "list[_Sent]", offsets: list[float], x: Tensor) -> Tensor:
    out = x.new_empty(len(matrices), matrices[0].shape[0], x.shape[2])
    for run, (matrix, offset) in enumerate(zip(matrices, offsets, strict=True)):
        matrix.affine_into(out[run], x[run], offset)
    return out
