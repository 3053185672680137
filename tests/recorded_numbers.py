"""The same identity means the same numbers.

A row is recognised by its identity alone, so a change of the code that moves numbers has to move
identities as well: by an option of the component (``before`` names the value of the rows that are
there), or by ``SCIENCE_VERSION``.  The CSV file beside this one has the identity and the numbers
of one short run with each choice of ``conf/``.  After a change of this kind, or with a new choice,
``python tests/recorded_numbers.py`` writes it again.
"""

import csv
import math
from collections.abc import Iterator
from pathlib import Path

import models.pyg  # noqa: F401  # past the warnings of torch-geometric's import
from lpgnn.composition import choice_names, expand_grid
from lpgnn.config import Configuration
from lpgnn.engine import run_repeats

TABLE = Path(__file__).with_suffix(".csv")
GRAPH = {
    "dataset": "sbm",
    "dataset.num_nodes": 300,
    "dataset.num_classes": 4,
    "dataset.num_features": 90,
    "dataset.features_per_node": 18,
    "dataset.average_degree": 6,
    "max_epochs": 6,
    "learning_rate": 0.01,
    "weight_decay": 0.001,
    "dropout": 0.5,
}
GROUPS = ("mechanism", "label_mechanism", "filter", "backbone", "learner", "feature")
MEASURED = ("paper/train/loss", "paper/val/loss", "released/val/loss", "paper/test/acc")


def choices() -> Iterator[dict[str, object]]:
    """One change of the default at a time, at two budgets where budgets decide the formula."""
    for group in GROUPS:
        for name in choice_names(group, ()):
            if name in ("custom", "pyg"):
                continue
            yield {group: name}
            if group in ("mechanism", "label_mechanism"):
                yield {group: name, "x_eps": 4, "y_eps": 3}
            if group == "learner":
                yield {group: name, "filter.steps": 2, "y_eps": math.inf}
    yield {"x_eps": math.inf}


def runs() -> dict[str, Configuration]:
    wanted = {
        " ".join(f"{key}={value}" for key, value in changed.items()): GRAPH | changed
        for changed in choices()
    }
    found = expand_grid(list(wanted.values()))
    return {text: point.settings.resolve() for text, (point,) in zip(wanted, found, strict=True)}


def measured(configuration: Configuration) -> dict[str, float]:
    graph = configuration.dataset.load(Path())
    (row,) = run_repeats(configuration, graph, [0], device="cpu")
    return {name: float(row[name]) for name in MEASURED}


def write() -> None:
    with TABLE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["run", "id", *MEASURED])
        for text, configuration in runs().items():
            writer.writerow([text, configuration.identity, *measured(configuration).values()])


def recorded() -> dict[str, dict[str, str]]:
    with TABLE.open(newline="") as file:
        return {line["run"]: line for line in csv.DictReader(file)}


if __name__ == "__main__":
    write()
