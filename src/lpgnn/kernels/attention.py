"""One attention head on neighbour lists, for several runs, on flat row-major arrays.

With w_ij = exp(leaky_relu(source_j + target_i) - top_i), top_i the largest score of row i, and
n_i = sum_j w_ij:  out_i = sum_j w_ij value_j / n_i.  The softmax itself is never formed.
"""

import numpy as np

from lpgnn.kernels.products import Floats, Indices
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
    sum_lanes,
)


@compiled
def leaky(score: float, slope: float) -> float:
    return score if score > 0 else slope * score


@compiled
def score_gaps(
    indptr: Indices,
    columns: Indices,
    source: Floats,
    target: Floats,
    slope: float,
    lowest: float,
    gap: Floats,
) -> None:
    """gap_ij = max(leaky_relu(source_j + target_i) - top_i, lowest).

    source, target: [R, N]; gap: [R, E]
    """
    nodes, entries = indptr.size - 1, columns.size
    for run in range(source.size // nodes):
        node0, entry0 = run * nodes, run * entries
        for row in range(nodes):
            begin, end = at(indptr, row), at(indptr, row + 1)
            own = at(target, node0 + row)
            # The largest score sits at the largest source: the leaky ReLU is monotone.
            largest = np.float32(-np.inf)
            for entry in range(begin, end):
                found = at(source, node0 + at(columns, entry))
                gap[entry0 + entry] = found
                largest = max(largest, found)
            top = leaky(largest + own, slope)
            for entry in range(entry0 + begin, entry0 + end):
                gap[entry] = max(leaky(at(gap, entry) + own, slope) - top, lowest)


@compiled
def aggregate(
    indptr: Indices,
    columns: Indices,
    weight: Floats,
    value: Floats,
    out: Floats,
    total: Floats,
    width: int,
) -> None:
    """out_i = sum_j w_ij value_j / n_i, and total = n.

    weight: [R, E]; value, out: [R, N, width], width a multiple of 16; total: [R, N]
    """
    nodes, entries = indptr.size - 1, columns.size
    for run in range(total.size // nodes):
        node0, entry0 = run * nodes, run * entries
        for row in range(nodes):
            begin, end = at(indptr, row), at(indptr, row + 1)
            number = np.float32(0)
            for entry in range(entry0 + begin, entry0 + end):
                number += at(weight, entry)
            total[node0 + row] = number
            scale = spread(np.float32(1) / number)
            for column in range(0, width, LANES):
                # Two sums: one addition need not wait for the one before.
                a = spread(np.float32(0))
                b = spread(np.float32(0))
                entry = begin
                while entry + 1 < end:
                    first = (node0 + at(columns, entry)) * width + column
                    second = (node0 + at(columns, entry + 1)) * width + column
                    a = fma(spread(at(weight, entry0 + entry)), load(value, first), a)
                    b = fma(spread(at(weight, entry0 + entry + 1)), load(value, second), b)
                    entry += 2
                if entry < end:
                    place = (node0 + at(columns, entry)) * width + column
                    a = fma(spread(at(weight, entry0 + entry)), load(value, place), a)
                store(out, (node0 + row) * width + column, multiply(add(a, b), scale))


@compiled
def attention_gradients(
    indptr: Indices,
    columns: Indices,
    source: Floats,
    target: Floats,
    slope: float,
    width: int,
    weight: Floats,
    total: Floats,
    value: Floats,
    out: Floats,
    grad: Floats,
    d_source: Floats,
    d_target: Floats,
    d_value: Floats,
) -> None:
    """The way back from grad, the gradient of out, in one pass over the entries.

    With g_i = grad_i / n_i:  d score_ij = w_ij (g_i . value_j - g_i . out_i) and
    d value_j = sum_i w_ij g_i.  grad is overwritten by g; d_source and d_value start at zero.
    """
    nodes, entries = indptr.size - 1, columns.size
    for run in range(total.size // nodes):
        node0, entry0 = run * nodes, run * entries
        for row in range(nodes):
            here = (node0 + row) * width
            scale = spread(np.float32(1) / at(total, node0 + row))
            sums = spread(np.float32(0))
            for column in range(0, width, LANES):
                g = multiply(load(grad, here + column), scale)
                store(grad, here + column, g)
                sums = fma(g, load(out, here + column), sums)
            inner = sum_lanes(sums)
            own = at(target, node0 + row)
            d_own = np.float32(0)
            for entry in range(at(indptr, row), at(indptr, row + 1)):
                node = node0 + at(columns, entry)
                there = node * width
                w = at(weight, entry0 + entry)
                spread_w = spread(w)
                sums = spread(np.float32(0))
                for column in range(0, width, LANES):
                    g = load(grad, here + column)
                    sums = fma(g, load(value, there + column), sums)
                    place = there + column
                    store(d_value, place, fma(spread_w, g, load(d_value, place)))
                d_score = w * (sum_lanes(sums) - inner)
                if not at(source, node) + own > 0:
                    d_score *= slope
                d_own += d_score
                d_source[node] += d_score
            d_target[node0 + row] = d_own
