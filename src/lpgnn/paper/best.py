"""The best accuracy at each pair of budgets for which the paper prints one, of all computed rows.

Whoever spends less than a budget may be shown at it.  Of many means the highest is chosen, and
chance is chosen with it; so what is best is chosen on one half of the repeats, and by how much it
beats the paper's is measured on the other half.  What has more labels than the paper's networks is
shown, and does not compete.
"""

import csv
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from lpgnn.paper.comparison import printed_difference
from lpgnn.paper.statistics import DATASETS, dataset
from lpgnn.paper.wording import MISSING, Count
from lpgnn.report.evidence import Source
from lpgnn.report.grid import Grid, Shown
from lpgnn.report.notation import canonical, value_text
from lpgnn.report.paired import Difference, holm
from lpgnn.report.tables import Printed, decimal
from lpgnn.rows import Row, Summary, summarise, write_atomically

NAME = "best"
CAPTION = "The best accuracy at each pair of budgets, and the paper's"
REPEATS = 10
CHOOSING, MEASURING = range(5), range(5, 10)
# Shown whatever they reach; every other method is "another".
FAMILIES = ("two rounds", "residual", "MB, conditioned", "labels only")
OTHER = "another"
# Their tables of hyper-parameters were found on the repeats that are reported.
_TUNED_ON_REPORTED = "value_of_features"
_USERS_OF_IT = (_TUNED_ON_REPORTED, "features_that_pay")
MORE_LABELS = "‡"
# They propagate the labels of training and validation nodes, unless they are told otherwise.
_PROPAGATING = ("label_propagation", "residual", "two_round")
_LEARNERS = {"drop": "Drop", "cross_entropy": "cross entropy", "forward": "forward correction"}


@dataclass(frozen=True)
class Point:
    """Budgets at which the paper prints accuracies of a graph, and the highest of them."""

    graph: str
    x_eps: float
    y_eps: float
    printed: Printed
    method: str

    def affords(self, one: "Candidate") -> bool:
        """Whether somebody with these budgets has enough for a method.

        Labels as they are have no budget to be traded for; else the total counts.
        """
        if math.isinf(self.y_eps):
            return one.x_eps <= self.x_eps
        return one.x_eps + one.y_eps <= self.x_eps + self.y_eps + 1e-9

    @property
    def text(self) -> str:
        return _budgets(self.x_eps, self.y_eps)


@dataclass(frozen=True)
class Candidate:
    """A computation with all its repeats: what it is, what it spends and what it reaches."""

    identity: str
    family: str
    name: str
    is_control: bool
    x_eps: float  # spent on features: 0 where nothing is sent
    y_eps: float
    more_labels: bool  # than a network that learns from the training nodes' labels
    values: Mapping[int, float]  # accuracy by repeat

    def mean(self, repeats: Iterable[int]) -> float:
        found = [self.values[repeat] for repeat in repeats]
        return sum(found) / len(found)

    @property
    def summary(self) -> Summary:
        return summarise([self.values[repeat] for repeat in range(REPEATS)], "t")

    @property
    def text(self) -> str:
        control = ", a control" if self.is_control else ""
        return f"{self.name} at {_budgets(self.x_eps, self.y_eps)}{control}"


@dataclass(frozen=True)
class Best:
    """What the rows have to offer at a point."""

    point: Point
    candidates: tuple[Candidate, ...]

    @property
    def equals(self) -> list[Candidate]:
        """Those with as many labels as the paper's method: with private ones it uses both parts."""
        private = math.isfinite(self.point.y_eps)
        return [one for one in self.candidates if private or not one.more_labels]

    def of(self, family: str) -> Candidate | None:
        """The highest mean over all repeats of a family, whatever labels it has."""
        mine = [one for one in self.candidates if one.family == family]
        return max(mine, key=lambda one: one.mean(range(REPEATS)), default=None)

    @property
    def best(self) -> Candidate | None:
        """The highest mean over all repeats, with as many labels."""
        return max(self.equals, key=lambda one: one.mean(range(REPEATS)), default=None)

    @property
    def chosen(self) -> Candidate | None:
        """The highest mean over the repeats that choose, with as many labels."""
        return max(self.equals, key=lambda one: one.mean(CHOOSING), default=None)

    @property
    def gain(self) -> Difference | None:
        """The chosen one minus the paper's, on the repeats that did not choose."""
        if self.chosen is None:
            return None
        return printed_difference(self.point.printed, [self.chosen.values[r] for r in MEASURING])


