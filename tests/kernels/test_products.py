"""Sparse products against dense ones in float64, in fenced arrays."""

from collections.abc import Callable

import numpy as np
import pytest

from lpgnn.kernels import products
from lpgnn.kernels.products import (
    Floats,
    Indices,
    affine,
    columns_to_rows,
    multiply,
    power,
    rows_to_columns,
)

from .arrays import Output, assert_sums, fenced, normal

WIDTHS = [1, 3, 15, 16, 17, 31, 32, 33, 48, 64]
Csr = tuple[Indices, Indices, Floats]
Multiply = Callable[[Indices, Indices, Floats, Floats, Floats, int, Floats], None]


def random_matrix(rows: int, columns: int, density: float = 0.3) -> Floats:
    kept = np.random.default_rng(5).random((rows, columns)) < density
    return np.where(kept, normal(rows, columns, seed=6), np.float32(0))


def with_empty_rows() -> Floats:
    """Rows of no, one and many entries; the first and the last are empty."""
    dense = random_matrix(23, 23)
    dense[[0, 7, 8, 22]] = 0
    dense[3, 1:] = 0
    dense[5] = normal(23, seed=7)
    return dense


SQUARE = {
    "empty rows": with_empty_rows(),
    "no entries": np.zeros((5, 5), dtype=np.float32),
    "one node": np.full((1, 1), 0.7, dtype=np.float32),
}
MATRICES = SQUARE | {
    "one row": random_matrix(1, 9, density=0.7),
    "wide": random_matrix(7, 19),
    "high": random_matrix(19, 7),
    "no rows": np.zeros((0, 4), dtype=np.float32),
}


def compressed(dense: Floats) -> Csr:
    rows, columns = dense.nonzero()
    counts = np.bincount(rows, minlength=len(dense))
    indptr = np.concatenate([[0], counts.cumsum()]).astype(np.int32)
    return indptr, columns.astype(np.int32), fenced(dense[rows, columns])


def longest_row(dense: Floats) -> int:
    return int((dense != 0).sum(1).max(initial=0))


def check_multiply(kernel: Multiply, dense: Floats, width: int, *, starts: bool) -> None:
    x, start = normal(dense.shape[1], width, seed=1), normal(width * starts, seed=2)
    out = Output(len(dense) * width)
    kernel(*compressed(dense), fenced(x), out.array, width, fenced(start))
    a, b = dense.astype(np.float64), x.astype(np.float64)
    c = start.astype(np.float64) if starts else np.zeros(width)
    assert_sums(
        out.taken(len(dense), width),
        a @ b + c,
        np.abs(a) @ np.abs(b) + np.abs(c),
        2 * longest_row(dense) + 1,
    )


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("starts", [False, True])
def test_multiply_is_the_dense_product(name: str, width: int, starts: bool) -> None:
    check_multiply(multiply, MATRICES[name], width, starts=starts)


def one_row_too_many(
    indptr: Indices, indices: Indices, values: Floats, x: Floats, out: Floats, *rest: object
) -> None:
    longer = np.append(indptr, indptr[-1:])
    multiply(longer, indices, values, x, out, *rest)  # type: ignore[arg-type]


def without_the_last_entry(
    indptr: Indices, indices: Indices, values: Floats, x: Floats, out: Floats, *rest: object
) -> None:
    shorter = np.minimum(indptr, indptr[-1] - 1)
    multiply(shorter, indices, values, x, out, *rest)  # type: ignore[arg-type]


def from_short_numbers(
    indptr: Indices, indices: Indices, values: Floats, x: Floats, out: Floats, *rest: object
) -> None:
    halves = (x.view(np.uint32) & np.uint32(0xFFFFFF00)).view(np.float32)  # 16 bits of 24
    multiply(indptr, indices, values, halves, out, *rest)  # type: ignore[arg-type]


def without_the_start(
    indptr: Indices,
    indices: Indices,
    values: Floats,
    x: Floats,
    out: Floats,
    width: int,
    start: Floats,
) -> None:
    multiply(indptr, indices, values, x, out, width, start[:0])


