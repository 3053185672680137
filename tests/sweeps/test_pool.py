import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from lpgnn.composition import expand
from lpgnn.config import Settings
from lpgnn.engine import Measures
from lpgnn.errors import InputError, RunError, StorageError
from lpgnn.learners import Drop
from lpgnn.privacy import MultiBit
from lpgnn.propagation import KProp
from lpgnn.rows import (
    DEFAULT_METRICS,
    Requirements,
    RowStore,
    SweepRecord,
    Wanted,
    at_work,
    claimed,
    metric_sources,
)
from lpgnn.sweeps import (
    CostModel,
    Execution,
    Failure,
    Task,
    describe_error,
    pool,
    run_tasks,
)
from lpgnn.sweeps.session import run_points
from lpgnn.sweeps.tasks import LEAST_LIMIT, LIMIT_FACTOR
from rows.rows import in_child, make_row
from small_run import Treacherous, small, stored_science


def tasks_of(*seeds: int, **settings: Any) -> list[Task]:
    return [Task(((small(seed=seed, **settings), (0, 1)),)) for seed in seeds]


def run_all(
    tasks: list[Task], folder: Path, workers: int = 0, time_limit: float | None = None
) -> list[Failure]:
    execution = Execution(folder, folder, "cpu", workers=workers, time_limit=time_limit)
    return run_tasks(tasks, execution, costs=CostModel(), show_progress=False)


def stored(folder: Path) -> set[tuple[int, int]]:
    """(seed, repeat) of every row that came out right."""
    rows = RowStore(folder).read("sbm")
    return {(int(row["seed"]), int(row["repeat"])) for row in rows if row["status"] == "ok"}


def unreadable(folder: Path) -> Task:
    """A graph that can be looked at, and is refused where it is computed on."""
    dataset = {"_target_": "small_run.breaks_in_workers", "seed": 1}
    (folder / "broken").unlink(missing_ok=True)
    configuration = Settings(dataset=dataset, max_epochs=2, data_dir=folder).resolve()
    (folder / "broken").touch()
    return Task(((configuration, (0,)),))


def test_a_failing_task_does_not_stop_the_others(tmp_path: Path) -> None:
    good, bad = tasks_of(0, 2), unreadable(tmp_path)
    failures = run_all([good[0], bad, good[1]], tmp_path)
    assert stored(tmp_path) == {(0, 0), (0, 1), (2, 0), (2, 1)}
    (failure,) = failures
    assert failure.configuration is bad.configuration
    name = "dataset small_run.breaks_in_workers failed"
    expected = f"{name}: ArithmeticError: the graph of seed 1 is broken (small_run.py, line "
    assert str(failure.error).startswith(expected)
    assert "breaks_in_workers" in failure.details


def test_errors_are_told_in_one_line() -> None:
    assert describe_error(InputError("x_eps", -1, "must be positive")) == (
        "x_eps=-1: must be positive"
    )
    assert describe_error(ValueError("two\n  lines")) == "ValueError: two lines"
    assert describe_error(KeyError()) == "KeyError"


def test_a_graph_with_options_that_are_lists_can_be_swept(tmp_path: Path) -> None:
    dataset = {"_target_": "small_run.two_cliques", "tag": [1, {"a": 2}], "name": "cliques"}
    failures = run_all([Task(((small(dataset=dataset), (0,)),))], tmp_path)
    assert [failure.details for failure in failures] == []
    assert len(RowStore(tmp_path).read("cliques")) == 1


class Bar:
    """Stands in for tqdm's bar."""

    def __init__(self, total: float, desc: str, **options: Any) -> None:
        self.total, self.desc, self.n, self.texts = total, desc, 0.0, list[str]()

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def update(self, amount: float) -> None:
        assert amount >= 0
        self.n += amount

    def set_postfix_str(self, text: str, refresh: bool) -> None:
        self.texts.append(text)


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> list[Bar]:
    made: list[Bar] = []

    def make(**options: Any) -> Bar:
        made.append(Bar(**options))
        return made[-1]

    monkeypatch.setattr("tqdm.tqdm", make)
    return made


