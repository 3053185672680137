"""One configuration from the clean graph to its rows: the stations in a line."""

import dataclasses
import importlib
import math
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from lpgnn.config import SCIENCE_VERSION, Configuration
from lpgnn.data import BlockModel, Graph, load_graph
from lpgnn.data.splits import Split, random_split
from lpgnn.errors import InputError
from lpgnn.models import GAT, GCN, Backbone, GraphSAGE, ModuleBackbone
from lpgnn.privacy import MECHANISMS, Collected, FeatureMechanism, collect
from lpgnn.propagation import (
    Aggregator,
    Conditioning,
    Operator,
    cache_order,
    kprop_operator,
    reorder,
    reorder_topology,
    row_factors,
    row_lengths,
)
from lpgnn.randomness import derive_generator
from lpgnn.results import package_version, test_accuracy
from lpgnn.training import (
    SELECTIONS,
    Hyperparameters,
    LabelScores,
    Learner,
    Run,
    Trained,
    by_labels,
    label_scores,
    predict,
    smoothed,
    train,
)

_BACKBONES: dict[str, type[Backbone]] = {"gcn": GCN, "sage": GraphSAGE, "gat": GAT}

# Runs that train together share Python's overhead, but on a CPU they compete for its cache: an
# activation of all of them may take this much (ten runs on Cora, five on Pubmed, four on Facebook).
_CACHED_BYTES = 6_400_000
# What they hold may take this much memory: dense reports whole, else some activations.
_HELD_BYTES = 600_000_000

# One run: a configuration and the number of its repeat.
Member = tuple[Configuration, int]

_ROW_LENGTHS: dict[tuple[str, str, int, torch.device], Tensor] = {}


def load_dataset(configuration: Configuration, data_dir: Path | str) -> Graph:
    """The clean graph of a configuration; ``target`` names a function of the user's own."""
    name = configuration.dataset.name
    options = configuration.dataset.all_options("dataset")
    options.pop("tuned_as", None)
    target = options.pop("target", None)
    if target is not None:
        own = _import("dataset.target", target)
        graph = _construct("dataset.target", own, Path(data_dir), options=options)
        if not isinstance(graph, Graph):
            raise InputError("dataset.target", target, "must return a lpgnn.Graph")
        return graph
    if name == "sbm":
        model = _construct("dataset", BlockModel, options=options)
        return load_graph(name, Path(data_dir), model)
    if options:
        raise InputError("dataset", options, f"{name} has no such options")
    return load_graph(name, Path(data_dir))


def build_mechanism(configuration: Configuration, num_features: int) -> FeatureMechanism | None:
    """The feature mechanism, or None where none is applied."""
    name = configuration.mechanism.name
    if name == "none":
        return None
    options = configuration.mechanism.all_options("mechanism")
    target = options.pop("target", None)
    if target is not None:
        kind = _import("mechanism.target", target)
    elif name in MECHANISMS:
        kind = MECHANISMS[name]
    else:
        raise InputError("mechanism", name, f"must be one of {', '.join(MECHANISMS)}")
    built = _construct("mechanism", kind, configuration.x_eps, num_features, options=options)
    return cast(FeatureMechanism, built)


def build_backbone(
    configuration: Configuration, collected: Collected, device: torch.device
) -> Backbone:
    """The backbone on the server's graph."""
    name = configuration.backbone.name
    options = configuration.backbone.all_options("backbone")
    target = options.pop("target", None)
    shape = (
        collected.topology,
        collected.num_features,
        configuration.hidden_dim,
        collected.num_classes,
        device,
    )
    if target is None:
        if name not in _BACKBONES:
            known = ", ".join((*_BACKBONES, "pyg"))
            raise InputError("backbone", name, f"must be one of {known}")
        kind: Any = _BACKBONES[name]
        return cast(Backbone, _construct("backbone", kind, *shape, options=options))
    kind = _import("backbone.target", target)
    if isinstance(kind, type) and issubclass(kind, Backbone):
        return cast(Backbone, _construct("backbone.target", kind, *shape, options=options))
    own = options.pop("options", None) or {}
    plugged = {"module_class": kind, "options": own, "dropout": configuration.dropout}
    built = _construct("backbone.target", ModuleBackbone, *shape, options=options | plugged)
    return cast(Backbone, built)


def _import(setting: str, target: Any) -> Any:
    module, _, name = str(target).rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError):
        found = None
    if not callable(found):
        raise InputError(setting, target, "must be an importable module.name to call")
    return found


def _construct(setting: str, kind: Any, *arguments: Any, options: dict[str, Any]) -> Any:
    """Call a constructor with the options of a config; what it does not take is bad input."""
    try:
        return kind(*arguments, **options)
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError(setting, options or "{}", f"not understood: {reason}") from None


