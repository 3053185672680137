"""A small graph and runs on it, and plug-ins as a user would write them."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from lpgnn.config import Configuration, Settings
from lpgnn.data import BlockModel, Dataset, Graph, make_graph
from lpgnn.data.graph import Topology
from lpgnn.data.sparse import CsrMatrix
from lpgnn.models import GraphSAGE
from lpgnn.privacy import FeatureMechanism, FeatureReports, RandomizedResponse
from lpgnn.rows import PROVENANCE, RowStore

SMALL_GRAPH = BlockModel(num_nodes=300, num_classes=4, num_features=90)


def small(**settings: Any) -> Configuration:
    """A configuration on the small graph, of five epochs unless given."""
    given: dict[str, Any] = {"dataset": SMALL_GRAPH, "max_epochs": 5} | settings
    return Settings(**given).resolve()


def science(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows without the columns that say where and when they were computed."""
    return [{k: v for k, v in row.items() if k not in PROVENANCE} for row in rows]


def stored_science(folder: Path, dataset: str = "sbm") -> list[dict[str, Any]]:
    """The rows of a results folder without where and when."""
    return science(RowStore(folder).read(dataset))


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


@dataclass(frozen=True)
class OwnResponse(RandomizedResponse):
    """A label mechanism of the user's own."""


@dataclass(frozen=True)
class PlainSage(GraphSAGE):
    """A backbone of the user's own, which has no name but its class's."""

    width: int = 1


def always_seven(labels: Any, predictions: Any, probabilities: Any) -> float:
    """A metric of the user's own."""
    return 7.0


def needs_chances(labels: Any, predictions: Any, probabilities: Any) -> float:
    """A metric that reads the probabilities: the mean confidence in per cent."""
    return 100.0 * float(probabilities.max(axis=1).mean())


needs_chances.needs_probabilities = True  # type: ignore[attr-defined]


def two_cliques(data_dir: Path, *, size: int = 40, tag: Any = None) -> Graph:
    """A graph of the user's own: two cliques, each a class, whose features tell the class."""
    pairs = torch.combinations(torch.arange(size)).T
    labels = torch.arange(2).repeat_interleave(size)
    features = CsrMatrix.from_dense(torch.nn.functional.one_hot(labels).float())
    topology = Topology.from_edges(2 * size, torch.cat([pairs, pairs + size], dim=1))
    return make_graph("cliques", topology, features, labels, 2)


def ring(data_dir: Path, *, degree: int = 4, size: int = 80) -> Graph:
    """A ring in which every node has the same degree; labels and features alternate."""
    nodes = torch.arange(size)
    steps = [*range(1, degree // 2 + 1), *([size // 2] if degree % 2 else [])]
    edges = torch.cat([torch.stack([nodes, (nodes + step) % size]) for step in steps], dim=1)
    labels = nodes % 2
    features = CsrMatrix.from_dense(torch.nn.functional.one_hot(labels).float())
    return make_graph("ring", Topology.from_edges(size, edges), features, labels, 2)


@dataclass(frozen=True)
class Ring(Dataset):
    """The same as a class."""

    name: ClassVar[str] = "ring"

    degree: int = 4

    def load(self, data_dir: Path) -> Graph:
        return ring(data_dir, degree=self.degree)


def no_graph(data_dir: Path) -> str:
    return "not a graph"


def _small_graph(seed: int) -> Graph:
    return SMALL_GRAPH.replace(seed=seed).generate()


def _in_worker() -> bool:
    return multiprocessing.parent_process() is not None


def _die() -> None:
    # Only a worker: what tests the sweep must outlive it.
    os.kill(os.getpid(), signal.SIGKILL)


def dies_once(data_dir: Path, *, seed: int = 0) -> Graph:
    """A graph whose first reader in a worker dies; the next one finds the mark that it left."""
    if _in_worker():
        try:
            (Path(data_dir) / "died").touch(exist_ok=False)
        except FileExistsError:
            return _small_graph(seed)
        _die()
    return _small_graph(seed)


class OddError(Exception):
    """Cannot be unpickled: it is made of two values and kept as one text."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"odd {one}\nand {two}")


@dataclass(frozen=True)
class Treacherous(RoundedNoise):
    """A mechanism that does something terrible at certain budgets."""

    name: ClassVar[str] = "treacherous"

    def perturb(self, features: CsrMatrix, *, generator: torch.Generator) -> FeatureReports:
        match self.epsilon:
            case 0.25:
                sys.exit(0)
            case 0.5:
                os._exit(0)
            case 0.75:
                raise OddError(1, 2)
        return super().perturb(features, generator=generator)


def breaks_with_seed_1(data_dir: Path, *, seed: int = 0) -> Graph:
    if seed == 1:
        raise ArithmeticError("the graph of seed 1\nis broken")
    return _small_graph(seed)


def breaks_in_workers(data_dir: Path, *, seed: int = 0) -> Graph:
    """A graph that can be looked at, and breaks where it is computed on."""
    if (Path(data_dir) / "broken").exists() and seed == 1:
        raise ArithmeticError("the graph of seed 1\nis broken")
    return _small_graph(seed)
