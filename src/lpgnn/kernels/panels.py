"""Dense matrix times a few columns, and the way back, at the pace of the processor's registers.

A matrix [N, d] is kept in panels of twelve rows, [N / 12, d, 12]: at each of its d places a panel
has twelve numbers side by side.  Twelve rows of 32 columns are 24 registers of sums; both products
read the matrix once, from front to back, and need no second, transposed copy of it.
"""

from typing import Any

from llvmlite import ir
from numba import types

from lpgnn.kernels.products import Floats
from lpgnn.kernels.registers import (
    FUSED,
    LANES,
    REGISTER,
    VECTOR,
    address_of,
    compiled,
    function,
    load,
    prefetch,
    spread_number,
    store,
)

ROWS = 12
COLUMNS = 2 * LANES
# The gradients of so many places, 128 bytes each, stay in a core's own cache; in smaller blocks the
# matrix would be read in pieces too short for the processor to run ahead (256: a quarter slower).
_BLOCK = 5120
# How many places ahead the matrix is asked for.  Its numbers are used so slowly that the processor
# does not run ahead far enough by itself: waiting for memory takes as long as the arithmetic.
_AHEAD = 192

_SUMS = types.UniTuple(REGISTER, 2 * ROWS)  # row r: registers 2 r and 2 r + 1
_PAIR = types.UniTuple(REGISTER, 2)


def _times_plus(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return builder.fadd(builder.fmul(a, b, flags=FUSED), c, flags=FUSED)


def _numbers(context: Any, builder: Any, array_type: Any, panel: Any, place: Any) -> list[Any]:
    """The twelve numbers at a place of a panel, each in all lanes."""
    base = address_of(context, builder, array_type, panel, place)
    offsets = [ir.Constant(ir.IntType(64), row) for row in range(ROWS)]
    return [
        spread_number(builder, builder.load(builder.gep(base, [offset]), align=4))
        for offset in offsets
    ]


@function
def zero_rows(context: Any) -> Any:
    """Twelve rows of 32 zeros."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(context.get_value_type(_SUMS), None)

    return _SUMS(), build


@function
def load_rows(context: Any, array: Any, place: Any, width: Any) -> Any:
    """Twelve rows of 32 columns, ``width`` apart."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array, place, width = args
        rows = context.get_constant_undef(_SUMS)
        for index in range(2 * ROWS):
            address = _row_address(context, builder, signature.args[0], array, place, width, index)
            rows = builder.insert_value(rows, builder.load(address, align=4), index)
        return rows

    return _SUMS(array, types.int64, types.int64), build


@function
def store_rows(context: Any, array: Any, place: Any, width: Any, rows: Any) -> Any:
    """The way back to memory."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array, place, width, rows = args
        for index in range(2 * ROWS):
            address = _row_address(context, builder, signature.args[0], array, place, width, index)
            builder.store(builder.extract_value(rows, index), address, align=4)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64, _SUMS), build


def _row_address(
    context: Any, builder: Any, array_type: Any, array: Any, place: Any, width: Any, index: int
) -> Any:
    row = builder.mul(width, ir.Constant(ir.IntType(64), index // 2))
    column = ir.Constant(ir.IntType(64), index % 2 * LANES)
    here = builder.add(builder.add(place, row), column)
    address = address_of(context, builder, array_type, array, here)
    return builder.bitcast(address, VECTOR.as_pointer())


@function
def add_outer(context: Any, sums: Any, panel: Any, place: Any, a: Any, b: Any) -> Any:
    """Row r of the sums grows by panel[place + r] (a, b)."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        sums, panel, place, *pair = args
        for row, number in enumerate(_numbers(context, builder, signature.args[1], panel, place)):
            for half in range(2):
                index = 2 * row + half
                grown = _times_plus(builder, number, pair[half], builder.extract_value(sums, index))
                sums = builder.insert_value(sums, grown, index)
        return sums

    return _SUMS(_SUMS, panel, types.int64, REGISTER, REGISTER), build


@function
def add_inner(context: Any, a: Any, b: Any, rows: Any, panel: Any, place: Any) -> Any:
    """(a, b) + sum_r panel[place + r] row_r"""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        a, b, rows, panel, place = args
        # Two chains of sums for each register: an addition need not wait for the one before.
        chains = [[a, None], [b, None]]
        for row, number in enumerate(_numbers(context, builder, signature.args[3], panel, place)):
            for half in range(2):
                part = builder.extract_value(rows, 2 * row + half)
                before = chains[half][row % 2]
                chains[half][row % 2] = (
                    builder.fmul(number, part)
                    if before is None
                    else _times_plus(builder, number, part, before)
                )
        pair = context.get_constant_undef(_PAIR)
        for half in range(2):
            pair = builder.insert_value(pair, builder.fadd(*chains[half]), half)
        return pair

    return _PAIR(REGISTER, REGISTER, _SUMS, panel, types.int64), build


@compiled
def panels_times(panels: Floats, weight: Floats, out: Floats, width: int) -> None:
    """out = X W.  panels: [n / 12, d, 12]; weight: [d, width], out: [n, width], all flat

    width: a multiple of 32
    """
    places = weight.size // width
    for panel in range(panels.size // (ROWS * places)):
        for column in range(0, width, COLUMNS):
            sums = zero_rows()
            for place in range(places):
                prefetch(panels, (panel * places + place + _AHEAD) * ROWS)
                a = load(weight, place * width + column)
                b = load(weight, place * width + column + LANES)
                sums = add_outer(sums, panels, (panel * places + place) * ROWS, a, b)
            store_rows(out, panel * ROWS * width + column, width, sums)


@compiled
def panels_transposed_times(panels: Floats, grad: Floats, out: Floats, width: int) -> None:
    """out = X^T G.  grad: [n, width], out: [d, width], zeros at first, flat"""
    places = out.size // width
    for first in range(0, places, _BLOCK):
        last = min(first + _BLOCK, places)
        for panel in range(panels.size // (ROWS * places)):
            for column in range(0, width, COLUMNS):
                rows = load_rows(grad, panel * ROWS * width + column, width)
                for place in range(first, last):
                    here = place * width + column
                    prefetch(panels, (panel * places + place + _AHEAD) * ROWS)
                    a, b = load(out, here), load(out, here + LANES)
                    a, b = add_inner(a, b, rows, panels, (panel * places + place) * ROWS)
                    store(out, here, a)
                    store(out, here + LANES, b)
