"""The first layer's input F X', kept as a product and not formed where reports are sparse.

Reports are X' = s B + o 11^T, and a linear filter is F = sum_k theta_k P^k.  A first layer needs
F X' W only, and F X' W = F (s B W + o 1 (1^T W)): project first (d -> h), then filter N x h.  Where
features are few, F X' has fewer numbers than the steps of an epoch have products: it is formed.
"""

from collections.abc import Callable, Iterator, Sequence
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

# What a filter makes of some columns of a report's X'.  [N, b] -> [N, b]
Transform = Callable[[FeatureReports, Tensor], Tensor]

# So many entries of a dense product cost as much as one entry of P in a step.
_ENTRIES_OF_A_STEP = 4
# Columns that a dense filter works on at once: its working set is small beside the whole.
_BLOCK = 128
# An entry that is not zero costs four to seven times as much in a sparse product as any entry does
# in a dense one: up to this share of them the sparse product is faster, and takes less memory.
_FEW = 1 / 10


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
    """

    def __init__(
        self,
        reports: Sequence[FeatureReports],
        transform: Transform,
        backend: Backend,
    ) -> None:
        built: dict[_Key, DenseMatrix] = {}
        for report in reports:
            if _key(report) not in built:  # runs that share a report share its matrix
                built[_key(report)] = _filtered_by_blocks(report, transform, backend)
        self.filtered = [built[_key(report)] for report in reports]

    def matmul(self, weight: Tensor) -> Tensor:
        pairs = zip(self.filtered, weight, strict=True)
        return torch.stack([x.matmul(w) for x, w in pairs])

    def matmul_each(self, weights: Sequence[Tensor]) -> Sequence[Tensor]:
        return self.matmul(torch.cat(list(weights), dim=2)).chunk(len(weights), dim=2)  # one pass

    def dense(self) -> Tensor:
        return torch.stack([x.dense() for x in self.filtered])


_Key = tuple[int, float, float, float | None]


def _key(report: FeatureReports) -> _Key:
    """What decides about X', and about its public magnitude."""
    return id(report.sent), report.scale, report.offset, report.magnitude


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


@torch.no_grad()
def few_numbers(
    reports: Sequence[FeatureReports], transform: Transform, backend: Backend
) -> list[FeatureReports] | None:
    """What ``transform`` makes of each X', if nearly all of it is zero; else None.

    Columns are looked at only until too many numbers have been found.
    """
    built: dict[_Key, FeatureReports] = {}
    for report in reports:
        if _key(report) not in built:  # runs that share a report share what comes of it
            matrix = _few_numbers(report, transform, backend)
            if matrix is None:
                return None
            built[_key(report)] = FeatureReports(matrix, scale=1.0, offset=0.0)
    return [built[_key(report)] for report in reports]


def _few_numbers(
    report: FeatureReports, transform: Transform, backend: Backend
) -> CsrMatrix | None:
    size = (report.num_nodes, report.num_features)
    room = _FEW * size[0] * size[1]
    found = []
    for start, block in _filtered_blocks(report, transform, backend):
        rows, columns = block.nonzero(as_tuple=True)
        room -= rows.numel()
        if room < 0:
            return None
        found.append([part.cpu() for part in (rows, columns + start, block[rows, columns])])
    rows, columns, values = (torch.cat(parts) for parts in zip(*found, strict=True))
    return CsrMatrix.from_coo(rows, columns, values, size)


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
    report: FeatureReports, transform: Transform, backend: Backend
) -> DenseMatrix:
    matrix = _dense_matrix(report.num_nodes, report.num_features, backend)
    for start, block in _filtered_blocks(report, transform, backend):
        matrix.fill(start, block)
    return matrix


def _filtered_blocks(
    report: FeatureReports, transform: Transform, backend: Backend
) -> Iterator[tuple[int, Tensor]]:
    """The first column of each block, and what ``transform`` makes of it.  [N, b]"""
    sent = report.sent.to_dense() if isinstance(report.sent, CsrMatrix) else report.sent
    for start in range(0, sent.shape[1], _BLOCK):
        columns = sent[:, start : start + _BLOCK].to(backend.device, torch.float32)
        columns = columns * report.scale + report.offset  # [N, b]: of X'
        yield start, transform(report, columns)


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
