"""Matrix of signs times a few columns, eight signs at a time.

Of eight signs there are 256 patterns.  A product needs the sum of eight weights for each pattern
once, and then one addition for eight entries of the matrix; the way back adds each gradient to the
sum of its pattern first.  The matrix takes one bit an entry.
"""

import numpy as np
import numpy.typing as npt

from lpgnn.kernels.products import Floats
from lpgnn.kernels.registers import (
    LANES,
    add,
    at,
    compiled,
    fma,
    load,
    multiply,
    spread,
    store,
    subtract,
)

Codes = npt.NDArray[np.uint8]

SIGNS = 8  # of a byte
PATTERNS = 1 << SIGNS
PAIR = 2 * PATTERNS * LANES  # numbers in the sums of two bytes' patterns
# So many rows of sums stay in a core's own cache while the bytes of the matrix pass by.
_ROWS = 4096


@compiled
def _sums_of_patterns(
    weight: Floats, first: int, width: int, column: int, scale: float, sums: Floats, here: int
) -> None:
    """sums[here + 16 p] = scale sum_i (1 or -1 by bit i of p) weight[first + i]"""
    factor = spread(np.float32(scale))
    rows = min(SIGNS, weight.size // width - first)
    lowest = spread(np.float32(0))
    for row in range(rows):
        lowest = subtract(lowest, load(weight, (first + row) * width + column))
    store(sums, here, multiply(factor, lowest))
    known = 1
    for row in range(SIGNS):
        twice = spread(np.float32(0))
        if row < rows:
            twice = load(weight, (first + row) * width + column)
            twice = multiply(factor, add(twice, twice))
        for pattern in range(known):
            before = load(sums, here + pattern * LANES)
            store(sums, here + (known + pattern) * LANES, add(before, twice))
        known *= 2


@compiled
def signs_times(
    codes: Codes,
    weight: Floats,
    out: Floats,
    width: int,
    scale: float,
    start: Floats,
    sums: Floats,
) -> None:
    """out = scale B W + 1 start^T.  codes: [d / 8, n], an even number of rows; weight: [d, width],
    out: [n, width], all flat

    start: [width]; sums: room for ``PAIR`` numbers; width: a multiple of 16
    """
    nodes = out.size // width
    for first in range(0, nodes, _ROWS):
        last = min(first + _ROWS, nodes)
        for column in range(0, width, LANES):
            begin = load(start, column)
            for node in range(first, last):
                store(out, node * width + column, begin)
            for byte in range(0, codes.size // nodes, 2):
                row = byte * SIGNS
                _sums_of_patterns(weight, row, width, column, scale, sums, 0)
                other = PATTERNS * LANES
                _sums_of_patterns(weight, row + SIGNS, width, column, scale, sums, other)
                here = byte * nodes
                for node in range(first, last):
                    place = node * width + column
                    a = load(sums, at(codes, here + node) * LANES)
                    b = load(sums, other + at(codes, here + nodes + node) * LANES)
                    store(out, place, add(load(out, place), add(a, b)))


@compiled
def _add_by_sign(
    sums: Floats, here: int, first: int, factor: float, out: Floats, width: int, column: int
) -> None:
    """out[first + i] += factor sum_p (1 or -1 by bit i of p) sums[here + 16 p]; sums are used up"""
    scale = spread(np.float32(factor))
    half = PATTERNS // 2
    for row in range(first + SIGNS - 1, first - 1, -1):
        total = spread(np.float32(0))
        for pattern in range(half):
            low = load(sums, here + pattern * LANES)
            high = load(sums, here + (half + pattern) * LANES)
            total = add(total, subtract(high, low))
            store(sums, here + pattern * LANES, add(low, high))
        if row * width < out.size:
            place = row * width + column
            store(out, place, fma(scale, total, load(out, place)))
        half //= 2


@compiled
def signs_transposed_times(
    codes: Codes,
    grad: Floats,
    out: Floats,
    width: int,
    scale: float,
    start: Floats,
    sums: Floats,
) -> None:
    """out = scale B^T G + 1 start^T.  grad: [n, width], out: [d, width], flat"""
    zero = spread(np.float32(0))
    other = PATTERNS * LANES
    nodes = grad.size // width
    for column in range(0, width, LANES):
        begin = load(start, column)
        for place in range(column, out.size, width):
            store(out, place, begin)
    for first in range(0, nodes, _ROWS):
        last = min(first + _ROWS, nodes)
        for column in range(0, width, LANES):
            for byte in range(0, codes.size // nodes, 2):
                for place in range(0, PAIR, LANES):
                    store(sums, place, zero)
                here = byte * nodes
                for node in range(first, last):
                    own = load(grad, node * width + column)
                    a = at(codes, here + node) * LANES
                    b = other + at(codes, here + nodes + node) * LANES
                    store(sums, a, add(load(sums, a), own))
                    store(sums, b, add(load(sums, b), own))
                row = byte * SIGNS
                _add_by_sign(sums, 0, row, scale, out, width, column)
                _add_by_sign(sums, other, row + SIGNS, scale, out, width, column)
