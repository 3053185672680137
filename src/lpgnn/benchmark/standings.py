"""Where every entry stands: means, paired differences to both controls, ranks and cost."""

import csv
import io
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean, median

from lpgnn.benchmark.entries import Entry, added_folder
from lpgnn.benchmark.plan import LABELS_ONLY, Plan, Setting, Values
from lpgnn.composition import Experiment
from lpgnn.report.evidence import (
    DAGGER,
    DOUBLE_DAGGER,
    Cell,
    Results,
    Source,
    cell_of,
    hardly_trained,
)
from lpgnn.report.notation import canonical, symbol, value_text
from lpgnn.report.paired import Difference, holm, welch_difference
from lpgnn.report.tables import Printed
from lpgnn.rows import Summary, summarise

_EQUAL = 1e-9  # points: entries that compute the same share a rank
Place = tuple[str, str, float, float]  # entry, dataset, x_eps, y_eps


@dataclass(frozen=True)
class Against:
    """A difference to a control or to another entry, with its p-value adjusted for its family."""

    difference: Difference
    holm_p: float

    @property
    def verdict(self) -> str:
        if self.holm_p >= 0.05:
            return "not shown to differ"
        return "above" if self.difference.mean > 0 else "below"


@dataclass(frozen=True)
class Standing:
    """One entry on one graph at one pair of budgets."""

    entry: Entry
    dataset: str
    metric: str
    x_eps: float
    y_eps: float
    cell: Cell
    summary: Summary
    values: Values  # what the search chose
    printed: Printed | None = None  # by the method's own paper, under its own protocol
    blank: Against | None = None
    labels_only: Against | None = None
    lacks: tuple[str, ...] = ()  # what stands in the way of a comparison
    rank: int | None = None  # among complete entries that are no controls; equal means share one

    @property
    def place(self) -> Place:
        return self.entry.name, self.dataset, self.x_eps, self.y_eps

    @property
    def total_eps(self) -> float:
        """What a node spends: nothing on features that are not read, no end on bare ones."""
        known = self.cell.configuration
        return self.y_eps + (self.x_eps if known is None else known.x_eps)

    @property
    def seconds(self) -> float:
        """Mean seconds of one core for one run."""
        return fmean(float(row.get("duration") or 0) for row in self.cell.rows)

    @property
    def is_complete(self) -> bool:
        return _is_complete(self.cell, self.summary.count)

    @property
    def is_on_blank(self) -> bool:
        """Whether the entry itself reads blank reports, as there are no features."""
        return self.cell.point.keys.get("feature") == "blank"

    def marks(self, rule: str) -> str:
        """Signs of networks that can say little: kept too early, or only for want of a better."""
        noisy = self.cell.fitted_noise(rule)
        signs = DAGGER if hardly_trained(self.cell.kept_epochs(rule)) else ""
        return signs + (DOUBLE_DAGGER if noisy and 2 * sum(noisy) >= len(noisy) else "")

    @property
    def beats_both(self) -> bool | None:
        """Whether the entry is above both controls; None if that cannot be said."""
        if self.blank is None or self.labels_only is None:
            return None
        return self.blank.verdict == self.labels_only.verdict == "above"

    @property
    def command(self) -> str:
        """What computes these rows by itself."""
        words = [
            f"+{key}={value}"
            if key.startswith("metrics.") or f"+{key}" in {*self.entry.given, *self.values}
            else f"{key}={value}"
            for key, value in self.cell.point.keys.items()
            if key not in ("results_dir", "data_dir", "workers", "dry_run", "force")
        ]
        if self.metric != self.cell.point.settings.metric:
            words.append(f"metric={self.metric}")
        folder = self.cell.point.settings.results_path
        if folder != Path("results"):
            words.append(f"results_dir={folder}")
        # The class of a submission lies beside its entry.
        beside = shlex.quote(str(added_folder(folder)))
        place = f"PYTHONPATH={beside} " if self.entry.module else ""
        return f"{place}python -m lpgnn.run {shlex.join(words)}"

    @property
    def line(self) -> str:
        """What it comes to, for a console."""
        told = [f"{self.entry.title} on {self.dataset} at {self._at}: {self.metric} {self.summary}"]
        for name, against in (("blank", self.blank), ("labels only", self.labels_only)):
            if against is not None:
                told.append(f"− {name} {against.difference} ({against.verdict})")
        told += [f"rank {self.rank}"] if self.rank is not None else []
        return "; ".join([*told, *self.lacks])

    @property
    def _at(self) -> str:
        return f"x_eps={canonical(self.x_eps)}, y_eps={canonical(self.y_eps)}"


