"""Sixteen floats at a time, for loops that numba compiles.

Numba's own loops over the columns of a row keep their sums in memory.  A ``Register`` is a vector of
the compiler's: sums stay in the processor, in one register or in as many as it needs for sixteen
floats.  The functions below are for compiled code only.  They check no bounds: callers do.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

Function = TypeVar("Function", bound=Callable[..., Any])

LANES = 16

_FLOAT, _INDEX = ir.FloatType(), ir.IntType(32)
_VECTOR = ir.VectorType(_FLOAT, LANES)
# Products may be fused with sums and sums reordered: no result is promised to the last bit.
_FAST = ("fast",)


def compiled(function: Function) -> Function:
    """Compile at the first call and keep the machine code on disk for later processes."""
    return cast(Function, njit(cache=True, error_model="numpy", nogil=True)(function))


class _RegisterType(types.Type):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(name="Register")


_REGISTER = _RegisterType()


@register_model(_RegisterType)  # type: ignore[untyped-decorator]
class _RegisterModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, frontend: Any) -> None:
        super().__init__(manager, frontend, _VECTOR)


def _address(context: Any, builder: Any, array_type: Any, array: Any, offset: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [offset])


def _function(name: str) -> Callable[[Callable[..., Any]], Any]:
    """An intrinsic under a name that compiled code calls."""

    def decorate(typed: Callable[..., Any]) -> Any:
        typed.__name__ = name
        return intrinsic(typed)

    return decorate


@_function("at")
def at(context: Any, array: Any, offset: Any) -> Any:
    """array[offset]; a 32-bit whole number comes out as an index."""
    is_index = array.dtype == types.int32

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = builder.load(_address(context, builder, signature.args[0], *args), align=4)
        return builder.sext(value, ir.IntType(64)) if is_index else value

    return (types.int64 if is_index else array.dtype)(array, types.int64), build


@_function("load")
def load(context: Any, array: Any, offset: Any) -> Any:
    """array[offset : offset + 16]"""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = _address(context, builder, signature.args[0], *args)
        return builder.load(builder.bitcast(address, _VECTOR.as_pointer()), align=4)

    return _REGISTER(array, types.int64), build


@_function("store")
def store(context: Any, array: Any, offset: Any, register: Any) -> Any:
    """array[offset : offset + 16] = register"""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = _address(context, builder, signature.args[0], *args[:2])
        builder.store(args[2], builder.bitcast(address, _VECTOR.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(array, types.int64, _REGISTER), build


@_function("prefetch")
def prefetch(context: Any, array: Any, offset: Any) -> Any:
    """Ask for the memory around array[offset] before it is needed; any offset is harmless."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = _address(context, builder, signature.args[0], *args)
        pointer = ir.IntType(8).as_pointer()
        form = ir.FunctionType(ir.VoidType(), [pointer, _INDEX, _INDEX, _INDEX])
        function = cgutils.get_or_insert_function(builder.module, form, "llvm.prefetch.p0")
        # to read, into all caches, of data
        flags = [ir.Constant(_INDEX, flag) for flag in (0, 3, 1)]
        builder.call(function, [builder.bitcast(address, pointer), *flags])
        return context.get_dummy_value()

    return types.void(array, types.int64), build


@_function("spread")
def spread(context: Any, number: Any) -> Any:
    """The same number in all lanes."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        undefined = ir.Constant(_VECTOR, ir.Undefined)
        first = builder.insert_element(undefined, args[0], ir.Constant(_INDEX, 0))
        lanes = ir.Constant(ir.VectorType(_INDEX, LANES), [0] * LANES)
        return builder.shuffle_vector(first, undefined, lanes)

    return _REGISTER(types.float32), build


@_function("fma")
def fma(context: Any, a: Any, b: Any, c: Any) -> Any:
    """a b + c, lane by lane"""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        product = builder.fmul(args[0], args[1], flags=_FAST)
        return builder.fadd(product, args[2], flags=_FAST)

    return _REGISTER(_REGISTER, _REGISTER, _REGISTER), build


@_function("add")
def add(context: Any, a: Any, b: Any) -> Any:
    """a + b, lane by lane"""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fadd(*args, flags=_FAST)

    return _REGISTER(_REGISTER, _REGISTER), build


@_function("multiply")
def multiply(context: Any, a: Any, b: Any) -> Any:
    """a b, lane by lane"""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fmul(*args, flags=_FAST)

    return _REGISTER(_REGISTER, _REGISTER), build


@_function("sum_lanes")
def sum_lanes(context: Any, a: Any) -> Any:
    """The sum of the sixteen lanes."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        form = ir.FunctionType(_FLOAT, [_FLOAT, _VECTOR])
        name = f"llvm.vector.reduce.fadd.v{LANES}f32"
        function = cgutils.get_or_insert_function(builder.module, form, name)
        return builder.call(function, [ir.Constant(_FLOAT, 0.0), args[0]], fastmath=_FAST)

    return types.float32(_REGISTER), build
