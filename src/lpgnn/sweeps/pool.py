"""Run tasks on all cores, without losing or repeating anything.

A worker is a process with one thread: on these graphs two threads of one process mostly wait for
each other, two processes do not.  Workers write their rows themselves, so that rows survive the
death of the parent; the parent only hands out work, costly work first, and shows progress.

Whatever a run does to its worker (an exception, sys.exit, a crash, the kernel's out-of-memory
killer, an endless loop) costs that run only: the runs that trained beside it are computed again,
each by itself.

Runs that another sweep on the same folder is computing are left to it.  When nothing else is left
to do they are looked at again: done, or given up by the other, whatever became of it.
"""

import contextlib
import json
import logging
import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from lpgnn.children import packed, run_child, starting
from lpgnn.counting import counted
from lpgnn.data import Graph
from lpgnn.engine import Member, run_members
from lpgnn.errors import InputError, RunError, StorageError
from lpgnn.kernels import Backend
from lpgnn.propagation import PreparedGraph
from lpgnn.rows import RowStore, Run, SweepRecord, claimed
from lpgnn.sweeps.costs import CostModel
from lpgnn.sweeps.failures import Failure, explain, stack_trace
from lpgnn.sweeps.gpus import gpus_for, least_used, see_only
from lpgnn.sweeps.tasks import Execution, Task

# So many workers may die in a row before they are ready, and so long they may take (seconds).
_DEATHS_AT_START, _START_SECONDS = 3, 600.0

# How often runs that others are computing are looked at.
_LOOK_SECONDS = 0.5

_logger = logging.getLogger("lpgnn")

Taken = Callable[[Sequence[Run], Sequence[Run]], None]  # runs taken, and runs that others train
Report = Callable[[Task, int], None]  # a task, and the run-epochs done in it


def run_tasks(
    tasks: Sequence[Task], execution: Execution, *, costs: CostModel, show_progress: bool = True
) -> list[Failure]:
    """Compute all tasks and store their rows; return what failed, and what is not there after all.

    Raises StorageError as soon as rows cannot be written.
    """
    store = RowStore(execution.results_dir)
    store.check_writable()
    workers = min(execution.worker_count(), len(tasks))
    with _progress(tasks, costs, show_progress) as report:
        if workers == 0:
            failures = _run_here(tasks, Worker(execution), report)
        else:
            with _Pool(execution, costs, report) as pool:
                failures = pool.run(tasks, workers)
    return failures + _lost_rows(tasks, failures, store)


def _lost_rows(
    tasks: Sequence[Task], failures: Sequence[Failure], store: RowStore
) -> list[Failure]:
    """Runs whose rows were stored, and are not there now: somebody removed or damaged them."""
    failed = {(f.configuration.identity, repeat) for f in failures for repeat in f.repeats}
    lost = []
    for task in tasks:
        for configuration, repeats in task.parts:
            name, identity = configuration.dataset.name, configuration.identity
            there = store.repeats(name, identity)
            gone = tuple(r for r in repeats if r not in there and (identity, r) not in failed)
            if gone:
                text = "rows were stored and are gone: removed or damaged while the sweep ran"
                lost.append(Failure(configuration, RunError(text), repeats=gone))
    return lost


