"""Run tasks on all cores, without losing or repeating anything.

A worker is a process with one thread: on these graphs two threads of one process mostly wait for
each other, two processes do not.  Workers write their rows themselves, so that rows survive the
death of the parent; the parent only hands out work, costly work first, and shows progress.
"""

import contextlib
import json
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import Any

from lpgnn.data import Graph
from lpgnn.engine import run_members
from lpgnn.errors import InputError
from lpgnn.kernels import Backend
from lpgnn.propagation import PreparedGraph
from lpgnn.rows import RowStore
from lpgnn.sweeps.costs import CostModel
from lpgnn.sweeps.tasks import Execution, Failure, Task

# So many pools may break in a row with no task under way before the sweep gives up.
_IDLE_BREAKS = 3

Report = Callable[[Task, int], None]  # a task, and the run-epochs done in it


def run_tasks(
    tasks: Sequence[Task], execution: Execution, *, costs: CostModel, show_progress: bool = True
) -> list[Failure]:
    """Compute all tasks and store their rows; return what failed."""
    workers = min(execution.worker_count(), len(tasks))
    with _progress(tasks, costs, show_progress) as report:
        if workers <= 1:
            return _run_here(tasks, Worker(execution), report)
        return _run_in_workers(tasks, execution, workers, report)


