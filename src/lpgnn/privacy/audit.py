"""Proofs by enumeration: the exact worst-case privacy loss of the mechanisms, for small inputs.

A mechanism is epsilon-LDP if and only if, for every output y and every two inputs x1 and x2,
log p(y | x1) - log p(y | x2) <= epsilon.  The corners of [alpha, beta]^d are the worst inputs: a
bit's probability is affine in its feature, and Laplace's loss grows with the L1 distance.

    mechanism = MultiBit(epsilon=1.0, num_features=4)
    worst_log_ratio(partial(bit_outputs, mechanism), corners(mechanism))  # 1.0
"""

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

import torch

from lpgnn.privacy.exact import log_probability
from lpgnn.privacy.label_mechanism import ClassMechanism
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