def _budgets(x_eps: float, y_eps: float) -> str:
    return f"({canonical(x_eps)}, {value_text(canonical(y_eps))})"


def best_accuracies(source: Source) -> list[Best]:
    """For every point that the paper prints, what can be had there."""
    flattered = _tuned_on_reported(source)
    found = {
        graph: candidates(
            (row for row in source.store.read(graph) if row["id"] not in flattered),
            source.selection,
        )
        for graph in DATASETS
    }
    return [
        Best(point, tuple(one for one in found[point.graph] if point.affords(one)))
        for point in printed_points()
    ]


def _tuned_on_reported(source: Source) -> set[str]:
    """The computations with hyper-parameters that were found on the reported repeats."""
    cells = [cell for name in _USERS_OF_IT for cell in source.results(name).cells]
    return {c.identity for c in cells if c.point.settings.hparams == _TUNED_ON_REPORTED}


def printed_points() -> list[Point]:
    """The budgets of the paper's tables, each with the highest mean printed for it."""
    printed: dict[tuple[str, float, float], list[tuple[Printed, str]]] = {}
    for line in _printed("mechanisms"):
        at = (line["dataset"], float(line["column"]), math.inf)
        printed.setdefault(at, []).append((_number(line), line["row"].upper()))
    for line in _printed("denoising"):
        at, name = (line["dataset"], 1.0, float(line["row"])), _LEARNERS[line["column"]]
        printed.setdefault(at, []).append((_number(line), name))
    points = [
        Point(*at, *max(numbers, key=lambda number: number[0].mean))
        for at, numbers in printed.items()
    ]
    return sorted(points, key=lambda p: (DATASETS.index(p.graph), -p.y_eps, p.x_eps))


def _printed(table: str) -> list[dict[str, str]]:
    text = (files("lpgnn.paper") / f"{table}.csv").read_text("utf-8")
    return list(csv.DictReader(text.splitlines()))


def _number(line: Mapping[str, str]) -> Printed:
    return Printed(float(line["mean"]), float(line["ci"]))


