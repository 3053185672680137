"""What two rounds gain and what they do not: the experiment ``features_that_pay``, summed up."""

import csv
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from statistics import fmean

from lpgnn.hyperparameters import load_table
from lpgnn.paper.findings import first_for_good
from lpgnn.paper.statistics import dataset
from lpgnn.paper.wording import MISSING, Family, listed
from lpgnn.report.build import tables_of
from lpgnn.report.evidence import Source
from lpgnn.report.grid import Grid, Shown
from lpgnn.report.notation import value_text
from lpgnn.report.paired import Difference, holm, t_difference
from lpgnn.report.tables import Number, Table

EXPERIMENT, LABEL_MODELS = "features_that_pay", "label_models"
TWO_ROUNDS, LABELS_ONLY = "two rounds", "labels only"
OVER_BLANK = "two rounds − blank"
ABLATIONS, DIAGNOSIS = "two_round_ablations.csv", "two_round_diagnosis.csv"
SHIFTS = "two_round_rounding.csv"
# Where one class is rare, accuracy is that of always guessing the other one.
RANKING, BALANCED = "features_that_pay_ranking", "features_that_pay_balanced"
_METRICS = {EXPERIMENT: "accuracy", RANKING: "ROC AUC", BALANCED: "balanced accuracy"}


def title(graph: str) -> str:
    return dataset(graph).title


def read_lines(path: Path) -> list[dict[str, str]]:
    """The lines of a CSV file, none without the file."""
    if not path.is_file():
        return []
    return list(csv.DictReader(path.read_text("utf-8").splitlines()))


