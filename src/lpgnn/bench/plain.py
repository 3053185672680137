"""The plain pipeline, which everybody writes first.

Rectify to a dense N x d matrix, KProp it once, then torch-geometric's layers (on sparse matrices
where they take them) and ``torch.optim.Adam`` on the dense matrix, with the same training step and
the same evaluation in each epoch.
"""

import statistics
import time
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lpgnn.config import Configuration
from lpgnn.data import CsrMatrix, Graph
from lpgnn.engine import collect_repeat, split_of
from lpgnn.privacy import Collected
from lpgnn.propagation.matrices import torch_csr
from lpgnn.propagation.operators import normalised_adjacency
from lpgnn.randomness import derive_generator


class PlainNetwork(nn.Module):
    """Two layers of torch-geometric, as its tutorials write them."""

    def __init__(self, backbone: str, features: int, hidden: int, classes: int, dropout: float):
        super().__init__()
        from torch_geometric.nn import GATConv, GCNConv, SAGEConv

        self.dropout = dropout
        if backbone == "gat":
            self.first: nn.Module = GATConv(features, hidden, heads=4)
            self.second: nn.Module = GATConv(4 * hidden, classes, heads=1, concat=False)
        else:
            layer = {"gcn": GCNConv, "sage": SAGEConv}[backbone]
            self.first, self.second = layer(features, hidden), layer(hidden, classes)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:  # [N, d] -> [N, c]
        hidden = F.selu(self.first(x, edges))
        hidden = F.dropout(hidden, self.dropout, self.training)
        logits: Tensor = self.second(hidden, edges)
        return logits


def plain_epochs(
    configuration: Configuration, collected: Collected, backbone: str
) -> Iterator[None]:
    """Train the plain pipeline; each step of the iterator is one epoch with its evaluation.

    It knows KProp and Drop, as the paper has them; backbone: gcn, sage or gat
    """
    c = configuration
    assert collected.features is not None
    assert c.filter is not None
    x_steps, y_steps = c.filter.max_steps, c.learner.label_steps
    topology = collected.topology.without_self_loops()
    adjacency = torch_csr(normalised_adjacency(topology, "gcn"), torch.device("cpu"))
    x = collected.features.rectified()  # [N, d]
    for _ in range(x_steps):
        x = adjacency @ x
    labels, train, val = collected.labels.classes, collected.train_mask, collected.val_mask
    transition = collected.labels.transition.float()
    one_hot = F.one_hot(labels.clamp(min=0), collected.num_classes).float()
    one_hot[labels < 0] = 0
    for _ in range(y_steps):
        one_hot = adjacency @ one_hot
    denoised = one_hot.argmax(1)
    network = PlainNetwork(backbone, x.shape[1], c.hidden_dim, collected.num_classes, c.dropout)
    adam = torch.optim.Adam(network.parameters(), c.learning_rate, weight_decay=c.weight_decay)
    # Given a sparse matrix, torch-geometric's SAGE and GCN aggregate by sparse products; given edge
    # lists, they would first copy every neighbour's d features.  GAT takes lists only.
    edges = collected.topology.edge_index()
    if backbone != "gat":
        ones = torch.ones(edges.shape[1])
        whole = CsrMatrix(
            collected.topology.indptr, collected.topology.indices, ones, (len(x),) * 2
        )
        edges = torch_csr(whole, torch.device("cpu"))

    while True:
        network.train()
        adam.zero_grad()
        clean = network(x, edges).softmax(1)
        noisy = clean @ transition
        for _ in range(y_steps):
            noisy = adjacency @ noisy
        loss = F.nll_loss(noisy.log_softmax(1)[train], denoised[train])
        loss.backward()
        adam.step()
        (clean.argmax(1)[train] == labels[train]).float().mean().item()
        network.eval()
        with torch.no_grad():
            clean = network(x, edges).softmax(1)
            noisy = clean @ transition
            F.nll_loss(noisy[val].log(), labels[val]).item()
            predictions = clean.argmax(1)
            (predictions[train] == labels[train]).float().mean().item()
            (predictions[val] == labels[val]).float().mean().item()
        yield


def time_plain(configuration: Configuration, graph: Graph, backbone: str, epochs: int) -> float:
    """Median CPU seconds of an epoch of one plain run."""
    # torch-geometric draws its weights from torch's global stream.
    torch.manual_seed(derive_generator(0, 0, "weights").initial_seed() % 2**31)
    split = split_of(configuration, graph, 0)
    steps = plain_epochs(configuration, collect_repeat(configuration, graph, split, 0), backbone)
    next(steps)  # the first epoch pays for caches and allocations
    seconds = []
    for _ in range(epochs):
        started = time.process_time()
        next(steps)
        seconds.append(time.process_time() - started)
    return statistics.median(seconds)
