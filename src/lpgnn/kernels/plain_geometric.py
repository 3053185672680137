"""``kernels.geometric`` without numba, word for word: for machines on which that does not work."""

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Whole = npt.NDArray[np.int64]

BLOCKS = 256  # of sixty-four numbers, at a time

_ALL = np.uint64(2**64 - 1)
_NEGATIVE_ZERO = np.uint64(1 << 63)


def random_words(seed: np.uint64, places: Words) -> Words:
    z = seed + (places + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def draw_proposals(digits: Words, seed: np.uint64, start: Words) -> Words:
    """start: [B], the place at which each block begins -> [B, 64]"""
    places, count = digits.shape
    planes = np.zeros((start.size, 64), dtype=np.uint64)
    for digit in range(count):
        undecided = np.full(start.size, _ALL)
        for place in range(places):
            word = random_words(seed, start + np.uint64(digit * places + place))
            planes[:, digit] |= undecided & digits[place, digit] & ~word
            undecided &= ~(digits[place, digit] ^ word)
            if not undecided.any():
                break
    planes[:, 63] = random_words(seed, start + np.uint64(count * places))
    in_bytes = planes.astype("<u8").view(np.uint8).reshape(start.size, 64, 8)
    bits = np.unpackbits(in_bytes, axis=2, bitorder="little").transpose(0, 2, 1)
    turned = np.packbits(bits, axis=2, bitorder="little")
    return np.ascontiguousarray(turned).view("<u8").reshape(start.size, 64).astype(np.uint64)


def _signed(words: Words, size: Whole) -> Whole:
    return np.where(words >= _NEGATIVE_ZERO, -size, size)


def fill_laplace(digits: Words, seed: np.uint64, out: Whole) -> None:
    largest = 1 << (digits.shape[1] - 1)
    filled = block = 0
    while filled < out.size:
        blocks = np.arange(block, block + BLOCKS, dtype=np.uint64)
        start = blocks * np.uint64((digits.shape[1] + 2) * digits.shape[0])
        words = draw_proposals(digits, seed, start).ravel()
        words = words[words != _NEGATIVE_ZERO][: out.size - filled]
        size = np.minimum((words & ~_NEGATIVE_ZERO).astype(np.int64), largest)
        out[filled : filled + words.size] = _signed(words, size)
        filled, block = filled + words.size, block + BLOCKS


def fill_gaussian(
    digits: Words, seed: np.uint64, rate: float, doubt: float, out: Whole, open_: Whole, at: Words
) -> int:
    places, count = digits.shape
    filled = block = noted = 0
    while filled < out.size:
        blocks = np.arange(block, block + BLOCKS, dtype=np.uint64)
        start = blocks * np.uint64((count + 2) * places)
        words = draw_proposals(digits, seed, start)
        lanes = np.arange(64, dtype=np.uint64) + np.uint64((count + 1) * places)
        drawn = random_words(seed, np.add.outer(start, lanes))
        size = (words & ~_NEGATIVE_ZERO).astype(np.int64)
        margin = np.exp(-0.5 * (size * rate - 1.0) ** 2) - drawn * 2.0**-64
        kept = (words != _NEGATIVE_ZERO) & (size < 1 << (count - 1)) & (margin > -doubt)
        chosen = np.flatnonzero(kept)[: out.size - filled]
        out[filled : filled + chosen.size] = _signed(words.ravel(), size.ravel())[chosen]
        doubtful = np.flatnonzero(margin.ravel()[chosen] < doubt)
        open_[noted : noted + doubtful.size] = filled + doubtful
        at[noted : noted + doubtful.size] = drawn.ravel()[chosen[doubtful]]
        noted += doubtful.size
        filled, block = filled + chosen.size, block + BLOCKS
    return noted
