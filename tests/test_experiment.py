import dataclasses
import importlib
import itertools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import models.pyg  # noqa: F401  # past the warnings of torch-geometric's import
from lpgnn import experiment
from lpgnn.config import Settings
from lpgnn.data import BlockModel, Graph
from lpgnn.data.graph import Topology
from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError
from lpgnn.experiment import (
    build_backbone,
    build_mechanism,
    collect_repeat,
    load_dataset,
    pick_device,
    run_repeats,
    split_of,
    total_budget,
)
from lpgnn.privacy import MECHANISMS, Collected
from lpgnn.propagation import Operator, cache_order, kprop_operator
from lpgnn.results import PROVENANCE
from lpgnn.training import SELECTIONS, Hyperparameters, Trained, label_scores, train
from propagation.graphs import adjacency, dense_gcn, dense_mean
from small_run import SMALL_GRAPH, RoundedNoise, science, small, two_cliques


@pytest.fixture(autouse=True)
def _restore_arithmetic() -> Iterator[None]:
    """Training flushes subnormal numbers to zero for its process: not for the next tests."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.set_flush_denormal(False)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return load_dataset(small(), "data")


@pytest.fixture(scope="module")
def ten_rows(graph: Graph) -> list[dict[str, Any]]:
    return run_repeats(small(), graph, range(10))


def accuracies(rows: list[dict[str, Any]]) -> list[float]:
    return [row["paper/test/acc"] for row in rows]


def test_the_same_configuration_gives_bitwise_the_same_rows(
    graph: Graph, ten_rows: list[dict[str, Any]]
) -> None:
    again = run_repeats(small(), load_dataset(small(), "data"), range(10))
    assert science(again) == science(ten_rows)
    assert [row["repeat"] for row in again] == list(range(10))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"backbone": "gcn"},
        {"backbone": "gat", "mechanism": "lp"},
        {"mechanism": "1b", "learner": "forward"},
        {"mechanism": "ag", "y_eps": math.inf},
        {"x_eps": math.inf},
        {"feature": "rnd", "aggregator": "mean"},
        {"feature": "ohd", "split": "fixed"},
    ],
    ids=str,
)
def test_a_repeat_alone_gives_its_row_within_many(graph: Graph, settings: dict[str, Any]) -> None:
    configuration = small(**settings)
    together = run_repeats(configuration, graph, range(8))
    (alone,) = run_repeats(configuration, graph, [7])
    assert science([alone]) == science(together[7:])
    assert len(alone) > 30


def test_batches_of_any_size_give_the_same_rows(
    graph: Graph, ten_rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment, "_runs_together", lambda *_: 3)
    stored: list[list[int]] = []
    epochs: list[int] = []
    rows = run_repeats(
        small(),
        graph,
        range(10),
        on_epoch=epochs.append,
        on_rows=lambda finished: stored.append([row["repeat"] for row in finished]),
    )
    assert science(rows) == science(ten_rows)
    assert stored == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]  # told as soon as they are there
    assert epochs == [3] * 15 + [1] * 5


def test_repeats_and_seeds_differ(graph: Graph, ten_rows: list[dict[str, Any]]) -> None:
    losses = [row["paper/val/loss"] for row in ten_rows]
    assert len(set(losses)) == 10
    other = run_repeats(small(seed=1), graph, range(10))
    assert not set(losses) & {row["paper/val/loss"] for row in other}
    assert {row["id"] for row in other} != {row["id"] for row in ten_rows}


def test_a_row_says_what_was_computed(graph: Graph, ten_rows: list[dict[str, Any]]) -> None:
    configuration, row = small(), ten_rows[3]
    assert row["id"] == configuration.identity
    assert row["repeat"] == 3
    assert row["status"] == "ok"
    assert row["fingerprint"] == graph.fingerprint
    for name, value in configuration.columns().items():
        assert row[name] == value
    for rule in SELECTIONS:
        assert 1 <= row[f"{rule}/epoch"] <= 5
        assert 0 <= row[f"{rule}/test/acc"] <= 100
        for part in ("train", "val"):
            assert math.isfinite(row[f"{rule}/{part}/loss"])
            assert 0 <= row[f"{rule}/{part}/acc"] <= 100
    assert set(PROVENANCE) <= set(row)
    assert row["device"] == "cpu"


def test_training_learns_something(graph: Graph) -> None:
    clean = small(x_eps=math.inf, y_eps=math.inf, max_epochs=60)
    assert min(accuracies(run_repeats(clean, graph, range(2)))) > 60  # four classes


VARIANTS: list[dict[str, Any]] = [
    {"mechanism": "lp"},
    {"x_eps": 3.0, "y_eps": math.inf},
    {"backbone": "gat", "learner": "cross_entropy"},
    {"feature": "ones", "hidden_dim": 4},
]


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_configurations_share_their_splits(graph: Graph, settings: dict[str, Any]) -> None:
    for repeat in range(3):
        mine = split_of(small(**settings), graph, repeat)
        usual = split_of(small(), graph, repeat)
        for part in ("train", "val", "test"):
            assert torch.equal(getattr(mine, part), getattr(usual, part))


def test_repeats_have_splits_of_their_own_unless_it_is_fixed(graph: Graph) -> None:
    drawn = [split_of(small(), graph, repeat).test for repeat in range(4)]
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(drawn, 2))
    for repeat in range(4):
        fixed = split_of(small(split="fixed"), graph, repeat).test
        assert torch.equal(fixed, drawn[0])
    assert not torch.equal(split_of(small(seed=1), graph, 0).test, drawn[0])
    assert int(drawn[0].sum()) == 300 - 150 - 75


def test_a_fixed_split_still_draws_noise_for_each_repeat(graph: Graph) -> None:
    configuration = small(split="fixed")
    split = split_of(configuration, graph, 0)
    labels = [collect_repeat(configuration, graph, split, repeat).labels for repeat in range(2)]
    assert not torch.equal(*labels)


def reorder_module() -> ModuleType:
    """The module, which its package hides behind the function of the same name."""
    return importlib.import_module("lpgnn.propagation.reorder")


def test_another_numbering_of_the_nodes_changes_nothing_but_rounding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Without dropout: its masks are drawn node by node, in the order of the nodes.
    dataset = {**SMALL_GRAPH, "num_nodes": 1200}
    configuration = small(dataset=dataset, max_epochs=40, dropout=0.0, x_eps=3.0)
    large = load_dataset(configuration, "data")
    usual = run_repeats(configuration, large, range(3))
    monkeypatch.setattr(reorder_module(), "_SMALL", 1)
    assert not torch.equal(cache_order(large.topology), torch.arange(1200))
    reordered = run_repeats(configuration, large, range(3))
    for a, b in zip(usual, reordered, strict=True):
        for rule in SELECTIONS:
            assert b[f"{rule}/test/acc"] == pytest.approx(a[f"{rule}/test/acc"], abs=0.5)
            assert b[f"{rule}/val/loss"] == pytest.approx(a[f"{rule}/val/loss"], rel=1e-3)
    assert max(accuracies(usual)) > 50  # beyond guessing: a wrong order would be noticed


def test_a_numbering_that_forgets_the_labels_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test above would see if rows came back in the wrong order."""
    dataset = {**SMALL_GRAPH, "num_nodes": 1200}
    configuration = small(dataset=dataset, max_epochs=40, dropout=0.0, x_eps=3.0)
    large = load_dataset(configuration, "data")
    usual = run_repeats(configuration, large, [0])
    make_row: Callable[..., dict[str, Any]] = experiment.make_row

    def forgetful(*args: Any) -> dict[str, Any]:
        as_drawn = torch.arange(1200)
        return make_row(*args[:4], as_drawn, *args[5:])

    monkeypatch.setattr(reorder_module(), "_SMALL", 1)
    monkeypatch.setattr(experiment, "make_row", forgetful)
    wrong = run_repeats(configuration, large, [0])
    assert abs(accuracies(wrong)[0] - accuracies(usual)[0]) > 5