class TwoRounds:
    """The paired differences of two rounds to its rivals."""

    def __init__(self, source: Source) -> None:
        self.source, self.results = source, source.results(EXPERIMENT)

    @cached_property
    def tables(self) -> dict[str, Table]:
        return tables_of(self.results)

    @property
    def computed(self) -> bool:
        numbers = self.tables[EXPERIMENT].numbers.values()
        return any(one.summary for one in numbers if one.place[2] == TWO_ROUNDS)

    @cached_property
    def rare(self) -> list[str]:
        """The graphs with a rare class, which are judged by ROC AUC."""
        blocks = self.tables[RANKING].entries["block"].values()
        return list(dict.fromkeys(entry.values[0] for entry in blocks))

    def _judged(self, name: str, table: str = "") -> Iterator[tuple[str, str, str, Number]]:
        """Graph, ε_y, ε_x and each number of a difference, of a table or by the graph's metric."""
        for one in (table,) if table else (EXPERIMENT, RANKING):
            found = self.tables[one]
            for (block, x_eps, column), number in found.numbers.items():
                graph, y_eps = found.entries["block"][block].values
                wanted = bool(table) or (graph in self.rare) == (one == RANKING)
                if column == name and wanted:
                    yield graph, y_eps, x_eps, number

    def family_sizes(self) -> str:
        """Over how many differences Holm's rule goes, by metric."""
        sizes = {
            table: sum(
                number.difference is not None for *_, number in self._judged(OVER_BLANK, table)
            )
            for table in (EXPERIMENT, RANKING)
        }
        return listed([f"{size} of {_METRICS[table]}" for table, size in sizes.items()])

    def pays(self) -> Grid:
        """From which ε_x on two rounds is above its blank control, by graph and ε_y."""
        found: dict[str, dict[str, dict[float, Number]]] = {}
        for graph, y_eps, x_eps, number in self._judged(OVER_BLANK):
            found.setdefault(graph, {}).setdefault(y_eps, {})[float(x_eps)] = number
        rows = []
        for graph, by_label in found.items():
            metric = _METRICS[RANKING if graph in self.rare else EXPERIMENT]
            rows.append([title(graph), metric, *map(pays_from, by_label.values())])
        budgets = [f"ε_y={value_text(y)}" for y in next(iter(found.values()))]
        return Grid.of_text(["Two rounds pay from ε_x =", "by", *budgets], rows, labels=2)

    def paying(self, up_to: float = 8.0) -> list[str]:
        """The graphs with a gain over blank, after Holm's correction, and the largest of them."""
        return [
            f"{title(graph)} (up to {max(gains):+.1f})"
            for graph, gains in self._gains(up_to).items()
            if gains
        ]

    def not_paying(self, up_to: float = 8.0) -> list[str]:
        return [title(graph) for graph, gains in self._gains(up_to).items() if not gains]

    def _gains(self, up_to: float) -> dict[str, list[float]]:
        """What is above blank after Holm's correction, by graph."""
        known = dict[str, list[float]]()
        for graph, _, x_eps, number in self._judged(OVER_BLANK):
            if number.difference is not None and float(x_eps) <= up_to:
                gains = known.setdefault(graph, [])
                if surely_above(number):
                    gains.append(number.difference.mean)
        return known

    def unknown_graphs(self) -> list[str]:
        known = dict[str, bool]()
        for graph, _, _, number in self._judged(OVER_BLANK):
            known[graph] = known.get(graph, False) or number.difference is not None
        return [title(graph) for graph, any_known in known.items() if not any_known]

    def below_blank(self) -> list[str]:
        """The cells whose interval lies below 0."""
        return [
            f"{title(graph)} at ({x_eps}, {value_text(y_eps)}) {number.difference.text(2)}"
            + (", also after Holm's correction" if (number.holm_p or 1.0) < 0.05 else "")
            for graph, y_eps, x_eps, number in self._judged(OVER_BLANK)
            if number.difference is not None and number.difference.below_zero
        ]

    def over(self, rival: str, *graphs: str, table: str = "") -> Family:
        """Two rounds minus a rival where both have rows: every pair of budgets, or some graphs'."""
        found = self._judged(f"two rounds − {rival}", table)
        return Family(
            tuple(
                number.difference
                for graph, *_, number in found
                if number.difference is not None and (not graphs or graph in graphs)
            )
        )

    def missing(self, rival: str) -> str:
        """The graphs with pairs that are not known, and how many: Facebook (8 of 8)."""
        pairs: dict[str, list[bool]] = {}
        for graph, _, _, number in self._judged(f"two rounds − {rival}"):
            pairs.setdefault(graph, []).append(number.difference is None)
        return listed(
            [f"{title(g)} ({sum(own)} of {len(own)})" for g, own in pairs.items() if any(own)]
        )

    def borrowed(self, table: str) -> str:
        """Whose hyper-parameters the graphs take that a table does not have: CiteSeer Cora's."""
        known = load_table(table)
        blocks = self.tables[EXPERIMENT].entries["block"].values()
        takers: dict[str, list[str]] = {}
        for graph in dict.fromkeys(entry.values[0] for entry in blocks):
            own = dataset(graph).facts
            if graph not in known.steps and own is not None:
                takers.setdefault(known.nearest_graph(own.average_degree), []).append(title(graph))
        return listed([f"{listed(own)} those of {title(donor)}" for donor, own in takers.items()])

    def rivals(
        self, rivals: Sequence[str], graphs: Sequence[str], budgets: Sequence[str], table: str = ""
    ) -> Grid:
        """Two rounds minus each rival at some ε_x, where labels are private and where not.

        Bold where Holm's rule over the whole table's column rejects 0.
        """
        rows: dict[tuple[str, str, str], dict[str, Shown]] = {}
        for rival in rivals:
            for graph, y_eps, x_eps, number in self._judged(f"two rounds − {rival}", table):
                if graph in graphs and y_eps in ("1", "inf") and x_eps in budgets:
                    shown = number.show() if number.difference else Shown(MISSING)
                    rows.setdefault((graph, y_eps, rival), {})[x_eps] = shown
        lines = [
            [
                *map(Shown, (title(graph), value_text(y_eps), rival)),
                *(shown.get(eps, Shown(MISSING)) for eps in budgets),
            ]
            for (graph, y_eps, rival), shown in rows.items()
        ]
        headings = ["Graph", "ε_y", "Two rounds minus", *(f"ε_x={eps}" for eps in budgets)]
        return Grid(headings, [lines], labels=3)

    def label_models(self, graph: str, x_eps: str) -> str:
        """The gain over blank at one ε_x with either label model, and what they differ by."""
        tables = tables_of(self.source.results(LABEL_MODELS))
        ranked = "_ranking" if graph in self.rare else ""
        gains, labels = (tables[f"{LABEL_MODELS}{part}{ranked}"] for part in ("", "_labels"))
        own: dict[tuple[str, str], Difference | None] = {}
        for (block, row, column), number in gains.numbers.items():
            of, y_eps = gains.entries["block"][block].values
            if of == graph and row == x_eps:
                own[y_eps, column] = number.difference
        for (block, y_eps, column), number in labels.numbers.items():
            if labels.entries["block"][block].values == (graph,):
                own[y_eps, column] = number.difference
        return "; ".join(
            f"at ({x_eps}, {value_text(y_eps)}) the gain over blank is "
            f"{own[y_eps, 'gain (lazy)'] or MISSING} with the lazy walk and "
            f"{own[y_eps, 'gain (coded)'] or MISSING} with the coded one; labels only gain "
            f"{own[y_eps, 'coded − lazy'] or MISSING} by the coded walk"
            for y_eps in dict.fromkeys(y for y, _ in own)
        )

    def over_labels(self, label: str = TWO_ROUNDS) -> dict[tuple[str, str, str], Difference]:
        """Two rounds minus labels only, which nobody trains, by graph, ε_y and ε_x."""
        found = {}
        for table in (EXPERIMENT, RANKING):
            own = self.tables[table]
            for (block, x_eps, column), number in own.numbers.items():
                graph, y_eps = own.entries["block"][block].values
                other = own.numbers.get((block, x_eps, LABELS_ONLY))
                cells = (number.cell, other.cell if other else None)
                if column != label or (graph in self.rare) != (table == RANKING):
                    continue
                if cells[0] is not None and cells[1] is not None:
                    between = self.results.difference(cells[0], cells[1], own.spec.metric)
                    if between is not None:
                        found[graph, y_eps, x_eps] = between
        return found

    def over_labels_text(self, label: str = TWO_ROUNDS) -> str:
        return str(Family(tuple(self.over_labels(label).values())))

    def labels_reach(self, graphs: Sequence[str], y_eps: str) -> str:
        """What labels only reaches in this experiment: 70.9 on Cora and 80.1 on Pubmed."""
        table, found = self.tables[EXPERIMENT], {}
        for (block, _, column), number in table.numbers.items():
            graph, own = table.entries["block"][block].values
            if column == LABELS_ONLY and own == y_eps and graph in graphs and number.summary:
                found[graph] = f"{number.summary.mean:.1f} on {title(graph)}"
        return listed([found[graph] for graph in graphs if graph in found])

    def below_labels(self) -> list[str]:
        """Where two rounds are worse than their own starting point: an interval below 0."""
        found = self.over_labels()
        adjusted = zip(found.items(), holm([one.p for one in found.values()]), strict=True)
        return [
            f"{title(graph)} at ({x_eps}, {value_text(y_eps)}) {one.text(2)}"
            + (", also after Holm's correction" if p < 0.05 else "")
            for ((graph, y_eps, x_eps), one), p in adjusted
            if one.below_zero
        ]


