"""Probabilities as binary fractions, from arithmetic with two hundred decimal digits.

What a sampler draws by comparing random integers with these is known exactly, rounding included.
"""

import functools
import math
from collections.abc import Sequence
from decimal import Context, Decimal, localcontext
from fractions import Fraction

PLACES = 512  # of a digit's probability, in binary
FLOAT_PLACES = 53  # of torch.rand in float64; randint has 32 or more

_PRECISION = Context(prec=220)
_WHOLE = 1 << PLACES


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def geometric_digits(rate: Fraction, count: int) -> list[int]:
    """The probabilities of the binary digits of a number with P(n) ~ e^(-rate n), times 2^512.

    1 / (1 + e^(rate 2^i)) for i below count, and at the end e^(-rate 2^count): that the number has
    more digits.
    """
    with localcontext(_PRECISION):
        powers = [(_decimal(rate) * 2**i).exp() for i in range(count + 1)]
        chances = [1 / (1 + power) for power in powers[:-1]] + [1 / powers[-1]]
        return [int((chance * _WHOLE).to_integral_value()) for chance in chances]


def log_weight(digits: Sequence[int], size: int) -> Decimal:
    """ln P(n) / P(0) of numbers drawn by these digits; size = 2^count: of all larger ones."""
    with localcontext(_PRECISION):
        own = digits[:-1]
        if size == 1 << len(own):
            return (Decimal(digits[-1]) / _WHOLE / _chance_of_zero(digits)).ln()
        chosen = [digit for i, digit in enumerate(own) if size >> i & 1]
        return sum((_log_odds(digit) for digit in chosen), Decimal(0))


def log_probability(digits: Sequence[int], size: int) -> Decimal:
    """ln P(n) = ln P(-n) of the two-sided number: a fair sign, and minus zero drawn again."""
    with localcontext(_PRECISION):
        zero = _chance_of_zero(digits)
        return log_weight(digits, size) + (zero / (2 - zero)).ln()


def _chance_of_zero(digits: Sequence[int]) -> Decimal:
    zero = Decimal(1)
    for digit in digits:
        zero = zero * (_WHOLE - digit) / _WHOLE
    return zero


def _log_odds(digit: int) -> Decimal:
    return (Decimal(digit) / Decimal(_WHOLE - digit)).ln()


def rounding_loss(digits: Sequence[int], rate: Fraction) -> Decimal:
    """A bound D on |ln P(n) / P(0) + rate n| over all n, and likewise for all larger ones.

    Digits are independent, so their errors add up.
    """
    with localcontext(_PRECISION):
        own = digits[:-1]
        ideal = _decimal(rate)
        errors = [abs(_log_odds(digit) + ideal * 2**i) for i, digit in enumerate(own)]
        # P(all larger) / P(0) = e^(-rate 2^count) / (1 - e^-rate)
        last = -ideal * (1 << len(own)) - (1 - (-ideal).exp()).ln()
        return max(sum(errors, Decimal(0)), abs(log_weight(digits, 1 << len(own)) - last))


def gaussian_acceptance(size: int, deviation: Fraction) -> int:
    """What turns two-sided geometric numbers into a rounded normal one, times 2^512.

    Of rate 1/s, s the standard deviation, kept w.p. exp(-(n/s - 1)^2 / 2) m(n) / (1 + 2^-28) with
    m(n) = int_(-1/2)^(1/2) exp(-(2 n u + u^2) / 2 s^2) du, the mass of n's cell over its density.
    m(n) <= cosh(n / 2 s^2) < 1 + 2^-28 for n < 128 s and s >= 2^20.
    """
    with localcontext(_PRECISION):
        s = _decimal(deviation)
        density = (-((size / s - 1) ** 2) / 2).exp()
        return int(density * cell_mass(size, s) / (1 + Decimal(2) ** -28) * _WHOLE)


def cell_mass(size: int, s: Decimal) -> Decimal:
    """m(n) of ``gaussian_acceptance``: cosh(n u / s^2) e^(-u^2 / 2 s^2) as a power series in u."""
    total, slope, curve = Decimal(0), [Decimal(1)], [Decimal(1)]
    while True:
        order = len(slope) - 1
        # All terms with u^(2 order), whose integral is 2^(-2 order) / (2 order + 1)
        term = sum((a * b for a, b in zip(slope, reversed(curve), strict=True)), Decimal(0))
        total += term / ((2 * order + 1) << 2 * order)
        if order > 0 and abs(term) < Decimal(10) ** -200:
            return total
        slope.append(slope[-1] * (size / s**2) ** 2 / ((2 * order + 1) * (2 * order + 2)))
        curve.append(curve[-1] / (-2 * s**2 * (order + 1)))


def share(epsilon: float, count: int) -> float:
    """The greatest float z with count z <= epsilon: what each of so many draws may spend.

    epsilon / count may be rounded up, and then all of them together would spend more than epsilon.
    """
    z = epsilon / count
    return z if Fraction(z) * count <= Fraction(epsilon) else math.nextafter(z, 0)


@functools.lru_cache(maxsize=256)
def least_probability(epsilon: float) -> float:
    """The least p, of 53 binary places, of a bit that is one w.p. p or 1 - p: (1 - p)/p <= e^eps.

    p = ceil(2^53 / (1 + e^eps)) / 2^53, at most 1/2
    """
    if epsilon > 50:  # 2^53 < e^37
        return math.ldexp(1, -FLOAT_PLACES)
    with localcontext(_PRECISION):
        places = (2**FLOAT_PLACES / (1 + Decimal(epsilon).exp())).to_integral_value("ROUND_CEILING")
        return math.ldexp(int(places), -FLOAT_PLACES)


def least_label_epsilon(others: int) -> float:
    """The least budget at which one of so many other labels can be drawn from a 32-bit number.

    Modulo their number some are drawn once more than the rest, which is a ratio of its own:
    ln((n + 1) / n) with n = floor(2^32 / others), and 0 where all are alike.
    """
    rest = 2**32 % others
    return math.log1p(others / (2**32 - rest)) * (1 + 2**-50) if rest else 0.0


@functools.lru_cache(maxsize=256)
def greatest_probability(epsilon: float, odds: Fraction) -> float:
    """The greatest p, of 53 binary places and below one, with p / (1 - p) <= e^eps odds."""
    with localcontext(_PRECISION):
        bound = _decimal(odds) * Decimal(min(epsilon, 1e6)).exp()
        places = int(2**FLOAT_PLACES * bound / (1 + bound))
        return math.ldexp(min(places, 2**FLOAT_PLACES - 1), -FLOAT_PLACES)


def log_odds(p: float, odds: Fraction = Fraction(1)) -> Decimal:
    """ln p / ((1 - p) odds): the inverse of ``greatest_probability``."""
    own = Fraction(p)
    with localcontext(_PRECISION):
        return _decimal(own / (1 - own) / odds).ln()


def greatest_keep_probability(epsilon: float, others: int) -> float:
    """The greatest p, of 53 binary places, with p / r <= e^eps, r the least chance of another.

    One of the others is drawn as a 32-bit number modulo their number: r = (1 - p) f with
    f = floor(2^32 / others) / 2^32.
    """
    if math.isinf(epsilon):
        return 1.0
    return greatest_probability(epsilon, Fraction(2**32 // others, 2**32))
