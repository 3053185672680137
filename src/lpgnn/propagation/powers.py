"""Any polynomial in P."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from lpgnn.errors import InputError
from lpgnn.propagation.filters import LinearFilter


@dataclass(frozen=True)
class Powers(LinearFilter):
    """sum_k theta_k P^k with coefficients as they are given, theta_0 first."""

    name: ClassVar[str] = "powers"

    theta: tuple[float, ...] = (0.0, 0.5, 0.5)

    def __post_init__(self) -> None:
        super().__post_init__()
        given: Any = self.theta
        listed = isinstance(given, Sequence) and not isinstance(given, str) and len(given) > 0
        if not (listed and all(_is_finite(theta) for theta in given)):
            raise InputError("theta", given, "must be a list of finite numbers, theta_0 first")
        # A list from YAML, 1 or 1.0: the same filter.
        object.__setattr__(self, "theta", tuple(float(theta) for theta in given))

    def coefficients(self) -> tuple[float, ...]:
        return self.theta


def _is_finite(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value)
