"""``python -m lpgnn.collect``: check what users sent, reports or answers, and put it together."""

from __future__ import annotations

import csv
import io
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lpgnn.client import Published, Question
from lpgnn.commands import Command, own_settings, writing
from lpgnn.errors import InputError, exit_code
from lpgnn.files import replacing

if TYPE_CHECKING:
    from lpgnn.archive import Array
    from lpgnn.privacy.collection import Collection
    from lpgnn.privacy.collector import Collector, Refusal

_DEFAULTS = {
    "task": "task.json",
    "graph": "graph.npz",
    "reports": "reports",
    "out": "collected.npz",
    "question": "",
    "collected": "",
}
USAGE = """\
Settings: task=task.json, graph=graph.npz, reports=FOLDER, FILE or - (standard input),
out=collected.npz.  What is refused is listed in a CSV file beside it.
Answers to a question: question=FILE and collected=FILE, the collection that it was made from;
they are added to it in out, and task and graph are its own.
Exit codes: 0 done, 2 bad input."""


def main(arguments: Sequence[str] | None = None) -> int:
    command = Command(
        "collect",
        "Check users' reports, or their answers to a question, and write the valid ones, with "
        "the task and the public graph, into one file to train from.",
        USAGE,
    )
    overrides = command.read(arguments).overrides
    return exit_code(lambda: _collect(own_settings(overrides, _DEFAULTS)))


def _collect(settings: dict[str, str]) -> int:
    for one, other in (("question", "collected"), ("collected", "question")):
        if settings[one] and not settings[other]:
            raise InputError(other, None, f"must be a file: {one} goes with it")
    if settings["question"]:
        return _collect_answers(settings)
    from lpgnn.privacy.collection import Collection, check_graph, read_task
    from lpgnn.privacy.public_graph import PublicGraph

    paths = {name: Path(value).expanduser() for name, value in settings.items()}
    task = read_task("task", paths["task"])
    graph = PublicGraph.load("graph", paths["graph"])
    check_graph("graph", paths["graph"], task, graph)
    about = f"{task.name} ({task.hash.hex()}): mb at x_eps = {float(task.x_eps):g}"
    if task.has_questions:
        about = f"{task.name} ({task.hash.hex()}): questions later at x_eps = {float(task.x_eps):g}"
    about += f", rr at y_eps = {float(task.y_eps):g}"

    def put_together(received: Array, payloads: Array) -> Collection:
        return Collection(task, graph, received, payloads)

    collection = _write(settings, task, graph.asked.numpy(), put_together, about)
    learner = " learner=two_round --out question.json" if collection.task.has_questions else ""
    verb = "ask with python -m lpgnn.question" if learner else "train with python -m lpgnn.run"
    print(f"  written  {paths['out']}: {verb} reports={paths['out']}{learner}")
    return 0


def _collect_answers(settings: dict[str, str]) -> int:
    """The answers to a question, added to the collection that it was made from."""
    import numpy as np

    from lpgnn.privacy.collection import Collection, read_question

    before = Path(settings["collected"]).expanduser()
    earlier = Collection.load("collected", before)
    question = read_question("question", Path(settings["question"]).expanduser(), earlier.task)
    earlier.check_new("question", settings["question"], question)
    asked = np.isin(np.arange(question.num_nodes), question.nodes)

    def put_together(received: Array, payloads: Array) -> Collection:
        return earlier.with_answers(question, received, payloads)

    eps = float(earlier.task.x_eps)
    about = f"question {len(earlier.rounds) + 1} ({question.hash.hex()}): {question.kind}, one of "
    about += f"{question.num_classes:,} answers at x_eps = {eps:g}"
    _write(settings, question, asked, put_together, about)
    out = Path(settings["out"]).expanduser()
    print(f"  written  {out}: go on with python -m lpgnn.question or lpgnn.run reports={out}")
    return 0


def _write(
    settings: dict[str, str],
    published: Published,
    asked: Array,
    put_together: Callable[[Array, Array], Collection],
    about: str,
) -> Collection:
    """Read all reports, write what they make, and say how many came."""
    started = time.perf_counter()
    out = Path(settings["out"]).expanduser()
    refused_path = out.with_suffix(".refused.csv")
    with writing("out", settings["out"]):
        collector = _read(published, asked, settings["reports"], refused_path)
        if not collector.refused:
            refused_path.unlink()
        if not collector.num_accepted:
            found = f"holds no valid report{_at_a_glance(collector, refused_path)}"
            raise InputError("reports", settings["reports"], found)
        received, payloads = collector.received()
        collection = put_together(received, payloads)
        collection.save(out)
    seconds = time.perf_counter() - started
    looked_at = collector.num_accepted + collector.refused.total()
    what = "answers" if isinstance(published, Question) else "labels"
    print(f"     task  {about}, {published.report_bytes} bytes a report")
    print(
        f" received  {collector.num_accepted:,} of {published.num_nodes:,} nodes, "
        f"{int((asked & received).sum()):,} of {int(asked.sum()):,} {what}"
    )
    print(f"  refused  {collector.refused.total():,}{_refused(collector)}")
    print(f"     time  {seconds:.1f} s, {looked_at / max(seconds, 1e-9):,.0f} reports a second")
    if collector.refused:
        print(f"  details  {refused_path}")
    return collection


def _read(published: Published, asked: Array, reports: str, refused_path: Path) -> Collector:
    """Take all reports; every refusal becomes a line of a CSV file as it comes."""
    from lpgnn.privacy.collector import Collector

    path = Path(reports).expanduser()
    if reports != "-" and not path.is_dir() and not path.is_file():
        raise InputError("reports", reports, "must be a folder, a file or -")
    with replacing(refused_path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="")
        writer = csv.writer(text)
        writer.writerow(["source", "offset", "reason"])

        def add(refusal: Refusal) -> None:
            writer.writerow([refusal.source, refusal.offset, refusal.reason])

        collector = Collector(published, asked, add)
        if reports == "-":
            collector.add_stream(sys.stdin.buffer, "-")
        elif path.is_dir():
            collector.add_folder(path)
        else:
            collector.add_file(path, path.name)
        collector.received()  # refuses what is left
        text.flush()
        text.detach()
    return collector


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
