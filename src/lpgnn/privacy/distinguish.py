"""Refuting a privacy claim by experiment: a statistical lower bound on epsilon.

If a mechanism is (eps, delta)-private, then P(M(x1) in S) <= e^eps P(M(x2) in S) + delta for every
event S.  So any event that is seen often under x1 and seldom under x2 bounds eps from below:

    eps >= log((p - delta) / q),   p a lower bound on P(M(x1) in S), q an upper one on P(M(x2) in S)

Half of the draws choose the inputs and the event, the other half, drawn afterwards, give Clopper
and Pearson's exact bounds for it.  Whatever was chosen, the bound holds with the stated confidence.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from lpgnn.archive import Array
from lpgnn.errors import InputError

Vector = tuple[float, ...]
# n outputs of one input, one in each row; a missing number is NaN.
Draw = Callable[[int], Array]  # n -> [n, k] float64

_MOST_OUTPUTS = 5_000  # distinct ones; beyond, outputs count as continuous
_THRESHOLDS = 400
_FEWEST_DRAWS = 1_000  # of a slow pair, to choose and again to test


@dataclass(frozen=True)
class Pair:
    """Two inputs that a mechanism should make hard to tell apart, and how to draw under each."""

    name: str
    first: Vector
    second: Vector
    draw_first: Draw
    draw_second: Draw
    share: float = 1.0  # of the draws: a pair that is slow to draw gets by with fewer


@dataclass(frozen=True)
class Finding:
    """What the experiment proves about epsilon, and how it looks."""

    epsilon: float  # a lower bound; 0 proves nothing
    confidence: float
    draws: int  # in all
    pair: str
    event: str
    seen_first: float  # share of the held-out outputs in the event
    seen_second: float
    scores_first: Array  # of held-out outputs, by the statistic that was chosen
    scores_second: Array
    statistic: str
    bounds: tuple[float, float]  # of the event, in scores


@dataclass(frozen=True)
class _Event:
    """All outputs whose score lies in [low, high], likelier under one of the two inputs."""

    statistic: str
    low: float
    high: float
    swapped: bool  # likelier under the second input
    bound: float


def lower_bound(
    pairs: Sequence[Pair], *, draws: int, confidence: float, delta: float = 0.0
) -> Finding:
    """The best lower bound on epsilon over the pairs, at one confidence for all of them.

    draws: per input, for choosing and testing together
    """
    if draws < 200:
        raise InputError("draws", draws, "must be a whole number >= 200")
    if not 0 < confidence < 1:
        raise InputError("confidence", confidence, "must lie strictly between 0 and 1")
    chosen: tuple[_Event, Pair, dict[str, _Statistic]] | None = None
    total = 0
    for pair in pairs:
        n = _half(draws, pair)
        first, second = pair.draw_first(n), pair.draw_second(n)
        total += 2 * n
        # A table of ratios and an event that exceeds some of them must not come from one sample.
        statistics = _statistics(first[::2], second[::2], pair)
        for name, statistic in statistics.items():
            scores = statistic(first[1::2]), statistic(second[1::2])
            event = _best_event(name, *scores, confidence, delta)
            if chosen is None or event.bound > chosen[0].bound:
                chosen = event, pair, statistics
    assert chosen is not None
    event, pair, statistics = chosen
    n = _half(draws, pair)
    statistic = statistics[event.statistic]
    scores = (statistic(pair.draw_first(n)), statistic(pair.draw_second(n)))
    counts = [int(((s >= event.low) & (s <= event.high)).sum()) for s in scores]
    often, seldom = reversed(counts) if event.swapped else counts
    epsilon = float(_bound(np.array(often), np.array(seldom), n, confidence, delta))
    return Finding(
        epsilon=max(0.0, epsilon),
        confidence=confidence,
        draws=total + 2 * n,
        pair=pair.name,
        event=f"{event.statistic} in [{event.low:.4g}, {event.high:.4g}]",
        seen_first=counts[0] / n,
        seen_second=counts[1] / n,
        scores_first=scores[0],
        scores_second=scores[1],
        statistic=event.statistic,
        bounds=(event.low, event.high),
    )


def _half(draws: int, pair: Pair) -> int:
    return max(min(draws // 2, _FEWEST_DRAWS), round(draws * pair.share / 2))


def _bound(often: Array, seldom: Array, n: int, confidence: float, delta: float) -> Array:
    """log((p - delta) / q) with one-sided Clopper-Pearson bounds, each of half the error.

    often, seldom: counts out of n under the two inputs
    """
    from scipy.special import betaincinv

    error = (1 - confidence) / 2
    p = np.where(often > 0, betaincinv(np.maximum(often, 1), n - often + 1, error), 0.0)
    q = np.where(seldom < n, betaincinv(seldom + 1, np.maximum(n - seldom, 1), 1 - error), 1.0)
    found: Array = np.log(np.maximum(p - delta, 1e-300) / q)
    return found


def _promise(often: Array, seldom: Array, n: int, confidence: float, delta: float) -> Array:
    """``_bound`` by Wilson's intervals: close to it, and fast enough to compare many events."""
    from scipy.special import ndtri

    z = float(ndtri(1 - (1 - confidence) / 2))

    def interval(count: Array, sign: int) -> Array:
        spread = z * np.sqrt(count * (n - count) / n + z**2 / 4)
        found: Array = (count + z**2 / 2 + sign * spread) / (n + z**2)
        return found

    p, q = interval(often, -1), interval(seldom, 1)
    found: Array = np.log(np.maximum(p - delta, 1e-300) / q)
    return found


