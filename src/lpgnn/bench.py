"""``python -m lpgnn.bench``: our engine against the plain pipeline, side by side in one run.

The plain pipeline is what everybody writes first: rectify to a dense N x d matrix, KProp it once,
then torch-geometric's layers (on sparse matrices where they take them) and ``torch.optim.Adam`` on
the dense matrix, with the same training step and the same evaluation in each epoch.  Both sides run
on one thread; only ratios mean much.
"""

import argparse
import dataclasses
import gc
import itertools
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lpgnn.config import Configuration, Settings
from lpgnn.data import CsrMatrix, Graph
from lpgnn.errors import InputError
from lpgnn.experiment import collect_repeat, load_dataset, run_repeats, split_of
from lpgnn.privacy import Collected, RandomizedResponse
from lpgnn.propagation.operators import normalised_adjacency, torch_csr
from lpgnn.randomness import derive_generator

# name: (settings, the ratio to reach, epochs of ours, epochs of the plain one)
CASES: dict[str, tuple[dict[str, Any], float, int, int]] = {
    "cora sage mb": ({"dataset": "cora"}, 15, 60, 20),
    "pubmed sage mb": ({"dataset": "pubmed"}, 15, 20, 5),
    "facebook sage mb": ({"dataset": "facebook"}, 100, 10, 3),
    "facebook gcn mb": ({"dataset": "facebook", "backbone": "gcn"}, 40, 10, 3),
    "cora gat mb": ({"dataset": "cora", "backbone": "gat"}, 8, 30, 10),
    "facebook gat mb": ({"dataset": "facebook", "backbone": "gat"}, 15, 5, 3),
    "facebook sage lp": ({"dataset": "facebook", "mechanism": "lp"}, 6, 5, 3),
}


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


def plain_epochs(configuration: Configuration, collected: Collected) -> Iterator[None]:
    """Train the plain pipeline; each step of the iterator is one epoch with its evaluation."""
    c = configuration
    topology = collected.topology.without_self_loops()
    adjacency = torch_csr(normalised_adjacency(topology, "gcn"), torch.device("cpu"))
    x = collected.features.rectified()  # [N, d]
    for _ in range(c.x_steps):
        x = adjacency @ x
    labels, train, val = collected.labels, collected.train_mask, collected.val_mask
    transition = RandomizedResponse(c.y_eps, collected.num_classes).transition()
    one_hot = F.one_hot(labels.clamp(min=0), collected.num_classes).float()
    one_hot[labels < 0] = 0
    for _ in range(c.y_steps):
        one_hot = adjacency @ one_hot
    denoised = one_hot.argmax(1)
    network = PlainNetwork(
        c.backbone.name, x.shape[1], c.hidden_dim, collected.num_classes, c.dropout
    )
    adam = torch.optim.Adam(network.parameters(), c.learning_rate, weight_decay=c.weight_decay)
    # Given a sparse matrix, torch-geometric's SAGE and GCN aggregate by sparse products; given edge
    # lists, they would first copy every neighbour's d features.  GAT takes lists only.
    edges = collected.topology.edge_index()
    if c.backbone.name != "gat":
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
        for _ in range(c.y_steps):
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


def time_plain(configuration: Configuration, graph: Graph, epochs: int) -> float:
    """Median seconds of an epoch of one plain run."""
    split = split_of(configuration, graph, 0)
    steps = plain_epochs(configuration, collect_repeat(configuration, graph, split, 0))
    next(steps)  # the first epoch pays for caches and allocations
    return statistics.median(_timed(lambda: next(steps)) for _ in range(epochs))


def time_ours(configuration: Configuration, graph: Graph, epochs: int, runs: int) -> float:
    """Median seconds of an epoch of one run, when ``runs`` train side by side."""
    ticks: list[tuple[float, int]] = []
    run_repeats(
        dataclasses.replace(configuration, max_epochs=epochs + 2),
        graph,
        range(runs),
        on_epoch=lambda done: ticks.append((time.perf_counter(), done)),
    )
    return statistics.median(
        (after - before) / done
        for (before, batch), (after, done) in itertools.pairwise(ticks)
        if batch == done
    )


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def peak_memory(dataset: str, data_dir: Path, runs: int) -> float:
    """Peak MB of a process that loads a graph and trains ``runs`` repeats of it (Linux only).

    getrusage will not do: a new process inherits the peak of the one that started it.
    """
    script = (
        "import torch; torch.set_num_threads(1)\n"
        "from lpgnn.config import Settings; from lpgnn.experiment import *\n"
        f"c = Settings(dataset={dataset!r}, max_epochs=20).resolve()\n"
        f"run_repeats(c, load_dataset(c, {str(data_dir)!r}), range({runs}))\n"
        "print(*[l for l in open('/proc/self/status') if l.startswith('VmHWM')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    if done.returncode != 0:
        raise InputError("dataset", dataset, f"could not be measured: {done.stderr[-300:]}")
    return float(done.stdout.split()[1]) / 1024


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lpgnn.bench", description=__doc__)
    parser.add_argument("overrides", nargs="*", help="data_dir=DIR runs=10 cases=cora,facebook")
    options = dict(text.split("=", 1) for text in parser.parse_args(arguments).overrides)
    data_dir, runs = Path(options.get("data_dir", "data")), int(options.get("runs", 10))
    prefixes = tuple(options.get("cases", "").split(","))
    torch.set_num_threads(1)
    print(f"{'case':<20}{'plain ms':>10}{'ours ms':>9}{'ratio':>8}{'goal':>10}")
    try:
        for name, (settings, goal, epochs, plain_steps) in CASES.items():
            if not name.startswith(prefixes):
                continue
            configuration = Settings(**settings).resolve()
            graph = load_dataset(configuration, data_dir)
            torch.manual_seed(int(derive_generator(0, 0, "weights").initial_seed()) % 2**31)
            plain = time_plain(configuration, graph, plain_steps)
            gc.collect()
            ours = time_ours(configuration, graph, epochs, runs)
            print(
                f"{name:<20}{1e3 * plain:>10.1f}{1e3 * ours:>9.2f}{plain / ours:>7.1f}x"
                f"{goal:>9.0f}x",
                flush=True,
            )
        if "facebook sage mb".startswith(prefixes):
            for count in (1, runs):
                peak = peak_memory("facebook", data_dir, count)
                print(f"peak memory, {count} Facebook MB run(s) at once: {peak:.0f} MB")
            here = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(f"peak memory of this process, plain pipeline included: {here:.0f} MB")
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