@dataclass(frozen=True)
class Computed:
    """What is there of a plan: the cells of its entries, and for each place those on blank."""

    plan: Plan
    chosen: Mapping[Setting, Values]
    own: Mapping[Setting, Sequence[Cell]]
    blanks: Mapping[Place, Cell]

    @property
    def has_rows(self) -> bool:
        return any(cell.rows for cells in self.own.values() for cell in cells)

    @cached_property
    def whole(self) -> tuple[str, ...]:
        """The graphs on which every entry of lpgnn is complete."""
        return tuple(name for name, lacking in self.unfinished().items() if not lacking)

    def unfinished(self) -> dict[str, list[str]]:
        """Ours that lack runs, by graph: trials, their own, or their controls.

        Whoever adds an entry decides where it is computed.
        """
        found: dict[str, list[str]] = {dataset: [] for dataset in self.plan.protocol.datasets}
        for entry, setting in self.plan.settings():
            _, dataset, y_eps = setting
            blanks = [
                cell
                for (name, graph, _, label_eps), cell in self.blanks.items()
                if (name, graph, label_eps) == (entry.name, dataset, y_eps)
            ]
            cells = [*self.own.get(setting, ()), *blanks]
            is_done = setting in self.chosen and all(cell.is_finished for cell in cells)
            if not is_done and not entry.is_added and entry.name not in found[dataset]:
                found[dataset].append(entry.name)
        return found

    def absent(self) -> list[str]:
        """The submissions of which nothing is there."""
        return [
            name
            for name, entry in self.plan.entries.items()
            if entry.module
            and not any(
                c.rows for setting, own in self.own.items() if setting[0] == name for c in own
            )
        ]

    def unfinished_text(self) -> list[str]:
        """A line on every graph that is not complete, those without anything together."""
        lines, empty = [], []
        for dataset, names in self.unfinished().items():
            settings = self.plan.settings()
            ours = [setting for entry, setting in settings if not entry.is_added]
            wanted = dict.fromkeys(name for name, graph, _ in ours if graph == dataset)
            done = [name for name in wanted if name not in names]
            if names and not done:
                empty.append(dataset)
            elif names:
                which = f"; missing: {', '.join(names)}"
                if len(done) < len(names):  # the shorter list
                    which = f": {', '.join(done)}"
                lines.append(f"{dataset}: {len(done)} of {len(wanted)} entries are complete{which}")
        return [*lines, *([f"no entry is complete on {', '.join(empty)}"] if empty else [])]


def computed(plan: Plan, source: Source) -> Computed:
    """The rows of what the search has chosen so far."""
    chosen = plan.chosen()
    own: dict[Setting, list[Cell]] = {}
    blanks: dict[Place, Cell] = {}
    for setting, points in plan.reported(chosen).items():
        cells = [cell_of(point, source.store) for point in points]
        own[setting] = [cell for cell in cells if not cell.point.control]
        controls = [cell for cell in cells if cell.point.control]
        name, dataset, y_eps = setting
        for cell in controls:
            blanks[name, dataset, float(cell.point.settings.x_eps), y_eps] = cell
    return Computed(plan, chosen, own, blanks)


