"""The Piecewise mechanism."""

import math
from dataclasses import dataclass
from typing import ClassVar

from lpgnn.privacy.sampled_values import WindowValues
from lpgnn.privacy.sliding_window import SlidingWindow, sliding_window


@dataclass(frozen=True)
class Piecewise(WindowValues):
    """The Piecewise mechanism (Wang et al., ICDE 2019, Algorithm 2) on k sampled features.

    At e = eps / k: with C = (e^(e/2) + 1) / (e^(e/2) - 1), l = (C + 1) t/2 - (C - 1)/2 and
    r = l + C - 1, uniform on [l, r] with probability e^(e/2) / (e^(e/2) + 1), else on the rest of
    [-C, C].  So [l, r] is a window whose width is e^(-e/2) of its way from -C to C - (r - l).
    The variance of a number is t^2 / (a - 1) + (a + 3) / 3 (a - 1)^2 with a = e^(e/2).
    """

    name: ClassVar[str] = "pm"

    def window(self) -> SlidingWindow:
        e = self.value_epsilon
        return sliding_window(e, math.exp(-e / 2))
