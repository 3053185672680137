"""SELU and the bias before it, in one pass each way, for rows of whole registers."""

import numpy as np

from lpgnn.kernels.products import Floats
from lpgnn.kernels.registers import (
    LANES,
    add,
    compiled,
    exp_or_scale,
    load,
    multiply,
    spread,
    store,
    where_positive,
)

# Of the self-normalising unit (Klambauer et al., 2017), as torch has them.
SCALE = 1.0507009873554804934193349852946
ALPHA = 1.6732632423543772848170429916717


@compiled
def selu_with_bias(x: Floats, bias: Floats) -> None:
    """x = selu(x + 1 bias^T) in place.  x: [n, width], flat; bias: [width]"""
    positive, negative = spread(np.float32(SCALE)), spread(np.float32(SCALE * ALPHA))
    for row in range(0, x.size, bias.size):
        for column in range(0, bias.size, LANES):
            moved = add(load(x, row + column), load(bias, column))
            store(x, row + column, exp_or_scale(moved, positive, negative))


@compiled
def selu_gradients(result: Floats, grad: Floats, d_x: Floats, d_bias: Floats) -> None:
    """The way back from the result alone.  d_x: [n, width]; d_bias: [width], starts at zero"""
    positive, negative = spread(np.float32(SCALE)), spread(np.float32(SCALE * ALPHA))
    for row in range(0, d_x.size, d_bias.size):
        for column in range(0, d_bias.size, LANES):
            value = load(result, row + column)
            slope = where_positive(value, positive, add(value, negative))
            d = multiply(load(grad, row + column), slope)
            store(d_x, row + column, d)
            store(d_bias, column, add(load(d_bias, column), d))