@pytest.mark.parametrize("workers", [0, 2])
def test_the_bar_counts_all_runs_and_epochs_of_shared_tasks(
    tmp_path: Path, bars: list[Bar], workers: int
) -> None:
    rates = (0.01, 0.003, 0.001)
    shared = Task(tuple((small(learning_rate=rate), (0, 1)) for rate in rates))
    tasks = [shared, Task(((small(backbone="gcn", max_epochs=3), (0,)),))]
    costs = CostModel()
    assert run_all(tasks, tmp_path, workers) == []
    (bar,) = bars
    assert bar.desc == "7 runs"
    assert bar.total == pytest.approx(sum(costs.seconds(task) for task in tasks))
    assert bar.n == pytest.approx(bar.total)
    assert bar.texts[-1] == " epoch 33/33"  # six runs of five epochs, one of three
    assert len(RowStore(tmp_path).read("sbm")) == 7


@pytest.mark.parametrize("workers", [0, 2])
def test_one_bad_configuration_does_not_take_its_batch_with_it(
    tmp_path: Path, bars: list[Bar], workers: int
) -> None:
    """A budget that its mechanism refuses is found in the middle of a shared task."""
    shared: dict[str, Any] = {
        "mechanism": MultiBit(num_samples=3),
        "filter": KProp(steps=2),
        "learner": Drop(steps=2),
    }
    good, bad = small(**shared), small(**shared, x_eps=5.0)
    object.__setattr__(bad, "y_eps", -1.0)  # past the checks of the settings
    task = Task(((good, (0, 1)), (bad, (0,))))
    failures = run_all([task, *tasks_of(5)], tmp_path, workers)
    assert [failure.configuration.y_eps for failure in failures] == [-1.0]
    assert stored(tmp_path) == {(good.seed, 0), (good.seed, 1), (5, 0), (5, 1)}
    # What is done again is not counted again.
    (bar,) = bars
    assert bar.n <= bar.total * (1 + 1e-9)
    assert {text.split("/")[1] for text in bar.texts} == {"25"}
    assert all(int(text.split()[1].split("/")[0]) <= 25 for text in bar.texts)


class Scripted:
    """Stands in for a worker process: what a run does is a matter of its seed.

    13 kills its worker, 17 does so the first time, 19 never ends, 23 and 29 raise errors, 31 finds
    the disk full, and 37 is stored and then gone.
    """

    log: ClassVar[list[list[int]]]  # the seeds of every task that was handed out
    gpus: ClassVar[list[str | None]]  # of every process
    started: ClassVar[int]
    dead_on_arrival: ClassVar[int]  # so many processes die before they are ready

    def __init__(self, execution: Execution, gpu: str | None) -> None:
        self.execution, self.ready, self.stored = execution, False, 0
        self.gpu = gpu
        self.gpus.append(gpu)
        self.task: Task | None = None
        self.deadline = float("inf")
        self.connection = self.process = self
        self.sentinel = None
        type(self).started += 1
        dies = type(self).started <= self.dead_on_arrival
        self.queue: list[tuple[str, Any]] = [("died", 1) if dies else ("ready", None)]

    def give(self, task: Task, seconds: float) -> None:
        self.task, self.stored, self.deadline = task, 0, float("inf")
        seeds = [configuration.seed for configuration, _ in task.members]
        self.log.append(seeds)
        store = RowStore(self.execution.results_dir)
        for configuration, repeat in task.members:
            match configuration.seed:
                case 13:
                    return self.queue.append(("died", -9))
                case 17 if self.log.count([17]) < 2:
                    return self.queue.append(("died", -11))
                case 19:
                    self.deadline = -1.0
                    return None
                case 23:
                    return self.queue.append(("failed", (RunError("ValueError: 23"), "trace")))
                case 29:
                    return self.queue.append(("failed", (InputError("y_eps", 29, "bad"), "")))
                case 31:
                    return self.queue.append(("storage", ("results", "No space left on device")))
            row = make_row(configuration.identity, repeat, seed=configuration.seed)
            if configuration.seed != 37:
                store.append("sbm", [row])
            self.queue.append(("stored", 1))
        return self.queue.append(("done", None))

    def messages(self) -> Iterator[tuple[str, Any]]:
        while self.queue:
            yield self.queue.pop(0)

    def kill(self) -> None:
        pass


