import numpy as np
import pytest

from lpgnn.kernels.dropout import keep_where
from lpgnn.kernels.products import Floats

from .arrays import Output, fenced, normal

DRAWS = np.random.default_rng(0).permutation(np.arange(-(2**15), 2**15)).astype(np.int16)


def kept(lowest: int, x: Floats, scale: float = 1.7) -> Floats:
    out = Output(x.size)
    keep_where(DRAWS[: x.size], lowest, scale, fenced(x), out.array)
    return out.taken(x.size).astype(np.float32)


@pytest.mark.parametrize(("lowest", "expected"), [(-32768, 65536), (0, 32768), (32767, 1)])
def test_the_draws_from_the_lowest_on_are_kept_and_scaled(lowest: int, expected: int) -> None:
    x = normal(DRAWS.size)
    wanted = np.where(lowest <= DRAWS, np.float32(1.7) * x, np.float32(0))
    assert np.count_nonzero(wanted) == expected
    assert np.array_equal(kept(lowest, x), wanted)
    if lowest > -32768:
        assert not np.array_equal(kept(lowest - 1, x), wanted)


@pytest.mark.parametrize("size", [0, 1, 15, 16, 33])
def test_any_number_of_entries(size: int) -> None:
    x = normal(size)
    wanted = np.where(DRAWS[:size] >= 0, np.float32(1.7) * x, np.float32(0))
    assert np.array_equal(kept(0, x), wanted)


def test_what_is_not_finite_is_dropped_or_kept_as_it_is() -> None:
    x = np.resize(np.array([np.nan, np.inf, -np.inf], dtype=np.float32), 100)
    np.testing.assert_array_equal(kept(0, x), np.where(DRAWS[:100] >= 0, x, np.float32(0)))
