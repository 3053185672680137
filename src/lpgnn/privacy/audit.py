"""Does a mechanism keep its budget?  Proofs by enumeration, and refutation by experiment.

A mechanism is epsilon-LDP if and only if, for every output y and every two inputs x1 and x2,
log p(y | x1) - log p(y | x2) <= epsilon.  The corners of [alpha, beta]^d are the worst inputs: a
bit's probability is affine in its feature, and Laplace's loss grows with the L1 distance.

    mechanism = MultiBit(epsilon=1.0, num_features=4)
    worst_log_ratio(partial(bit_outputs, mechanism), corners(mechanism))  # 1.0

A proof is about the probabilities that a mechanism states; what it draws is put to the test of
``lpgnn.privacy.distinguish``, and so is anything that states none.
"""

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch

from lpgnn.archive import Array
from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError, error_line
from lpgnn.privacy.distinguish import Finding, Pair, lower_bound
from lpgnn.privacy.exact import log_probability
from lpgnn.privacy.label_mechanism import ClassMechanism, LabelMechanism
from lpgnn.privacy.laplace import Laplace
from lpgnn.privacy.mechanism import BitMechanism, FeatureMechanism

Input = TypeVar("Input")
Output = TypeVar("Output", bound=Hashable)
Vector = tuple[float, ...]


def worst_log_ratio(
    log_probabilities: Callable[[Input], Mapping[Output, float]], inputs: Iterable[Input]
) -> float:
    """max log p(y | x1) / p(y | x2) over all outputs y and pairs of inputs: the exact epsilon.

    ``log_probabilities`` maps an input to the log-probability of every output it can give; an
    output that only one of two inputs can give makes the ratio infinite.
    """
    tables = [log_probabilities(x) for x in inputs]
    outputs = set().union(*tables)
    return max(
        max(column) - min(column)
        for column in ([table.get(y, -math.inf) for table in tables] for y in outputs)
    )


def corners(mechanism: FeatureMechanism) -> list[Vector]:
    """The 2^d extreme feature vectors."""
    return list(itertools.product((mechanism.alpha, mechanism.beta), repeat=mechanism.num_features))


def bit_outputs(mechanism: BitMechanism, x: Sequence[float]) -> dict[tuple[int, ...], float]:
    """log p(x* | x) of Algorithm 1 for every x* in {-1, 0, 1}^d with m non-zeros."""
    d, m = mechanism.num_features, mechanism.m
    one = mechanism.bit_probability(torch.tensor(x, dtype=torch.float64)).tolist()
    table = {}
    for subset in itertools.combinations(range(d), m):
        for bits in itertools.product((-1, 1), repeat=m):
            output = [0] * d
            log_probability = -math.log(math.comb(d, m))
            for i, bit in zip(subset, bits, strict=True):
                output[i] = bit
                log_probability += math.log(one[i] if bit == 1 else 1 - one[i])
            table[tuple(output)] = log_probability
    return table


def label_outputs(mechanism: ClassMechanism, label: int) -> dict[int, float]:
    """log p(report | label) of a mechanism that reports a class, for every class."""
    row = mechanism.transition()[label].tolist()
    return {k: math.log(p) for k, p in enumerate(row) if p > 0}


def laplace_outputs(mechanism: Laplace, x: Sequence[float]) -> dict[Vector, float]:
    """log p(y | x) of the Laplace mechanism as it is drawn, for reports y at the corners.

    By the triangle inequality the ratio of two inputs is largest at one of them, so no report
    outside the corners is worse; what rounding adds everywhere is in ``Laplace.spent``.
    """
    digits = mechanism.digits()
    same, apart = (float(log_probability(digits, size)) for size in (0, mechanism.steps))
    return {
        y: sum(same if a == b else apart for a, b in zip(y, x, strict=True))
        for y in corners(mechanism)
    }


# Up to so many features the outputs of all corners are enumerated.
_MOST_ENUMERATED = 6
# Rounding of the formulas above, not of any mechanism.
_TOLERANCE = 1e-9
# Stands beside the entries of an input for what is public: a report's scale and offset.
_RECTIFIER = (0.0, 0.0)
# Calls with one node and a companion are slow, and their inputs are easily told apart.
_COMPANION_SHARE = 0.02
# The range of a vector whose entries are almost the same; a power of two is on every float's grid.
_NARROW = 2.0**-7
# Noise of so small a range gives an input away at once.
_NARROW_SHARE = 0.1


