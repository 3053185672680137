import logging
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from lpgnn.data import cache
from lpgnn.data.cache import is_writable, load_or_build
from lpgnn.data.graph import Graph, Topology
from lpgnn.data.normalise import make_graph
from lpgnn.data.sparse import CsrMatrix


def toy_graph(with_features: bool = True) -> Graph:
    topology = Topology.from_edges(4, torch.tensor([[0, 1, 2], [1, 2, 3]]))
    raw = CsrMatrix.from_dense(torch.tensor([[1.0, 0, 3], [0, 2, 3], [0, 0, 3], [1, 1, 3]]))
    labels = torch.tensor([0, 1, 0, 1])
    return make_graph("toy", topology, raw if with_features else None, labels, 2, feature_dim=9)


class Builder:
    """Counts how often the raw files are parsed."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.calls = graph, 0

    def __call__(self) -> Graph:
        self.calls += 1
        return self.graph


@pytest.fixture
def raw_file(tmp_path: Path) -> Path:
    path = tmp_path / "raw" / "edges.csv"
    path.parent.mkdir()
    path.write_text("0,1\n")
    return path


def assert_same(left: Graph, right: Graph) -> None:
    assert left.fingerprint == right.fingerprint
    assert (left.name, left.num_classes, left.feature_dim) == (
        right.name,
        right.num_classes,
        right.feature_dim,
    )
    assert left.raw_feature_dim == right.raw_feature_dim
    assert torch.equal(left.topology.indices, right.topology.indices)
    assert torch.equal(left.labels, right.labels)
    assert (left.features is None) == (right.features is None)
    if left.features is not None and right.features is not None:
        assert torch.equal(left.features.to_dense(), right.features.to_dense())


@pytest.mark.parametrize("with_features", [True, False])
def test_second_load_is_the_same_graph_without_parsing(
    tmp_path: Path, raw_file: Path, with_features: bool
) -> None:
    build = Builder(toy_graph(with_features))
    path = tmp_path / "processed" / "graph.npz"
    for _ in range(2):
        assert_same(load_or_build(path, [raw_file], build), build.graph)
    assert build.calls == 1
    assert [entry.name for entry in path.parent.iterdir()] == ["graph.npz"]
    assert path.stat().st_mode & 0o777 == 0o644


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def no_archive(path: Path) -> None:
    path.write_bytes(b"not an archive at all")


def other_array(path: Path) -> None:
    arrays = dict(np.load(path))
    arrays["labels"] = 1 - arrays["labels"]
    np.savez(path, **arrays)


def missing_array(path: Path) -> None:
    arrays = dict(np.load(path))
    del arrays["indices"]
    np.savez(path, **arrays)


def old_version(path: Path) -> None:
    arrays = dict(np.load(path))
    header = str(arrays["header"])
    version = f'"format_version": {cache.FORMAT_VERSION}'
    assert version in header
    arrays["header"] = np.array(header.replace(version, '"format_version": 0'))
    np.savez(path, **arrays)


def pickled_objects(path: Path) -> None:
    arrays = dict(np.load(path))
    arrays["labels"] = arrays["labels"].astype(object)
    np.savez(path, **arrays)


@pytest.mark.parametrize(
    "damage",
    [truncate, empty, no_archive, other_array, missing_array, old_version, pickled_objects],
)
def test_untrustworthy_caches_are_rebuilt(
    tmp_path: Path,
    raw_file: Path,
    damage: Callable[[Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    build, path = Builder(toy_graph()), tmp_path / "graph.npz"
    load_or_build(path, [raw_file], build)
    damage(path)
    with caplog.at_level(logging.INFO, "lpgnn"):
        assert_same(load_or_build(path, [raw_file], build), build.graph)
    assert build.calls == 2
    assert [record.levelname for record in caplog.records] == ["INFO"]
    load_or_build(path, [raw_file], build)
    assert build.calls == 2  # the rebuilt one is good again


def test_changed_raw_files_rebuild(tmp_path: Path, raw_file: Path) -> None:
    build, path = Builder(toy_graph()), tmp_path / "graph.npz"
    load_or_build(path, [raw_file], build)
    times = (raw_file.stat().st_atime_ns, raw_file.stat().st_mtime_ns)
    raw_file.write_text("0,2\n")  # of the same size and time
    os.utime(raw_file, ns=times)
    load_or_build(path, [raw_file], build)
    assert build.calls == 2
    more = raw_file.with_name("features.csv")
    more.write_text("")
    load_or_build(path, [raw_file, more], build)
    assert build.calls == 3


def test_read_only_folder_goes_without_a_cache(tmp_path: Path, raw_file: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o555)
    try:
        assert not is_writable(folder / "toy" / "processed")
        build = Builder(toy_graph())
        path = folder / "toy" / "processed" / "graph.npz"
        for _ in range(2):
            assert_same(load_or_build(path, [raw_file], build), build.graph)
        assert build.calls == 2
        assert list(folder.iterdir()) == []
    finally:
        folder.chmod(0o755)
    assert is_writable(folder / "toy" / "processed")


def test_failed_write_leaves_the_old_cache_and_no_rubbish(
    tmp_path: Path, raw_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build, path = Builder(toy_graph()), tmp_path / "processed" / "graph.npz"
    load_or_build(path, [raw_file], build)
    before = path.read_bytes()

    def full_disk(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(np, "savez", full_disk)
    cache.save_cached(build.graph, path, "other key")
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == ["graph.npz"]
