"""Tasks that are computed elsewhere: each is a file that a job reads, and leaves its end beside.

A task's file holds settings, as a user gives them, and the identities that they must resolve to:
another installation or another graph on a node is found before it computes.
"""

import contextlib
import json
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import Any

from lpgnn.children import ANNOUNCEMENTS
from lpgnn.config import Settings
from lpgnn.describe import label
from lpgnn.engine import Measures
from lpgnn.errors import RunError, Terminated, terminable
from lpgnn.finished import requirements
from lpgnn.rows import RowStore, SweepRecord, marked, write_atomically
from lpgnn.sweeps.costs import CostModel
from lpgnn.sweeps.failures import Failure, describe_error
from lpgnn.sweeps.pool import run_tasks
from lpgnn.sweeps.slurm import SlurmQueue
from lpgnn.sweeps.tasks import Execution, Part, Task, required_engine

# Jobs that nobody has seen at work for so long are lost: a worker that starts, or a job that is
# queued again after its node has died, takes less.
LOST_SECONDS = 600.0
# The same where a job has not begun, and nobody can tell whether it is still in a queue.
UNSEEN_SECONDS = 24 * 3600.0
# From the end of a job to the first run of the next in the queue.
QUIET_SECONDS = 120.0
_LOOK_SECONDS = 5.0


def write_jobs(
    folder: Path, tasks: Sequence[Task], settings: Mapping[str, Settings]
) -> list[list[str]]:
    """Write each task's file; return the overrides of the jobs that read them."""
    jobs = []
    for number, task in enumerate(tasks):
        parts = [
            {"id": c.identity, "repeats": repeats, "settings": _plain(settings[c.identity])}
            for c, repeats in task.parts
        ]
        path = _task_file(folder.absolute(), number)  # a job may start elsewhere
        write_atomically(path, json.dumps({"parts": parts}, indent=1))
        escaped = str(path).replace("'", r"\'")
        jobs.append([f"+task='{escaped}'"])
    return jobs


def _task_file(folder: Path, number: int) -> Path:
    return folder / f"task-{number:05d}.json"


def _end_file(task: Path) -> Path:
    return task.with_suffix(".end.json")


def _job_file(task: Path) -> Path:
    """There while a job computes the task; left behind by one that was killed."""
    return task.with_suffix(".job")


def _plain(settings: Settings) -> dict[str, Any]:
    """Settings as JSON has them; folders as they are from anywhere."""
    content = {key: value for key, value in vars(settings).items() if value is not None}
    for name in ("data_dir", "results_dir"):
        content[name] = str(Path(content[name]).expanduser().absolute())
    return json.loads(json.dumps(content, default=str))  # type: ignore[no-any-return]


def compute_job(path: Path) -> None:
    """Compute a task from its file, in a job of its own.

    What an earlier try has stored is not computed again.  SIGTERM ends the job; stored runs stay.
    A launcher that queues the job again when the cluster announces its end exits from here, and
    leaves no end of the task behind.
    """
    failures: list[dict[str, Any]] = []
    ended = ""
    try:
        with terminable(), _requeued_in_peace(), marked(_job_file(path)):
            failures = [
                {
                    "id": one.configuration.identity,
                    "error": describe_error(one.error),
                    "details": one.details,
                    "repeats": one.repeats,
                }
                for one in _compute(path)
            ]
    except Terminated:
        ended = "its job was ended by a signal"
    except Exception as error:
        ended = describe_error(error)
        traceback.print_exc()  # into the job's own log
    end = {"failures": failures, "ended": ended}
    write_atomically(_end_file(path), json.dumps(end, indent=1))


@contextlib.contextmanager
def _requeued_in_peace() -> Iterator[None]:
    """While inside, SIGTERM does not disturb a launcher that queues the job again.

    The cluster sends it to every job that it takes back; here it would be the end of the task.
    """

    def calm(handler: Callable[[int, Any], Any], number: int, frame: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        handler(number, frame)

    handlers = {number: signal.getsignal(number) for number in ANNOUNCEMENTS}
    ours = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number, handler in ours.items():
        signal.signal(number, partial(calm, handler))
    try:
        yield
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)


