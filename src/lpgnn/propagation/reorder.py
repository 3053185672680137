"""Another numbering of the nodes, under which sparse products find their operands in the cache."""

import dataclasses

import torch
from torch import Tensor

from lpgnn.data.graph import Topology
from lpgnn.data.sparse import CsrMatrix
from lpgnn.privacy import Collected

# Below this size a product's operand fits in the cache whatever the order.
_SMALL = 8000


def cache_order(topology: Topology) -> Tensor:
    """Nodes in reverse Cuthill-McKee order: neighbours near each other.  -> [N]

    Takes a quarter off a large product; small graphs keep their order.
    """
    if topology.num_nodes < _SMALL:
        return torch.arange(topology.num_nodes)
    import numpy as np
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    shape = (topology.num_nodes, topology.num_nodes)
    ones = np.ones(topology.num_entries, dtype=np.int8)
    matrix = csr_matrix((ones, topology.indices.numpy(), topology.indptr.numpy()), shape=shape)
    return torch.from_numpy(reverse_cuthill_mckee(matrix, symmetric_mode=True).astype(np.int64))


def reorder_topology(topology: Topology, order: Tensor) -> Topology:
    """The same graph with node ``order[i]`` called i."""
    rank = torch.empty_like(order)
    rank[order] = torch.arange(order.numel())
    return Topology.from_edges(topology.num_nodes, rank[topology.edge_index()])


def reorder(collected: Collected, topology: Topology, order: Tensor) -> Collected:
    """What was collected, in another order; ``topology`` is the reordered one, shared by runs."""
    features = collected.features
    sent = features.sent
    moved = sent.select_rows(order) if isinstance(sent, CsrMatrix) else sent[order]
    return dataclasses.replace(
        collected,
        topology=topology,
        features=dataclasses.replace(features, sent=moved),
        labels=collected.labels[order],
        train_mask=collected.train_mask[order],
        val_mask=collected.val_mask[order],
    )
