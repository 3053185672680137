"""The benchmark's section of ``NOTES.md``: counts from the standings, no number is typed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lpgnn.benchmark import caveats
from lpgnn.benchmark.entries import Entry
from lpgnn.benchmark.plan import BLANK, DEFAULT, Plan
from lpgnn.benchmark.standings import Against, Computed, Standing, against, sentence
from lpgnn.report.evidence import DOUBLE_DAGGER, EARLY
from lpgnn.report.grid import Grid, Shown
from lpgnn.report.notation import canonical, value_text
from lpgnn.report.paired import holm
from lpgnn.report.templates import markdown_templates

# Whether they stay above Drop where labels are private, tuned as others are and as published.
ABOVE_DROP = ("residual", "residual_ss", "two_round")
DROPS = (DEFAULT, "lpgnn")
# Those that decide what a node reports of its features.
REPORTING = ("whole method", "feature mechanism")

StandingAt = dict[tuple[str, float, float], Standing]  # by graph, x_eps and y_eps


@dataclass(frozen=True)
class Contest:
    """An entry against another on one graph, in all cells with private labels."""

    entry: Entry
    dataset: str
    cells: int  # that the protocol has
    found: tuple[Against, ...]
    fits_noise: bool = False  # on either side, in some cell

    def count(self, verdict: str) -> int:
        return sum(one.verdict == verdict for one in self.found)

    @property
    def higher(self) -> int:
        """In how many cells its mean is higher."""
        return sum(one.difference.mean > 0 for one in self.found)

    @property
    def verdict(self) -> str:
        if len(self.found) < self.cells:
            return "undecided"
        if all(one.difference.mean == 0 for one in self.found):
            return "the same"
        if self.count("above") == self.cells:
            return "above in every cell"
        if self.higher == self.cells:
            return f"higher in every cell, significantly in {self.count('above') or 'none'}"
        return f"not higher in {self.cells - self.higher} of {self.cells} cells"

    def line(self) -> list[str]:
        means = [one.difference.mean for one in self.found]
        span = f"{min(means):+.1f} to {max(means):+.1f}" if means else "–"
        counts = (self.higher, self.count("above"), self.count("below"))
        done = f"{len(self.found)} of {self.cells}"
        verdict = f"{self.verdict} {DOUBLE_DAGGER}" if self.fits_noise else self.verdict
        return [self.entry.title, self.dataset, done, span, *map(str, counts), verdict]


def contests(
    found: Sequence[Standing], plan: Plan, names: Sequence[str], rivals: StandingAt
) -> list[Contest]:
    """Entries against the rival of each place, with Holm's correction over their cells on a graph.

    Paired by repeat, and by Welch's test where two engines have trained the networks of both.
    """
    budgets = [eps for eps in plan.protocol.y_eps if math.isfinite(eps)]
    datasets = list(dict.fromkeys(one.dataset for one in found))
    made = []
    for name in (name for name in names if name in plan.entries):
        for dataset in datasets:
            both = [
                (one, rivals[one.place[1:]])
                for one in found
                if (one.entry.name, one.dataset) == (name, dataset)
                and (one.y_eps in budgets and one.is_complete and one.place[1:] in rivals)
            ]
            rule = plan.protocol.selection
            judged = against([(one, other.cell) for one, other in both], rule, unpaired=True)
            marks = {mark for pair in both for one in pair for mark in one.marks(rule)}
            differences = tuple(one for one in judged if isinstance(one, Against))
            cells = len(budgets) * len(plan.protocol.x_eps)
            if differences:
                fits_noise = DOUBLE_DAGGER in marks
                made.append(Contest(plan.entries[name], dataset, cells, differences, fits_noise))
    return made


def entry_at(found: Sequence[Standing], name: str) -> StandingAt:
    """An entry where it is complete."""
    return {one.place[1:]: one for one in found if one.entry.name == name and one.is_complete}


def best_at(found: Sequence[Standing], learner: str) -> StandingAt:
    """The entry with the highest mean of all that train by a learner, at each place."""
    best: StandingAt = {}
    for one in found:
        known = one.cell.configuration
        if one.rank is not None and known is not None and known.learner.name == learner:
            other = best.get(one.place[1:])
            if other is None or one.summary.mean > other.summary.mean:
                best[one.place[1:]] = one
    return best


def notes(what: Computed, found: Sequence[Standing], changes: str) -> str:
    """The section, without its heading; of graphs that are not complete it says just that."""
    environment = markdown_templates("benchmark")
    environment.filters["grid"] = lambda grid: grid.to_markdown().rstrip("\n")
    plan, found = what.plan, [one for one in found if one.dataset in what.whole]
    datasets = list(dict.fromkeys(one.dataset for one in found))
    with_features = list(dict.fromkeys(one.dataset for one in found if not one.is_on_blank))
    largest = max(plan.protocol.x_eps)
    return environment.get_template("notes.md.j2").render(
        protocol=plan.protocol,
        blank_text=BLANK,
        changes=changes,
        unfinished=what.unfinished_text(),
        search_text=caveats.search_text(plan),
        ranges_text=caveats.RANGES,
        labels_text=caveats.LABELS,
        searches=caveats.searches(plan),
        missed=caveats.missed(plan),
        epochs=caveats.epochs(found, plan.protocol.selection),
        engines=caveats.engines(found),
        cells=_cells(found, datasets),
        power=caveats.power(found),
        chance=caveats.chance(found),
        repeated_text=caveats.REPEATED,
        early=EARLY,
        largest=value_text(canonical(largest)),
        gains=[
            (value_text(canonical(y_eps)), grid)
            for y_eps in plan.protocol.y_eps
            if (grid := _gains(found, with_features, largest, y_eps)) is not None
        ],
        sentences=[(dataset, sentence(dataset, found)) for dataset in datasets],
        drops=[
            (title, grid)
            for title, rivals in _drops(found, plan)
            if (grid := _contests(contests(found, plan, ABOVE_DROP, rivals))) is not None
        ],
        labels=_contests(_of_labels(found, plan)),
    )


def _drops(found: Sequence[Standing], plan: Plan) -> list[tuple[str, StandingAt]]:
    """Drop as the default has it, as published, and at its best in each cell."""
    drops = [
        (f'"{plan.entries[name].title}"', entry_at(found, name))
        for name in DROPS
        if name in plan.entries
    ]
    best = "the best of all entries that train by Drop, cell by cell and on the same repeats"
    return [*drops, (best, best_at(found, "drop"))]


def _of_labels(found: Sequence[Standing], plan: Plan) -> list[Contest]:
    """Each label mechanism against randomized response with the same learner."""
    made = []
    for name, entry in plan.entries.items():
        if "label_mechanism" in entry.settings:
            learner = str(entry.settings.get("learner", DEFAULT))  # an entry has its learner's name
            made += contests(found, plan, [name], entry_at(found, learner))
    return made


def summary(what: Computed, found: Sequence[Standing]) -> str:
    """A sentence and a table over all graphs that are complete, for those who read no more."""
    protocol = what.plan.protocol
    complete = [one for one in found if one.dataset in what.whole]
    datasets = list(dict.fromkeys(one.dataset for one in complete))
    if not datasets:
        return "No graph is complete yet.\n"
    judged = [one for one in complete if one.blank is not None]
    methods, added = (
        {
            one.entry.name: one.entry
            for one in complete
            if one.entry.is_added == is_added and not one.entry.is_control
        }
        for is_added in (False, True)
    )
    private = sum(entry.labels == "private" for entry in methods.values())
    above = sum(map(_is_above_blank, judged))
    both = sum(one.beats_both is True for one in judged)
    x_eps, y_eps = (
        ", ".join(value_text(canonical(eps)) for eps in budgets)
        for budgets in (protocol.x_eps, protocol.y_eps)
    )
    text = (
        f"{len(methods)} methods, {private or 'none'} of them for private labels only, at "
        f"ε_x={x_eps} and ε_y={y_eps}, {protocol.repeats} repeats each, as many candidates for "
        f"all that are searched: of {len(judged):,} comparisons with blank reports "
        f"through the same method {above} are above 0 after Holm's correction over those of a "
        f"graph, and {both} are above labels only as well. By one correction over all graphs "
        f"these are {_all_at_once(judged)}."
    )
    if added:
        text += f" Among these are {len(added)} added entries, where they have been computed."
    text += "\n"
    parts = [text, _cells(complete, datasets).to_markdown()]
    largest = max(protocol.x_eps)
    here = [one for one in complete if one.x_eps == largest]
    paying = {(one.dataset, one.y_eps) for one in here if _is_above_blank(one)}
    if paying:
        chance = caveats.chance(complete)
        parts.append(
            f"What reports are worth at ε_x={value_text(canonical(largest))}: the gain over blank "
            "reports through the same method, in points of the graph's metric. Shown are the "
            "graphs and label budgets at which some gain holds after that correction (bold), every "
            "way to report features, and all other entries with such a gain; intervals are in "
            "results/NOTES.md." + (f" {chance}" if chance else "") + "\n"
        )
        places = [
            (dataset, y_eps)
            for dataset in datasets
            for y_eps in protocol.y_eps
            if (dataset, y_eps) in paying
        ]
        gaining = {one.entry.name for one in here if _is_above_blank(one)}
        shown = [s for s in here if s.entry.family in REPORTING or s.entry.name in gaining]
        parts.append(_gains_by_place(shown, places).to_markdown())
    return "\n".join(parts)


def _all_at_once(judged: Sequence[Standing]) -> str:
    """How many stay above blank reports, and how many of them above labels only as well."""
    blank = _above_together([one.blank for one in judged])
    only = _above_together([one.labels_only for one in judged])
    return f"{sum(blank)} and {sum(map(all, zip(blank, only, strict=True)))}"


def _above_together(found: Sequence[Against | None]) -> list[bool]:
    """Which are above, corrected as one family; where there is no comparison, none is."""
    adjusted = iter(holm([one.difference.p for one in found if one is not None]))
    anew = [None if one is None else replace(one, holm_p=next(adjusted)) for one in found]
    return [one is not None and one.verdict == "above" for one in anew]


def _gains(
    found: Sequence[Standing], datasets: Sequence[str], x_eps: float, y_eps: float
) -> Grid | None:
    """What every way to report features gains over blank reports, by graph."""
    here = [one for one in _reporting(found, x_eps) if one.y_eps == y_eps]
    rows = []
    for name in dict.fromkeys(one.entry.name for one in here):
        own = {one.dataset: one for one in here if one.entry.name == name}
        title = next(iter(own.values())).entry.title
        rows.append([Shown(title), *(_gain(own.get(dataset)) for dataset in datasets)])
    return Grid(["Entry", *datasets], [rows]) if rows else None


def _gains_by_place(found: Sequence[Standing], places: Sequence[tuple[str, float]]) -> Grid:
    """Gains without intervals, by graph and label budget; the largest gain that holds first."""
    entries: dict[str, dict[tuple[str, float], Standing]] = {}
    for one in found:
        if (one.dataset, one.y_eps) in places and one.blank is not None:
            entries.setdefault(one.entry.title, {})[one.dataset, one.y_eps] = one

    def best(own: Mapping[tuple[str, float], Standing]) -> tuple[bool, float]:
        return max(
            (_is_above_blank(one), one.blank.difference.mean) for one in own.values() if one.blank
        )

    rows = [
        [Shown(title), *(_gain(own.get(place), "mean") for place in places)]
        for title, own in sorted(entries.items(), key=lambda item: best(item[1]), reverse=True)
    ]
    headings = [f"{graph}, ε_y={value_text(canonical(y_eps))}" for graph, y_eps in places]
    return Grid(["Entry", *headings], [rows])


def _reporting(found: Sequence[Standing], x_eps: float) -> list[Standing]:
    return [one for one in found if one.entry.family in REPORTING and one.x_eps == x_eps]


def _is_above_blank(one: Standing) -> bool:
    return one.blank is not None and one.blank.verdict == "above"


def _gain(one: Standing | None, shown: str = "interval") -> Shown:
    if one is None or one.blank is None:
        return Shown("–")
    difference = one.blank.difference
    text = str(difference) if shown == "interval" else f"{difference.mean:+.1f}"
    return Shown(text, bold=_is_above_blank(one))


def _cells(found: Sequence[Standing], datasets: Sequence[str]) -> Grid:
    """How many cells are above the controls, by graph."""
    rows = []
    for dataset in datasets:
        own = [one for one in found if one.dataset == dataset and one.rank is not None]
        blank = [one.blank.verdict for one in own if one.blank is not None]
        only = [one.labels_only.verdict for one in own if one.labels_only is not None]
        both = [one.beats_both for one in own if one.beats_both is not None]
        to_blank = [both.count(True), blank.count("above"), blank.count("below")]
        cells, shown = str(len(both)), [*map(str, to_blank)]
        if all(one.is_on_blank for one in own):
            cells, shown = str(len(only)), ["–"] * len(to_blank)
        counts = [str(only.count(word)) for word in ("above", "below")]
        rows.append([dataset, *_of_graph(own), cells, *shown, *counts])
    headings = ["Graph", "Metric", "Features", "Cells", "Above both", "Above blank", "Below blank"]
    return Grid.of_text([*headings, "Above labels only", "Below labels only"], rows, labels=2)


def _of_graph(own: Sequence[Standing]) -> tuple[str, str]:
    """The metric, and how many features a node has; none where they were not available."""
    known = [one.cell.configuration for one in own if one.cell.configuration is not None]
    if not known:
        return "–", "–"
    without = all(one.is_on_blank for one in own)
    return own[0].metric, "none here" if without else f"{known[0].graph.num_features:,}"


def _contests(made: Sequence[Contest]) -> Grid | None:
    headings = ["Entry", "Graph", "Cells", "Difference", "Higher", "Above", "Below", "Verdict"]
    return Grid.of_text(headings, [one.line() for one in made], labels=2) if made else None
