"""Published graphs beyond the paper's, each one npz file.

CiteSeer as in gnn-benchmark (Shchur et al. 2018); Actor, Tolokers, Minesweeper, and Chameleon and
Squirrel without their duplicate nodes as in heterophilous-graphs (Platonov et al. 2023).  Their
features are scaled by the ranges of the data, as the paper does with its own graphs.
"""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

from lpgnn.data.dataset import GraphFacts
from lpgnn.data.download import RawFile, RawSource
from lpgnn.data.graph import Graph
from lpgnn.data.npz import graph_from_npz
from lpgnn.data.published import PublishedDataset, RawForm
from lpgnn.data.splits import own_masks_text
from lpgnn.errors import InputError


@dataclass(frozen=True)
class NpzBenchmark(PublishedDataset):
    """One npz file in ``<data_dir>/<folder>``."""

    cached: ClassVar[bool] = False
    folder: ClassVar[str]

    @property
    def masks(self) -> Literal["random", "own"]:
        """Whether splits are drawn, or taken from the file."""
        return "random"

    def raw_forms(self) -> tuple[RawForm, ...]:
        (file,) = self.raw_source.files
        return (RawForm((file.name,), partial(self._read, file.name)),)

    def _read(self, name: str, raw_dir: Path) -> Graph:
        return graph_from_npz(raw_dir / name, ranges="data", split=self.masks, name=self.name)

    def raw_dir(self, data_dir: Path) -> Path:
        return Path(data_dir) / self.folder


@dataclass(frozen=True)
class CiteSeer(NpzBenchmark):
    """Citations between papers of six fields; 124 of its papers cite themselves."""

    name: ClassVar[str] = "citeseer"
    shown_as: ClassVar[str] = "CiteSeer"
    folder: ClassVar[str] = "citeseer"
    raw_source: ClassVar[RawSource] = RawSource(
        (
            RawFile(
                "citeseer.npz", "280278b21b434c047922e8389518861416fb3ad39389c27865ff0e6bbb0aaab7"
            ),
        ),
        ("https://raw.githubusercontent.com/shchur/gnn-benchmark/master/data/npz/",),
    )
    published: ClassVar[GraphFacts] = GraphFacts("15d8aca3638ad7c6", 3312, 9196, 3703, 3703, 6)


def _heterophilous(name: str, sha256: str) -> RawSource:
    url = "https://raw.githubusercontent.com/yandex-research/heterophilous-graphs/main/data/"
    return RawSource((RawFile(name, sha256),), (url,))


@dataclass(frozen=True)
class Heterophilous(NpzBenchmark):
    """A graph of heterophilous-graphs; ``split=own`` takes its ten published splits in turn."""

    split: Literal["random", "own"] = "random"

    folder: ClassVar[str] = "heterophilous"
    own_fingerprint: ClassVar[str]  # of the graph with its own splits

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.split not in ("random", "own"):
            raise InputError("split", self.split, "must be random or own")

    @property
    def masks(self) -> Literal["random", "own"]:
        return self.split

    @property
    def facts(self) -> GraphFacts:
        if self.split == "random":
            return self.published
        own = own_masks_text(10)
        return replace(self.published, fingerprint=self.own_fingerprint, splits=own)


@dataclass(frozen=True)
class Actor(Heterophilous):
    """Actors on one page of Wikipedia, by what is written about them."""

    name: ClassVar[str] = "actor"
    shown_as: ClassVar[str] = "Actor"
    raw_source: ClassVar[RawSource] = _heterophilous(
        "actor.npz", "c350eef06b2c2a9bf8218be2b57cac6d4003d0922eb597a039e9123f75817816"
    )
    published: ClassVar[GraphFacts] = GraphFacts("c4cd8c2cf3701b60", 7600, 53318, 932, 932, 5)
    own_fingerprint: ClassVar[str] = "44c31af58a3bbf74"


@dataclass(frozen=True)
class Tolokers(Heterophilous):
    """Workers who shared a task; 22 % were banned.  Look at ``metric=roc_auc``."""

    name: ClassVar[str] = "tolokers"
    shown_as: ClassVar[str] = "Tolokers"
    raw_source: ClassVar[RawSource] = _heterophilous(
        "tolokers.npz", "dacf3ac94cec53d03cd2adb5255c08b33dee1656c33ca8164a464bd9450a1667"
    )
    published: ClassVar[GraphFacts] = GraphFacts("e7fa71d535ccfd4e", 11758, 1038000, 10, 10, 2)
    own_fingerprint: ClassVar[str] = "42c504047976c051"


@dataclass(frozen=True)
class Minesweeper(Heterophilous):
    """Cells of a 100 x 100 grid; 20 % are mines.  Look at ``metric=roc_auc``."""

    name: ClassVar[str] = "minesweeper"
    shown_as: ClassVar[str] = "Minesweeper"
    raw_source: ClassVar[RawSource] = _heterophilous(
        "minesweeper.npz", "e664c8dacf1e8ac466c2c09ed4b237bd2c5541f47a6eae9c6092cb87f16412b3"
    )
    published: ClassVar[GraphFacts] = GraphFacts("7d198b0dcc078932", 10000, 78804, 7, 7, 2)
    own_fingerprint: ClassVar[str] = "5cb6103dc74daefe"


@dataclass(frozen=True)
class Chameleon(Heterophilous):
    """Wikipedia pages on chameleons by their traffic, without duplicate nodes."""

    name: ClassVar[str] = "chameleon"
    shown_as: ClassVar[str] = "Chameleon"
    raw_source: ClassVar[RawSource] = _heterophilous(
        "chameleon_filtered.npz", "bf46f07e1fb5249280447e5fe3100f3e82fc4b93ad1e13ffcfdec924b6ac0bb5"
    )
    published: ClassVar[GraphFacts] = GraphFacts("0b0e76491e089b6a", 890, 17708, 1980, 2325, 5)
    own_fingerprint: ClassVar[str] = "4c31a2b25a8f42f1"


@dataclass(frozen=True)
class Squirrel(Heterophilous):
    """Wikipedia pages on squirrels by their traffic, without duplicate nodes."""

    name: ClassVar[str] = "squirrel"
    shown_as: ClassVar[str] = "Squirrel"
    raw_source: ClassVar[RawSource] = _heterophilous(
        "squirrel_filtered.npz", "f06370ffb3116c5de8b7a600005400b2293c025e0ce2f6916d8201a825505ac7"
    )
    published: ClassVar[GraphFacts] = GraphFacts("444fbdf322a85c6f", 2223, 93996, 1593, 2089, 5)
    own_fingerprint: ClassVar[str] = "8deb58524281f36e"
