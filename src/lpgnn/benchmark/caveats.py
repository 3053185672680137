"""What has to be known to read the standings, as far as the rows show it."""

import itertools
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from statistics import fmean, median

from lpgnn.benchmark.plan import LABELS_ONLY, Judged, Plan
from lpgnn.benchmark.standings import Standing
from lpgnn.report.evidence import DAGGER, DOUBLE_DAGGER, EARLY
from lpgnn.report.grid import Grid
from lpgnn.report.notation import canonical, value_text

LATE = 0.95  # of all epochs: a network that is kept later may not have learned all that it can

MARKS = (
    f"{DAGGER}: the median of the kept epochs is at most {EARLY}; the networks have hardly "
    f"learned. {DOUBLE_DAGGER}: at least half of the networks have no epoch within Acc*; the epoch "
    "of the lowest loss had to do."
)

RANGES = (
    "ε_x is what a node spends on its features. Their ranges count as public, as in the paper, and "
    "are the minima and maxima of a graph's own columns: nothing is spent on them."
)

LABELS = (
    "Not all learn from as many labels. Where labels are private, Drop and RGNN make their targets "
    "of the reports of training and validation nodes, and the residual learner, labels only and "
    "two rounds propagate both; lpgnn's other learners learn from the training nodes' alone. With "
    "clean labels all learn from the training nodes'."
)

CHANCE = (
    "ROC AUC is 50 by chance, and many intervals reach it: those of {}. A difference between "
    "methods there is mostly one between networks that learned and networks that did not."
)
LABELS_AT_CHANCE = (
    "Labels only is at chance itself on {}: to be above it there is to be above chance."
)
# Two entries may be one computation by different names.
REPEATED = (
    "On graphs with two classes subset selection is randomized response, with the same draws. With "
    "the same hyper-parameters its entries repeat the numbers of those with randomized response up "
    "to rounding, and their cells are counted again; with others, what differs is the search."
)


def search_text(plan: Plan) -> str:
    """How hyper-parameters are found, and for whom they are not."""
    protocol = plan.protocol
    without = [e.title for e in plan.entries.values() if e.trials == 0 and not e.is_control]
    at = ", ".join(f"{key}={value}" for key, value in protocol.search_at.items())
    return (
        f"Hyper-parameters: {protocol.trials} candidates for each graph and label budget, at {at}, "
        "judged by the mean loss on the validation nodes' reported labels (clean ones at ε_y=∞) "
        f"over {protocol.collections} collections (splits and reports) that no result comes from. "
        "A network without an epoch within Acc* has fitted the noise: it is scored by its loss at "
        "the epoch that the authors' rule keeps, where that is higher. "
        "All entries try the same values of the settings that they share. Those that differ in "
        "nothing but their feature mechanism also share one candidate, the best on average over "
        "lpgnn's feature mechanisms, each on a collection of its own. "
        "The two best candidates differ by "
        f"less than a standard error in {plan.close_calls()} of {len(plan.judged)} searches: the "
        "difference between two learners or filters holds for the values that were found, and no "
        "interval here accounts for the randomness of the search. The controls on blank reports "
        "have the values of what they stand beside. "
        f"{_of_two_engines(plan)}"
        "Budgets are those of the collection that is reported; "
        "if the same people also took part in those of a search, each would cost its budget again. "
        f"No search: {'; '.join(without) or 'none'}."
    )


def _of_two_engines(plan: Plan) -> str:
    mixed = sum(
        len({row["engine"] for one in tried for row in one.rows}) > 1
        for tried in plan.judged.values()
    )
    if not mixed:
        return ""
    return f"The candidates of {mixed} of these searches were computed by more than one engine. "


def searches(plan: Plan) -> Grid | None:
    """How good what the searches chose was by test labels, which they did not see."""
    rows, protocol = [], plan.protocol
    for dataset, y_eps in itertools.product(protocol.datasets, protocol.y_eps):
        worth = {
            name: worth
            for (name, *place), tried in plan.judged.items()
            if place == [dataset, y_eps] and (worth := _worth(tried, plan, dataset)) is not None
        }
        if worth:
            together = worth.get("")
            shared = [f"{together[0]:.0f}", f"{together[1]:.1f}"] if together else ["–", "–"]
            places, behind, noisy = zip(*worth.values(), strict=True)
            means = [f"{fmean(places):.0f}", f"{fmean(behind):.1f}"]
            label_budget = value_text(canonical(y_eps))
            rows.append([dataset, label_budget, str(len(worth)), *means, *shared, str(sum(noisy))])
    headings = ["Graph", "ε_y", "Searches", "Place", "Behind", "Shared: place", "Shared: behind"]
    return Grid.of_text([*headings, "None within Acc*"], rows, labels=2) if rows else None


def _worth(tried: Sequence[Judged], plan: Plan, dataset: str) -> tuple[float, float, bool] | None:
    """Of the first candidate: place among the others in percent, points behind, and all noise."""
    tests = _tests(tried, plan, dataset)
    if tests is None:
        return None
    first, *others = tests
    beaten = fmean((first > other) + 0.5 * (first == other) for other in others)
    return 100 * beaten, max(tests) - first, _fits_noise(tried[0], plan)