def test_a_mechanism_of_the_users_own(graph: Graph) -> None:
    mine = {"name": "rounded", "target": "small_run.RoundedNoise", "size": 0.01}
    configuration = small(mechanism=mine, y_eps=math.inf, max_epochs=60)
    assert build_mechanism(configuration, 7) == RoundedNoise(1.0, 7, size=0.01)
    assert graph.features is not None
    clean = graph.features.to_dense()
    split = split_of(configuration, graph, 0)
    sent = collect_repeat(configuration, graph, split, 0).features.rectified()
    assert float((sent - clean).std()) == pytest.approx(0.01, rel=0.05)
    loud = small(mechanism={**mine, "size": 100.0}, y_eps=math.inf)
    assert loud.identity != configuration.identity
    (row,) = run_repeats(configuration, graph, [0])
    assert row["mechanism"] == "rounded"
    assert row["paper/test/acc"] > 60


def test_a_graph_of_the_users_own(tmp_path: Path) -> None:
    dataset = {"name": "cliques", "target": "small_run.two_cliques", "size": 30, "tag": [1, "a"]}
    configuration = small(dataset=dataset, x_eps=math.inf, y_eps=math.inf, max_epochs=30)
    cliques = load_dataset(configuration, tmp_path)
    assert cliques.fingerprint == two_cliques(tmp_path, size=30).fingerprint
    assert accuracies(run_repeats(configuration, cliques, range(2))) == [100.0, 100.0]


