"""How time and memory grow with the graph: block models from ten thousand to a million nodes."""

import csv
import io
import json
import math
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from lpgnn.bench.floor import EpochClock
from lpgnn.bench.plain import time_plain
from lpgnn.config import Settings
from lpgnn.data import BlockModel
from lpgnn.engine import run_repeats
from lpgnn.errors import InputError
from lpgnn.report.drawing import GREY, STYLES, new_figure, our_style, save
from lpgnn.rows import write_atomically

SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
PLAIN_LIMIT = 30_000  # nodes; beyond it the plain pipeline's dense matrices alone fill a machine
FEATURES, CLASSES, DEGREE = 5000, 10, 10.0
EPOCHS = 5
GROWTH_GOAL, MEMORY_GOAL = 1.15, 8000.0  # exponent of time in edges; MB for a million nodes

COLUMNS = ("side", "nodes", "edges", "features", "graph_s", "epoch_s", "peak_mb", "dense_mb")
Measured = dict[str, Any]


def block_model(nodes: int) -> BlockModel:
    return BlockModel(
        num_nodes=nodes, average_degree=DEGREE, num_classes=CLASSES, num_features=FEATURES
    )


def measure_one(options: Mapping[str, str]) -> None:
    """Measure one side at one size in this process and print the row as JSON."""
    side, nodes = options.get("side", "ours"), int(options.get("nodes", SIZES[0]))
    torch.set_num_threads(1)
    started = time.process_time()
    graph = block_model(nodes).generate()
    made = time.process_time() - started
    configuration = Settings(dataset=graph, max_epochs=EPOCHS + 2).resolve()
    if side == "ours":
        clock = EpochClock(with_floor=False)
        run_repeats(configuration, graph, [0], device="cpu", on_epoch=clock)
        epoch = clock.epoch()
    else:
        epoch = time_plain(configuration, graph, "sage", EPOCHS - 2)
    row = {
        "side": side,
        "nodes": nodes,
        "edges": graph.topology.num_edges,
        "features": graph.feature_dim,
        "graph_s": round(made, 2),
        "epoch_s": round(epoch, 5),
        "peak_mb": round(_peak_bytes() / 1e6),
        "dense_mb": dense_mb(nodes, graph.feature_dim),
    }
    print(json.dumps(row))


def dense_mb(nodes: int, features: int) -> int:
    """What N x d features take as single-precision numbers: computed, not measured."""
    return round(4 * nodes * features / 1e6)