def _tests(tried: Sequence[Judged], plan: Plan, dataset: str) -> list[float] | None:
    """Mean test metrics of candidates; None where some have none."""
    column = f"{plan.protocol.selection}/test/{plan.protocol.metrics[dataset]}"
    if not all(row.get(column) for one in tried for row in one.rows):
        return None
    return [fmean(float(row[column]) for row in one.rows) for one in tried]


def missed(plan: Plan) -> str:
    """The searches that chose networks which have all fitted the noise before others that had not.

    With test metrics, which they did not see: of what they chose, and of the first of the others.
    """
    found = []
    for (name, dataset, _), (first, *others) in plan.judged.items():
        better = next((one for one in others if not _fits_noise(one, plan)), None)
        if better is None or not _fits_noise(first, plan):
            continue
        if (tests := _tests([first, better], plan, dataset)) is not None:
            title = plan.entries[name].title if name else "the shared search"
            found.append(f"{title} on {dataset} ({tests[0]:.1f}, {tests[1]:.1f})")
    return "; ".join(found)


def _fits_noise(one: Judged, plan: Plan) -> bool:
    return all(row[f"{plan.protocol.selection}/qualified"] == "false" for row in one.rows)


def epochs(found: Sequence[Standing], rule: str) -> Grid | None:
    """Which networks were kept late or early, by graph and label budget."""
    rows = []
    for (dataset, y_eps), group in groupby(found, key=lambda one: (one.dataset, one.y_eps)):
        here = list(group)
        networks = [
            (epoch, one.cell.configuration.max_epochs)
            for one in here
            if one.cell.configuration is not None
            for epoch in one.cell.kept_epochs(rule)
        ]
        noisy = [noise for one in here for noise in one.cell.fitted_noise(rule)]
        if networks:
            late = sum(epoch >= LATE * last for epoch, last in networks) / len(networks)
            early = sum(epoch <= EARLY for epoch, _ in networks) / len(networks)
            shares = [f"{100 * share:.0f} %" for share in (late, early, fmean(noisy))]
            rows.append([dataset, value_text(canonical(y_eps)), f"{len(networks):,}", *shares])
    headings = ["Graph", "ε_y", "Networks", "Kept at the end", f"Kept by epoch {EARLY}"]
    return Grid.of_text([*headings, "No epoch within Acc*"], rows, labels=2) if rows else None


def engines(found: Sequence[Standing]) -> str:
    """Which engines the shown rows come from; pairs are of one engine each."""
    counts = Counter(str(row["engine"]) for one in found for row in one.cell.rows)
    if len(counts) < 2:
        return ""
    listed = ", ".join(
        f"{name or 'from before they had names'} ({count:,})"
        for name, count in counts.most_common()
    )
    return (
        f"The rows come from {len(counts)} engines, which round sums differently: {listed}. "
        "Networks of two engines are not paired; what trains no network (labels only, two rounds) "
        "is paired with those of any engine."
    )


def chance(found: Sequence[Standing]) -> str:
    """Where a ROC AUC may be 50, which is chance, by graph and label budget; "" for nowhere."""
    lines, only = [], []
    for (dataset, y_eps), group in groupby(found, key=lambda one: (one.dataset, one.y_eps)):
        measured = [one for one in group if one.metric == "roc_auc"]
        where = f"{dataset} at ε_y={value_text(canonical(y_eps))}"
        own = [one for one in measured if one.rank is not None]
        if reached := sum(map(_reaches_chance, own)):
            lines.append(f"{reached} of {len(own)} cells on {where}")
        if any(one.entry.name == LABELS_ONLY and _reaches_chance(one) for one in measured):
            only.append(where)
    if not lines:
        return ""
    text = CHANCE.format(" and ".join(lines))
    return f"{text} {LABELS_AT_CHANCE.format(' and '.join(only))}" if only else text


def _reaches_chance(one: Standing) -> bool:
    return one.summary.mean - (one.summary.ci or 0.0) <= 50


def power(found: Sequence[Standing]) -> Grid | None:
    """What a graph's correction can show, and what stands at 5 % without it."""
    compared = [one for one in found if one.blank is not None]
    families = Counter(one.dataset for one in compared)
    rows = []
    for (dataset, y_eps), group in groupby(compared, key=lambda one: (one.dataset, one.y_eps)):
        own = [one.blank.difference for one in group if one.blank is not None]
        least = median(one.least_shown(0.05 / families[dataset]) for one in own)
        above, below = sum(one.above_zero for one in own), sum(one.below_zero for one in own)
        label_budget = value_text(canonical(y_eps))
        rows.append([dataset, label_budget, *map(str, (len(own), f"{least:.1f}", above, below))])
    headings = ["Graph", "ε_y", "Cells", "Least gain", "Above blank at 5 %", "Below blank at 5 %"]
    return Grid.of_text(headings, rows, labels=2) if rows else None
