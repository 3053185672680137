"""Whole numbers around zero in exact proportions, sixty-four at a time.

The binary digits of a geometric number, P(n) ~ q^n, are independent: digit i is one with the
probability q^(2^i) / (1 + q^(2^i)).  A word holds one digit of sixty-four numbers.  To draw it, a
random fraction is compared with the probability, both in binary, from the first place on, until
all sixty-four are decided: after some eight places, however many the probability has.  Random
words are those of splitmix64 (Steele, Lea and Flood 2014), addressed by their place in the stream.
"""

import math

import numpy as np
import numpy.typing as npt

from lpgnn.kernels.registers import compiled

Words = npt.NDArray[np.uint64]
Whole = npt.NDArray[np.int64]

LANES = 64
ABREAST = 10  # places
NEGATIVE_ZERO = np.uint64(1 << 63)

_NONE, _ALL = np.uint64(0), np.uint64(2**64 - 1)
_GAMMA = np.uint64(0x9E3779B97F4A7C15)


@compiled
def random_word(seed: np.uint64, place: int) -> np.uint64:
    """The word at a place in the stream of a seed."""
    z = seed + np.uint64(place + 1) * _GAMMA
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@compiled
def transpose(words: Words) -> None:
    """Bit j of word i becomes bit i of word j.  [64], in place"""
    width, mask = 32, np.uint64(0xFFFFFFFF)
    while width > 0:
        shift = np.uint64(width)
        for base in range(0, 64, 2 * width):
            for row in range(base, base + width):
                swapped = ((words[row] >> shift) ^ words[row + width]) & mask
                words[row + width] ^= swapped
                words[row] ^= swapped << shift
        width >>= 1
        mask ^= mask << np.uint64(width)


@compiled
def draw_proposals(
    digits: Words, seed: np.uint64, block: int, words: Words, undecided: Words
) -> None:
    """Sixty-four numbers: bit i is digit i, bit 63 a fair sign.

    digits: [P, D], the places of each digit's probability, all ones for a one, all zeros for a
    zero; D < 64; words, undecided: [64]
    """
    places, count = digits.shape
    start = block * (count + 2) * places
    for digit in range(64):
        words[digit] = _NONE
        undecided[digit] = _ALL
    # All digits abreast, then those in which some lane is left, one in sixteen.
    for place in range(ABREAST):
        for digit in range(count):
            word = random_word(seed, start + digit * places + place)
            # A fraction is decided at the first place where it differs: below a one, above a zero.
            words[digit] |= undecided[digit] & digits[place, digit] & (word ^ _ALL)
            undecided[digit] &= digits[place, digit] ^ word ^ _ALL
    for digit in range(count):
        for place in range(ABREAST, places):
            if undecided[digit] == _NONE:
                break
            word = random_word(seed, start + digit * places + place)
            words[digit] |= undecided[digit] & digits[place, digit] & (word ^ _ALL)
            undecided[digit] &= digits[place, digit] ^ word ^ _ALL
    words[63] = random_word(seed, start + count * places)
    transpose(words)


@compiled
def fill_laplace(digits: Words, seed: np.uint64, out: Whole) -> None:
    """Numbers with P(n) ~ q^|n|; the last digit stands for all that is larger, as 2^(D-1)."""
    words, undecided = np.empty(64, dtype=np.uint64), np.empty(64, dtype=np.uint64)
    largest = np.int64(1) << np.int64(digits.shape[1] - 1)
    filled = block = 0
    while filled < out.size:
        draw_proposals(digits, seed, block, words, undecided)
        block += 1
        for lane in range(LANES):
            # Zero is counted once.
            if words[lane] == NEGATIVE_ZERO or filled == out.size:
                continue
            size = min(np.int64(words[lane] & (NEGATIVE_ZERO - np.uint64(1))), largest)
            out[filled] = -size if words[lane] >= NEGATIVE_ZERO else size
            filled += 1


@compiled
def fill_gaussian(
    digits: Words, seed: np.uint64, rate: float, doubt: float, out: Whole, open_: Whole, at: Words
) -> int:
    """Numbers n from ``fill_laplace`` with q = e^-rate, each kept w.p. exp(-(|n| rate - 1)^2 / 2).

    Where the random number is within ``doubt`` of that, the decision is left open: n is kept, its
    index noted in ``open_`` and the random number in ``at``.  -> how many
    """
    words, undecided = np.empty(64, dtype=np.uint64), np.empty(64, dtype=np.uint64)
    places, count = digits.shape
    beyond = np.int64(1) << np.int64(count - 1)
    filled = block = noted = 0
    while filled < out.size:
        draw_proposals(digits, seed, block, words, undecided)
        start = (block * (count + 2) + count + 1) * places
        block += 1
        for lane in range(LANES):
            size = np.int64(words[lane] & (NEGATIVE_ZERO - np.uint64(1)))
            if words[lane] == NEGATIVE_ZERO or filled == out.size or size >= beyond:
                continue
            drawn = random_word(seed, start + lane)
            distance = size * rate - 1.0
            margin = math.exp(-0.5 * distance * distance) - drawn * 2.0**-64
            if margin <= -doubt:
                continue
            if margin < doubt:
                open_[noted], at[noted] = filled, drawn
                noted += 1
            out[filled] = -size if words[lane] >= NEGATIVE_ZERO else size
            filled += 1
    return noted