@pytest.mark.parametrize("width", [3, 16, 33])
@pytest.mark.parametrize(
    "broken",
    [one_row_too_many, without_the_last_entry, from_short_numbers, without_the_start],
)
def test_the_check_rejects_broken_products(broken: Multiply, width: int) -> None:
    with pytest.raises(AssertionError):
        check_multiply(broken, with_empty_rows(), width, starts=True)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_reaches_the_rows_that_touch_it_and_no_other(
    width: int, bad: float
) -> None:
    dense, node = with_empty_rows(), 4
    matrix, x = compressed(dense), normal(23, width, seed=1)
    clean, out = Output(23 * width), Output(23 * width)
    multiply(*matrix, fenced(x), clean.array, width, x[0, :0])
    for column in {0, width // 2, width - 1}:
        broken = x.copy()
        broken[node, column] = bad
        multiply(*matrix, fenced(broken), out.array, width, x[0, :0])
        expected = clean.taken(23, width)
        touching = dense[:, node] != 0
        assert 0 < touching.sum() < 23
        expected[touching, column] = np.sign(dense[touching, node]) * bad
        np.testing.assert_array_equal(out.taken(23, width), expected)


def test_a_column_has_the_same_bits_in_any_company() -> None:
    """Alone in a register, beside others, and within ``power``."""
    matrix, x = compressed(with_empty_rows()), normal(23, 64, seed=1)
    whole = Output(23 * 64)
    multiply(*matrix, fenced(x), whole.array, 64, x[0, :0])
    expected = whole.taken(23, 64)
    for width in (16, 32, 48):
        own, alone, within = fenced(x[:, :width]), Output(23 * width), Output(23 * width)
        multiply(*matrix, own, alone.array, width, x[0, :0])
        power(*matrix, own, within.array, within.array, width, 1)
        for out in (alone, within):
            assert np.array_equal(out.taken(23, width), expected[:, :width])


def test_bits_tell_one_order_of_a_sum_from_another() -> None:
    (indptr, indices, values), x = compressed(with_empty_rows()), normal(23, 64, seed=1)
    outs = Output(23 * 64), Output(23 * 64)
    multiply(indptr, indices, values, fenced(x), outs[0].array, 64, x[0, :0])
    row = slice(indptr[5], indptr[6])
    indices[row], values[row] = indices[row][::-1].copy(), values[row][::-1].copy()
    multiply(indptr, indices, values, fenced(x), outs[1].array, 64, x[0, :0])
    assert not np.array_equal(outs[0].taken(23, 64), outs[1].taken(23, 64))


@pytest.mark.parametrize("width", [16, 17, 48])
def test_an_operand_beyond_the_cache_gives_the_same_bits(width: int) -> None:
    """Rows are asked for in advance there.  The operand's other rows are nan."""
    nodes = products._CACHE_BYTES // (4 * width) + 1000
    draws = np.random.default_rng(3)
    used = np.sort(draws.choice(nodes, 200, replace=False))
    used[[0, -1]] = 0, nodes - 1
    near = normal(200, width)
    far = np.full((nodes, width), np.nan, dtype=np.float32)
    far[used] = near
    assert 4 * near.size < products._CACHE_BYTES < 4 * far.size
    # Rows shorter and longer than the distance by which the loop runs ahead, and empty ones.
    counts = np.array([0, 1, 2 * products._AHEAD, 3, 0, products._AHEAD, 100, 0])
    indptr = np.concatenate([[0], counts.cumsum()]).astype(np.int32)
    picked = draws.integers(200, size=counts.sum())
    picked[:2], picked[-2:] = 199, 199
    values, start = normal(counts.sum(), seed=4), normal(width, seed=5)
    outs = Output(8 * width), Output(8 * width)
    for x, indices, out in zip((near, far), (picked, used[picked]), outs, strict=True):
        given = (indptr, indices.astype(np.int32), values)
        multiply(*given, x.reshape(-1), out.array, width, start)
    expected, actual = (out.taken(8, width) for out in outs)
    assert np.isfinite(expected).all()
    assert np.array_equal(actual, expected)


def check_power(dense: Floats, width: int, steps: int, *, taken_steps: int) -> None:
    x = normal(dense.shape[1], width, seed=1)
    given, out, spare = fenced(x), Output(x.size), Output(x.size)
    # As the caller does: for one step there is no room to spare.
    room = spare.array if taken_steps > 1 else out.array
    power(*compressed(dense), given, out.array, room, width, taken_steps)
    assert np.array_equal(given, x.reshape(-1))
    spare.taken(*x.shape)
    expected, magnitude = x.astype(np.float64), np.abs(x).astype(np.float64)
    for _ in range(steps):
        expected, magnitude = dense @ expected, np.abs(dense) @ magnitude
    operations = 2 * steps * longest_row(dense)
    assert_sums(out.taken(*x.shape), expected, magnitude, operations)


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", SQUARE)
def test_power_applies_the_matrix_so_many_times(name: str, width: int, steps: int) -> None:
    check_power(SQUARE[name], width, steps, taken_steps=steps)


def test_the_check_rejects_a_step_too_few_and_too_many() -> None:
    for taken in (1, 3):
        with pytest.raises(AssertionError):
            check_power(with_empty_rows(), 16, 2, taken_steps=taken)


def check_affine(dense: Floats, width: int, offset: float, *, taken_offset: float) -> None:
    x, out = normal(dense.shape[1], width, seed=1), Output(len(dense) * width)
    affine(*compressed(dense), taken_offset, fenced(x), out.array, width)
    a, b = dense.astype(np.float64), x.astype(np.float64)
    assert_sums(
        out.taken(len(dense), width),
        a @ b + offset * b.sum(0),
        np.abs(a) @ np.abs(b) + abs(offset) * np.abs(b).sum(0),
        2 * longest_row(dense) + len(x) + 2,  # the offset is rounded, too
    )


@pytest.mark.parametrize("offset", [0.0, 0.3, -2.0])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", MATRICES)
def test_affine_adds_the_column_sums_to_every_row(name: str, width: int, offset: float) -> None:
    check_affine(MATRICES[name], width, offset, taken_offset=offset)


def test_the_check_rejects_another_offset() -> None:
    for taken in (0.0, 0.3001):
        with pytest.raises(AssertionError):
            check_affine(MATRICES["wide"], 17, 0.3, taken_offset=taken)


@pytest.mark.parametrize("nodes", [1, 7, 40])
@pytest.mark.parametrize(("used", "width"), [(1, 1), (3, 3), (3, 16), (16, 16), (17, 32), (7, 8)])
def test_columns_become_rows_and_columns_again(nodes: int, used: int, width: int) -> None:
    p = normal(used, nodes)
    rows, back = Output(nodes * width), Output(used * nodes)
    columns_to_rows(fenced(p), rows.array, nodes, used, width)
    taken = rows.taken(nodes, width)
    assert np.array_equal(taken[:, :used], p.T)
    assert not taken[:, used:].any()
    rows.array.reshape(nodes, width)[:, used:] = np.nan  # what fills up is not read
    rows_to_columns(rows.array, back.array, nodes, used, width)
    assert np.array_equal(back.taken(used, nodes), p)
