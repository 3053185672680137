"""Where every entry stands: means, paired differences to both controls, ranks and cost."""

import csv
import io
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from lpgnn.benchmark.entries import Entry
from lpgnn.benchmark.plan import Plan, Setting, Values
from lpgnn.composition import Experiment
from lpgnn.report.evidence import Cell, Results, Source, cell_of
from lpgnn.report.notation import canonical
from lpgnn.report.paired import Difference, holm
from lpgnn.report.tables import Printed
from lpgnn.rows import Summary, summarise

LABELS_ONLY = "labels_only"
Place = tuple[str, str, float, float]  # entry, dataset, x_eps, y_eps


@dataclass(frozen=True)
class Against:
    """A paired difference to a control, with its p-value adjusted for all entries of a setting."""

    difference: Difference
    holm_p: float

    @property
    def verdict(self) -> str:
        if self.holm_p >= 0.05:
            return "no difference"
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
    rank: int | None = None  # among entries that are no controls

    @property
    def place(self) -> Place:
        return self.entry.name, self.dataset, self.x_eps, self.y_eps

    @property
    def total_eps(self) -> float:
        """What a node spends; a control that reads no features spends nothing on them."""
        return self.y_eps if math.isinf(self.x_eps) else self.x_eps + self.y_eps

    @property
    def seconds(self) -> float:
        """Mean seconds of one core for one run."""
        return fmean(float(row.get("duration") or 0) for row in self.cell.rows)

    @property
    def beats_both(self) -> bool | None:
        """Whether the entry is above both controls; None if one of them is missing."""
        if self.blank is None or self.labels_only is None:
            return None
        return self.blank.verdict == self.labels_only.verdict == "above"

    @property
    def command(self) -> str:
        """What computes these rows by itself."""
        words = [
            f"+{key}={value}"
            if key.startswith("metrics.") or f"+{key}" in self.entry.given
            else f"{key}={value}"
            for key, value in self.cell.point.keys.items()
            if key not in ("results_dir", "data_dir", "workers", "dry_run", "force")
        ]
        return "python -m lpgnn.run " + " ".join(words)


def standings(plan: Plan, source: Source) -> list[Standing]:
    """All that have rows, in the order of graphs, label budgets, feature budgets and ranks."""
    chosen = plan.chosen()
    found: list[Standing] = []
    blanks: dict[Place, Cell] = {}
    cells: list[Cell] = []
    for setting, points in plan.reported(chosen).items():
        is_shared = sum(point.control for point in points) == 1  # one control for all budgets
        for point in points:
            cell = cell_of(point, source.store)
            cells.append(cell)
            own = _standing(plan, setting, cell, chosen[setting], source.selection)
            if own is None:
                continue
            if point.control:
                name, dataset, x_eps, y_eps = own.place
                for budget in plan.protocol.x_eps if is_shared else (x_eps,):
                    blanks[name, dataset, budget, y_eps] = cell
            else:
                found.append(own)
    # t intervals: these are claims of our own.
    experiment = Experiment("benchmark", "Benchmark", (), interval="t")
    results = Results(experiment, cells, source.selection)
    judged: list[Standing] = []
    for dataset in plan.protocol.datasets:
        for y_eps in plan.protocol.y_eps:
            here = [one for one in found if (one.dataset, one.y_eps) == (dataset, y_eps)]
            for x_eps in sorted({one.x_eps for one in here}):
                group = [one for one in here if one.x_eps == x_eps]
                judged += _judged(group, here, blanks, results)
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


def _judged(
    group: Sequence[Standing],
    all_budgets: Sequence[Standing],
    blanks: Mapping[Place, Cell],
    results: Results,
) -> list[Standing]:
    """The entries of one setting, compared with both controls and ranked."""
    labels = [one.cell for one in all_budgets if one.entry.name == LABELS_ONLY]
    own = [one for one in group if not one.entry.is_control]
    to_blank = _against(own, [blanks.get(one.place) for one in own], results)
    to_labels = _against(own, [next(iter(labels), None)] * len(own), results)
    own = [
        replace(one, blank=blank, labels_only=only)
        for one, blank, only in zip(own, to_blank, to_labels, strict=True)
    ]
    own.sort(key=lambda one: -one.summary.mean)
    ranked = [replace(one, rank=place) for place, one in enumerate(own, start=1)]
    return [one for one in group if one.entry.is_control] + ranked


def _against(
    own: Sequence[Standing], controls: Sequence[Cell | None], results: Results
) -> list[Against | None]:
    """Paired differences to a control of each; their p-values are adjusted together."""
    found = [
        None if control is None else results.difference(one.cell, control, one.metric)
        for one, control in zip(own, controls, strict=True)
    ]
    adjusted = iter(holm([one.p for one in found if one is not None]))
    return [None if one is None else Against(one, next(adjusted)) for one in found]


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
    *("beats_both", "seconds", "trials_chose", "id", "command"),
)


def to_csv(found: Sequence[Standing]) -> str:
    """A line per standing."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for one in found:
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
    place: float  # mean share of the others that it is above, in percent: 100 = always first
    firsts: int
    above_blank: int
    above_labels_only: int
    above_both: int


def overall(found: Sequence[Standing]) -> list[Overall]:
    """Every entry that is no control, best mean place first."""
    ranked = [one for one in found if one.rank is not None]
    sizes = Counter((one.dataset, one.x_eps, one.y_eps) for one in ranked)
    entries: dict[str, list[Standing]] = {}
    for one in ranked:
        entries.setdefault(one.entry.name, []).append(one)

    def place(one: Standing) -> float:
        others = sizes[one.dataset, one.x_eps, one.y_eps] - 1
        return 100.0 if others == 0 else 100.0 * (others + 1 - (one.rank or 0)) / others

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
    return sorted(summed, key=lambda one: -one.place)


def sentence(dataset: str, found: Sequence[Standing]) -> str:
    """What spending a feature budget buys on a graph."""
    here = [one for one in found if one.dataset == dataset and one.blank is not None]
    gains = [one for one in here if one.blank is not None and one.blank.verdict == "above"]
    if not here:
        return "Nothing is computed yet."
    if not gains:
        return (
            f"Spending a feature budget buys nothing that can be shown: none of {len(here)} "
            "comparisons with blank reports is above 0 after Holm's correction."
        )
    best = max(gains, key=lambda one: one.blank.difference.mean if one.blank else 0.0)
    assert best.blank is not None
    return (
        f"Reports are above blank ones in {len(gains)} of {len(here)} comparisons after Holm's "
        f"correction, by {best.blank.difference.mean:.1f} points at most ({best.entry.title}, "
        f"ε_x={canonical(best.x_eps)}, ε_y={canonical(best.y_eps).replace('inf', '∞')})."
    )
