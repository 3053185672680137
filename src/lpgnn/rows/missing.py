"""Which runs of a computation are done: they have a row with all that is asked for."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

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


@dataclass(frozen=True)
class Requirements:
    """What a row must have to count as the result of a run."""

    metric: str = "acc"
    # Of metrics that are not the defaults, which are wanted as well (``metric_sources``).
    sources: Mapping[str, str] = field(default_factory=dict)
    save: tuple[str, ...] = ()  # files beside it
    force: bool = False  # no row counts
    engine: str | None = None  # whose rows alone count, None for all

    def missing(
        self, computation: Computation, repeats: Iterable[int], store: RowStore
    ) -> tuple[int, ...]:
        """Those of the repeats of which the store holds no row that counts."""
        identity = computation.identity
        done = {} if self.force else store.finished(computation.dataset, identity)
        if self.engine is not None:
            done = {repeat: row for repeat, row in done.items() if row.get("engine") == self.engine}
        wanted = {self.metric: "", **self.sources}
        columns = [f"{rule}/test/{name}" for rule in RULES for name in wanted]
        if not computation.has_truth:
            columns = []
        files = output_files(self.save)

        def is_done(repeat: int) -> bool:
            return (
                repeat in done
                and all(done[repeat].get(column) for column in columns)
                and all(recorded_source(done[repeat], name) == s for name, s in wanted.items())
                and all((store.run_folder(identity, repeat) / name).is_file() for name in files)
            )

        return tuple(repeat for repeat in repeats if not is_done(repeat))