def pick_device(device: str) -> torch.device:
    """``auto`` takes the GPU if there is one."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise InputError("device", device, "must be auto, cpu, cuda or cuda:N") from None
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise InputError("device", device, "there is no usable GPU here; take auto or cpu")
    return chosen


def split_of(configuration: Configuration, graph: Graph, repeat: int) -> Split:
    """The split of a repeat: the same for every configuration of a seed."""
    drawn_for = 0 if configuration.split == "fixed" else repeat
    generator = derive_generator(configuration.seed, drawn_for, "split")
    return random_split(graph.labels, graph.num_classes, generator=generator)


def collect_repeat(
    configuration: Configuration, graph: Graph, split: Split, repeat: int
) -> Collected:
    """What the server gets in one repeat."""
    return collect(
        graph,
        split,
        build_mechanism(configuration, graph.feature_dim),
        configuration.y_eps,
        features_generator=derive_generator(configuration.seed, repeat, "features"),
        labels_generator=derive_generator(configuration.seed, repeat, "labels"),
        feature=configuration.feature,
    )


def run_repeats(
    configuration: Configuration,
    graph: Graph,
    repeats: Iterable[int],
    *,
    device: torch.device | str = "cpu",
    on_epoch: Callable[[int], None] | None = None,
    on_rows: Callable[[list[dict[str, Any]]], None] | None = None,
) -> list[dict[str, Any]]:
    """Train the given repeats of a configuration and return their rows; see ``run_members``."""
    members = [(configuration, repeat) for repeat in repeats]
    return run_members(members, graph, device=device, on_epoch=on_epoch, on_rows=on_rows)


def run_members(
    members: Sequence[Member],
    graph: Graph,
    *,
    device: torch.device | str = "cpu",
    on_epoch: Callable[[int], None] | None = None,
    on_rows: Callable[[list[dict[str, Any]]], None] | None = None,
) -> list[dict[str, Any]]:
    """Train runs of one ``batch_kind`` and return their rows, in order.

    They train side by side as far as memory allows; ``on_epoch`` is told after each epoch how many
    run-epochs were done, ``on_rows`` gets finished rows at once.
    """
    device = torch.device(device)
    # Saturated units leave subnormal numbers behind, and arithmetic on those is ten times slower.
    torch.set_flush_denormal(True)
    rows: list[dict[str, Any]] = []
    together = _runs_together(members[0][0], graph, device) if members else 1
    batches = -(-len(members) // together)
    size = -(-len(members) // max(1, batches))  # even batches, not full ones and a rest
    for start in range(0, len(members), size or 1):
        batch = members[start : start + size]
        finished = _run_batch(batch, graph, device, on_epoch)
        rows += finished
        if on_rows is not None:
            on_rows(finished)
    return rows


def _runs_together(configuration: Configuration, graph: Graph, device: torch.device) -> int:
    """How many runs train side by side."""
    if configuration.learner.name == "propagation":
        return 1  # nothing is gained by company
    dense = configuration.mechanism.name not in ("none", "mb") or configuration.feature == "rnd"
    if configuration.backbone.name not in _BACKBONES:
        dense = True  # plug-ins get the propagated features as a matrix
    width = graph.feature_dim if dense else 16 * configuration.hidden_dim
    together = _HELD_BYTES // (4 * graph.num_nodes * width)
    if device.type == "cpu":
        together = min(together, _CACHED_BYTES // (4 * graph.num_nodes * configuration.hidden_dim))
    return max(1, together)


def _run_batch(
    members: Sequence[Member],
    graph: Graph,
    device: torch.device,
    on_epoch: Callable[[int], None] | None,
) -> list[dict[str, Any]]:
    started = time.perf_counter()
    c = members[0][0]  # for what all of them share
    if len({member.batch_kind for member, _ in members}) > 1:
        raise ValueError("runs of different kinds cannot train side by side")
    splits = [split_of(member, graph, repeat) for member, repeat in members]
    order = cache_order(graph.topology)
    topology = reorder_topology(graph.topology, order)
    runs = [
        Run(
            reorder(collect_repeat(own, graph, split, repeat), topology, order),
            Hyperparameters(own.learning_rate, own.weight_decay, own.dropout),
            weights_generator=derive_generator(own.seed, repeat, "weights"),
            dropout_generator=derive_generator(own.seed, repeat, "dropout", device),
        )
        for (own, repeat), split in zip(members, splits, strict=True)
    ]
    operator = kprop_operator(topology, cast(Aggregator, c.aggregator), device)
    tick = None if on_epoch is None else partial(on_epoch, len(runs))
    labels_only = c.learner.name in ("propagation", "residual")
    scores = [_label_scores(c, run.collected, operator) for run in runs] if labels_only else []
    if c.learner.name == "propagation":
        outcomes = [by_labels(s, run.collected) for s, run in zip(scores, runs, strict=True)]
        if tick is not None:
            tick()
    else:
        outcomes = train(
            runs,
            build_backbone(c, runs[0].collected, device),
            operator,
            learner=cast(Learner, "forward" if scores else c.learner.name),
            x_steps=c.x_steps,
            y_steps=c.y_steps,
            max_epochs=c.max_epochs,
            row_factors=_row_factors(c, graph, operator, runs[0].collected),
            prior=torch.stack([s.scores for s in scores]) if scores else None,
            keep_logits=bool(_smoothing_steps(c)),
            on_epoch=tick,
        )
        if _smoothing_steps(c):
            outcomes = [
                _smoothed(outcome, run.collected, operator, _smoothing_steps(c))
                for outcome, run in zip(outcomes, runs, strict=True)
            ]
    seconds = (time.perf_counter() - started) / len(runs)
    return [
        make_row(own, graph, repeat, outcome, order, split.test, seconds, device)
        for (own, repeat), outcome, split in zip(members, outcomes, splits, strict=True)
    ]


def _smoothing_steps(configuration: Configuration) -> int:
    return int(configuration.learner.all_options("learner").get("smooth", 0))


def _smoothed(outcome: Trained, collected: Collected, operator: Operator, steps: int) -> Trained:
    """The same outcome, with smoothed predictions."""
    selected = {}
    for rule, chosen in outcome.selected.items():
        assert chosen.logits is not None
        p = smoothed(chosen.logits, collected, operator, steps)
        predictions = predict(p[None])[0].cpu()
        selected[rule] = dataclasses.replace(chosen, predictions=predictions, logits=None)
    return dataclasses.replace(outcome, selected=selected)


def _label_scores(
    configuration: Configuration, collected: Collected, operator: Operator
) -> LabelScores:
    options = configuration.learner.all_options("learner")
    return label_scores(collected, operator, options["walk"], options["combine"])


def _row_factors(
    configuration: Configuration, graph: Graph, operator: Operator, collected: Collected
) -> Tensor | None:
    """The public conditioning of P^K X', or None.  -> [N]"""
    c, magnitude = configuration, collected.features.magnitude
    if c.conditioning == "none":
        return None
    if magnitude is None:
        raise InputError("conditioning", c.conditioning, "must be none: no public size is known")
    key = (graph.fingerprint, c.aggregator, c.x_steps, operator.matrix.device)
    lengths = _ROW_LENGTHS.get(key)
    if lengths is None:  # depends on the graph only, and takes seconds on a large one
        lengths = row_lengths(operator, c.x_steps)
        if graph.fingerprint:
            _ROW_LENGTHS[key] = lengths
    return row_factors(lengths, magnitude, cast(Conditioning, c.conditioning))


