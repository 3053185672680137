import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

from lpgnn.config import Settings
from lpgnn.errors import InputError
from lpgnn.learners import Drop
from lpgnn.privacy import MultiBit
from lpgnn.propagation import KProp
from lpgnn.rows import RowStore
from lpgnn.sweeps import CostModel, Execution, Failure, Task, describe_error, pool, run_tasks
from small_run import small, stored_science


def tasks_of(*seeds: int, **settings: Any) -> list[Task]:
    return [Task(((small(seed=seed, **settings), (0, 1)),)) for seed in seeds]


def run_all(tasks: list[Task], folder: Path, workers: int = 1) -> list[Failure]:
    execution = Execution(folder, folder, "cpu", workers=workers)
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
    assert isinstance(failure.error, ArithmeticError)
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


@pytest.mark.parametrize("workers", [1, 2])
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


@pytest.mark.parametrize("workers", [1, 2])
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


class PoolOfThreads:
    """Stands in for the pool of processes: its tasks take a moment, and some break the pool.

    A task of seed 13 kills its worker.  As in the real pool everything that runs then is lost with
    it, and the pool takes no more.
    """

    pools: list["PoolOfThreads"]
    refuse_submit: int  # the number of the submit, over all pools, that finds the pool broken

    def __init__(self, workers: int, context: Any, start: Any, arguments: tuple[Any, ...]) -> None:
        self._processes: dict[int, Any] = {}
        self.futures: list[Future[None]] = []
        self.broken = False
        self.lock = threading.Lock()
        self.pools.append(self)
        events, execution, _ = arguments
        pool._process.update(events=events, worker=pool.Worker(execution))

    def submit(self, work: Callable[[int, Task], None], index: int, task: Task) -> Future[None]:
        submitted = sum(len(pool.futures) for pool in self.pools)
        if self.broken or submitted == self.refuse_submit:
            type(self).refuse_submit = -1
            self.broken = True
            raise BrokenProcessPool
        future: Future[None] = Future()
        self.futures.append(future)
        pause = 0.03 if task.configuration.seed == 13 else 0.06
        threading.Timer(pause, self._settle, (future, work, index, task)).start()
        return future

    def _settle(self, future: Future[None], work: Any, index: int, task: Task) -> None:
        with self.lock:
            if future.done():
                return
            if task.configuration.seed == 13:
                self.broken = True
                for other in self.futures:
                    if not other.done():
                        other.set_exception(BrokenProcessPool())
                return
            work(index, task)
            future.set_result(None)

    def shutdown(self, wait: bool = True, cancel_futures: bool = False) -> None:
        pass


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Seeds of the tasks that were computed, with threads in place of processes."""
    seeds: list[int] = []
    monkeypatch.setattr(
        pool.Worker, "compute", lambda _, task, on_epoch: seeds.append(task.configuration.seed)
    )
    monkeypatch.setattr(pool, "_process", {})
    monkeypatch.setattr(pool, "ProcessPoolExecutor", PoolOfThreads)
    monkeypatch.setattr(PoolOfThreads, "pools", [], raising=False)
    monkeypatch.setattr(PoolOfThreads, "refuse_submit", -1, raising=False)
    return seeds


def test_workers_compute_every_task_once(computed: list[int], tmp_path: Path) -> None:
    assert run_all(tasks_of(*range(7)), tmp_path, workers=2) == []
    assert sorted(computed) == list(range(7))


def test_a_task_that_kills_its_worker_is_given_up_and_named(
    computed: list[int], tmp_path: Path
) -> None:
    failures = run_all(tasks_of(0, 13, 1, 2, 3), tmp_path, workers=2)
    assert [failure.configuration.seed for failure in failures] == [13]
    assert describe_error(failures[0].error) == (
        "RuntimeError: its worker died twice (killed, or out of memory)"
    )
    assert sorted(computed) == [0, 1, 2, 3]


def test_tasks_beside_a_deadly_one_are_not_given_up(computed: list[int], tmp_path: Path) -> None:
    """With as many workers as tasks the innocent runs beside the deadly one each time."""
    failures = run_all(tasks_of(0, 13), tmp_path, workers=2)
    assert [failure.configuration.seed for failure in failures] == [13]
    assert computed == [0]


@pytest.mark.parametrize("number", range(5))
def test_a_pool_that_breaks_between_tasks_loses_none(
    number: int, computed: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker may die idle: then it is handing out the next task that finds the pool broken."""
    monkeypatch.setattr(PoolOfThreads, "refuse_submit", number)
    assert run_all(tasks_of(*range(5)), tmp_path, workers=2) == []
    assert set(computed) == set(range(5))


def test_workers_that_die_before_they_start_end_the_sweep(
    computed: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: Any) -> Future[None]:
        raise BrokenProcessPool

    monkeypatch.setattr(PoolOfThreads, "submit", broken)
    failures = run_all(tasks_of(0, 1), tmp_path, workers=2)
    assert [failure.configuration.seed for failure in failures] == [0, 1]
    assert "workers die before they start to work" in str(failures[0].error)
    assert len(PoolOfThreads.pools) == 3


def test_real_workers_give_the_same_rows_even_if_one_dies(tmp_path: Path) -> None:
    datasets = [{"_target_": "small_run.dies_once", "seed": seed} for seed in (0, 1, 2)]
    tasks = [Task(((small(dataset=dataset), (0, 1)),)) for dataset in datasets]
    quiet = tmp_path / "quiet"
    quiet.mkdir()
    assert run_all(tasks, quiet) == []
    assert not (quiet / "died").exists()
    assert run_all(tasks, tmp_path, workers=2) == []
    assert (tmp_path / "died").exists()  # it did die
    rows = stored_science(quiet, "small_run.dies_once")
    assert len(rows) == 6
    assert stored_science(tmp_path, "small_run.dies_once") == rows