@dataclass(frozen=True)
class Audit:
    """A claim and what became of it."""

    name: str
    size: str  # of the input
    claimed: float
    delta: float
    exact: float | None  # by the probabilities that the mechanism states; None: it states none
    finding: Finding = field(repr=False)

    @property
    def refuted(self) -> bool:
        exceeded = self.exact is not None and self.exact > self.claimed * (1 + _TOLERANCE)
        return exceeded or self.finding.epsilon > self.claimed

    @property
    def verdict(self) -> str:
        if self.refuted:
            return "refuted"
        return "not refuted" if self.exact is None else "holds"


def exact_epsilon(mechanism: FeatureMechanism | LabelMechanism) -> float | None:
    """The worst-case privacy loss of a bound mechanism that states its probabilities."""
    if isinstance(mechanism, BitMechanism):
        if mechanism.num_features <= _MOST_ENUMERATED:
            return worst_log_ratio(partial(bit_outputs, mechanism), corners(mechanism))
        return _bits_loss(mechanism)
    if isinstance(mechanism, ClassMechanism):
        return worst_log_ratio(partial(label_outputs, mechanism), range(mechanism.num_classes))
    spent = mechanism.spent()
    return None if spent is None else float(spent)


def _bits_loss(mechanism: BitMechanism) -> float:
    """The loss of m independent bits: that of the m features whose bits lose most."""
    ends = torch.tensor([[mechanism.alpha], [mechanism.beta]], dtype=torch.float64)
    one = mechanism.bit_probability(ends.expand(2, mechanism.num_features))
    spread = torch.stack([one, 1 - one]).log()  # [bit, end, d]
    losses = (spread[:, 1] - spread[:, 0]).abs().amax(0)
    return float(losses.sort(descending=True).values[: mechanism.m].sum())


def audit_features(
    mechanism: FeatureMechanism, *, draws: int, confidence: float, generator: torch.Generator
) -> Audit:
    """Put a bound feature mechanism to the test."""
    alpha, beta, d = mechanism.alpha, mechanism.beta, mechanism.num_features
    draw = partial(_draw_features, mechanism, generator=generator)
    pairs = [
        replace(pair, first=(*pair.first, *_RECTIFIER), second=(*pair.second, *_RECTIFIER))
        for pair in _vector_pairs(d, alpha, beta, draw)
    ]
    companion = ((alpha + beta) / 2,) * d
    low, high = (alpha,) * d, (beta,) * d
    pairs.append(
        Pair(
            "all low or all high, beside another node",
            (*low, *_RECTIFIER, *companion, *_RECTIFIER),
            (*high, *_RECTIFIER, *companion, *_RECTIFIER),
            partial(_draw_beside, mechanism, low, companion, generator=generator),
            partial(_draw_beside, mechanism, high, companion, generator=generator),
            share=_COMPANION_SHARE,
        )
    )
    delta = float(getattr(mechanism, "delta", 0.0))
    finding = lower_bound(pairs, draws=draws, confidence=confidence, delta=delta)
    size = f"{d} features in [{alpha:g}, {beta:g}]"
    exact = exact_epsilon(mechanism)
    return Audit(mechanism.name, size, mechanism.epsilon, delta, exact, finding)


def audit_labels(
    mechanism: LabelMechanism, *, draws: int, confidence: float, generator: torch.Generator
) -> Audit:
    """Put a bound label mechanism to the test."""

    def draw(label: int, n: int) -> Array:
        reports = mechanism.perturb(torch.full((n,), label), generator=generator)
        return _rows(reports.double().numpy(), n)

    one_hot = not isinstance(mechanism, ClassMechanism)  # a report may have an entry for each class
    pairs = _class_pairs(mechanism.num_classes, draw, one_hot=one_hot)
    finding = lower_bound(pairs, draws=draws, confidence=confidence)
    size, exact = f"{mechanism.num_classes} classes", exact_epsilon(mechanism)
    return Audit(mechanism.name, size, mechanism.epsilon, 0.0, exact, finding)


def audit_callable(
    name: str,
    function: Callable[[Any], Any],
    *,
    epsilon: float,
    delta: float = 0.0,
    num_features: int = 0,
    num_classes: int = 0,
    alpha: float = 0.0,
    beta: float = 1.0,
    draws: int,
    confidence: float,
) -> Audit:
    """Put any function to the test that turns one input into one random output.

    The input is a list of ``num_features`` numbers, or with ``num_classes`` a class.  The output is
    a number, a list of as many numbers each time, or anything with a repr.
    """
    codes: dict[str, float] = {}
    widths: set[int] = set()

    def draw(x: Any, n: int) -> Array:
        try:
            outputs = [function(x) for _ in range(n)]
        except Exception as error:  # of somebody else's function
            reason = error_line(error)
            raise InputError("callable", name, f"fails on {x} ({reason})") from None
        rows = _encoded(outputs, codes)
        widths.add(rows.shape[1])
        if len(widths) > 1:
            raise InputError("callable", name, "must return as many numbers for every input")
        return rows

    if num_classes:
        pairs, size = _class_pairs(num_classes, draw), f"{num_classes} classes"
    else:
        pairs = _vector_pairs(num_features, alpha, beta, lambda x, n: draw(list(x), n))
        size = f"{num_features} features in [{alpha:g}, {beta:g}]"
    finding = lower_bound(pairs, draws=draws, confidence=confidence, delta=delta)
    return Audit(name, size, epsilon, delta, None, finding)


