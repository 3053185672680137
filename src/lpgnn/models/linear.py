"""Dense products of the layers, and their initial weights, which follow torch-geometric's."""

import math
from typing import Any

import torch
from torch import Tensor


def project(hidden: Tensor, weight: Tensor) -> Tensor:
    """hidden W, class-major.  [R, N, h], [R, h, c] -> [R, c, N]"""
    return _Project.apply(hidden, weight)  # type: ignore[no-any-return]


class _Project(torch.autograd.Function):
    """The product above; torch's own gradient of ``hidden`` would come back with strides of N,
    and every step before it would crawl."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(hidden, weight)
        # A contiguous weight: on three strided classes the product takes twice as long.
        return torch.bmm(weight.transpose(1, 2).contiguous(), hidden.transpose(1, 2))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:  # grad: [R, c, N]
        hidden, weight = ctx.saved_tensors
        d_hidden = torch.bmm(grad.transpose(1, 2), weight.transpose(1, 2))  # [R, N, h]
        d_weight = torch.bmm(grad, hidden)  # [R, c, h]
        return d_hidden, d_weight.transpose(1, 2)


def uniform(*shape: int, fan_in: int, generator: torch.Generator) -> Tensor:
    """U(-b, b) with b = 1 / sqrt(fan_in): torch's own linear layer."""
    return (2 * torch.rand(shape, generator=generator) - 1) / math.sqrt(fan_in)


def glorot(rows: int, columns: int, *, generator: torch.Generator) -> Tensor:
    """U(-b, b) with b = sqrt(6 / (rows + columns))."""
    bound = math.sqrt(6 / (rows + columns))
    return (2 * torch.rand(rows, columns, generator=generator) - 1) * bound
