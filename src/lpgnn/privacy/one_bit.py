"""The 1-bit mechanism: one noisy bit for every feature."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from lpgnn.data.sparse import CsrMatrix
from lpgnn.privacy.mechanism import BitMechanism, dense_chunks
from lpgnn.privacy.reports import FeatureReports, Form


@dataclass(frozen=True)
class OneBit(BitMechanism):
    """The 1-bit mechanism (Ding et al. 2017): Algorithm 1 with m = d, hence dense reports."""

    name: ClassVar[str] = "1b"
    form: ClassVar[Form] = "signs"

    @property
    def m(self) -> int:
        return self.num_features

    def perturb(self, features: CsrMatrix, *, generator: torch.Generator) -> FeatureReports:
        self.check_features(features)
        sent = torch.empty(features.shape, dtype=torch.int8)
        for rows, x in dense_chunks(features):
            p = self.bit_probability(x)
            t = torch.rand(x.shape, dtype=torch.float64, generator=generator) < p
            sent[rows] = 2 * t.to(torch.int8) - 1
        return FeatureReports(sent, self.scale(), self.offset())
