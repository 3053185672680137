"""Activation, dropout and attention by compiled loops.  Importing this module imports numba."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lpgnn.kernels.attention import aggregate, attention_gradients, score_gaps
from lpgnn.kernels.dropout import keep_where
from lpgnn.kernels.registers import LANES
from lpgnn.kernels.selu import selu_gradients, selu_with_bias
from lpgnn.propagation import AttentionPattern
from lpgnn.propagation.matrices import flat


def fills_registers(x: Tensor) -> bool:
    """Whether rows are whole registers, as ``selu_of_runs`` needs them."""
    return x.shape[-1] % LANES == 0


def selu_of_runs(mixed: Tensor, bias: Tensor) -> Tensor:
    """selu(mixed + bias) in place.  [R, N, h], [R, h] -> [R, N, h]"""
    return _Selu.apply(mixed, bias)  # type: ignore[no-any-return]


class _Selu(torch.autograd.Function):
    """One pass over the nodes each way: torch's own takes two there and three back."""

    @staticmethod
    def forward(ctx: Any, mixed: Tensor, bias: Tensor) -> Tensor:
        ctx.mark_dirty(mixed)
        for own, shift in zip(mixed, bias.contiguous(), strict=True):
            selu_with_bias(flat(own), flat(shift))
        ctx.save_for_backward(mixed)
        return mixed

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        (result,) = ctx.saved_tensors
        d_mixed, grad = torch.empty_like(result), grad.contiguous()
        d_bias = result.new_zeros(result.shape[0], result.shape[2])
        for run in range(len(result)):
            given = (flat(result[run]), flat(grad[run]))
            selu_gradients(*given, flat(d_mixed[run]), flat(d_bias[run]))
        return d_mixed, d_bias


def keep_of_runs(
    x: Tensor, draws: Tensor, lowest: Sequence[int], scales: Sequence[float]
) -> Tensor:
    """Each run's x times its scale where a draw reaches its lowest, else 0.  [R, N, h]"""
    x, out = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    for run in range(len(x)):
        own = draws[run, : x[run].numel()].numpy()
        keep_where(own, lowest[run], scales[run], flat(x[run]), flat(out[run]))
    return out


def attend_by_loops(
    pattern: AttentionPattern,
    source: Tensor,
    target: Tensor,
    value: Tensor,
    slope: float,
    lowest: float,
) -> Tensor:
    """``attention.attend``.  [R, N], [R, N], [R, N, f] -> [R, N, f]

    slope: of the leaky ReLU; lowest: of the logarithms of the softmax's numerators
    """
    return _Attend.apply(source, target, value, pattern, slope, lowest)  # type: ignore[no-any-return]


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        source: Tensor,
        target: Tensor,
        value: Tensor,
        pattern: AttentionPattern,
        slope: float,
        lowest: float,
    ) -> Tensor:
        runs, _, width = value.shape
        source, target = source.contiguous(), target.contiguous()
        value = _whole_registers(value)
        weight = source.new_empty(runs, pattern.columns.numel())
        out, total = torch.empty_like(value), torch.empty_like(source)
        for some in pattern.chunks(runs):
            own = (flat(source[some]), flat(target[some]))
            score_gaps(*pattern.arrays, *own, slope, lowest, flat(weight[some]))
            for of_run in weight[some]:
                # Each for itself: torch rounds the last few numbers of an array differently.
                of_run.exp_()
            given = (flat(weight[some]), flat(value[some]))
            aggregate(*pattern.arrays, *given, flat(out[some]), flat(total[some]), value.shape[2])
        ctx.pattern, ctx.width, ctx.slope = pattern, width, slope
        ctx.save_for_backward(source, target, weight, total, value, out)
        return out[:, :, :width]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        pattern: AttentionPattern = ctx.pattern
        source, target, weight, total, value, out = ctx.saved_tensors
        grad = _whole_registers(grad, copy=True)
        d_source, d_target = torch.zeros_like(source), torch.empty_like(target)
        d_value = torch.zeros_like(value)
        for some in pattern.chunks(len(value)):
            given = (flat(weight[some]), flat(total[some]), flat(value[some]), flat(out[some]))
            wanted = (flat(d_source[some]), flat(d_target[some]), flat(d_value[some]))
            attention_gradients(
                *(*pattern.arrays, flat(source[some]), flat(target[some])),
                *(ctx.slope, value.shape[2]),
                *(*given, flat(grad[some]), *wanted),
            )
        return d_source, d_target, d_value[:, :, : ctx.width], None, None, None


def _whole_registers(x: Tensor, *, copy: bool = False) -> Tensor:
    """Contiguous rows, filled up with zeros to whole registers.  [R, N, f] -> [R, N, F]"""
    missing = -x.shape[2] % LANES
    if missing:
        return F.pad(x, (0, missing))
    return x.clone(memory_format=torch.contiguous_format) if copy else x.contiguous()
