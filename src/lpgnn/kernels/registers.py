"""Sixteen floats at a time, for loops that numba compiles.

Numba's own loops over the columns of a row keep their sums in memory.  A ``Register`` is a vector
of the compiler's: sums stay in the processor, in one register or in as many as it needs for
sixteen floats.  The functions below are for compiled code only.  They check no bounds: callers do.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from llvmlite import ir
from numba import config, njit, types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

from lpgnn.kernels.machine_code import cache_folder, keep_checked

Function = TypeVar("Function", bound=Callable[..., Any])

LANES = 16

_FLOAT, _INDEX = ir.FloatType(), ir.IntType(32)
VECTOR = ir.VectorType(_FLOAT, LANES)
# A product may be fused with a sum.  Nothing else is reordered, so that a result depends on the
# operands only, not on what the compiler makes of the loop around it.
FUSED = ("contract",)


_CACHE = cache_folder(Path(__file__).parent)


def compiled(function: Function) -> Function:
    """Compile at the first call and keep the machine code on disk for later processes."""
    before, config.CACHE_DIR = config.CACHE_DIR, str(_CACHE)
    try:
        dispatcher = njit(cache=True, error_model="numpy", nogil=True)(function)
    finally:
        config.CACHE_DIR = before
    keep_checked(dispatcher)
    return cast(Function, dispatcher)


class _RegisterType(types.Type):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(name="Register")


REGISTER = _RegisterType()


@register_model(_RegisterType)
class _RegisterModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, frontend: Any) -> None:
        super().__init__(manager, frontend, VECTOR)


def address_of(context: Any, builder: Any, array_type: Any, array: Any, offset: Any) -> Any:
    """Code for the address of array[offset]."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [offset])


def function(typed: Callable[..., Any]) -> Any:
    """A function for compiled code, given by its types and the code it stands for."""
    return intrinsic(typed)


def spread_number(builder: Any, number: Any) -> Any:
    """Code for the same number in all lanes."""
    undefined = ir.Constant(VECTOR, ir.Undefined)
    first = builder.insert_element(undefined, number, ir.Constant(_INDEX, 0))
    lanes = ir.Constant(ir.VectorType(_INDEX, LANES), [0] * LANES)
    return builder.shuffle_vector(first, undefined, lanes)


