"""Products of a matrix in panels against dense ones in float64."""

import numpy as np
import pytest
import torch

from lpgnn.kernels import panels
from lpgnn.kernels.panels import COLUMNS, ROWS, panels_times, panels_transposed_times
from lpgnn.kernels.products import Floats
from lpgnn.propagation.compiled import PanelMatrix
from propagation.graphs import CPU

from .arrays import Doubles, Output, assert_sums, fenced, normal

SHAPES = [(rows, d) for rows in (1, 11, 12, 13, 50) for d in (1, 5, 300)]
SHAPES.append((13, panels._BLOCK + 7))
WIDTHS = [1, 16, 32, 40, 64]


def in_panels(dense: Floats) -> PanelMatrix:
    rows, columns = dense.shape
    matrix = PanelMatrix(rows, columns, CPU)
    matrix.fill(0, torch.from_numpy(dense))
    return matrix


def assert_product(actual: Doubles, a: Floats, b: Floats) -> None:
    x, y = a.astype(np.float64), b.astype(np.float64)
    assert_sums(actual, x @ y, np.abs(x) @ np.abs(y), 2 * len(y))


@pytest.mark.parametrize(("rows", "d"), SHAPES)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_product_and_its_gradient(rows: int, d: int, width: int) -> None:
    dense, weight = normal(rows, d, seed=1), normal(d, width, seed=2)
    grad = normal(rows, width, seed=3)
    given = torch.from_numpy(weight).requires_grad_()
    out = in_panels(dense).matmul(given)
    assert out.shape == (rows, width)
    assert_product(out.detach().double().numpy(), dense, weight)
    (d_weight,) = torch.autograd.grad(out, given, torch.from_numpy(grad))
    assert_product(d_weight.double().numpy(), dense.T, grad)


@pytest.mark.parametrize(("rows", "d"), SHAPES)
@pytest.mark.parametrize("width", [COLUMNS, 2 * COLUMNS])
def test_the_loops_stay_in_their_arrays(rows: int, d: int, width: int) -> None:
    numbers = fenced(in_panels(normal(rows, d, seed=1)).panels.numpy())
    whole = numbers.reshape(-1, d, ROWS).transpose(0, 2, 1).reshape(-1, d)  # [12 P, d]
    weight, grad = normal(d, width, seed=2), normal(len(whole), width, seed=3)
    out = Output(len(whole) * width)
    panels_times(numbers, fenced(weight), out.array, width)
    assert_product(out.taken(len(whole), width), whole, weight)
    back = Output(d * width, fill=0.0)
    panels_transposed_times(numbers, fenced(grad), back.array, width)
    assert_product(back.taken(d, width), whole.T, grad)


def test_the_check_rejects_a_lost_place_and_a_lost_row() -> None:
    """A sum over one number less, at the far end of either product."""
    dense, weight, grad = normal(13, 300, seed=1), normal(300, 40, seed=2), normal(13, 40, seed=3)
    given = torch.from_numpy(weight).requires_grad_()
    for place in ((slice(None), -1), (-1, slice(None))):
        lossy = dense.copy()
        lossy[place] = 0
        out = in_panels(lossy).matmul(given)
        with pytest.raises(AssertionError):
            assert_product(out.detach().double().numpy(), dense, weight)
        (d_weight,) = torch.autograd.grad(out, given, torch.from_numpy(grad))
        with pytest.raises(AssertionError):
            assert_product(d_weight.double().numpy(), dense.T, grad)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_in_its_row_and_column(bad: float) -> None:
    dense, weight = normal(25, 30, seed=1), normal(30, 40, seed=2)
    clean = in_panels(dense).matmul(torch.from_numpy(weight)).numpy()
    broken = dense.copy()
    broken[13, 4] = bad
    expected = clean.copy()
    expected[13] = np.sign(weight[4]) * np.float32(bad)
    out = in_panels(broken).matmul(torch.from_numpy(weight))
    np.testing.assert_array_equal(out.numpy(), expected)
    broken_weight = weight.copy()
    broken_weight[4, 17] = bad
    expected = clean.copy()
    expected[:, 17] = np.sign(dense[:, 4]) * np.float32(bad)
    out = in_panels(dense).matmul(torch.from_numpy(broken_weight))
    np.testing.assert_array_equal(out.numpy(), expected)


@pytest.mark.parametrize("rows", [1, 11, 12, 13, 50])
def test_what_is_filled_in_by_blocks_comes_out_again(rows: int) -> None:
    dense = normal(rows, 9)
    matrix = PanelMatrix(rows, 9, CPU)
    for start, end in ((4, 9), (0, 4)):
        matrix.fill(start, torch.from_numpy(dense[:, start:end]))
    assert torch.equal(matrix.dense(), torch.from_numpy(dense))
    assert float(matrix.panels.double().abs().sum()) == pytest.approx(
        float(np.abs(dense.astype(np.float64)).sum())  # the last panel is filled up with zeros
    )
