"""The Laplace mechanism."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lpgnn.privacy.mechanism import AdditiveNoise


@dataclass(frozen=True)
class Laplace(AdditiveNoise):
    """The Laplace mechanism: epsilon-LDP with scale (beta - alpha) d / eps in every entry."""

    name: ClassVar[str] = "lp"

    def scale(self) -> float:
        return self.width * self.num_features / self.epsilon

    def noise(self, shape: torch.Size, *, generator: torch.Generator) -> Tensor:
        """The inverse distribution function: -scale sign(u) log(1 - 2|u|), u in [-1/2, 1/2)."""
        u = torch.rand(shape, dtype=torch.float64, generator=generator).sub_(0.5)
        # u = -1/2, one draw in 2^53, would be infinite noise.
        magnitude = u.abs().mul_(-2).clamp_(min=-1 + 2**-53).log1p_().mul_(-self.scale())
        return magnitude.copysign_(u)

    def variance(self, x: Tensor) -> Tensor:
        return torch.full_like(x, 2 * self.scale() ** 2, dtype=torch.float64)

    def parameters(self) -> dict[str, float]:
        return {"scale": self.scale()}
