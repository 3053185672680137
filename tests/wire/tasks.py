"""Small tasks and graphs for the tests of client and collector."""

from typing import Any

import torch

from lpgnn.client import Task, write_task
from lpgnn.data.graph import Topology
from lpgnn.privacy.public_graph import PublicGraph


def small_graph(nodes: int = 12) -> PublicGraph:
    """A ring; the first half is asked for training labels, the next quarter for validation."""
    ends = torch.arange(nodes)
    topology = Topology.from_edges(nodes, torch.stack([ends, (ends + 1) % nodes]))
    return PublicGraph(topology, ends < nodes // 2, (ends >= nodes // 2) & (ends < 3 * nodes // 4))


def task_source(**changes: Any) -> bytes:
    given: dict[str, Any] = {
        **{"name": "ring", "graph": small_graph().digest, "num_nodes": 12, "salt": "s"},
        **{"x_eps": 1.0, "num_features": 5, "num_samples": 2, "y_eps": 1.0, "num_classes": 3},
    }
    return write_task(**(given | changes))


def small_task(**changes: Any) -> Task:
    return Task.parse(task_source(**changes))