def surely_above(number: Number) -> bool:
    above = number.difference is not None and number.difference.above_zero
    return above and number.holm_p is not None and number.holm_p < 0.05


def pays_from(numbers: Mapping[float, Number]) -> str:
    """The first budget of a run of intervals above 0, and that of what Holm's rule keeps."""
    plain, kept = (
        first_for_good(
            {eps: None if n.difference is None else is_above(n) for eps, n in numbers.items()}
        )
        for is_above in (_is_above, surely_above)
    )
    same = plain == kept or plain.startswith("undecided")
    return plain if same else f"{plain} (Holm: {kept})"


def _is_above(number: Number) -> bool:
    return number.difference is not None and number.difference.above_zero


class Ablations:
    """What ``scripts/two_round_ablations.py`` measured of the learner's parts."""

    PRESENT, NULLS = "present", ("shuffled directions", "answers of other nodes")
    _KEYS = ("dataset", "y_eps", "x_eps", "feature", "seed", "repeat")

    def __init__(self, path: Path) -> None:
        self.lines = read_lines(path)

    def __bool__(self) -> bool:
        return bool(self.lines)

    @property
    def variants(self) -> list[str]:
        return [name for name in self.lines[0] if name not in (*self._KEYS, self.PRESENT)]

    @property
    def seeds(self) -> str:
        return ", ".join(dict.fromkeys(line["seed"] for line in self.lines))

    @property
    def graphs(self) -> list[str]:
        return list(dict.fromkeys(line["dataset"] for line in self.lines))

    def budgets(self, graph: str) -> list[tuple[str, str]]:
        """(ε_y, ε_x) in the order of the file."""
        mine = (line for line in self.lines if line["dataset"] == graph)
        return list(dict.fromkeys((line["y_eps"], line["x_eps"]) for line in mine))

    def values(
        self, graph: str, at: tuple[str, str], feature: str, variant: str
    ) -> dict[int, float]:
        """By repeat."""
        return {
            int(line["repeat"]): float(line[variant])
            for line in self.lines
            if (line["dataset"], (line["y_eps"], line["x_eps"]), line["feature"])
            == (graph, at, feature)
            and line[variant]
        }

    def gain(self, graph: str, at: tuple[str, str], variant: str) -> Difference | None:
        """A variant minus its own blank control; what must gain nothing has the present one's."""
        control = self.PRESENT if variant in self.NULLS else variant
        return _paired(
            self.values(graph, at, "raw", variant), self.values(graph, at, "blank", control)
        )

    def change(self, graph: str, at: tuple[str, str], variant: str) -> Difference | None:
        """A variant minus the present learner, on users with features."""
        return _paired(*(self.values(graph, at, "raw", v) for v in (variant, self.PRESENT)))

    def over_others(self, graph: str, at: tuple[str, str], variant: str) -> Difference | None:
        """A variant minus the present learner on answers of other nodes: a control with features.

        Users without features all have the same score, so that their answers look like nobody's.
        """
        return _paired(*(self.values(graph, at, "raw", v) for v in (variant, self.NULLS[1])))

    def information(self) -> Family:
        """The present learner minus itself on answers of other nodes, over all budgets."""
        places = self._places()
        return Family(tuple(self.over_others(*at, self.PRESENT) for at in places))

    def grid(self, graph: str) -> Grid:
        """The present learner's gain over its blank control, and how variants change the result."""
        budgets = self.budgets(graph)
        blocks = [
            [
                self._row("present − its blank control", graph, self.PRESENT, self.gain),
                self._row(f"present − {self.NULLS[1]}", graph, self.PRESENT, self.over_others),
            ],
            [
                self._row(f"{name} − present", graph, name, self.change)
                for name in self.variants
                if name not in self.NULLS
            ],
            [self._row(f"{name} − blank control", graph, name, self.gain) for name in self.NULLS],
        ]
        headings = [f"({x}, {value_text(y)})" for y, x in budgets]
        return Grid([title(graph), *headings], blocks)

    def _row(
        self,
        text: str,
        graph: str,
        variant: str,
        measure: Callable[[str, tuple[str, str], str], Difference | None],
    ) -> list[Shown]:
        found = [measure(graph, at, variant) for at in self.budgets(graph)]
        return [Shown(text), *(_precise(one) for one in found)]

    def changes(self, variant: str) -> Family:
        """A variant minus the present learner, over all graphs and budgets."""
        return Family(tuple(self.change(*at, variant) for at in self._places()))

    def nothing(self, variant: str) -> Family:
        """The gains of a variant over blank, over all graphs and budgets."""
        return Family(tuple(self.gain(*at, variant) for at in self._places()))

    def _places(self) -> list[tuple[str, tuple[str, str]]]:
        return [(graph, at) for graph in self.graphs for at in self.budgets(graph)]


