import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
import pytest
from numba import njit

from lpgnn.kernels.products import Floats, Indices
from lpgnn.kernels.registers import (
    LANES,
    add,
    at,
    exp_or_scale,
    fma,
    load,
    multiply,
    prefetch,
    spread,
    store,
    sum_lanes,
    where_positive,
)

from .arrays import Doubles, Output, assert_sums, fenced, normal

Function = TypeVar("Function", bound=Callable[..., Any])

# Of the SELU: the first factor is above 1, the second is no power of two.
POSITIVE, NEGATIVE = 1.0507, 1.7581


def jitted(function: Function) -> Function:
    """As kernels are compiled, but kept in this process only."""
    return cast(Function, njit(error_model="numpy")(function))


@jitted
def read_float(array: Floats, offset: int) -> float:
    return at(array, offset)  # type: ignore[no-any-return]


@jitted
def read_index(array: Indices, offset: int) -> int:
    return 2 * at(array, offset)  # type: ignore[no-any-return]


@jitted
def move(source: Floats, here: int, target: Floats, there: int) -> None:
    store(target, there, load(source, here))


@jitted
def ask_for(array: Floats, offset: int) -> None:
    prefetch(array, offset)


@jitted
def fill(number: float, out: Floats) -> None:
    store(out, 0, spread(np.float32(number)))


@jitted
def arithmetic(a: Floats, b: Floats, c: Floats, out: Floats) -> None:
    """out = (a + b, a b, a b + c)"""
    store(out, 0, add(load(a, 0), load(b, 0)))
    store(out, LANES, multiply(load(a, 0), load(b, 0)))
    store(out, 2 * LANES, fma(load(a, 0), load(b, 0), load(c, 0)))


@jitted
def total(a: Floats) -> float:
    return sum_lanes(load(a, 0))  # type: ignore[no-any-return]


@jitted
def choose(condition: Floats, a: Floats, b: Floats, out: Floats) -> None:
    store(out, 0, where_positive(load(condition, 0), load(a, 0), load(b, 0)))


@jitted
def linear_unit(a: Floats, positive: float, negative: float, out: Floats) -> None:
    factors = spread(np.float32(positive)), spread(np.float32(negative))
    for place in range(0, a.size, LANES):
        store(out, place, exp_or_scale(load(a, place), factors[0], factors[1]))


def test_at_reads_one_number() -> None:
    numbers = normal(20)
    assert [read_float(numbers, place) for place in range(20)] == numbers.tolist()


def test_at_makes_a_signed_index_of_64_bits() -> None:
    indices = np.array([0, 7, -5, 2**31 - 1, -(2**31)], dtype=np.int32)
    found = [read_index(indices, place) for place in range(5)]
    assert found == [2 * index for index in indices.tolist()]


@pytest.mark.parametrize("here", [0, 1, 7, 15, 16, 17])
@pytest.mark.parametrize("there", [0, 3, 16])
def test_load_and_store_move_sixteen_numbers_from_and_to_any_offset(here: int, there: int) -> None:
    source = normal(here + LANES)
    out = Output(there + LANES)
    move(fenced(source), here, out.array, there)
    taken = out.taken(there + LANES)
    assert np.isnan(taken[:there]).all()
    assert np.array_equal(taken[there:], source[here:])


def test_prefetch_is_asked_for_and_harmless_at_any_offset() -> None:
    numbers = normal(LANES)
    before = numbers.copy()
    for offset in (0, 15, -1, 10**6, -(10**9), 10**15):  # a read at the last would end the process
        ask_for(numbers, offset)
    assert np.array_equal(numbers, before)
    (code,) = cast(Any, ask_for).inspect_llvm().values()
    assert "call void @llvm.prefetch" in code


@pytest.mark.parametrize("number", [0.0, -0.0, 1 / 3, -1e-40, np.inf, np.nan])
def test_spread_fills_all_lanes(number: float) -> None:
    out = Output(LANES)
    fill(number, out.array)
    out.taken(LANES)
    expected = np.full(LANES, number, dtype=np.float32)
    assert np.array_equal(out.array.view(np.int32), expected.view(np.int32))


def test_add_multiply_and_fma_by_lanes() -> None:
    a, b, c = (normal(LANES, seed=seed).astype(np.float64) for seed in (1, 2, 3))
    out = Output(3 * LANES)
    given = [fenced(x.astype(np.float32)) for x in (a, b, c)]
    arithmetic(given[0], given[1], given[2], out.array)
    added, multiplied, fused = out.taken(3, LANES)
    assert_sums(added, a + b, np.abs(a + b), 1)
    assert_sums(multiplied, a * b, np.abs(a * b), 1)
    assert_sums(fused, a * b + c, np.abs(a * b) + np.abs(c), 2)
    with pytest.raises(AssertionError):  # of lanes that are mixed up
        assert_sums(fused, (a * b + c)[::-1], np.abs(a * b) + np.abs(c), 2)


