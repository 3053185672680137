import pickle
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from conftest import Imports
from lpgnn.components import Component
from lpgnn.config import make_component
from lpgnn.data import (
    BlockModel,
    Dataset,
    FunctionDataset,
    Graph,
    GraphFacts,
    InMemory,
    dataset_from_target,
    graph_facts,
)
from lpgnn.data.graph import Topology
from lpgnn.data.normalise import make_graph
from lpgnn.data.planted import Planted
from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError
from lpgnn.hyperparameters import conf_dir

MODULE = """
from functools import partial
from lpgnn.data import BlockModel, Dataset

def load(data_dir, *, num_nodes=100, tags=()):
    return BlockModel(num_nodes=num_nodes, num_classes=3, num_features=50).generate()

def broken(data_dir):
    return {"x": 1}

def buggy(data_dir):
    return len(3)

def café(data_dir):
    return load(data_dir)

bound = partial(load, num_nodes=90)

class Own(Dataset):
    def load(self, data_dir):
        return load(data_dir)

class Abstract(Dataset):
    pass
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's module, importable as ``plugged``."""
    path = tmp_path / "plugged.py"
    path.write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield path
    sys.modules.pop("plugged", None)


def toy_graph(name: str = "toy", label: int = 1) -> Graph:
    # A path 0 - 1 - 2 - 3 with a loop at 3; the last column is constant.
    topology = Topology.from_edges(4, torch.tensor([[0, 1, 2, 3], [1, 2, 3, 3]]))
    raw = CsrMatrix.from_dense(torch.tensor([[1.0, 0, 3], [0, 2, 3], [0, 0, 3], [1, 1, 3]]))
    return make_graph(name, topology, raw, torch.tensor([0, 1, 0, label]), 2)


def test_facts_are_counted_by_hand() -> None:
    graph = toy_graph()
    facts = graph_facts(graph)
    assert facts == GraphFacts(graph.fingerprint, 4, 7, 2, 3, 2)
    assert (facts.num_edges, facts.average_degree) == (3, 1.75)


def test_every_dataset_file_gives_the_defaults_of_its_class() -> None:
    paths = {path.stem: path for path in (conf_dir() / "dataset").glob("*.yaml")}
    paper = {"cora", "pubmed", "facebook", "lastfm"}
    beyond = {"citeseer", "actor", "tolokers", "minesweeper", "chameleon", "squirrel"}
    assert set(paths) == {*paper, *beyond, "sbm", "planted", "custom", "files", "pyg"}
    assert yaml.safe_load(paths.pop("custom").read_text()) == {"_target_": "???"}
    for name, given in (("files", {"path": "x"}), ("pyg", {"class": "KarateClub"})):
        options = yaml.safe_load(paths.pop(name).read_text())
        dataset = make_component("dataset", {**options, **given, "ranges": "unit"})
        expected = {key: value for key, value in options.items() if key != "_target_"}
        assert dataset.options() == {**expected, **given, "ranges": "unit"}
    for name, path in paths.items():
        options = yaml.safe_load(path.read_text())
        target = options.pop("_target_")
        dataset = dataset_from_target(target, options)
        assert (dataset.name, dataset.target) == (name, target)
        assert dataset == type(dataset)()
        assert options == dataset.options()
        assert (dataset.facts is None) == isinstance(dataset, BlockModel | Planted)
        assert dataset.tuned_as == name


def test_options_of_a_class_are_its_fields() -> None:
    dataset = dataset_from_target("lpgnn.data.BlockModel", {"num_nodes": 99, "num_classes": 3})
    assert dataset == BlockModel(num_nodes=99, num_classes=3)
    with pytest.raises(InputError, match=r"^dataset=.*nodes"):
        dataset_from_target("lpgnn.data.BlockModel", {"nodes": 99})
    with pytest.raises(InputError, match=r"^dataset\.homophily=2: "):
        dataset_from_target("lpgnn.data.BlockModel", {"homophily": 2})


def test_a_function_gets_the_folder_and_its_own_options_only(module: Path, tmp_path: Path) -> None:
    dataset = dataset_from_target("plugged.load", {"num_nodes": 77, "tags": ["a"], "name": "mine"})
    assert isinstance(dataset, FunctionDataset)
    assert (dataset.name, dataset.title, dataset.tuned_as) == ("mine", "mine", "mine")
    assert dataset.facts is None
    assert dataset.options() == {"num_nodes": 77, "tags": ["a"]}
    assert dataset.load(tmp_path).num_nodes == 77
    assert dataset.load(tmp_path).name == "sbm"  # the graph keeps the name its function gave it
    assert hash(dataset) == hash(pickle.loads(pickle.dumps(dataset)))
    assert pickle.loads(pickle.dumps(dataset)) == dataset
    assert pickle.loads(pickle.dumps(dataset)).name == "mine"
    assert dataset_from_target("plugged.load", {}).name == "plugged.load"
    assert dataset_from_target("plugged.café", {}).name == "plugged.caf_"


