import csv
import dataclasses
import importlib
import itertools
import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import models.pyg  # noqa: F401  # past the warnings of torch-geometric's import
from lpgnn import engine
from lpgnn.config import Configuration, Settings
from lpgnn.data import Graph, Splits, make_graph
from lpgnn.data.graph import Topology
from lpgnn.data.sparse import CsrMatrix
from lpgnn.engine import (
    Measures,
    collect_repeat,
    run_members,
    run_repeats,
    split_of,
)
from lpgnn.errors import InputError
from lpgnn.kernels import Backend
from lpgnn.learners import RULES, LabelPropagation, Outcome, Residual, Run, Server
from lpgnn.learners.label_propagation import label_scores
from lpgnn.learners.network import NetworkLearner
from lpgnn.models import TorchModule
from lpgnn.privacy import Collected, FeatureReports, MultiBit
from lpgnn.propagation import KProp, PreparedGraph, filters
from lpgnn.propagation.reorder import cache_order
from lpgnn.rows import PROVENANCE, RowStore, output_files
from propagation.graphs import adjacency, dense_gcn, dense_mean
from small_run import SMALL_GRAPH, RoundedNoise, always_seven, ring, science, small, two_cliques

pytestmark = pytest.mark.slow

Rows = list[dict[str, Any]]
MECHANISMS = ("mb", "1b", "lp", "ag")


@pytest.fixture(scope="module")
def graph() -> Graph:
    return SMALL_GRAPH.generate()


@pytest.fixture(scope="module")
def ten_rows(graph: Graph) -> Rows:
    return run_repeats(small(), graph, range(10))


def accuracies(rows: Rows) -> list[float]:
    return [row["paper/test/acc"] for row in rows]


def test_the_same_configuration_gives_bitwise_the_same_rows(ten_rows: Rows) -> None:
    again = run_repeats(small(), SMALL_GRAPH.generate(), range(10))
    assert science(again) == science(ten_rows)
    assert [row["repeat"] for row in again] == list(range(10))


@pytest.mark.parametrize("kernels", ["numba", "torch"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"backbone": "gcn"},
        {"backbone": "gat", "mechanism": "lp", "filter": KProp(conditioning="node")},
        {"mechanism": "1b", "learner": "forward"},
        {"mechanism": "ag", "y_eps": math.inf, "filter": KProp(conditioning="node")},
        {"x_eps": math.inf},
        {"feature": "rnd", "filter": KProp(aggregator="mean")},
        {"feature": "ohd", "split": "fixed"},
        {"learner": "residual"},
    ],
    ids=str,
)
def test_a_repeat_alone_gives_its_row_within_many(
    graph: Graph, settings: dict[str, Any], kernels: str
) -> None:
    configuration = small(**settings)
    together = run_repeats(configuration, graph, range(10), kernels=kernels)
    (alone,) = run_repeats(configuration, graph, [7], kernels=kernels)
    (expected,), (found,) = science(together[7:8]), science([alone])
    if kernels == "torch":
        # BLAS chooses its loops by the shape of a product: a batch may be rounded differently.
        losses = {name for name in found if name.endswith("loss")}
        assert losses
        for name in losses:
            assert found.pop(name) == pytest.approx(expected.pop(name), abs=1e-4)
    assert found == expected
    assert len(alone) > 30


WELL_CONDITIONED: list[dict[str, Any]] = [
    {},
    {"backbone": "gcn", "learner": "residual", "y_eps": 1.0},
    {"backbone": "gat", "mechanism": "lp", "x_eps": 1000.0},
    {"mechanism": "1b", "x_eps": 1000.0, "filter": "conditioned"},
]


@pytest.mark.parametrize("settings", WELL_CONDITIONED, ids=str)
def test_numba_and_torch_train_the_same(graph: Graph, settings: dict[str, Any]) -> None:
    """Large budgets, no dropout and few epochs: rounding has no time to grow."""
    mild: dict[str, Any] = {"x_eps": 8.0, "y_eps": 4.0, "dropout": 0.0, "max_epochs": 10}
    configuration = small(**(mild | {"hparams": "paper"} | settings))
    numba, torch_ = (
        run_repeats(configuration, graph, range(3), kernels=kernels)
        for kernels in ("numba", "torch")
    )
    for one, other in zip(numba, torch_, strict=True):
        assert one["status"] == other["status"] == "ok"
        for rule in RULES:
            for part in ("train", "val"):
                expected = one[f"{rule}/{part}/loss"]
                assert other[f"{rule}/{part}/loss"] == pytest.approx(expected, rel=1e-3)
            expected = one[f"{rule}/test/acc"]
            assert other[f"{rule}/test/acc"] == pytest.approx(expected, abs=2.7)  # two of 75 nodes
    assert len({row["paper/val/loss"] for row in numba}) == 3