def _paired(first: Mapping[int, float], second: Mapping[int, float]) -> Difference | None:
    return t_difference([first[r] - second[r] for r in sorted(first.keys() & second.keys())])


def _precise(found: Difference | None) -> Shown:
    """With two decimals, as the changes are small; bold where the interval excludes 0."""
    if found is None:
        return Shown(MISSING)
    half = (found.high - found.low) / 2
    return Shown(f"{found.mean:+.2f} ± {half:.2f}", found.excludes_zero)


class Shifts:
    """What ``scripts/two_round_rounding.py`` measured: how far another engine moves a repeat."""

    def __init__(self, path: Path) -> None:
        self.lines = read_lines(path)

    def __bool__(self) -> bool:
        return bool(self.lines)

    @property
    def total(self) -> int:
        return sum(int(line["repeats"]) for line in self.lines)

    @property
    def unchanged(self) -> int:
        return sum(int(line["unchanged"]) for line in self.lines)

    def largest(self, column: str) -> str:
        """The setting with the largest mean_shift or max_shift: 0.15 (CiteSeer at (8, 1))."""
        line = max(self.lines, key=lambda one: float(one[column]))
        at = f"({line['x_eps']}, {value_text(line['y_eps'])})"
        return f"{float(line[column]):.2f} ({title(line['dataset'])} at {at})"

    @property
    def graphs(self) -> list[str]:
        return list(dict.fromkeys(title(line["dataset"]) for line in self.lines))


