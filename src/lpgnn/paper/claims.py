"""The paper's claims and ours, one by one, each from the rows that decide it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from lpgnn.hyperparameters import load_table
from lpgnn.paper.comparison import Judged, Verdict, compare, counts_text, stricter_rules
from lpgnn.paper.findings import WITHOUT_FEATURES, Findings, family
from lpgnn.paper.statistics import DATASETS, dataset
from lpgnn.paper.wording import (
    MISSING,
    Contest,
    Count,
    Family,
    Mean,
    apart,
    between,
    gap,
    interval,
    listed,
    mean,
    points,
    span,
)
from lpgnn.report.evidence import DAGGER, Cell, hardly_trained
from lpgnn.report.grid import Grid
from lpgnn.report.notation import value_text
from lpgnn.report.paired import Difference, holm, welch_difference
from lpgnn.report.tables import Number

MECHANISMS = ("1b", "lp", "ag", "mb")
AD_HOC = ("ones", "ohd", "rnd")
LEARNERS = ("cross_entropy", "forward", "drop")
BACKBONES = {"gcn": "GCN", "gat": "GAT", "sage": "GraphSAGE"}
BUDGETS = ("0.01", "0.1", "1", "2")
LABEL_BUDGETS = ("0.5", "1", "2")
STEPS = ("0", "2", "4", "8", "16")
EDITIONS = ("train", "train+val")
_LABELS_ONLY = "Labels only"


def title(graph: str) -> str:
    return dataset(graph).title


def known(number: Number | None) -> Mean:
    """A table's mean if all of its repeats are there."""
    if number is None or number.cell is None or not number.cell.is_finished:
        return None
    return number.summary


@dataclass(frozen=True)
class Curve:
    """Accuracy by the number of KProp steps, on features (K_x) or on labels (K_y)."""

    graph: str
    axis: str  # K_x or K_y
    budget: str  # of the features or of the labels
    values: Mapping[str, Mean]  # by steps
    authors: int  # the steps of the authors' table

    @property
    def best(self) -> str | None:
        """The steps of the highest mean; None while one is missing."""
        means = {steps: value.mean for steps, value in self.values.items() if value}
        complete = len(means) == len(self.values)
        return max(means, key=lambda steps: means[steps]) if complete else None

    def _best_over(self, steps: str) -> float | None:
        return None if self.best is None else gap(self.values[self.best], self.values[steps])

    @property
    def gain(self) -> float | None:
        return self._best_over(STEPS[0])

    @property
    def fall(self) -> float | None:
        return self._best_over(STEPS[-1])

    @property
    def falls(self) -> bool | None:
        """Whether the last mean is below the best by more than both half widths."""
        return None if self.best is None else apart(self.values[self.best], self.values[STEPS[-1]])

    def row(self) -> list[str]:
        index = self.axis[-1]
        means = [mean(value) for value in self.values.values()]
        place = [f"{self.axis}, ε_{index}={self.budget}", *means]
        last = f"{points(self.fall)}{' *' if self.falls else ''}"
        return [*place, self.best or MISSING, str(self.authors), points(self.gain), last]


@dataclass(frozen=True)
class Kept:
    """Which epochs a selection rule keeps of a computation, and how the noisy labels limit it."""

    epochs: tuple[int, ...]  # one for each repeat
    within: Count  # repeats with an epoch whose noisy accuracies keep within Acc*
    summary: Mean

    @classmethod
    def of(cls, cell: Cell, rule: str, summary: Mean) -> "Kept":
        rows = [row for row in cell.rows if row["status"] == "ok" and row.get(f"{rule}/epoch")]
        # The paper's rule alone tells whether there was one: the program's always takes the first.
        within = Count(tuple(row["paper/qualified"] == "true" for row in rows))
        return cls(cell.kept_epochs(rule), within, summary)

    @property
    def is_early(self) -> bool:
        """Whether the network has hardly been trained in at least half of the repeats."""
        return hardly_trained(self.epochs)

    def __str__(self) -> str:
        """The range of epochs: 1 to 2."""
        if not self.epochs:
            return MISSING
        return between(str(min(self.epochs)), str(max(self.epochs)))


