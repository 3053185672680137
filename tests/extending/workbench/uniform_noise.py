"""A custom feature mechanism."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lpgnn.privacy import AdditiveNoise


@dataclass(frozen=True)
class UniformNoise(AdditiveNoise):
    """Uniform noise of a given width: not private, an example."""

    span: float = 1.0

    def noise(self, shape: torch.Size, *, generator: torch.Generator) -> Tensor:
        return (torch.rand(shape, generator=generator, dtype=torch.float64) - 0.5) * self.span

    def variance(self, x: Tensor) -> Tensor:
        return torch.full_like(x, self.span**2 / 12)

    def parameters(self) -> dict[str, float]:
        return {"span": self.span}