def test_batches_of_any_size_give_the_same_rows(
    graph: Graph, ten_rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_runs_together", lambda *_: 3)
    stored: list[list[int]] = []
    epochs: list[int] = []
    members = [(small(), repeat) for repeat in range(10)]
    rows = run_members(
        members,
        graph,
        PreparedGraph(graph.topology, Backend.choose("cpu")),
        on_epoch=epochs.append,
        on_rows=lambda finished: stored.append([row["repeat"] for row in finished]),
    )
    assert science(rows) == science(ten_rows)
    assert stored == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]  # as soon as they are there
    assert epochs == [3] * 15 + [1] * 5


def test_nothing_to_do_is_nothing_done(graph: Graph) -> None:
    assert run_repeats(small(), graph, []) == []


def test_repeats_and_seeds_differ(graph: Graph, ten_rows: Rows) -> None:
    losses = [row["paper/val/loss"] for row in ten_rows]
    assert len(set(losses)) == 10
    other = run_repeats(small(seed=1), graph, range(10))
    assert not set(losses) & {row["paper/val/loss"] for row in other}
    assert {row["id"] for row in other} != {row["id"] for row in ten_rows}


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_repeats_draw_weights_of_their_own(graph: Graph, dropout: float) -> None:
    """Without noise and on one split nothing else is drawn but weights and dropout."""
    exact = small(x_eps=math.inf, y_eps=math.inf, split="fixed", dropout=dropout)
    rows = run_repeats(exact, graph, range(3))
    assert len({row["paper/val/loss"] for row in rows}) == 3


def test_a_row_says_what_was_computed(graph: Graph, ten_rows: Rows) -> None:
    configuration, row = small(), ten_rows[3]
    assert row["id"] == configuration.identity
    assert row["repeat"] == 3
    assert row["status"] == "ok"
    assert row["fingerprint"] == graph.fingerprint
    for name, value in configuration.columns().items():
        assert row[name] == value
    for rule in RULES:
        assert 1 <= row[f"{rule}/epoch"] <= 5
        for metric in ("acc", "macro_f1", "balanced_acc"):
            assert 0 <= row[f"{rule}/test/{metric}"] <= 100
        for part in ("train", "val"):
            assert math.isfinite(row[f"{rule}/{part}/loss"])
            assert 0 <= row[f"{rule}/{part}/acc"] <= 100
    assert set(PROVENANCE) - {"written"} <= set(row)  # the store says when
    assert row["device"] == "cpu"


def test_a_row_holds_more_than_accuracy(graph: Graph, tmp_path: Path) -> None:
    """The metrics of the saved predictions, by hand."""
    configuration = small(max_epochs=30, y_eps=math.inf)
    measures = Measures(save=("predictions",), store=RowStore(tmp_path))
    (row,) = run_repeats(configuration, graph, [4], measures=measures)
    test = split_of(configuration, graph, 4).test
    for rule in RULES:
        path = tmp_path / "local" / "runs" / row["id"] / "4" / f"predictions-{rule}.csv"
        with path.open(newline="") as file:
            saved = list(csv.DictReader(file))
        predicted = torch.tensor([int(line["predicted"]) for line in saved])[test]
        labels = graph.labels[test]
        recall, f1 = [], []
        for c in range(4):
            hits = int(((predicted == c) & (labels == c)).sum())
            recall.append(hits / int((labels == c).sum()))
            f1.append(2 * hits / (int((labels == c).sum()) + int((predicted == c).sum())))
        accuracy = float((predicted == labels).double().mean())
        assert row[f"{rule}/test/acc"] == round(100 * accuracy, 3)
        assert row[f"{rule}/test/macro_f1"] == pytest.approx(100 * sum(f1) / 4, abs=1e-3)
        assert row[f"{rule}/test/balanced_acc"] == pytest.approx(100 * sum(recall) / 4, abs=1e-3)
        assert len({row[f"{rule}/test/{name}"] for name in ("acc", "macro_f1")}) == 2


def test_metrics_of_the_users_own(graph: Graph) -> None:
    assert always_seven(None, None, None) == 7.0
    measures = Measures(
        {
            "acc": "lpgnn.rows.metrics.accuracy",
            "seven": "small_run.always_seven",
            "chances": "small_run.needs_chances",
        }
    )
    assert measures.keep_probabilities
    assert not Measures().keep_probabilities
    rows = run_repeats(small(), graph, range(2), measures=measures)
    assert {row["paper/test/seven"] for row in rows} == {7.0}
    assert all(25 < row["released/test/chances"] <= 100 for row in rows)
    assert "paper/test/macro_f1" not in rows[0]
    plain = science(run_repeats(small(), graph, range(2)))
    assert [row["paper/test/acc"] for row in rows] == [row["paper/test/acc"] for row in plain]


SAVED: list[dict[str, Any]] = [{}, {"learner": "residual"}, {"learner": "label_propagation"}]


