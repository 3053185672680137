"""The label as a one-hot vector with Laplace noise."""

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from lpgnn.errors import InputError
from lpgnn.privacy.label_mechanism import LabelMechanism
from lpgnn.privacy.laplace import Laplace


@dataclass(frozen=True)
class LaplaceOneHot(LabelMechanism):
    """One-hot labels with Laplace noise of scale b = 2 / eps in every entry (ALIBI): epsilon-LDP.

    Malek, Mironov, Prasad, Shilov and Tramer (NeurIPS 2021).  Two labels differ in two entries by
    one each, so the noise is that of the Laplace mechanism for two features, on its exact grid.

    The report is unbiased as it is.  Its Bayes targets, p(class | report) under equal classes, are
    the likelihood over its sum: p(y | k) ~ exp((|y_k| - |y_k - 1|) / b).
    """

    name: ClassVar[str] = "laplace_onehot"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.is_bound:
            try:
                self.noise()
            except InputError as error:
                allowed = error.allowed.replace("for 2 features", "for this mechanism")
                raise InputError("y_eps", self.epsilon, allowed) from None

    def noise(self) -> Laplace:
        return Laplace(self.epsilon, 2)

    def scale(self) -> float:
        return self.noise().scale()

    def spent(self) -> Decimal:
        return self.noise().spent()

    def perturb(self, labels: Tensor, *, generator: torch.Generator) -> Tensor:
        """[n] -> [n, c] float64"""
        noise = self.noise()
        position = F.one_hot(labels, self.num_classes) * noise.steps
        return noise.with_noise(position, generator=generator).double() / noise.steps

    def likelihood(self, reports: Tensor) -> Tensor:
        score = reports.abs() - (reports - 1).abs()  # [n, c]: from -1 to 1, and exactly these
        return ((score - score.amax(1, keepdim=True)) / self.scale()).exp()

    def estimate(self, reports: Tensor) -> Tensor:
        return reports

    def transition(self) -> Tensor:
        c, right = self.num_classes, self.top_probability()
        wrong = torch.full((c, c), (1 - right) / (c - 1), dtype=torch.float64)
        return wrong.fill_diagonal_(right)

    def top_probability(self) -> float:
        """That the label's own entry has the highest score, ties broken at random.

        Scores are entries clipped to [0, 1].  The own one is 1 w.p. 1/2, and so is any other w.p.
        h = e^(-1/b) / 2; it is 0 w.p. h, and any other w.p. 1/2; between, it lies at s with density
        e^(-(1 - s)/b) / 2b, and any other below s w.p. 1 - e^(-s/b) / 2.
        """
        from scipy.integrate import quad

        c, b = self.num_classes, self.scale()
        h = math.exp(-1 / b) / 2
        # E[1 / (1 + Bin(c - 1, h))]: the share of ties at the top that is won
        at_top = -math.expm1(c * math.log1p(-h)) / (c * h) if h > 0 else 1.0

        def between(s: float) -> float:
            return math.exp(-(1 - s) / b) / (2 * b) * (1 - math.exp(-s / b) / 2) ** (c - 1)

        inner, _ = quad(between, 0.0, 1.0, epsabs=1e-12)
        return at_top / 2 + float(inner) + h * 0.5 ** (c - 1) / c

    def parameters(self) -> dict[str, float]:
        return {"scale": self.scale()}
