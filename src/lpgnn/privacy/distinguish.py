"""Refuting a privacy claim by experiment: a statistical lower bound on epsilon.

If a mechanism is (eps, delta)-private, then P(M(x1) in S) <= e^eps P(M(x2) in S) + delta for every
event S.  So any event that is seen often under x1 and seldom under x2 bounds eps from below:

    eps >= log((p - delta) / q),   p a lower bound on P(M(x1) in S), q an upper one on P(M(x2) in S)

Some outputs choose the inputs and the events, twice as many, drawn afterwards, give Clopper and
Pearson's exact bounds for them.  The safest event is one for which the first outputs prove most;
as a rule it is a common one.  The bold ones would prove most if they came as often among the second
outputs, and may be rare: a value that is sent as it is once in a thousand times.  All events share
the error equally, so that the best bound holds with the stated confidence.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from lpgnn.archive import Array
from lpgnn.errors import InputError

Vector = tuple[float, ...]
# n outputs of one input, one in each row; a missing number is NaN.
Draw = Callable[[int], Array]  # n -> [n, k] float64

_MOST_OUTPUTS = 5_000  # distinct ones; beyond, outputs count as continuous
_THRESHOLDS = 400
_FEWEST_DRAWS = 1_000  # of a slow pair, to choose
_BOLD_CHOICES = 4  # events that are tested beside the safest one
_FEWEST_REPEATS = 3  # of a value that does not come again by chance
_NEIGHBOURS = 20  # values of both inputs that a local ratio is about
_MOST_ENTRIES = 16  # that are looked at one by one


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
    tested: int  # of each input, in the test of the event
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
    promise: float


_Statistic = Callable[[Array], Array]  # [n, k] -> [n]


@dataclass(frozen=True)
class _Candidate:
    """An event that was chosen, to be tested on other outputs than it was chosen by."""

    event: _Event
    pair: Pair
    statistic: _Statistic

    def test(self, first: Array, second: Array, confidence: float, delta: float) -> Finding:
        event, n = self.event, len(first)
        scores = self.statistic(first), self.statistic(second)
        counts = [int(((s >= event.low) & (s <= event.high)).sum()) for s in scores]
        often, seldom = reversed(counts) if event.swapped else counts
        epsilon = float(_bound(np.array(often), np.array(seldom), n, confidence, delta))
        return Finding(
            epsilon=max(0.0, epsilon),
            confidence=confidence,
            draws=2 * n,
            tested=n,
            pair=self.pair.name,
            event=f"{event.statistic} in [{event.low:.4g}, {event.high:.4g}]",
            seen_first=counts[0] / n,
            seen_second=counts[1] / n,
            scores_first=scores[0],
            scores_second=scores[1],
            statistic=event.statistic,
            bounds=(event.low, event.high),
        )


def lower_bound(
    pairs: Sequence[Pair], *, draws: int, confidence: float, delta: float = 0.0
) -> Finding:
    """The best lower bound on epsilon over the pairs, at one confidence for all of them.

    draws: of each of two inputs, to test events with; half as many choose them
    """
    if draws < 200:
        raise InputError("draws", draws, "must be a whole number >= 200")
    if not 0 < confidence < 1:
        raise InputError("confidence", confidence, "must lie strictly between 0 and 1")
    each = _confidence_of_each(confidence)
    safest: _Candidate | None = None
    boldest: list[_Candidate] = []  # of one pair
    total = 0
    for pair in pairs:
        n, tested = _sizes(draws, pair)
        first, second = pair.draw_first(n), pair.draw_second(n)
        total += 2 * n
        # A table of ratios and an event that exceeds some of them must not come from one sample.
        statistics = _statistics(first[::2], second[::2], pair)
        own = []
        for name, statistic in statistics.items():
            scores = statistic(first[1::2]), statistic(second[1::2])
            safe, bold = _best_events(name, *scores, tested, each, delta)
            if safest is None or safe.promise > safest.event.promise:
                safest = _Candidate(safe, pair, statistic)
            own.append(_Candidate(bold, pair, statistic))
        own.sort(key=lambda candidate: -candidate.event.promise)
        if not boldest or own[0].event.promise > boldest[0].event.promise:
            boldest = own[:_BOLD_CHOICES]
    assert safest is not None
    findings = []
    for pair in dict.fromkeys((safest.pair, boldest[0].pair)):
        n = _sizes(draws, pair)[1]
        outputs = pair.draw_first(n), pair.draw_second(n)
        total += 2 * n
        chosen = [candidate for candidate in (safest, *boldest) if candidate.pair is pair]
        findings += [candidate.test(*outputs, each, delta) for candidate in chosen]
    best = max(findings, key=lambda finding: finding.epsilon)
    return replace(best, confidence=confidence, draws=total)


def _confidence_of_each(confidence: float) -> float:
    """That of one event of several: their errors add up to no more than the stated one."""
    return 1 - (1 - confidence) / (1 + _BOLD_CHOICES)


def least_leak(epsilon: float, *, draws: int, confidence: float, delta: float = 0.0) -> float:
    """The probability from which on an event that one input never leads to refutes a claim.

    As likely as not: it is then seen so often that the bound exceeds epsilon.  1: never.
    """
    counts = np.unique(np.geomspace(1, draws, 2_000).astype(int))
    each = _confidence_of_each(confidence)
    enough = _bound(counts, np.zeros_like(counts), draws, each, delta) > epsilon
    return float(counts[enough.argmax()]) / draws if enough.any() else 1.0


def _sizes(draws: int, pair: Pair) -> tuple[int, int]:
    """How many outputs of each input choose an event, and how many test it."""
    tested = max(min(draws, 2 * _FEWEST_DRAWS), round(draws * pair.share))
    return tested // 2, tested


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

    # An event that is not seen at all is where the two differ most, and where rare leaks show.
    never = 1 - ((1 - confidence) / 2) ** (1 / n)
    p, q = interval(often, -1), np.where(seldom == 0, never, interval(seldom, 1))
    found: Array = np.log(np.maximum(p - delta, 1e-300) / q)
    return found


def _statistics(first: Array, second: Array, pair: Pair) -> dict[str, _Statistic]:
    """Ways to sum up an output in one number, by which the two inputs may differ."""
    found: dict[str, _Statistic] = {}
    pooled = np.concatenate([first, second])
    distinct = len(np.unique(_keys(pooled)))
    discrete = distinct <= _MOST_OUTPUTS
    if (table := _table(first, second, fewest=1 if discrete else _FEWEST_REPEATS)) is not None:
        found["log ratio of the output" if discrete else "log ratio of a repeated output"] = table
    varying = np.flatnonzero((pooled != pooled[0]).any(0))
    a, b = np.array(pair.first), np.array(pair.second)
    if first.shape[1] == len(a):
        low, high, sign = np.minimum(a, b), np.maximum(a, b), np.sign(b - a)

        def projection(y: Array) -> Array:
            return _sum((b - a) * y)

        def clipped(y: Array) -> Array:  # the log ratio of Laplace noise
            return _sum(sign * np.clip(y, low, high))

        found |= {"projection": projection, "clipped projection": clipped}
        if not discrete:
            found["distance from the first input"] = partial(_distance, varying, a)
            found["distance from the second input"] = partial(_distance, varying, b)
    if not discrete:
        found["sum"] = _sum
        found["largest magnitude"] = lambda y: np.abs(np.nan_to_num(y)).max(1)
        found["lowest binary place"] = _lowest_place
        for column in varying[:_MOST_ENTRIES].tolist():
            own = first[:, [column]], second[:, [column]]
            found[f"entry {column}"] = partial(_entry, column)
            found[f"local log ratio of entry {column}"] = _local_ratio(column, first, second)
            if (values := _table(*own, fewest=_FEWEST_REPEATS)) is not None:
                found[f"log ratio of a repeated entry {column}"] = partial(_of, values, column)
    return found


def _of(table: _Statistic, column: int, y: Array) -> Array:
    return table(y[:, [column]])


def _distance(columns: Array, x: Array, y: Array) -> Array:
    """The largest distance of an entry from the input's, over those that are not constant."""
    found: Array = np.abs(np.nan_to_num(y[:, columns]) - x[columns]).max(1)
    return found


