"""What reports add to logistic regression: the experiment ``hop_regression``, summed up."""

from dataclasses import replace
from functools import cached_property

from lpgnn.paper.statistics import dataset
from lpgnn.paper.wording import MISSING, listed
from lpgnn.report.build import tables_of
from lpgnn.report.evidence import Cell, Source
from lpgnn.report.grid import Grid, Shown
from lpgnn.report.notation import value_text
from lpgnn.report.paired import Difference, holm
from lpgnn.report.tables import Number, Table

EXPERIMENT = "hop_regression"
HOPS = "What reports add to logistic regression"
GRID_NOTE = (
    "Gains over blank reports through the same mechanism, in points of ROC AUC, paired by repeat. "
    "Bold: above 0 at 5 % after Holm's correction over the gains of all mechanisms, budgets and "
    "graphs, where `tables/hop_regression.md` corrects each mechanism by itself. The last lines "
    "are the ROC AUC of the controls. Labels only is the coded walk on the training nodes' labels, "
    "whose weights also look at the validation nodes' reports. Without reports, that is with "
    "constant features, the regression has degrees and neighbours' labels."
)
NETWORKS_NOTE = (
    "The same MB reports in GraphSAGE behind conditioned KProp (ε_y=∞, 500 epochs), by the rule "
    '"paper": ROC AUC, in brackets the paired gain over blank reports with its 95 % interval. '
    "Their hyper-parameters are those of the graph in `value_of_features.yaml` with a similar "
    "average degree, neighbours' labels are not among their inputs, and the benchmark's networks, "
    "which are searched, may do better."
)
_LATE = 0.95  # of all epochs
_NETWORK_RULE = "paper"  # as in the benchmark: the other one keeps epochs that have hardly learned
_OVER_BLANK, _OF_REPORTS = " − blank", ", feature=raw"
# The controls by their rows in the table; those of blank reports by that of MB.
_NONE, _LABELS_ONLY = "No reports, feature=ones", "Labels only"
_CONTROLS = {
    "blank reports (MB)": "mb, feature=blank",
    "without reports": _NONE,
    "labels only": _LABELS_ONLY,
    "features without noise": "Features without noise",
}
_WITHOUT_NOISE = "inf"  # the column of what spends no ε_x

Place = tuple[str, str, str]  # graph, y_eps, x_eps
Differences = dict[str, dict[Place, Difference | None]]  # by mechanism and place


