"""Dropout with one random stream a run."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lpgnn.kernels import Backend

_LEVELS = 1 << 16
# Seeds are drawn so many at a time: reading a number from a GPU waits for it.
_SEEDS = 512


class Dropout:
    """Zero each entry with its run's rate and scale up the rest.

    Four 16-bit draws are taken from each 64-bit one: a third of the time of uniform floats, a
    tenth of torch's own dropout on a CPU.  Rates are thus multiples of 2^-16, and the scale is
    that of the rounded rate, so that the expectation is exact.

    generators: one a run, on the backend's device
    """

    def __init__(
        self, rates: Sequence[float], generators: Sequence[torch.Generator], backend: Backend
    ) -> None:
        levels = [min(round(rate * _LEVELS), _LEVELS - 1) for rate in rates]
        self.drops = any(levels)
        self.lowest = [level - _LEVELS // 2 for level in levels]  # the lowest draws that keep
        self.scales = [_LEVELS / (_LEVELS - level) for level in levels]
        self.generators, self.backend = generators, backend
        self._lowest = torch.tensor(self.lowest, dtype=torch.int16, device=backend.device)
        self._scales = torch.tensor(self.scales, dtype=torch.float32, device=backend.device)
        self._seeds: list[list[int]] = [[] for _ in generators]

    def __call__(self, hidden: Tensor) -> Tensor:  # [R, N, h] -> [R, N, h]
        return _Drop.apply(hidden, self) if self.drops else hidden

    def draw(self, hidden: Tensor) -> Tensor:
        """Fresh draws, one for each entry.  [R, N, h] -> [R, N h and some] int16"""
        words = (hidden[0].numel() + 3) // 4
        bits = torch.empty(len(hidden), words, dtype=torch.int64, device=hidden.device)
        for own, generator in zip(bits, self.generators, strict=True):
            own.random_(-(2**63), None, generator=generator)
        return bits.view(torch.int16)

    def keep(self, x: Tensor, draws: Tensor) -> Tensor:
        """Drop the entries whose draws lie below their run's level, scale the others."""
        if self.backend.compiled:
            from lpgnn.models.compiled import keep_of_runs

            return keep_of_runs(x, draws, self.lowest, self.scales)
        rows = x.reshape(len(x), -1)  # [R, N h]: one launch for all runs
        kept = draws[:, : rows.shape[1]] >= self._lowest[:, None]
        return torch.where(kept, self._scales[:, None] * rows, 0.0).view(x.shape)

    def seed(self, run: int) -> int:
        """A fresh seed from the run's stream, for modules that bring their own dropout."""
        if not self._seeds[run]:
            generator = self.generators[run]
            drawn = torch.randint(2**62, (_SEEDS,), generator=generator, device=generator.device)
            self._seeds[run] = drawn.tolist()[::-1]
        return self._seeds[run].pop()


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
