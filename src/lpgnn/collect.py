"""``python -m lpgnn.collect``: check the reports of users and put them into one file."""

import csv
import io
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from lpgnn.client import Task
from lpgnn.commands import Command, own_settings, writing
from lpgnn.errors import InputError, exit_code
from lpgnn.files import replacing
from lpgnn.privacy.collection import Collection, check_graph, read_task
from lpgnn.privacy.collector import Collector, Refusal
from lpgnn.privacy.public_graph import PublicGraph

_DEFAULTS = {
    "task": "task.json",
    "graph": "graph.npz",
    "reports": "reports",
    "out": "collected.npz",
}
USAGE = """\
Settings: task=task.json, graph=graph.npz, reports=FOLDER, FILE or - (standard input),
out=collected.npz.  What is refused is listed in a CSV file beside it.
Exit codes: 0 done, 2 bad input."""


def main(arguments: Sequence[str] | None = None) -> int:
    command = Command(
        "collect",
        "Check the reports of users and write the valid ones, with the task and the public graph, "
        "into one file to train from.",
        USAGE,
    )
    overrides = command.read(arguments).overrides
    return exit_code(lambda: _collect(own_settings(overrides, _DEFAULTS)))


def _collect(settings: dict[str, str]) -> int:
    paths = {name: Path(value).expanduser() for name, value in settings.items()}
    task = read_task("task", paths["task"])
    graph = PublicGraph.load("graph", paths["graph"])
    check_graph("graph", paths["graph"], task, graph)
    started = time.perf_counter()
    refused_path = paths["out"].with_suffix(".refused.csv")
    with writing("out", settings["out"]):
        collection, collector = _read(task, graph, settings["reports"], refused_path)
        if not collector.refused:
            refused_path.unlink()
        if not collector.num_accepted:
            found = f"holds no valid report{_at_a_glance(collector, refused_path)}"
            raise InputError("reports", settings["reports"], found)
        collection.save(paths["out"])
    print(_summary(collection, collector, time.perf_counter() - started))
    if collector.refused:
        print(f"  details  {refused_path}")
    print(f"  written  {paths['out']}: train with python -m lpgnn.run reports={paths['out']}")
    return 0


def _read(
    task: Task, graph: PublicGraph, reports: str, refused_path: Path
) -> tuple[Collection, Collector]:
    """Take all reports; every refusal becomes a line of a CSV file as it comes."""
    path = Path(reports).expanduser()
    if reports != "-" and not path.is_dir() and not path.is_file():
        raise InputError("reports", reports, "must be a folder, a file or -")
    with replacing(refused_path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="")
        writer = csv.writer(text)
        writer.writerow(["source", "offset", "reason"])

        def add(refusal: Refusal) -> None:
            writer.writerow([refusal.source, refusal.offset, refusal.reason])

        collector = Collector(task, graph, add)
        if reports == "-":
            collector.add_stream(sys.stdin.buffer, "-")
        elif path.is_dir():
            collector.add_folder(path)
        else:
            collector.add_file(path, path.name)
        collection = collector.collection()
        text.flush()
        text.detach()
    return collection, collector


def _summary(collection: Collection, collector: Collector, seconds: float) -> str:
    task, graph = collection.task, collection.graph
    asked = graph.asked.numpy()
    looked_at = collector.num_accepted + collector.refused.total()
    return "\n".join(
        [
            f"     task  {task.name} ({task.hash.hex()}): mb at x_eps = {float(task.x_eps):g}, "
            f"rr at y_eps = {float(task.y_eps):g}, {task.report_bytes} bytes a report",
            f" received  {collector.num_accepted:,} of {graph.num_nodes:,} nodes, "
            f"{int((asked & collection.received).sum()):,} of {int(asked.sum()):,} labels",
            f"  refused  {collector.refused.total():,}{_refused(collector)}",
            f"     time  {seconds:.1f} s, {looked_at / max(seconds, 1e-9):,.0f} reports a second",
        ]
    )


def _at_a_glance(collector: Collector, refused_path: Path) -> str:
    """The most frequent refusal, for a message of one line."""
    if not collector.refused:
        return ""
    kind, count = collector.refused.most_common(1)[0]
    example = _example(collector.examples[kind])
    return f": {count:,} of {collector.refused.total():,} x {example}; all are in {refused_path}"


def _refused(collector: Collector) -> str:
    """Every kind of refusal with its number and an example."""
    kinds = (
        f"\n           {count:,} x {_example(collector.examples[kind])}"
        for kind, count in collector.refused.most_common()
    )
    return "".join(kinds)


def _example(refusal: Refusal) -> str:
    place = f"{refusal.source} at {refusal.offset}" if refusal.offset else refusal.source
    return f"{refusal.reason} ({place})"


if __name__ == "__main__":
    sys.exit(main())
