"""One batch of runs from the clean graph to its rows: the stations in a line."""

import contextlib
import json
import logging
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lpgnn.config import SCIENCE_VERSION, Configuration, Settings
from lpgnn.data import Graph
from lpgnn.data.splits import Split
from lpgnn.errors import InputError, RunError, StorageError, error_line
from lpgnn.kernels import Backend
from lpgnn.learners import Outcome, Run, Server
from lpgnn.loggers import LoggedRun, Logger
from lpgnn.privacy import Collected, Respondents, collect
from lpgnn.privacy.collection import ReceivedReports
from lpgnn.propagation import PreparedGraph
from lpgnn.provenance import engine_name, git_revision
from lpgnn.randomness import Streams
from lpgnn.rows import (
    DEFAULT_METRICS,
    UNEVALUATED,
    RowStore,
    evaluate,
    metric_sources,
    needs_probabilities,
    package_version,
    save_history,
    save_predictions,
    save_weights,
)

_log = logging.getLogger("lpgnn")

# Runs that train together share Python's overhead, but on a CPU they compete for its cache: an
# activation of all of them may take this much (ten runs on Cora, five on Pubmed, four on Facebook).
_CACHED_BYTES = 6_400_000
# What they hold may take this much memory: dense reports whole, else some activations.
_HELD_BYTES = 600_000_000

# One run: a configuration and the number of its repeat.
Member = tuple[Configuration, int]


@dataclass(frozen=True)
class Measures:
    """What is recorded of a run beside its training: metrics in its row, files beside it."""

    metrics: Mapping[str, str] = field(default_factory=lambda: DEFAULT_METRICS)
    save: tuple[str, ...] = ()  # of predictions, weights, history
    store: RowStore | None = None  # knows the folder of each run
    logger: Logger | None = None  # shows runs with their curves elsewhere

    @classmethod
    def of(cls, settings: Settings, store: RowStore) -> "Measures":
        logger: Any = None if settings.logger is None else settings.component("logger")
        return cls(settings.metrics, settings.outputs, store, logger)

    @property
    def keep_probabilities(self) -> bool:
        return "predictions" in self.save or needs_probabilities(self.metrics)


def run_repeats(
    configuration: Configuration,
    graph: Graph,
    repeats: Iterable[int],
    *,
    device: str = "auto",
    kernels: str = "auto",
    measures: Measures | None = None,
    on_epoch: Callable[[int], None] | None = None,
) -> list[dict[str, Any]]:
    """Train the given repeats of a configuration and return their rows; see ``run_members``."""
    members = [(configuration, repeat) for repeat in repeats]
    prepared = PreparedGraph(graph.topology, Backend.choose(device, kernels))
    return run_members(members, graph, prepared, measures=measures, on_epoch=on_epoch)