@pytest.mark.parametrize("options", [{}, {"act": "tanh"}], ids=str)
def test_a_backbone_of_torch_geometric(graph: Graph, options: dict[str, Any]) -> None:
    backbone = {"name": "pyg", "target": "torch_geometric.nn.models.GCN", "options": options}
    configuration = small(backbone=backbone, x_eps=math.inf, y_eps=math.inf, max_epochs=40)
    rows = run_repeats(configuration, graph, range(2))
    (alone,) = run_repeats(configuration, graph, [1])
    assert science([alone]) == science(rows[1:])
    assert min(accuracies(rows)) > 50
    assert configuration.identity != small(x_eps=math.inf, y_eps=math.inf, max_epochs=40).identity


def test_a_loss_that_is_no_number_marks_the_row_failed(graph: Graph) -> None:
    rows = run_repeats(small(learning_rate=1e30, max_epochs=4), graph, range(2))
    for row in rows:
        assert row["status"].startswith("failed: ")
        epoch = int(row["status"].rsplit(" ", 1)[1])
        assert 1 <= epoch <= 4
        assert math.isnan(row["paper/test/acc"])
        assert math.isnan(row["released/test/acc"])


def test_one_failed_repeat_does_not_touch_its_neighbours(
    graph: Graph, ten_rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = Hyperparameters
    rates = iter([0.01, 1e30, 0.01])
    monkeypatch.setattr(
        experiment, "Hyperparameters", lambda _, wd, dropout: usual(next(rates), wd, dropout)
    )
    rows = run_repeats(small(), graph, range(3))
    assert [row["status"] == "ok" for row in rows] == [True, False, True]
    assert science([rows[0], rows[2]]) == science([ten_rows[0], ten_rows[2]])


def test_a_class_absent_from_a_split_is_refused() -> None:
    labels = torch.zeros(300, dtype=torch.int64)
    labels[7] = 1  # one node of class 1: it cannot be in all three parts
    small_graph = BlockModel(num_nodes=300, num_classes=4, num_features=90).generate()
    lonely = dataclasses.replace(small_graph, labels=labels, num_classes=2)
    with pytest.raises(InputError, match="class 1 does not"):
        run_repeats(small(), lonely, [0])


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"dataset": "no_graph"}, "dataset"),
        ({"dataset": {"name": "sbm", "colour": 3}}, "dataset"),
        ({"dataset": {"name": "sbm", "num_nodes": "many"}}, "dataset.num_nodes"),
        ({"dataset": {"name": "sbm", "num_nodes": 300.5}}, "dataset.num_nodes"),
        ({"dataset": {"name": "sbm", "num_nodes": 3}}, "dataset.num_nodes"),
        ({"dataset": {"name": "sbm", "homophily": None}}, "dataset.homophily"),
        ({"dataset": {"name": "sbm", "seed": "a"}}, "dataset.seed"),
        ({"dataset": {"name": "x", "target": "nothing"}}, "dataset.target"),
        ({"dataset": {"name": "x", "target": "small_run.nothing"}}, "dataset.target"),
        ({"dataset": {"name": "x", "target": "no.such.module"}}, "dataset.target"),
        ({"dataset": {"name": "x", "target": 3}}, "dataset.target"),
        ({"dataset": {"name": "x", "target": "small_run.SMALL_GRAPH"}}, "dataset.target"),
        ({"dataset": {"name": "x", "target": "small_run.no_graph"}}, "dataset.target"),
        ({"dataset": {"name": "cora", "colour": 3}}, "dataset"),
    ],
    ids=str,
)
def test_graphs_that_cannot_be_had(
    settings: dict[str, Any], setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lpgnn.data.registry.RawSource.fetch", lambda *_: None)  # no network
    with pytest.raises(InputError) as caught:
        load_dataset(Settings(**settings).resolve(), tmp_path)
    assert caught.value.setting in (setting, "dataset")
    assert "\n" not in str(caught.value)


def mechanism_of(settings: dict[str, Any]) -> object:
    return build_mechanism(small(**settings), 10)


@pytest.mark.parametrize(
    "mechanism",
    [
        "no_mechanism",
        {"name": "mb", "colour": 3},
        {"name": "mb", "num_samples": 11},
        {"name": "mb", "num_samples": "many"},
        {"name": "mb", "num_samples": 1.5},
        {"name": "ag", "delta": 0},
        {"name": "ag", "delta": "small"},
        {"name": "x", "target": "small_run.nothing"},
        {"name": "x", "target": "small_run.SMALL_GRAPH"},
    ],
    ids=str,
)
def test_mechanisms_that_cannot_be_had(mechanism: Any) -> None:
    with pytest.raises(InputError) as caught:
        mechanism_of({"mechanism": mechanism})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "backbone",
    [
        "no_backbone",
        {"name": "sage", "colour": 3},
        {"name": "gat", "heads": 0},
        {"name": "gat", "heads": "many"},
        {"name": "x", "target": "torch_geometric.nn.models.Nothing"},
        {"name": "pyg", "target": "torch_geometric.nn.models.GIN", "options": {"colour": 3}},
        {"name": "pyg", "target": "torch_geometric.nn.models.GIN", "options": 3},
        {"name": "pyg", "target": "small_run.SMALL_GRAPH"},
    ],
    ids=str,
)
def test_backbones_that_cannot_be_had(backbone: Any, graph: Graph) -> None:
    configuration = small(backbone=backbone)
    collected = collect_repeat(configuration, graph, split_of(configuration, graph, 0), 0)
    with pytest.raises(InputError) as caught:
        build_backbone(configuration, collected, torch.device("cpu"))
    assert caught.value.setting.partition(".")[0] == "backbone"
    assert "\n" not in str(caught.value)


