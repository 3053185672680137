"""``python -m lpgnn.collect``: check the reports of users and put them into one file."""

import argparse
import csv
import os
import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from lpgnn.errors import InputError, exit_code
from lpgnn.privacy.collection import Collection, check_graph, read_task
from lpgnn.privacy.collector import Collector, Refusal
from lpgnn.privacy.public_graph import PublicGraph

_DEFAULTS = {
    "task": "task.json",
    "graph": "graph.npz",
    "reports": "reports",
    "out": "collected.npz",
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lpgnn.collect",
        description="Check the reports of users and write the valid ones, with the task and the "
        "public graph, into one file to train from.",
        epilog="Settings: task=task.json, graph=graph.npz, reports=FOLDER, FILE or - (standard "
        "input), out=collected.npz.  What is refused is listed in a CSV file beside it.  "
        "Exit codes: 0 done, 2 bad input.",
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    overrides = parser.parse_args(arguments).overrides
    return exit_code(lambda: _collect(overrides))


def _collect(overrides: Sequence[str]) -> int:
    settings = dict(_DEFAULTS)
    for override in overrides:
        key, equals, value = override.partition("=")
        if key not in settings or not equals or not value:
            known = ", ".join(settings)
            raise InputError(key, value, f"unknown setting; known settings: {known}")
        settings[key] = value
    paths = {name: Path(value).expanduser() for name, value in settings.items()}
    task = read_task("task", paths["task"])
    graph = PublicGraph.load("graph", paths["graph"])
    check_graph("graph", paths["graph"], task, graph)
    started = time.perf_counter()
    with RefusalFile(paths["out"].with_suffix(".refused.csv")) as refusals:
        collector = Collector(task, graph, refusals.add)
        if settings["reports"] == "-":
            collector.add_stream(sys.stdin.buffer, "-")
        elif paths["reports"].is_dir():
            collector.add_folder(paths["reports"])
        elif paths["reports"].is_file():
            collector.add_file(paths["reports"], paths["reports"].name)
        else:
            raise InputError("reports", paths["reports"], "must be a folder, a file or -")
        collection = collector.collection()
        if not collector.num_accepted:
            found = f"holds no valid report{_refused(collector)}"
            raise InputError("reports", settings["reports"], found)
        collection.save(paths["out"])
        refusals.keep(any_refused=bool(collector.refused))
    seconds = time.perf_counter() - started
    print(_summary(collection, collector, seconds))
    if collector.refused:
        print(f"  details  {refusals.path}")
    print(f"  written  {paths['out']}: train with python -m lpgnn.run reports={paths['out']}")
    return 0


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


class RefusalFile:
    """A CSV file of refusals, written as they come; it takes its name when it is complete."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")

    def __enter__(self) -> "RefusalFile":
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.file = self.temporary.open("w", newline="", encoding="utf-8")
        self.writer = csv.writer(self.file)
        self.writer.writerow(["source", "offset", "reason"])
        return self

    def add(self, refusal: Refusal) -> None:
        self.writer.writerow([refusal.source, refusal.offset, refusal.reason])

    def keep(self, *, any_refused: bool) -> None:
        """Put the list in its place, or remove an earlier one where nothing was refused."""
        self.file.close()
        if any_refused:
            os.replace(self.temporary, self.path)
        else:
            self.path.unlink(missing_ok=True)

    def __exit__(self, *error: object) -> None:
        self.file.close()
        self.temporary.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