def run_members(
    members: Sequence[Member],
    graph: Graph,
    prepared: PreparedGraph,
    *,
    measures: Measures | None = None,
    on_epoch: Callable[[int], None] | None = None,
    on_rows: Callable[[list[dict[str, Any]]], None] | None = None,
    on_unmeasured: Callable[[Member, InputError | RunError], None] | None = None,
) -> list[dict[str, Any]]:
    """Train runs of one ``batch_kind`` and return their rows, in order.

    They train side by side as far as memory allows.  ``on_epoch`` is called after each epoch with
    the number of run-epochs done, ``on_rows`` with finished rows as they come.  ``on_unmeasured``
    is called with a run whose row lacks a metric, or that was not logged, because the metric or
    the logger failed; without it, that is logged.
    """
    for configuration, repeat in members:
        _check_member(configuration, repeat, graph)
    rows: list[dict[str, Any]] = []
    together = _runs_together(members[0][0], graph, prepared) if members else 1
    batches = -(-len(members) // together)
    size = -(-len(members) // max(1, batches))  # even batches, not full ones and a rest
    with _numerics():
        for start in range(0, len(members), size or 1):
            batch = members[start : start + size]
            finished = _run_batch(
                batch,
                graph,
                prepared,
                measures or Measures(),
                on_epoch,
                on_unmeasured or _log_unmeasured,
            )
            rows += finished
            if on_rows is not None:
                on_rows(finished)
    return rows


def _log_unmeasured(member: Member, error: InputError | RunError) -> None:
    configuration, repeat = member
    _log.warning("%s repeat %d: %s", configuration.identity, repeat, error)


def _check_member(configuration: Configuration, repeat: int, graph: Graph) -> None:
    if not isinstance(repeat, int) or repeat < 0:
        raise InputError("repeats", repeat, "must be whole numbers >= 0")
    expected = configuration.graph.fingerprint
    if graph.fingerprint != expected:
        found = f"{graph.name} with fingerprint {graph.fingerprint}"
        allowed = f"the run is configured for {configuration.dataset.name} with {expected}"
        raise InputError("graph", found, allowed)


@contextlib.contextmanager
def _numerics() -> Iterator[None]:
    """One thread, and no subnormal numbers, while runs train.

    On these graphs several threads of one process mostly wait for each other.  Saturated units
    leave subnormal numbers behind, and arithmetic on those is ten times slower.
    """
    threads, flushed = torch.get_num_threads(), sys.float_info.min / 2 == 0
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_flush_denormal(flushed)  # Python's own floats obey it, too


def _runs_together(configuration: Configuration, graph: Graph, prepared: PreparedGraph) -> int:
    """How many runs train side by side."""
    if not configuration.learner.uses_network:
        return 1  # nothing is gained by company
    width = 16 * configuration.hidden_dim
    if configuration.holds_matrix:
        width = max(width, graph.feature_dim)
    together = _HELD_BYTES // (4 * graph.num_nodes * width)
    if prepared.backend.device.type == "cpu":
        together = min(together, _CACHED_BYTES // (4 * graph.num_nodes * configuration.hidden_dim))
    return max(1, together)


def split_of(configuration: Configuration, graph: Graph, repeat: int) -> Split:
    """The split of a repeat: the same for every configuration of a seed."""
    if isinstance(configuration.dataset, ReceivedReports):
        return configuration.dataset.split()
    drawn_for = repeat if configuration.split == "random" else 0
    generator = Streams(configuration.seed, drawn_for).generator("split")
    return graph.splits.draw(graph.labels >= 0, drawn_for, generator=generator)


def collect_repeat(
    configuration: Configuration, graph: Graph, split: Split, repeat: int
) -> Collected:
    """What the server gets in one repeat: the same in all repeats of one collection."""
    if isinstance(configuration.dataset, ReceivedReports):
        return configuration.dataset.collected()
    drawn_for = 0 if configuration.split == "collection" else repeat
    c, streams = configuration, Streams(configuration.seed, drawn_for)
    mechanism, labels = c.mechanism, c.label_mechanism
    collected = collect(
        graph,
        split,
        feature=None if c.asks else c.feature,
        mechanism=None if mechanism is None else mechanism.bind(c.x_eps, graph.feature_dim),
        label_mechanism=None if labels is None else labels.bind(c.y_eps, graph.num_classes),
        features_generator=streams.generator("features"),
        labels_generator=streams.generator("labels"),
    )
    return replace(collected, x_eps=c.x_eps) if c.asks else collected


def respondents_of(
    configuration: Configuration, graph: Graph, repeat: int, order: Tensor
) -> Respondents | None:
    """The users of one repeat, in the server's node order, where the protocol asks them."""
    c = configuration
    if not c.asks or c.feature is None:
        return None
    if isinstance(c.dataset, ReceivedReports):
        return c.dataset.respondents(order)
    drawn_for = 0 if c.split == "collection" else repeat
    generator = Streams(c.seed, drawn_for).generator("features")
    features = c.feature.vectors(graph).select_rows(order)
    return Respondents(features, c.x_eps, generator=generator)


def _run_batch(
    members: Sequence[Member],
    graph: Graph,
    prepared: PreparedGraph,
    measures: Measures,
    on_epoch: Callable[[int], None] | None,
    on_unmeasured: Callable[[Member, InputError | RunError], None],
) -> list[dict[str, Any]]:
    started = time.perf_counter()
    c = members[0][0]  # for what all of them share
    if len({member.batch_kind for member, _ in members}) > 1:
        raise ValueError("runs of different kinds cannot train side by side")
    splits = [split_of(member, graph, repeat) for member, repeat in members]
    runs = [
        replace(
            run_of(own, repeat, collect_repeat(own, graph, split, repeat), prepared),
            respondents=respondents_of(own, graph, repeat, prepared.order.cpu()),
        )
        for (own, repeat), split in zip(members, splits, strict=True)
    ]
    server = replace(
        server_of(c, prepared),
        keep_probabilities=measures.keep_probabilities,
        keep_weights="weights" in measures.save,
        on_epoch=None if on_epoch is None else partial(on_epoch, len(runs)),
    )
    outcomes = c.learner.fit(runs, server)
    seconds = (time.perf_counter() - started) / len(runs)
    rows = []
    for (own, repeat), split, outcome in zip(members, splits, outcomes, strict=True):
        outcome = outcome.in_original_order(prepared.order)
        failed: dict[str, InputError] = {}  # each metric once, not once for each rule
        row = make_row(
            own,
            graph,
            repeat,
            split,
            outcome,
            measures.metrics,
            on_failed=partial(_note, failed),
        )
        if len(failed) == len(measures.metrics):
            raise next(iter(failed.values()))  # without any metric it is not a row
        for error in failed.values():
            on_unmeasured((own, repeat), error)
        row |= _provenance(seconds, prepared.backend)
        rows.append(row)
        if measures.logger is not None and measures.store is not None:
            try:
                curves = {name: values.tolist() for name, values in outcome.history.items()}
                measures.logger.log(LoggedRun(row, curves, measures.store.results_dir))
            except Exception as error:  # the row counts, whatever a viewer makes of it
                reason = error_line(error)
                failure = RunError(f"logger {measures.logger.name} failed with {reason}")
                on_unmeasured((own, repeat), failure)
        if measures.save and measures.store is not None:
            folder = measures.store.run_folder(own.identity, repeat)
            try:
                _save(measures, folder, outcome, own, repeat, graph)
            except OSError as error:
                raise StorageError.of(folder, error) from None
    return rows


def _note(failed: dict[str, InputError], error: InputError) -> None:
    failed.setdefault(error.setting, error)


def run_of(
    configuration: Configuration, repeat: int, collected: Collected, prepared: PreparedGraph
) -> Run:
    """The server's side of one repeat, in the node order of the prepared graph."""
    # Real users are asked once, so that whom to ask is decided once, for all repeats.
    asked_once = configuration.asks and isinstance(configuration.dataset, ReceivedReports)
    return Run(
        collected.reordered(prepared.topology, prepared.order),
        Streams(configuration.seed, 0 if asked_once else repeat).of_server(),
        configuration.learning_rate,
        configuration.weight_decay,
        configuration.dropout,
    )


def server_of(configuration: Configuration, prepared: PreparedGraph) -> Server:
    c = configuration
    return Server(prepared, c.filter, c.backbone, c.max_epochs, c.hidden_dim, protocol=c.protocol)


def probabilities_of(
    configuration: Configuration,
    collected: Collected,
    repeat: int,
    weights: Mapping[str, Tensor],
    rule: str,
    *,
    device: str = "auto",
    kernels: str = "auto",
) -> Tensor:
    """What trained weights say about every node of a collection.  -> [c, N]"""
    prepared = PreparedGraph(collected.topology, Backend.choose(device, kernels))
    run = run_of(configuration, repeat, collected, prepared)
    with _numerics():
        learner, server = configuration.learner, server_of(configuration, prepared)
        found = learner.apply(dict(weights), run, server, rule)
    return found[:, prepared.order.argsort().cpu()]


def make_row(
    configuration: Configuration,
    graph: Graph,
    repeat: int,
    split: Split,
    outcome: Outcome,
    metrics: Mapping[str, str] = DEFAULT_METRICS,
    *,
    on_failed: Callable[[InputError], None] | None = None,
) -> dict[str, Any]:
    """The row of one repeat: its configuration, and what each selection rule chose.

    on_failed: as for ``rows.evaluate``; the cell of a metric that fails stays blank
    """
    failed = outcome.failed_epoch
    columns = configuration.columns()
    if sources := metric_sources(metrics):
        own = {f"metrics.{name}": source for name, source in sources.items()}
        columns["options"] = json.dumps(json.loads(columns["options"]) | own, sort_keys=True)
    row: dict[str, Any] = {
        "id": configuration.identity,
        "repeat": repeat,
        **columns,
        "status": "ok" if configuration.dataset.has_truth else UNEVALUATED,
    }
    if failed is not None:
        row["status"] = f"failed: loss is not finite at epoch {failed}"
    for rule, chosen in outcome.selected.items():
        at = chosen.epoch - 1
        row[f"{rule}/epoch"] = chosen.epoch
        row[f"{rule}/qualified"] = chosen.qualified
        measured = {name: float(values[at]) for name, values in outcome.history.items()}
        row[f"{rule}/train/loss"] = round(measured["train_loss"], 6)
        row[f"{rule}/train/acc"] = round(100 * measured["train_acc"], 3)
        row[f"{rule}/val/loss"] = round(measured["val_loss"], 6)
        row[f"{rule}/val/acc"] = round(100 * measured["val_acc"], 3)
        if not configuration.dataset.has_truth:
            continue
        p = None if chosen.probabilities is None else chosen.probabilities.t()  # [N, c]
        if failed is not None:  # there is nothing to measure
            row |= {f"{rule}/test/{name}": math.nan for name in metrics}
            continue
        measures = evaluate(
            metrics, graph.labels, chosen.predictions, p, split.test, on_failed=on_failed
        )
        row |= {f"{rule}/test/{name}": round(value, 3) for name, value in measures.items()}
    return row


def _provenance(seconds: float, backend: Backend) -> dict[str, Any]:
    """Where and when a row was computed."""
    revision, dirty = git_revision()
    return {
        "duration": round(seconds, 2),
        "device": backend.device.type,
        "version": package_version(),
        "science": SCIENCE_VERSION,
        "engine": engine_name(backend),
        "revision": revision,
        "dirty": dirty,
    }


def _save(
    measures: Measures,
    folder: Path,
    outcome: Outcome,
    configuration: Configuration,
    repeat: int,
    graph: Graph,
) -> None:
    """Write what was asked for beside the rows, for each selection rule."""
    if "history" in measures.save:
        save_history(folder / "history.csv", outcome.history)
    for rule, chosen in outcome.selected.items():
        if "predictions" in measures.save:
            path = folder / f"predictions-{rule}.csv"
            p = None if chosen.probabilities is None else chosen.probabilities.t()  # [N, c]
            save_predictions(path, chosen.predictions, p, graph.node_ids, graph.class_names)
        if "weights" in measures.save:
            origin = {
                "configuration": configuration.columns(),
                "repeat": repeat,
                "rule": rule,
                "epoch": chosen.epoch,
                "class_names": graph.class_names,
                "num_features": graph.feature_dim,
                "num_classes": graph.num_classes,
                "science": SCIENCE_VERSION,
            }
            save_weights(folder / f"weights-{rule}.npz", chosen.weights, origin)