@pytest.mark.parametrize("settings", SAVED, ids=str)
def test_predictions_weights_and_curves_are_saved(
    graph: Graph, settings: dict[str, Any], tmp_path: Path
) -> None:
    configuration = small(**settings)
    save = ("predictions", "weights", "history")
    rows = run_repeats(
        configuration, graph, range(2), measures=Measures(save=save, store=RowStore(tmp_path))
    )
    assert science(rows) == science(run_repeats(configuration, graph, range(2)))
    epochs = configuration.max_epochs
    for row in rows:
        folder = tmp_path / "local" / "runs" / configuration.identity / str(row["repeat"])
        assert sorted(path.name for path in folder.iterdir()) == sorted(output_files(save))
        with (folder / "history.csv").open(newline="") as file:
            curves = list(csv.DictReader(file))
        assert [int(line["epoch"]) for line in curves] == list(range(1, epochs + 1))
        for rule in RULES:
            loss = float(np.float32(curves[row[f"{rule}/epoch"] - 1]["val_loss"]))
            assert round(loss, 6) == row[f"{rule}/val/loss"]
            with (folder / f"predictions-{rule}.csv").open(newline="") as file:
                lines = list(csv.DictReader(file))
            assert [int(line["node"]) for line in lines] == list(range(300))
            chances = np.array([[float(line[f"p_{c}"]) for c in range(4)] for line in lines])
            np.testing.assert_allclose(chances.sum(1), 1, rtol=1e-5)
            assert [int(line["predicted"]) for line in lines] == chances.argmax(1).tolist()
            weights = np.load(folder / f"weights-{rule}.npz")
            shapes = {name: weights[name].shape for name in weights if name != "origin.json"}
            assert shapes == (
                {}
                if isinstance(configuration.learner, LabelPropagation)
                else {
                    **{"left1": (90, 16), "bias1": (16,), "right1": (90, 16)},
                    **{"left2": (16, 4), "bias2": (4,), "right2": (16, 4)},
                }
            )


def test_only_what_is_asked_for_is_saved(graph: Graph, tmp_path: Path) -> None:
    store = RowStore(tmp_path)
    (row,) = run_repeats(small(), graph, [0], measures=Measures(save=("history",), store=store))
    folder = store.run_folder(row["id"], 0)
    assert [path.name for path in folder.iterdir()] == ["history.csv"]
    assert output_files(("history",)) == ["history.csv"]
    assert output_files(()) == []


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
        default = split_of(small(), graph, repeat)
        for part in ("train", "val", "test"):
            assert torch.equal(getattr(mine, part), getattr(default, part))


def test_repeats_have_splits_of_their_own_unless_it_is_fixed(graph: Graph) -> None:
    drawn = [split_of(small(), graph, repeat).test for repeat in range(4)]
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(drawn, 2))
    for repeat in range(4):
        fixed = split_of(small(split="fixed"), graph, repeat).test
        assert torch.equal(fixed, drawn[0])
    assert not torch.equal(split_of(small(seed=1), graph, 0).test, drawn[0])
    assert int(drawn[0].sum()) == 300 - 150 - 75


def partly_labelled(graph: Graph, hidden: torch.Tensor) -> Graph:
    labels = torch.where(hidden, -1, graph.labels)
    assert graph.features is not None
    return make_graph("partly", graph.topology, graph.features, labels, graph.num_classes)


def test_nodes_without_a_label_train_validate_and_test_nothing(graph: Graph) -> None:
    hidden = torch.arange(300) % 3 == 0
    partly = partly_labelled(graph, hidden)
    configuration = Settings(dataset=partly, max_epochs=3, y_eps=math.inf).resolve()
    assert configuration.graph.num_unlabelled == 100
    for repeat in range(3):
        split = split_of(configuration, partly, repeat)
        assert torch.equal(split.train | split.val | split.test, ~hidden)
        collected = collect_repeat(configuration, partly, split, repeat)
        assert bool((collected.labels.classes[hidden] == -1).all())
        assert bool((collected.labels.likelihood[:, hidden] == 1).all())
        assert bool((collected.labels.estimate[:, hidden] == 0).all())
        # They report their features as all nodes do.
        assert collected.features is not None
        assert collected.features.num_nodes == 300
    row = run_repeats(configuration, partly, [0])[0]
    # A share of the 50 labelled test nodes.
    assert row["paper/test/acc"] * 50 / 100 == pytest.approx(round(row["paper/test/acc"] / 2))


def test_a_graphs_own_masks_are_its_splits(graph: Graph) -> None:
    own = tuple(split_of(small(seed=7), graph, repeat) for repeat in range(2))
    assert graph.features is not None
    masked = make_graph(
        *("masked", graph.topology, graph.features, graph.labels, graph.num_classes),
        splits=Splits(own=own),
    )
    configuration = Settings(dataset=masked, max_epochs=2).resolve()
    assert configuration.identity != Settings(dataset=graph, max_epochs=2).resolve().identity
    for repeat in range(4):
        assert torch.equal(split_of(configuration, masked, repeat).val, own[repeat % 2].val)
    fixed = dataclasses.replace(configuration, split="fixed")
    assert torch.equal(split_of(fixed, masked, 3).val, own[0].val)


def test_a_fixed_split_still_draws_noise_for_each_repeat(graph: Graph) -> None:
    configuration = small(split="fixed")
    split = split_of(configuration, graph, 0)
    labels = [collect_repeat(configuration, graph, split, repeat).labels for repeat in range(2)]
    assert not torch.equal(labels[0].classes, labels[1].classes)