def _peak_bytes() -> int:
    """The peak of resident memory of this process (Linux only)."""
    with open("/proc/self/status") as lines:
        (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM"))
    return 1024 * int(peak)


def measure_scale(options: Mapping[str, str]) -> None:
    """Measure every size in a process of its own, write scale.csv row by row and draw it."""
    folder = Path(options.get("results_dir", "results")) / "bench"
    if options.get("draw") == "only":
        rows = read_rows(folder / "scale.csv")
    else:
        wanted = options.get("sizes")
        rows = _measure_all([int(n) for n in wanted.split(",")] if wanted else SIZES, folder)
    for line in conclusions(rows):
        print(line)
    draw(rows, folder)


def _measure_all(sizes: Sequence[int], folder: Path) -> list[Measured]:
    rows: list[Measured] = []
    print("".join(f"{name:>10}" for name in COLUMNS))
    for side in ("ours", "plain"):
        for nodes in sizes:
            if side == "plain" and nodes > PLAIN_LIMIT:
                row = {"side": side, "nodes": nodes, "dense_mb": dense_mb(nodes, FEATURES)}
            else:
                row = _in_own_process(side, nodes)
            rows.append({name: row.get(name, "") for name in COLUMNS})
            print("".join(f"{value!s:>10}" for value in rows[-1].values()), flush=True)
            text = io.StringIO()
            writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(_with_earlier(rows, folder / "scale.csv"))
            write_atomically(folder / "scale.csv", text.getvalue())
    return read_rows(folder / "scale.csv")


def _with_earlier(rows: Sequence[Measured], path: Path) -> list[Measured]:
    """The rows with those of an earlier file for sizes that were not measured this time."""
    if not path.is_file():
        return list(rows)
    with path.open(newline="", encoding="utf-8") as file:
        earlier = {(row["side"], int(row["nodes"])): row for row in csv.DictReader(file)}
    merged = {**earlier, **{(row["side"], int(row["nodes"])): row for row in rows}}
    return [merged[key] for key in sorted(merged)]


def _in_own_process(side: str, nodes: int) -> Measured:
    command = [sys.executable, "-m", "lpgnn.bench", "one", f"side={side}", f"nodes={nodes}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise InputError("nodes", nodes, f"{side} could not be measured: {done.stderr[-300:]}")
    row: Measured = json.loads(done.stdout.splitlines()[-1])
    return row


def read_rows(path: Path) -> list[Measured]:
    """The rows of scale.csv with numbers as numbers; what was not measured stays empty."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [
            {k: v if k == "side" or v == "" else float(v) for k, v in row.items()}
            for row in csv.DictReader(file)
        ]


def growth(rows: Sequence[Measured], least_nodes: int = 0) -> float:
    """The exponent p of time ~ edges^p: least squares of the logarithms; NaN below two points."""
    points = [
        (math.log(float(row["edges"])), math.log(float(row["epoch_s"])))
        for row in rows
        if row["side"] == "ours" and row["epoch_s"] != "" and row["nodes"] >= least_nodes
    ]
    if len(points) < 2:
        return math.nan
    mean_x, mean_y = (sum(axis) / len(points) for axis in zip(*points, strict=True))
    covariance = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return float(covariance / sum((x - mean_x) ** 2 for x, _ in points))


def conclusions(rows: Sequence[Measured]) -> list[str]:
    """What the rows say about the goals, one line each."""
    lines = [f"time of an epoch ~ edges^{growth(rows):.2f} (goal: at most {GROWTH_GOAL})"]
    large = growth(rows, 100_000)
    if not math.isnan(large):
        lines.append(f"from 100,000 nodes up: edges^{large:.2f}")
    for row in rows:
        if row["side"] == "ours" and row["nodes"] == 1_000_000:
            goal = f"goal: under {MEMORY_GOAL / 1000:g} GB"
            lines.append(f"a million nodes: {row['peak_mb'] / 1000:.2f} GB ({goal})")
        if row["side"] == "plain" and row["epoch_s"] == "":
            size = f"{row['dense_mb'] / 1000:g} GB"
            lines.append(f"plain at {row['nodes']:,.0f} nodes: not run, features alone {size}")
    return lines


def draw(rows: Sequence[Measured], folder: Path) -> None:
    """Two panels against edges, both axes logarithmic: seconds an epoch, and peak memory."""
    ours = [row for row in rows if row["side"] == "ours"]
    plain = [row for row in rows if row["side"] == "plain"]
    run = [row for row in plain if row["epoch_s"] != ""]
    edges_of = {row["nodes"]: row["edges"] for row in ours}
    with our_style():
        figure = new_figure(8, 3.7)
        left, right = figure.subplots(1, 2)
        for axes, column, unit in ((left, "epoch_s", 1.0), (right, "peak_mb", 1000.0)):
            for side, (colour, marker) in ((ours, STYLES[0]), (run, STYLES[1])):
                name = "ours" if side is ours else "plain pipeline"
                if axes is left and side is ours:
                    name = f"ours: edges$^{{\\,{growth(rows):.2f}}}$"
                axes.plot(
                    [row["edges"] for row in side],
                    [row[column] / unit for row in side],
                    color=colour,
                    marker=marker,
                    label=name,
                )
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xlabel("edges")
            axes.grid(axis="x")
        colour, marker = STYLES[1]
        right.plot(
            [edges_of[row["nodes"]] for row in plain if row["nodes"] in edges_of],
            [row["dense_mb"] / 1000 for row in plain if row["nodes"] in edges_of],
            color=colour,
            marker=marker,
            markerfacecolor="white",
            linestyle=":",
            label="dense features alone (computed)",
        )
        right.axhline(MEMORY_GOAL / 1000, color=GREY, linestyle="--", linewidth=1, label="8 GB")
        left.set_title("Seconds an epoch")
        right.set_title("Peak memory, GB")
        for axes in (left, right):  # below: the curves and the line of 8 GB fill the panels
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
        save(figure, folder, "scale")