def standings(what: Computed, rule: str = "") -> list[Standing]:
    """All that have rows, in the order of graphs, label budgets, feature budgets and ranks.

    rule: which epoch counts, the protocol's if it is left out
    """
    plan, rule = what.plan, rule or what.plan.protocol.selection
    found = [
        one
        for setting, cells in what.own.items()
        for cell in cells
        if (one := _standing(plan, setting, cell, what.chosen[setting], rule)) is not None
    ]
    judged: list[Standing] = []
    for dataset in plan.protocol.datasets:
        here = _compared([one for one in found if one.dataset == dataset], what.blanks, rule)
        for y_eps in plan.protocol.y_eps:
            of_labels = [one for one in here if one.y_eps == y_eps]
            for x_eps in sorted({one.x_eps for one in of_labels}):
                judged += _ranked([one for one in of_labels if one.x_eps == x_eps])
    return judged


def _standing(
    plan: Plan, setting: Setting, cell: Cell, values: Values, rule: str
) -> Standing | None:
    name, dataset, y_eps = setting
    metric = plan.protocol.metrics[dataset]
    printed = plan.entries[name].printed_numbers if metric == "acc" else {}
    measured = list(cell.values(rule, metric).values())
    if not measured:
        return None
    return Standing(
        *(plan.entries[name], dataset, metric, float(cell.point.settings.x_eps), y_eps),
        *(cell, summarise(measured, "t"), values),
        printed=printed.get((dataset, float(cell.point.settings.x_eps), y_eps)),
    )


def _is_complete(cell: Cell, count: int) -> bool:
    """Whether every repeat has a number: means over the repeats that did not fail are no match."""
    return count >= cell.point.settings.repeats


def _compared(here: Sequence[Standing], blanks: Mapping[Place, Cell], rule: str) -> list[Standing]:
    """All that stands on a graph, with differences to both controls: one family of tests each."""
    only = {one.y_eps: one.cell for one in here if one.entry.name == LABELS_ONLY}
    own = [one for one in here if not one.entry.is_control and one.is_complete]
    to_blank = against([(one, blanks.get(one.place)) for one in own], rule)
    to_labels = against([(one, only.get(one.y_eps)) for one in own], rule)
    compared = {}
    for one, blank, labels in zip(own, to_blank, to_labels, strict=True):
        lacks = [
            f"{what}: {found}"
            for what, found in (("blank", blank), ("labels only", labels))
            if isinstance(found, str) and not (one.is_on_blank and what == "blank")
        ]
        if one.is_on_blank:
            lacks.append("no features here")
        compared[one.place] = replace(
            one,
            blank=None if isinstance(blank, str) else blank,
            labels_only=None if isinstance(labels, str) else labels,
            lacks=tuple(lacks),
        )
    return [compared.get(one.place, one) for one in here]


def _ranked(group: Sequence[Standing]) -> list[Standing]:
    """The entries of one setting: controls, then the complete by their means, then the rest."""
    own = [one for one in group if not one.entry.is_control and one.is_complete]
    rest = [one for one in group if not one.entry.is_control and not one.is_complete]
    ranked = [
        replace(one, rank=1 + sum(o.summary.mean > one.summary.mean + _EQUAL for o in own))
        for one in own
    ]
    ranked.sort(key=lambda one: -one.summary.mean)
    for one in rest:
        lack = f"{one.summary.count} of {one.cell.point.settings.repeats} repeats"
        ranked.append(replace(one, lacks=(lack,)))
    return [one for one in group if one.entry.is_control] + ranked


