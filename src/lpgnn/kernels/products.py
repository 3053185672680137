"""Sparse matrix times dense matrix, on flat row-major arrays."""

import numpy as np
import numpy.typing as npt

from lpgnn.kernels.registers import LANES, add, at, compiled, fma, load, prefetch, spread, store

Indices = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]

# An operand of more bytes than this does not stay in a cache, and its rows are asked for in
# advance, by so many entries of the matrix.
_CACHE_BYTES = 16_000_000
_AHEAD = 16


@compiled
def multiply(
    indptr: Indices,
    indices: Indices,
    values: Floats,
    x: Floats,
    out: Floats,
    width: int,
    start: Floats,
) -> None:
    """out = A x + 1 start^T.  A: [n, k] compressed rows; x: [k, width], out: [n, width], flat

    start: [width], or empty for zeros.
    """
    zero = spread(np.float32(0))
    has_start = start.size > 0
    whole = width - width % LANES
    far = 4 * x.size > _CACHE_BYTES
    last = indices.size - 1
    for row in range(indptr.size - 1):
        begin, end = at(indptr, row), at(indptr, row + 1)
        here = row * width
        if far:
            for entry in range(begin, end):
                prefetch(x, at(indices, min(entry + _AHEAD, last)) * width)
        # Each column has two sums, of even and of odd entries, so that an addition need not wait
        # for the one before; whether registers come in ones or twos does not change them.
        column = 0
        while column + 2 * LANES <= whole:
            a = load(start, column) if has_start else zero
            b = load(start, column + LANES) if has_start else zero
            odd_a = zero
            odd_b = zero
            entry = begin
            while entry + 1 < end:
                weight = spread(at(values, entry))
                place = at(indices, entry) * width + column
                a = fma(weight, load(x, place), a)
                b = fma(weight, load(x, place + LANES), b)
                weight = spread(at(values, entry + 1))
                place = at(indices, entry + 1) * width + column
                odd_a = fma(weight, load(x, place), odd_a)
                odd_b = fma(weight, load(x, place + LANES), odd_b)
                entry += 2
            if entry < end:
                weight = spread(at(values, entry))
                place = at(indices, entry) * width + column
                a = fma(weight, load(x, place), a)
                b = fma(weight, load(x, place + LANES), b)
            store(out, here + column, add(a, odd_a))
            store(out, here + column + LANES, add(b, odd_b))
            column += 2 * LANES
        if column < whole:
            a = load(start, column) if has_start else zero
            odd_a = zero
            entry = begin
            while entry + 1 < end:
                first = at(indices, entry) * width + column
                second = at(indices, entry + 1) * width + column
                a = fma(spread(at(values, entry)), load(x, first), a)
                odd_a = fma(spread(at(values, entry + 1)), load(x, second), odd_a)
                entry += 2
            if entry < end:
                place = at(indices, entry) * width + column
                a = fma(spread(at(values, entry)), load(x, place), a)
            store(out, here + column, add(a, odd_a))
        for column in range(whole, width):
            number = start[column] if has_start else np.float32(0)
            for entry in range(begin, end):
                number += at(values, entry) * at(x, at(indices, entry) * width + column)
            out[here + column] = number


@compiled
def power(
    indptr: Indices,
    indices: Indices,
    values: Floats,
    x: Floats,
    out: Floats,
    spare: Floats,
    width: int,
    steps: int,
) -> None:
    """out = A^steps x for steps > 0; spare: as large as out for steps > 1."""
    nothing = x[:0]
    source = x
    for step in range(steps, 0, -1):  # the last of the steps writes to out
        target = out if step % 2 == 1 else spare
        multiply(indptr, indices, values, source, target, width, nothing)
        source = target


@compiled
def affine(
    indptr: Indices,
    indices: Indices,
    values: Floats,
    offset: float,
    x: Floats,
    out: Floats,
    width: int,
) -> None:
    """out = A x + offset 1 (1^T x)."""
    start = np.zeros(width if offset != 0 else 0, dtype=np.float32)
    if offset != 0:
        for place in range(0, x.size, width):
            for column in range(width):
                start[column] += x[place + column]
        for column in range(width):
            start[column] *= np.float32(offset)
    multiply(indptr, indices, values, x, out, width, start)


@compiled
def columns_to_rows(p: Floats, rows: Floats, nodes: int, used: int, width: int) -> None:
    """rows = p^T, filled up with zeros.  p: [used, nodes] -> rows: [nodes, width], flat"""
    for node in range(nodes):
        here = node * width
        for column in range(used):
            rows[here + column] = at(p, column * nodes + node)
        for column in range(used, width):
            rows[here + column] = np.float32(0)


@compiled
def rows_to_columns(rows: Floats, p: Floats, nodes: int, used: int, width: int) -> None:
    """The way back.  rows: [nodes, width] -> p: [used, nodes], flat"""
    for column in range(used):
        here = column * nodes
        for node in range(nodes):
            p[here + node] = at(rows, node * width + column)
