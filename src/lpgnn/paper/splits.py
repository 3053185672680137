"""What a total budget is best spent on: the experiment ``budget_split``, summed up."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lpgnn.paper.statistics import DATASETS, dataset
from lpgnn.paper.wording import between, listed
from lpgnn.report.build import tables_of
from lpgnn.report.evidence import Cell, Results, Source
from lpgnn.report.grid import Grid, Shown
from lpgnn.report.notation import as_number
from lpgnn.report.paired import holm
from lpgnn.report.tables import Number, Table

EXPERIMENT = "budget_split"
SPLIT = "What a total budget is best spent on"
NOTE = (
    "the features' share with the highest mean; 0: all on labels, as a network on blank reports or "
    "as labels only (marked *). Bold: the best share is above both, by paired t tests at 5 % after "
    "Holm's rule over all shares of the cell against both"
)
_LEARNERS = {"budget_split": "paper's protocol", "budget_split_residual": "residual learner"}


@dataclass(frozen=True)
class Best:
    """The best split of one total on one graph."""

    share: str
    by_network: bool  # not by labels only
    text: str
    shares: tuple[str, ...]  # that were tried, 0 among them
    # Features' share above 0, and above all on labels after Holm's rule; None: not known.
    features_pay: bool | None

    def show(self) -> Shown:
        return Shown(self.text, bool(self.features_pay))


BestSplits = dict[str, dict[str, dict[str, Best | None]]]  # by learner, graph and total


def best_split(numbers: Iterable[Number], results: Results) -> Best | None:
    """The best of the columns of a row; None while one is missing, or if none has a share."""
    columns = {n.place[2]: n for n in numbers if n.cell is not None}
    means = {c: n.summary.mean for c, n in columns.items() if n.summary is not None}
    if len(means) < len(columns) or not any(map(_shares, columns)):
        return None
    shares = tuple(column for column in columns if as_number(column) is not None)
    first = max(means, key=lambda column: means[column])
    by_network = first in shares
    if not _shares(first):
        text = f"0: {means[first]:.1f}" + ("" if by_network else " *")
        return Best("0", by_network, text, shares, False)
    pays = _above_both(first, {column: n.cell for column, n in columns.items() if n.cell}, results)
    return Best(first, True, f"{first}: {means[first]:.1f}", shares, pays)


def _above_both(first: str, cells: Mapping[str, Cell], results: Results) -> bool | None:
    """Whether a share is above what spends nothing on features, after Holm's rule.

    It goes over every share against both of them: the highest mean was chosen among the shares.
    """
    rivals = [column for column in cells if not _shares(column)]
    tried = [(share, rival) for share in cells if _shares(share) for rival in rivals]
    found = {pair: results.difference(cells[pair[0]], cells[pair[1]]) for pair in tried}
    known = {pair: one for pair, one in found.items() if one is not None}
    adjusted = dict(zip(known, holm([one.p for one in known.values()]), strict=True))
    own = [pair for pair in tried if pair[0] == first]
    kept = [adjusted[pair] < 0.05 and known[pair].mean > 0 for pair in own if pair in known]
    return None if all(kept) and len(known) < len(found) else all(kept)


def _places(where: Sequence[str]) -> str:
    return "on " + "; on ".join(where) if where else "nowhere"


def _shares(column: str) -> bool:
    """Whether a column spends something on features."""
    return bool(as_number(column))


def best_splits(source: Source) -> BestSplits:
    """The best split of every total of the experiment's tables."""
    results = source.results(EXPERIMENT)
    tables: dict[str, Table] = tables_of(results) if results.has_rows else {}
    return {
        _LEARNERS[name]: {
            entry.text: {
                total: best_split(
                    (n for (b, r, _), n in table.numbers.items() if (b, r) == (block, total)),
                    results,
                )
                for total in table.entries["row"]
            }
            for block, entry in table.entries["block"].items()
        }
        for name, table in tables.items()
    }


