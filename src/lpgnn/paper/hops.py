"""What reports add to logistic regression: the experiment ``hop_regression``, summed up."""

from collections.abc import Iterator
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
    "Gains over blank reports through the same mechanism, in points of ROC AUC, paired by repeat; "
    "bold where Holm's rule over all of both label budgets rejects 0 at 5 %. Below them: the ROC "
    "AUC of the controls."
)
_OVER_BLANK = " − blank"
# The controls by their rows in the table; those of blank reports by that of MB.
_LABELS_ONLY = "labels only"
_CONTROLS = {
    "blank reports (MB)": "mb, feature=blank",
    _LABELS_ONLY: "Labels only",
    "features without noise": "Features without noise",
}
NETWORKS_NOTE = (
    "The same MB reports in GraphSAGE behind conditioned KProp (ε_y=∞, 500 epochs, not searched), "
    'by the rule "paper": ROC AUC, in brackets the paired gain over blank reports with its 95 % '
    "interval."
)
_NETWORK_RULE = "paper"  # as in the benchmark: the other one keeps epochs that have hardly learned
_WITHOUT_NOISE = "inf"  # the column of what spends no ε_x

Place = tuple[str, str, str]  # graph, y_eps, x_eps


class Hops:
    """The gains of every mechanism over its blank reports, and what a network makes of MB's."""

    def __init__(self, source: Source) -> None:
        self.results = source.results(EXPERIMENT)
        self.tables: dict[str, Table] = tables_of(self.results) if self.results.has_rows else {}

    @cached_property
    def gains(self) -> dict[str, dict[Place, Difference | None]]:
        """The differences to blank reports by mechanism and place."""
        found: dict[str, dict[Place, Difference | None]] = {}
        for row, at, number in self._numbers():
            if row.endswith(_OVER_BLANK):
                found.setdefault(row.removesuffix(_OVER_BLANK), {})[at] = number.difference
        return found

    @cached_property
    def sure(self) -> set[tuple[str, Place]]:
        """The gains that are above 0 after Holm's correction over all of them."""
        known = {
            (name, at): one
            for name, own in self.gains.items()
            for at, one in own.items()
            if one is not None
        }
        adjusted = holm([one.p for one in known.values()])
        pairs = zip(known.items(), adjusted, strict=True)
        return {key for (key, one), p in pairs if one.above_zero and p < 0.05}

    def _numbers(self) -> Iterator[tuple[str, Place, Number]]:
        if EXPERIMENT not in self.tables:
            return
        table = self.tables[EXPERIMENT]
        for (block, row, x_eps), number in table.numbers.items():
            graph, y_eps = table.entries["block"][block].values
            yield row, (graph, y_eps, x_eps), number

    def grid(self, y_eps: str, *, intervals: bool = True) -> Grid | None:
        """The gains at a label budget, the controls below them; None without rows."""
        known = next(iter(self.gains.values()), {})
        places = [at for at in known if at[1] == y_eps and at[2] != _WITHOUT_NOISE]
        if not places:
            return None
        rows = [
            [Shown(name), *(self._gain(name, at, intervals=intervals) for at in places)]
            for name in self.gains
        ]
        means: dict[str, dict[Place, str]] = {}
        for row, at, number in self._numbers():
            if number.summary is not None:
                means.setdefault(row, {})[at] = f"{number.summary.mean:.1f}"
        for title, row in _CONTROLS.items():
            own = means.get(row, {})
            exact = (
                own.get((graph, labels, _WITHOUT_NOISE), MISSING) for graph, labels, _ in places
            )
            texts = (own.get(at, other) for at, other in zip(places, exact, strict=True))
            rows.append([Shown(title), *map(Shown, texts)])
        headings = [
            f"{dataset(graph).title}, ε_x={value_text(x_eps)}" for graph, _, x_eps in places
        ]
        return Grid([f"ε_y={value_text(y_eps)}", *headings], [rows])

    def _gain(self, name: str, at: Place, *, intervals: bool) -> Shown:
        one = self.gains[name].get(at)
        if one is None:
            return Shown(MISSING)
        half = f" ± {(one.high - one.low) / 2:.1f}" if intervals else ""
        return Shown(f"{one.mean:+.1f}{half}", bold=(name, at) in self.sure)

    def sentences(self) -> list[str]:
        """What is computed, and how often it pays."""
        if not self.gains:
            return []
        counts = []
        for graph, y_eps in dict.fromkeys(at[:2] for own in self.gains.values() for at in own):
            inside = [(name, at) for name, own in self.gains.items() for at in own]
            inside = [key for key in inside if key[1][:2] == (graph, y_eps)]
            above = sum(key in self.sure for key in inside)
            counts.append(
                f"{above} of {len(inside)} on {dataset(graph).title} at ε_y={value_text(y_eps)}"
            )
        return [
            f"`+experiment={EXPERIMENT}`: logistic regression on a node's own report, those of its "
            "one-hop and two-hop neighbours and neighbours' training labels, with every mechanism "
            f"on two graphs with few features. Above blank reports: {listed(counts)}.",
            f"The best of these beside labels only: {'; '.join(self._levels())}.",
        ]

    def _levels(self) -> Iterator[str]:
        """The highest mean of any mechanism and budget, and that of labels only."""
        best: dict[tuple[str, str], Number] = {}
        only = dict[tuple[str, str], Number]()
        for row, (graph, y_eps, _), number in self._numbers():
            key, there = (graph, y_eps), best.get((graph, y_eps))
            if number.summary is None:
                continue
            if row == _CONTROLS[_LABELS_ONLY]:
                only[key] = number
            elif row.endswith("feature=raw") and (
                there is None or there.summary is None or there.summary.mean < number.summary.mean
            ):
                best[key] = number
        for (graph, y_eps), number in best.items():
            _, row, x_eps = number.place
            beside = only[graph, y_eps].summary if (graph, y_eps) in only else None
            labels = MISSING if beside is None else f"{beside.mean:.1f}"
            assert number.summary is not None
            name = self.tables[EXPERIMENT].entries["row"][row].text.partition(" (")[0]
            yield (
                f"{dataset(graph).title} at ε_y={value_text(y_eps)} {number.summary.mean:.1f} "
                f"({name}, ε_x={value_text(x_eps)}) and {labels}"
            )

    def networks(self) -> Grid | None:
        """ROC AUC of GraphSAGE on MB reports and its gain over blank ones, by K_x and ε_x."""
        if not self._networks:
            return None
        by_graph = {(graph, steps): None for graph, steps, *_ in self._networks}
        budgets = list(dict.fromkeys(x_eps for *_, x_eps in self._networks))
        rows = []
        for graph, steps in by_graph:
            own = [self._network(graph, steps, x_eps) for x_eps in budgets]
            rows.append([Shown(f"{dataset(graph).title}, K_x={steps}"), *map(Shown, own)])
        headings = [f"ε_x={value_text(x_eps)}" for x_eps in budgets]
        return Grid(["GraphSAGE on MB", *headings], [rows])

    @cached_property
    def _networks(self) -> dict[tuple[str, str, str, str], Cell]:
        """By graph, K_x, feature and ε_x: those that have rows."""
        return {
            (cell.dataset, keys["filter.steps"], keys["feature"], keys["x_eps"]): cell
            for cell in self.results.cells
            if (keys := cell.keys)["learner"] == "cross_entropy" and "feature" in keys and cell.rows
        }

    def _network(self, graph: str, steps: str, x_eps: str) -> str:
        cells = [self._networks.get((graph, steps, f, x_eps)) for f in ("raw", "blank")]
        reports, blank = cells
        found = replace(self.results, selection=_NETWORK_RULE)
        mean = found.summary(reports, metric="roc_auc") if reports else None
        gain = found.difference(reports, blank, "roc_auc") if reports and blank else None
        return MISSING if mean is None else f"{mean.mean:.1f} ({gain or MISSING})"
