import csv
import math
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lpgnn.data.files import Files
from lpgnn.data.graph import Graph
from lpgnn.errors import InputError

from .own_graph import (
    CLASSES,
    as_data,
    as_frames,
    as_network,
    own_graph,
    write_folder,
    write_npz,
)

# Importing torch_geometric warns of its own deprecated calls in some versions.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

PEOPLE = own_graph()
BOUNDS = [-3, 7]


def load(path: Path, **options: Any) -> Graph:
    return Files(path=str(path), **{"ranges": BOUNDS, **options}).load(Path("nowhere"))


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return load(write_folder(PEOPLE, tmp_path_factory.mktemp("data") / "people"))


def test_a_folder_of_csv_files(people: Graph) -> None:
    assert people.name == "people"
    assert people.node_ids == tuple(PEOPLE.ids)
    assert people.class_names == tuple(sorted(CLASSES))
    named = ["" if k < 0 else people.class_names[k] for k in people.labels.tolist()]
    assert named == PEOPLE.labels
    assert people.features is not None
    expected = (torch.tensor(PEOPLE.features, dtype=torch.float64) + 3) / 10
    torch.testing.assert_close(people.features.to_dense(), expected.float())
    assert people.ranges.source == "declared"
    assert people.ranges.num_clamped == 0


def test_edges_are_undirected_and_single_and_loners_stay(people: Graph) -> None:
    pairs = {frozenset(edge) for edge in PEOPLE.edges}
    loops = sum(len(pair) == 1 for pair in pairs)
    assert people.topology.num_entries == 2 * (len(pairs) - loops) + loops
    assert people.topology.num_self_loops() == loops == 1
    degrees = people.topology.indptr.diff()
    alone = {PEOPLE.ids[v] for v in (degrees == 0).nonzero().flatten().tolist()}
    assert alone == PEOPLE.loners
    assert len(alone) == 5


def test_own_parts_hold_labelled_nodes_only(people: Graph) -> None:
    (split,) = people.splits.own
    for name, mask in split.parts().items():
        expected = [p == name and y != "" for p, y in zip(PEOPLE.parts, PEOPLE.labels, strict=True)]
        assert mask.tolist() == expected


def graphml(folder: Path) -> Path:
    import networkx as nx

    nx.write_graphml(as_network(PEOPLE), folder / "g.graphml")
    return folder / "g.graphml"


def pt(folder: Path) -> Path:
    torch.save(as_data(PEOPLE), folder / "g.pt")
    return folder / "g.pt"


def dict_of_tensors(folder: Path) -> Path:
    data = as_data(PEOPLE)
    torch.save(data.to_dict(), folder / "g.pt")
    return folder / "g.pt"


