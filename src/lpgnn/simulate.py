"""``python -m lpgnn.simulate``: write what the users of a clean graph would send."""

from __future__ import annotations

import argparse
import csv
import io
import math
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lpgnn.client import (
    ClientError,
    Published,
    Report,
    Task,
    answer,
    encode,
    perturb,
    to_json,
    write_task,
)
from lpgnn.commands import Command, one_run, writing
from lpgnn.config import Settings
from lpgnn.errors import InputError, exit_code
from lpgnn.files import write_atomically

if TYPE_CHECKING:
    from lpgnn.data import Graph, Split
    from lpgnn.data.sparse import CsrMatrix
    from lpgnn.privacy.public_graph import PublicGraph

USAGE = """\
Settings are those of lpgnn.run; dataset, mechanism, x_eps, y_eps, split and seed count here, and
with learner=two_round users send labels only and are asked about their features later.
Exit codes: 0 done, 2 bad input."""


def main(arguments: Sequence[str] | None = None) -> int:
    command = Command(
        "simulate",
        "Write what the users of a clean graph would send: task.json, graph.npz and reports.bin, "
        "made by the client, and labels.csv to evaluate with.",
        USAGE,
    )
    command.add_argument("--out", type=Path, required=True, help="the folder to write")
    command.takes_repeat("draw as this repeat of a run does")
    command.add_argument("--json", action="store_true", help="reports.jsonl instead of reports.bin")
    command.add_argument(
        "--question",
        type=Path,
        help="write what they would answer to this question of the task in the folder --out; the "
        "answers have its name",
    )
    command.takes_settings()
    options = command.read(arguments)
    return exit_code(lambda: _simulate(options))


def _simulate(options: argparse.Namespace) -> int:
    settings = one_run(options)
    from lpgnn.engine import split_of
    from lpgnn.privacy.public_graph import PublicGraph

    configuration = settings.resolve()
    graph = configuration.dataset.load(settings.data_path)
    split = split_of(configuration, graph, options.repeat)
    public = PublicGraph(graph.topology, split.train, split.val, graph.node_ids, graph.class_names)
    # A stream of its own for each (seed, repeat): another repeat is another collection.
    stream = f"lpgnn/users/{settings.seed}/{options.repeat}"
    if options.question is not None:
        return _simulate_answers(options, graph, public, stream)
    source = task_of(settings, graph, public, salt=f"simulated/{settings.seed}/{options.repeat}")
    task = Task.parse(source)
    draws = random.Random(stream).getrandbits
    drawn = _reports(task, graph, public, draws)
    reports = [_written(task, report, as_json=options.json) for report in drawn]
    name = "reports.jsonl" if options.json else "reports.bin"
    with writing("--out", options.out):
        write_atomically(options.out / "task.json", source)
        public.save(options.out / "graph.npz")
        write_atomically(options.out / name, b"".join(reports))
        write_atomically(options.out / "labels.csv", _labels(graph, split))
    print(
        f"{len(reports):,} reports of {task.report_bytes} bytes in {options.out / name}\n"
        f"next: python -m lpgnn.collect task={options.out / 'task.json'} "
        f"graph={options.out / 'graph.npz'} reports={options.out / name}"
    )
    return 0


def _simulate_answers(
    options: argparse.Namespace, graph: Graph, public: PublicGraph, stream: str
) -> int:
    """What the nodes that a question names would answer, each drawn by the client."""
    from lpgnn.privacy.collection import check_graph, read_question, read_task

    task = read_task("--out", options.out / "task.json")
    check_graph("--out", options.out / "task.json", task, public)
    question = read_question("--question", options.question, task)
    draws = random.Random(f"{stream}/{question.hash.hex()}").getrandbits
    answers = []
    for node, features in enumerate(_rows(_private(graph), task)):
        if node in question:
            drawn = answer(task, question, node=node, features=features, random_bits=draws)
            answers.append(_written(question, drawn, as_json=options.json))
    path = options.out / f"{options.question.stem}.{'jsonl' if options.json else 'bin'}"
    with writing("--out", options.out):
        write_atomically(path, b"".join(answers))
    print(
        f"{len(answers):,} answers of {question.report_bytes} bytes in {path}\n"
        f"next: python -m lpgnn.collect question={options.question} reports={path} "
        "collected=FILE, the one that the question was made from"
    )
    return 0


