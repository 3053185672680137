"""Rows that look like wanted ones but no longer count."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence

from lpgnn.config import KINDS, component_name
from lpgnn.rows import Row, RowStore, recorded_source
from lpgnn.sweeps.tasks import Part


def outdated_rows(
    work: Sequence[Part], store: RowStore, sources: Mapping[str, str] | None = None
) -> Counter[str]:
    """Reasons, with the number of rows that each puts aside.

    Such rows agree with a wanted run in every name and value, and differ in what is behind them:
    the graph, the source of a component, or that of a metric.  sources: of the wanted metrics
    """
    reasons: Counter[str] = Counter()
    wanted: dict[tuple[str, ...], list[tuple[str, dict[str, str]]]] = {}
    for configuration, missing in work:
        if missing:
            columns = {key: str(value) for key, value in configuration.columns().items()}
            alike = wanted.setdefault(_named_values(columns), [])
            alike.append((configuration.identity, columns))
    for dataset in sorted({configuration.dataset.name for configuration, _ in work}):
        for row in store.stream(dataset) if wanted else ():
            for identity, columns in wanted.get(_named_values(row), ()):
                reason = _why_outdated(row, identity, columns, sources or {})
                if reason:
                    reasons[reason] += 1
    return reasons


def _why_outdated(
    row: Row, identity: str, columns: Mapping[str, str], sources: Mapping[str, str]
) -> str:
    if row["id"] != identity:
        return _what_changed(row, columns)
    stale = [name for name, s in sources.items() if recorded_source(row, name) not in ("", s)]
    return f"the source of metrics.{stale[0]} has changed" if stale else ""


def _named_values(columns: Mapping[str, str]) -> tuple[str, ...]:
    names = ("x_eps", "y_eps", "learning_rate", "weight_decay", "dropout")
    numbers = (*names, "max_epochs", "hidden_dim", "split", "seed")
    components = (component_name(columns, kind) for kind in KINDS)
    return (*components, *(columns[name] for name in numbers))


def _what_changed(row: Mapping[str, str], columns: Mapping[str, str]) -> str:
    """What a row was computed from that is different now; empty for any other difference."""
    before, now = (_options(one["options"]) for one in (row, columns))
    changed = {key for key in before.keys() | now.keys() if before.get(key) != now.get(key)}
    # A component whose source has changed may have other options now.
    edited = {key.removesuffix(".source") for key in changed if key.endswith(".source")}
    if any(key.partition(".")[0] not in edited for key in changed):
        return ""
    sources = [f"the source of {kind} has changed" for kind in edited]
    if row["fingerprint"] != columns["fingerprint"]:
        found = f"{row['fingerprint']}, now {columns['fingerprint']}"
        sources.append(f"{columns['dataset']} was another graph (fingerprint {found})")
    return " and ".join(sorted(sources)) or "they belong to another version of the science"


def _options(text: str) -> dict[str, object]:
    """The options of components; a metric plays no part in the identity."""
    options = json.loads(text or "{}")
    return {key: value for key, value in options.items() if not key.startswith("metrics.")}