class Worker:
    """Computes tasks one after another, and keeps the last graph for the next task."""

    def __init__(self, execution: Execution) -> None:
        self.execution = execution
        self.store = RowStore(execution.results_dir)
        self.graph: tuple[str, Graph, PreparedGraph] | None = None

    def compute(self, task: Task, on_epoch: Callable[[int], None]) -> None:
        dataset = task.configuration.dataset
        graph, prepared = self._graph(task)
        run_members(
            task.members,
            graph,
            prepared,
            measures=self.execution.measures,
            on_epoch=on_epoch,
            on_rows=lambda rows: self.store.append(dataset.name, map(self._with_metrics, rows)),
        )

    def _with_metrics(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row with the other metrics that an earlier row of the same run has."""
        earlier = self.store.finished(row["dataset"], row["id"]).get(row["repeat"], {})
        kept = {k: v for k, v in earlier.items() if "/test/" in k and v and k not in row}
        if not kept:
            return row
        names = {f"metrics.{column.rpartition('/')[2]}" for column in kept}
        sources = {k: v for k, v in json.loads(earlier["options"]).items() if k in names}
        options = json.loads(row["options"]) | sources
        return row | kept | {"options": json.dumps(options, sort_keys=True)}

    def _graph(self, task: Task) -> tuple[Graph, PreparedGraph]:
        """The graph of a task; a sweep seldom returns to an earlier one, so only one is kept."""
        fingerprint = task.configuration.graph.fingerprint
        if self.graph is None or self.graph[0] != fingerprint:
            self.graph = None
            execution = self.execution
            graph = task.configuration.dataset.load(execution.data_dir)
            backend = Backend.choose(execution.device, execution.kernels)
            self.graph = fingerprint, graph, PreparedGraph(graph.topology, backend)
        return self.graph[1:]


def _run_here(tasks: Sequence[Task], worker: Worker, report: Report) -> list[Failure]:
    failures = []
    for task in tasks:
        try:
            worker.compute(task, partial(report, task))
        except Exception as error:
            if len(task.parts) > 1:
                failures += _run_here(task.split(), worker, lambda *_: None)
            else:
                failures.append(Failure(task.configuration, error, traceback.format_exc()))
    return failures


def _run_in_workers(
    tasks: Sequence[Task], execution: Execution, workers: int, report: Report
) -> list[Failure]:
    """Run tasks in worker processes.

    When a worker dies (killed, out of memory) its pool breaks, and what ran then is suspect.  The
    rest goes on in a new pool; suspects then run one at a time, so that only the task that is
    alone with the death of its worker is given up.
    """
    pool = WorkerPool(tasks, execution, report)
    suspects = []
    waiting = list(range(len(tasks)))
    breaks = 0
    while waiting and breaks < _IDLE_BREAKS:
        lost = pool.run(waiting, workers)
        suspects += lost
        breaks = 0 if lost else breaks + 1
    for index in suspects:
        pool.run([index], 1)
        if index not in pool.finished:
            pool.give_up(index, "its worker died twice (killed, or out of memory)")
    for index in waiting:
        pool.give_up(index, "workers die before they start to work")
    return pool.failures


class WorkerPool:
    """Worker processes, replaced when they die, and what became of the tasks."""

    def __init__(self, tasks: Sequence[Task], execution: Execution, report: Report) -> None:
        self.tasks, self.execution, self.report = list(tasks), execution, report
        self.finished: set[int] = set()
        self.failures: list[Failure] = []

    def give_up(self, index: int, reason: str) -> None:
        for configuration, _ in self.tasks[index].parts:
            self.failures.append(Failure(configuration, RuntimeError(reason)))

    def run(self, waiting: list[int], workers: int) -> list[int]:
        """Take tasks from ``waiting`` until it is empty or the pool breaks; return what was lost.

        No more tasks are handed out than there are workers, so a waiting task is never mistaken for
        one whose worker died.
        """
        context = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
        events = context.SimpleQueue()
        arguments = (events, self.execution, os.getpid())
        pool = ProcessPoolExecutor(workers, context, _start_worker, arguments)
        running: dict[Future[None], int] = {}
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    running[pool.submit(_work, waiting[0], self.tasks[waiting[0]])] = waiting[0]
                    waiting.pop(0)
                done, _ = wait(running, timeout=0.2, return_when=FIRST_COMPLETED)
                while not events.empty():
                    index, run_epochs = events.get()
                    self.report(self.tasks[index], run_epochs)
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
        """Record the end of a task; returns tasks to do instead of it."""
        task, instead = self.tasks[index], list[Task]()
        try:
            future.result()
        except BrokenProcessPool:
            raise
        except Exception as error:
            if len(task.parts) > 1:  # one of them failed, and the others with it
                instead = task.split()
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


_process: dict[str, Any] = {}  # what a worker process keeps between its tasks


def _start_worker(events: Any, execution: Execution, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    _process.update(events=events, worker=Worker(execution))
    threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()


def _exit_with(parent: int) -> None:
    """End an orphan: after kill -9 of the parent nobody hands out work or listens."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _work(index: int, task: Task) -> None:
    reported, done = time.monotonic(), 0

    def on_epoch(run_epochs: int) -> None:
        nonlocal reported, done
        done += run_epochs
        if time.monotonic() - reported > 0.3:
            _process["events"].put((index, done))
            reported, done = time.monotonic(), 0

    _process["worker"].compute(task, on_epoch)
    _process["events"].put((index, done))


@contextlib.contextmanager
def _progress(tasks: Sequence[Task], costs: CostModel, show: bool) -> Iterator[Report]:
    """One bar over all epochs of all runs; epochs count by their estimated cost."""
    from tqdm import tqdm

    total = sum(costs.seconds(task) for task in tasks)
    unit = {id(task): costs.seconds(task) / task.epochs for task in tasks}
    layout = "{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
    epochs = sum(task.epochs for task in tasks)
    runs = sum(len(task.members) for task in tasks)
    counted = 0
    with tqdm(
        total=total, desc=f"{runs} runs", bar_format=layout, disable=not show, mininterval=0.5
    ) as bar:

        def report(task: Task, run_epochs: int) -> None:
            nonlocal counted
            # Tasks made of one that failed were counted with it.
            if id(task) in unit:
                counted += run_epochs
                bar.update(min(unit[id(task)] * run_epochs, total - bar.n))
            bar.set_postfix_str(f" epoch {counted}/{epochs}", refresh=False)

        yield report


def describe_error(error: Exception) -> str:
    """One line of an error."""
    if isinstance(error, InputError):
        return str(error)
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
