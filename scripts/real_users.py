"""From users' devices to predictions: 300 client processes, one collector, one training.

``python scripts/real_users.py [--users 300] [--rounds 1] [--results-dir results]`` plays a
collection through with nothing shared between the two sides but files.  Each device has its own
folder with its features, its label and its ledger, and runs ``python -m lpgnn.client`` as a process
of its own.  Some send twice, some never, and three send rubbish.  The server has the public graph,
the task and an inbox; it collects, trains and predicts.  With ``--rounds 2`` devices send their
labels, and are asked about their features afterwards: each answers one of two questions.  The
picture shows what arrived and what was learnt; the dotted line is the share of the largest class.
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


def publish(graph: Graph, folder: Path, rounds: int) -> PublicGraph:
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
        num_samples=MultiBit(X_EPS, graph.feature_dim).m if rounds == 1 else 0,
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


def send(node: int, asked: bool, server: Path, devices: Path, name: str, number: int = 0) -> None:
    """One device: a process that reads its own folder and puts a report into the inbox.

    number: of the question that it answers; 0: it reports
    """
    own = devices / str(node)
    words = ["--node", str(node), "--features", str(own / "features.json")]
    words += ["--ledger", str(own / "ledger.db"), "--limit", f"{LIMIT:g}"]
    words += ["--out", str(inbox(server, number) / name)]
    if number:
        words += ["--question", str(server / f"question-{number}.json")]
    elif asked:
        words += ["--label", (own / "label").read_text()]
    command = [sys.executable, "-m", "lpgnn.client", str(server / "task.json"), *words]
    subprocess.run(command, check=True)


def inbox(server: Path, number: int) -> Path:
    return server / f"inbox-{number}"


def collection(server: Path, number: int) -> Path:
    """What the server has after so many questions."""
    return server / f"collected-{number}.npz"


def play(graph: Graph, work: Path, rounds: int) -> tuple[int, float]:
    """All devices send, in two rounds their labels; returns how many processes, and seconds."""
    server, devices = work / "server", work / "devices"
    public = publish(graph, server, rounds)
    hand_out(graph, devices)
    inbox(server, 0).mkdir()
    draws = random.Random(0)
    nodes = [v for v in range(graph.num_nodes) if rounds == 1 or bool(public.asked[v])]
    silent = set(draws.sample(nodes, graph.num_nodes // 30))
    twice = draws.sample([node for node in nodes if node not in silent], graph.num_nodes // 30)
    asked = public.asked.tolist()
    jobs = [(node, f"{node}.lp") for node in nodes if node not in silent]
    jobs += [(node, f"{node}-again.lp") for node in twice]
    started = time.perf_counter()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda job: send(job[0], asked[job[0]], server, devices, job[1]), jobs))
    seconds = time.perf_counter() - started
    (inbox(server, 0) / "rubbish-1").write_bytes(b"GET / HTTP/1.1\r\n\r\n")
    (inbox(server, 0) / "rubbish-2").write_bytes(draws.randbytes(21))
    (inbox(server, 0) / "rubbish-3").write_text('{"lpgnn_report": 1, "node": 5}\n')
    places = [f"task={server / 'task.json'}", f"graph={server / 'graph.npz'}"]
    places += [f"reports={inbox(server, 0)}", f"out={collection(server, 0)}"]
    subprocess.run([sys.executable, "-m", "lpgnn.collect", *places], check=True)
    return len(jobs), seconds


def ask(work: Path, number: int) -> tuple[int, float]:
    """The server asks, the devices answer; returns how many processes, and seconds."""
    server, devices = work / "server", work / "devices"
    before, question = collection(server, number - 1), server / f"question-{number}.json"
    words = [f"reports={before}", "learner=two_round", "--out", str(question)]
    subprocess.run([sys.executable, "-m", "lpgnn.question", *words], check=True)
    inbox(server, number).mkdir()
    nodes = json.loads(question.read_text())["nodes"]
    started = time.perf_counter()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda v: send(v, True, server, devices, f"{v}.lp", number), nodes))
    seconds = time.perf_counter() - started
    places = [f"question={question}", f"collected={before}", f"reports={inbox(server, number)}"]
    places += [f"out={collection(server, number)}"]
    subprocess.run([sys.executable, "-m", "lpgnn.collect", *places], check=True)
    return len(nodes), seconds


def learn(server: Path, reports: Path, learner: str) -> Path:
    """Train on the server's side alone; returns the file of predictions."""
    words = [f"reports={reports}", "repeats=1", "save=[predictions]"]
    words += [f"learner={learner}", f"results_dir={server / 'results'}"]
    subprocess.run([sys.executable, "-m", "lpgnn.run", *words], check=True)
    one = lpgnn.Settings(reports=reports, learner=learner, save=("predictions",)).resolve()
    folder = RowStore(server / "results").run_folder(one.identity, 0)
    return Path(folder) / "predictions-released.csv"


def draw(graph: Graph, reports: Path, predictions: list[int], figures: Path, name: str) -> str:
    """Labels as they are, as they were reported, and as they are predicted."""
    collected = Collection.load("reports", reports).collected()
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
        save(figure, figures, name)
    return ", ".join(f"{name.replace(chr(10), ' ')} {100 * v:.1f} %" for name, v in shares.items())


def _share(right: list[bool], known: list[bool], wanted: bool) -> float:
    chosen = [r for r, k in zip(right, known, strict=True) if k == wanted]
    return sum(chosen) / len(chosen)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=300)
    parser.add_argument("--rounds", type=int, choices=(1, 2), default=1)
    parser.add_argument("--results-dir", type=Path, default=Path("results"))
    options = parser.parse_args()
    model = lpgnn.BlockModel(options.users, num_classes=CLASSES, num_features=FEATURES)
    graph = model.load(Path())
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        parts = [play(graph, work, options.rounds)]
        if options.rounds == 2:
            parts += [ask(work, number) for number in (1, 2)]
        for processes, seconds in parts:
            print(f"{processes} client processes in {seconds:.1f} s")
        reports = collection(work / "server", len(parts) - 1)
        learner, name = ("residual", "real_users")
        if options.rounds == 2:
            learner, name = ("two_round", "real_users_two_rounds")
        path = learn(work / "server", reports, learner)
        with path.open() as file:
            predictions = [int(row["predicted"]) for row in csv.DictReader(file)]
        print(draw(graph, reports, predictions, options.results_dir / "figures", name))
    print(f"picture: {options.results_dir / 'figures' / name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
