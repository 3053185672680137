import hashlib
from pathlib import Path

import numpy as np
import pytest

from lpgnn.config import make_component
from lpgnn.data.benchmarks import Actor, CiteSeer, Heterophilous, Minesweeper
from lpgnn.data.dataset import graph_facts
from lpgnn.errors import InputError

REAL_DATA = Path(__file__).parents[2] / ".." / "shared" / "data"
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


@pytest.mark.parametrize("name", NAMES)
def test_the_published_files(name: str) -> None:
    dataset = make_component("dataset", name)
    (file,) = dataset.raw_source.files
    path = dataset.raw_dir(REAL_DATA) / file.name
    if not path.is_file():
        pytest.skip(f"the real file of {name} is not at ../shared/data")
    assert hashlib.sha256(path.read_bytes()).hexdigest() == file.sha256
    variants = [dataset]
    if isinstance(dataset, Heterophilous):
        variants.append(dataset.replace(split="own"))
    for one in variants:
        assert graph_facts(one.load(REAL_DATA)) == one.facts