class Claims:
    """Look-ups and judgements over the tables of the paper and beyond."""

    def __init__(self, findings: Findings, judged: Sequence[Judged]) -> None:
        self.findings, self.source, self.judged = findings, findings.source, judged

    @property
    def graphs(self) -> list[str]:
        """The graphs of the conditioned edition: those with private features at hand."""
        return list(self.findings.tables["conditioned_mechanisms"].entries["block"])

    def at(self, experiment: str, **keys: str) -> Mean:
        """The mean at a point of an experiment by its keys, with __ for a dot."""
        wanted = {key.replace("__", "."): value for key, value in keys.items()}
        results = self.source.results(experiment)
        for cell in results.cells:
            own = not cell.point.control and all(cell.keys.get(k) == v for k, v in wanted.items())
            if own and len(cell.keys) == len(wanted):
                return results.summary(cell) if cell.is_finished else None
        return None

    def number(self, table: str, *place: str) -> Number | None:
        block, row, column = place if len(place) == 3 else ("", *place)
        return self.findings.tables[table].numbers.get((block, row, column))

    def mean_at(self, table: str, *place: str) -> Mean:
        """The mean at a place of a table, by block, row and column."""
        return known(self.number(table, *place))

    def printed_at(self, table: str, *place: str) -> Mean:
        number = self.number(table, *place)
        return None if number is None else number.printed

    def text(self, table: str, axis: str, key: str) -> str:
        """How a table spells an entry of its rows or columns."""
        entry = self.findings.tables[table].entries[axis].get(key)
        return key if entry is None else entry.text

    # What is computed, and what differs from the paper.

    def computed(self, experiments: Sequence[str]) -> Grid:
        """For each graph and experiment how many of its points have all repeats."""
        rows = []
        for graph in DATASETS:
            texts = []
            for name in experiments:
                cells = [c for c in self.source.results(name).cells if c.dataset == graph]
                done = sum(cell.is_finished for cell in cells)
                texts.append("all" if cells and done == len(cells) else f"{done} of {len(cells)}")
            rows.append([title(graph), *(MISSING if t == "0 of 0" else t for t in texts)])
        return Grid.of_text(["Graph", *experiments], rows)

    @property
    def compared(self) -> list[Judged]:
        return [one for one in self.judged if one.is_computed]

    @property
    def stricter(self) -> str:
        """What stricter rules keep, and how many computations the cells are."""
        return f"{stricter_rules(self.judged)} {self.findings.distinct_blanks()}"

    def outside(self) -> Grid | None:
        """The cells that differ from the paper by more than both intervals; None without one."""
        p_values = holm([one.welch_p if one.welch_p is not None else 1.0 for one in self.compared])
        rows = [
            [
                *(one.table, title(one.cell.dataset), self._place_text(one)),
                *(interval(one.ours), str(one.printed), points(gap(one.ours, one.printed))),
                *(_split_error(one), f"{p:.3f}", one.other_verdict.text),
            ]
            for one, p in zip(self.compared, p_values, strict=True)
            if one.verdict is not Verdict.WITHIN_CIS
        ]
        headings = ["Table", "Graph", "Cell", "Ours", "Paper", "Difference"]
        headings += ["Error of a split", "Holm's p", "Other rule"]
        return Grid.of_text(headings, rows, labels=3) if rows else None

    def _place_text(self, one: Judged) -> str:
        """What tells a cell from the others of its graph."""
        _, row, column = one.number.place
        text = self.text(one.table, "row", row)
        if one.table.endswith("denoising"):
            return f"{self.text(one.table, 'column', column)}, ε_y={text}"
        return f"{text}, ε_x={column}" if one.table.endswith("mechanisms") else text

    def without_features(self) -> str:
        """LastFM's cells on blank reports beside what the paper prints with features."""
        judged = self._without_features()
        done = [one for one in judged if one.is_computed]
        if not done:
            return f"none of {len(judged)} cells is computed."
        outside = [
            f"{self._place_text(one)} {points(gap(one.ours, one.printed))}"
            for one in done
            if one.verdict is not Verdict.WITHIN_CIS
        ]
        missing = f" ({len(judged) - len(done)} missing)" if len(done) < len(judged) else ""
        text = f"{counts_text(one.verdict for one in done)}, of {len(judged)} cells{missing}"
        return f"{text}{': ' + listed(outside) if outside else ''}."

    def without_features_by_stricter_rules(self) -> str:
        return stricter_rules(self._without_features())

    def _without_features(self) -> list[Judged]:
        names = self.source.results(WITHOUT_FEATURES).experiment.tables
        return compare(self.findings.tables[name] for name in names)

    def shifts(self) -> Grid:
        """For each graph the mean difference to the paper, over its computed cells."""
        rows = []
        for graph in DATASETS:
            mine = [one for one in self.compared if one.cell.dataset == graph]
            gaps = [d for one in mine if (d := gap(one.ours, one.printed)) is not None]
            above = f"{sum(d > 0 for d in gaps)} of {len(gaps)}"
            rows.append([title(graph), points(fmean(gaps)) if gaps else MISSING, above])
        return Grid.of_text(["Graph", "Mean of ours − paper's", "Ours above"], rows)

    # The paper's claims.

    def mechanism_contests(self, *, printed: bool = False) -> list[Contest]:
        """MB against the other mechanisms, by graph and budget: ours, or as printed."""
        look, graphs = (
            (self.printed_at, DATASETS) if printed else (self.mean_at, tuple(self.graphs))
        )
        return [
            Contest(
                f"{title(graph)} at ε_x={eps}",
                "MB",
                {m.upper(): look("mechanisms", graph, m, eps) for m in MECHANISMS},
            )
            for graph in graphs
            for eps in BUDGETS
        ]

    def old_noise(self, table: str) -> str:
        """How many rows of LP and AG have noise that was drawn in floating point, by graph."""
        engines = self.findings.tables[table].noise_engines()
        counts = {title(graph): (found[""], found.total()) for graph, found in engines.items()}
        return listed([f"{old} of {total} on {name}" for name, (old, total) in counts.items()])

    def conditioned_ranges(self) -> Grid:
        """Means over the feature budgets, of conditioned reports and of the controls."""
        entries = self.findings.tables["conditioned_mechanisms"].entries["row"]
        rows = []
        for graph in self.graphs:
            row = [title(graph)]
            for name in entries:
                found = [self.number("conditioned_mechanisms", graph, name, e) for e in BUDGETS]
                asked = [known(number) for number in found if number is not None]
                row.append(self._marked(span(asked), *found))
            rows.append(row)
        return Grid.of_text(["Graph", *(entry.text for entry in entries.values())], rows)

    def conditioned_spread(self, *rows: str) -> float | None:
        """The largest difference between rows of the conditioned mechanisms table at one budget.

        None while one of their numbers is missing.
        """
        spreads = []
        for graph in self.graphs:
            for eps in BUDGETS:
                found = [self.number("conditioned_mechanisms", graph, row, eps) for row in rows]
                means = [known(number) for number in found if number is not None]
                values = [one.mean for one in means if one is not None]
                if len(values) < len(means):
                    return None
                spreads.append(max(values) - min(values))
        return max(spreads)

    def denoising_contests(self) -> list[Contest]:
        """Drop against the other losses, by graph and label budget."""
        names = {name: self.text("denoising", "column", name) for name in LEARNERS}
        return [
            Contest(
                f"{title(graph)} at ε_y={eps}",
                names["drop"],
                {names[n]: self.mean_at("denoising", graph, eps, n) for n in LEARNERS},
            )
            for graph in self.graphs
            for eps in LABEL_BUDGETS
        ]

    def feature_contests(self) -> list[Contest]:
        """MB at the smallest budget against features that cost nothing, by graph."""
        private = "MB, x_eps=0.01"
        names = {name: self.text("features", "row", name) for name in (*AD_HOC, private)}
        return [
            Contest(
                title(graph),
                names[private],
                {text: self.mean_at("features", name, graph) for name, text in names.items()},
            )
            for graph in self.graphs
        ]

    def attention_gaps(self, x_eps: str) -> dict[str, list[float | None]]:
        """GAT minus the lower of GCN and GraphSAGE, by graph, for all label budgets."""
        found: dict[str, list[float | None]] = {}
        for graph in self.graphs:
            for y_eps in ("1", "2", "3", "inf"):
                keys = {"dataset": graph, "x_eps": x_eps, "y_eps": y_eps}
                values = [self.at("budgets", backbone=name, **keys) for name in BACKBONES]
                gcn, gat, sage = values
                gaps = [gap(gat, gcn), gap(gat, sage)]
                lower = [one for one in gaps if one is not None]
                found.setdefault(graph, []).append(max(lower) if len(lower) == 2 else None)
        return found

    def attention(self, budgets: Sequence[str]) -> Grid:
        rows = []
        for eps in budgets:
            by_graph = self.attention_gaps(eps).values()
            rows.append([eps, *(_points_span(gaps) for gaps in by_graph)])
        return Grid.of_text(["ε_x", *map(title, self.graphs)], rows)

    def attention_below(self, x_eps: str) -> Count:
        """In how many pairs of graph and label budget GAT is below both other backbones."""
        gaps = [one for graph in self.attention_gaps(x_eps).values() for one in graph]
        return Count(tuple(None if one is None else one < 0 for one in gaps))

    def curves(self) -> Iterator[Curve]:
        """The curves of the KProp figure: K_x at ε_y=1, then K_y at ε_x=1."""
        table = load_table("paper")
        for graph in self.graphs:
            for axis, key, budgets in (
                ("K_x", "filter__steps", ("0.01", "0.1", "1")),
                ("K_y", "learner__steps", LABEL_BUDGETS),
            ):
                for eps in budgets:
                    x_eps, y_eps = (eps, "1") if axis == "K_x" else ("1", eps)
                    keys = {"dataset": graph, "x_eps": x_eps, "y_eps": y_eps}
                    values = {k: self.at("kprop", **keys, **{key: k}) for k in STEPS}
                    tuned = table.look_up(graph, "raw", float(x_eps), float(y_eps), 1.0).values
                    authors = tuned["x_steps" if axis == "K_x" else "y_steps"]
                    yield Curve(graph, axis, eps, values, authors)

    def curves_grid(self) -> Grid:
        blocks = []
        for graph in self.graphs:
            rows = [curve.row() for curve in self.curves() if curve.graph == graph]
            blocks.append([[title(graph) if i == 0 else "", *row] for i, row in enumerate(rows)])
        headings = ["Graph", "Curve", *STEPS, "best", "authors'", "gain over 0", "best − 16"]
        return Grid.of_text(headings, *blocks, labels=2)

    def falls(self, graph: str, axis: str) -> Count:
        found = [one for one in self.curves() if (one.graph, one.axis) == (graph, axis)]
        return Count(tuple(curve.falls for curve in found))

    def private_loss(self, graph: str, backbone: str, x_eps: str, y_eps: str) -> float | None:
        """Points between features and labels without noise and those with."""
        keys = {"dataset": graph, "backbone": backbone}
        clean = self.at("budgets", **keys, x_eps="inf", y_eps="inf")
        return gap(clean, self.at("budgets", **keys, x_eps=x_eps, y_eps=y_eps))

    def losses(self, x_eps: str, y_eps: str) -> Grid:
        rows = [
            [title(graph), *(points(self.private_loss(graph, b, x_eps, y_eps)) for b in BACKBONES)]
            for graph in self.graphs
        ]
        return Grid.of_text(["Graph", *BACKBONES.values()], rows)

    def losses_below(self, bound: float, x_eps: str, y_eps: str) -> Count:
        """Where less than so many points are lost, on all graphs but Cora, as the paper has it."""
        graphs = [graph for graph in self.graphs if graph != "cora"]
        found = [self.private_loss(g, b, x_eps, y_eps) for g in graphs for b in BACKBONES]
        return Count(tuple(None if loss is None else loss < bound for loss in found))

    def above_clean_labels(self, x_eps: str) -> list[Contest]:
        """Clean labels against private ones, by graph and backbone, at one feature budget."""
        return [
            Contest(
                f"{title(graph)}, {name}",
                "ε_y=∞",
                {
                    f"ε_y={value_text(y_eps)}": self.at(
                        "budgets", dataset=graph, backbone=backbone, x_eps=x_eps, y_eps=y_eps
                    )
                    for y_eps in ("1", "2", "3", "inf")
                },
            )
            for graph in self.graphs
            for backbone, name in BACKBONES.items()
        ]

    # The controls.

    def _row(self, table: str, row: str) -> list[Number]:
        numbers = self.findings.tables[table].numbers
        return [n for (b, r, _), n in numbers.items() if r == row and b in self.graphs]

    def multi_bit_minus_blank(self, table: str) -> Family:
        """Over the mechanisms table of the paper's protocol, or of the conditioned edition."""
        pairs = zip(self._row(table, "mb"), self._row(table, "Blank (MB)"), strict=True)
        return family(list(pairs), self.source)

    def protocol_pairs(self) -> Family:
        """MB minus blank over all of the paper's tables, each distinct pair once."""
        pairs = [
            (
                self.number("mechanisms", graph, "mb", eps),
                self.number("mechanisms", graph, "Blank (MB)", eps),
            )
            for graph in self.graphs
            for eps in BUDGETS
        ]
        pairs += [
            (
                self.number("features", f"MB, x_eps={eps}", graph),
                self.number("features", f"Blank, x_eps={eps}", graph),
            )
            for graph in self.graphs
            for eps in BUDGETS[:3]
        ]
        pairs += [
            (
                self.number("denoising", graph, eps, "drop"),
                self.number("denoising", graph, eps, "Drop on blank reports"),
            )
            for graph in self.graphs
            for eps in LABEL_BUDGETS
        ]
        distinct = {a.cell.identity: (a, b) for a, b in pairs if a and b and a.cell and b.cell}
        return family(list(distinct.values()), self.source)

    def best_printed(self, graph: str) -> Mean:
        """The highest mean that the paper's mechanisms table has for a graph."""
        cells = [self.printed_at("mechanisms", graph, m, e) for m in MECHANISMS for e in BUDGETS]
        return max((cell for cell in cells if cell), key=lambda cell: cell.mean, default=None)

    def labels_only(self, graph: str, y_eps: str) -> Mean:
        """With as many labels as a network: clean ones of training nodes, private ones of both."""
        if y_eps == "inf":
            return self.mean_at("mechanisms", graph, _LABELS_ONLY, BUDGETS[0])
        return self.mean_at("denoising", graph, y_eps, _LABELS_ONLY)

    def _printed_rival(self, graph: str, y_eps: str) -> Mean:
        if y_eps == "inf":
            return self.best_printed(graph)
        return self.printed_at("denoising", graph, y_eps, "drop")

    def labels_only_grid(self) -> Grid:
        """Labels only beside the paper's best: Drop, and with clean labels its mechanisms table."""
        budgets = (*LABEL_BUDGETS, "inf")
        rows = [
            [
                title(graph),
                *(
                    f"{mean(self.labels_only(graph, e))} | {mean(self._printed_rival(graph, e))}"
                    for e in budgets
                ),
            ]
            for graph in DATASETS
        ]
        return Grid.of_text(["Graph", *(f"ε_y={value_text(e)}" for e in budgets)], rows)

    def labels_only_above(self, *budgets: str) -> Count:
        """In how many cells labels only has a higher mean than the paper prints."""
        found = [
            gap(self.labels_only(graph, e), self._printed_rival(graph, e))
            for graph in DATASETS
            for e in budgets
        ]
        return Count(tuple(None if one is None else one > 0 for one in found))

    # Beyond the paper.

    def value_at(self, graph: str, y_eps: str, x_eps: str, column: str) -> Mean:
        return self.mean_at("value_of_features", f"{graph}, y_eps={y_eps}", x_eps, column)

    @property
    def value_budgets(self) -> list[str]:
        """The finite feature budgets of the experiment on what features are worth."""
        rows = self.findings.tables["value_of_features"].entries["row"]
        return [eps for eps in rows if math.isfinite(float(eps))]

    def _conditioning(
        self, graph: str, *, private: bool
    ) -> dict[str, tuple[Number | None, Number | None]]:
        """MB conditioned and in the paper's protocol, by both budgets, as in the paper's tables."""
        places: dict[str, tuple[str, ...]]
        if private:
            rows = {eps: f"MB, x_eps={eps}" for eps in BUDGETS[:3]}
            places = {f"({e}, 1)": ("features", row, graph) for e, row in rows.items()}
            places |= {f"(1, {y})": ("denoising", graph, y, "drop") for y in ("0.5", "2")}
        else:
            places = {f"({eps}, ∞)": ("mechanisms", graph, "mb", eps) for eps in BUDGETS}
        return {
            budgets: (self.number(f"conditioned_{table}", *at), self.number(table, *at))
            for budgets, (table, *at) in places.items()
        }

    def conditioning_gaps(self, graph: str, *, private: bool) -> dict[str, float | None]:
        """MB conditioned minus the paper's protocol, by both budgets."""
        found = self._conditioning(graph, private=private)
        return {budgets: gap(known(a), known(b)) for budgets, (a, b) in found.items()}

    def conditioning_below(self, graph: str, *, private: bool) -> Count:
        gaps = self.conditioning_gaps(graph, private=private).values()
        return Count(tuple(None if one is None else one < 0 for one in gaps))

    def conditioning_mean(self, graph: str, *, private: bool) -> float | None:
        """The mean of the differences, None while one is missing."""
        gaps = list(self.conditioning_gaps(graph, private=private).values())
        found = [one for one in gaps if one is not None]
        return fmean(found) if found and len(found) == len(gaps) else None

    def conditioning(self) -> Grid:
        """Conditioned minus the paper's protocol, by graph and budgets."""
        rows, budgets = [], dict[str, None]()
        for graph in self.graphs:
            pairs = self._conditioning(graph, private=False)
            pairs |= self._conditioning(graph, private=True)
            budgets |= dict.fromkeys(pairs)
            texts = [self._marked(points(gap(known(a), known(b))), a, b) for a, b in pairs.values()]
            rows.append([title(graph), *texts])
        return Grid.of_text(["Graph", *budgets], rows)

    def label_steps(self, graph: str) -> tuple[int | None, int]:
        """K_y at (1, 1): of the conditioned setting, and of the authors' table."""
        number = self.number("conditioned_features", "MB, x_eps=1", graph)
        found = number and number.cell and number.cell.configuration
        authors = load_table("paper").look_up(graph, "raw", 1.0, 1.0, 1.0).values["y_steps"]
        return getattr(found.learner, "steps", None) if found else None, authors

    def ablation(self, name: str) -> Kept | None:
        """A row of the ablation of the conditioned setting on Cora at (1, 1)."""
        found = self.kept("conditioned_ablation", name, "cora")
        number = self.number("conditioned_ablation", name, "cora")
        return found and replace(found, summary=known(number))

    def kept(self, table: str, *place: str, rule: str = "") -> Kept | None:
        """What a rule, else the chosen one, keeps of the computation at a place of a table."""
        number = self.number(table, *place)
        if number is None or number.cell is None or not number.cell.is_finished:
            return None
        rule = rule or self.source.selection
        summary = self.source.results("mechanisms").summary(number.cell, rule=rule)
        found = Kept.of(number.cell, rule, summary)
        return found if found.epochs else None

    def kept_early(self, graph: str, budgets: Sequence[str]) -> dict[str, Kept]:
        """Conditioned Drop at ε_y=1 where hardly any training is kept, by ε_x."""
        found = {
            eps: self.kept("conditioned_features", f"MB, x_eps={eps}", graph) for eps in budgets
        }
        return {eps: kept for eps, kept in found.items() if kept and kept.is_early}

    def _marked(self, text: str, *numbers: Number | None) -> str:
        """A text with a dagger if one of the numbers behind it is of hardly trained networks."""
        return f"{text} {DAGGER}" if any(one and one.is_early for one in numbers) else text

    def features_against_blank(self) -> Grid:
        """MB minus blank in three families: intervals above and below 0, and Holm's counts."""
        last = self.value_budgets[-1]
        families = {
            "the paper's mechanisms table": self.multi_bit_minus_blank("mechanisms"),
            "all distinct pairs of the paper's tables": self.protocol_pairs(),
            f"conditioned reports, up to ε_x={last}": self.value_of_features(),
        }
        rows = [
            [name, str(one.above), str(one.below), "{} and {}".format(*one.kept)]
            for name, one in families.items()
        ]
        headings = ["Over", "Interval above 0", "Interval below 0", "Above and below after Holm"]
        return Grid.of_text(headings, rows)

    def value_of_features(self, *graphs: str) -> Family:
        """Conditioned reports minus blank ones, over all budgets of both kinds."""
        table = self.findings.tables["value_of_features"]
        (name,) = table.spec.differences
        chosen = [f"{g}, y_eps={y_eps}" for g in graphs or self.graphs for y_eps in ("inf", "1")]
        return Family(
            tuple(
                number.difference
                for (block, _, column), number in table.numbers.items()
                if column == name and block in chosen
            )
        )

    def value_by_revision(self) -> Count:
        """How many of the MB cells of that experiment name a git revision and no engine."""
        table = self.findings.tables["value_of_features"]
        cells = [
            number.cell
            for (_, row, column), number in table.numbers.items()
            if column == "conditioned" and row in self.value_budgets and number.cell
        ]
        return Count(tuple(not all(row.get("engine") for row in c.rows) for c in cells if c.rows))

    def value_grid(self) -> Grid:
        """Ranges over the feature budgets beside features without noise."""
        rows = []
        for y_eps in ("inf", "1"):
            for graph in self.graphs:
                spans = []
                for column in ("conditioned", "blank"):
                    block = f"{graph}, y_eps={y_eps}"
                    found = [
                        self.number("value_of_features", block, eps, column)
                        for eps in self.value_budgets
                    ]
                    spans.append(self._marked(span(map(known, found)), *found))
                clean = self.value_at(graph, y_eps, "inf", "non-private")
                rows.append([title(graph), value_text(y_eps), *spans, mean(clean)])
        headings = ["Graph", "ε_y", "conditioned", "blank", "features without noise"]
        return Grid.of_text(headings, rows, labels=2)

    def equal(self, graph: str, who: str, edition: str, y_eps: str) -> Mean:
        return self.mean_at("equal_labels", graph, f"{who}, {edition}", y_eps)

    def equal_grid(self) -> Grid:
        """The table of equal labels."""
        return self.findings.tables["equal_labels"].grid()

    def equal_early(self, y_eps: str) -> list[str]:
        """The rows of that table whose networks were hardly trained: MB, train on Cora."""
        table = self.findings.tables["equal_labels"]
        return [
            f"{row} on {title(table.entries['block'][block].values[0])}"
            for (block, row, column), number in table.numbers.items()
            if column == y_eps and number.is_early
        ]

    def equal_graphs(self, row: str, y_eps: str) -> list[str]:
        """The graphs on which a row of that table is computed."""
        blocks = self.findings.tables["equal_labels"].entries["block"]
        return [title(g) for g in blocks if self.mean_at("equal_labels", g, row, y_eps)]

    def _side_by_side(
        self, first: str, second: str, y_eps: str
    ) -> dict[str, tuple[Number, Number]]:
        """Two rows of the table of equal labels, by graph, where it has both."""
        found = {}
        for graph in self.findings.tables["equal_labels"].entries["block"]:
            a, b = (self.number("equal_labels", graph, row, y_eps) for row in (first, second))
            if a is not None and b is not None:
                found[graph] = a, b
        return found

    def equal_labels(self, first: str, second: str, edition: str, y_eps: str) -> Family:
        """first minus second with as many labels, over the graphs that have both."""
        rows = (f"{first}, {edition}", f"{second}, {edition}")
        return family(list(self._side_by_side(*rows, y_eps).values()), self.source)

    def validation_labels(self, who: str, y_eps: str) -> dict[str, Difference | None]:
        """What the validation labels add to a learner, by graph: a difference of means.

        By Welch's interval: not all of these rows are of one engine, and pairs have to be.
        """
        less, more = (f"{who}, {edition}" for edition in EDITIONS)
        return {
            graph: self._unpaired(*numbers)
            for graph, numbers in self._side_by_side(more, less, y_eps).items()
        }

    def _unpaired(self, *numbers: Number) -> Difference | None:
        values = []
        for number in numbers:
            if number.cell is None or not number.cell.is_finished:
                return None
            values.append(list(number.cell.values(self.source.selection).values()))
        return welch_difference(*values)

    def validation_labels_help(self, who: str, y_eps: str) -> Count:
        """On how many graphs a learner has a higher mean with the validation labels as well."""
        found = self.validation_labels(who, y_eps).values()
        return Count(tuple(None if one is None else one.mean > 0 for one in found))

    def refits(self) -> dict[str, Difference]:
        """What the refit of a network changes at ε_y=∞, by learner and graph: one family."""
        return {
            f"{who} on {title(graph)}": by
            for who in ("MB", "Blank")
            for graph, by in self.validation_labels(who, "inf").items()
            if by is not None
        }

    def refit_moves(self, sign: int) -> list[str]:
        """The refits that raise (1) or lower (-1) the mean after Holm's correction."""
        found = self.refits()
        adjusted = zip(found.items(), holm([by.p for by in found.values()]), strict=True)
        return [f"{who} {by}" for (who, by), p in adjusted if p < 0.05 and sign * by.mean > 0]

    def rule_counts(self) -> tuple[int, int]:
        """Cells within both CIs under the chosen selection rule, and under the other."""
        ours = sum(one.verdict is Verdict.WITHIN_CIS for one in self.compared)
        return ours, sum(one.other_verdict is Verdict.WITHIN_CIS for one in self.compared)


def _split_error(one: Judged) -> str:
    """The standard error that one split of the nodes alone has: sqrt(a (1 - a) / n)."""
    facts = dataset(one.cell.dataset).facts
    if facts is None or one.ours is None:
        return MISSING
    tested = facts.num_nodes - int(facts.num_nodes * 0.5) - int(facts.num_nodes * 0.25)
    share = one.ours.mean / 100
    return f"{100 * math.sqrt(share * (1 - share) / tested):.1f}"


def _points_span(gaps: Sequence[float | None]) -> str:
    """The range of differences: −22.1 to −17.0."""
    found = [one for one in gaps if one is not None]
    if not found:
        return MISSING
    low, high = points(min(found)), points(max(found))
    missing = f" ({len(gaps) - len(found)} missing)" if len(found) < len(gaps) else ""
    return between(low, high) + missing
