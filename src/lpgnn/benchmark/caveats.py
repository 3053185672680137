"""What has to be known to read the standings, as far as the rows show it."""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from lpgnn.benchmark.plan import Plan
from lpgnn.benchmark.standings import Standing
from lpgnn.report.evidence import EARLY
from lpgnn.report.grid import Grid
from lpgnn.report.notation import canonical, value_text

LATE = 0.95  # of all epochs: a network that is kept later may not have learned all that it can

LABELS = (
    "Not all learn from as many labels. Where labels are private, Drop and RGNN make their targets "
    "of the reports of training and validation nodes, and the residual learner, labels only and "
    "two rounds propagate both; the other learners learn from the training nodes' alone. With "
    "clean labels all learn from the training nodes'."
)


def search_text(plan: Plan) -> str:
    """How hyper-parameters are found, and for whom they are not."""
    protocol = plan.protocol
    without = [e.title for e in plan.entries.values() if e.trials == 0 and not e.is_control]
    at = ", ".join(f"{key}={value}" for key, value in protocol.search_at.items())
    return (
        f"Hyper-parameters: {protocol.trials} candidates for each graph and label budget, at {at}, "
        "judged by the mean loss on noisy validation labels over "
        f"{protocol.collections} collections (splits and reports) that no result comes from. All "
        "entries try the same values of the settings that they share. Those that differ in nothing "
        "but their mechanism also share the candidate that is best on average over all of lpgnn's "
        "mechanisms, each on a collection of its own. Chance decides between candidates "
        "that are close: the difference between two learners or filters holds for the values that "
        "were found, and no interval here contains the luck of the search. The controls on blank "
        "reports have the values of what they stand beside. No search: "
        f"{'; '.join(without) or 'none'}."
    )


def epochs(found: Sequence[Standing], rule: str) -> Grid | None:
    """Which networks were kept late or early, by graph and label budget."""
    rows = []
    for (dataset, y_eps), group in groupby(found, key=lambda one: (one.dataset, one.y_eps)):
        networks = [
            (epoch, one.cell.configuration.max_epochs)
            for one in group
            if one.cell.configuration is not None
            for epoch in one.cell.kept_epochs(rule)
        ]
        if networks:
            late = sum(epoch >= LATE * last for epoch, last in networks) / len(networks)
            early = sum(epoch <= EARLY for epoch, _ in networks) / len(networks)
            shares = (f"{late:.0%}".replace("%", " %"), f"{early:.0%}".replace("%", " %"))
            rows.append([dataset, value_text(canonical(y_eps)), f"{len(networks):,}", *shares])
    headings = ["Graph", "ε_y", "Networks", "Kept at the end", f"Kept by epoch {EARLY}"]
    return Grid.of_text(headings, rows, labels=2) if rows else None


def engines(found: Sequence[Standing]) -> str:
    """Which engines the shown rows come from; pairs are of one engine each."""
    counts = Counter(str(row["engine"]) for one in found for row in one.cell.rows)
    if len(counts) < 2:
        return ""
    listed = ", ".join(f"{name} ({count:,})" for name, count in counts.most_common())
    return (
        f"The rows come from {len(counts)} engines, which round sums differently: {listed}. "
        "No difference between two engines is taken as paired."
    )