def test_a_users_class_is_no_different_from_ours(module: Path, tmp_path: Path) -> None:
    dataset = dataset_from_target("plugged.Own", {})
    assert (dataset.name, dataset.load(tmp_path).num_nodes) == ("Own", 100)
    assert dataset.source != ""


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("plugged.load", {"nodes": 3}, r"dataset=\{'nodes': 3\}: .*plugged.load.*'nodes'"),
        ("plugged.load", {"data_dir": "x"}, "data_dir"),
        ("plugged.load", {"name": "../x"}, r"dataset\.name=\.\./x: names a file"),
        ("plugged.load", {"name": ".hidden"}, "no dot in front"),
        ("plugged.load", {"name": "a b"}, "names a file"),
        ("plugged.load", {"name": "x" * 101}, "up to 100"),
        ("plugged.MISSING", {}, r"dataset\._target_=plugged\.MISSING: "),
        ("plugged", {}, r"dataset\._target_=plugged: "),
        ("nowhere.load", {}, "No module named 'nowhere'"),
        ("plugged.BlockModel.num_nodes", {}, r"dataset\._target_="),
        ("plugged.Abstract", {}, "abstract"),
        ("builtins.dict", {}, r"must be a subclass of lpgnn\.data\.Dataset or a function"),
        ("builtins.max", {"key": 1}, "builtins.max"),
    ],
)
def test_bad_targets_and_options_are_one_line(
    module: Path, target: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        dataset_from_target(target, options)
    assert "\n" not in str(caught.value)


def test_a_function_must_return_a_graph(module: Path, tmp_path: Path) -> None:
    message = r"^dataset\._target_=plugged\.broken: must return a lpgnn\.Graph, not dict"
    with pytest.raises(InputError, match=message):
        dataset_from_target("plugged.broken", {}).load(tmp_path)


def test_a_bug_in_a_function_keeps_its_traceback(module: Path, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"object of type 'int' has no len"):
        dataset_from_target("plugged.buggy", {}).load(tmp_path)


def test_editing_a_module_changes_the_identity(
    module: Path, tmp_path: Path, import_anew: Imports
) -> None:
    """Edits of a module count in the next process."""
    ours = "lpgnn.data.BlockModel"
    targets = ["plugged.load", "plugged.bound", "plugged.Own", ours]
    import_anew(tmp_path)
    before = [dataset_from_target(target, {}).identity for target in targets]
    module.write_text(MODULE.replace("num_features=50", "num_features=60"), encoding="utf-8")
    import_anew(tmp_path)
    after = [dataset_from_target(target, {}).identity for target in targets]
    for target, first, second in zip(targets, before, after, strict=True):
        assert (first == second) == (target == ours)


def test_options_and_name_of_a_function_are_in_its_identity(module: Path) -> None:
    base = dataset_from_target("plugged.load", {}).identity
    others = [
        dataset_from_target("plugged.load", {"num_nodes": 101}).identity,
        dataset_from_target("plugged.load", {"name": "mine"}).identity,
        dataset_from_target("plugged.café", {"name": "plugged.load"}).identity,
    ]
    assert base not in others
    assert base == dataset_from_target("plugged.load", {"name": "plugged.load"}).identity


def test_a_graph_in_memory_is_a_dataset(tmp_path: Path) -> None:
    graph = toy_graph("mine")
    dataset = InMemory(graph)
    assert dataset.load(tmp_path) is graph
    assert (dataset.name, dataset.facts) == ("mine", graph_facts(graph))
    assert dataset.identity == {
        "name": "mine",
        "options": {},
        "fingerprint": graph.fingerprint,
    }
    assert dataset == InMemory(toy_graph("mine"))
    assert hash(dataset) == hash(InMemory(toy_graph("mine")))
    assert dataset != InMemory(toy_graph("mine", label=0))
    assert dataset.replace() == dataset


@pytest.mark.parametrize("name", ["", "a/b", "..", "naïve", "a\nb", "a:b"])
def test_names_that_are_no_file_names_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"^dataset\.name=" + re.escape(name.replace("\n", r"\n"))):
        InMemory(toy_graph(name))
    with pytest.raises(InputError, match=r"^dataset\.name="):
        type("Plain", (Dataset,), {"name": name})


def test_a_subclass_needs_a_loader_only(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Path4(Dataset):
        label: int = 1

        def load(self, data_dir: Path) -> Graph:
            return toy_graph("other", self.label)

    dataset = Path4()
    assert isinstance(dataset, Component)
    assert (dataset.kind, dataset.name, dataset.title) == ("dataset", "Path4", "Path4")
    assert (dataset.facts, dataset.facts_at(tmp_path)) == (None, None)
    assert dataset.identity["options"] == {"label": 1}
    assert dataset.identity != replace(dataset, label=0).identity