def splits_grid(found: BestSplits) -> Grid | None:
    """Learners and graphs by total budget; None without a number."""
    blocks, totals = [], dict[str, None]()
    for learner, graphs in found.items():
        blocks.append(
            [
                [
                    Shown(learner if i == 0 else ""),
                    Shown(graph),
                    *(Shown("–") if best is None else best.show() for best in row.values()),
                ]
                for i, (graph, row) in enumerate(graphs.items())
            ]
        )
        totals |= dict.fromkeys(total for row in graphs.values() for total in row)
    if not any(
        best for graphs in found.values() for row in graphs.values() for best in row.values()
    ):
        return None
    return Grid(["", "Dataset", *(f"total {total}" for total in totals)], blocks, labels=2)


def splits_computed(source: Source) -> str:
    """What was computed: a sentence for each learner, the shares by graph and total budget."""
    tables = tables_of(source.results(EXPERIMENT))
    sentences = [
        f"Computed for the {_LEARNERS[name]}, shares at totals: {', '.join(_computed(table))}."
        for name, table in tables.items()
    ]
    present = {graph for table in tables.values() for graph in table.entries["block"]}
    absent = [dataset(graph).title for graph in DATASETS if graph not in present]
    if absent:
        sentences.append(
            f"{listed(absent)} is absent: without private features only all on labels could stand "
            "there."
        )
    return " ".join(sentences)


def splits_steps(source: Source) -> str:
    """The steps that networks of the first table take: a dataset may suggest its own."""
    (name, learner), *_ = _LEARNERS.items()
    tables = tables_of(source.results(EXPERIMENT))
    found: dict[str, tuple[set[int], set[int]]] = {}
    for number in tables[name].numbers.values():
        known = number.cell.configuration if number.cell else None
        if known is not None and known.filter is not None and known.learner.uses_network:
            x_steps, y_steps = found.setdefault(known.dataset.name, (set(), set()))
            x_steps.add(known.filter.options()["steps"])
            y_steps.add(known.learner.options().get("steps", 0))
    parts = [
        f"{dataset(graph).title} {_range(x_steps)} and {_range(y_steps)}"
        for graph, (x_steps, y_steps) in found.items()
    ]
    return f"Steps K_x and K_y of the networks in the {learner}: {', '.join(parts)}."


def _range(steps: set[int]) -> str:
    return between(str(min(steps)), str(max(steps)))


def _computed(table: Table) -> Iterator[str]:
    """For each graph the shares that have rows, totals with the same ones together."""
    for block, entry in table.entries["block"].items():
        totals: dict[str, list[str]] = {}
        for total in table.entries["row"]:
            numbers = (n for (b, r, _), n in table.numbers.items() if (b, r) == (block, total))
            done = [n.place[2] for n in numbers if n.cell and n.summary]
            shares = "/".join(column for column in done if as_number(column) is not None)
            totals.setdefault(shares or "".join(done) or "nothing", []).append(total)
        parts = (f"{shares} at {', '.join(at)}" for shares, at in totals.items())
        yield f"{entry.text} ({'; '.join(parts)})"


def splits_sentences(found: BestSplits) -> list[str]:
    """Where all on labels is best, and where a share for features is, beyond the intervals."""
    sentences = []
    for learner, graphs in found.items():
        pairs = [best for row in graphs.values() for best in row.values()]
        known = [best for best in pairs if best is not None]
        if not known:
            continue
        most = max(len(best.shares) for best in known)
        fewer = {best.shares for best in known if len(best.shares) < most}
        scope = f" that are complete, of {len(pairs)}" if len(known) < len(pairs) else ""
        if fewer:
            count = sum(best.shares in fewer for best in known)
            tried = " or ".join("/".join(shares) for shares in sorted(fewer))
            scope += f"; {count} of these have only the shares {tried}"
        on_labels = [best for best in known if not _shares(best.share)]
        networks = sum(best.by_network for best in on_labels)
        paying = {
            graph: [total for total, best in row.items() if best and best.features_pay]
            for graph, row in graphs.items()
        }
        open_ones = sum(best.features_pay is None for best in known)
        where = [f"{graph} at {', '.join(totals)}" for graph, totals in paying.items() if totals]
        sentences.append(
            f"{learner[:1].upper()}{learner[1:]}: all on labels has the highest mean in "
            f"{len(on_labels)} of {len(known)} pairs of graph and total budget{scope} (labels only "
            f"{len(on_labels) - networks}, the network on blank reports {networks}); a share for "
            f"features is above it, after Holm's correction, {_places(where)}"
            f"{f' ({open_ones} not known)' if open_ones else ''}."
        )
    return sentences
