"""A made-up graph of a user's own, in every form that it can be read from."""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CLASSES = ("north", "south", "east")


@dataclass(frozen=True)
class OwnGraph:
    """People with text ids: features in [-3, 7], missing labels, loners, parts of their own."""

    ids: list[str]
    features: list[list[float]]
    labels: list[str]  # '' = none
    parts: list[str]  # '' = none
    edges: list[tuple[str, str]]

    @property
    def loners(self) -> set[str]:
        return set(self.ids) - {end for edge in self.edges for end in edge}


def own_graph(size: int = 120, num_features: int = 4, seed: int = 0) -> OwnGraph:
    draw = random.Random(seed)
    ids = [f"person {number:03d}" for number in range(size)]
    groups = [number % len(CLASSES) for number in range(size)]
    features = [
        [
            round(min(7.0, max(-3.0, draw.gauss(6.0 if j % 3 == group else -1.0, 1.0))), 3)
            for j in range(num_features)
        ]
        for group in groups
    ]
    edges = []
    for v in range(size - 5):  # the last five know nobody
        for _ in range(4):
            alike = [u for u in range(size - 5) if groups[u] == groups[v] and u != v]
            edges.append((ids[v], ids[draw.choice(alike)]))
    edges += [edges[0], (edges[1][1], edges[1][0]), (ids[0], ids[0])]  # twice, back, itself
    labels = ["" if v % 6 == 5 else CLASSES[group] for v, group in enumerate(groups)]
    parts = [("train", "train", "val", "test", "")[v % 5] for v in range(size)]
    return OwnGraph(ids, features, labels, parts, edges)


def write_folder(graph: OwnGraph, folder: Path, *, split: bool = True) -> Path:
    """``nodes.csv`` and ``edges.csv``."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"f{j}" for j in range(len(graph.features[0]))]
    header = ["name", *names, "label", *(["split"] if split else [])]
    lines = [",".join(header)]
    for v, x, y, part in zip(graph.ids, graph.features, graph.labels, graph.parts, strict=True):
        lines.append(",".join([v, *map(str, x), y, *([part] if split else [])]))
    (folder / "nodes.csv").write_text("\n".join(lines) + "\n")
    pairs = "".join(f"{u},{v}\n" for u, v in graph.edges)
    (folder / "edges.csv").write_text(f"who,whom\n{pairs}")
    return folder


def as_frames(graph: OwnGraph) -> tuple[Any, Any]:
    import pandas as pd

    names = [f"f{j}" for j in range(len(graph.features[0]))]
    nodes = pd.DataFrame(graph.features, columns=names, index=graph.ids)
    nodes["label"] = [label or None for label in graph.labels]
    nodes["split"] = graph.parts
    return nodes, pd.DataFrame(graph.edges, columns=["who", "whom"])


def as_network(graph: OwnGraph) -> Any:
    import networkx as nx

    network = nx.DiGraph()
    for v, x, y, part in zip(graph.ids, graph.features, graph.labels, graph.parts, strict=True):
        known = {"label": y} if y else {}
        network.add_node(v, **{f"f{j}": value for j, value in enumerate(x)}, split=part, **known)
    network.add_edges_from(graph.edges)
    return network


def as_data(graph: OwnGraph) -> Any:
    import torch
    from torch_geometric.data import Data

    number = {v: place for place, v in enumerate(graph.ids)}
    names = sorted(CLASSES)
    data = Data(
        x=torch.tensor(graph.features, dtype=torch.float64),
        edge_index=torch.tensor([[number[u], number[v]] for u, v in graph.edges]).t(),
        y=torch.tensor([names.index(y) if y else -1 for y in graph.labels]),
    )
    for part in ("train", "val", "test"):
        data[f"{part}_mask"] = torch.tensor([own == part for own in graph.parts])
    data.node_ids, data.class_names = graph.ids, names
    return data


def write_npz(graph: OwnGraph, path: Path, layout: str) -> Path:
    import numpy as np
    from scipy.sparse import csr_matrix

    data = as_data(graph)
    x, y = data.x.numpy(), data.y.numpy()
    names = {"node_names": np.array(graph.ids), "class_names": np.array(sorted(CLASSES))}
    parts = ("train", "val", "test")
    masks = {f"{part}_masks": data[f"{part}_mask"].numpy()[None] for part in parts}
    if layout == "heterophilous":
        arrays = {"node_features": x, "node_labels": y, "edges": data.edge_index.t().numpy()}
    else:
        pairs = np.unique(data.edge_index.numpy(), axis=1)
        size = (len(y), len(y))
        arrays = {"labels": y}
        adjacency = csr_matrix((np.ones(pairs.shape[1]), pairs), size)
        for prefix, matrix in (("adj", adjacency), ("attr", csr_matrix(x))):
            for part in ("data", "indices", "indptr", "shape"):
                arrays[f"{prefix}_{part}"] = np.asarray(getattr(matrix, part))
    np.savez(path, allow_pickle=False, **{**arrays, **names, **masks})
    return path