class Worker:
    """Computes tasks one after another, and keeps the last graph for the next task."""

    def __init__(self, execution: Execution) -> None:
        self.execution = execution
        self.store = RowStore(execution.results_dir)
        self.graph: tuple[str, Graph, PreparedGraph] | None = None

    def compute(
        self,
        task: Task,
        on_epoch: Callable[[int], None],
        on_stored: Callable[[int], None] | None = None,
        on_unmeasured: Callable[[Member, InputError | RunError], None] | None = None,
        on_taken: Taken | None = None,
    ) -> None:
        """Train those of a task's runs that nobody else is training or has finished.

        ``on_taken`` is called with them, and with those that others are training now, ``on_stored``
        with the number of rows just stored, ``on_unmeasured`` with a run whose row lacks a metric,
        and why.
        """
        dataset = task.configuration.dataset

        def keep(rows: list[dict[str, Any]]) -> None:
            self.store.append(dataset.name, map(self._with_metrics, rows))
            if on_stored is not None:
                on_stored(len(rows))

        with self._claimed(task) as (mine, elsewhere):
            if on_taken is not None:
                on_taken(mine, elsewhere)
            if not mine:
                return
            graph, prepared = self._graph(task)
            run_members(
                task.only(mine).members,
                graph,
                prepared,
                measures=self.execution.measures,
                on_epoch=on_epoch,
                on_rows=keep,
                on_unmeasured=on_unmeasured,
            )

    def _claimed(
        self, task: Task
    ) -> contextlib.AbstractContextManager[tuple[Sequence[Run], Sequence[Run]]]:
        """What is left to do of a task, and on record as done by us, and what others are doing."""
        runs = [(configuration.identity, repeat) for configuration, repeat in task.members]
        record, required = self.execution.record, self.execution.required
        if record is None:
            return contextlib.nullcontext((runs, ()))

        def missing() -> set[Run]:
            store = RowStore(self.execution.results_dir)  # which looks for changes
            return {
                (configuration.identity, repeat)
                for configuration, repeats in task.parts
                for repeat in required.missing(configuration.computation, repeats, store)
            }

        return claimed(self.execution.results_dir, record, runs, missing)

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
    """Compute in this process: for debuggers.  Nothing protects it from a run that crashes."""
    failures: list[Failure] = []
    waiting, elsewhere = deque(tasks), _Elsewhere()
    task = Task(())  # what is under way

    def on_unmeasured(member: Member, error: InputError | RunError) -> None:
        failures.append(_unmeasured(member, error))

    def on_taken(mine: Sequence[Run], others: Sequence[Run]) -> None:
        nonlocal task
        elsewhere.add(task.only(others))
        task = task.only(mine)

    while waiting or elsewhere.tasks:
        if not waiting:
            waiting.extend(elsewhere.due())
            time.sleep(0 if waiting else _LOOK_SECONDS)
            continue
        task, stored = waiting.popleft(), list[int]()
        try:
            worker.compute(task, partial(report, task), stored.append, on_unmeasured, on_taken)
        except StorageError:
            raise
        except (Exception, SystemExit) as error:  # a plug-in's sys.exit is not meant for the sweep
            reason = explain(error, task.configuration.components().values())
            again, failed = _after_failure(task, sum(stored), reason, stack_trace(error))
            waiting.extendleft(reversed(again))
            failures.extend(failed)
    return failures