def candidates(rows: Iterable[Row], selection: str) -> list[Candidate]:
    """The private computations of seed 0 that have all their repeats, by known sources."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        known = row.get("dirty") != "true" and not _is_superseded(row)
        if known and (row["status"], row["seed"], row["split"]) == ("ok", "0", "random"):
            groups.setdefault(row["id"], []).append(row)
    found = []
    for identity, mine in groups.items():
        values = {
            int(row["repeat"]): float(accuracy)
            for row in mine
            if (accuracy := row.get(f"{selection}/test/acc"))
        }
        x_eps = _spent_on_features(mine[0])
        if math.isfinite(x_eps) and set(range(REPEATS)) <= values.keys():
            family, name, is_control = _method(mine[0])
            y_eps = float(mine[0]["y_eps"])
            more = _has_validation_labels(mine[0])
            found.append(Candidate(identity, family, name, is_control, x_eps, y_eps, more, values))
    return found


def _is_superseded(row: Row) -> bool:
    """Whether a row is of the first two rounds, which no run can compute any more."""
    options = json.loads(row["options"] or "{}")
    return row["learner"] == "two_round" and options.get("learner.evidence") != "held_out"


def _has_validation_labels(row: Row) -> bool:
    """Whether a method learns from the labels of validation nodes, too."""
    options = json.loads(row["options"] or "{}")
    usual = "train+val" if row["learner"] in _PROPAGATING else "train"
    return bool(options.get("learner.refit")) or options.get("learner.labels", usual) != "train"


def _spent_on_features(row: Row) -> float:
    """Nothing where no feature is sent, else x_eps; inf for what is not private."""
    return 0.0 if row["feature"] in ("none", "ones", "ohd", "rnd") else float(row["x_eps"])


def _method(row: Row) -> tuple[str, str, bool]:
    """The family of a row's method, its name, and whether it is a control."""
    options, learner = json.loads(row["options"] or "{}"), row["learner"]
    if learner == "label_propagation":
        walk, combine = options.get("learner.walk"), options.get("learner.combine")
        labels = options.get("learner.labels", "train+val")
        return "labels only", f"labels only ({walk} walk, {combine}, {labels})", True
    blank = " on blank reports" if row["feature"] == "blank" else ""
    if learner in ("two_round", "residual"):
        name = {"two_round": "two rounds", "residual": "residual"}[learner]
        walk = f" ({options['learner.walk']} walk)"
        return OTHER if blank else name, f"{name}{walk}{blank}", bool(blank)
    conditioned = options.get("filter.conditioning", "none") != "none"
    features = row["feature"] if row["mechanism"] == "none" else row["mechanism"].upper()
    own_filter = "" if row["filter"] in ("kprop", "none") else row["filter"]
    parts = [features, own_filter, "conditioned" if conditioned else "", row["backbone"].upper()]
    refit = "refit" if options.get("learner.refit") else ""
    name = ", ".join(filter(None, [*parts, _LEARNERS.get(learner, learner), refit]))
    is_family = conditioned and row["mechanism"] == "mb" and not blank
    return "MB, conditioned" if is_family else OTHER, f"{name}{blank}", bool(blank)


def gains(found: Sequence[Best]) -> dict[Point, tuple[Difference, float]]:
    """The differences to the paper's with p-values that Holm's rule has adjusted for all points."""
    known = {one.point: gain for one in found if (gain := one.gain) is not None}
    adjusted = holm([gain.p for gain in known.values()])
    return {at: (gain, p) for (at, gain), p in zip(known.items(), adjusted, strict=True)}


def best_grid(found: Sequence[Best]) -> Grid:
    """A line for every point; the gain is bold where Holm's rule rejects 0."""
    sure, blocks = gains(found), []
    for graph in DATASETS:
        rows: list[list[Shown]] = []
        for one in (one for one in found if one.point.graph == graph):
            of_families = [_mean(one, one.of(family)) for family in FAMILIES]
            best, (gain, p) = one.best, sure.get(one.point, (None, 1.0))
            title = dataset(graph).title if not rows else ""
            rows.append(
                [
                    *map(Shown, (title, one.point.text)),
                    Shown(f"{one.point.printed} {one.point.method}"),
                    *map(Shown, of_families),
                    Shown(MISSING if best is None else f"{best.summary} {best.text}"),
                    Shown(str(gain or MISSING), gain is not None and p < 0.05),
                ]
            )
        blocks.append(rows)
    families = [*FAMILIES[:-1], f"{FAMILIES[-1]} (control)"]
    headings = ["Graph", "(ε_x, ε_y)", "The paper's best", *families]
    return Grid([*headings, "Best of all rows", "Chosen − the paper's"], blocks, labels=2)


def _mean(best: Best, one: Candidate | None) -> str:
    if one is None:
        return MISSING
    return f"{one.summary}" if one in best.equals else f"{one.summary} {MORE_LABELS}"