_Statistic = Callable[[Array], Array]  # [n, k] -> [n]


def _statistics(first: Array, second: Array, pair: Pair) -> dict[str, _Statistic]:
    """Ways to sum up an output in one number, by which the two inputs may differ."""
    found: dict[str, _Statistic] = {}
    distinct = len(np.unique(_keys(np.concatenate([first, second]))))
    if distinct <= _MOST_OUTPUTS:
        found["log ratio of the output"] = _table(first, second)
    k = first.shape[1]
    a, b = np.array(pair.first), np.array(pair.second)
    if k == len(a):
        low, high, sign = np.minimum(a, b), np.maximum(a, b), np.sign(b - a)

        def projection(y: Array) -> Array:
            return _sum((b - a) * y)

        def clipped(y: Array) -> Array:  # the log ratio of Laplace noise
            return _sum(sign * np.clip(y, low, high))

        found |= {"projection": projection, "clipped projection": clipped}
    if distinct > _MOST_OUTPUTS:
        found["sum"] = _sum
        found["largest magnitude"] = lambda y: np.abs(np.nan_to_num(y)).max(1)
        found["lowest binary place"] = _lowest_place
        for column in range(min(k, 16)):
            found[f"entry {column}"] = partial(_entry, column)
    return found


def _entry(column: int, y: Array) -> Array:
    found: Array = np.nan_to_num(y[:, column])
    return found


def _sum(y: Array) -> Array:
    found: Array = np.nan_to_num(y, posinf=1e300, neginf=-1e300).sum(1)
    return found


def _lowest_place(y: Array) -> Array:
    """The exponent of the lowest bit that is set in any entry: the grid an output lies on.

    Noise drawn in floating point and added to x lies on a grid that depends on x (Mironov 2012).
    """
    fraction, exponent = np.frexp(np.nan_to_num(y, posinf=0.0, neginf=0.0))
    whole = (fraction * 2.0**53).astype(np.int64)
    lowest = (whole & -whole).astype(np.float64)
    places = np.where(whole == 0, 2000.0, exponent - 53 + np.log2(np.maximum(lowest, 1)))
    found: Array = places.min(1)
    return found


def _table(first: Array, second: Array) -> _Statistic:
    """The log ratio of every distinct output, as far as it was seen; 0 for others."""
    keys, inverse = np.unique(_keys(np.concatenate([first, second])), return_inverse=True)
    counts = [np.bincount(part, minlength=len(keys)) for part in np.split(inverse, [len(first)])]
    ratios = np.log((counts[0] + 0.5) / (counts[1] + 0.5))

    def score(y: Array) -> Array:
        wanted = _keys(y)
        at = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
        found: Array = np.where(keys[at] == wanted, ratios[at], 0.0)
        return found

    return score


def _keys(y: Array) -> Array:
    """A number for every row; should two rows share one, the bound is weaker, not wrong."""
    bits = np.ascontiguousarray(y).view(np.uint64)
    factors = np.random.default_rng(0).integers(1, 2**63, y.shape[1], dtype=np.uint64) * 2 + 1
    mixed = (bits ^ (bits >> np.uint64(29))) * factors
    found: Array = (mixed ^ (mixed >> np.uint64(32))).sum(1)
    return found


def _best_event(name: str, first: Array, second: Array, confidence: float, delta: float) -> _Event:
    """The threshold on a score, from either side, that promises the best bound."""
    pooled = np.unique(np.concatenate([first, second]))
    if len(pooled) > _THRESHOLDS:
        # Evenly spaced ranks, and the tails in full: rare outputs tell most.
        ranks = np.linspace(0, len(pooled) - 1, _THRESHOLDS).astype(int)
        tails = np.geomspace(1, len(pooled) - 1, _THRESHOLDS // 4).astype(int)
        pooled = pooled[np.unique(np.concatenate([ranks, tails, len(pooled) - 1 - tails]))]
    n, a, b = len(first), np.sort(first), np.sort(second)
    best = _Event(name, -math.inf, math.inf, False, 0.0)
    below = [np.searchsorted(s, pooled, side="right") for s in (a, b)]  # score <= threshold
    above = [n - np.searchsorted(s, pooled, side="left") for s in (a, b)]  # score >= threshold
    for counts, side in ((below, "below"), (above, "above")):
        for swapped in (False, True):
            often, seldom = (counts[1], counts[0]) if swapped else (counts[0], counts[1])
            bounds = _promise(often, seldom, n, confidence, delta)
            at = int(bounds.argmax())
            if bounds[at] > best.bound:
                edge = float(pooled[at])
                low, high = (-math.inf, edge) if side == "below" else (edge, math.inf)
                best = _Event(name, low, high, swapped, float(bounds[at]))
    return best
