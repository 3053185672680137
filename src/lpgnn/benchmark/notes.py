"""The benchmark's section of ``NOTES.md``: counts from the standings, no number is typed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lpgnn.benchmark import caveats
from lpgnn.benchmark.entries import Entry
from lpgnn.benchmark.plan import BLANK, DEFAULT, Plan
from lpgnn.benchmark.standings import Against, Computed, Standing, against, sentence
from lpgnn.report.grid import Grid, Shown
from lpgnn.report.notation import canonical, value_text
from lpgnn.report.templates import markdown_templates

# Whether they stay above Drop where labels are private, tuned as others are and as published.
ABOVE_DROP = ("residual", "two_round")
DROPS = (DEFAULT, "lpgnn")
# Those that decide what a node reports of its features.
REPORTING = ("whole method", "feature mechanism")


@dataclass(frozen=True)
class Contest:
    """An entry against another on one graph, in all cells with private labels."""

    entry: Entry
    dataset: str
    cells: int  # that the protocol has
    found: tuple[Against, ...]

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
            return f"higher in every cell, shown in {self.count('above')}"
        return f"not higher in {self.cells - self.higher} of {self.cells} cells"

    def line(self) -> list[str]:
        means = [one.difference.mean for one in self.found]
        span = f"{min(means):+.1f} to {max(means):+.1f}" if means else "–"
        counts = (self.higher, self.count("above"), self.count("below"))
        done = f"{len(self.found)} of {self.cells}"
        return [self.entry.title, self.dataset, done, span, *map(str, counts), self.verdict]


def contests(
    found: Sequence[Standing], plan: Plan, names: Sequence[str], other: str
) -> list[Contest]:
    """Entries against another, with Holm's correction over the cells of an entry on a graph.

    Paired by repeat, and by Welch's test where two engines have computed them.
    """
    budgets = [eps for eps in plan.protocol.y_eps if math.isfinite(eps)]
    rivals = {one.place[1:]: one for one in found if one.entry.name == other and one.is_complete}
    datasets = list(dict.fromkeys(one.dataset for one in found))
    made = []
    for name in (name for name in names if name in plan.entries):
        for dataset in datasets:
            pairs = [
                (one, rivals[one.place[1:]].cell)
                for one in found
                if (one.entry.name, one.dataset) == (name, dataset)
                and (one.y_eps in budgets and one.is_complete and one.place[1:] in rivals)
            ]
            judged = against(pairs, plan.protocol.selection, unpaired=True)
            differences = tuple(one for one in judged if isinstance(one, Against))
            cells = len(budgets) * len(plan.protocol.x_eps)
            if differences:
                made.append(Contest(plan.entries[name], dataset, cells, differences))
    return made


def notes(what: Computed, found: Sequence[Standing], changes: str) -> str:
    """The section, without its heading; of graphs that are not complete it says just that."""
    environment = markdown_templates("benchmark")
    environment.filters["grid"] = lambda grid: grid.to_markdown().rstrip("\n")
    plan, found = what.plan, [one for one in found if one.dataset in what.whole]
    labels = [name for name, entry in plan.entries.items() if entry.family == "label mechanism"]
    datasets = list(dict.fromkeys(one.dataset for one in found))
    largest = max(plan.protocol.x_eps)
    return environment.get_template("notes.md.j2").render(
        protocol=plan.protocol,
        blank_text=BLANK,
        changes=changes,
        unfinished=what.unfinished_text(),
        search_text=caveats.search_text(plan),
        labels_text=caveats.LABELS,
        epochs=caveats.epochs(found, plan.protocol.selection),
        engines=caveats.engines(found),
        cells=_cells(found, datasets),
        largest=value_text(canonical(largest)),
        gains=[
            (value_text(canonical(y_eps)), grid)
            for y_eps in plan.protocol.y_eps
            if (grid := _gains(found, datasets, largest, y_eps)) is not None
        ],
        sentences=[(dataset, sentence(dataset, found)) for dataset in datasets],
        drops=[
            (plan.entries[name].title, grid)
            for name in DROPS
            if name in plan.entries
            and (grid := _contests(contests(found, plan, ABOVE_DROP, name))) is not None
        ],
        labels=_contests(contests(found, plan, labels, DEFAULT)),
    )


def summary(what: Computed, found: Sequence[Standing]) -> str:
    """A sentence and a table over all graphs that are complete, for those who read no more."""
    protocol = what.plan.protocol
    complete = [one for one in found if one.dataset in what.whole]
    datasets = list(dict.fromkeys(one.dataset for one in complete))
    if not datasets:
        return "No graph is complete yet.\n"
    judged = [one for one in complete if one.blank is not None]
    methods = {one.entry.name for one in complete if not one.entry.is_control}
    above = sum(one.blank is not None and one.blank.verdict == "above" for one in judged)
    both = sum(one.beats_both is True for one in judged)
    x_eps, y_eps = (
        ", ".join(value_text(canonical(eps)) for eps in budgets)
        for budgets in (protocol.x_eps, protocol.y_eps)
    )
    text = (
        f"{len(methods)} methods at ε_x={x_eps} and ε_y={y_eps}, {protocol.repeats} repeats each, "
        f"the same search for all that have one: of {len(judged)} comparisons with blank reports "
        f"through the same method {above} are above 0 after Holm's correction over those of a "
        f"graph, and {both} are above labels only as well.\n"
    )
    return "\n".join([text, _cells(complete, datasets).to_markdown()])


def _gains(
    found: Sequence[Standing], datasets: Sequence[str], x_eps: float, y_eps: float
) -> Grid | None:
    """What every way to report features gains over blank reports, by graph."""
    here = [
        one
        for one in found
        if one.entry.family in REPORTING and (one.x_eps, one.y_eps) == (x_eps, y_eps)
    ]
    rows = []
    for name in dict.fromkeys(one.entry.name for one in here):
        own = {one.dataset: one for one in here if one.entry.name == name}
        title = next(iter(own.values())).entry.title
        rows.append([Shown(title), *(_gain(own.get(dataset)) for dataset in datasets)])
    return Grid(["Entry", *datasets], [rows]) if rows else None


def _gain(one: Standing | None) -> Shown:
    if one is None or one.blank is None:
        return Shown("–")
    return Shown(str(one.blank.difference), bold=one.blank.verdict == "above")


def _cells(found: Sequence[Standing], datasets: Sequence[str]) -> Grid:
    """How many cells are above the controls, by graph."""
    rows = []
    for dataset in datasets:
        own = [one for one in found if one.dataset == dataset and one.rank is not None]
        blank = [one.blank.verdict for one in own if one.blank is not None]
        only = [one.labels_only.verdict for one in own if one.labels_only is not None]
        both = [one.beats_both for one in own if one.beats_both is not None]
        counts = [len(both), both.count(True)]
        counts += [side.count(word) for side in (blank, only) for word in ("above", "below")]
        rows.append([dataset, *_of_graph(own), *map(str, counts)])
    headings = ["Graph", "Metric", "Features", "Cells", "Above both", "Above blank", "Below blank"]
    return Grid.of_text([*headings, "Above labels only", "Below labels only"], rows, labels=2)


def _of_graph(own: Sequence[Standing]) -> tuple[str, str]:
    """The metric, and how many features a node has."""
    known = [one.cell.configuration for one in own if one.cell.configuration is not None]
    return (own[0].metric, f"{known[0].graph.num_features:,}") if known else ("–", "–")


def _contests(made: Sequence[Contest]) -> Grid | None:
    headings = ["Entry", "Graph", "Cells", "Difference", "Higher", "Above", "Below", "So"]
    return Grid.of_text(headings, [one.line() for one in made], labels=2) if made else None