def test_devices_are_checked() -> None:
    assert pick_device("cpu") == torch.device("cpu")
    assert pick_device("auto").type in ("cpu", "cuda")
    for name in ("gpu", "cpu:x", ""):
        with pytest.raises(InputError, match="device"):
            pick_device(name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="no usable GPU"):
        pick_device("cuda")


def test_the_total_budget_is_the_sum_of_what_is_spent() -> None:
    assert total_budget(small(x_eps=0.5, y_eps=2.0)) == 2.5
    assert total_budget(small(x_eps=math.inf, y_eps=2.0)) == 2.0
    assert total_budget(small(feature="ones", x_eps=1.0, y_eps=2.0)) == 2.0
    assert total_budget(small(x_eps=math.inf, y_eps=math.inf)) == 0.0


def test_what_is_not_perturbed_has_no_mechanism() -> None:
    assert build_mechanism(small(x_eps=math.inf), 10) is None


CONDITIONED = [
    *({"mechanism": name, "conditioning": "node"} for name in MECHANISMS),
    {"backbone": "gcn", "conditioning": "node", "mechanism": "lp"},
    {"backbone": "gat", "conditioning": "node"},
    {"backbone": "gat", "conditioning": "scale", "mechanism": "1b"},
    {"feature": "blank", "conditioning": "node", "x_eps": 0.01},
    {"feature": "rnd", "conditioning": "scale"},
    {"feature": "ones", "conditioning": "node", "x_steps": 2},
    {"feature": "ohd", "conditioning": "node", "aggregator": "mean"},
]


@pytest.mark.parametrize("settings", CONDITIONED, ids=str)
def test_conditioned_reports_train(graph: Graph, settings: dict[str, Any]) -> None:
    configuration = small(**settings)
    together = run_repeats(configuration, graph, range(2))
    (alone,) = run_repeats(configuration, graph, [1])
    assert science([alone]) == science(together[1:])
    paper = run_repeats(small(**{**settings, "conditioning": "none"}), graph, range(2))
    for row, other in zip(together, paper, strict=True):
        assert row["status"] == "ok"
        assert row["conditioning"] == settings["conditioning"]
        assert row["paper/val/loss"] != other["paper/val/loss"]
        assert row["id"] != other["id"]


