"""``python -m lpgnn.information``: what bit reports tell about private features, measured."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from lpgnn.commands import Command
from lpgnn.composition import Point, expand
from lpgnn.config import Settings
from lpgnn.errors import InputError, exit_code

if TYPE_CHECKING:
    from lpgnn.data import Dataset, Graph
    from lpgnn.privacy import BitMechanism
    from lpgnn.report.information import Information

DEFAULTS = {
    "dataset": "cora,pubmed,facebook,planted",
    "x_eps": "0.01,0.1,1,2,4,8",
    "repeats": "100",
}


def main(arguments: Sequence[str] | None = None) -> int:
    command = Command(
        "information",
        "Count how many bits of multi-bit reports depend on the features, beside what is expected, "
        "and compute the signal-to-noise ratio of one report about its node's class.",
        "Settings as for lpgnn.run, with comma-separated values; not given:\n"
        + " ".join(f"{key}={value}" for key, value in DEFAULTS.items())
        + ".\nWrites RESULTS_DIR/information.csv, where other datasets' lines stay.",
    )
    command.takes_settings()
    options = command.read(arguments)
    return exit_code(lambda: _measure(options.overrides, options.config_dir))


def _measure(overrides: Sequence[str], config_dirs: Sequence[Path]) -> int:
    given = {text.partition("=")[0].lstrip("+") for text in overrides}
    open_ = [f"{key}={value}" for key, value in DEFAULTS.items() if key not in given]
    points = expand([*open_, *overrides], multirun=True, config_dirs=config_dirs)
    from lpgnn.report.information import information_grid, renew_information

    found = list(measure(points))
    results_dir = points[0].settings.results_path
    try:
        path = renew_information(found, results_dir)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        allowed = f"must be a readable and writable folder ({reason})"
        raise InputError("results_dir", results_dir, allowed) from None
    print(information_grid(found).to_markdown(), end="")
    print(f"written to {path}")
    return 0


def measure(points: Sequence[Point]) -> Iterator[Information]:
    """One line for each dataset and budget; a graph is loaded once for all its budgets."""
    loaded: dict[Dataset, Graph] = {}
    for point in points:
        dataset, mechanism = _parts(point.settings)
        if dataset not in loaded:
            loaded = {dataset: dataset.load(point.settings.data_path)}
        yield measured(loaded[dataset], dataset.title, mechanism, point.settings)


def _parts(settings: Settings) -> tuple[Dataset, BitMechanism]:
    from lpgnn.data import Dataset
    from lpgnn.privacy import BitMechanism

    dataset, mechanism = settings.component("dataset"), settings.component("mechanism")
    assert isinstance(dataset, Dataset)
    if not isinstance(mechanism, BitMechanism):
        raise InputError("mechanism", mechanism.name, "must send bits: mb or 1b")
    feature = settings.component("feature")
    if feature.name != "raw":
        raise InputError("feature", feature.name, "must be raw: others have no private bits")
    if math.isinf(settings.x_eps):
        raise InputError("x_eps", settings.x_eps, "must be finite: without noise every bit counts")
    return dataset, mechanism


def measured(graph: Graph, title: str, mechanism: BitMechanism, settings: Settings) -> Information:
    """Draw the reports of the repeats that a run of these settings draws, and compare them."""
    from lpgnn.privacy import (
        class_distance_squared,
        expected_informative_bits,
        feature_density,
        informative_bits,
        signal_to_noise,
    )
    from lpgnn.randomness import Streams
    from lpgnn.report.information import Information

    distance = class_distance_squared(graph)
    assert graph.features is not None  # else it has no classes' means
    bound = mechanism.bind(float(settings.x_eps), graph.feature_dim)
    streams = (Streams(settings.seed, repeat) for repeat in range(settings.repeats))
    counts = [
        informative_bits(graph, bound, generator=one.generator("features")) for one in streams
    ]
    density = feature_density(graph.features, bound)
    return Information(
        dataset=graph.name,
        title=title,
        fingerprint=graph.fingerprint,
        num_nodes=graph.num_nodes,
        num_features=graph.feature_dim,
        density=density,
        class_distance_squared=distance,
        mechanism=bound.name,
        x_eps=bound.epsilon,
        m=bound.m,
        expected=expected_informative_bits(graph.num_nodes, density, bound),
        mean=fmean(counts),
        low=min(counts),
        high=max(counts),
        unchanged=sum(count == 0 for count in counts),
        repeats=settings.repeats,
        seed=settings.seed,
        signal_to_noise=signal_to_noise(distance, bound),
    )


if __name__ == "__main__":
    sys.exit(main())