def test_arithmetic_keeps_what_is_not_finite() -> None:
    nan, inf = np.nan, np.inf
    a = np.array([nan, 1, inf, inf, -inf, 0, 1, 3e38] + 8 * [1], dtype=np.float32)
    b = np.array([1, nan, 1, -inf, 2, inf, 1, 3e38] + 8 * [1], dtype=np.float32)
    c = np.array([1, 1, -inf, 1, 1, 1, nan, 1] + 8 * [1], dtype=np.float32)
    out = Output(3 * LANES)
    arithmetic(a, b, c, out.array)
    added, multiplied, fused = out.taken(3, LANES)
    np.testing.assert_array_equal(added, [nan, nan, inf, nan, -inf, inf, 2, inf] + 8 * [2])
    np.testing.assert_array_equal(multiplied, [nan, nan, inf, -inf, -inf, nan, 1, inf] + 8 * [1])
    np.testing.assert_array_equal(fused, [nan, nan, nan, -inf, -inf, nan, nan, inf] + 8 * [2])


def test_sum_lanes_counts_each_lane_once() -> None:
    assert total(2.0 ** np.arange(LANES, dtype=np.float32)) == 2**LANES - 1
    numbers = normal(LANES)
    found, doubles = np.array(total(fenced(numbers))), numbers.astype(np.float64)
    assert_sums(found, doubles.sum(), np.abs(doubles).sum(), LANES)
    for lane in range(LANES):
        for bad in (np.nan, np.inf, -np.inf):
            broken = numbers.copy()
            broken[lane] = bad
            np.testing.assert_equal(total(broken), bad)


def test_where_positive_takes_zero_and_nan_for_not_positive() -> None:
    condition = np.ones(LANES, dtype=np.float32)
    condition[:7] = [-np.inf, -1, -0.0, 0.0, np.nan, 1e-40, np.inf]
    a, b = normal(LANES, seed=1), normal(LANES, seed=2)
    out = Output(LANES)
    choose(condition, a, b, out.array)
    assert np.array_equal(out.taken(LANES), np.concatenate([b[:5], a[5:]]))


def exact_unit(a: Doubles) -> Doubles:
    positive, negative = np.float64(np.float32(POSITIVE)), np.float64(np.float32(NEGATIVE))
    return np.where(a > 0, positive * a, negative * np.expm1(np.minimum(a, 0)))


def assert_is_the_unit(a: Floats, found: Doubles) -> None:
    """To 3e-7 of its value; below 0, where e^a - 1 cancels, at least to 1.2e-7 of the factor."""
    exact = exact_unit(a.astype(np.float64))
    least = np.where(a > 0, 1e-44, 1.2e-7 * NEGATIVE)  # the spacing of numbers around 0
    np.testing.assert_array_less(np.abs(found - exact), np.maximum(3e-7 * np.abs(exact), least))


def arguments() -> Floats:
    """-200 to 5, and both sides of 0 from the smallest number on."""
    tiny = np.logspace(-45, 0, 2000)
    half_twos = np.log(2) * (np.arange(-120, 6) + 0.5)  # where 2^n changes
    steps = [np.nextafter(half_twos.astype(np.float32), np.float32(side)) for side in (-999, 999)]
    a = np.concatenate([np.linspace(-200, 5, 40_001), tiny, -tiny, half_twos, *steps])
    return np.resize(a, (a.size + LANES - 1) // LANES * LANES).astype(np.float32)


def test_exp_or_scale_is_an_exponential_linear_unit() -> None:
    a = arguments()
    out = Output(a.size)
    linear_unit(fenced(a), POSITIVE, NEGATIVE, out.array)
    assert_is_the_unit(a, out.taken(a.size))


def test_the_bound_rejects_a_shorter_series_and_a_swapped_factor() -> None:
    a = arguments()
    exact = exact_unit(a.astype(np.float64))
    n = np.rint(a / np.log(2))
    r = a - n * np.log(2)
    series = sum(r**k / math.factorial(k) for k in range(6))  # up to r^5
    short = np.where(a > 0, exact, np.float32(NEGATIVE) * (series * 2.0**n - 1))
    with pytest.raises(AssertionError):
        assert_is_the_unit(a, short)
    with pytest.raises(AssertionError):
        assert_is_the_unit(a, np.where(a > 0, exact / POSITIVE * NEGATIVE, exact))


def test_exp_or_scale_at_zeros_infinities_and_nan() -> None:
    a = np.zeros(LANES, dtype=np.float32)
    a[:5] = [0.0, -0.0, np.inf, -np.inf, np.nan]
    out = Output(LANES)
    linear_unit(a, POSITIVE, NEGATIVE, out.array)
    expected = np.zeros(LANES, dtype=np.float32)
    expected[2:5] = [np.inf, -NEGATIVE, np.nan]
    np.testing.assert_array_equal(out.taken(LANES), expected.astype(np.float64))