class Watched:
    """The arguments of every training, which goes on as usual."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[dict[str, Any]] = []
        self.collected: list[Collected] = []
        usual: Callable[..., list[Trained]] = train

        def watched(runs: Any, *arguments: Any, **options: Any) -> list[Trained]:
            self.calls.append(options)
            self.collected.append(runs[0].collected)
            return usual(runs, *arguments, **options)

        monkeypatch.setattr(experiment, "train", watched)
        monkeypatch.setattr(experiment, "_ROW_LENGTHS", {})

    @property
    def factors(self) -> list[Tensor]:
        return [call["row_factors"] for call in self.calls]


@pytest.mark.parametrize("settings", [{}, {"x_eps": math.inf, "conditioning": "node"}], ids=str)
def test_without_conditioning_training_is_the_papers(
    graph: Graph, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(monkeypatch)
    run_repeats(small(**settings, max_epochs=1), graph, [0])
    (call,) = watched.calls
    assert call["row_factors"] is None
    assert call["prior"] is None


def dense_lengths(topology: Topology, steps: int, aggregator: str) -> Tensor:
    normalise = dense_gcn if aggregator == "gcn" else dense_mean
    step = normalise(adjacency(topology).fill_diagonal_(0))
    lengths: Tensor = torch.linalg.matrix_power(step, steps).norm(dim=1)
    return lengths


def test_factors_are_those_of_the_graph_the_steps_and_the_mechanism(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other in one process: none gets the factors of another."""
    watched = Watched(monkeypatch)
    other = load_dataset(small(dataset={**SMALL_GRAPH, "seed": 1}), "data")
    usual: dict[str, Any] = {"conditioning": "node", "x_steps": 2, "max_epochs": 1}
    variants: list[tuple[Graph, dict[str, Any]]] = [
        (graph, {}),
        (graph, {"x_steps": 3}),
        (graph, {"aggregator": "mean"}),
        (graph, {"mechanism": "lp", "x_eps": 0.1}),
        (other, {}),
        (graph, {"feature": "rnd"}),
        (graph, {"conditioning": "scale"}),
        (graph, {"x_steps": 0}),
        (graph, {}),
    ]
    for one, changes in variants:
        configuration = small(**{**usual, **changes})
        run_repeats(configuration, one, [0])
        magnitude = 3**-0.5
        if (mechanism := build_mechanism(configuration, one.feature_dim)) is not None:
            magnitude = mechanism.magnitude()
        lengths = dense_lengths(one.topology, configuration.x_steps, configuration.aggregator)
        if configuration.conditioning == "scale":
            lengths = lengths.square().mean().sqrt().expand_as(lengths)
        expected = torch.where(lengths > 0, 1 / (magnitude * lengths), 1.0)
        torch.testing.assert_close(watched.factors[-1].double(), expected, rtol=1e-4, atol=0)
    assert torch.equal(watched.factors[0], watched.factors[-1])
    different = {tuple(factors[:20].tolist()) for factors in watched.factors}
    assert len(different) == len(variants) - 1


def test_factors_are_in_the_order_that_nodes_train_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reorder_module(), "_SMALL", 1)
    watched = Watched(monkeypatch)
    graph = load_dataset(small(), "data")
    run_repeats(small(conditioning="node", x_steps=2, max_epochs=1), graph, [0])
    topology = watched.collected[0].topology
    assert not torch.equal(topology.indices, graph.topology.indices)
    inverse = watched.factors[0].double() * dense_lengths(topology, 2, "gcn")
    reached = inverse > 0
    assert int(reached.sum()) > 250
    torch.testing.assert_close(inverse[reached], inverse[reached][:1].expand(int(reached.sum())))


def with_other_private_data(graph: Graph) -> Graph:
    """The same topology; every node's features and label are another's."""
    assert graph.features is not None
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(5))
    changed = CsrMatrix.from_dense(1 - graph.features.to_dense()[order])
    return dataclasses.replace(
        graph, features=changed, labels=graph.labels[order], fingerprint="another"
    )