def test_the_repeats_of_one_collection_differ_in_training_alone(graph: Graph) -> None:
    configuration = small(split="collection", x_eps=1.0)
    splits = [split_of(configuration, graph, repeat) for repeat in range(2)]
    assert torch.equal(splits[0].train, splits[1].train)
    first, second = (
        collect_repeat(configuration, graph, split, repeat) for repeat, split in enumerate(splits)
    )
    assert torch.equal(first.labels.classes, second.labels.classes)
    assert first.features is not None
    assert second.features is not None
    assert torch.equal(first.features.rectified(), second.features.rectified())
    rows = run_repeats(configuration, graph, range(2))
    assert rows[0]["paper/val/loss"] != rows[1]["paper/val/loss"]
    (usual,) = run_repeats(small(x_eps=1.0), graph, [0])
    assert rows[0]["paper/val/loss"] == usual["paper/val/loss"]


def reorder_module() -> ModuleType:
    """The module, which its package hides behind the function of the same name."""
    return importlib.import_module("lpgnn.propagation.reorder")


def large_run() -> tuple[Configuration, Graph]:
    # Without dropout: its masks are drawn node by node, in the order of the nodes.
    dataset = SMALL_GRAPH.replace(num_nodes=1200)
    return small(dataset=dataset, max_epochs=40, dropout=0.0, x_eps=3.0), dataset.generate()


def test_another_numbering_of_the_nodes_changes_nothing_but_rounding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configuration, large = large_run()
    unordered = run_repeats(configuration, large, range(3))
    monkeypatch.setattr(reorder_module(), "_SMALL", 1)
    assert not torch.equal(cache_order(large.topology), torch.arange(1200))
    reordered = run_repeats(configuration, large, range(3))
    for a, b in zip(unordered, reordered, strict=True):
        for rule in RULES:
            assert b[f"{rule}/test/acc"] == pytest.approx(a[f"{rule}/test/acc"], abs=0.5)
            assert b[f"{rule}/val/loss"] == pytest.approx(a[f"{rule}/val/loss"], rel=1e-3)
    assert max(accuracies(unordered)) > 50  # beyond guessing: a wrong order would be noticed


