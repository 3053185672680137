"""The activation between the two layers."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lpgnn.kernels.registers import LANES
from lpgnn.kernels.selu import selu_gradients, selu_with_bias
from lpgnn.propagation.matrices import flat


def selu(mixed: Tensor, bias: Tensor) -> Tensor:
    """selu(mixed + bias); ``mixed`` is overwritten.  [R, N, h], [R, h] -> [R, N, h]"""
    if mixed.is_cuda or mixed.shape[2] % LANES:
        return F.selu(mixed.add_(bias[:, None]), inplace=True)
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