def _compute(path: Path) -> list[Failure]:
    parts: list[Part] = []
    for part in json.loads(path.read_text())["parts"]:
        one = Settings(**part["settings"])
        configuration = one.resolve()
        if configuration.identity != part["id"]:
            reason = f"resolves to {configuration.identity} here, not to {part['id']}"
            text = f"{label(configuration)} {reason}: other sources or another graph on this node"
            raise RunError(text)
        store, required = RowStore(one.results_path), requirements(one, required_engine(one))
        if left := required.missing(configuration.computation, part["repeats"], store):
            parts.append((configuration, left))
    if not parts:
        return []
    execution = Execution(
        one.data_path,
        one.results_path,
        one.device,
        one.kernels,
        1,
        Measures.of(one, store),
        one.time_limit,
        required,
        path.parent,
    )
    return run_tasks([Task(tuple(parts))], execution, costs=CostModel(), show_progress=False)


class Sight(Enum):
    """What can be seen of a task that has no end."""

    ALIVE = auto()  # somebody trains its runs, or its job is in the queue
    UNSEEN = auto()  # it has not begun, and nobody can tell whether it will
    LOST = auto()  # its job has left the queue, or has begun and trains nothing


def sights(folder: Path, tasks: Sequence[Task], queue: SlurmQueue) -> dict[int, Sight]:
    """The tasks without an end, by number."""
    trained, held = set(SweepRecord(folder).at_work()), queue.held()
    found = {}
    for number, task in enumerate(tasks):
        path = _task_file(folder, number)
        if _end_file(path).exists():
            continue
        is_at_work = any((c.identity, repeat) in trained for c, repeat in task.members)
        if is_at_work or (held is not None and number in held):
            found[number] = Sight.ALIVE
        elif held is None and not _job_file(path).exists():
            found[number] = Sight.UNSEEN
        else:
            found[number] = Sight.LOST
    return found


def wait_for_others(folder: Path, tasks: Sequence[Task], queue: SlurmQueue) -> None:
    """Wait for the other jobs when a launcher has given up because of one.

    They go on meanwhile, and those in the queue take their places.  Who could submit none has
    nothing to wait for.
    """
    found = sights(folder, tasks, queue)
    if len(found) == len(tasks) and set(found.values()) == {Sight.UNSEEN}:
        return
    seen = time.monotonic()
    while found:
        if Sight.ALIVE in found.values():
            seen = time.monotonic()
        elif time.monotonic() - seen > QUIET_SECONDS:
            return
        time.sleep(_LOOK_SECONDS)
        found = sights(folder, tasks, queue)


@contextlib.contextmanager
def ended_if_lost(folder: Path, tasks: Sequence[Task], queue: SlurmQueue) -> Iterator[None]:
    """While inside, stop waiting when only lost tasks are left: some launchers cannot tell.

    Without the accounts of SLURM, submitit takes a killed or cancelled job for a slow one.
    """
    over, lost = threading.Event(), threading.Event()

    def watch() -> None:
        seen, before = time.monotonic(), dict[int, Sight]()
        while not over.wait(_LOOK_SECONDS):
            found = sights(folder, tasks, queue)
            unseen = Sight.UNSEEN in found.values()
            if not found or Sight.ALIVE in found.values() or found != before:
                seen, before = time.monotonic(), found
            elif time.monotonic() - seen > (UNSEEN_SECONDS if unseen else LOST_SECONDS):
                lost.set()
                os.kill(os.getpid(), signal.SIGTERM)
                return

    try:
        with terminable():
            watcher = threading.Thread(target=watch, daemon=True)
            watcher.start()
            try:
                yield
            finally:
                over.set()
                watcher.join()
    except Terminated:
        if not lost.is_set():
            raise


def failures_of(folder: Path, tasks: Sequence[Task]) -> list[Failure]:
    """What did not come out of the jobs of a sweep."""
    found = []
    for number, task in enumerate(tasks):
        path = _task_file(folder, number)
        try:
            end = json.loads(_end_file(path).read_text())
        except FileNotFoundError:
            lost = "its job was lost (killed, out of memory or of time)"
            queued = "its job has not begun: cancelled, failed at its start, or still in the queue"
            end = {"failures": [], "ended": lost if _job_file(path).exists() else queued}
        by_id = {one["id"]: one for one in end["failures"]}
        for configuration, repeats in task.parts:
            one = by_id.get(configuration.identity)
            if one is not None:
                failed = tuple(one["repeats"]) or repeats
                found.append(Failure(configuration, RunError(one["error"]), one["details"], failed))
            elif end["ended"]:
                found.append(Failure(configuration, RunError(end["ended"]), repeats=repeats))
    return found