def test_a_numbering_that_forgets_the_labels_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test above would see if predictions came back in the wrong order."""
    configuration, large = large_run()
    unordered = run_repeats(configuration, large, [0])
    monkeypatch.setattr(reorder_module(), "_SMALL", 1)
    monkeypatch.setattr(Outcome, "in_original_order", lambda self, order: self)
    wrong = run_repeats(configuration, large, [0])
    assert abs(accuracies(wrong)[0] - accuracies(unordered)[0]) > 5


def test_a_mechanism_of_the_users_own(graph: Graph) -> None:
    mine = {"_target_": "small_run.RoundedNoise", "size": 0.01}
    configuration = small(mechanism=mine, y_eps=math.inf, max_epochs=60)
    assert configuration.mechanism == RoundedNoise(size=0.01)
    assert configuration.mechanism.bind(1.0, 7) == RoundedNoise(1.0, 7, size=0.01)
    assert graph.features is not None
    clean = graph.features.to_dense()
    split = split_of(configuration, graph, 0)
    sent = collect_repeat(configuration, graph, split, 0).features
    assert sent is not None
    assert float((sent.rectified() - clean).std()) == pytest.approx(0.01, rel=0.05)
    loud = small(mechanism={**mine, "size": 100.0}, y_eps=math.inf)
    assert loud.identity != configuration.identity
    (row,) = run_repeats(configuration, graph, [0])
    assert row["mechanism"] == "rounded"
    assert row["paper/test/acc"] > 60


def test_a_graph_of_the_users_own(tmp_path: Path) -> None:
    dataset = {"_target_": "small_run.two_cliques", "size": 30, "tag": [1, "a"], "name": "mine"}
    clean: dict[str, Any] = {"x_eps": math.inf, "y_eps": math.inf, "max_epochs": 30}
    configuration = small(dataset=dataset, **clean)
    cliques = two_cliques(tmp_path, size=30)
    assert configuration.graph.fingerprint == cliques.fingerprint
    rows = run_repeats(configuration, cliques, range(2))
    assert accuracies(rows) == [100.0, 100.0]
    assert {row["dataset"] for row in rows} == {"mine"}
    # A graph of a notebook needs no loader, and is the same computation.
    (row,) = run_repeats(small(dataset=cliques, **clean), cliques, [1])
    assert (row["dataset"], row["id"]) == ("cliques", rows[1]["id"])
    losses = ("paper/train/loss", "released/val/loss", "paper/test/acc")
    assert [row[name] for name in losses] == [rows[1][name] for name in losses]


@pytest.mark.parametrize("arguments", [{}, {"act": "tanh"}], ids=str)
def test_a_backbone_of_torch_geometric(graph: Graph, arguments: dict[str, Any]) -> None:
    backbone = TorchModule(module="torch_geometric.nn.models.GCN", arguments=arguments)
    clean: dict[str, Any] = {"x_eps": math.inf, "y_eps": math.inf, "max_epochs": 40}
    configuration = small(backbone=backbone, **clean)
    rows = run_repeats(configuration, graph, range(2))
    (alone,) = run_repeats(configuration, graph, [1])
    assert science([alone]) == science(rows[1:])
    assert min(accuracies(rows)) > 50
    assert configuration.identity != small(**clean).identity


def test_a_backbone_class_of_the_users_own(graph: Graph) -> None:
    own = run_repeats(small(backbone={"_target_": "small_run.PlainSage"}), graph, range(2))
    sage = run_repeats(small(), graph, range(2))
    assert {row["backbone"] for row in own} == {"PlainSage"}
    assert [row["paper/val/loss"] for row in own] == [row["paper/val/loss"] for row in sage]


def test_a_loss_that_is_no_number_marks_the_row_failed(graph: Graph) -> None:
    rows = run_repeats(small(learning_rate=1e30, max_epochs=4), graph, range(2))
    for row in rows:
        assert row["status"].startswith("failed: ")
        epoch = int(row["status"].rsplit(" ", 1)[1])
        assert 1 <= epoch <= 4
        for rule, metric in itertools.product(RULES, ("acc", "macro_f1", "balanced_acc")):
            assert math.isnan(row[f"{rule}/test/{metric}"])


def test_a_failed_run_is_not_blamed_on_a_metric_that_refuses_nan(graph: Graph) -> None:
    measures = Measures({"roc_auc": "lpgnn.rows.metrics.roc_auc"})
    configuration = small(learning_rate=1e30, max_epochs=4)
    (row,) = run_repeats(configuration, graph, range(1), measures=measures)
    assert row["status"].startswith("failed: loss is not finite")
    assert math.isnan(row["paper/test/roc_auc"])


def test_one_failed_run_does_not_touch_its_neighbours(graph: Graph, ten_rows: Rows) -> None:
    prepared = PreparedGraph(graph.topology, Backend.choose("cpu"))
    members = [(small(), 0), (small(learning_rate=1e30), 1), (small(), 2)]
    rows = run_members(members, graph, prepared)
    assert [row["status"] == "ok" for row in rows] == [True, False, True]
    assert science([rows[0], rows[2]]) == science([ten_rows[0], ten_rows[2]])


def test_a_class_absent_from_a_part_of_a_split_is_no_error(graph: Graph) -> None:
    """Whether a split is accepted must not depend on private labels."""
    labels = torch.zeros(300, dtype=torch.int64)
    labels[7] = 1  # one node of class 1: it cannot be in all three parts
    lonely = dataclasses.replace(graph, labels=labels, num_classes=2)
    (row,) = run_repeats(small(dataset=lonely), lonely, [0])
    assert row["status"] == "ok"


def test_a_run_on_another_graph_is_refused(graph: Graph) -> None:
    configuration = Settings(dataset="cora", max_epochs=2).resolve()
    with pytest.raises(InputError) as caught:
        run_repeats(configuration, graph, [0])
    assert str(caught.value) == (
        f"graph=sbm with fingerprint {graph.fingerprint}: "
        f"the run is configured for cora with {configuration.graph.fingerprint}"
    )


@pytest.mark.parametrize("repeat", [-1, 0.5, "0"])
def test_a_repeat_that_is_none_is_refused(graph: Graph, repeat: Any) -> None:
    with pytest.raises(InputError) as caught:
        run_repeats(small(), graph, [0, repeat])
    assert str(caught.value) == f"repeats={repeat}: must be whole numbers >= 0"


def test_threads_and_arithmetic_are_limited_while_runs_train_and_restored(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = torch.finfo(torch.float32).tiny
    seen: list[tuple[int, float]] = []

    def on_epoch(runs: int) -> None:
        seen.append((torch.get_num_threads(), float(torch.tensor(tiny) / 2)))

    torch.set_num_threads(2)
    run_repeats(small(max_epochs=2), graph, [0], on_epoch=on_epoch)
    assert seen == [(1, 0.0), (1, 0.0)]
    assert torch.get_num_threads() == 2
    assert float(torch.tensor(tiny) / 2) > 0
    # The same after an error, and what the user has set before is kept.
    torch.set_flush_denormal(True)
    with pytest.raises(ZeroDivisionError):
        run_repeats(small(), graph, [0], on_epoch=lambda _: 1 // 0)  # type: ignore[arg-type]
    assert torch.get_num_threads() == 2
    assert float(torch.tensor(tiny) / 2) == 0


BACKBONES: list[tuple[dict[str, Any], str]] = [
    ({"module": "torch_geometric.nn.models.Nothing"}, "backbone.module"),
    ({"module": "small_run.SMALL_GRAPH"}, "backbone.module"),
    ({"module": "small_run.ring"}, "backbone.module"),
    ({"arguments": {"colour": 3}}, "backbone.module"),
]


@pytest.mark.parametrize(("options", "setting"), BACKBONES, ids=str)
def test_modules_that_cannot_be_had(graph: Graph, options: dict[str, Any], setting: str) -> None:
    with pytest.raises(InputError) as caught:
        run_repeats(small(backbone=TorchModule(**options)), graph, [0])
    assert caught.value.setting == setting
    assert "\n" not in str(caught.value)


def test_a_network_of_the_wrong_width_is_refused(graph: Graph) -> None:
    narrow = TorchModule(arguments={"out_channels": 3})
    with pytest.raises(InputError, match=r"must return a tensor of shape \[N, c\] = \[300, 4\]"):
        run_repeats(small(backbone=narrow), graph, [0])


@pytest.mark.parametrize("device", ["gpu", "cpu:x", "", "mps", "meta"])
def test_devices_are_checked(graph: Graph, device: str) -> None:
    with pytest.raises(InputError, match=f"^device={device}: must be auto, cpu, cuda or cuda:N"):
        run_repeats(small(), graph, [0], device=device)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_refused(graph: Graph) -> None:
    with pytest.raises(InputError, match="device=cuda: no usable GPU"):
        run_repeats(small(), graph, [0], device="cuda")


def test_kernels_are_checked(graph: Graph) -> None:
    with pytest.raises(InputError, match="kernels=fortran: must be one of auto, numba, torch"):
        run_repeats(small(), graph, [0], kernels="fortran")


CONDITIONED = [
    *({"mechanism": name, "filter": KProp(conditioning="node")} for name in MECHANISMS),
    {"backbone": "gcn", "filter": KProp(conditioning="node"), "mechanism": "lp"},
    {"backbone": "gat", "filter": KProp(conditioning="node")},
    {"backbone": "gat", "filter": KProp(conditioning="scale"), "mechanism": "1b"},
    {"feature": "blank", "filter": KProp(conditioning="node"), "x_eps": 0.01},
    {"feature": "rnd", "filter": KProp(conditioning="scale")},
    {"feature": "ones", "filter": KProp(conditioning="node", steps=2)},
    {"feature": "ohd", "filter": KProp(conditioning="node", aggregator="mean")},
]


@pytest.mark.parametrize("settings", CONDITIONED, ids=str)
def test_conditioned_reports_train(graph: Graph, settings: dict[str, Any]) -> None:
    configuration = small(**settings)
    together = run_repeats(configuration, graph, range(2))
    (alone,) = run_repeats(configuration, graph, [1])
    assert science([alone]) == science(together[1:])
    plain = settings["filter"].replace(conditioning="none")
    paper = run_repeats(small(**{**settings, "filter": plain}), graph, range(2))
    for row, other in zip(together, paper, strict=True):
        assert row["status"] == "ok"
        assert row["paper/val/loss"] != other["paper/val/loss"]
        assert row["id"] != other["id"]


class Watched:
    """The batches that learners get and the row factors of filters; all goes on as before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs: list[list[Run]] = []
        self.priors: list[Tensor | None] = []
        self.factors: list[Tensor] = []
        fit, prior = NetworkLearner.fit, Residual.prior
        factors: Callable[..., Tensor] = vars(filters)["row_factors"]

        def watched_fit(learner: NetworkLearner, runs: list[Run], server: Server) -> Any:
            self.runs.append(runs)
            return fit(learner, runs, server)

        def watched_prior(learner: Residual, runs: list[Run], server: Server) -> Tensor:
            self.priors.append(prior(learner, runs, server))
            found = self.priors[-1]
            assert found is not None
            return found

        def watched_factors(*arguments: Any) -> Tensor:
            self.factors.append(factors(*arguments))
            return self.factors[-1]

        monkeypatch.setattr(NetworkLearner, "fit", watched_fit)
        monkeypatch.setattr(Residual, "prior", watched_prior)
        monkeypatch.setattr(filters, "row_factors", watched_factors)

    @property
    def collected(self) -> list[Collected]:
        return [runs[0].collected for runs in self.runs]


