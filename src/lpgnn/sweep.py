"""Run many configurations: on all cores, without losing or repeating anything.

A worker is a process with one thread: on these graphs two threads of one process mostly wait for
each other, two processes do not.  Workers write their rows themselves, so that rows survive the
death of the parent; the parent only hands out work, costly work first, and shows progress.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from lpgnn.config import Component, Configuration
from lpgnn.errors import InputError
from lpgnn.results import RowStore
from lpgnn.results.costs import CostModel

# Beyond so many runs side by side a CPU gains nothing, and rows come later; a GPU does.
RUNS_ON_CPU, RUNS_ON_GPU = 10, 200

# So many pools may break in a row with nobody at work before the sweep gives up.
_IDLE_BREAKS = 3


@dataclass(frozen=True)
class Task:
    """Runs that train together in one worker: repeats of a configuration, and of others alike."""

    configuration: Configuration
    repeats: tuple[int, ...]
    others: tuple["Part", ...] = ()  # of the same ``batch_kind``

    @property
    def parts(self) -> tuple["Part", ...]:
        return ((self.configuration, self.repeats), *self.others)

    @property
    def runs(self) -> int:
        return sum(len(repeats) for _, repeats in self.parts)

    @property
    def epochs(self) -> int:
        """The work in it: epochs of all its runs."""
        return self.runs * self.configuration.max_epochs

    def alone(self) -> list["Task"]:
        """The parts, each for itself."""
        return [Task(*part) for part in self.parts]


Part = tuple[Configuration, tuple[int, ...]]


@dataclass(frozen=True)
class Place:
    """Where a sweep reads and writes, and what it computes on."""

    data_dir: Path
    results_dir: Path
    device: str = "auto"
    workers: int | None = None  # None = one a core

    def worker_count(self) -> int:
        if self.workers is not None:
            return self.workers
        allowed = getattr(os, "sched_getaffinity", None)  # not on every system
        return len(allowed(0)) if allowed else os.cpu_count() or 1


@dataclass
class Failure:
    """A configuration that could not be computed."""

    configuration: Configuration
    error: Exception
    details: str = field(default="", repr=False)


def missing_repeats(
    configuration: Configuration, repeats: int, store: RowStore, *, force: bool = False
) -> tuple[int, ...]:
    """The repeats of a configuration that the store does not hold."""
    done = {} if force else store.finished(configuration.dataset.name, configuration.identity)
    return tuple(repeat for repeat in range(repeats) if repeat not in done)


def plan_tasks(
    wanted: Sequence[Part], costs: CostModel, workers: int, together: int = RUNS_ON_CPU
) -> list[Task]:
    """Cut the work into tasks, costly ones first.

    When there are fewer configurations than workers, the repeats of one are shared out; when there
    are many with few repeats each, those that can train side by side share a task.
    """
    open_work = [(configuration, repeats) for configuration, repeats in wanted if repeats]
    cuts = max(1, -(-workers // max(1, len(open_work))))
    pieces = []
    for configuration, repeats in open_work:
        size = -(-len(repeats) // cuts)
        starts = range(0, len(repeats), size)
        pieces += [Task(configuration, repeats[start : start + size]) for start in starts]
    # Every worker gets something to do before tasks grow.
    runs = sum(task.runs for task in pieces)
    tasks = _shared(pieces, min(together, max(1, runs // workers)))
    return sorted(tasks, key=costs.seconds, reverse=True)


def _shared(tasks: Sequence[Task], together: int) -> list[Task]:
    """Join tasks of one kind into tasks of up to so many runs."""
    found: list[Task] = []
    growing: dict[str, int] = {}  # kind -> place in found
    for task in tasks:
        kind = task.configuration.batch_kind
        place = growing.get(kind)
        if place is not None and found[place].runs + task.runs <= together:
            joined = found[place].others + task.parts
            found[place] = replace(found[place], others=joined)
        else:
            growing[kind] = len(found)
            found.append(task)
    return found


def run_tasks(
    tasks: Sequence[Task],
    place: Place,
    *,
    costs: CostModel,
    show_progress: bool = True,
) -> list[Failure]:
    """Compute all tasks and store their rows; return what failed."""
    workers = min(place.worker_count(), len(tasks))
    with _progress(tasks, costs, workers, show_progress) as report:
        if workers <= 1:
            return _run_here(tasks, place, report)
        return _run_in_workers(tasks, place, workers, report)


def _run_here(
    tasks: Sequence[Task], place: Place, report: Callable[[Task, int], None]
) -> list[Failure]:
    import torch

    torch.set_num_threads(1)
    failures = []
    for task in tasks:
        try:
            _compute(task, place, partial(report, task))
        except Exception as error:
            if task.others:
                failures += _run_here(task.alone(), place, lambda *_: None)
            else:
                failures.append(Failure(task.configuration, error, traceback.format_exc()))
    return failures


def _run_in_workers(
    tasks: Sequence[Task], place: Place, workers: int, report: Callable[[Task, int], None]
) -> list[Failure]:
    """Run tasks in worker processes.

    When a worker dies (killed, out of memory) its pool breaks, and what ran then is suspect.  The
    rest goes on in a new pool; suspects then run one at a time, so that only the task that is
    alone with the death of its worker is given up.
    """
    crew = _Crew(tasks, place, report)
    suspects = []
    waiting = list(range(len(tasks)))
    breaks = 0
    while waiting and breaks < _IDLE_BREAKS:
        lost = crew.run(waiting, workers)
        suspects += lost
        breaks = 0 if lost else breaks + 1
    for index in suspects:
        alone = [index]
        crew.run(alone, 1)
        if index not in crew.finished:
            crew.give_up(index, "its worker died twice (killed, or out of memory)")
    for index in waiting:
        crew.give_up(index, "workers die before they get to work")
    return crew.failures


class _Crew:
    """Worker pools, one after another, and what became of the tasks."""

    def __init__(
        self, tasks: Sequence[Task], place: Place, report: Callable[[Task, int], None]
    ) -> None:
        self.tasks, self.place, self.report = list(tasks), place, report
        self.finished: set[int] = set()
        self.failures: list[Failure] = []

    def give_up(self, index: int, reason: str) -> None:
        for configuration, _ in self.tasks[index].parts:
            self.failures.append(Failure(configuration, RuntimeError(reason)))

    def run(self, waiting: list[int], workers: int) -> list[int]:
        """Take tasks from ``waiting`` until it is empty or the pool breaks; return what was lost.

        Only as many tasks as workers are handed out: what waits can be told from what died.
        """
        context = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
        events = context.SimpleQueue()
        arguments = (events, self.place, os.getpid())
        pool = ProcessPoolExecutor(workers, context, _start_worker, arguments)
        running: dict[Future[None], int] = {}
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    running[pool.submit(_work, waiting[0], self.tasks[waiting[0]])] = waiting[0]
                    waiting.pop(0)
                done, _ = wait(running, timeout=0.2, return_when=FIRST_COMPLETED)
                while not events.empty():
                    index, runs = events.get()
                    self.report(self.tasks[index], runs)
                for future in done:
                    waiting += self._settle(future, running[future])
                    del running[future]
            pool.shutdown()
        except BrokenProcessPool:
            _stop(pool)
        except BaseException:  # Ctrl-C: do not wait for anybody
            _stop(pool)
            raise
        return [index for index in running.values() if index not in self.finished]

    def _settle(self, future: "Future[None]", index: int) -> list[int]:
        """Take note of the end of a task; returns tasks to do instead of it."""
        task, instead = self.tasks[index], list[Task]()
        try:
            future.result()
        except BrokenProcessPool:
            raise
        except Exception as error:
            if task.others:  # one of them failed, and the others with it
                instead = task.alone()
            else:
                details = "".join(traceback.format_exception(error))
                self.failures.append(Failure(task.configuration, error, details))
        self.finished.add(index)
        self.tasks += instead
        return list(range(len(self.tasks) - len(instead), len(self.tasks)))


def _stop(pool: ProcessPoolExecutor) -> None:
    for process in list((pool._processes or {}).values()):
        process.kill()  # rows are written atomically: nothing is harmed
    pool.shutdown(wait=False, cancel_futures=True)


_worker: dict[str, Any] = {}


def _start_worker(events: Any, place: Place, parent: int) -> None:
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    torch.set_num_threads(1)
    _worker.update(events=events, place=place)
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()


def _leave_with(parent: int) -> None:
    """End an orphan: after kill -9 of the parent nobody hands out work or wants to hear of it."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _work(index: int, task: Task) -> None:
    told, done = time.monotonic(), 0

    def on_epoch(runs: int) -> None:
        nonlocal told, done
        done += runs
        if time.monotonic() - told > 0.3:
            _worker["events"].put((index, done))
            told, done = time.monotonic(), 0

    _compute(task, _worker["place"], on_epoch)
    _worker["events"].put((index, done))