def best_note(found: Sequence[Best]) -> str:
    """How the table is made, and what it cannot say."""
    counts = [len(one.equals) for one in found]
    return (
        "Accuracy over ten repeats, ± half a 95 % t interval. Shown at a pair of budgets is what "
        "spends no more than their sum, and with labels as they are (ε_y=∞) no more than ε_x; "
        "labels only spends nothing on features. The four methods in the middle are shown whatever "
        f"they reach; {MORE_LABELS} marks what has half as many labels again as the paper's "
        "networks, those of the validation nodes, and does not compete for the last two columns. "
        "Left out is what changed sources computed, what was tuned on the reported repeats, and "
        "the first two rounds, whose evidence had seen a node's own label. "
        f"{min(counts)} to {max(counts)} computations compete for a line: the highest of so many "
        "means, of a method or of all, is flattered by the choice. The last column is not: repeats "
        "0 to 4 choose a computation, which need not be the one named before, and repeats 5 to 9 "
        "are compared with the paper's number by Welch's 95 % interval; bold where Holm's rule "
        f"over the {len(gains(found))} lines rejects 0 at 5 %. Both halves share the nodes of one "
        "graph, and the paper's own number is the best of its methods."
    )


def best_sentences(found: Sequence[Best]) -> list[str]:
    """How often the paper's best is beaten, and by whom."""
    sure = gains(found)
    known = [sure.get(one.point) for one in found]
    above = Count(tuple(None if one is None else one[0].above_zero for one in known))
    below = sum(one is not None and one[0].below_zero for one in known)
    holds = sum(one is not None and one[0].above_zero and one[1] < 0.05 for one in known)
    bests = [one.best for one in found if one.best is not None]
    often = {name: sum(one.family == name for one in bests) for name in (*FAMILIES, OTHER)}
    names = ", ".join(f"{name} {count}" for name, count in often.items())
    return [
        "With as many labels, what repeats 0 to 4 choose beats the paper's best on repeats 5 to 9 "
        f"with an interval above 0 at {above} pairs of budgets ({holds} after Holm's correction), "
        f"and is below with an interval below 0 at {below}.",
        f"The highest mean of all rows is that of: {names}; a control has it at "
        f"{sum(one.is_control for one in bests)}.",
    ]


def write_best(found: Sequence[Best], folder: Path) -> None:
    """Write ``best.csv``, ``.md`` and ``.tex``; nothing without a computation."""
    paths = [folder / f"{NAME}.{kind}" for kind in ("csv", "md", "tex")]
    if not any(one.candidates for one in found):
        for path in paths:
            path.unlink(missing_ok=True)
        return
    grid, sure = best_grid(found), gains(found)
    columns = ["dataset", "x_eps", "y_eps", "paper_mean", "paper_ci", "paper_method", "shown"]
    columns += ["method", "is_control", "spent_x_eps", "spent_y_eps", "mean", "ci"]
    lines = [[*columns, "difference", "low", "high", "p", "holm_p", "id"]]
    for one in found:
        p = one.point
        at = [p.graph, canonical(p.x_eps), canonical(p.y_eps), f"{p.printed.mean}"]
        at += [f"{p.printed.ci}", p.method]
        shown = {**{name: one.of(name) for name in FAMILIES}, "best": one.best}
        for name, candidate in {**shown, "chosen": one.chosen}.items():
            if candidate is not None:
                gain = _differences(sure[p] if name == "chosen" else None)
                lines.append([*at, name, *_columns(candidate), *gain, candidate.identity])
    text = "\n".join(",".join(f'"{c}"' if "," in c else c for c in line) for line in lines)
    note = f"\n{best_note(found)}\n\n{' '.join(best_sentences(found))}\n"
    write_atomically(paths[0], f"{text}\n")
    write_atomically(paths[1], grid.to_markdown() + note)
    write_atomically(paths[2], grid.to_latex(CAPTION, f"tab:{NAME}"))


def _columns(one: Candidate) -> list[str]:
    spent = [canonical(one.x_eps), canonical(one.y_eps)]
    numbers = [decimal(one.summary.mean), decimal(one.summary.ci)]
    return [one.name, str(one.is_control).lower(), *spent, *numbers]


def _differences(found: tuple[Difference, float] | None) -> list[str]:
    if found is None:
        return [""] * 5
    gain, p = found
    return [*map(decimal, (gain.mean, gain.low, gain.high)), f"{gain.p:.3g}", f"{p:.3g}"]
