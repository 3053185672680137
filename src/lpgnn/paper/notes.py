"""``NOTES.md`` and sentences of the documents: templates filled with claims; no number is typed."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from lpgnn.errors import InputError
from lpgnn.hyperparameters import TUNING_SEED, load_table
from lpgnn.paper import wording
from lpgnn.paper.best import best_accuracies, best_grid, best_note, best_sentences
from lpgnn.paper.claims import Claims, title
from lpgnn.paper.comparison import counts_text
from lpgnn.paper.findings import BEYOND_EXPERIMENTS, PAPER_EXPERIMENTS
from lpgnn.paper.hops import GRID_NOTE, NETWORKS_NOTE, Hops
from lpgnn.paper.phase import FROM_NOTE, Phases
from lpgnn.paper.rounds import (
    ABLATIONS,
    DIAGNOSIS,
    SHIFTS,
    Ablations,
    Diagnosis,
    Shifts,
    TwoRounds,
    read_lines,
)
from lpgnn.paper.statistics import DATASETS
from lpgnn.paper.wording import MISSING, between, listed
from lpgnn.report.evidence import DAGGER, EARLY
from lpgnn.report.grid import Grid
from lpgnn.report.notation import value_text
from lpgnn.report.templates import markdown_templates
from lpgnn.rows import RowStore, write_atomically

ROUNDING, CHECK = "rounding.csv", "independent_check.csv"
# The tables that lpgnn.tune found, not the authors.
TUNED = ("conditioned", "residual")
_FILTERS = {"kprop": "paper's protocol", "conditioned": "conditioned"}


def write_notes(claims: Claims) -> None:
    write_atomically(claims.source.results_dir / "NOTES.md", fill("notes.md.j2", claims))


def fill(template: str, claims: Claims) -> str:
    """Fill a Markdown template of this package with claims and the words for them."""
    environment = markdown_templates("paper")
    names = ("mean", "interval", "points", "span", "listed", "verdict", "wins", "clearly_loses")
    environment.filters |= {name: getattr(wording, name) for name in names}
    environment.filters["grid"] = lambda grid: grid.to_markdown().rstrip("\n")
    environment.filters |= {f.__name__: f for f in (best_grid, best_note, best_sentences)}
    environment.filters["early_mark"] = lambda kept: f" {DAGGER}" if kept.is_early else ""
    environment.filters["size"] = lambda value: MISSING if value is None else f"{value:.1f}"
    folder = claims.source.results_dir
    tuned_on = sorted({graph for name in TUNED for graph in load_table(name).steps})
    return environment.get_template(template).render(
        c=claims,
        findings=claims.findings,
        claim=wording.claim,
        gap=wording.gap,
        title=title,
        all_graphs=DATASETS,
        selection=claims.source.selection,
        verdicts=counts_text(one.verdict for one in claims.compared),
        other_verdicts=counts_text(one.other_verdict for one in claims.compared),
        paper_experiments=PAPER_EXPERIMENTS,
        beyond_experiments=BEYOND_EXPERIMENTS,
        rounding=Rounding(folder / ROUNDING),
        tuning=TuningRows(folder / "tuning"),
        early=EARLY,
        dagger=DAGGER,
        check=IndependentCheck(folder / CHECK),
        best=best_accuracies(claims.source),
        rounds=TwoRounds(claims.source),
        phases=Phases(claims.source),
        from_note=FROM_NOTE,
        hops=Hops(claims.source),
        hops_note=GRID_NOTE,
        networks_note=NETWORKS_NOTE,
        ablations=Ablations(folder / ABLATIONS),
        diagnosis=Diagnosis(folder / DIAGNOSIS),
        shifts=Shifts(folder / SHIFTS),
        hparams={name: hyperparameters(name) for name in TUNED},
        tuned_on=tuned_on,
        benchmark=benchmark_section(folder, "notes"),
        tuned_titles=[title(graph) for graph in tuned_on],
    )


def benchmark_section(results_dir: Path, name: str) -> str:
    """A section that ``python -m lpgnn.benchmark`` writes to a file of its own."""
    path = results_dir / "benchmark" / f"{name}.md"
    return path.read_text("utf-8").rstrip("\n") if path.is_file() else "Nothing is computed yet."


class Rounding:
    """What ``scripts/rounding.py`` measured: how far one last bit moves a repeat's accuracy."""

    def __init__(self, path: Path) -> None:
        self.lines = read_lines(path)

    def __bool__(self) -> bool:
        return bool(self.lines)

    def largest(self, kind: str) -> float | None:
        """The largest shift of a single repeat; ``kind``: kprop or conditioned."""
        shifts = [float(line["max_shift"]) for line in self.lines if line["filter"] == kind]
        return max(shifts, default=None)

    @property
    def of_a_graph(self) -> int:
        """How many settings the script has for a graph, by the graph with most."""
        return max(Counter(line["dataset"] for line in self.lines).values())

    def repeats(self) -> str:
        return listed(sorted({line["repeats"] for line in self.lines}))

    def graphs(self, kind: str) -> list[str]:
        """The graphs with a measured setting of a kind."""
        return list(
            dict.fromkeys(title(line["dataset"]) for line in self.lines if line["filter"] == kind)
        )

    def covered(self, graphs: Iterable[str]) -> list[str]:
        """How many settings of each graph are measured."""
        counts = Counter(line["dataset"] for line in self.lines)
        return [f"{counts[graph]} on {title(graph)}" for graph in graphs]

    def untouched(self) -> dict[str, list[str]]:
        """Conditioned settings at ε_y=1 in which no repeat moved at all: ε_x by graph."""
        found: dict[str, list[str]] = {}
        for line in self.lines:
            still = line["unchanged"] == line["repeats"]
            if still and (line["filter"], line["y_eps"]) == ("conditioned", "1"):
                found.setdefault(line["dataset"], []).append(line["x_eps"])
        return found

    def grid(self) -> Grid:
        """Mean and largest shift, by graph, protocol and budgets."""
        budgets = list(dict.fromkeys(line["x_eps"] for line in self.lines))
        found: dict[tuple[str, str, str], dict[str, str]] = {}
        for line in self.lines:
            place = (line["dataset"], line["filter"], line["y_eps"])
            shift = f"{float(line['mean_shift']):.1f} ({float(line['max_shift']):.1f})"
            found.setdefault(place, {})[line["x_eps"]] = shift
        rows = [
            [title(graph), _FILTERS[kind], value_text(y_eps)]
            + [shifts.get(eps, MISSING) for eps in budgets]
            for (graph, kind, y_eps), shifts in found.items()
        ]
        headings = ["Graph", "Reports", "ε_y", *(f"ε_x={eps}" for eps in budgets)]
        return Grid.of_text(headings, rows, labels=3)


