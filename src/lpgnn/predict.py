"""``python -m lpgnn.predict``: a trained model's class and probabilities for every node.

The model is a file of ``save=weights``: weights and configuration, plain arrays and JSON.  What it
predicts from are reports, never clean data: those that it was trained on, drawn again from their
seed, or those of another graph with the same features and classes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lpgnn.commands import Command, one_run, writing
from lpgnn.config import KINDS, Settings, configuration_of
from lpgnn.errors import InputError, exit_code
from lpgnn.rows import RowStore, load_weights, save_predictions

if TYPE_CHECKING:
    from torch import Tensor

    from lpgnn.data import Dataset, Graph

USAGE = """\
Settings are those of lpgnn.run.  Without --model they describe the run: its weights are taken from
results_dir, or trained first.  With --model they may name another dataset, data_dir or device.
Exit codes: 0 done, 1 cannot be trained or stored, 2 bad input."""


def main(arguments: Sequence[str] | None = None) -> int:
    command = Command(
        "predict", "Write node, predicted class and probabilities for all nodes of a graph.", USAGE
    )
    command.add_argument("--model", type=Path, help="a weights-*.npz of save=weights")
    command.takes_repeat("whose weights (default: 0)")
    command.add_argument("--output", type=Path, default=Path("predictions.csv"))
    command.add_argument(
        "--trust", action="store_true", help="import the model's components from outside lpgnn"
    )
    command.takes_settings()
    options = command.read(arguments)
    return exit_code(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    settings = one_run(options)
    if options.model is None:
        path = _trained(settings, options.repeat)
        dataset: Dataset | None = None
        trust = True  # its components were named on this command line
    else:
        path, trust = options.model, options.trust
        dataset = _other_dataset(settings, options.overrides)
    found = predict(
        path,
        dataset,
        data_dir=settings.data_path,
        device=settings.device,
        kernels=settings.kernels,
        trust=trust,
    )
    with writing("--output", options.output):
        found.save(options.output)
    print(f"{found.describe()}\nmodel: {path}\npredictions: {options.output}")
    return 0


@dataclass(frozen=True)
class Predictions:
    """Class and probabilities of every node of a graph."""

    graph: Graph
    probabilities: Tensor  # [N, c]

    @property
    def classes(self) -> Tensor:
        """The likeliest class.  -> [N]"""
        return self.probabilities.argmax(1)

    def save(self, path: Path) -> None:
        """Write ``node,predicted,p_<class>,...`` under the graph's own names."""
        graph = self.graph
        save_predictions(path, self.classes, self.probabilities, graph.node_ids, graph.class_names)

    def describe(self) -> str:
        counts = self.classes.bincount(minlength=self.graph.num_classes).tolist()
        names = self.graph.class_names or [str(k) for k in range(len(counts))]
        shares = ", ".join(f"{name} {count:,}" for name, count in zip(names, counts, strict=True))
        return f"{self.graph.name}: {self.graph.num_nodes:,} nodes ({shares})"


def predict(
    model: Path,
    dataset: Dataset | Graph | None = None,
    *,
    data_dir: Path = Path("data"),
    device: str = "auto",
    kernels: str = "auto",
    trust: bool = False,
) -> Predictions:
    """Apply a saved model to the reports that it was trained on, or to those of another dataset."""
    from lpgnn.data import Graph, InMemory
    from lpgnn.engine import collect_repeat, probabilities_of, split_of

    weights, origin = load_weights(model)
    if isinstance(dataset, Graph):
        dataset = InMemory(dataset)
    row = origin.get("configuration")
    keys = ("repeat", "rule", "num_features", "num_classes")
    if (
        not isinstance(row, dict)
        or not {*KINDS, "options"} - {"protocol"} <= row.keys()
        or any(key not in origin for key in keys)
    ):
        raise InputError("model", model, "must be a file of save=weights")
    if not trust:
        _check_targets(model, row, with_dataset=dataset is None)
    configuration = configuration_of(row, data_dir, dataset)
    graph = configuration.dataset.load(data_dir)
    if dataset is None and graph.fingerprint != row["fingerprint"]:
        found = f"{graph.name} with fingerprint {graph.fingerprint}"
        raise InputError("dataset", found, f"the model was trained on {row['fingerprint']}")
    _check_fits(origin, graph)
    repeat = int(origin["repeat"])
    collected = collect_repeat(configuration, graph, split_of(configuration, graph, repeat), repeat)
    p = probabilities_of(
        configuration, collected, repeat, weights, origin["rule"], device=device, kernels=kernels
    )
    return Predictions(graph, p.t().contiguous())


def _trained(settings: Settings, repeat: int) -> Path:
    """The weights of a finished run, or of one that is trained now."""
    from lpgnn.engine import Measures, run_repeats

    configuration = settings.resolve()
    store = RowStore(settings.results_path)
    folder = store.run_folder(configuration.identity, repeat)
    path = folder / f"weights-{settings.selection}.npz"
    if settings.force is True or not path.is_file():
        store.check_writable()
        graph = configuration.dataset.load(settings.data_path)
        measures = replace(Measures.of(settings, store), save=(*settings.outputs, "weights"))
        rows = run_repeats(
            configuration,
            graph,
            [repeat],
            device=settings.device,
            kernels=settings.kernels,
            measures=measures,
        )
        name = configuration.dataset.name
        if repeat not in store.finished(name, configuration.identity):
            store.append(name, rows)
    return path


def _other_dataset(settings: Settings, overrides: Sequence[str]) -> Dataset | None:
    """The dataset of the command line, if it names one."""
    keys = [text.split("=", 1)[0].lstrip("+") for text in overrides]
    allowed = ("data_dir", "device", "kernels")
    for key in keys:
        if key not in allowed and key.split(".")[0] != "dataset":
            text = f"the model decides; allowed with --model: dataset, {', '.join(allowed)}"
            raise InputError("overrides", key, text)
    if not any(key.split(".")[0] == "dataset" for key in keys):
        return None
    from lpgnn.data import Dataset

    dataset = settings.component("dataset")
    assert isinstance(dataset, Dataset)
    return dataset


def _check_targets(model: Path, row: Mapping[str, Any], *, with_dataset: bool) -> None:
    """A file from elsewhere must not choose what is imported and called here."""
    for key, value in json.loads(row["options"]).items():
        kind, _, name = key.partition(".")
        is_used = name == "_target_" and (with_dataset or kind != "dataset")
        if is_used and not str(value).startswith("lpgnn."):
            raise InputError("model", model, f"names {kind}={value}: import it with --trust")


def _check_fits(origin: Mapping[str, Any], graph: Graph) -> None:
    for name, found in (("num_features", graph.feature_dim), ("num_classes", graph.num_classes)):
        if found != origin[name]:
            raise InputError("dataset", f"{found} {name}", f"the model has {origin[name]}")
    names = origin.get("class_names")
    if names is not None and graph.class_names is not None and list(graph.class_names) != names:
        own = ", ".join(graph.class_names)
        raise InputError("dataset", f"classes {own}", f"the model has {', '.join(names)}")


if __name__ == "__main__":
    sys.exit(main())
