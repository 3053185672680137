import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest
import torch

from lpgnn import sweep
from lpgnn.errors import InputError
from lpgnn.experiment import load_dataset, run_members
from lpgnn.results import RowStore
from lpgnn.results.costs import CostModel
from lpgnn.sweep import Place, Task, describe_error, missing_repeats, plan_tasks, run_tasks
from small_run import SMALL_GRAPH, science_text, small


@pytest.fixture(autouse=True)
def _restore_arithmetic() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    torch.set_flush_denormal(False)


def tasks_of(*seeds: int, **settings: Any) -> list[Task]:
    return [Task(small(seed=seed, **settings), (0, 1)) for seed in seeds]


def run_all(tasks: list[Task], folder: Path, workers: int = 1) -> list[sweep.Failure]:
    place = Place(folder, folder, "cpu", workers)
    return run_tasks(tasks, place, costs=CostModel(), show_progress=False)


def stored(folder: Path) -> set[tuple[int, int]]:
    """(seed, repeat) of every row that came out right."""
    rows = RowStore(folder).read("sbm")
    return {(int(row["seed"]), int(row["repeat"])) for row in rows if row["status"] == "ok"}


def test_missing_repeats_are_those_without_a_row(tmp_path: Path) -> None:
    store, configuration = RowStore(tmp_path), small()
    assert missing_repeats(configuration, 3, store) == (0, 1, 2)
    run_all([Task(configuration, (1,))], tmp_path)
    assert missing_repeats(configuration, 3, store) == (0, 2)
    assert missing_repeats(configuration, 3, store, force=True) == (0, 1, 2)
    assert missing_repeats(small(seed=1), 2, store) == (0, 1)


def test_a_failing_task_does_not_stop_the_others(tmp_path: Path) -> None:
    good = tasks_of(0, 2)
    bad = Task(small(dataset={"name": "sbm", "num_nodes": 3}), (0,))
    failures = run_all([good[0], bad, good[1]], tmp_path)
    assert stored(tmp_path) == {(0, 0), (0, 1), (2, 0), (2, 1)}
    (failure,) = failures
    assert failure.configuration is bad.configuration
    assert isinstance(failure.error, InputError)
    assert "num_nodes" in failure.details


def test_errors_are_told_in_one_line() -> None:
    assert describe_error(InputError("x_eps", -1, "must be positive")) == (
        "x_eps=-1: must be positive"
    )
    assert describe_error(ValueError("two\n  lines")) == "ValueError: two lines"
    assert describe_error(KeyError()) == "KeyError"


def test_repeats_of_one_configuration_are_cut_into_tasks_without_changing_rows(
    tmp_path: Path,
) -> None:
    wanted = [(small(), tuple(range(5)))]
    whole = plan_tasks(wanted, CostModel(), workers=1)
    cut = plan_tasks(wanted, CostModel(), workers=3)
    assert [len(whole), len(cut)] == [1, 3]
    run_all(whole, tmp_path / "whole")
    run_all(cut, tmp_path / "cut")
    texts = {science_text(RowStore(tmp_path / name).path("sbm")) for name in ("whole", "cut")}
    assert len(texts) == 1


SHARED: list[dict[str, Any]] = [
    {},
    {"learning_rate": 0.003},
    {"weight_decay": 0.1, "dropout": 0.0},
    {"x_eps": 5.0, "y_eps": 2.0},
    {"seed": 4},
]


def test_configurations_that_differ_in_rates_and_budgets_share_a_task_and_keep_their_rows(
    tmp_path: Path,
) -> None:
    wanted = [(small(x_steps=2, y_steps=2, **settings), (0, 1)) for settings in SHARED]
    (shared,) = plan_tasks(wanted, CostModel(), workers=1, together=10)
    assert list(shared.parts) == wanted
    assert shared.epochs == 10 * small().max_epochs
    alone = plan_tasks(wanted, CostModel(), workers=1, together=2)
    assert sorted(len(task.parts) for task in alone) == [1] * 5
    run_all([shared], tmp_path / "shared")
    run_all(alone, tmp_path / "alone")
    texts = [science_text(RowStore(tmp_path / name).path("sbm")) for name in ("shared", "alone")]
    assert texts[0] == texts[1]
    assert len({row["released/val/loss"] for row in RowStore(tmp_path / "shared").read("sbm")}) > 9


