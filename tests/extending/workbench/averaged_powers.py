"""A custom linear filter."""

from dataclasses import dataclass

from lpgnn.propagation import LinearFilter


@dataclass(frozen=True)
class AveragedPowers(LinearFilter):
    """(1/K) sum_{k=1..K} P^k; for K = 0 the identity."""

    steps: int = 4

    def coefficients(self) -> tuple[float, ...]:
        return (0.0,) + (1 / self.steps,) * self.steps if self.steps else (1.0,)
