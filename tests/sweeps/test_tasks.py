import math
from pathlib import Path
from typing import Any

import pytest

from lpgnn.config import Configuration
from lpgnn.engine import run_members
from lpgnn.kernels import Backend
from lpgnn.learners import Drop
from lpgnn.privacy import MultiBit
from lpgnn.propagation import KProp, PreparedGraph
from lpgnn.rows import Requirements, RowStore
from lpgnn.sweeps import CostModel, Execution, Task, plan_tasks, run_tasks
from lpgnn.sweeps.tasks import RUNS_ON_CPU
from small_run import SMALL_GRAPH, small, stored_science

STEPS: dict[str, Any] = {"filter": KProp(steps=2), "learner": Drop(steps=2)}


def run_all(tasks: list[Task], folder: Path) -> None:
    execution = Execution(folder, folder, "cpu", workers=0)
    assert run_tasks(tasks, execution, costs=CostModel(), show_progress=False) == []


def test_missing_repeats_are_those_without_a_row(tmp_path: Path) -> None:
    store, configuration = RowStore(tmp_path), small()
    computation = configuration.computation
    assert Requirements().missing(computation, range(3), store) == (0, 1, 2)
    run_all([Task(((configuration, (1,)),))], tmp_path)
    assert Requirements().missing(computation, range(3), store) == (0, 2)
    assert Requirements(force=True).missing(computation, range(3), store) == (0, 1, 2)
    assert Requirements().missing(small(seed=1).computation, range(2), store) == (0, 1)


def test_a_row_without_the_metric_or_the_files_is_missing(tmp_path: Path) -> None:
    store, configuration = RowStore(tmp_path), small()
    computation = configuration.computation
    run_all([Task(((configuration, (0, 1)),))], tmp_path)
    for metric in ("acc", "macro_f1", "balanced_acc"):
        assert Requirements(metric=metric).missing(computation, range(2), store) == ()
    assert Requirements(metric="mine").missing(computation, range(2), store) == (0, 1)
    (row, _) = store.read("sbm")
    store.append("sbm", [row | {"paper/test/mine": "1", "released/test/mine": "2"}])
    assert Requirements(metric="mine").missing(computation, range(2), store) == (1,)
    # As the committed rows are, which are older than these metrics.
    store.append("sbm", [row | {"paper/test/macro_f1": "", "released/test/macro_f1": ""}])
    assert Requirements(metric="macro_f1").missing(computation, range(2), store) == (0,)
    assert Requirements().missing(computation, range(2), store) == ()
    assert Requirements(save=("history",)).missing(computation, range(2), store) == (0, 1)
    path = store.run_folder(configuration.identity, 1) / "history.csv"
    path.parent.mkdir(parents=True)
    path.touch()
    assert Requirements(save=("history",)).missing(computation, range(2), store) == (0,)
    assert Requirements(save=("history", "weights")).missing(computation, range(2), store) == (0, 1)


def test_repeats_of_one_configuration_are_cut_into_tasks_without_changing_rows(
    tmp_path: Path,
) -> None:
    wanted = [(small(), tuple(range(5)))]
    whole = plan_tasks(wanted, CostModel(), workers=1)
    cut = plan_tasks(wanted, CostModel(), workers=3)
    assert [len(whole), len(cut)] == [1, 3]
    run_all(whole, tmp_path / "whole")
    run_all(cut, tmp_path / "cut")
    rows = stored_science(tmp_path / "whole")
    assert len(rows) == 5
    assert stored_science(tmp_path / "cut") == rows


SHARED: list[dict[str, Any]] = [
    {},
    {"learning_rate": 0.003},
    {"weight_decay": 0.1, "dropout": 0.0},
    {"x_eps": 5.0, "y_eps": 2.0},
    {"seed": 4},
]


