"""The central finding once more, by a program that imports nothing of lpgnn.

Cora at eps_x = 1 with clean labels: a two-layer GraphSAGE learns from multi-bit reports of (a) the
nodes' own features, (b) no features at all, every user having the same ones, (c) another node's
features, and (d) from a column of ones for each feature, sent as it is.  Everything is dense and
plain; the formulas are the paper's (Algorithms 1 and 2, KProp), the hyper-parameters the authors'.

``python scripts/independent_check.py [--data-dir data] [--repeats 10]`` reads Planetoid's raw files
in DATA_DIR/cora/raw, prints mean accuracy and 95 % t intervals, and writes
``results/independent_check.csv``.
"""

import argparse
import csv
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse, stats

EPS_X, STEPS, RATE, DECAY, DROPOUT, EPOCHS, HIDDEN = 1.0, 16, 0.01, 0.01, 0.75, 500, 16
SETTINGS = ("own features", "no features", "another node's features", "ones")


class ArraysOnly(pickle.Unpickler):
    """Planetoid's files are pickles; only array types are let in."""

    def find_class(self, module: str, name: str) -> Any:
        plain = (module, name) in (("__builtin__", "list"), ("collections", "defaultdict"))
        if not plain and module.split(".")[0] not in ("numpy", "scipy"):
            raise pickle.UnpicklingError(f"{module}.{name} is not an array type")
        return super().find_class(module, name)


def read(folder: Path, name: str) -> Any:
    with (folder / f"ind.cora.{name}").open("rb") as file:
        return ArraysOnly(file, encoding="latin1").load()


def cora(folder: Path) -> tuple[np.ndarray, np.ndarray, sparse.csr_matrix]:
    """Features [N, d] without constant columns, labels [N], adjacency without self-loops."""
    index = [int(line) for line in (folder / "ind.cora.test.index").read_text().split()]
    order = np.argsort(index)
    x = sparse.vstack([read(folder, "allx"), read(folder, "tx")[order]]).toarray()
    y = np.vstack([read(folder, "ally"), read(folder, "ty")[order]]).argmax(1)
    pairs = [(u, v) for u, others in read(folder, "graph").items() for v in others if u != v]
    rows, columns = np.array(pairs + [(v, u) for u, v in pairs]).T
    ones = np.ones(len(rows))
    adjacency = sparse.csr_matrix((ones, (rows, columns)), shape=(len(y), len(y)))
    adjacency.data[:] = 1.0
    x = (x > 0).astype(float)
    return x[:, x.std(0) > 0], y, adjacency


def multi_bit(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Algorithms 1 and 2 with alpha = 0, beta = 1 and m = max(1, floor(eps / 2.18)): [N, d]."""
    n, d = x.shape
    m = max(1, min(d, math.floor(EPS_X / 2.18)))
    stay = math.exp(EPS_X / m)
    report = np.zeros_like(x)
    for v in range(n):
        chosen = rng.choice(d, m, replace=False)
        p = 1 / (stay + 1) + x[v, chosen] * (stay - 1) / (stay + 1)
        report[v, chosen] = np.where(rng.random(m) < p, 1.0, -1.0)
    rectified: np.ndarray = d / (2 * m) * (stay + 1) / (stay - 1) * report + 0.5
    return rectified


def train(
    x: torch.Tensor, y: torch.Tensor, mean: torch.Tensor, parts: list[torch.Tensor], seed: int
) -> float:
    """Test accuracy at the epoch of the lowest validation loss, in per cent."""
    torch.manual_seed(seed)
    d = x.shape[1]
    classes = int(y.max()) + 1
    left1, right1 = torch.nn.Linear(d, HIDDEN), torch.nn.Linear(d, HIDDEN, bias=False)
    left2, right2 = torch.nn.Linear(HIDDEN, classes), torch.nn.Linear(HIDDEN, classes, bias=False)
    layers = torch.nn.ModuleList([left1, right1, left2, right2])
    adam = torch.optim.Adam(layers.parameters(), RATE, weight_decay=DECAY)
    fit, val, test = parts
    best = (math.inf, 0.0)
    for _ in range(EPOCHS):
        both = x @ torch.cat([left1.weight, right1.weight]).T  # mean(x) W = mean(x W)
        near, own = both.split(HIDDEN, dim=1)
        hidden = torch.nn.functional.selu(mean @ near + left1.bias + own)

        def logits(h: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = left2(mean @ h) + right2(h)
            return out

        with torch.no_grad():  # the weights of the step before
            p = logits(hidden).softmax(1)
            loss = -(p[val, y[val]] + 1e-20).log().mean().item()
            accuracy = 100 * (p[test].argmax(1) == y[test]).float().mean().item()
            best = min(best, (loss, accuracy), key=lambda one: one[0])
        p = logits(torch.nn.functional.dropout(hidden, DROPOUT)).softmax(1)
        adam.zero_grad()
        (-(p[fit, y[fit]] + 1e-20).log().mean()).backward()
        adam.step()
    return best[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("results/independent_check.csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    features, labels, adjacency = cora(options.data_dir / "cora" / "raw")
    n = len(labels)
    degree = np.maximum(np.asarray(adjacency.sum(1)).ravel(), 1)
    scale = sparse.diags(degree**-0.5)
    step = scale @ adjacency @ scale  # symmetric, without self-loops
    averaging = (sparse.diags(1 / degree) @ adjacency).tocsr().astype(np.float32)
    edges = averaging.tocoo()
    place = torch.from_numpy(np.stack([edges.row, edges.col]).astype(np.int64))
    mean = torch.sparse_coo_tensor(place, torch.from_numpy(edges.data), (n, n)).coalesce()
    y = torch.from_numpy(labels)
    found: dict[str, list[float]] = {name: [] for name in SETTINGS}
    for repeat in range(options.repeats):
        rng = np.random.default_rng(20_000 + repeat)
        order = torch.from_numpy(rng.permutation(n))
        parts = list(order.split([n // 2, n // 4, n - n // 2 - n // 4]))
        same = np.full_like(features, features.mean())
        inputs = {
            SETTINGS[0]: multi_bit(features, rng),
            SETTINGS[1]: multi_bit(same, rng),
            SETTINGS[2]: multi_bit(features[rng.permutation(n)], rng),
            SETTINGS[3]: np.ones_like(features),
        }
        for name, x in inputs.items():
            for _ in range(STEPS):
                x = step @ x
            reports = torch.from_numpy(x.astype(np.float32))
            found[name].append(train(reports, y, mean, parts, repeat))
            print(f"repeat {repeat}, {name}: {found[name][-1]:.1f}", flush=True)
    rows = []
    for name, values in found.items():
        gap = np.array(found[SETTINGS[0]]) - np.array(values)
        quantile = stats.t.ppf(0.975, len(values) - 1) / math.sqrt(len(values))
        row = {"reports of": name, "repeats": len(values), "mean": round(float(np.mean(values)), 2)}
        row |= {"half_width": round(float(quantile * np.std(values, ddof=1)), 2)}
        row |= {"own_minus_this": round(float(gap.mean()), 2)}
        row |= {"its_half_width": round(float(quantile * gap.std(ddof=1)), 2)}
        rows.append(row)
        print(", ".join(f"{key} {value}" for key, value in row.items()))
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
