import dataclasses
from typing import Any

import pytest

from lpgnn.config import Settings
from lpgnn.results.costs import FITTED, CostModel, GraphSize, fit, graph_size, work
from lpgnn.results.store import format_value, package_version
from lpgnn.sweep import Task, plan_tasks


def columns(**settings: Any) -> dict[str, Any]:
    return Settings(**settings).resolve().columns()


def row(duration: float, status: str = "ok", **settings: Any) -> dict[str, str]:
    found = {**columns(**settings), "status": status, "duration": duration}
    found["version"] = package_version()
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


def test_what_an_earlier_version_took_is_no_measure() -> None:
    assert CostModel([row(1000.0) | {"version": "0.0.1"}]).measured == {}


def test_signs_cost_less_than_other_dense_reports() -> None:
    model = CostModel()
    signs, laplace = (columns(dataset="facebook", mechanism=m, x_steps=4) for m in ("1b", "lp"))
    assert model.epoch_seconds(signs) < model.epoch_seconds(laplace) / 2
    assert CostModel([row(1000.0, mechanism="1b")]).epoch_seconds(
        columns(mechanism="lp")
    ) == model.epoch_seconds(columns(mechanism="lp"))


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


def test_sizes_come_from_the_table_or_the_options() -> None:
    assert graph_size(columns(dataset="pubmed")) == GraphSize(19717, 88648, 500, 3)
    own = {"name": "sbm", "num_nodes": 10_000, "average_degree": 10.0, "num_classes": 5}
    assert graph_size(columns(dataset=own)) == GraphSize(10_000, 100_000, 1433, 5)
    assert graph_size(row(1.0, dataset=own)) == GraphSize(10_000, 100_000, 1433, 5)
    bad = {"name": "sbm", "num_nodes": "many"}
    assert graph_size(columns(dataset=bad)) == graph_size(columns())


def test_the_formula_grows_with_an_embedded_graph() -> None:
    model = CostModel()
    small, large = ({"name": "sbm", "num_nodes": n} for n in (100_000, 1_000_000))
    ratio = model.epoch_seconds(columns(dataset=large)) / model.epoch_seconds(
        columns(dataset=small)
    )
    assert ratio == pytest.approx(10, rel=0.1)


def test_a_fit_finds_the_constants_that_made_the_times() -> None:
    constants = dict(zip(FITTED, (1e-3, 3e-10, 2e-8, 5e-11, 1e-8), strict=True))
    kinds = [
        columns(dataset=d, backbone=b, mechanism=m, x_steps=k)
        for d in ("cora", "pubmed", "facebook")
        for b in ("gcn", "sage", "gat")
        for m in ("mb", "lp")
        for k in (1, 8)
    ]
    samples = [(c, sum(constants[n] * amount for n, amount in work(c).items())) for c in kinds]
    # One absurd time among three of a kind is outvoted.
    found = fit([*samples, *samples, (kinds[0], 1e3)])
    assert found.constants == pytest.approx(constants, rel=1e-4)
    assert found.error == pytest.approx(0, abs=1e-4)
    assert found.kinds == len(kinds)
