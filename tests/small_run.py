"""A small graph and a small sweep on it, and plug-ins as a user would write them."""

import csv
import io
import multiprocessing
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from lpgnn.config import Configuration, Settings
from lpgnn.data import BlockModel, Graph
from lpgnn.data.sparse import CsrMatrix
from lpgnn.privacy import FeatureMechanism, FeatureReports
from lpgnn.results import PROVENANCE

SMALL_GRAPH: dict[str, Any] = {
    "name": "sbm",
    "num_nodes": 300,
    "num_classes": 4,
    "num_features": 90,
}


def small(**settings: Any) -> Configuration:
    """A configuration on the small graph, five epochs unless told otherwise."""
    said: dict[str, Any] = {"dataset": SMALL_GRAPH, "max_epochs": 5} | settings
    return Settings(**said).resolve()


def science(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows without the columns that say where and when they were computed."""
    return [{k: v for k, v in row.items() if k not in PROVENANCE} for row in rows]


def science_text(path: Path) -> str:
    """A file of rows as it stands, without the columns of where and when."""
    with path.open(newline="") as file:
        header, *lines = csv.reader(file)
    kept = [i for i, name in enumerate(header) if name not in PROVENANCE]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([line[i] for i in kept] for line in (header, *lines))
    return text.getvalue()


@dataclass(frozen=True)
class RoundedNoise(FeatureMechanism):
    """A mechanism of the user's own: x plus Gaussian noise of a given size."""

    name: ClassVar[str] = "rounded"

    size: float = 1.0

    def perturb(self, features: CsrMatrix, *, generator: torch.Generator) -> FeatureReports:
        noise = torch.randn(features.shape, generator=generator)
        return FeatureReports(features.to_dense() + self.size * noise, scale=1.0, offset=0.0)

    def variance(self, x: Tensor) -> Tensor:
        return torch.full_like(x, self.size**2)

    def parameters(self) -> dict[str, float]:
        return {"size": self.size}


def two_cliques(data_dir: Path, *, size: int = 40, tag: Any = None, **_: Any) -> Graph:
    """A graph of the user's own: two cliques, each a class, whose features tell the class."""
    from lpgnn.data import make_graph
    from lpgnn.data.graph import Topology

    pairs = torch.combinations(torch.arange(size)).T
    labels = torch.arange(2).repeat_interleave(size)
    features = CsrMatrix.from_dense(torch.nn.functional.one_hot(labels).float())
    topology = Topology.from_edges(2 * size, torch.cat([pairs, pairs + size], dim=1))
    return make_graph("cliques", topology, features, labels, 2)


def no_graph(data_dir: Path, **_: Any) -> str:
    return "not a graph"


def _small_graph(seed: int) -> Graph:
    options = {key: value for key, value in SMALL_GRAPH.items() if key != "name"}
    return BlockModel(**options, seed=seed).generate()


def _die() -> None:
    # Only a worker: what tests the sweep must outlive it.
    if multiprocessing.parent_process() is not None:
        os.kill(os.getpid(), signal.SIGKILL)


def dies_once(data_dir: Path, *, seed: int = 0, **_: Any) -> Graph:
    """A graph whose first reader dies; the next one finds the mark that it left."""
    try:
        (Path(data_dir) / "died").touch(exist_ok=False)
    except FileExistsError:
        return _small_graph(seed)
    _die()
    return _small_graph(seed)


def dies_with_seed_1(data_dir: Path, *, seed: int = 0, **_: Any) -> Graph:
    """A graph that kills whoever reads it with seed 1, at once and each time."""
    if seed == 1:
        _die()
    return _small_graph(seed)


def breaks_with_seed_1(data_dir: Path, *, seed: int = 0, **_: Any) -> Graph:
    if seed == 1:
        raise ArithmeticError("the graph of seed 1\nis broken")
    return _small_graph(seed)