UNCONDITIONED: list[dict[str, Any]] = [{}, {"x_eps": math.inf, "filter": "conditioned"}]


@pytest.mark.parametrize("settings", UNCONDITIONED, ids=str)
def test_without_conditioning_training_is_the_papers(
    graph: Graph, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(monkeypatch)
    run_repeats(small(**settings, max_epochs=1), graph, [0])
    assert len(watched.runs) == 1
    assert watched.factors == []
    assert watched.priors == []


def dense_lengths(topology: Topology, steps: int, aggregator: str) -> Tensor:
    normalise = dense_gcn if aggregator == "gcn" else dense_mean
    step = normalise(adjacency(topology).fill_diagonal_(0))
    lengths: Tensor = torch.linalg.matrix_power(step, steps).norm(dim=1)
    return lengths


def test_factors_are_those_of_the_graph_the_steps_and_the_mechanism(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other on one prepared graph: none gets the factors of another."""
    watched = Watched(monkeypatch)
    other = SMALL_GRAPH.replace(seed=1).generate()
    node = KProp(conditioning="node", steps=2)
    variants: list[tuple[Graph, dict[str, Any]]] = [
        (graph, {}),
        (graph, {"filter": node.replace(steps=3)}),
        (graph, {"filter": node.replace(aggregator="mean")}),
        (graph, {"mechanism": "lp", "x_eps": 0.1}),
        (other, {"dataset": other}),
        (graph, {"feature": "rnd"}),
        (graph, {"filter": node.replace(conditioning="scale")}),
        (graph, {"filter": node.replace(steps=0)}),
        (graph, {}),
    ]
    prepared = {
        id(one): PreparedGraph(one.topology, Backend.choose("cpu")) for one in (graph, other)
    }
    for one, changes in variants:
        configuration = small(**({"filter": node, "max_epochs": 1} | changes))
        run_members([(configuration, 0)], one, prepared[id(one)])
        magnitude = 3**-0.5
        if configuration.mechanism is not None:
            bound = configuration.mechanism.bind(configuration.x_eps, one.feature_dim)
            magnitude = bound.magnitude()
        chosen = configuration.filter
        assert isinstance(chosen, KProp)
        assert chosen.steps is not None
        lengths = dense_lengths(one.topology, chosen.steps, chosen.aggregator)
        if chosen.conditioning == "scale":
            lengths = lengths.square().mean().sqrt().expand_as(lengths)
        expected = torch.where(lengths > 0, 1 / (magnitude * lengths), 1.0)
        torch.testing.assert_close(watched.factors[-1].double(), expected, rtol=1e-4, atol=0)
    assert torch.equal(watched.factors[0], watched.factors[-1])
    different = {tuple(factors[:20].tolist()) for factors in watched.factors}
    assert len(watched.factors) == len(variants)
    assert len(different) == len(variants) - 1


def test_factors_are_in_the_order_that_nodes_train_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reorder_module(), "_SMALL", 1)
    watched = Watched(monkeypatch)
    graph = SMALL_GRAPH.generate()
    node = KProp(conditioning="node", steps=2)
    run_repeats(small(filter=node, max_epochs=1), graph, [0])
    topology = watched.collected[0].topology
    assert not torch.equal(topology.indices, graph.topology.indices)
    inverse = watched.factors[0].double() * dense_lengths(topology, 2, "gcn")
    reached = inverse > 0
    assert int(reached.sum()) > 250
    torch.testing.assert_close(inverse[reached], inverse[reached][:1].expand(int(reached.sum())))


def test_runs_with_other_budgets_share_a_batch_with_factors_of_their_own(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    configurations = [small(filter=KProp(conditioning="node", steps=2), x_eps=x) for x in (1, 4)]
    prepared = PreparedGraph(graph.topology, Backend.choose("cpu"))
    alone = [row for c in configurations for row in run_members([(c, 0)], graph, prepared)]
    watched = Watched(monkeypatch)
    together = run_members([(c, 0) for c in configurations], graph, prepared)
    assert science(together) == science(alone)
    assert [len(runs) for runs in watched.runs] == [2]
    ratio = watched.factors[1] / watched.factors[0]
    sizes = [MultiBit().bind(x, graph.feature_dim).magnitude() for x in (1.0, 4.0)]
    torch.testing.assert_close(
        ratio[ratio != 1], torch.full_like(ratio[ratio != 1], sizes[0] / sizes[1])
    )


def with_other_private_data(graph: Graph) -> Graph:
    """The same topology; every node's features and label are another's."""
    assert graph.features is not None
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(5))
    changed = CsrMatrix.from_dense(1 - graph.features.to_dense()[order])
    return dataclasses.replace(graph, features=changed, labels=graph.labels[order])


def factors_of_two_worlds(
    graph: Graph, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> tuple[Tensor, Tensor]:
    """The factors for two graphs that differ in what is private, with draws of their own."""
    watched = Watched(monkeypatch)
    other = with_other_private_data(graph)
    run_repeats(small(**settings, max_epochs=1), graph, [0])
    run_repeats(small(**settings, max_epochs=1, seed=1, dataset=other), other, [3])
    one, two = watched.collected
    assert one.features is not None
    assert two.features is not None
    assert not torch.equal(one.features.rectified(), two.features.rectified())
    assert not torch.equal(one.labels.classes, two.labels.classes)
    first, second = watched.factors
    return first, second


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("conditioning", ["scale", "node"])
def test_conditioning_reads_nothing_private(
    graph: Graph, mechanism: str, conditioning: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"mechanism": mechanism, "filter": KProp(conditioning=conditioning)}
    assert torch.equal(*factors_of_two_worlds(graph, settings, monkeypatch))


@dataclasses.dataclass(frozen=True)
class Curious(MultiBit):
    """A mechanism whose public magnitude is not public: it looks at what was sent."""

    def perturb(self, features: CsrMatrix, *, generator: torch.Generator) -> FeatureReports:
        reports = super().perturb(features, generator=generator)
        object.__setattr__(self, "magnitude", lambda: float(reports.rectified().mean().abs()))
        return reports


def test_conditioning_by_what_was_sent_is_noticed(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check above rejects factors that look at the reports."""
    settings = {"mechanism": Curious(), "filter": KProp(conditioning="node")}
    assert not torch.equal(*factors_of_two_worlds(graph, settings, monkeypatch))


def test_what_has_no_public_size_is_not_conditioned(graph: Graph) -> None:
    """Settings resolve this to none; a configuration made by hand is refused."""
    clean = small(x_eps=math.inf)
    assert clean.filter is not None
    conditioned = dataclasses.replace(clean, filter=clean.filter.replace(conditioning="node"))
    with pytest.raises(InputError, match=r"filter\.conditioning=node: must be none"):
        run_repeats(conditioned, graph, [0])


def outcomes(rows: Rows) -> list[dict[str, Any]]:
    """The rows without what tells graphs apart."""
    named = ("id", "fingerprint", "options")
    return [{k: v for k, v in row.items() if k not in named} for row in science(rows)]


def test_blank_rows_do_not_depend_on_clean_features(graph: Graph) -> None:
    assert graph.features is not None
    changed = CsrMatrix.from_dense(1 - graph.features.to_dense())
    given: dict[str, Any] = {"filter": "conditioned", "x_eps": 3.0}
    expected = outcomes(run_repeats(small(feature="blank", **given), graph, range(2)))
    for features in (changed, None):  # None: LastFM, whose features are not available
        other = dataclasses.replace(graph, features=features)
        blank = small(feature="blank", dataset=other, **given)
        assert outcomes(run_repeats(blank, other, range(2))) == expected
    other = dataclasses.replace(graph, features=changed)
    rows = [run_repeats(small(dataset=g, **given), g, [0]) for g in (graph, other)]
    losses = [row["paper/val/loss"] for (row,) in rows]
    assert losses[0] != losses[1]


def test_raw_features_that_are_not_there_are_refused(graph: Graph) -> None:
    bare = dataclasses.replace(graph, features=None)
    with pytest.raises(InputError, match="feature=raw: needs private features"):
        run_repeats(small(dataset=bare), bare, [0])


@pytest.mark.parametrize("walk", ["plain", "lazy"])
@pytest.mark.parametrize("combine", ["one", "stack"])
def test_the_labels_only_learner_runs(graph: Graph, walk: Any, combine: Any) -> None:
    learner = LabelPropagation(walk=walk, combine=combine)
    configuration = small(learner=learner, y_eps=math.inf)
    ticks: list[int] = []
    bare = dataclasses.replace(graph, features=None)  # it never looks at them
    without = small(learner=learner, y_eps=math.inf, dataset=bare)
    rows = run_repeats(without, bare, range(3), on_epoch=ticks.append)
    assert ticks == [1, 1, 1]
    assert min(accuracies(rows)) > 50  # four classes
    assert outcomes(run_repeats(configuration, graph, [2])) == outcomes(rows[2:])
    for row in rows:
        assert (row["status"], row["feature"], row["x_eps"]) == ("ok", "none", 0.0)
        assert row["paper/test/acc"] == row["released/test/acc"]


def test_a_network_on_propagated_labels_runs(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {"y_eps": 2.0, "filter": "conditioned", "hparams": "paper"}
    forward = run_repeats(small(learner="forward", **given), graph, range(3))
    residual = small(learner="residual", **given)
    watched = Watched(monkeypatch)
    rows = run_repeats(residual, graph, range(3))
    (prior,) = watched.priors
    assert prior is not None
    assert prior.shape == (3, 4, 300)
    prepared = PreparedGraph(graph.topology, Backend.choose("cpu"))
    for repeat in range(3):  # each repeat builds on the propagated labels of its own
        own = collect_repeat(residual, graph, split_of(residual, graph, repeat), repeat)
        scores = label_scores(own, prepared, "gcn", "lazy", "stack", "train+val").scores
        assert torch.equal(prior[repeat], scores)
    for row, other in zip(rows, forward, strict=True):
        assert row["status"] == "ok"
        assert row["learner"] == "residual"
        assert row["paper/val/loss"] != other["paper/val/loss"]
    assert science(run_repeats(residual, graph, [2])) == science(rows[2:])


def test_smoothing_changes_predictions_and_nothing_before_them(graph: Graph) -> None:
    smooth, rough = (
        run_repeats(small(learner=Residual(smooth=k), filter="conditioned"), graph, range(3))
        for k in (4, 0)
    )
    for one, other in zip(smooth, rough, strict=True):
        assert one["id"] != other["id"]
        for rule in RULES:
            for measured in ("epoch", "val/loss", "val/acc"):
                assert one[f"{rule}/{measured}"] == other[f"{rule}/{measured}"]
    assert accuracies(smooth) != accuracies(rough)


def test_a_graph_of_a_notebook_takes_the_hyper_parameters_of_its_degree() -> None:
    facebook = ring(Path(), degree=15)
    configuration = Settings(dataset=facebook, max_epochs=2).resolve()
    assert configuration.origin.startswith("paper table, as facebook: ")
    (row,) = run_repeats(configuration, facebook, [0])
    assert (row["dataset"], row["learning_rate"], row["status"]) == ("ring", 0.001, "ok")