class TuningRows:
    """The rows of the searches for hyper-parameters: which collections they learnt from.

    Searches on a user's own graph are none of the paper's: what is no choice of ``dataset`` is left
    out.
    """

    def __init__(self, folder: Path) -> None:
        store = RowStore(folder)
        self.by_graph = {name: store.read(name) for name in store.datasets() if _is_choice(name)}

    def __bool__(self) -> bool:
        return bool(self.by_graph)

    def collections(self, *, reported: bool) -> list[str]:
        """Graph, seed and split of each search; reported: on seeds that results also have."""
        found = []
        for graph, rows in self.by_graph.items():
            kinds: dict[str, list[int]] = {}
            for row in rows:
                if (int(row["seed"]) < TUNING_SEED) == reported:
                    kinds.setdefault(row["split"], []).append(int(row["seed"]))
            for split, seeds in sorted(kinds.items()):
                which = between(str(min(seeds)), str(max(seeds)))
                which = f"seed {which}" if len(set(seeds)) == 1 else f"seeds {which}"
                found.append(f"{title(graph)} ({which}, split={split}, {len(seeds)} rows)")
        return found


def _is_choice(graph: str) -> bool:
    try:
        title(graph)
    except InputError:
        return False
    return True


class IndependentCheck:
    """What ``scripts/independent_check.py`` found, which imports nothing of this package."""

    def __init__(self, path: Path) -> None:
        self.lines = {line["reports of"]: line for line in read_lines(path)}

    def __bool__(self) -> bool:
        return bool(self.lines)

    def holds_zero(self, name: str) -> bool:
        """Whether the interval of own features minus this one holds 0."""
        line = self.lines[name]
        return abs(float(line["own_minus_this"])) <= float(line["its_half_width"])

    def grid(self) -> Grid:
        rows = [
            [
                name,
                f"{float(line['mean']):.1f} ± {float(line['half_width']):.1f}",
                f"{float(line['own_minus_this']):+.1f} ± {float(line['its_half_width']):.1f}",
            ]
            for name, line in self.lines.items()
        ]
        return Grid.of_text(["Reports of", "Accuracy", "Own features minus this"], rows)


def hyperparameters(name: str) -> Grid:
    """A table of conf/hyperparameters, a line for each of its entries."""
    table = load_table(name)
    rows = []
    for by_x in table.training.values():
        for x_kind, by_y in by_x.items():
            for y_kind, entries in by_y.items():
                budgets = f"ε_x {_kind_text(x_kind)}, ε_y {_kind_text(y_kind)}"
                for graph, (rate, decay, dropout) in entries.items():
                    values = f"learning rate {rate}, weight decay {decay}, dropout {dropout}"
                    rows.append([title(graph), budgets, values])
    for graph, by_x in table.steps.items():
        for x_eps, by_y in by_x.items():
            for y_eps, (x_steps, y_steps) in by_y.items():
                at = f"ε_x={float(x_eps):g}, ε_y={value_text(f'{float(y_eps):g}')}"
                rows.append([title(graph), at, f"K_x = {x_steps}, K_y = {y_steps}"])
    return Grid.of_text(["Graph", "Budgets", f"`conf/hyperparameters/{name}.yaml`"], rows)


def _kind_text(kind: str) -> str:
    return value_text(kind) if kind == "inf" else kind