def _written(published: Published, report: Report, *, as_json: bool) -> bytes:
    return f"{to_json(published, report)}\n".encode() if as_json else encode(published, report)


def _private(graph: Graph) -> CsrMatrix:
    if graph.features is None:
        raise InputError("dataset", graph.name, "has no private features to report")
    return graph.features


def task_of(settings: Settings, graph: Graph, public: PublicGraph, *, salt: str) -> bytes:
    """The task that asks users for what a run with these settings simulates."""
    from lpgnn.privacy import RandomizedResponse

    labels = settings.component("label_mechanism")
    features = _private(graph)
    protocol: Any = settings.component("protocol")
    num_samples = 0 if protocol.asks else _samples(settings, features.shape[1])
    if type(labels) is not RandomizedResponse or not math.isfinite(settings.y_eps):
        found = labels.name if math.isfinite(settings.y_eps) else "none"
        raise InputError("label_mechanism", found, "devices send rr at a finite y_eps only")
    try:
        return write_task(
            name=graph.name,
            graph=public.digest,
            num_nodes=graph.num_nodes,
            x_eps=settings.x_eps,
            num_features=graph.feature_dim,
            num_samples=num_samples,
            y_eps=settings.y_eps,
            num_classes=graph.num_classes,
            ranges=_public_ranges(graph),
            salt=salt,
        )
    except ClientError as error:
        raise InputError("task", graph.name, str(error)) from None


def _samples(settings: Settings, num_features: int) -> int:
    """How many features a report speaks of."""
    from lpgnn.privacy import MultiBit

    mechanism = settings.component("mechanism")
    if type(mechanism) is not MultiBit or not math.isfinite(settings.x_eps):
        found = mechanism.name if math.isfinite(settings.x_eps) else "none"
        raise InputError("mechanism", found, "devices send mb at a finite x_eps only")
    return mechanism.bind(settings.x_eps, num_features).m


def _public_ranges(graph: Graph) -> list[tuple[float, float]]:
    """The ranges that users know.  A graph that was scaled by its own data has none but [0, 1]."""
    low, high = graph.ranges.low, graph.ranges.high
    if not graph.ranges.are_public or low is None or high is None:
        return [(0.0, 1.0)]
    pairs = list(zip(low.tolist(), high.tolist(), strict=True))
    return pairs[:1] if len(set(pairs)) == 1 else pairs


def _reports(
    task: Task,
    graph: Graph,
    public: PublicGraph,
    draws: Callable[[int], int],
) -> Iterator[Report]:
    labels, asked = graph.labels.tolist(), public.asked.tolist()
    for node, features in enumerate(_rows(_private(graph), task)):
        if task.has_questions and not asked[node]:
            continue  # it is asked about its features later
        yield perturb(
            task,
            node=node,
            features=features,
            asked=asked[node],
            label=labels[node] if asked[node] else None,
            random_bits=draws,
        )


def _rows(features: CsrMatrix, task: Task) -> Iterator[dict[int, float]]:
    """The features of each user as they are on the device, before any scaling."""
    ranges = [(float(low), float(high)) for low, high in task.ranges]
    if len(ranges) == 1:
        ranges *= task.num_features
    lowest = {i: low for i, (low, _) in enumerate(ranges) if low}  # what is not stored is 0
    indptr = features.indptr.tolist()
    for start, stop in pairwise(indptr):
        indices = features.indices[start:stop].tolist()
        values = zip(indices, features.values[start:stop].tolist(), strict=True)
        yield lowest | {i: ranges[i][0] + x * (ranges[i][1] - ranges[i][0]) for i, x in values}


def _labels(graph: Graph, split: Split) -> str:
    """The clean labels of the test nodes, which no server has."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["node", "label"])
    for node in split.test.nonzero().flatten().tolist():
        label = int(graph.labels[node])
        writer.writerow(
            [
                graph.node_ids[node] if graph.node_ids else node,
                graph.class_names[label] if graph.class_names else label,
            ]
        )
    return text.getvalue()


if __name__ == "__main__":
    sys.exit(main())
