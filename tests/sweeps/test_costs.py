import dataclasses
from typing import Any

import pytest

from lpgnn.config import Configuration, Settings
from lpgnn.data import BlockModel
from lpgnn.learners import Drop
from lpgnn.propagation import KProp
from lpgnn.rows import format_value, package_version
from lpgnn.sweeps import CostModel, Task, plan_tasks
from lpgnn.sweeps.costs import FITTED, fit, work
from small_run import SMALL_GRAPH


def resolved(**settings: Any) -> Configuration:
    return Settings(**settings).resolve(fetch=False)


def seconds(model: CostModel, **settings: Any) -> float:
    """Of an epoch."""
    return model.epoch_seconds(resolved(**settings))


def row(duration: float, status: str = "ok", **settings: Any) -> dict[str, str]:
    found = {**resolved(**settings).columns(), "status": status, "duration": duration}
    found["version"] = package_version()
    return {name: format_value(value) for name, value in found.items()}


def test_measured_runs_win_over_the_formula() -> None:
    formula = CostModel()
    measured = CostModel([row(50.0), row(100.0), row(1000.0)])
    # The median of three runs of 500 epochs.
    assert seconds(measured) == pytest.approx(100 / 500)
    assert seconds(measured) != seconds(formula)


OTHERS: list[dict[str, Any]] = [
    {"dataset": "cora"},
    {"dataset": SMALL_GRAPH},
    {"backbone": "gat"},
    {"mechanism": "lp"},
    {"feature": "rnd"},
    {"filter": KProp(steps=16)},
    {"learner": Drop(steps=2)},
    {"learner": "residual"},
    {"hidden_dim": 8},
]


@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_runs_that_differ_in_what_costs_are_not_measured(other: dict[str, Any]) -> None:
    assert seconds(CostModel([row(1000.0)]), **other) == seconds(CostModel(), **other)


def test_runs_that_differ_in_what_costs_nothing_count_as_measured() -> None:
    measured = CostModel([row(1000.0)])
    for other in ({"seed": 3}, {"learning_rate": 0.5}, {"max_epochs": 7}, {"dropout": 0.1}):
        assert seconds(measured, **other) == pytest.approx(2.0), other


def test_failed_runs_are_no_measure() -> None:
    assert CostModel([row(1e6, status="failed: loss is not finite at epoch 1")]).measured == {}


def test_what_an_earlier_version_took_is_no_measure() -> None:
    assert CostModel([row(1000.0) | {"version": "0.0.1"}]).measured == {}


def test_a_row_without_a_duration_is_no_measure() -> None:
    assert CostModel([row(1000.0) | {"duration": ""}]).measured == {}


def test_signs_cost_less_than_other_dense_reports() -> None:
    model, steps = CostModel(), KProp(steps=4)
    signs, laplace = (
        seconds(model, dataset="facebook", mechanism=m, filter=steps) for m in ("1b", "lp")
    )
    assert signs < laplace / 2
    measured = CostModel([row(1000.0, mechanism="1b")])
    assert seconds(measured, mechanism="lp") == seconds(model, mechanism="lp")


@pytest.mark.parametrize("mechanism", ["1b", "lp", "ag"])
@pytest.mark.parametrize("dataset", ["cora", "pubmed", "facebook", "lastfm", "sbm"])
def test_dense_reports_cost_more_than_sparse_ones(mechanism: str, dataset: str) -> None:
    model = CostModel()
    dense = seconds(model, dataset=dataset, mechanism=mechanism)
    assert dense > seconds(model, dataset=dataset, mechanism="mb")


def test_more_steps_cost_more() -> None:
    model = CostModel()
    for settings in (
        [{"filter": KProp(steps=k)} for k in (1, 2, 4, 8, 16)],
        [{"learner": Drop(steps=k)} for k in (1, 2, 4, 8, 16)],
    ):
        costs = [seconds(model, **one) for one in settings]
        assert costs == sorted(set(costs))


def test_larger_graphs_and_attention_cost_more() -> None:
    model = CostModel()
    steps: dict[str, Any] = {"filter": KProp(steps=4), "learner": Drop(steps=4)}
    by_graph = [seconds(model, dataset=d, **steps) for d in ("cora", "pubmed", "facebook")]
    assert by_graph == sorted(set(by_graph))
    assert seconds(model, backbone="gat") > seconds(model)


@pytest.mark.parametrize(
    ("dataset", "measured"), [("cora", 0.44), ("pubmed", 1.0), ("facebook", 4.2)]
)
def test_asking_in_rounds_costs_about_what_it_did(dataset: str, measured: float) -> None:
    model = CostModel()
    asking = resolved(dataset=dataset, learner="two_round")
    found = model.epoch_seconds(asking) * asking.max_epochs
    assert measured / 3 < found < measured * 3
    assert found > seconds(model, dataset=dataset, learner="label_propagation")


def test_a_network_of_ones_own_costs_as_much_as_a_dense_one() -> None:
    model = CostModel()
    assert seconds(model, backbone="pyg") > seconds(model, backbone="sage")