@pytest.fixture
def handed_out(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The seeds of the runs of every task that was handed out, to scripted workers."""
    monkeypatch.setattr(pool, "_Process", Scripted)
    monkeypatch.setattr(pool, "wait", lambda handles, timeout: None)
    for name, value in (("log", []), ("gpus", []), ("started", 0), ("dead_on_arrival", 0)):
        monkeypatch.setattr(Scripted, name, value, raising=False)
    return Scripted.log


def batch(*seeds: int, repeats: tuple[int, ...] = (0,)) -> Task:
    return Task(tuple((small(seed=seed), repeats) for seed in seeds))


def failed_seeds(failures: list[Failure]) -> list[int]:
    return [failure.configuration.seed for failure in failures]


WORKERS = pytest.mark.parametrize("workers", [1, 2])


def test_every_worker_gets_a_gpu_of_its_own(
    handed_out: list[list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "gpus_for", lambda device, kernels: ("GPU-a", "3"))
    assert run_all([batch(seed) for seed in (1, 2, 13, 4, 5)], tmp_path, 3) != []
    # The third shares a GPU, and who replaces a dead worker takes over its GPU.
    assert sorted(map(str, Scripted.gpus[:3])) == ["3", "GPU-a", "GPU-a"]
    assert set(Scripted.gpus) == {"GPU-a", "3"}


def test_workers_share_no_gpu_where_there_is_none(
    handed_out: list[list[int]], tmp_path: Path
) -> None:
    assert run_all([batch(1), batch(2)], tmp_path, 2) == []
    assert set(Scripted.gpus) == {None}


@WORKERS
def test_workers_compute_every_task_once(
    workers: int, handed_out: list[list[int]], tmp_path: Path
) -> None:
    assert run_all([batch(seed) for seed in range(7)], tmp_path, workers) == []
    assert sorted(handed_out) == [[seed] for seed in range(7)]
    assert Scripted.started == workers


@WORKERS
def test_a_run_that_kills_its_worker_costs_only_itself(
    workers: int, handed_out: list[list[int]], tmp_path: Path
) -> None:
    failures = run_all([batch(0, 13, 1, 2), batch(3, 4)], tmp_path, workers)
    assert failed_seeds(failures) == [13]
    assert describe_error(failures[0].error) == (
        "its process died of SIGKILL (out of memory?), twice"
    )
    assert stored(tmp_path) == {(seed, 0) for seed in range(5)}
    # Seed 0 was stored before its neighbour died, and is not computed again.
    assert [seeds for seeds in handed_out if 0 in seeds] == [[0, 13, 1, 2]]
    assert handed_out.count([13]) == 2  # the second time with nobody beside it
    assert handed_out[-1] == [13]


def test_repeats_of_one_configuration_are_told_apart(
    handed_out: list[list[int]], tmp_path: Path
) -> None:
    failures = run_all([Task(((small(seed=23), (0, 1)),)), batch(5)], tmp_path, 1)
    assert [failure.repeats for failure in failures] == [(0,), (1,)]
    assert stored(tmp_path) == {(5, 0)}


def test_a_run_that_dies_once_gets_a_second_chance_alone(
    handed_out: list[list[int]], tmp_path: Path
) -> None:
    assert run_all([batch(0, 17, 1)], tmp_path, 2) == []
    assert stored(tmp_path) == {(0, 0), (17, 0), (1, 0)}


@WORKERS
def test_a_hung_run_is_ended_and_its_mates_go_on(
    workers: int, handed_out: list[list[int]], tmp_path: Path
) -> None:
    failures = run_all([batch(0, 19, 1)], tmp_path, workers, time_limit=7)
    assert failed_seeds(failures) == [19]
    assert str(failures[0].error) == "ended after 7 s without a result (see time_limit)"
    assert stored(tmp_path) == {(0, 0), (1, 0)}


@WORKERS
def test_bad_input_is_not_tried_for_every_repeat(
    workers: int, handed_out: list[list[int]], tmp_path: Path
) -> None:
    failures = run_all([batch(29, 0, repeats=(0, 1, 2))], tmp_path, workers)
    assert failed_seeds(failures) == [29]
    assert failures[0].repeats == (0, 1, 2)
    assert handed_out == [[29] * 3 + [0] * 3, [29] * 3, [0] * 3]


@WORKERS
def test_a_full_disk_ends_the_sweep_at_once(
    workers: int, handed_out: list[list[int]], tmp_path: Path
) -> None:
    with pytest.raises(StorageError, match="No space left on device"):
        run_all([batch(31), *(batch(seed) for seed in range(9))], tmp_path, workers)
    assert len(handed_out) <= workers


def test_rows_that_are_gone_in_the_end_are_named(
    handed_out: list[list[int]], tmp_path: Path
) -> None:
    failures = run_all([batch(0, 37), batch(1)], tmp_path, 2)
    assert failed_seeds(failures) == [37]
    assert "are gone: removed or damaged while the sweep ran" in str(failures[0].error)


def test_workers_that_die_idle_are_replaced(
    handed_out: list[list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Scripted, "dead_on_arrival", 2)
    assert run_all([batch(seed) for seed in range(3)], tmp_path, 1) == []
    assert Scripted.started == 3


def test_workers_that_die_before_they_start_end_the_sweep(
    handed_out: list[list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Scripted, "dead_on_arrival", 100)
    failures = run_all([batch(0), batch(1)], tmp_path, 2)
    assert failed_seeds(failures) == [0, 1]
    assert "workers die before they start to work" in str(failures[0].error)
    assert Scripted.started <= 4


def test_the_time_limit_of_a_task() -> None:
    task, costs = batch(0, 1, repeats=(0, 1)), CostModel()
    assert Execution(Path(), Path()).seconds_for(task, costs) == LEAST_LIMIT
    assert Execution(Path(), Path(), time_limit=None).seconds_for(task, costs) == math.inf
    assert Execution(Path(), Path(), time_limit=60).seconds_for(task, costs) == 240
    slow = Task(((small(max_epochs=10**9), (0,)),))
    assert Execution(Path(), Path()).seconds_for(slow, costs) == pytest.approx(
        LIMIT_FACTOR * costs.seconds(slow)
    )


@pytest.mark.slow
def test_what_plug_ins_do_to_their_workers(tmp_path: Path) -> None:
    """Real processes: sys.exit, os._exit, and an error that cannot be unpickled."""
    terrible = {"mechanism": Treacherous(), "filter": KProp(steps=2), "learner": Drop(steps=2)}
    budgets = (1.0, 0.25, 0.5, 0.75, 2.0)
    task = Task(tuple((small(x_eps=eps, **terrible), (0,)) for eps in budgets))
    failures = run_all([task], tmp_path, 1)
    texts = {f.configuration.x_eps: describe_error(f.error) for f in failures}
    name = "mechanism small_run.Treacherous failed"
    assert texts.keys() == {0.25, 0.5, 0.75}
    assert texts[0.25].startswith(f"{name}: sys.exit(0) was called (small_run.py, line ")
    assert texts[0.5] == "its process ended with exit code 0, twice"
    assert texts[0.75].startswith(f"{name}: OddError: odd 1 and 2 (small_run.py, line ")
    assert {float(row["x_eps"]) for row in RowStore(tmp_path).read("sbm")} == {1.0, 2.0}


@pytest.mark.parametrize("fault", [0.25, 0.75])
def test_plug_ins_in_this_process(fault: float, tmp_path: Path) -> None:
    terrible = {"mechanism": Treacherous(), "filter": KProp(steps=2), "learner": Drop(steps=2)}
    task = Task(tuple((small(x_eps=eps, **terrible), (0, 1)) for eps in (1.0, fault)))
    failures = run_all([task], tmp_path, 0)
    assert [(f.configuration.x_eps, f.repeats) for f in failures] == [(fault, (0,)), (fault, (1,))]
    assert len(RowStore(tmp_path).read("sbm")) == 2


def fails_sometimes(labels: Any, predictions: Any, probabilities: Any) -> float:
    return 1 / 0


def starts_an_interpreter() -> int | None:
    """In one of joblib's processes, with a thread: a new interpreter must find its feet there."""
    idle = threading.Event()
    threading.Thread(target=idle.wait, daemon=True).start()
    context = vars(pool)["_context"]()
    assert context.get_start_method() == "spawn"
    child = context.Process(target=print)
    child.start()
    child.join(60)
    idle.set()
    code: int | None = child.exitcode
    return code


def test_workers_start_inside_joblibs_processes() -> None:
    from joblib import Parallel, delayed

    assert Parallel(n_jobs=2)([delayed(starts_an_interpreter)()]) == [0]


def signalled(labels: Any, predictions: Any, probabilities: Any) -> float:
    os.kill(os.getpid(), signal.SIGUSR2)
    return 1.0


def test_workers_leave_the_signals_of_a_cluster_to_their_parent(tmp_path: Path) -> None:
    """A scheduler announces pre-emption to all processes of a job: one answers."""
    metrics = {**DEFAULT_METRICS, "mine": "sweeps.test_pool.signalled"}
    execution = Execution(tmp_path, tmp_path, "cpu", workers=1, measures=Measures(metrics))
    handled: list[int] = []
    before = signal.signal(signal.SIGUSR2, lambda number, frame: handled.append(number))
    try:
        assert run_tasks(tasks_of(0), execution, costs=CostModel(), show_progress=False) == []
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert len(RowStore(tmp_path).read("sbm")) == 2
    assert handled == []


@WORKERS
def test_a_failing_metric_costs_its_cell_and_not_the_row(workers: int, tmp_path: Path) -> None:
    metrics = {**DEFAULT_METRICS, "mine": "sweeps.test_pool.fails_sometimes"}
    execution = Execution(
        tmp_path, tmp_path, "cpu", workers=workers - 1, measures=Measures(metrics)
    )
    tasks = tasks_of(0)
    failures = run_tasks(tasks, execution, costs=CostModel(), show_progress=False)
    assert [f.repeats for f in failures] == [(0,), (1,)]
    assert describe_error(failures[0].error) == (
        "metrics.mine=sweeps.test_pool.fails_sometimes: "
        "failed with ZeroDivisionError: division by zero"
    )
    rows = RowStore(tmp_path).read("sbm")
    assert [row["status"] for row in rows] == ["ok", "ok"]
    assert all(row["paper/test/acc"] for row in rows)
    assert not any(row.get("paper/test/mine") for row in rows)
    found = Requirements(sources=metric_sources(metrics)).missing(
        tasks[0].configuration.computation, range(2), RowStore(tmp_path)
    )
    assert found == (0, 1)  # once the metric is repaired, they are computed again


@pytest.mark.slow
@pytest.mark.usefixtures("new_interpreters")
def test_real_workers_give_the_same_rows_even_if_one_dies(tmp_path: Path) -> None:
    datasets = [{"_target_": "small_run.dies_once", "seed": seed} for seed in (0, 1, 2)]
    tasks = [Task(((small(dataset=dataset), (0, 1)),)) for dataset in datasets]
    quiet = tmp_path / "quiet"
    quiet.mkdir()
    assert run_all(tasks, quiet) == []
    assert not (quiet / "died").exists()
    assert run_all(tasks, tmp_path, workers=1) == []
    assert (tmp_path / "died").exists()  # it did die
    rows = stored_science(quiet, "small_run.dies_once")
    assert len(rows) == 6
    assert stored_science(tmp_path, "small_run.dies_once") == rows


def start_sweep(folder: Path, tasks: list[Task], *, workers: int) -> int:
    """A sweep in a process of its own; returns its number."""

    def work() -> None:
        wanted = [Wanted(c.identity, c.dataset.name, "", r, 1.0) for t in tasks for c, r in t.parts]
        record = SweepRecord.start(folder, wanted)
        execution = Execution(folder, folder, "cpu", "torch", workers, record=record.folder)
        with record.alive(beats=False):
            assert run_tasks(tasks, execution, costs=CostModel(), show_progress=False) == []
        record.finish(failed=False)

    return in_child(work)


def written_rows(folder: Path) -> list[str]:
    """Every row in every shard, twice if it was computed twice."""
    shards = (folder / "local" / "shards").glob("*.csv")
    return sorted(
        ",".join(line.split(",")[:2])
        for path in shards
        for line in path.read_text().split("\n")[1:-1]
    )


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_sweeps_at_once_share_their_work(workers: int, tmp_path: Path) -> None:
    tasks = [Task(((small(seed=seed, max_epochs=20), (0, 1)),)) for seed in range(4)]
    sweeps = [start_sweep(tmp_path, tasks, workers=workers) for _ in range(4)]
    assert [os.waitpid(pid, 0)[1] for pid in sweeps] == [0, 0, 0, 0]
    expected = sorted(f"{c.identity},{repeat}" for task in tasks for c, repeat in task.members)
    assert written_rows(tmp_path) == expected
    assert list((tmp_path / "local" / "sweeps").iterdir()) == []


def test_what_a_killed_sweep_was_computing_is_taken_over(tmp_path: Path) -> None:
    configuration = small()
    runs = [(configuration.identity, 0)]
    record = SweepRecord.start(tmp_path, [Wanted(configuration.identity, "sbm", "", (0,), 1.0)])

    def hold() -> None:
        with at_work(record.folder, runs):
            time.sleep(60)

    holder = in_child(hold)
    while record.at_work() != runs:
        time.sleep(0.01)
    sweep = start_sweep(tmp_path, [Task(((configuration, (0, 1)),))], workers=0)
    while written_rows(tmp_path) != [f"{configuration.identity},1"]:  # the other run meanwhile
        assert os.waitpid(sweep, os.WNOHANG) == (0, 0)
        time.sleep(0.02)
    time.sleep(1.2)  # it looks twice
    assert written_rows(tmp_path) == [f"{configuration.identity},1"]
    os.kill(holder, signal.SIGKILL)  # not waited for: a zombie holds nothing
    assert os.waitpid(sweep, 0)[1] == 0
    assert written_rows(tmp_path) == [f"{configuration.identity},{repeat}" for repeat in (0, 1)]
    os.waitpid(holder, 0)


def test_a_mark_that_nobody_touches_holds_nothing(tmp_path: Path) -> None:
    """The number of a killed process may be another's by now: this one's, which lives."""
    record = SweepRecord.start(tmp_path, [])
    with at_work(record.folder, [("a", 0)]):
        assert record.at_work() == [("a", 0)]
        (mark,) = record.folder.glob("*.work")
        os.utime(mark, (time.time() - 100,) * 2)
        assert record.at_work() == []


def test_a_sweep_that_has_just_begun_is_not_taken_for_a_dead_one(tmp_path: Path) -> None:
    first = SweepRecord.start(tmp_path, [])
    second = SweepRecord.start(tmp_path, [])
    assert first.folder.is_dir()
    assert second.folder.is_dir()


def test_another_machine_sees_a_local_sweep_that_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while none of its workers trains: one that has just died, or waits for another sweep."""
    record = SweepRecord.start(tmp_path, [])
    execution = Execution(tmp_path, tmp_path, "cpu", "torch", 1, record=record.folder)
    with record.alive(beats=False):
        (mark,) = record.folder.glob("*.beat")
        os.utime(mark, (time.time() - 100,) * 2)
        tasks = [Task(((small(), (0,)),))]
        assert run_tasks(tasks, execution, costs=CostModel(), show_progress=False) == []
        monkeypatch.setattr("lpgnn.processes.socket.gethostname", lambda: "another-machine")
        assert record.is_alive()
        os.utime(mark, (time.time() - 100,) * 2)
        assert not record.is_alive()


@pytest.mark.parametrize("workers", [0, 1])
def test_the_mark_of_a_sweep_is_touched_by_its_loop_or_by_a_thread(
    workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def alive(record: SweepRecord, *, beats: bool) -> contextlib.AbstractContextManager[None]:
        asked.append(beats)
        return contextlib.nullcontext()

    monkeypatch.setattr(SweepRecord, "alive", alive)
    words = ["dataset.num_nodes=300", "dataset.num_features=90", "max_epochs=1", "repeats=1"]
    points = expand([*words, "device=cpu", f"workers={workers}", f"results_dir={tmp_path}"])
    assert run_points(points) == 0
    assert asked == [workers == 0]


def test_marks_count_without_the_record(tmp_path: Path) -> None:
    """Another machine may have taken the sweep for a dead one, and removed its record."""
    runs = [("a", 0)]
    record = SweepRecord.start(tmp_path, [])
    record.remove()
    with at_work(record.folder, runs), claimed(tmp_path, tmp_path, runs, lambda: runs) as taken:
        assert taken == ([], runs)


def test_a_container_of_the_same_name_sees_a_sweep_by_its_fresh_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has other processes under the same numbers, or none."""
    record = SweepRecord.start(tmp_path, [])
    readlink = os.readlink
    elsewhere = "pid:[1]"
    with record.alive(beats=False), at_work(record.folder, [("a", 0)]):
        with monkeypatch.context() as patched:
            patched.setattr(
                "lpgnn.processes.os.readlink",
                lambda path: elsewhere if path == "/proc/self/ns/pid" else readlink(path),
            )
            patched.setattr("lpgnn.processes._status", lambda number: [])
            assert record.is_alive()
            assert record.at_work() == [("a", 0)]
            for mark in record.folder.glob("*.*"):
                os.utime(mark, (time.time() - 100,) * 2)
            assert not record.is_alive()
        assert record.is_alive()  # we see it ourselves, whatever its mark says


def test_a_number_that_is_used_again_keeps_no_dead_sweep_alive(tmp_path: Path) -> None:
    record = SweepRecord.start(tmp_path, [])
    (mark,) = record.folder.glob("*.beat")
    place, started, number = mark.stem.rsplit("-", 2)
    mark.rename(mark.with_name(f"{place}-{int(started) - 1}-{number}.beat"))
    assert not record.is_alive()


def test_forced_runs_are_computed_whoever_has_computed_them(tmp_path: Path) -> None:
    task = Task(((small(), (0,)),))
    for force, rows in ((False, 1), (False, 1), (True, 2)):
        record = SweepRecord.start(tmp_path, [])
        required = Requirements(force=force)
        execution = Execution(
            tmp_path, tmp_path, "cpu", "torch", 0, required=required, record=record.folder
        )
        assert run_tasks([task], execution, costs=CostModel(), show_progress=False) == []
        assert len(written_rows(tmp_path)) == rows
