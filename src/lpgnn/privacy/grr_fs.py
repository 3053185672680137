"""Randomized response on sampled features, and a coin for all others."""

from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar

import torch
from torch import Tensor

from lpgnn.data.sparse import CsrMatrix
from lpgnn.privacy.exact import least_probability, log_odds, share
from lpgnn.privacy.mechanism import FeatureMechanism, dense_chunks
from lpgnn.privacy.multi_bit import MultiBit, sample_dimensions
from lpgnn.privacy.reports import FeatureReports, Form


@dataclass(frozen=True)
class GrrFs(FeatureMechanism):
    """GRR-FS of RGNN (Bhaila, Huang, Wu and Wu, SDM 2024), with epsilon in total: epsilon-LDP.

    m of d features go through randomized response at eps / m each; any other is replaced by a
    uniform category, and the server cannot tell which are which.  RGNN's features are categories;
    here a number is rounded at random to one of the ends of its range first, so that there are two.

    RGNN counts eps per feature: its program spends eps on each of m features, by default on all d,
    m eps or d eps in total.  The estimate makes up for the coins by a factor d / m, as for MB, but
    MB is silent where this sends coins: their variance, (d / m)^2 against d / m, is the price.
    ``num_samples`` overrides m of MB; with m = d this is 1B.
    """

    name: ClassVar[str] = "grr_fs"
    form: ClassVar[Form] = "signs"

    num_samples: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.bits()  # checks num_samples

    def bits(self) -> MultiBit:
        """What the sampled features go through."""
        options = (self.epsilon, self.num_features, self.alpha, self.beta)
        return MultiBit(*options, num_samples=self.num_samples)

    def spent(self) -> Decimal:
        """Exactly this: where x and x' differ in all features, every sample tells them apart."""
        m = self.bits().m
        return m * log_odds(1 - least_probability(share(self.epsilon, m)))

    def perturb(self, features: CsrMatrix, *, generator: torch.Generator) -> FeatureReports:
        self.check_features(features)
        bits, d = self.bits(), self.num_features
        sent = torch.empty(features.shape, dtype=torch.int8)
        for rows, x in dense_chunks(features):
            t = torch.randint(2, x.shape, dtype=torch.int8, generator=generator)
            sampled = sample_dimensions(len(x), d, bits.m, generator=generator)
            p = bits.bit_probability(x.gather(1, sampled))
            draw = torch.rand(p.shape, dtype=torch.float64, generator=generator)
            sent[rows] = 2 * t.scatter_(1, sampled, (draw < p).to(torch.int8)) - 1
        return FeatureReports(sent, bits.scale(), bits.offset())

    def variance(self, x: Tensor) -> Tensor:
        """A sign at its scale, always: scale^2 - (x - (alpha + beta) / 2)^2."""
        bits = self.bits()
        return bits.scale() ** 2 - (x.double() - bits.offset()) ** 2

    def parameters(self) -> dict[str, float]:
        return {"m": float(self.bits().m)}
