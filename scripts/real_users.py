"""From users' devices to predictions: 300 client processes, one collector, one training.

``python scripts/real_users.py [--users 300] [--results-dir results]`` plays a collection through
with nothing shared between the two sides but files.  Each device has its own folder with its
features, its label and its ledger, and runs ``python -m lpgnn.client`` as a process of its own.
Some send twice, some never, and three send rubbish.  The server has the public graph, the task and
an inbox; it collects, trains and predicts.  The picture shows what arrived and what was learnt; the
dotted line is the share of the largest class.
"""

import argparse
import csv
import json
import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lpgnn
from lpgnn.client import write_task
from lpgnn.data import Graph, random_split
from lpgnn.privacy import MultiBit
from lpgnn.privacy.collection import Collection
from lpgnn.privacy.public_graph import PublicGraph
from lpgnn.randomness import derive_generator
from lpgnn.report.drawing import GREY, STYLES, new_figure, our_style, save
from lpgnn.rows import RowStore

X_EPS, Y_EPS, CLASSES, FEATURES = 2.0, 3.0, 4, 60
# What every user allows all tasks together to spend: a user's decision, whatever a task asks for.
LIMIT = 5.0


def publish(graph: Graph, folder: Path) -> PublicGraph:
    """What the server makes known: the graph, who is asked for a label, and the task."""
    split = random_split(graph.num_nodes, generator=derive_generator(0, 0, "split"))
    public = PublicGraph(graph.topology, split.train, split.val)
    folder.mkdir(parents=True)
    public.save(folder / "graph.npz")
    task = write_task(
        name="users",
        graph=public.digest,
        num_nodes=graph.num_nodes,
        x_eps=X_EPS,
        num_features=graph.feature_dim,
        num_samples=MultiBit(X_EPS, graph.feature_dim).m,
        y_eps=Y_EPS,
        num_classes=graph.num_classes,
        missing=0.0,
    )
    (folder / "task.json").write_bytes(task)
    return public


def hand_out(graph: Graph, devices: Path) -> None:
    """Give every device its own data; from here on only the device reads them."""
    assert graph.features is not None
    rows = graph.features.to_dense()
    for node in range(graph.num_nodes):
        own = devices / str(node)
        own.mkdir(parents=True)
        own.joinpath("features.json").write_text(json.dumps(rows[node].tolist()))
        own.joinpath("label").write_text(str(int(graph.labels[node])))


def send(node: int, asked: bool, server: Path, devices: Path, name: str) -> None:
    """One device: a process that reads its own folder and puts a report into the inbox."""
    own = devices / str(node)
    words = ["--node", str(node), "--features", str(own / "features.json")]
    words += ["--ledger", str(own / "ledger.db"), "--limit", f"{LIMIT:g}"]
    words += ["--out", str(server / "inbox" / name)]
    if asked:
        words += ["--label", (own / "label").read_text()]
    command = [sys.executable, "-m", "lpgnn.client", str(server / "task.json"), *words]
    subprocess.run(command, check=True)


