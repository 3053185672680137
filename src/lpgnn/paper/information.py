"""Why reports that hold nothing do as well as private features: in sentences, from measurements."""

from collections.abc import Iterable, Sequence

from lpgnn.paper.statistics import DATASETS
from lpgnn.paper.wording import Family
from lpgnn.report.information import Information
from lpgnn.report.notation import canonical

WHY = "Why blank reports do as well"


def why_blank(found: Sequence[Information]) -> list[str]:
    """A paragraph on how few reported bits depend on the features; empty without measurements."""
    measured = [one for one in found if one.mechanism == "mb"]
    if not measured:
        return []
    return [
        "A node reports m of its d features as one bit each. With the same random numbers the bit "
        "of a feature x in [0, 1] differs from that of an empty one with probability "
        "x tanh(ε_x/2m), so that of N m bits only N m x̄ tanh(ε_x/2m), x̄ being the mean feature "
        f"value, depend on the features at all: {_listed(_bits(measured, 0.01))} at ε_x=0.01, "
        f"{_listed(_bits(measured, 1.0))} at ε_x=1 (expected; in brackets the mean count of "
        f"{measured[0].repeats} draws).",
        *_unchanged(measured),
        "One report tells of its node's class S = |class-mean distance|² 4 m tanh²(ε_x/2m)/d, a "
        f"squared distance in standard deviations: {_listed(_signals(measured, 8.0))} at ε_x=8.",
    ]


def few_bits(found: Sequence[Information], over_blank: Family) -> str:
    """The paragraph in a few words, at ε_x=1 on the paper's graphs; empty without measurements.

    over_blank: MB minus blank in the paper's own tables; what it shows is what is explained.
    """
    at_one = (one for one in found if one.mechanism == "mb" and one.x_eps == 1.0)
    measured = [one for one in at_one if one.dataset in DATASETS]
    if not measured:
        return ""
    above, _ = over_blank.kept
    verdict = "Why blank reports do as well as private features" if not above else "Few bits"
    bits = [f"{_number(one.expected)} of {one.num_bits:,} on {one.title}" for one in measured]
    return (
        f"{verdict}: with the same random numbers only N m x̄ tanh(ε_x/2m) of the N m bits that N "
        "nodes report differ from those of nodes without features (x̄ is the mean feature value). "
        f"At ε_x=1 that is {_listed(bits)}. What a network learns from is the "
        "graph, over which the reports are propagated, and the labels."
    )


def _bits(found: Iterable[Information], x_eps: float) -> list[str]:
    return [
        f"{_number(one.expected)} ({_number(one.mean)}) of {one.num_bits:,} on {one.title}"
        for one in found
        if one.x_eps == x_eps
    ]


def _unchanged(found: Iterable[Information]) -> list[str]:
    """In how many draws not a single bit depended on the features, where that happened."""
    often = [
        f"{one.unchanged} of {one.repeats} draws on {one.title} at ε_x={canonical(one.x_eps)}"
        for one in found
        if 2 * one.unchanged >= one.repeats
    ]
    return [f"Not a single bit does in {_listed(often)}."] if often else []


def _signals(found: Iterable[Information], x_eps: float) -> list[str]:
    return [f"{one.signal_to_noise:.2g} on {one.title}" for one in found if one.x_eps == x_eps]


def _number(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"


def _listed(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]])) or "(not measured)"