def make_row(
    configuration: Configuration,
    graph: Graph,
    repeat: int,
    outcome: Trained,
    order: Tensor,
    test_mask: Tensor,
    seconds: float,
    device: torch.device,
) -> dict[str, Any]:
    """The row of one repeat: config, both rules' choices, and where it was computed.

    order: the node order that the run was trained in.
    """
    failed = outcome.failed_epoch
    row: dict[str, Any] = {
        "id": configuration.identity,
        "repeat": repeat,
        **configuration.columns(),
        "fingerprint": graph.fingerprint,
        "status": "ok" if failed is None else f"failed: loss is not finite at epoch {failed}",
    }
    for rule in SELECTIONS:
        chosen = outcome.selected[rule]
        at = chosen.epoch - 1
        row[f"{rule}/epoch"] = chosen.epoch
        row[f"{rule}/qualified"] = chosen.qualified
        measured = {name: float(values[at]) for name, values in outcome.history.items()}
        row[f"{rule}/train/loss"] = round(measured["train_loss"], 6)
        row[f"{rule}/train/acc"] = round(100 * measured["train_acc"], 3)
        row[f"{rule}/val/loss"] = round(measured["val_loss"], 6)
        row[f"{rule}/val/acc"] = round(100 * measured["val_acc"], 3)
        accuracy = test_accuracy(chosen.predictions, graph.labels[order], test_mask[order])
        row[f"{rule}/test/acc"] = round(accuracy, 3) if failed is None else math.nan
    revision, dirty = git_revision()
    return row | {
        "duration": round(seconds, 2),
        "device": device.type,
        "version": package_version(),
        "science": SCIENCE_VERSION,
        "revision": revision,
        "dirty": dirty,
    }


@lru_cache(maxsize=1)
def git_revision() -> tuple[str, bool]:
    """The revision of the running source and whether it was changed since; empty outside git."""
    folder = Path(__file__).parent

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True)
        except OSError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    top = git("rev-parse", "--show-toplevel")
    if top is None or not (Path(top) / "src" / "lpgnn").is_dir():
        return "", False  # installed, perhaps inside somebody else's repository
    changed = git("status", "--porcelain", "--", str(folder), str(Path(top) / "conf"))
    return git("rev-parse", "--short=10", "HEAD") or "", bool(changed)


def total_budget(configuration: Configuration) -> float:
    """What one node spends in all (paper Corollary dp)."""
    return sum(e for e in (configuration.x_eps, configuration.y_eps) if math.isfinite(e))