def against(
    pairs: Sequence[tuple[Standing, Cell | None]], rule: str, *, unpaired: bool = False
) -> list[Against | str]:
    """Paired differences, with p-values that are adjusted together; or why there is none.

    unpaired: what two engines have computed is compared by Welch's test
    """
    # t intervals: these are claims of our own.
    results = Results(Experiment("benchmark", "Benchmark", (), interval="t"), [], rule)
    found: list[Difference | str] = []
    for one, other in pairs:
        if other is None or not _is_complete(other, len(other.values(rule, one.metric))):
            found.append("not computed")
        else:
            difference = results.difference(one.cell, other, one.metric)
            if difference is None and unpaired:
                values = (list(c.values(rule, one.metric).values()) for c in (one.cell, other))
                difference = welch_difference(*values)
            found.append("computed by another engine" if difference is None else difference)
    adjusted = iter(holm([one.p for one in found if isinstance(one, Difference)]))
    return [one if isinstance(one, str) else Against(one, next(adjusted)) for one in found]


COLUMNS = (
    *("dataset", "metric", "y_eps", "x_eps", "total_eps", "rank", "entry", "family", "mean", "ci"),
    *(
        "count",
        "printed_mean",
        "printed_ci",
        "blank_difference",
        "blank_low",
        "blank_high",
        "blank_holm_p",
    ),
    *("labels_only_difference", "labels_only_low", "labels_only_high", "labels_only_holm_p"),
    *("beats_both", "seconds", "kept_epoch", "trials_chose", "id", "command"),
)


