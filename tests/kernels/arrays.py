"""Arrays for kernels that check no bounds, and the error a sum of float32 may have."""

import numpy as np
import numpy.typing as npt

from lpgnn.kernels.products import Floats

Doubles = npt.NDArray[np.float64]

_ZONE = 256
_MARK = np.float32(-7.25)
_ROUNDING = 2.0**-24  # the largest relative error of one float32 operation


def normal(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def fenced(numbers: Floats) -> Floats:
    """The numbers, flat, with nan on both sides: whoever reads too far gets nan."""
    buffer = np.full(numbers.size + 2 * _ZONE, np.nan, dtype=np.float32)
    buffer[_ZONE:-_ZONE] = numbers.reshape(-1)
    return buffer[_ZONE:-_ZONE]


class Output:
    """A flat array to write to, nan at first, between two zones that nobody may write to."""

    def __init__(self, size: int, fill: float = np.nan) -> None:
        self.buffer = np.full(size + 2 * _ZONE, _MARK, dtype=np.float32)
        self.array = self.buffer[_ZONE:-_ZONE]
        self.array[:] = fill

    def taken(self, *shape: int) -> Doubles:
        """What was written, once the zones are found as they were."""
        assert (self.buffer[:_ZONE] == _MARK).all(), "written before the array"
        assert (self.buffer[-_ZONE:] == _MARK).all(), "written behind the array"
        return self.array.reshape(shape).astype(np.float64)


def assert_sums(actual: Doubles, expected: Doubles, magnitude: Doubles, operations: int) -> None:
    """Sums of float32 in any order.  magnitude: the same sums of absolute values"""
    # One more rounding than operations pays for the bound's second-order terms.
    np.testing.assert_array_less(
        np.abs(actual - expected), (operations + 1) * _ROUNDING * magnitude + 1e-37
    )