@pytest.mark.parametrize("conditioning", ["none", "node"])
def test_configurations_that_differ_in_rates_and_budgets_share_a_task_and_keep_their_rows(
    tmp_path: Path, conditioning: Any
) -> None:
    steps = STEPS | {"filter": KProp(steps=2, conditioning=conditioning)}
    wanted = [(small(**steps, **settings), (0, 1)) for settings in SHARED]
    (shared,) = plan_tasks(wanted, CostModel(), workers=1, together=10)
    assert list(shared.parts) == wanted
    assert shared.epochs == 10 * small().max_epochs
    alone = plan_tasks(wanted, CostModel(), workers=1, together=2)
    assert sorted(len(task.parts) for task in alone) == [1] * 5
    run_all([shared], tmp_path / "shared")
    run_all(alone, tmp_path / "alone")
    rows = stored_science(tmp_path / "shared")
    assert stored_science(tmp_path / "alone") == rows
    assert len({row["released/val/loss"] for row in rows}) == 10


OTHER_KINDS: list[dict[str, Any]] = [
    {"filter": KProp(steps=1)},
    {"filter": KProp(steps=2, aggregator="mean")},
    {"filter": KProp(steps=2, conditioning="node")},
    {"learner": Drop(steps=3)},
    {"learner": "forward"},
    {"backbone": "gcn"},
    {"mechanism": "lp"},
    {"mechanism": MultiBit(num_samples=2)},
    {"label_mechanism": {"_target_": "small_run.OwnResponse"}},
    {"feature": "blank"},
    {"hidden_dim": 8},
    {"max_epochs": 3},
    {"x_eps": math.inf},
    {"y_eps": math.inf},
    {"dataset": SMALL_GRAPH.replace(seed=1)},
]


@pytest.mark.parametrize("settings", OTHER_KINDS, ids=str)
def test_configurations_of_another_kind_train_apart(settings: dict[str, Any]) -> None:
    one, other = small(**STEPS), small(**(STEPS | settings))
    assert len(plan_tasks([(one, (0,)), (other, (0,))], CostModel(), workers=1)) == 2
    if "dataset" in settings:
        return
    graph = SMALL_GRAPH.generate()
    prepared = PreparedGraph(graph.topology, Backend.choose("cpu"))
    with pytest.raises(ValueError, match="different kinds"):
        run_members([(one, 0), (other, 0)], graph, prepared)


def test_a_module_with_a_dropout_of_its_own_does_not_share_it() -> None:
    def kinds(backbone: str) -> int:
        return len({small(backbone=backbone, dropout=d).batch_kind for d in (0.1, 0.2)})

    assert kinds("sage") == 1
    assert kinds("pyg") == 2


def test_every_worker_gets_a_task_before_tasks_are_shared() -> None:
    wanted = [(small(learning_rate=rate), (0, 1)) for rate in (0.1, 0.01, 0.001, 0.0001)]
    assert len(plan_tasks(wanted, CostModel(), workers=4)) == 4
    assert len(plan_tasks(wanted, CostModel(), workers=2)) == 2
    assert len(plan_tasks(wanted, CostModel(), workers=1)) == 1


def test_tasks_do_not_grow_beyond_what_runs_together() -> None:
    rates = [0.01 / (1 + i) for i in range(12)]
    wanted = [(small(learning_rate=rate), (0, 1)) for rate in rates]
    tasks = plan_tasks(wanted, CostModel(), workers=1)
    assert [len(task.members) for task in tasks] == [RUNS_ON_CPU, RUNS_ON_CPU, 4]
    members = [member for task in tasks for member in task.members]
    assert sorted(members, key=key) == sorted(
        [(configuration, r) for configuration, repeats in wanted for r in repeats], key=key
    )


def key(member: tuple[Configuration, int]) -> tuple[float, int]:
    return member[0].learning_rate, member[1]


def test_one_worker_per_core_is_the_default() -> None:
    import os

    expected = len(os.sched_getaffinity(0))
    assert Execution(Path(), Path()).worker_count() == expected
    assert Execution(Path(), Path(), workers=7).worker_count() == 7
