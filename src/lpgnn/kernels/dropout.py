"""Dropout of one run, in one pass."""

import numpy as np
import numpy.typing as npt

from lpgnn.kernels.products import Floats
from lpgnn.kernels.registers import compiled


@compiled
def keep_where(
    draws: npt.NDArray[np.int16], lowest: int, scale: float, x: Floats, out: Floats
) -> None:
    """out = scale x where a draw reaches ``lowest``, else 0."""
    bound, factor = np.int16(lowest), np.float32(scale)
    for place in range(x.size):
        out[place] = factor * x[place] if draws[place] >= bound else np.float32(0)