def test_a_learner_without_a_network_costs_its_products() -> None:
    units = work(resolved(dataset="cora", learner="label_propagation"))
    products = 7 * 6 * 64
    assert units == {"base": 1.0, "sparse": 10556.0 * products, "nodes": 2708.0 * products}


@pytest.mark.parametrize(
    ("dataset", "measured"), [("cora", 0.13), ("pubmed", 0.455), ("facebook", 0.5)]
)
def test_labels_only_cost_about_what_they_did(dataset: str, measured: float) -> None:
    found = seconds(CostModel(), dataset=dataset, learner="label_propagation")
    assert measured / 3 < found < measured * 3


def test_a_task_costs_its_epochs_times_its_repeats() -> None:
    model, configuration = CostModel(), resolved(max_epochs=100)
    one = model.seconds(Task(((configuration, (0,)),)))
    assert model.seconds(Task(((configuration, (0, 1, 7)),))) == pytest.approx(3 * one)
    longer = dataclasses.replace(configuration, max_epochs=200)
    assert model.seconds(Task(((longer, (0,)),))) == pytest.approx(2 * one)
    both = Task(((configuration, (0, 1)), (longer, (0,))))
    assert model.seconds(both) == pytest.approx(4 * one)


def test_costly_tasks_come_first_and_none_is_lost() -> None:
    wanted = [(resolved(dataset=d), (0, 1, 2)) for d in ("cora", "facebook", "pubmed")]
    model = CostModel()
    tasks = plan_tasks(wanted, model, workers=2)
    costs = [model.seconds(task) for task in tasks]
    assert costs == sorted(costs, reverse=True)
    assert tasks[0].configuration.dataset.name == "facebook"
    found = {(c.dataset.name, repeats) for task in tasks for c, repeats in task.parts}
    assert found == {(c.dataset.name, repeats) for c, repeats in wanted}


def test_repeats_are_shared_out_when_there_are_too_few_configurations() -> None:
    configuration = resolved()
    tasks = plan_tasks([(configuration, tuple(range(10)))], CostModel(), workers=4)
    assert len(tasks) == 4
    assert sorted(r for task in tasks for _, r in task.members) == list(range(10))
    assert plan_tasks([(configuration, ())], CostModel(), workers=4) == []


def test_sizes_are_those_of_the_graph() -> None:
    """Of Pubmed, with a backbone of one projection, hidden 16 and no steps."""
    configuration = resolved(
        dataset="pubmed", backbone="gcn", filter=KProp(steps=2), learner=Drop(steps=1)
    )
    units = work(configuration)
    assert units["sparse"] == 88_648 * (2 * 16 + 3 * 3 + 2 * 16 * 2 + 2 * 3)
    assert units["nodes"] == 19_717 * (16 + 3)
    assert (units["base"], units["dense"], units["attention"]) == (1.0, 0.0, 0.0)
    laplace = work(dataclasses.replace(configuration, mechanism=resolved(mechanism="lp").mechanism))
    assert laplace["dense"] == 2 * 19_717 * 500 * 16
    assert laplace["sparse"] == 88_648 * (2 * 16 + 3 * 3 + 2 * 3)
    signs = work(dataclasses.replace(configuration, mechanism=resolved(mechanism="1b").mechanism))
    assert signs["dense"] == pytest.approx(laplace["dense"] / 3)
    gat = work(resolved(dataset="pubmed", backbone="gat"))
    assert gat["attention"] == (88_648 + 19_717) * 5


@pytest.mark.parametrize("mechanism", ["mb", "pm", "1b"])
def test_few_features_cost_products_instead_of_steps(mechanism: str) -> None:
    """On tolokers (d = 10) the propagated reports are stored, whatever was sent."""
    few, laplace = (
        resolved(dataset="tolokers", filter=KProp(steps=2), mechanism=m) for m in (mechanism, "lp")
    )
    assert few.holds_matrix
    assert work(few) == work(laplace)
    # Without steps there is nothing to spare.
    assert work(resolved(dataset="tolokers", filter=KProp(steps=0)))["dense"] == 0


def test_the_formula_grows_with_an_embedded_graph() -> None:
    model = CostModel()
    small, large = (
        BlockModel(num_nodes=n, num_features=50, features_per_node=5.0) for n in (20_000, 200_000)
    )
    # Beyond what every epoch costs, ten times the graph is ten times the work.
    base = FITTED["base"]
    ratio = (seconds(model, dataset=large) - base) / (seconds(model, dataset=small) - base)
    assert ratio == pytest.approx(10, rel=0.1)


def test_a_fit_finds_the_constants_that_made_the_times() -> None:
    constants = dict(zip(FITTED, (1e-3, 3e-10, 2e-8, 5e-11, 1e-8), strict=True))
    kinds = [
        resolved(dataset=d, backbone=b, mechanism=m, filter=KProp(steps=k))
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