@pytest.mark.parametrize(
    "settings",
    [
        {"x_steps": 1},
        {"backbone": "gcn"},
        {"mechanism": "lp"},
        {"learner": "forward"},
        {"hidden_dim": 8},
        {"max_epochs": 3},
        {"conditioning": "node"},
        {"x_eps": math.inf},
    ],
    ids=str,
)
def test_configurations_of_another_kind_train_apart(settings: dict[str, Any]) -> None:
    wanted = [(small(), (0,)), (small(**settings), (0,))]
    assert len(plan_tasks(wanted, CostModel(), workers=1)) == 2
    conditioned = [(small(conditioning="node", x_eps=x), (0,)) for x in (1.0, 2.0)]
    assert len(plan_tasks(conditioned, CostModel(), workers=1)) == 2
    members = [(configuration, 0) for configuration, _ in wanted]
    graph = load_dataset(small(), "data")
    with pytest.raises(ValueError, match="different kinds"):
        run_members(members, graph)


def test_every_worker_gets_a_task_before_tasks_are_shared() -> None:
    wanted = [(small(learning_rate=rate), (0, 1)) for rate in (0.1, 0.01, 0.001, 0.0001)]
    assert len(plan_tasks(wanted, CostModel(), workers=4)) == 4
    assert len(plan_tasks(wanted, CostModel(), workers=2)) == 2
    assert len(plan_tasks(wanted, CostModel(), workers=1)) == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_one_bad_configuration_does_not_take_its_batch_with_it(
    tmp_path: Path, workers: int
) -> None:
    """A budget that its mechanism refuses is found in the middle of a shared task."""
    bad = small(mechanism={"name": "mb", "num_samples": 3}, x_steps=2, y_steps=2, x_eps=5.0)
    object.__setattr__(bad, "y_eps", -1.0)  # past the checks of the settings
    good = small(mechanism={"name": "mb", "num_samples": 3}, x_steps=2, y_steps=2)
    shared = Task(good, (0, 1), ((bad, (0,)),))
    failures = run_all([shared, *tasks_of(5)], tmp_path, workers)
    assert [failure.configuration.y_eps for failure in failures] == [-1.0]
    assert stored(tmp_path) == {(good.seed, 0), (good.seed, 1), (5, 0), (5, 1)}


def test_a_graph_with_options_that_are_lists_can_be_swept(tmp_path: Path) -> None:
    dataset = {"name": "cliques", "target": "small_run.two_cliques", "tag": [1, {"a": 2}]}
    failures = run_all([Task(small(dataset=dataset), (0,))], tmp_path)
    assert [failure.details for failure in failures] == []
    assert len(RowStore(tmp_path).read("cliques")) == 1


def test_one_worker_a_core_is_the_default() -> None:
    assert Place(Path(), Path()).worker_count() >= 1
    assert Place(Path(), Path(), workers=7).worker_count() == 7


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
        events, place, parent = arguments
        sweep._worker.update(events=events, place=place, parent=parent)

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
        sweep, "_compute", lambda task, place, on_epoch: seeds.append(task.configuration.seed)
    )
    monkeypatch.setattr(sweep, "ProcessPoolExecutor", PoolOfThreads)
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
    assert "died" in describe_error(failures[0].error)
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


def test_real_workers_give_the_same_rows_even_if_one_dies(tmp_path: Path) -> None:
    dataset = {**SMALL_GRAPH, "target": "small_run.dies_once"}
    tasks = [Task(small(dataset={**dataset, "seed": seed}), (0, 1)) for seed in (0, 1, 2)]
    quiet = tmp_path / "quiet"
    quiet.mkdir()
    (quiet / "died").touch()
    assert run_all(tasks, quiet) == []
    assert run_all(tasks, tmp_path, workers=2) == []
    assert (tmp_path / "died").exists()  # it did die
    texts = [science_text(RowStore(folder).path("sbm")) for folder in (quiet, tmp_path)]
    assert texts[0] == texts[1]
    assert len(texts[0].splitlines()) == 1 + 6