class Diagnosis:
    """What ``scripts/two_round_ablations.py`` found about clean features, as no server can."""

    _COLUMNS: Mapping[str, str] = {
        "labels": "labels only",
        "classifier": "classifier alone",
        "right_where_labels_wrong": "right where labels are wrong",
        "wrong_where_labels_right": "wrong where they are right",
        "private": "two rounds",
        "honest": "with scores free of noise",
        "clean": "with a clean classifier",
    }

    def __init__(self, path: Path) -> None:
        self.groups: dict[tuple[str, str, str], list[dict[str, str]]] = {}
        for line in read_lines(path):
            at = (line["dataset"], line["y_eps"], line["x_eps"])
            self.groups.setdefault(at, []).append(line)

    def __bool__(self) -> bool:
        return bool(self.groups)

    def mean(self, graph: str, y_eps: str, x_eps: str, name: str) -> float:
        found = [float(line[name]) for line in self.groups[graph, y_eps, x_eps]]
        return fmean(found) if found else math.nan

    @property
    def repeats(self) -> str:
        counts = {len(lines) for lines in self.groups.values()}
        return " to ".join(str(count) for count in sorted({min(counts), max(counts)}))

    def grid(self) -> Grid:
        rows = []
        for at in self.groups:
            graph, y_eps, x_eps = at
            numbers = [f"{self.mean(*at, name):.1f}" for name in self._COLUMNS]
            rows.append([title(graph), f"({x_eps}, {value_text(y_eps)})", *numbers])
        return Grid.of_text(["Graph", "(ε_x, ε_y)", *self._COLUMNS.values()], rows, labels=2)

    def sentences(self, graphs: Iterable[str]) -> list[str]:
        """For each graph where the gain is lost: in features, classifier or answers."""
        return [text for graph in graphs if (text := self._sentence(graph))]

    def _sentence(self, graph: str) -> str:
        at = [key for key in self.groups if key[0] == graph and key[1] == "inf"]
        if not at:
            return ""
        parts = []
        for key in at:
            base = self.mean(*key, "labels")
            honest, private = (self.mean(*key, name) - base for name in ("honest", "private"))
            parts.append(
                f"at ε_x={key[2]} the classifier of round one alone is right on "
                f"{self.mean(*key, 'classifier'):.1f} % (the largest class has "
                f"{self.mean(*key, 'majority'):.1f} %) and on "
                f"{self.mean(*key, 'right_where_labels_wrong'):.1f} % of what labels get wrong; "
                f"free of noise its scores would add {honest:+.1f} points, the answers add "
                f"{private:+.1f}"
            )
        clean = self.mean(*at[0], "clean") - self.mean(*at[0], "labels")
        return (
            f"{title(graph)}, ε_y=∞: {'; '.join(parts)}; a classifier from clean features and "
            f"labels would add {clean:+.1f}."
        )
