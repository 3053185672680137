"""Every dataset by its name."""

import logging
from dataclasses import dataclass
from pathlib import Path

from lpgnn.data import karateclub, planetoid
from lpgnn.data.cache import load_or_build
from lpgnn.data.graph import Graph
from lpgnn.data.sbm import BlockModel
from lpgnn.errors import InputError


@dataclass(frozen=True)
class GraphStatistics:
    """A line of the paper's dataset table."""

    num_classes: int
    num_nodes: int
    num_edges: int
    num_features: int
    average_degree: float


PAPER_STATISTICS = {
    "cora": GraphStatistics(7, 2708, 5278, 1433, 3.90),
    "pubmed": GraphStatistics(3, 19717, 44324, 500, 4.50),
    "facebook": GraphStatistics(4, 22470, 170912, 4714, 15.21),
    "lastfm": GraphStatistics(10, 7083, 25814, 7842, 7.29),
}


def statistics(graph: Graph) -> GraphStatistics:
    t = graph.topology
    return GraphStatistics(
        graph.num_classes, t.num_nodes, t.num_edges, graph.raw_feature_dim, t.num_entries / t.num_nodes
    )


def load_graph(
    name: str, data_dir: Path, block_model: BlockModel | None = None, download: bool = True
) -> Graph:
    if name == "sbm":
        return (block_model or BlockModel()).generate()
    if name not in PAPER_STATISTICS:
        raise InputError("dataset", name, "must be one of cora, pubmed, facebook, lastfm, sbm")
    raw = Path(data_dir) / name / "raw"
    if name in ("cora", "pubmed"):
        return planetoid.read_planetoid(name, raw)
    return getattr(karateclub, name.upper()).read(raw)