class _Elsewhere:
    """Tasks of runs that other sweeps are computing."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self._looked = time.monotonic()
        self._is_said = False

    def add(self, task: Task) -> None:
        if task.parts:
            self.tasks.append(task)

    def due(self) -> list[Task]:
        """All of them from time to time, to be tried once more, else none."""
        if not self.tasks or time.monotonic() < self._looked + _LOOK_SECONDS:
            return []
        if not self._is_said:
            runs = sum(len(task.members) for task in self.tasks)
            _logger.warning("waiting for %d runs that another sweep is computing", runs)
            self._is_said = True
        self._looked = time.monotonic()
        due, self.tasks = self.tasks, []
        return due


def _unmeasured(member: Member, error: InputError | RunError) -> Failure:
    configuration, repeat = member
    return Failure(configuration, error, repeats=(repeat,))


def _after_failure(
    task: Task, stored: int, error: InputError | RunError, details: str
) -> tuple[list[Task], list[Failure]]:
    """What to compute again after a task failed, and what to give up.

    Bad input is bad for all repeats of a configuration; anything else may be one run's fault.
    """
    rest = task.after(stored)
    if rest is None:
        return [], []
    if len(rest.parts) > 1 or (len(rest.members) > 1 and not isinstance(error, InputError)):
        return rest.split(), []
    ((configuration, repeats),) = rest.parts
    return [], [Failure(configuration, error, details, repeats)]


def _context() -> Any:
    """How workers start: a fork takes milliseconds, a new interpreter seconds.

    A fork of a process with several threads may hang, and one that has looked for a GPU may not use
    it: then workers are new interpreters.
    """
    tasks = Path("/proc/self/task")
    is_single = tasks.is_dir() and len(list(tasks.iterdir())) == 1
    method = "fork" if is_single and not torch.cuda.is_available() else "spawn"
    known = (None, *multiprocessing.get_all_start_methods())
    if multiprocessing.get_start_method(allow_none=True) not in known:
        # A new interpreter takes over the default, and does not know that of joblib's processes.
        multiprocessing.set_start_method(method, force=True)
    return multiprocessing.get_context(method)


class _Process:
    """A worker process, the pipe to it, and what it is doing."""

    def __init__(self, execution: Execution, gpu: str | None) -> None:
        context = _context()
        self.gpu = gpu
        self.connection, other = context.Pipe()
        call = packed(_serve, execution, gpu)
        self.process = context.Process(target=run_child, args=(os.getpid(), call, other))
        self.process.start()
        other.close()  # so that the death of the worker ends the pipe
        self.ready = False
        self.given: Task | None = None
        self.task: Task | None = None  # what it has taken of it
        self.stored = 0
        self.deadline = time.monotonic() + _START_SECONDS

    def give(self, task: Task, seconds: float) -> None:
        self.given, self.task, self.stored = task, task, 0
        self.deadline = time.monotonic() + seconds
        self.connection.send(task)

    def messages(self) -> Iterator[tuple[str, Any]]:
        """What has come in; ends with ``died`` when nothing more can come."""
        # A worker that has ended may have left messages, which count.
        has_ended = not self.process.is_alive()
        try:
            while self.connection.poll():
                yield self.connection.recv()
        except (EOFError, OSError):  # dead, or its code has closed the pipe
            self.process.kill()
            has_ended = True
        if has_ended:
            self.process.join()
            yield "died", self.process.exitcode

    def kill(self) -> None:
        self.process.kill()  # rows are written atomically: nothing is harmed
        self.process.join()
        self.connection.close()


class _Pool:
    """Worker processes, replaced when they die, and what became of the tasks."""

    def __init__(self, execution: Execution, costs: CostModel, report: Report) -> None:
        self.execution, self.costs, self.report = execution, costs, report
        self.waiting: deque[Task] = deque()
        self.suspects: deque[Task] = deque()  # single runs whose worker died
        self.elsewhere = _Elsewhere()
        self.failures: list[Failure] = []
        self.processes: list[_Process] = []
        self.gpus = gpus_for(execution.device, execution.kernels)
        self.deaths_at_start = 0
        self.record = None if execution.record is None else SweepRecord(execution.record)

    def __enter__(self) -> "_Pool":
        return self

    def __exit__(self, *error: object) -> None:
        for one in self.processes:
            one.kill()

    def run(self, tasks: Sequence[Task], workers: int) -> list[Failure]:
        """Compute tasks.

        A run whose worker died may have died of its neighbours' hunger for memory: in the end it
        gets a second chance with nobody beside it.
        """
        self.waiting.extend(tasks)
        self._work(workers, is_last=False)
        while self.suspects:
            self.waiting.append(self.suspects.popleft())
            self._work(1, is_last=True)
        return self.failures

    def _work(self, workers: int, *, is_last: bool) -> None:
        while self.waiting or self.elsewhere.tasks or self._busy():
            if self.record is not None:
                self.record.beat()
            if not self.waiting:
                self.waiting.extend(self.elsewhere.due())
            if self.deaths_at_start >= _DEATHS_AT_START:
                return self._give_up("workers die before they start to work")
            self._hand_out(workers)
            handles = [h for p in self.processes for h in (p.connection, p.process.sentinel)]
            wait(handles, timeout=0.5)
            for one in list(self.processes):
                for kind, content in one.messages():
                    self._handle(one, kind, content, is_last=is_last)
                    if one not in self.processes:
                        break
                if one in self.processes and time.monotonic() > one.deadline:
                    self._end_hung(one)
        return None

    def _hand_out(self, workers: int) -> None:
        for one in self.processes[workers:]:  # the last phase wants one worker only
            self._remove(one)
        while len(self.processes) < min(workers, len(self.waiting) + self._busy()):
            gpu = least_used(self.gpus, (one.gpu for one in self.processes))
            with starting():
                self.processes.append(_Process(self.execution, gpu))
        for one in self.processes:
            if self.waiting and one.ready and one.task is None:
                task = self.waiting.popleft()
                try:
                    one.give(task, self.execution.seconds_for(task, self.costs))
                except OSError:  # it died idle, which is no task's fault
                    one.task = None
                    self.waiting.appendleft(task)
                except Exception as error:  # a component that cannot be pickled
                    one.task = None
                    self._fail(task, 0, explain(error), stack_trace(error))

    def _busy(self) -> int:
        return sum(one.task is not None for one in self.processes)

    def _handle(self, one: _Process, kind: str, content: Any, *, is_last: bool) -> None:
        if kind == "ready":
            one.ready, one.deadline = True, float("inf")
            self.deaths_at_start = 0
        elif kind == "epochs" and one.given is not None:
            self.report(one.given, content)
        elif kind == "taken" and one.given is not None:
            mine, others = content
            one.task = one.given.only(mine)
            self.elsewhere.add(one.given.only(others))
            self.report(one.given, one.given.epochs - one.task.epochs)
        elif kind == "stored":
            one.stored += content
        elif kind == "done":
            one.task, one.deadline = None, float("inf")
        elif kind == "failed":
            task, one.task, one.deadline = one.task, None, float("inf")
            if task is not None:
                self._fail(task, one.stored, *content)
            # Who knows what else it did to its process: its memory, files, limits or folder.
            if not isinstance(content[0], InputError):
                self._remove(one)
        elif kind == "unmeasured":
            self.failures.append(_unmeasured(*content))
        elif kind == "storage":
            raise StorageError(*content)
        elif kind == "died":
            self._remove(one)
            if one.task is not None:
                self._bury(one.task, one.stored, content, is_last=is_last)
            elif not one.ready:
                self.deaths_at_start += 1

    def _fail(
        self, task: Task, stored: int, error: InputError | RunError, details: str = ""
    ) -> None:
        again, failed = _after_failure(task, stored, error, details)
        self.waiting.extend(again)
        self.failures += failed

    def _bury(self, task: Task, stored: int, code: int | None, *, is_last: bool) -> None:
        """A worker died: its runs go on one by one, and a run that was alone gets a last chance."""
        rest = task.after(stored)
        if rest is None:
            return
        if len(rest.members) > 1:
            self.waiting.extend(rest.singles())
        elif not is_last:
            self.suspects.append(rest)
        else:
            ((configuration, repeats),) = rest.parts
            error = RunError(f"its process {_cause_of_death(code)}, twice")
            self.failures.append(Failure(configuration, error, repeats=repeats))

    def _end_hung(self, one: _Process) -> None:
        """End a worker that takes too long; who was alone in it is given up, others go on."""
        self._remove(one)
        if one.task is None:
            self.deaths_at_start += 1
            return
        rest = one.task.after(one.stored)
        if rest is not None and len(rest.members) > 1:
            self.waiting.extend(rest.singles())
        elif rest is not None:
            ((configuration, repeats),) = rest.parts
            seconds = self.execution.seconds_for(one.task, self.costs)
            error = RunError(f"ended after {seconds:.0f} s without a result (see time_limit)")
            self.failures.append(Failure(configuration, error, repeats=repeats))

    def _give_up(self, reason: str) -> None:
        for task in (*self.waiting, *self.elsewhere.tasks):
            for configuration, repeats in task.parts:
                self.failures.append(Failure(configuration, RunError(reason), repeats=repeats))
        self.waiting.clear()
        self.elsewhere.tasks.clear()

    def _remove(self, one: _Process) -> None:
        self.processes.remove(one)
        one.kill()


def _cause_of_death(code: int | None) -> str:
    if code is None or code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"died of {name}{' (out of memory?)' if -code == signal.SIGKILL else ''}"


def _serve(connection: Connection, execution: Execution, gpu: str | None) -> None:
    """The life of a worker: compute what comes in until the pipe ends."""
    if gpu is not None:  # the only one that it sees, whatever its number was
        see_only(gpu)
        execution = replace(execution, device="cuda")
    worker = Worker(execution)
    try:
        worker.store.check_writable()
    except InputError as error:
        connection.send(("storage", (str(execution.results_dir), error.allowed)))
        return
    connection.send(("ready", None))
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        except Exception as error:  # of a module that can be imported there and not here
            connection.send(("failed", (explain(error), stack_trace(error))))
            continue
        connection.send(_answer(worker, task, connection))


def _answer(worker: Worker, task: Task, connection: Connection) -> tuple[str, Any]:
    reported, done = time.monotonic(), 0

    def on_epoch(run_epochs: int) -> None:
        nonlocal reported, done
        done += run_epochs
        if time.monotonic() - reported > 0.3:
            connection.send(("epochs", done))
            reported, done = time.monotonic(), 0

    try:
        worker.compute(
            task,
            on_epoch,
            lambda count: connection.send(("stored", count)),
            lambda member, error: connection.send(("unmeasured", (member, explain(error)))),
            lambda mine, others: connection.send(("taken", (mine, others))),
        )
    except StorageError as error:
        return "storage", (error.folder, error.reason)
    except BaseException as error:  # sys.exit of a plug-in is no wish to end the sweep
        reason = explain(error, task.configuration.components().values())
        return "failed", (reason, stack_trace(error))
    connection.send(("epochs", done))
    return "done", None


@contextlib.contextmanager
def _progress(tasks: Sequence[Task], costs: CostModel, show: bool) -> Iterator[Report]:
    """One bar over all epochs of all runs; epochs count by their estimated cost."""
    from tqdm import tqdm

    tqdm.monitor_interval = 0  # no thread beside us: it would keep workers from being forked
    total = sum(costs.seconds(task) for task in tasks)
    unit = {id(task): costs.seconds(task) / task.epochs for task in tasks}
    layout = "{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
    epochs = sum(task.epochs for task in tasks)
    runs = sum(len(task.members) for task in tasks)
    done = 0
    with tqdm(
        total=total,
        desc=counted(runs, "run"),
        bar_format=layout,
        disable=not show or epochs == 1,  # of one step there is nothing to see
        mininterval=0.5,
    ) as bar:

        def report(task: Task, run_epochs: int) -> None:
            nonlocal done
            # Tasks made of one that failed were counted with it.
            if id(task) in unit:
                done += run_epochs
                bar.update(min(unit[id(task)] * run_epochs, total - bar.n))
            bar.set_postfix_str(f" epoch {done}/{epochs}", refresh=False)

        yield report
