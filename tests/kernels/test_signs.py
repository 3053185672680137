"""Products of a matrix of signs against dense ones in float64."""

import numpy as np
import pytest
import torch

from lpgnn.kernels import signs
from lpgnn.kernels.products import Floats
from lpgnn.kernels.signs import PAIR, Codes, signs_times, signs_transposed_times
from lpgnn.propagation.compiled import SignMatrix

from .arrays import Doubles, Output, assert_sums, fenced, normal

SHAPES = [(rows, d) for rows in (1, 7, 50) for d in (1, 7, 8, 9, 16, 17, 300)]
SHAPES += [(signs._ROWS, 20), (2 * signs._ROWS + 3, 33)]
WIDTHS = [1, 15, 16, 20, 48]


def random_signs(rows: int, d: int) -> Doubles:
    bits = np.random.default_rng(5).integers(2, size=(rows, d))
    return 2 * bits.astype(np.float64) - 1


def packed(dense: Doubles) -> Codes:
    forward, _ = SignMatrix.both_ways(torch.from_numpy(dense.astype(np.int8)), 1.0)
    return forward.codes


def assert_affine(actual: Doubles, b: Doubles, scale: float, offset: float, x: Floats) -> None:
    """actual = (scale b + offset) x, up to rounding."""
    x64, matrix = x.astype(np.float64), scale * b + offset
    # Beside the sum itself: up to 16 more steps to the sum of a pattern, which may be as large as
    # the absolute values together, and the offset's own sum.
    magnitude = (abs(scale) + abs(offset)) * np.abs(x64).sum(0, keepdims=True)
    assert_sums(actual, matrix @ x64, np.broadcast_to(magnitude, actual.shape), 2 * len(x) + 32)


@pytest.mark.parametrize(("rows", "d"), SHAPES)
@pytest.mark.parametrize("width", WIDTHS)
def test_both_ways_are_the_dense_products(rows: int, d: int, width: int) -> None:
    dense = random_signs(rows, d)
    forward, back = SignMatrix.both_ways(torch.from_numpy(dense.astype(np.int8)), 1.75)
    assert (forward.shape, back.shape) == ((rows, d), (d, rows))
    for matrix, b, x in (
        (forward, dense, normal(d, width, seed=2)),
        (back, dense.T, normal(rows, width, seed=3)),
    ):
        for offset in (0.0, -0.5):
            out = torch.full((len(b), width), torch.nan)
            found = matrix.affine_into(out, torch.from_numpy(x), offset)
            assert found is out
            assert_affine(out.double().numpy(), b, 1.75, offset, x)
    assert torch.equal(forward.to_dense(), torch.from_numpy(1.75 * dense).float())


@pytest.mark.parametrize(("rows", "d"), SHAPES)
@pytest.mark.parametrize("width", [16, 48])
def test_the_loops_stay_in_their_arrays(rows: int, d: int, width: int) -> None:
    dense = random_signs(rows, d)
    codes = packed(dense)
    weight, grad, start = normal(d, width), normal(rows, width, seed=3), np.zeros(width, np.float32)
    for loop, b, x in (
        (signs_times, dense, weight),
        (signs_transposed_times, dense.T, grad),
    ):
        out, sums = Output(len(b) * width), Output(PAIR)
        loop(codes, fenced(x), out.array, width, 2.0, fenced(start), sums.array)
        assert_affine(out.taken(len(b), width), b, 2.0, 0.0, x)
        sums.taken(PAIR)


def test_the_patterns_of_a_byte_by_hand() -> None:
    """Eight weights 1, 2, 4, ... 128: the sum of a pattern is twice its number less 255."""
    weight = np.zeros((8, 16), np.float32)
    weight[:, 3] = 2.0 ** np.arange(8)
    dense = (np.arange(256)[:, None] >> np.arange(8) & 1) * 2.0 - 1  # row p: the bits of p
    out = torch.empty(256, 16)
    forward, back = SignMatrix.both_ways(torch.from_numpy(dense.astype(np.int8)), 1.0)
    forward.affine_into(out, torch.from_numpy(weight), 0.0)
    assert out[:, 3].tolist() == [2 * pattern - 255 for pattern in range(256)]
    assert not out[:, :3].any()
    # The way back: a gradient at one pattern goes to each weight with its sign.
    grad = torch.zeros(256, 16)
    grad[0b10000110, 5] = 3.0
    turned = back.affine_into(torch.empty(8, 16), grad, 0.0)
    assert turned[:, 5].tolist() == [-3, 3, 3, -3, -3, -3, -3, 3]
    assert not turned[:, :5].any()


def test_the_check_rejects_one_wrong_sign() -> None:
    dense = random_signs(50, 300)
    wrong = dense.copy()
    wrong[49, 299] *= -1
    forward, back = SignMatrix.both_ways(torch.from_numpy(wrong.astype(np.int8)), 1.0)
    for matrix, b, x in ((forward, dense, normal(300, 16)), (back, dense.T, normal(50, 16))):
        out = matrix.affine_into(torch.empty(len(b), 16), torch.from_numpy(x), 0.0)
        with pytest.raises(AssertionError):
            assert_affine(out.double().numpy(), b, 1.0, 0.0, x)


def test_the_matrix_takes_a_bit_an_entry() -> None:
    forward, back = SignMatrix.both_ways(torch.ones(1000, 512, dtype=torch.int8), 1.0)
    assert forward.codes.nbytes == 1000 * 512 // 8
    assert back.codes is forward.codes