class Hops:
    """What every mechanism adds to its controls, and what a network makes of MB's reports."""

    def __init__(self, source: Source) -> None:
        self.results = source.results(EXPERIMENT)
        self.tables: dict[str, Table] = tables_of(self.results) if self.results.has_rows else {}

    @cached_property
    def numbers(self) -> dict[tuple[str, Place], Number]:
        """By row and place, without the columns of no mechanism."""
        if EXPERIMENT not in self.tables:
            return {}
        table = self.tables[EXPERIMENT]
        blocks = {key: entry.values for key, entry in table.entries["block"].items()}
        return {
            (row, (*blocks[block], x_eps)): number  # type: ignore[misc]  # blocks name two keys
            for (block, row, x_eps), number in table.numbers.items()
        }

    @cached_property
    def gains(self) -> Differences:
        """Reports minus blank ones."""
        found: Differences = {}
        for (row, at), number in self.numbers.items():
            if row.endswith(_OVER_BLANK) and at[2] != _WITHOUT_NOISE:
                found.setdefault(row.removesuffix(_OVER_BLANK), {})[at] = number.difference
        return found

    def over(self, control: str) -> Differences:
        """Reports minus a control that spends nothing on them."""
        found: Differences = {}
        for (row, at), number in self.numbers.items():
            if row.endswith(_OF_REPORTS) and at[2] != _WITHOUT_NOISE:
                cells = [n.cell for n in (number, self.numbers.get((control, at))) if n and n.cell]
                found.setdefault(row.removesuffix(_OF_REPORTS), {})[at] = (
                    self.results.difference(cells[0], cells[1], "roc_auc")
                    if len(cells) == 2
                    else None
                )
        return found

    def grid(self, y_eps: str, *, intervals: bool = True) -> Grid | None:
        """The gains at a label budget, the controls below them; None without rows."""
        places = [at for at in next(iter(self.gains.values()), {}) if at[1] == y_eps]
        if not places:
            return None
        sure = surely(self.gains)[0]
        rows = [
            [Shown(name), *(_gain(own.get(at), (name, at) in sure, intervals) for at in places)]
            for name, own in self.gains.items()
        ]
        for title, row in _CONTROLS.items():
            rows.append([Shown(title), *(Shown(self._mean(row, at)) for at in places)])
        headings = [f"{dataset(at[0]).title}, ε_x={value_text(at[2])}" for at in places]
        return Grid([f"ε_y={value_text(y_eps)}", *headings], [rows])

    def _mean(self, row: str, at: Place) -> str:
        """The mean of a control, which may spend no ε_x."""
        found = [self.numbers.get((row, (*at[:2], x_eps))) for x_eps in (at[2], _WITHOUT_NOISE)]
        known = [number.summary for number in found if number is not None and number.summary]
        return f"{known[0].mean:.1f}" if known else MISSING

    def sentences(self) -> list[str]:
        """What is computed, and from which budget on it is above blank reports."""
        if not self.gains:
            return []
        above, _ = surely(self.gains)
        budgets = dict.fromkeys(at[2] for own in self.gains.values() for at in own)
        by_budget = [
            f"{sum(at[2] == x_eps for _, at in above)} at ε_x={value_text(x_eps)}"
            for x_eps in budgets
        ]
        size = sum(map(len, self.gains.values()))
        return [
            f"`+experiment={EXPERIMENT}`: logistic regression on a node's own report, the reports "
            "after one and two steps of propagation and neighbours' training labels, with every "
            "mechanism on two graphs whose features are few. A cell is a mechanism at a budget; "
            "the table counts those above and below each control after Holm's correction over "
            f"all {size} differences to it. On both graphs and at both label budgets together, "
            f"this is how many are above blank reports: {listed(by_budget)}."
        ]

    def verdicts(self) -> Grid | None:
        """In how many cells reports are above each control, and the highest mean of all cells."""
        if not self.gains:
            return None
        blank, none, labels = map(surely, (self.gains, self.over(_NONE), self.over(_LABELS_ONLY)))
        best = self._best()
        rows = []
        for place in dict.fromkeys(at[:2] for own in self.gains.values() for at in own):
            size = sum(at[:2] == place for own in self.gains.values() for at in own)
            counts = [
                sum(at[:2] == place for _, at in found)
                for found in (blank[0], none[0], labels[0], labels[1])
            ]
            own = [dataset(place[0]).title, value_text(place[1]), *map(str, (size, *counts))]
            rows.append([*own, *best.get(place, (MISSING, MISSING))])
        headings = ["Graph", "ε_y", "Cells", "Above blank", "Above regression without reports"]
        headings += ["Above labels only", "Below labels only", "Highest mean", "Labels only"]
        return Grid.of_text(headings, rows, labels=2)

    def _best(self) -> dict[tuple[str, str], tuple[str, str]]:
        """The highest mean of any mechanism and budget, and that of labels only."""
        best: dict[tuple[str, str], tuple[float, str, Place]] = {}
        for (row, at), number in self.numbers.items():
            if row.endswith(_OF_REPORTS) and number.summary is not None:
                own = (number.summary.mean, row, at)
                best[at[:2]] = max(best.get(at[:2], own), own)
        entries = self.tables[EXPERIMENT].entries["row"]
        return {
            place: (
                f"{mean:.1f} ({entries[row].text.partition(' (')[0]}, ε_x={value_text(at[2])})",
                self._mean(_LABELS_ONLY, at),
            )
            for place, (mean, row, at) in best.items()
        }

    def networks(self) -> Grid | None:
        """ROC AUC of GraphSAGE on MB reports and its gain over blank ones, by K_x and ε_x."""
        if not self._networks:
            return None
        by_graph = dict.fromkeys((graph, steps) for graph, steps, *_ in self._networks)
        budgets = list(dict.fromkeys(x_eps for *_, x_eps in self._networks))
        rows = []
        for graph, steps in by_graph:
            own = [self._network(graph, steps, x_eps) for x_eps in budgets]
            rows.append([Shown(f"{dataset(graph).title}, K_x={steps}"), *map(Shown, own)])
        headings = [f"ε_x={value_text(x_eps)}" for x_eps in budgets]
        return Grid(["GraphSAGE on MB", *headings], [rows])

    def late(self) -> str:
        """How many of the networks on reports were kept near their last epoch, by graph."""
        found: dict[str, list[bool]] = {}
        for (graph, *_), cell in self._networks.items():
            known = cell.configuration
            assert known is not None
            for epoch in cell.kept_epochs(_NETWORK_RULE):
                late = epoch >= _LATE * known.max_epochs
                found.setdefault(dataset(graph).title, []).append(late)
        counts = [f"{sum(own)} of {len(own)} on {graph}" for graph, own in found.items()]
        return (
            f"Networks that are kept from the last {1 - _LATE:.0%} of their epochs, and may not "
            f"have converged: {listed(counts)}."
        ).replace("%", " %")

    @cached_property
    def _networks(self) -> dict[tuple[str, str, str, str], Cell]:
        """By graph, K_x, feature and ε_x: those that have rows."""
        return {
            (cell.dataset, keys["filter.steps"], keys.get("feature", "raw"), keys["x_eps"]): cell
            for cell in self.results.cells
            if (keys := cell.keys)["learner"] == "cross_entropy" and cell.rows
        }

    def _network(self, graph: str, steps: str, x_eps: str) -> str:
        reports, blank = (
            self._networks.get((graph, steps, feature, x_eps)) for feature in ("raw", "blank")
        )
        found = replace(self.results, selection=_NETWORK_RULE)
        mean = found.summary(reports, metric="roc_auc") if reports else None
        gain = found.difference(reports, blank, "roc_auc") if reports and blank else None
        beside = f" ({gain})" if gain else ""
        return MISSING if mean is None else f"{mean.mean:.1f}{beside}"


def surely(
    differences: Differences,
) -> tuple[set[tuple[str, Place]], set[tuple[str, Place]]]:
    """Those above and those below 0 after Holm's correction over all of them."""
    known = {
        (name, at): one
        for name, own in differences.items()
        for at, one in own.items()
        if one is not None
    }
    adjusted = holm([one.p for one in known.values()])
    sure = {key: one for (key, one), p in zip(known.items(), adjusted, strict=True) if p < 0.05}
    above = {key for key, one in sure.items() if one.above_zero}
    return above, {key for key, one in sure.items() if one.below_zero}


def _gain(one: Difference | None, is_sure: bool, interval: bool) -> Shown:
    if one is None:
        return Shown(MISSING)
    half = f" ± {(one.high - one.low) / 2:.1f}" if interval else ""
    return Shown(f"{one.mean:+.1f}{half}", bold=is_sure)