def to_csv(found: Sequence[Standing], rule: str) -> str:
    """A line per standing."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for one in found:
        kept = one.cell.kept_epochs(rule)
        line: dict[str, object] = {
            "dataset": one.dataset,
            "metric": one.metric,
            "y_eps": canonical(one.y_eps),
            "x_eps": canonical(one.x_eps),
            "total_eps": canonical(one.total_eps),
            "rank": one.rank,
            "entry": one.entry.name,
            "family": one.entry.family,
            "mean": f"{one.summary.mean:.4f}",
            "ci": "" if one.summary.ci is None else f"{one.summary.ci:.4f}",
            "count": one.summary.count,
            "printed_mean": "" if one.printed is None else one.printed.mean,
            "printed_ci": "" if one.printed is None else one.printed.ci,
            "beats_both": {None: "", True: "true", False: "false"}[one.beats_both],
            "seconds": f"{one.seconds:.2f}",
            "kept_epoch": median(kept) if kept else "",
            "trials_chose": " ".join(f"{k}={canonical(v)}" for k, v in one.values.items()),
            "id": one.cell.identity,
            "command": one.command,
        }
        for name, against in (("blank", one.blank), ("labels_only", one.labels_only)):
            if against is not None:
                between = against.difference
                line |= {f"{name}_difference": f"{between.mean:.4f}"}
                line |= {f"{name}_low": f"{between.low:.4f}", f"{name}_high": f"{between.high:.4f}"}
                line |= {f"{name}_holm_p": f"{against.holm_p:.4g}"}
        writer.writerow(line)
    return text.getvalue()


@dataclass(frozen=True)
class Overall:
    """An entry over all settings that it has numbers in, against the others of each setting."""

    entry: Entry
    settings: int
    place: float  # mean share of the others that it is above, in percent; equal ones count half
    firsts: int
    above_blank: int
    above_labels_only: int
    above_both: int


def overall(found: Sequence[Standing]) -> list[Overall]:
    """Every entry that is no control, best mean place first; those that lack settings come last."""
    ranked = [one for one in found if one.rank is not None]
    sizes = Counter((one.dataset, one.x_eps, one.y_eps) for one in ranked)
    alike = Counter((one.dataset, one.x_eps, one.y_eps, one.rank) for one in ranked)
    entries: dict[str, list[Standing]] = {}
    for one in ranked:
        entries.setdefault(one.entry.name, []).append(one)

    def place(one: Standing) -> float:
        others = sizes[one.dataset, one.x_eps, one.y_eps] - 1
        equal = alike[one.dataset, one.x_eps, one.y_eps, one.rank] - 1
        below = others + 1 - (one.rank or 0) - equal
        return 100.0 if others == 0 else 100.0 * (below + equal / 2) / others

    def count(own: Sequence[Standing], *controls: str) -> int:
        verdicts = ([getattr(one, control) for control in controls] for one in own)
        return sum(all(v is not None and v.verdict == "above" for v in each) for each in verdicts)

    summed = [
        Overall(
            own[0].entry,
            len(own),
            fmean(map(place, own)),
            sum(one.rank == 1 for one in own),
            *(count(own, "blank"), count(own, "labels_only"), count(own, "blank", "labels_only")),
        )
        for own in entries.values()
    ]
    most = max((one.settings for one in summed), default=0)
    return sorted(summed, key=lambda one: (one.settings < most, -one.place))


def sentence(dataset: str, found: Sequence[Standing]) -> str:
    """What spending a feature budget buys on a graph."""
    if any(one.dataset == dataset and one.is_on_blank for one in found):
        own = [one.labels_only for one in found if one.dataset == dataset and one.labels_only]
        above, below = (sum(o.verdict == word for o in own) for word in ("above", "below"))
        return (
            "Its features were not available, so every entry stands on blank reports: "
            f"{above or 'none'} of {len(own)} are above labels only after Holm's correction over "
            f"all of them, and {below or 'none'} below."
        )
    here = [one for one in found if one.dataset == dataset and one.blank is not None]
    gains = [one for one in here if one.blank is not None and one.blank.verdict == "above"]
    if not here:
        return "Nothing can be compared with blank reports yet."
    if not gains:
        return (
            f"Spending ε_x buys nothing that can be shown: none of {len(here)} comparisons with "
            "blank reports is above 0 after Holm's correction over all of them."
        )
    best = max(gains, key=lambda one: one.blank.difference.mean if one.blank else 0.0)
    assert best.blank is not None
    both = sum(one.beats_both is True for one in gains)
    verb = "is" if len(gains) == 1 else "are"
    unknown = sum(one.labels_only is None for one in gains)
    beside = f" ({unknown} cannot be compared with them)" if unknown else ""
    return (
        f"Spending ε_x buys up to {best.blank.difference.mean:.1f} points over blank reports "
        f"({best.entry.title}, {budgets_text(best)}): {len(gains)} of {len(here)} comparisons "
        f"{verb} above 0 after Holm's correction over all of them, {both or 'none'} of these also "
        f"above labels only{beside}."
    )


def budgets_text(one: Standing) -> str:
    """ε_x=1, ε_y=∞."""
    return ", ".join(
        f"{symbol(key)}={value_text(canonical(getattr(one, key)))}" for key in ("x_eps", "y_eps")
    )


def rule_sentence(found: Sequence[Standing], other: Sequence[Standing], other_rule: str) -> str:
    """How the headline changes under the rule that is not the protocol's."""
    same = {one.place: one for one in other}
    pairs = [(one, same[one.place]) for one in found if one.place in same and one.rank]
    if not pairs:
        return ""
    counts = [
        (
            sum(one.blank is not None and one.blank.verdict == "above" for one in side),
            sum(one.beats_both is True for one in side),
        )
        for side in zip(*pairs, strict=True)
    ]
    moved = {
        y_eps: fmean(b.summary.mean - a.summary.mean for a, b in pairs if a.y_eps == y_eps)
        for y_eps in sorted({one.y_eps for one, _ in pairs})
    }
    shifts = " and ".join(
        f"{shift:+.1f} points at ε_y={value_text(canonical(y))}" for y, shift in moved.items()
    )
    settings = {one.place[1:] for one, _ in pairs}
    firsts = [
        {(one.place[1:], one.entry.name) for one in side if one.rank == 1}
        for side in zip(*pairs, strict=True)
    ]
    kept = len({place for place, _ in firsts[0] & firsts[1]})
    return (
        f"Under the {other_rule} rule the same runs' means move by {shifts} on average; "
        f"of {len(pairs)} cells {counts[1][0]} are above blank reports (here {counts[0][0]}) and "
        f"{counts[1][1]} above both controls (here {counts[0][1]}); the first place is the "
        f"same in {kept} of {len(settings)} settings."
    )
