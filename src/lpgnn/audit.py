"""``python -m lpgnn.audit``: does a mechanism keep the budget that it claims?"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import random
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lpgnn.client import VECTOR_PLACES, Question, Task, answer, perturb, write_task
from lpgnn.commands import Command, one_run, writing
from lpgnn.components import import_target
from lpgnn.config import Settings, component_names, make_component
from lpgnn.errors import InputError, exit_code
from lpgnn.rows import write_atomically

if TYPE_CHECKING:
    from lpgnn.privacy.audit import Audit

USAGE = """\
  python -m lpgnn.audit mechanism=mb x_eps=1
  python -m lpgnn.audit label_mechanism=rr y_eps=1 num_classes=7
  python -m lpgnn.audit mechanism=custom mechanism._target_=my_module.MyMechanism x_eps=1
  python -m lpgnn.audit callable=my_module.noisy eps=1 num_features=2
  python -m lpgnn.audit --all
A callable gets one input (a list of num_features numbers in [alpha, beta], or with num_classes a
class) and returns one random output.  Settings of the audit: draws of each input that test an
event, confidence, seed, num_features, num_classes, and for a callable eps, delta, alpha and beta.
Exit codes: 0 not refuted, 1 refuted, 2 bad input."""

# The budgets at which --all looks at every mechanism.
BUDGETS = (0.1, 1.0, 4.0)
_COLUMNS = (
    *("mechanism", "input", "claimed_eps", "delta", "exact_eps"),
    *("empirical_eps", "confidence", "draws", "worst_pair", "verdict"),
)


@dataclass(frozen=True)
class Options:
    """What an audit is made with; the fields are keys of the command line."""

    draws: int = 200_000
    confidence: float = 0.9999
    seed: int = 0
    num_features: int = 4
    num_classes: int = 0  # 0: four for a label mechanism; a callable gets numbers
    eps: float = math.nan
    delta: float = 0.0
    alpha: float = 0.0
    beta: float = 1.0

    def __post_init__(self) -> None:
        if self.num_features < 1:
            raise InputError("num_features", self.num_features, "must be a whole number >= 1")
        if self.num_classes < 0 or self.num_classes == 1:
            raise InputError("num_classes", self.num_classes, "must be a whole number >= 2")
        if not self.alpha < self.beta:
            raise InputError("alpha", self.alpha, f"must be below beta={self.beta}")
        if not 0 <= self.delta < 1:
            raise InputError("delta", self.delta, "must lie in [0, 1)")

    @property
    def test(self) -> dict[str, Any]:
        return {"draws": self.draws, "confidence": self.confidence}


def main(arguments: Sequence[str] | None = None) -> int:
    command = Command(
        "audit", "Compare the budget that a mechanism claims with what it spends.", USAGE
    )
    command.add_argument("--all", action="store_true", help="all that lpgnn has, into audit.csv")
    command.takes_settings()
    options = command.read(arguments)
    return exit_code(lambda: _audit(options))


def _audit(arguments: argparse.Namespace) -> int:
    import torch

    torch.set_num_threads(1)  # many small calls: threads would only wait for each other
    own, target, rest = _own_settings(arguments.overrides)
    for key, _, value in (override.partition("=") for override in rest):
        if key in ("protocol", "learner"):  # or the default mechanism would be audited unasked
            allowed = f"an audit takes mechanism= or label_mechanism=, and no {key}"
            raise InputError(key, value, allowed)
    settings = one_run(arguments, rest)
    if arguments.all:
        return _audit_all(own, settings.results_path)
    if target is not None:
        audits = [_of_callable(target, own)]
    else:
        named = {line.partition("=")[0].split(".")[0] for line in rest}
        audits = list(_of_components(settings, own, named))
    for audit in audits:
        print(describe(audit))
        folder, name = settings.results_path / "audit", re.sub(r"[^\w.-]", "_", audit.name)
        with writing("results_dir", settings.results_dir):
            draw(audit, folder, f"{name}-eps-{audit.claimed:g}")
        print(f"      plot  {folder / f'{name}-eps-{audit.claimed:g}.png'}")
    return 1 if any(audit.refuted for audit in audits) else 0


def _own_settings(overrides: Sequence[str]) -> tuple[Options, str | None, list[str]]:
    """The audit's own settings, the callable if there is one, and what is left for a run's."""
    kinds = {field.name: int if field.type == "int" else float for field in fields(Options)}
    found: dict[str, Any] = {}
    target, rest = None, []
    for override in overrides:
        key, _, value = override.partition("=")
        if key == "callable":
            target = value
        elif key in kinds:
            try:
                found[key] = kinds[key](value)
            except ValueError:
                kind = "a whole number" if kinds[key] is int else "a number"
                raise InputError(key, value, f"must be {kind}") from None
        else:
            rest.append(override)
    return Options(**found), target, rest


def _of_components(settings: Settings, own: Options, named: set[str]) -> Iterator[Audit]:
    """The mechanisms that the command line names; the feature mechanism if it names none."""
    if "mechanism" in named or "label_mechanism" not in named:
        mechanism: Any = settings.component("mechanism")
        yield _of_mechanism(mechanism, settings.x_eps, own)
    if "label_mechanism" in named:
        labels: Any = settings.component("label_mechanism")
        yield _of_mechanism(labels, settings.y_eps, own)


def _of_mechanism(mechanism: Any, budget: float, own: Options) -> Audit:
    from lpgnn.privacy.audit import audit_features, audit_labels
    from lpgnn.randomness import derive_generator

    if math.isinf(budget):
        name = "x_eps" if mechanism.kind == "mechanism" else "y_eps"
        raise InputError(name, budget, "claims nothing: must be finite to be audited")
    generator = derive_generator(own.seed, 0, f"audit/{mechanism.name}/{budget}")
    if mechanism.kind == "mechanism":
        bound = mechanism.bind(budget, own.num_features)
        return audit_features(bound, **own.test, generator=generator)
    bound = mechanism.bind(budget, own.num_classes or 4)
    return audit_labels(bound, **own.test, generator=generator)


def _of_callable(target: str, own: Options) -> Audit:
    from lpgnn.privacy.audit import audit_callable

    if not own.eps > 0:
        raise InputError("eps", own.eps, "must be the budget that the callable claims, above 0")
    return audit_callable(
        target,
        import_target("callable", target),
        epsilon=own.eps,
        delta=own.delta,
        num_features=own.num_features,
        num_classes=own.num_classes,
        alpha=own.alpha,
        beta=own.beta,
        **own.test,
    )


def _audit_all(own: Options, results: Path) -> int:
    """Every mechanism of conf/ and the client, at a few budgets."""
    audits = []
    for budget in BUDGETS:
        for kind in ("mechanism", "label_mechanism"):
            for name in component_names(kind):
                if name == "custom":
                    continue
                component: Any = make_component(kind, name)
                audits.append(_of_mechanism(component, budget, own))
                print(f"{audits[-1].name:12} {_in_short(audits[-1])}", flush=True)
        for audit in _of_client(budget, own):
            audits.append(audit)
            print(f"{audit.name:12} {_in_short(audit)}", flush=True)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows(_cells(audit) for audit in audits)
    with writing("results_dir", results):
        write_atomically(results / "audit.csv", text.getvalue())
    print(f"written: {results / 'audit.csv'}")
    return 1 if any(audit.refuted for audit in audits) else 0


def _of_client(budget: float, own: Options) -> Iterator[Audit]:
    """What devices send, drawn by the client itself: features alone, a label alone, and answers."""
    from lpgnn.privacy.audit import audit_callable

    d, c = own.num_features, own.num_classes or 4
    bound: Any = make_component("mechanism", "mb")

    def task_of(num_samples: int) -> Task:
        source = write_task(
            name="audit",
            graph="",
            num_nodes=1,
            x_eps=budget,
            num_features=d,
            num_samples=num_samples,
            y_eps=budget,
            num_classes=c,
            salt="",
        )
        return Task.parse(source)

    task, asking = task_of(bound.bind(budget, d).m), task_of(0)
    draws = random.Random(f"audit/{own.seed}/{budget}").getrandbits
    own = replace(own, draws=min(own.draws, 20_000))  # one at a time, in plain Python

    def features(x: list[float]) -> list[int]:
        report = perturb(task, node=0, features=x, asked=False, random_bits=draws)
        sent = [0] * d
        for index, bit in zip(report.indices, report.bits, strict=True):
            sent[index] = bit
        return sent

    def label(y: int) -> int | None:
        zeros = [0.0] * d
        report = perturb(task, node=0, features=zeros, asked=True, label=y, random_bits=draws)
        return report.label

    def answering(question: Question) -> Callable[[list[float]], int | None]:
        def answered(x: list[float]) -> int | None:
            return answer(asking, question, node=0, features=x, random_bits=draws).label

        return answered

    given: dict[str, Any] = {"epsilon": budget, **own.test}
    mb = audit_callable("client mb", features, num_features=d, **given)
    rr = audit_callable("client rr", label, num_classes=c, **given)
    lowest, whole = task.lowest_weight(), 1 << 64
    yield replace(mb, exact=task.num_samples * math.log((whole - lowest) / lowest))
    yield replace(rr, exact=math.log(task.keep_weight() / task.flip_weight()))
    for question in _questions(asking):
        found = audit_callable(
            f"client {question.kind}", answering(question), num_features=d, **given
        )
        weight, others = question.answer_weight(asking), question.num_classes - question.near
        exact = math.log((whole - others * weight) / (question.near * weight))
        yield replace(found, exact=exact)


def _questions(task: Task) -> Iterator[Question]:
    """Of both kinds: among eight candidates, and in which of three cells."""
    d, c = task.num_features, task.num_classes
    common = {"lpgnn_question": 1, "task": task.hash.hex(), "nodes": [0]}
    unit = 1 << VECTOR_PLACES
    score = {
        "directions": [[1] * d, *[[0] * d] * (c - 1)],
        "places": 0,
        "pairs": [[0, 1]],
        "thresholds": [[0, 1, [0, unit]]],  # no feature, one, or several
    }
    for own in ({"kind": "vector", "candidates": 8, "near": 2}, {"kind": "score", **score}):
        yield Question.parse(json.dumps(common | own).encode(), task)


def _cells(audit: Audit) -> list[str]:
    finding = audit.finding
    return [
        *(audit.name, audit.size, f"{audit.claimed:g}", f"{audit.delta:g}"),
        "" if audit.exact is None else f"{audit.exact:.9g}",
        *(f"{finding.epsilon:.4f}", f"{finding.confidence:g}", str(finding.draws)),
        *(finding.pair, audit.verdict),
    ]


def _in_short(audit: Audit) -> str:
    exact = "none" if audit.exact is None else f"{audit.exact:.6g}"
    return (
        f"claimed {audit.claimed:g}, exact {exact}, "
        f"empirical >= {audit.finding.epsilon:.3f}: {audit.verdict}"
    )


def describe(audit: Audit) -> str:
    """A claim and what became of it, in a few lines."""
    from lpgnn.privacy.distinguish import least_leak

    finding = audit.finding
    delta = f", delta = {audit.delta:g}" if audit.delta else ""
    seen = least_leak(
        audit.claimed,
        draws=finding.tested,
        confidence=finding.confidence,
        delta=audit.delta,
    )
    exact = "none: it states no probabilities of its outputs"
    if audit.exact is not None:
        exact = f"eps = {audit.exact:.6g}, by the probabilities that it states"
    lines = {
        "mechanism": f"{audit.name} on {audit.size}",
        "claimed": f"eps = {audit.claimed:g}{delta}",
        "exact": exact,
        "empirical": f"eps >= {finding.epsilon:.4f} with confidence {finding.confidence:g}, "
        f"{finding.draws:,} draws",
        "can see": f"what one input alone leads to, from a probability of {seen:.2g} on",
        "worst pair": finding.pair,
        "event": f"{finding.event}: seen in {100 * finding.seen_first:.4g} % and "
        f"{100 * finding.seen_second:.4g} % of the outputs",
        "verdict": audit.verdict,
    }
    return "\n".join(f"{name:>10}  {text}" for name, text in lines.items())


def draw(audit: Audit, folder: Path, name: str) -> None:
    """The two distributions of outputs that are told apart best, and the event that does it."""
    import numpy as np

    from lpgnn.report.drawing import STYLES, new_figure, our_style, save

    finding = audit.finding
    scores = (finding.scores_first, finding.scores_second)
    pooled = np.concatenate(scores)
    distinct = np.unique(pooled)
    with our_style():
        figure = new_figure(6.4, 3.2)
        axes = figure.subplots()
        labels = finding.pair.split(" or ", 1)
        if len(distinct) <= 40:
            places = np.arange(len(distinct))
            for i, own in enumerate(scores):
                shares = [float((own == value).mean()) for value in distinct]
                axes.bar(places + 0.4 * i - 0.2, shares, 0.4, color=STYLES[i][0])
            step = max(1, len(distinct) // 10)
            axes.set_xticks(places[::step], [f"{value:.3g}" for value in distinct[::step]])
            edges = np.searchsorted(distinct, finding.bounds, side="left") - 0.5
            edges[1] = np.searchsorted(distinct, finding.bounds[1], side="right") - 0.5
            axes.set_ylabel("share of outputs")
        else:
            low, high = np.quantile(pooled, [0.001, 0.999])
            bins = np.linspace(low, high, 60).tolist()
            for i, own in enumerate(scores):
                axes.hist(own, bins, density=True, histtype="step", color=STYLES[i][0], lw=1.4)
            edges = np.clip(np.array(finding.bounds), low, high)
            axes.set_ylabel("density")
        axes.axvspan(*edges, color="#dddddd", alpha=0.6, lw=0, zorder=0)
        for i, text in enumerate(labels):
            axes.plot([], [], color=STYLES[i][0], lw=4, label=text.rstrip(","))
        axes.plot([], [], color="#dddddd", lw=6, label="event")
        axes.set_xlabel(finding.statistic)
        axes.set_title(
            f"{audit.name}: claimed {audit.claimed:g}, empirical ≥ {finding.epsilon:.3f}, "
            f"{audit.verdict}",
            loc="left",
        )
        figure.legend(loc="outside lower center", ncols=3)
        save(figure, folder, name)


if __name__ == "__main__":
    sys.exit(main())
