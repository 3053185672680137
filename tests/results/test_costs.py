import dataclasses
from typing import Any

import pytest

from lpgnn.config import Settings
from lpgnn.results.costs import CostModel
from lpgnn.results.store import format_value
from lpgnn.sweep import Task, plan_tasks


def columns(**settings: Any) -> dict[str, Any]:
    return Settings(**settings).resolve().columns()


def row(duration: float, status: str = "ok", **settings: Any) -> dict[str, str]:
    found = {**columns(**settings), "status": status, "duration": duration}
    return {name: format_value(value) for name, value in found.items()}


def test_measured_runs_win_over_the_formula() -> None:
    formula = CostModel()
    measured = CostModel([row(50.0), row(100.0), row(1000.0)])
    # The median of three runs of 500 epochs.
    assert measured.epoch_seconds(columns()) == pytest.approx(100 / 500)
    assert measured.epoch_seconds(columns()) != formula.epoch_seconds(columns())


def test_runs_that_differ_in_what_costs_are_not_measured() -> None:
    formula, measured = CostModel(), CostModel([row(1000.0)])
    for other in (
        {"dataset": "cora"},
        {"dataset": {"name": "sbm", "num_nodes": 300}},
        {"backbone": "gat"},
        {"mechanism": "lp"},
        {"feature": "rnd"},
        {"x_steps": 16},
        {"y_steps": 2},
        {"hidden_dim": 8},
    ):
        told = columns(**other)
        assert measured.epoch_seconds(told) == formula.epoch_seconds(told), other


def test_runs_that_differ_in_what_costs_nothing_count_as_measured() -> None:
    measured = CostModel([row(1000.0)])
    for other in ({"seed": 3}, {"learning_rate": 0.5}, {"max_epochs": 7}, {"dropout": 0.1}):
        assert measured.epoch_seconds(columns(**other)) == pytest.approx(2.0), other


def test_failed_runs_are_no_measure() -> None:
    assert CostModel([row(1e6, status="failed: loss is not finite at epoch 1")]).measured == {}


@pytest.mark.parametrize("mechanism", ["1b", "lp", "ag"])
@pytest.mark.parametrize("dataset", ["cora", "pubmed", "facebook", "lastfm", "sbm"])
def test_dense_reports_cost_more_than_sparse_ones(mechanism: str, dataset: str) -> None:
    model = CostModel()
    dense = model.epoch_seconds(columns(dataset=dataset, mechanism=mechanism))
    assert dense > model.epoch_seconds(columns(dataset=dataset, mechanism="mb"))


def test_more_steps_cost_more() -> None:
    model = CostModel()
    for name in ("x_steps", "y_steps"):
        costs = [model.epoch_seconds(columns(**{name: k})) for k in (1, 2, 4, 8, 16)]
        assert costs == sorted(set(costs)), name


def test_larger_graphs_and_attention_cost_more() -> None:
    model = CostModel()
    by_graph = [
        model.epoch_seconds(columns(dataset=d, x_steps=4, y_steps=4))
        for d in ("cora", "pubmed", "facebook")
    ]
    assert by_graph == sorted(set(by_graph))
    assert model.epoch_seconds(columns(backbone="gat")) > model.epoch_seconds(columns())


def test_a_task_costs_its_epochs_times_its_repeats() -> None:
    model = CostModel()
    configuration = Settings(max_epochs=100).resolve()
    one = model.seconds(Task(configuration, (0,)))
    assert model.seconds(Task(configuration, (0, 1, 7))) == pytest.approx(3 * one)
    longer = dataclasses.replace(configuration, max_epochs=200)
    assert model.seconds(Task(longer, (0,))) == pytest.approx(2 * one)


def test_costly_tasks_come_first_and_none_is_lost() -> None:
    work = [(Settings(dataset=d).resolve(), (0, 1, 2)) for d in ("cora", "facebook", "pubmed")]
    model = CostModel()
    tasks = plan_tasks(work, model, workers=2)
    costs = [model.seconds(task) for task in tasks]
    assert costs == sorted(costs, reverse=True)
    assert tasks[0].configuration.dataset.name == "facebook"
    assert {(t.configuration, t.repeats) for t in tasks} == set(work)


def test_repeats_are_shared_out_when_there_are_too_few_configurations() -> None:
    configuration = Settings().resolve()
    tasks = plan_tasks([(configuration, tuple(range(10)))], CostModel(), workers=4)
    assert len(tasks) == 4
    assert sorted(r for task in tasks for r in task.repeats) == list(range(10))
    assert plan_tasks([(configuration, ())], CostModel(), workers=4) == []