@function
def at(context: Any, array: Any, offset: Any) -> Any:
    """array[offset]; a whole number, of 32 bits or a byte, comes out as an index."""
    found = array.dtype
    is_index = found in (types.int32, types.uint8)

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = address_of(context, builder, signature.args[0], *args)
        value = builder.load(address, align=found.bitwidth // 8)
        if not is_index:
            return value
        widen = builder.sext if found.signed else builder.zext
        return widen(value, ir.IntType(64))

    return (types.int64 if is_index else found)(array, types.int64), build


@function
def load(context: Any, array: Any, offset: Any) -> Any:
    """array[offset : offset + 16]"""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = address_of(context, builder, signature.args[0], *args)
        return builder.load(builder.bitcast(address, VECTOR.as_pointer()), align=4)

    return REGISTER(array, types.int64), build


@function
def store(context: Any, array: Any, offset: Any, register: Any) -> Any:
    """array[offset : offset + 16] = register"""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = address_of(context, builder, signature.args[0], *args[:2])
        builder.store(args[2], builder.bitcast(address, VECTOR.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(array, types.int64, REGISTER), build


@function
def prefetch(context: Any, array: Any, offset: Any) -> Any:
    """Ask for the memory around array[offset] before it is needed; any offset is harmless."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = address_of(context, builder, signature.args[0], *args)
        pointer = ir.IntType(8).as_pointer()
        form = ir.FunctionType(ir.VoidType(), [pointer, _INDEX, _INDEX, _INDEX])
        function = cgutils.get_or_insert_function(builder.module, form, "llvm.prefetch.p0")
        # to read, into all caches, of data
        flags = [ir.Constant(_INDEX, flag) for flag in (0, 3, 1)]
        builder.call(function, [builder.bitcast(address, pointer), *flags])
        return context.get_dummy_value()

    return types.void(array, types.int64), build


@function
def spread(context: Any, number: Any) -> Any:
    """The same number in all lanes."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return spread_number(builder, args[0])

    return REGISTER(types.float32), build


@function
def fma(context: Any, a: Any, b: Any, c: Any) -> Any:
    """a b + c, lane by lane"""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        product = builder.fmul(args[0], args[1], flags=FUSED)
        return builder.fadd(product, args[2], flags=FUSED)

    return REGISTER(REGISTER, REGISTER, REGISTER), build


@function
def add(context: Any, a: Any, b: Any) -> Any:
    """a + b, lane by lane"""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fadd(*args)

    return REGISTER(REGISTER, REGISTER), build


@function
def subtract(context: Any, a: Any, b: Any) -> Any:
    """a - b, lane by lane"""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fsub(*args)

    return REGISTER(REGISTER, REGISTER), build


@function
def multiply(context: Any, a: Any, b: Any) -> Any:
    """a b, lane by lane"""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fmul(*args)

    return REGISTER(REGISTER, REGISTER), build


@function
def exp_or_scale(context: Any, a: Any, positive: Any, negative: Any) -> Any:
    """positive a where a > 0, negative (e^a - 1) elsewhere: an exponential linear unit.

    e^a = 2^n e^r with |r| <= ln(2) / 2, and e^r by its series up to r^7: exact to float32.
    """

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, positive, negative = args
        whole = ir.VectorType(_INDEX, LANES)

        def constant(number: float) -> Any:
            return ir.Constant(VECTOR, [number] * LANES)

        def times_plus(a: Any, b: Any, c: Any) -> Any:  # in this order: the remainder is exact
            return builder.fadd(builder.fmul(a, b, flags=FUSED), c, flags=FUSED)

        lowest, one = constant(-80.0), constant(1.0)
        below = builder.select(builder.fcmp_ordered("<", x, lowest), lowest, x)
        # Above 0 another branch is taken: a bound keeps 2^n a number there.
        inside = builder.select(builder.fcmp_ordered(">", below, one), one, below)
        scaled = builder.fmul(inside, constant(1 / math.log(2)))
        form = ir.FunctionType(VECTOR, [VECTOR])
        name = f"llvm.rint.v{LANES}f32"
        n = builder.call(cgutils.get_or_insert_function(builder.module, form, name), [scaled])
        r = times_plus(n, constant(-0.693359375), inside)
        r = times_plus(n, constant(0.693359375 - math.log(2)), r)
        series = constant(1 / math.factorial(7))
        for degree in range(6, -1, -1):
            series = times_plus(series, r, constant(1 / math.factorial(degree)))
        # NaN has no exponent: any will do, since the series propagates it.
        number = builder.select(builder.fcmp_ordered("ord", n, n), n, constant(0.0))
        exponent = builder.add(builder.fptosi(number, whole), ir.Constant(whole, [127] * LANES))
        power = builder.bitcast(builder.shl(exponent, ir.Constant(whole, [23] * LANES)), VECTOR)
        falling = builder.fmul(negative, builder.fsub(builder.fmul(series, power), one))
        rising = builder.fmul(positive, x)
        return builder.select(builder.fcmp_ordered(">", x, constant(0.0)), rising, falling)

    return REGISTER(REGISTER, REGISTER, REGISTER), build


@function
def where_positive(context: Any, condition: Any, a: Any, b: Any) -> Any:
    """a where the condition is above 0, b elsewhere, lane by lane"""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        zero = ir.Constant(VECTOR, [0.0] * LANES)
        return builder.select(builder.fcmp_ordered(">", args[0], zero), args[1], args[2])

    return REGISTER(REGISTER, REGISTER, REGISTER), build


@function
def sum_lanes(context: Any, a: Any) -> Any:
    """The sum of the sixteen lanes."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        form = ir.FunctionType(_FLOAT, [_FLOAT, VECTOR])
        name = f"llvm.vector.reduce.fadd.v{LANES}f32"
        function = cgutils.get_or_insert_function(builder.module, form, name)
        # In pairs, not one lane after another: five additions deep instead of sixteen.
        return builder.call(function, [ir.Constant(_FLOAT, 0.0), args[0]], fastmath=("reassoc",))

    return types.float32(REGISTER), build
