import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pytest

from lpgnn.config import make_component
from lpgnn.data.benchmarks import Actor, CiteSeer, Heterophilous, Minesweeper
from lpgnn.data.dataset import GraphFacts, graph_facts
from lpgnn.errors import InputError

NAMES = ("citeseer", "actor", "tolokers", "minesweeper", "chameleon", "squirrel")


@pytest.mark.parametrize("name", NAMES)
def test_a_graph_is_known_without_its_file(name: str, tmp_path: Path) -> None:
    dataset = make_component("dataset", name)
    assert dataset.name == name
    assert dataset.facts.num_nodes > 800
    assert "taken as public" in dataset.facts.ranges
    (url,) = dataset.raw_source.base_urls
    assert url.startswith("https://raw.githubusercontent.com/")
    assert url.endswith("/")
    assert dataset.will_fetch(tmp_path)
    (file,) = dataset.raw_source.files
    with pytest.raises(InputError, match=f"put {file.name} in {tmp_path}"):
        dataset.replace(download=False).load(tmp_path)


def test_a_file_lies_in_the_folder_of_its_collection() -> None:
    assert CiteSeer().raw_dir(Path("data")) == Path("data/citeseer")
    assert Actor().raw_dir(Path("data")) == Path("data/heterophilous")


def test_own_splits_are_another_graph_of_the_same_size() -> None:
    random, own = Minesweeper(), Minesweeper(split="own")
    assert random.facts.fingerprint != own.facts.fingerprint
    assert (random.facts.num_nodes, own.facts.num_nodes) == (10000, 10000)
    assert own.facts.splits == "the graph's own masks, 10 splits in turn"
    with pytest.raises(InputError, match="split=mine: must be random or own"):
        make_component("dataset", {"_target_": Minesweeper().target, "split": "mine"})


def test_another_file_under_its_name_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "heterophilous"
    folder.mkdir()
    x = np.eye(4, dtype=np.float32)
    np.savez(
        folder / "actor.npz",
        node_features=x,
        node_labels=np.array([0, 1, 0, 1]),
        edges=np.array([[0, 1], [2, 3]]),
    )
    with pytest.raises(InputError, match="does not hold the published Actor"):
        Actor().load(tmp_path)


def write_npz(folder: Path, name: str) -> None:
    """Eight nodes on a ring and ten splits, in the layout of heterophilous-graphs."""
    folder.mkdir()
    ring = np.arange(8)
    masks = np.stack([np.roll(np.arange(8) % 4, shift) for shift in range(10)])  # [10, N]
    np.savez(
        folder / name,
        node_features=np.eye(8, 3, dtype=np.float32),
        node_labels=ring % 2,
        edges=np.stack([ring, (ring + 1) % 8], axis=1),
        train_masks=masks < 2,
        val_masks=masks == 2,
        test_masks=masks == 3,
    )


@dataclass(frozen=True)
class SmallActor(Actor):
    """Actor, were it published with eight nodes."""

    name: ClassVar[str] = "actor"
    published: ClassVar[GraphFacts] = GraphFacts("651e71c58c436206", 8, 16, 3, 3, 2)
    own_fingerprint: ClassVar[str] = "6f43bbd13ac2bcd0"


@pytest.mark.parametrize("split", ["random", "own"])
def test_a_graph_of_the_published_facts_is_read(
    split: Literal["random", "own"], tmp_path: Path
) -> None:
    dataset = SmallActor(split=split)
    (file,) = dataset.raw_source.files
    write_npz(tmp_path / "heterophilous", file.name)
    assert graph_facts(dataset.load(tmp_path)) == dataset.facts


@pytest.mark.published
@pytest.mark.parametrize("name", NAMES)
def test_the_published_files(name: str, published_data: Path) -> None:
    dataset = make_component("dataset", name)
    (file,) = dataset.raw_source.files
    path = dataset.raw_dir(published_data) / file.name
    assert hashlib.sha256(path.read_bytes()).hexdigest() == file.sha256
    variants = [dataset]
    if isinstance(dataset, Heterophilous):
        variants.append(dataset.replace(split="own"))
    for one in variants:
        assert graph_facts(one.load(published_data)) == one.facts