def _compute(task: Task, place: Place, on_epoch: Callable[[int], None]) -> None:
    from lpgnn.experiment import pick_device, run_members

    store = RowStore(place.results_dir)
    dataset = task.configuration.dataset
    run_members(
        [(configuration, repeat) for configuration, repeats in task.parts for repeat in repeats],
        _graph(dataset, task.configuration, place.data_dir),
        device=pick_device(place.device),
        on_epoch=on_epoch,
        on_rows=lambda rows: store.add(dataset.name, rows),
    )


_graphs: dict[tuple[str, Path], Any] = {}


def _graph(dataset: Component, configuration: Configuration, data_dir: Path) -> Any:
    from lpgnn.experiment import load_dataset

    key = (repr(dataset), data_dir)  # options may be lists
    if key not in _graphs:
        _graphs.clear()  # a sweep seldom comes back to an earlier graph: keep memory for work
        _graphs[key] = load_dataset(configuration, data_dir)
    return _graphs[key]


@contextlib.contextmanager
def _progress(
    tasks: Sequence[Task], costs: CostModel, workers: int, show: bool
) -> Iterator[Callable[[Task, int], None]]:
    """One bar over all epochs of all runs; epochs count by their estimated cost."""
    from tqdm import tqdm

    total = sum(costs.seconds(task) for task in tasks)
    unit = {id(task): costs.seconds(task) / task.epochs for task in tasks}
    layout = "{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
    epochs = sum(task.epochs for task in tasks)
    counted = 0
    runs = sum(len(task.repeats) for task in tasks)
    with tqdm(
        total=total, desc=f"{runs} runs", bar_format=layout, disable=not show, mininterval=0.5
    ) as bar:

        def report(task: Task, done: int) -> None:
            nonlocal counted
            counted += done
            # Tasks made of one that failed were counted with it.
            bar.update(min(unit.get(id(task), 0.0) * done, total - bar.n))
            bar.set_postfix_str(f" epoch {counted}/{epochs}", refresh=False)

        yield report


def describe_error(error: Exception) -> str:
    """One line of an error."""
    if isinstance(error, InputError):
        return str(error)
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