def features_and_labels(folder: Path) -> Path:
    with (write_folder(PEOPLE, folder / "whole") / "nodes.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    parts = folder / "parts"
    parts.mkdir()
    (folder / "whole" / "edges.csv").rename(parts / "edges.csv")
    (parts / "features.csv").write_text("".join(",".join(row[:5]) + "\n" for row in rows))
    kept = [row for row in reversed(rows[1:]) if row[5] or row[6]]  # any order, no empty rows
    (parts / "labels.csv").write_text(
        "id,label,split\n" + "".join(f"{row[0]},{row[5]},{row[6]}\n" for row in kept)
    )
    return parts


def pairs(folder: Path) -> Path:
    write_folder(PEOPLE, folder)
    (folder / "nodes.csv").unlink()
    rows = zip(PEOPLE.ids, PEOPLE.labels, PEOPLE.parts, strict=True)
    (folder / "labels.csv").write_text(
        "id,label,split\n" + "".join(f"{v},{y},{part}\n" for v, y, part in rows)
    )
    entries = [
        f"{v},f{j},{value}\n"
        for v, x in zip(PEOPLE.ids, PEOPLE.features, strict=True)
        for j, value in enumerate(x)
        if value != 0
    ]
    (folder / "features.csv").write_text("id,feature,value\n" + "".join(reversed(entries)))
    return folder


@pytest.mark.parametrize(
    "write",
    [
        features_and_labels,
        pairs,
        graphml,
        pt,
        dict_of_tensors,
        lambda folder: write_npz(PEOPLE, folder / "g.npz", "gnn-benchmark"),
        lambda folder: write_npz(PEOPLE, folder / "g.npz", "heterophilous"),
    ],
)
def test_every_form_gives_the_same_graph(
    write: Callable[[Path], Path], tmp_path: Path, people: Graph
) -> None:
    graph = load(write(tmp_path))
    assert graph.fingerprint == people.fingerprint
    assert (graph.node_ids, graph.class_names) == (people.node_ids, people.class_names)


def test_one_call_each_in_a_notebook(people: Graph) -> None:
    nodes, edges = as_frames(PEOPLE)
    graphs = [
        Graph.from_frames(nodes, edges, ranges=(-3, 7)),
        Graph.from_frames(nodes.rename_axis("id").reset_index(), edges, ranges=(-3, 7)),
        Graph.from_networkx(as_network(PEOPLE), ranges=(-3, 7)),
        Graph.from_pyg(as_data(PEOPLE), ranges=(-3, 7)),
        Graph.from_pyg(people.to_pyg(), ranges="unit"),
    ]
    assert {graph.fingerprint for graph in graphs} == {people.fingerprint}
    assert {graph.node_ids for graph in graphs} == {people.node_ids}


def test_a_networks_vectors_are_features(people: Graph) -> None:
    import networkx as nx

    network = nx.Graph()
    for v, x, y in zip(PEOPLE.ids, PEOPLE.features, PEOPLE.labels, strict=True):
        network.add_node(v, x=np.array(x), label=y)
    graph = Graph.from_networkx(network, ranges=(-3, 7))
    assert graph.features is not None
    assert people.features is not None
    assert torch.equal(graph.features.to_dense(), people.features.to_dense())


def test_numbers_as_ids_and_labels_keep_their_order(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("id,a,label\n10,0.5,2\n9,0.1,10\n11,1,\n12,0,2\n")
    (tmp_path / "edges.csv").write_text("a,b,weight\n9,10,0.5\n10,11,2\n")
    graph = load(tmp_path, ranges="unit")
    assert graph.node_ids == ("10", "9", "11", "12")
    assert graph.class_names == ("2", "10")
    assert graph.labels.tolist() == [0, 1, -1, 0]
    assert graph.splits.own == ()


def test_ranges_are_declared_in_a_file_and_by_name(tmp_path: Path) -> None:
    folder = write_folder(PEOPLE, tmp_path / "people")
    (folder / "ranges.csv").write_text("feature,low,high\nf1,-3,7\nf0,-3,7\nf3,-3,7\nf2,0,1\n")
    for ranges in (None, "file"):
        graph = load(folder, ranges=ranges)
        assert graph.ranges.low is not None
        assert graph.ranges.low.tolist() == [-3, -3, 0, -3]
        outside = sum(not 0 <= x[2] <= 1 for x in PEOPLE.features)
        assert graph.ranges.num_clamped == outside > 0
        assert f"{outside} values outside, clamped" in graph.ranges.describe()
    nodes, edges = as_frames(PEOPLE)
    named = {"f0": (-3, 7), "f1": (-3, 7), "f2": (0, 1), "f3": (-3, 7)}
    assert Graph.from_frames(nodes, edges, ranges=named).fingerprint == graph.fingerprint
    with pytest.raises(InputError, match="ranges=none of feature 'f3'"):
        Graph.from_frames(nodes, edges, ranges={n: r for n, r in named.items() if n != "f3"})
    with pytest.raises(InputError, match="ranges=feature 'f9': the graph has no such feature"):
        Graph.from_frames(nodes, edges, ranges={**named, "f9": (0, 1)})


def test_splits_by_ratio_or_at_random_instead_of_its_own(people: Graph, tmp_path: Path) -> None:
    folder = write_folder(PEOPLE, tmp_path / "people")
    assert load(folder, split="random").splits.own == ()
    by_ratio = load(folder, split=[0.6, 0.2, 0.2])
    assert by_ratio.splits.describe() == "random 60/20/20"
    digests = {load(folder, split=s).fingerprint for s in ("random", "own", [0.6, 0.2, 0.2])}
    assert len(digests) == 3
    assert people.fingerprint in digests


def test_a_path_may_lie_in_the_data_folder(tmp_path: Path, people: Graph) -> None:
    write_folder(PEOPLE, tmp_path / "people")
    found = Files(path="people", ranges=BOUNDS).load(tmp_path)
    assert found.fingerprint == people.fingerprint


NODES = "id,a,b,label,split\nx,1,0,u,train\ny,0,1,w,val\nz,1,1,u,test\n"
EDGES = "from,to\nx,y\ny,z\n"


@pytest.mark.parametrize(
    ("nodes", "edges", "message"),
    [
        (NODES, None, r"dataset\.path=.*has no edges\.csv"),
        (None, EDGES, r"has no features\.csv"),
        ("", EDGES, r"nodes\.csv=empty"),
        (NODES, "", r"edges\.csv=empty"),
        (NODES, EDGES + "q,x\n", r"edges=id 'q' in row 3\): every id must be that of a node"),
        (NODES, EDGES + "x\n", r"edges=id '' in row 3"),
        (NODES, "x,y\ny,z\n", r"edges\.csv=first line x,y\): must name the columns"),
        (NODES, "from\nx\n", r"needs columns, separated by commas"),
        (NODES, "from;to\nx;y\n", r"header 'from;to'"),
        (NODES + "x,0,0,u,train\n", EDGES, r"nodes=id 'x' twice"),
        (NODES + ",0,0,u,train\n", EDGES, r"nodes=no id in row 4"),
        (NODES.replace("1,1,u", "1,lots,u"), EDGES, r"'lots' of node 'z' in column 'b'"),
        (NODES.replace("1,1,u", "1,,u"), EDGES, r"'' of node 'z' in column 'b'"),
        (
            NODES.replace("1,1,u", "1,nan,u"),
            EDGES,
            r"of node 'z' in .*must be a finite",
        ),
        (NODES.replace("1,1,u", "1,inf,u"), EDGES, r"of node 'z' in column 'b'"),
        (NODES.replace("1,1,u", "1,1e400,u"), EDGES, r"features='inf' of node 'z' in column 'b'"),
        (NODES.replace("label", "klass"), EDGES, r"one column must be 'label', with blanks"),
        (NODES.replace("id,a", "who,id"), EDGES, r"nodes=column 'id'\): must be the first"),
        (NODES, f"from,to\n{'q' * 5000},x\n", r"edges=id 'q{56}\.\.\. in row 1"),
        (NODES.replace("w,val", "u,val"), EDGES, r"labels=one class, 'u'"),
        (NODES.replace(",u,", ",,").replace(",w,", ",,"), EDGES, r"labels=0 classes"),
        (NODES.replace("val", "valid"), EDGES, r"dataset\.split='valid': must be train, val"),
        (NODES.replace("val", "test"), EDGES, r"dataset\.split=no val node"),
        (NODES.replace("a,b", "a,a"), EDGES, r"nodes\.csv=two columns 'a'"),
        (NODES + "v,0,0,u,train,1,2\n", EDGES, r"Expected 5 fields in line 5, saw 7"),
        (NODES + '"v,0,0,u,train\n', EDGES, r"nodes\.csv=not a table"),
        ("id,label,split\nx,u,train\ny,w,val\n", EDGES, "at least one must be a feature"),
        ("x,1,2\ny,0,1\n", EDGES, r"nodes\.csv=first line x,1,2\): must name the columns"),
        (NODES.split("\n")[0] + "\n", EDGES, r"nodes=no rows"),
    ],
)
def test_bad_folders_are_refused_in_one_line(
    tmp_path: Path, nodes: str | None, edges: str | None, message: str
) -> None:
    for name, text in (("nodes.csv", nodes), ("edges.csv", edges)):
        if text is not None:
            (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        load(tmp_path, ranges="unit")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(("dataset.path=", "dataset.split="))


def test_text_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_bytes("id,a,label\nZoë,1,u\n".encode("latin-1"))
    (tmp_path / "edges.csv").write_text(EDGES)
    with pytest.raises(InputError, match=r"nodes\.csv=(not a table|not readable)"):
        load(tmp_path, ranges="unit")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranges": None}, r"dataset\.ranges=null: must be declared"),
        ({"ranges": "file"}, r"dataset\.ranges=file: there is no .*ranges\.csv"),
        ({"ranges": "wide"}, r"ranges=wide: must be unit, file, data"),
        ({"ranges": [1, 0]}, r"dataset\.ranges=\[1, 0\] of feature 0: low must be below high"),
        ({"ranges": [0, math.inf]}, r"dataset\.ranges=.*both finite"),
        ({"ranges": [0, 5e-324]}, r"dataset\.ranges=.*both finite"),
        ({"ranges": [-1.7e308, 1.7e308]}, r"dataset\.ranges=.*both finite"),
        ({"split": [math.nan, 0.5, 0.5]}, r"dataset\.split=.*must be three positive numbers"),
        ({"split": "mine"}, r"dataset\.split=mine: must be own, random or three ratios"),
        ({"split": [0.5, 0.5]}, r"dataset\.split="),
        ({"split": [0.9, 0.2, 0.2]}, r"dataset\.split=\(0\.9, 0\.2, 0\.2\)"),
        ({"path": "missing"}, r"dataset\.path=missing: not found"),
        ({"path": ""}, r"path=: must name a folder"),
    ],
)
def test_bad_options_are_refused_in_one_line(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "edges.csv").write_text(EDGES)
    with pytest.raises(InputError, match=message) as caught:
        Files(**{"path": str(tmp_path), "ranges": "unit", **options}).load(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_folder_has_one_list_of_features(tmp_path: Path) -> None:
    for name, content in (("nodes.csv", NODES), ("edges.csv", EDGES), ("features.csv", NODES)):
        (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=r"features\.csv: stands beside nodes\.csv"):
        load(tmp_path, ranges="unit")


@pytest.mark.parametrize(
    ("rows", "message"),
    [("", "features=none"), ("x,,1\n", "no feature in row 1"), ("x,f,nan\n", "'nan' in row 1")],
)
def test_bad_pairs_are_refused(rows: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "features.csv").write_text("id,feature,value\n" + rows)
    (tmp_path / "labels.csv").write_text("id,label\nx,u\ny,w\nz,\n")
    (tmp_path / "edges.csv").write_text(EDGES)
    with pytest.raises(InputError, match=message):
        load(tmp_path, ranges="unit")


@pytest.mark.parametrize("form", ["utf-8-sig", "CRLF", "blank lines", "quoted"])
def test_tables_as_other_programs_write_them(form: str, tmp_path: Path) -> None:
    plain, other = tmp_path / "plain", tmp_path / "other"
    for folder in (plain, other):
        folder.mkdir()
        for name, content in (("nodes.csv", NODES), ("edges.csv", EDGES)):
            written = content.replace("x", "x\n1") if form == "quoted" else content
            if form == "quoted":
                written = written.replace("x\n1", '"x\n1"')
            if folder == other and form == "CRLF":
                written = written.replace("\n", "\r\n")
            if folder == other and form == "blank lines":
                written = written.replace("\n", "\n\n")
            marked = folder == other and form == "utf-8-sig"
            encoding = "utf-8-sig" if marked else "utf-8"
            (folder / name).write_bytes(written.encode(encoding))
    found = load(other, ranges="unit")
    assert found.fingerprint == load(plain, ranges="unit").fingerprint
    assert found.node_ids == (("x\n1" if form == "quoted" else "x"), "y", "z")


def test_own_without_masks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODES.replace("split", "c").replace("train", "1"))
    write_folder(PEOPLE, tmp_path / "people", split=False)
    with pytest.raises(InputError, match=r"dataset\.split=own: the graph has no train"):
        load(tmp_path / "people", split="own")


@pytest.mark.parametrize(
    ("low", "message"),
    [("a", "must be numbers"), ("8", r"\[8, 7\] of feature"), ("", "must be numbers")],
)
def test_bad_range_files_are_refused(tmp_path: Path, low: str, message: str) -> None:
    folder = write_folder(PEOPLE, tmp_path / "people")
    lines = "".join(f"f{j},{low},7\n" for j in range(4))
    (folder / "ranges.csv").write_text(f"feature,low,high\n{lines}")
    with pytest.raises(InputError, match=rf"dataset\.ranges=.*{message}"):
        load(folder, ranges="file")


class Trap:
    """Code in a pickle that must never run."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (exec, ("raise SystemExit('the file ran')",))


def npz(**arrays: Any) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        np.savez(folder / "g.npz", **arrays)
        return folder / "g.npz"

    return write


def saved(value: Any) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        torch.save(value, folder / "g.pt")
        return folder / "g.pt"

    return write


def text(name: str, content: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_text(content)
        return folder / name

    return write


def huge_array(folder: Path) -> Path:
    """A header that promises 10^14 numbers, and none of them."""
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (100000000000000,), }".ljust(117)
    start = b"\x93NUMPY\x01\x00" + (len(header) + 1).to_bytes(2, "little")
    with zipfile.ZipFile(folder / "g.npz", "w") as archive:
        archive.writestr("labels.npy", start + header + b"\n")
    return folder / "g.npz"


CSR = {
    "adj_indices": np.array([1, 0]),
    "adj_indptr": np.array([0, 1, 2]),
    "adj_shape": np.array([2, 2]),
    "attr_matrix": np.eye(2),
    "labels": np.array([0, 1]),
}
EDGE_ARRAYS = {
    "node_features": np.eye(2),
    "node_labels": np.array([0, 1]),
    "edges": np.array([[0, 1]]),
}


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (npz(a=np.ones(3)), "npz=arrays a"),
        (npz(**{**CSR, "adj_indices": np.array([1, 5])}), r"adj_indices=1\.\.5"),
        (npz(**{**CSR, "adj_indptr": np.array([0, 1])}), "do not fit together"),
        (npz(**{**CSR, "adj_indptr": np.array([0, 3, 2])}), "must not fall"),
        (npz(**{**CSR, "labels": np.array([0.5, 1])}), "labels=shape .* float64"),
        (npz(**{**CSR, "labels": np.array([0, 1, 1])}), "labels=shape"),
        (npz(**{**CSR, "labels": np.array([Trap(), Trap()])}), "npz=labels.: must be a plain"),
        (huge_array, "not a readable npz of plain arrays: Unable to allocate"),
        (npz(**{**EDGE_ARRAYS, "edges": np.array([[0, 7]])}), r"edges=0\.\.7"),
        (npz(**{**EDGE_ARRAYS, "edges": np.array([0, 1])}), r"must be \[E, 2\]"),
        (npz(**{**EDGE_ARRAYS, "node_features": np.ones(2)}), r"must be \[N, d\]"),
        (text("g.npz", "not a zip"), "not a readable npz of plain arrays: it is no zip archive$"),
        (text("g.npz", ""), "not a readable npz of plain arrays: it is no zip archive$"),
        (saved(Trap()), "must hold nothing but a Data"),
        (saved([1, 2]), "pt=list"),
        (saved({"x": torch.ones(2, 1)}), r"data\.edge_index="),
        (text("g.pt", "text"), "pt=g.pt"),
        (text("g.graphml", "<graphml"), "not readable as GraphML"),
        (text("g.xlsx", ""), "must be a folder with edges.csv"),
    ],
)
def test_bad_files_are_refused_in_one_line(
    write: Callable[[Path], Path], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load(write(tmp_path), ranges="unit")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("dataset.path=")
