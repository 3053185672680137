"""Which runs of a computation are done: they have a row with all that is asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lpgnn.rows.metrics import recorded_source
from lpgnn.rows.outputs import output_files
from lpgnn.rows.schema import RULES
from lpgnn.rows.store import RowStore


@dataclass(frozen=True)
class Computation:
    """What rows know of a configuration."""

    identity: str
    dataset: str
    has_truth: bool = True  # whether there are clean labels to evaluate with


def missing_repeats(
    computation: Computation,
    repeats: int,
    store: RowStore,
    *,
    metric: str = "acc",
    sources: Mapping[str, str] | None = None,
    save: Sequence[str] = (),
    force: bool = False,
    engine: str | None = None,
) -> tuple[int, ...]:
    """The repeats that the store does not hold, or not with this metric or these files.

    sources: of metrics that are not the defaults, which are wanted as well (``metric_sources``);
    force: no row counts; engine: only its rows do
    """
    identity = computation.identity
    done = {} if force else store.finished(computation.dataset, identity)
    if engine is not None:
        done = {repeat: row for repeat, row in done.items() if row.get("engine") == engine}
    wanted = {metric: "", **(sources or {})}
    columns = [f"{rule}/test/{name}" for rule in RULES for name in wanted]
    if not computation.has_truth:
        columns = []
    files = output_files(save)

    def is_done(repeat: int) -> bool:
        return (
            repeat in done
            and all(done[repeat].get(column) for column in columns)
            and all(recorded_source(done[repeat], name) == s for name, s in wanted.items())
            and all((store.run_folder(identity, repeat) / name).is_file() for name in files)
        )

    return tuple(repeat for repeat in range(repeats) if not is_done(repeat))