def play(graph: Graph, work: Path) -> tuple[int, float]:
    """All devices send; returns the number of processes, and their seconds."""
    server, devices = work / "server", work / "devices"
    public = publish(graph, server)
    hand_out(graph, devices)
    (server / "inbox").mkdir()
    draws = random.Random(0)
    nodes = list(range(graph.num_nodes))
    silent = set(draws.sample(nodes, graph.num_nodes // 30))
    twice = draws.sample([node for node in nodes if node not in silent], graph.num_nodes // 30)
    asked = public.asked.tolist()
    jobs = [(node, f"{node}.lp") for node in nodes if node not in silent]
    jobs += [(node, f"{node}-again.lp") for node in twice]
    started = time.perf_counter()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda job: send(job[0], asked[job[0]], server, devices, job[1]), jobs))
    seconds = time.perf_counter() - started
    (server / "inbox" / "rubbish-1").write_bytes(b"GET / HTTP/1.1\r\n\r\n")
    (server / "inbox" / "rubbish-2").write_bytes(draws.randbytes(21))
    (server / "inbox" / "rubbish-3").write_text('{"lpgnn_report": 1, "node": 5}\n')
    return len(jobs), seconds


def learn(server: Path) -> Path:
    """Collect and train on the server's side alone; returns the file of predictions."""
    places = [f"{name}={server / file}" for name, file in FILES.items()]
    subprocess.run([sys.executable, "-m", "lpgnn.collect", *places], check=True)
    words = [f"reports={server / 'collected.npz'}", "repeats=1", "save=[predictions]"]
    words += ["learner=residual", f"results_dir={server / 'results'}"]
    subprocess.run([sys.executable, "-m", "lpgnn.run", *words], check=True)
    one = lpgnn.Settings(
        reports=server / "collected.npz", learner="residual", save=("predictions",)
    ).resolve()
    folder = RowStore(server / "results").run_folder(one.identity, 0)
    return Path(folder) / "predictions-released.csv"


FILES = {
    **{"task": "task.json", "graph": "graph.npz"},
    **{"reports": "inbox", "out": "collected.npz"},
}


def draw(graph: Graph, server: Path, predictions: list[int], results: Path) -> str:
    """Labels as they are, as they were reported, and as they are predicted."""
    collected = Collection.load("reports", server / "collected.npz").collected()
    truth, reported = graph.labels, collected.labels.classes
    known = reported >= 0
    right = [int(p) == int(t) for p, t in zip(predictions, truth.tolist(), strict=True)]
    with our_style():
        figure = new_figure(7.2, 3.0)
        left, middle = figure.subplots(1, 2)
        shares = {
            "reported labels": float((reported[known] == truth[known]).double().mean()),
            "predictions,\nasked nodes": _share(right, known.tolist(), True),
            "predictions,\nother nodes": _share(right, known.tolist(), False),
        }
        colours = [style[0] for style in STYLES[:3]]
        bars = left.bar(list(shares), [100 * v for v in shares.values()], color=colours)
        left.bar_label(bars, fmt="%.1f", padding=2)
        left.axhline(
            100 * float(truth.bincount().max()) / truth.numel(),
            color=GREY,
            ls=":",
            label="largest class",
        )
        left.legend(loc="upper right", fontsize=8)
        left.set_ylabel("correct (%)")
        left.set_ylim(0, 118)
        left.set_title(f"ε = {X_EPS:g} for features, {Y_EPS:g} for the label", loc="left")
        left.tick_params(axis="x", labelsize=8)
        counts = [[0] * CLASSES for _ in range(CLASSES)]
        for t, p in zip(truth.tolist(), predictions, strict=True):
            counts[t][p] += 1
        middle.imshow(counts, cmap="Blues")
        middle.grid(False)
        for t, row in enumerate(counts):
            for p, count in enumerate(row):
                shade = "white" if 2 * count > max(map(max, counts)) else "black"
                middle.text(p, t, str(count), ha="center", va="center", color=shade)
        middle.set_xticks(range(CLASSES))
        middle.set_yticks(range(CLASSES))
        middle.set_xlabel("predicted class")
        middle.set_ylabel("class")
        middle.set_title(f"{graph.num_nodes} users", loc="left")
        save(figure, results, "real_users")
    return ", ".join(f"{name.replace(chr(10), ' ')} {100 * v:.1f} %" for name, v in shares.items())


def _share(right: list[bool], known: list[bool], wanted: bool) -> float:
    chosen = [r for r, k in zip(right, known, strict=True) if k == wanted]
    return sum(chosen) / len(chosen)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=300)
    parser.add_argument("--results-dir", type=Path, default=Path("results"))
    options = parser.parse_args()
    model = lpgnn.BlockModel(options.users, num_classes=CLASSES, num_features=FEATURES)
    graph = model.load(Path())
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        processes, seconds = play(graph, work)
        print(f"{processes} client processes in {seconds:.1f} s")
        path = learn(work / "server")
        with path.open() as file:
            predictions = [int(row["predicted"]) for row in csv.DictReader(file)]
        print(draw(graph, work / "server", predictions, options.results_dir / "figures"))
    print(f"picture: {options.results_dir / 'figures' / 'real_users.png'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
