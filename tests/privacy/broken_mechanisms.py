"""Mechanisms that do not keep what they claim, each broken in a way that has been published."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lpgnn.data.sparse import CsrMatrix
from lpgnn.privacy import BitMechanism, FeatureMechanism, FeatureReports, OneBit


@dataclass(frozen=True)
class Noise(FeatureMechanism):
    """x + Laplace noise of ``noise_scale`` in every entry."""

    def noise_scale(self, x: Tensor) -> float | Tensor:
        return self.width * self.num_features / self.epsilon

    def perturb(self, features: CsrMatrix, *, generator: torch.Generator) -> FeatureReports:
        x = features.to_dense().double()
        u = torch.rand(x.shape, dtype=torch.float64, generator=generator) - 0.5
        noise = -self.noise_scale(x) * u.sign() * torch.log1p(-2 * u.abs())
        return FeatureReports((x + noise).float(), scale=1.0, offset=0.0)

    def variance(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x) + 2 * self.noise_scale(x) ** 2

    def parameters(self) -> dict[str, float]:
        return {}


@dataclass(frozen=True)
class WrongSensitivity(Noise):
    """Takes the L2 sensitivity sqrt(d) for noise that needs the L1 sensitivity d."""

    def noise_scale(self, x: Tensor) -> float:
        return self.width * math.sqrt(self.num_features) / self.epsilon


@dataclass(frozen=True)
class PerFeature(OneBit):
    """Spends epsilon on each feature and calls that the total."""

    def bit_probability(self, x: Tensor) -> Tensor:
        return BitMechanism.bit_probability(OneBit(self.epsilon, 1), x)


@dataclass(frozen=True)
class PerFeatureInSecret(PerFeature):
    """The same, but the stated probabilities look right."""

    def bit_probability(self, x: Tensor) -> Tensor:
        return OneBit(self.epsilon, self.num_features).bit_probability(x)

    def perturb(self, features: CsrMatrix, *, generator: torch.Generator) -> FeatureReports:
        columns = [features.to_dense()[:, [i]] for i in range(self.num_features)]
        each = OneBit(self.epsilon, 1)
        sent = [each.perturb(CsrMatrix.from_dense(c), generator=generator).sent for c in columns]
        joined = torch.cat([one for one in sent if isinstance(one, Tensor)], dim=1)
        return FeatureReports(joined, self.scale(), self.offset())


@dataclass(frozen=True)
class RangeOfData(Noise):
    """Scales its noise by the range that the data happen to have."""

    def noise_scale(self, x: Tensor) -> float:
        width = float(x.max() - x.min()) or self.width  # alone, it behaves
        return width * self.num_features / self.epsilon


@dataclass(frozen=True)
class RangeOfUser(Noise):
    """Scales a user's noise by the range that the user's own features have."""

    def noise_scale(self, x: Tensor) -> Tensor:
        own = x.amax(1, keepdim=True) - x.amin(1, keepdim=True)
        width = torch.where(own == 0, self.width, own)
        return width * self.num_features / self.epsilon


@dataclass(frozen=True)
class RectifierOfData(Noise):
    """Sends the range of the data along with its reports."""

    def perturb(self, features: CsrMatrix, *, generator: torch.Generator) -> FeatureReports:
        reports = super().perturb(features, generator=generator)
        return FeatureReports(reports.sent, 1.0, offset=float(features.to_dense().mean()))


@dataclass(frozen=True)
class FloatGrid(Noise):
    """Draws its noise in float32: which sums can be reached depends on x (Mironov 2012)."""

    def perturb(self, features: CsrMatrix, *, generator: torch.Generator) -> FeatureReports:
        x = features.to_dense()
        u = torch.rand(x.shape, generator=generator) - 0.5
        noise = -self.noise_scale(x) * u.sign() * torch.log1p(-2 * u.abs())
        return FeatureReports(x + noise, scale=1.0, offset=0.0)