def _vector_pairs(
    d: int, alpha: float, beta: float, draw: Callable[[Vector, int], Array]
) -> list[Pair]:
    """Inputs as far apart as can be, in all entries or in one, and pairs that are closer.

    A mechanism may look at the input for the size of its noise: where the entries of a vector have
    a range of their own, it is all that there is, or next to nothing.
    """
    low, high, middle = (alpha,) * d, (beta,) * d, ((alpha + beta) / 2,) * d
    zigzag = tuple(beta if i % 2 else alpha for i in range(d))
    gazgiz = tuple(alpha if i % 2 else beta for i in range(d))
    named = {
        "all low or all high": (low, high),
        "all in the middle or all high": (middle, high),
    }
    narrow = {}
    if d > 1:
        little = _NARROW * (beta - alpha)
        named |= {
            "low or high in one entry": (low, (beta, *low[1:])),
            "in turn low and high, or the reverse": (zigzag, gazgiz),
        }
        narrow = {
            "all in the middle, or one entry a little off": (
                middle,
                (middle[0] + little, *middle[1:]),
            ),
            "all low or all high, but one entry a little off": (
                (alpha + little, *low[1:]),
                (beta - little, *high[1:]),
            ),
        }
    return [
        Pair(name, a, b, partial(_of, draw, a), partial(_of, draw, b), share=share)
        for group, share in ((named, 1.0), (narrow, _NARROW_SHARE))
        for name, (a, b) in group.items()
    ]


def _class_pairs(c: int, draw: Callable[[int, int], Array], *, one_hot: bool = False) -> list[Pair]:
    """All pairs of few classes, or each with the first one; as numbers or as one-hot vectors."""
    pairs = itertools.combinations(range(c), 2) if c <= 4 else ((0, k) for k in range(1, c))

    def vector(label: int) -> Vector:
        return tuple(float(k == label) for k in range(c)) if one_hot else (float(label),)

    return [
        Pair(
            f"class {a} or class {b}",
            *(vector(a), vector(b)),
            *(partial(_of, draw, a), partial(_of, draw, b)),
        )
        for a, b in pairs
    ]


def _of(draw: Callable[[Any, int], Array], x: Any, n: int) -> Array:
    return draw(x, n)


def _draw_features(
    mechanism: FeatureMechanism, x: Vector, n: int, *, generator: torch.Generator
) -> Array:
    """Reports of n nodes that all have the features x."""
    return _sent(mechanism, [x], n, generator=generator)


def _draw_beside(
    mechanism: FeatureMechanism, x: Vector, companion: Vector, n: int, *, generator: torch.Generator
) -> Array:
    """n times the reports of a node with the features x and of another node, both at once."""
    drawn = [_sent(mechanism, [x, companion], 2, generator=generator) for _ in range(n)]
    return np.stack(drawn).reshape(n, -1)


def _sent(
    mechanism: FeatureMechanism, rows: Sequence[Vector], n: int, *, generator: torch.Generator
) -> Array:
    """The reports of n nodes, and the rectifier, which may have been taken from the features.

    -> [n, d + 2]
    """
    x = torch.tensor(rows, dtype=torch.float32).repeat(n // len(rows), 1)
    reports = mechanism.perturb(CsrMatrix.from_dense(x), generator=generator)
    sent = reports.sent
    dense = sent.to_dense() if isinstance(sent, CsrMatrix) else sent
    rectifier = np.tile([reports.scale, reports.offset], (n, 1))
    return np.hstack([_rows(dense.double().numpy(), n), rectifier])


def _rows(values: Array, n: int) -> Array:
    """One output in each row; there is one zero."""
    found: Array = values.astype(np.float64).reshape(n, -1) + 0.0
    return found


def _encoded(outputs: Sequence[Any], codes: dict[str, float]) -> Array:
    """Outputs as rows of numbers; what is not made of numbers gets a code of its own."""
    try:
        values = np.asarray(outputs, dtype=np.float64)
        if not codes:
            return _rows(values, len(outputs))
    except (TypeError, ValueError):
        pass
    names = [repr(output) for output in outputs]
    return np.array([[codes.setdefault(name, float(len(codes)))] for name in names])
