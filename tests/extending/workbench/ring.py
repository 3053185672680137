"""A custom graph: rings of nodes, each ring a class."""

from pathlib import Path

import torch

from lpgnn import Graph
from lpgnn.data import CsrMatrix, Topology, make_graph


def load(data_dir: Path, *, size: int = 60, classes: int = 3) -> Graph:
    nodes = torch.arange(size * classes)
    labels = nodes // size
    edges = torch.stack([nodes, labels * size + (nodes + 1) % size])
    x = torch.nn.functional.one_hot(labels, classes + 2).float()
    x[:, -1] = nodes % 2
    x[:, -2] = nodes % 5 / 4
    topology = Topology.from_edges(len(nodes), edges)
    return make_graph("ring", topology, CsrMatrix.from_dense(x), labels, classes)
