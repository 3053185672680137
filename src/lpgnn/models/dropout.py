"""Dropout with one random stream a run."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lpgnn.kernels.dropout import keep_where
from lpgnn.propagation.matrices import flat

_LEVELS = 1 << 16


class Dropout:
    """Zero each entry with its run's rate and scale up the rest.

    Four 16-bit draws are taken from each 64-bit one: a third of the time of uniform floats, a
    tenth of torch's own dropout on a CPU.  Rates are thus multiples of 2^-16, and the scale is
    that of the rounded rate, so that the expectation is exact.
    """

    def __init__(self, rates: Sequence[float], generators: Sequence[torch.Generator]) -> None:
        self.levels = [min(round(rate * _LEVELS), _LEVELS - 1) for rate in rates]
        self.generators = generators

    def __call__(self, hidden: Tensor) -> Tensor:  # [R, N, h] -> [R, N, h]
        return _Drop.apply(hidden, self) if any(self.levels) else hidden

    def draw(self, hidden: Tensor) -> Tensor:
        """Fresh draws, one for each entry.  [R, N, h] -> [R, N h and some] int16"""
        words = (hidden[0].numel() + 3) // 4
        bits = torch.empty(len(hidden), words, dtype=torch.int64, device=hidden.device)
        for own, generator in zip(bits, self.generators, strict=True):
            own.random_(-(2**63), None, generator=generator)
        return bits.view(torch.int16)

    def keep(self, x: Tensor, draws: Tensor) -> Tensor:
        """Drop the entries whose draws lie below their run's level, scale the others."""
        x, out = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
        for run, level in enumerate(self.levels):
            lowest, scale = level - _LEVELS // 2, _LEVELS / (_LEVELS - level)
            own = draws[run, : x[run].numel()]
            if x.is_cuda:
                out[run] = torch.where(own.view_as(x[run]) >= lowest, scale * x[run], 0.0)
            else:
                keep_where(own.numpy(), lowest, scale, flat(x[run]), flat(out[run]))
        return out

    def seed(self, run: int) -> int:
        """A fresh seed from the run's stream, for modules that bring their own dropout."""
        device = self.generators[run].device
        draw = torch.randint(2**62, (), generator=self.generators[run], device=device)
        return int(draw)


class _Drop(torch.autograd.Function):
    """Forward and backward apply the same draws: no mask of floats is ever made."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, dropout: Dropout) -> Tensor:
        ctx.dropout, draws = dropout, dropout.draw(hidden)
        ctx.save_for_backward(draws)
        return dropout.keep(hidden, draws)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.dropout.keep(grad, *ctx.saved_tensors), None