def factors_of_two_worlds(
    graph: Graph, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> tuple[Tensor, Tensor]:
    """The factors for two graphs that differ in what is private, with draws of their own."""
    watched = Watched(monkeypatch)
    run_repeats(small(**settings, max_epochs=1), graph, [0])
    run_repeats(small(**settings, max_epochs=1, seed=1), with_other_private_data(graph), [3])
    one, other = watched.collected
    assert not torch.equal(one.features.rectified(), other.features.rectified())
    assert not torch.equal(one.labels, other.labels)
    assert len(experiment._ROW_LENGTHS) == 2  # nothing was remembered from one to the other
    first, second = watched.factors
    return first, second


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("conditioning", ["scale", "node"])
def test_conditioning_reads_nothing_private(
    graph: Graph, mechanism: str, conditioning: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"mechanism": mechanism, "conditioning": conditioning}
    assert torch.equal(*factors_of_two_worlds(graph, settings, monkeypatch))


def test_conditioning_by_what_was_sent_is_noticed(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check above rejects factors that look at the reports."""
    usual = experiment._row_factors

    def curious(c: Any, clean: Graph, operator: Operator, collected: Collected) -> Tensor:
        factors = usual(c, clean, operator, collected)
        assert factors is not None
        return factors / collected.features.rectified().std()

    monkeypatch.setattr(experiment, "_row_factors", curious)
    settings = {"mechanism": "lp", "conditioning": "node"}
    assert not torch.equal(*factors_of_two_worlds(graph, settings, monkeypatch))


def test_what_has_no_public_size_is_not_conditioned(graph: Graph) -> None:
    """Settings resolve this to none; a configuration made by hand is refused."""
    configuration = dataclasses.replace(small(x_eps=math.inf), conditioning="node")
    with pytest.raises(InputError, match="conditioning=node: must be none"):
        run_repeats(configuration, graph, [0])


def test_blank_rows_do_not_depend_on_clean_features(graph: Graph) -> None:
    assert graph.features is not None
    changed = CsrMatrix.from_dense(1 - graph.features.to_dense())
    blank = small(feature="blank", conditioning="node", x_eps=3.0)
    usual = science(run_repeats(blank, graph, range(2)))
    for features in (changed, None):  # None: LastFM, where its features cannot be had
        other = dataclasses.replace(graph, features=features)
        assert science(run_repeats(blank, other, range(2))) == usual
    raw = small(conditioning="node", x_eps=3.0)
    rows = [science(run_repeats(raw, g, [0])) for g in (graph, with_other_private_data(graph))]
    losses = [row["paper/val/loss"] for (row,) in rows]
    assert losses[0] != losses[1]


@pytest.mark.parametrize("walk", ["plain", "lazy"])
@pytest.mark.parametrize("combine", ["one", "stack"])
def test_the_labels_only_learner_runs(graph: Graph, walk: str, combine: str) -> None:
    learner = {"name": "propagation", "walk": walk, "combine": combine}
    configuration = small(learner=learner, y_eps=math.inf)
    ticks: list[int] = []
    bare = dataclasses.replace(graph, features=None)  # it never looks at them
    rows = run_repeats(configuration, bare, range(3), on_epoch=ticks.append)
    assert ticks == [1, 1, 1]
    assert min(accuracies(rows)) > 50  # four classes
    assert science(run_repeats(configuration, graph, [2])) == science(rows[2:])
    for row in rows:
        assert (row["status"], row["feature"], row["x_eps"]) == ("ok", "none", 0.0)
        assert row["paper/test/acc"] == row["released/test/acc"]
    assert total_budget(small(learner=learner, y_eps=2.0)) == 2.0


def test_a_network_on_propagated_labels_runs(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    usual: dict[str, Any] = {"y_eps": 2.0, "conditioning": "node"}
    forward = run_repeats(small(learner="forward", **usual), graph, range(3))
    residual = small(learner="residual", **usual)
    watched = Watched(monkeypatch)
    rows = run_repeats(residual, graph, range(3))
    (call,) = watched.calls
    assert call["learner"] == "forward"
    assert call["prior"].shape == (3, 4, 300)
    operator = kprop_operator(graph.topology, "gcn", torch.device("cpu"))
    for repeat in range(3):  # each repeat builds on the propagated labels of its own
        own = collect_repeat(residual, graph, split_of(residual, graph, repeat), repeat)
        expected = label_scores(own, operator, "lazy", "stack").scores
        assert torch.equal(call["prior"][repeat], expected)
    for row, other in zip(rows, forward, strict=True):
        assert row["status"] == "ok"
        assert row["learner"] == "residual"
        assert row["paper/val/loss"] != other["paper/val/loss"]
    assert science(run_repeats(residual, graph, [2])) == science(rows[2:])


def test_smoothing_changes_predictions_and_nothing_before_them(graph: Graph) -> None:
    usual: dict[str, Any] = {"y_eps": 1.0, "conditioning": "node"}
    smooth, rough = (
        run_repeats(small(learner={"name": "residual", "smooth": k}, **usual), graph, range(3))
        for k in (4, 0)
    )
    for one, other in zip(smooth, rough, strict=True):
        assert one["id"] != other["id"]
        for rule in SELECTIONS:
            for measured in ("epoch", "val/loss", "val/acc"):
                assert one[f"{rule}/{measured}"] == other[f"{rule}/{measured}"]
    assert accuracies(smooth) != accuracies(rough)
