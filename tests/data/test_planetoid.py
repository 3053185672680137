import os
import pickle
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

from lpgnn.data.planetoid import PICKLE_PARTS, read_cora_text, read_planetoid
from lpgnn.errors import InputError

# Five nodes on a path 0-1-2-3-4 with a loop at 2; nodes 3 and 4 are listed as (4, 3).
FEATURES = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1], [1, 0, 1]], dtype=np.float32)
LABELS = [0, 1, 0, 1, 2]


def write_planetoid(folder: Path, name: str = "toy") -> None:
    one_hot = np.eye(3, dtype=np.int32)[LABELS]
    neighbours: dict[int, list[int]] = defaultdict(list)
    neighbours.update({0: [1, 1], 1: [0, 2], 2: [1, 2, 3], 3: [2, 4], 4: [3]})
    parts: dict[str, Any] = {
        "x": csr_matrix(FEATURES[:1]),
        "tx": csr_matrix(FEATURES[[4, 3]]),
        "allx": csr_matrix(FEATURES[:3]),
        "y": one_hot[:1],
        "ty": one_hot[[4, 3]],
        "ally": one_hot[:3],
        "graph": neighbours,
    }
    for part, content in parts.items():
        (folder / f"ind.{name}.{part}").write_bytes(pickle.dumps(content, protocol=4))
    (folder / f"ind.{name}.test.index").write_text("4\n3\n")


def test_nodes_features_and_labels_come_in_the_order_of_their_ids(tmp_path: Path) -> None:
    write_planetoid(tmp_path)
    graph = read_planetoid("toy", tmp_path)
    assert graph.labels.tolist() == LABELS
    assert graph.features is not None
    assert graph.features.to_dense().tolist() == FEATURES.tolist()
    assert graph.topology.edge_index().tolist() == [
        [0, 1, 1, 2, 2, 3, 3, 4],
        [1, 0, 2, 1, 3, 2, 4, 3],
    ]
    assert graph.num_classes == 3


@pytest.mark.parametrize("part", PICKLE_PARTS)
def test_missing_or_truncated_files_are_named(tmp_path: Path, part: str) -> None:
    write_planetoid(tmp_path)
    path = tmp_path / f"ind.toy.{part}"
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match=f"ind.toy.{part}"):
        read_planetoid("toy", tmp_path)
    path.write_bytes(b"")
    with pytest.raises(InputError, match=f"ind.toy.{part}"):
        read_planetoid("toy", tmp_path)
    path.unlink()
    with pytest.raises(InputError, match=f"ind.toy.{part}.*missing"):
        read_planetoid("toy", tmp_path)


class Malicious:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("part", ["allx", "ally", "graph"])
def test_malicious_pickle_is_refused_and_not_run(tmp_path: Path, part: str) -> None:
    write_planetoid(tmp_path)
    target = tmp_path / "executed"
    content = pickle.dumps(Malicious(target), protocol=2)
    (tmp_path / f"ind.toy.{part}").write_bytes(content)
    with pytest.raises(InputError, match=r"refused: the pickle names (posix|nt)\.mkdir"):
        read_planetoid("toy", tmp_path)
    assert not target.exists()
    pickle.loads(content)  # the attack itself works
    assert target.exists()


@pytest.mark.parametrize(
    "content",
    [b"cbuiltins\neval\n(S'1'\ntR.", b"cnumpy\nload\n.", b"cnumpy.core.multiarray\nscalar\n."],
)
def test_only_array_types_are_admitted(tmp_path: Path, content: bytes) -> None:
    write_planetoid(tmp_path)
    (tmp_path / "ind.toy.graph").write_bytes(content)
    with pytest.raises(InputError, match="refused"):
        read_planetoid("toy", tmp_path)


def test_old_module_names_are_understood(tmp_path: Path) -> None:
    write_planetoid(tmp_path)
    path = tmp_path / "ind.toy.allx"
    content = pickle.dumps(csr_matrix(FEATURES[:3]), protocol=3)
    for new, old in ((b"scipy.sparse._csr", b"scipy.sparse.csr"), (b"numpy._core", b"numpy.core")):
        content = content.replace(new, old)
    assert b"scipy.sparse.csr\n" in content
    path.write_bytes(content)
    assert read_planetoid("toy", tmp_path).labels.tolist() == LABELS


@pytest.mark.parametrize(
    ("part", "content", "message"),
    [
        ("graph", {0: [1], 7: [0]}, r"node 7 .*0\.\.4"),
        ("graph", {-1: [1]}, r"0\.\.4"),
        ("graph", [1, 2], "dictionary of neighbour lists"),
        ("allx", np.zeros((3, 3)), "sparse matrix"),
        ("allx", csr_matrix(FEATURES[:2]), "test.index"),
        ("ally", np.zeros((3, 3)), "exactly one label"),
        ("ty", np.eye(3), "disagree"),
        ("y", np.eye(3), "disagree"),
    ],
)
def test_wrong_content_is_refused(tmp_path: Path, part: str, content: Any, message: str) -> None:
    write_planetoid(tmp_path)
    (tmp_path / f"ind.toy.{part}").write_bytes(pickle.dumps(content, protocol=4))
    with pytest.raises(InputError, match=message):
        read_planetoid("toy", tmp_path)


CONTENT = "31\t1\t0\t0\tTheory\n7\t0\t1\t1\tAgents\n12\t0\t1\t0\tTheory\n"
PAPERS, SUBJECTS = ("12", "31", "7"), ("Theory", "Agents")


def test_cora_text_files_are_numbered_like_the_pickles(tmp_path: Path) -> None:
    (tmp_path / "cora.content").write_text(CONTENT)
    (tmp_path / "cora.cites").write_text("31\t7\n7\t31\n7\t12\n12\t12\n")
    graph = read_cora_text(tmp_path, PAPERS, SUBJECTS)
    assert graph.topology.edge_index().tolist() == [[0, 1, 2, 2], [2, 2, 0, 1]]
    assert graph.labels.tolist() == [0, 0, 1]
    assert graph.features is not None
    assert torch.equal(graph.features.to_dense(), torch.tensor([[0.0, 1, 0], [1, 0, 0], [0, 1, 1]]))
    reversed_lines = "".join(reversed(CONTENT.splitlines(keepends=True)))
    (tmp_path / "cora.content").write_text(reversed_lines)
    assert read_cora_text(tmp_path, PAPERS, SUBJECTS).fingerprint == graph.fingerprint


@pytest.mark.parametrize(
    ("content", "cites", "message"),
    [
        (CONTENT[:-9], "31\t7\n", "cora.content"),
        ("31\t1\tTheory\n31\t0\tAgents\n", "31\t31\n", "cora.content"),
        (CONTENT.replace("12", "13"), "31\t7\n", "cora.content: must hold the 3 papers"),
        (CONTENT.replace("Agents", "Robots"), "31\t7\n", "3 papers and 2 subjects"),
        (CONTENT, "31\n", "cora.cites"),
        (CONTENT, "", "cora.cites"),
        (CONTENT, "31\t8\n", "paper 8"),
    ],
)
def test_damaged_text_files_are_named(
    tmp_path: Path, content: str, cites: str, message: str
) -> None:
    (tmp_path / "cora.content").write_text(content)
    (tmp_path / "cora.cites").write_text(cites)
    with pytest.raises(InputError, match=message):
        read_cora_text(tmp_path, PAPERS, SUBJECTS)