def _local_ratio(column: int, first: Array, second: Array) -> _Statistic:
    """The log ratio of how many values lie between neighbours: a cluster under one input shows."""
    own, other = np.sort(_entry(column, first)), np.sort(_entry(column, second))
    edges = np.unique(np.sort(np.concatenate([own, other]))[::_NEIGHBOURS])
    counts = [np.diff(np.searchsorted(part, edges), append=len(part)) for part in (own, other)]
    ratios = np.log((counts[0] + 0.5) / (counts[1] + 0.5))

    def score(y: Array) -> Array:
        at = np.searchsorted(edges, _entry(column, y), side="right") - 1
        found: Array = ratios[at.clip(min=0)]
        return found

    return score


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


def _table(first: Array, second: Array, *, fewest: int) -> _Statistic | None:
    """The log ratio of every output that was seen at least so often; 0 for others.

    None: there is no such output.
    """
    keys, inverse = np.unique(_keys(np.concatenate([first, second])), return_inverse=True)
    counts = [np.bincount(part, minlength=len(keys)) for part in np.split(inverse, [len(first)])]
    kept = counts[0] + counts[1] >= fewest
    if not kept.any():
        return None
    keys, ratios = keys[kept], np.log((counts[0][kept] + 0.5) / (counts[1][kept] + 0.5))

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


def _best_events(
    name: str, first: Array, second: Array, n: int, confidence: float, delta: float
) -> tuple[_Event, _Event]:
    """The thresholds on a score, from either side, that promise the best bounds.

    By the counts as they are, and by what they would be among n outputs of each input.
    """
    pooled = np.unique(np.concatenate([first, second]))
    if len(pooled) > _THRESHOLDS:
        # Evenly spaced ranks, and the tails in full: rare outputs tell most.
        ranks = np.linspace(0, len(pooled) - 1, _THRESHOLDS).astype(int)
        tails = np.geomspace(1, len(pooled) - 1, _THRESHOLDS // 4).astype(int)
        pooled = pooled[np.unique(np.concatenate([ranks, tails, len(pooled) - 1 - tails]))]
    seen, a, b = len(first), np.sort(first), np.sort(second)
    below = [np.searchsorted(s, pooled, side="right") for s in (a, b)]  # score <= threshold
    above = [seen - np.searchsorted(s, pooled, side="left") for s in (a, b)]  # score >= threshold
    often = np.stack([*below, *above])  # [4, thresholds]
    seldom = np.stack([*reversed(below), *reversed(above)])

    def best(growth: float) -> _Event:
        size = round(seen * growth)
        promises = _promise(often * growth, seldom * growth, size, confidence, delta)
        row, at = np.unravel_index(promises.argmax(), promises.shape)
        edge = float(pooled[at])
        low, high = (-math.inf, edge) if row < len(below) else (edge, math.inf)
        return _Event(name, low, high, bool(row % 2), float(promises[row, at]))

    return best(1.0), best(n / seen)
