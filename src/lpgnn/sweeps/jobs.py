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
from lpgnn.sweeps.tasks import Execution, Part, Task, required_engine

# Jobs that nobody has seen at work for so long are lost: a worker that starts, or a job that is
# queued again after its node has died, takes less.
LOST_SECONDS = 600.0
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
        path = _task_file(folder, number)
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


def _open_tasks(folder: Path, tasks: Sequence[Task]) -> list[tuple[Path, Task]]:
    files = ((_task_file(folder, number), task) for number, task in enumerate(tasks))
    return [(path, task) for path, task in files if not _end_file(path).exists()]


def _any_at_work(folder: Path, waiting: Sequence[tuple[Path, Task]]) -> bool:
    trained = set(SweepRecord(folder).at_work())
    return any((c.identity, r) in trained for _, task in waiting for c, r in task.members)


def only_lost_tasks(folder: Path, tasks: Sequence[Task]) -> bool:
    """Whether all tasks without an end were begun, and nobody is seen to train their runs."""
    waiting = _open_tasks(folder, tasks)
    if not waiting or not all(_job_file(path).exists() for path, _ in waiting):
        return False  # some have not begun, or are in the queue again
    return not _any_at_work(folder, waiting)


def wait_for_others(folder: Path, tasks: Sequence[Task]) -> None:
    """Wait for the other jobs when a launcher has given up because of one.

    They go on meanwhile, and those in the queue take their places.  Who could submit none has
    nothing to wait for.
    """
    files = [_task_file(folder, number) for number in range(len(tasks))]
    if not any(_job_file(path).exists() or _end_file(path).exists() for path in files):
        return
    seen = time.monotonic()
    while (waiting := _open_tasks(folder, tasks)) and time.monotonic() - seen < QUIET_SECONDS:
        if _any_at_work(folder, waiting):
            seen = time.monotonic()
        time.sleep(_LOOK_SECONDS)


@contextlib.contextmanager
def ended_if_lost(folder: Path, tasks: Sequence[Task]) -> Iterator[None]:
    """While inside, stop waiting when only lost tasks are left: some launchers cannot tell.

    Without the accounts of SLURM, submitit takes a killed job for a slow one.
    """
    over, lost = threading.Event(), threading.Event()

    def watch() -> None:
        seen = time.monotonic()
        while not over.wait(_LOOK_SECONDS):
            if not only_lost_tasks(folder, tasks):
                seen = time.monotonic()
            elif time.monotonic() - seen > LOST_SECONDS:
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
            queued = "its job has not begun, or is in the queue again"
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
