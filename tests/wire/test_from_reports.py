"""Users of a small graph send, a collector collects, and a run learns from that alone."""

import csv
import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from data.own_graph import own_graph, write_folder
from lpgnn import client, collect, predict, run, simulate
from lpgnn.config import Settings, configuration_of
from lpgnn.data import BlockModel
from lpgnn.engine import split_of
from lpgnn.errors import InputError
from lpgnn.privacy.collection import Collection, read_labels
from lpgnn.rows import RowStore

from .tasks import small_graph

pytestmark = pytest.mark.slow

GRAPH = BlockModel(num_nodes=300, num_classes=4, num_features=90)
WORDS = ["dataset=sbm", "dataset.num_nodes=300", "dataset.num_classes=4", "dataset.num_features=90"]


def collected(folder: Path, *words: str) -> Path:
    sent, out = folder / "sent", folder / "collected.npz"
    graph = [] if any(word.startswith("dataset=") for word in words) else WORDS
    assert simulate.main([*graph, "x_eps=2", "y_eps=3", *words, "--out", str(sent)]) == 0
    reports = next(path for path in sent.iterdir() if path.name.startswith("reports"))
    places = [f"task={sent / 'task.json'}", f"graph={sent / 'graph.npz'}", f"reports={reports}"]
    assert collect.main([*places, f"out={out}"]) == 0
    return out


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("users")
    collected(folder)
    return folder


def trained(place: Path, *words: str) -> int:
    places = [f"results_dir={place / 'results'}", f"data_dir={place / 'nowhere'}"]
    reports = f"reports={place / 'collected.npz'}"
    return run.main([reports, *places, "max_epochs=3", "repeats=2", "--workers", "1", *words])


def stored(place: Path, **settings: Any) -> dict[int, dict[str, str]]:
    given: dict[str, Any] = {"reports": place / "collected.npz", "max_epochs": 3} | settings
    one = Settings(**given).resolve()
    return RowStore(place / "results").finished(one.dataset.name, one.identity)


def test_users_send_what_a_run_of_the_same_repeat_would_collect(tmp_path: Path) -> None:
    """The split and the public numbers agree; only the noise is the client's own."""
    path = collected(tmp_path, "--repeat", "3", "--json")
    collection = Collection.load("reports", path)
    graph = GRAPH.load(Path())
    configuration = Settings(dataset=GRAPH, x_eps=2.0, y_eps=3.0).resolve()
    split = split_of(configuration, graph, 3)
    assert torch.equal(collection.graph.train, split.train)
    assert torch.equal(collection.graph.val, split.val)
    assert torch.equal(collection.graph.topology.indices, graph.topology.indices)
    assert bool(collection.received.all())
    with (tmp_path / "sent" / "labels.csv").open() as file:
        truth = {int(row["node"]): int(row["label"]) for row in csv.DictReader(file)}
    assert set(truth) == set(split.test.nonzero().flatten().tolist())
    assert all(int(graph.labels[node]) == label for node, label in truth.items())
    server = collection.collected()
    kept = (server.labels.classes == graph.labels)[split.train | split.val].double().mean()
    assert 0.75 < float(kept) < 0.97  # e^3 / (e^3 + 3) = 0.87


def test_a_task_publishes_the_declared_ranges_and_users_send_values_in_them(tmp_path: Path) -> None:
    people = own_graph(120)
    folder = write_folder(people, tmp_path / "people")
    words = ["dataset=files", f"dataset.path={folder}", "dataset.ranges=[-3,7]", "x_eps=8"]
    collection = Collection.load("reports", collected(tmp_path, *words))
    task = json.loads((tmp_path / "sent" / "task.json").read_text())
    assert task["ranges"] == [[-3.0, 7.0]]
    # x is -1 or 6 on the average: at 0.2 or 0.9 of its range, whichever half it lies in.
    server = collection.collected().features
    assert server is not None
    estimates = server.rectified()
    high = torch.tensor(people.features) > 2
    assert float(estimates[~high].mean()) == pytest.approx(0.2, abs=0.1)
    assert float(estimates[high].mean()) == pytest.approx(0.9, abs=0.1)


def test_a_run_learns_from_reports_and_evaluates_with_labels(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = place / "sent" / "labels.csv"
    assert trained(place, f"labels={labels}") == 0
    shown = capsys.readouterr().out
    assert "from 300 nodes, 225 of 225 labels; 75 test labels" in shown
    assert "a repeat is another initialisation" in shown
    assert "mb at x_eps = 2" in shown
    assert "rr at y_eps = 3" in shown
    rows = stored(place, labels=labels)
    assert sorted(rows) == [0, 1]
    for row in rows.values():
        assert row["status"] == "ok"
        assert 0 <= float(row["released/test/acc"]) <= 100
        assert (row["x_eps"], row["y_eps"], row["split"]) == ("2.0", "3.0", "collection")
        assert configuration_of(row, Path()).identity == row["id"]
    assert rows[0]["paper/train/loss"] != rows[1]["paper/train/loss"]  # other initial weights


def test_without_labels_there_are_predictions_and_no_test_metric(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trained(place, "save=[predictions]") == 0
    plan = capsys.readouterr().out
    assert "no evaluation" in plan
    assert " total budget  5 per node (drawn by the clients, not here)\n" in plan
    rows = stored(place)
    assert [row["status"] for row in rows.values()] == ["unevaluated"] * 2
    assert not any(
        value for row in rows.values() for name, value in row.items() if "/test/" in name
    )
    folder = RowStore(place / "results").run_folder(rows[0]["id"], 0)
    lines = (folder / "predictions-released.csv").read_text().splitlines()
    assert len(lines) == 301
    assert lines[0] == "node,predicted,p_0,p_1,p_2,p_3"
    assert trained(place, "save=[predictions]") == 0
    assert "2 of 2 repeats done" in capsys.readouterr().out  # nothing is computed twice
    assert "validation accuracy against private labels" in trained_again(place, capsys)


def trained_again(place: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert trained(place, "save=[predictions]") == 0
    return capsys.readouterr().out


def test_what_the_task_decided_cannot_be_asked_for_otherwise(place: Path) -> None:
    given: dict[str, Any] = {"reports": place / "collected.npz"}
    wrong: dict[str, Any] = {
        **{"x_eps": 5.0, "y_eps": 0.5, "mechanism": "lp", "feature": "ones"},
        **{"dataset": "cora", "split": "fixed"},
    }
    for name, value in wrong.items():
        with pytest.raises(InputError, match=f"{name}=.*decided by the collected reports"):
            Settings(**(given | {name: value})).resolve()
    assert Settings(**given, x_eps=2.0, mechanism="mb").resolve().x_eps == 2.0
    with pytest.raises(InputError, match="labels=x: is for runs with reports=FILE only"):
        Settings(labels="x")


def test_the_identity_is_that_of_the_content(place: Path, tmp_path: Path) -> None:
    one = Settings(reports=place / "collected.npz").resolve()
    (tmp_path / "copy.npz").write_bytes((place / "collected.npz").read_bytes())
    assert Settings(reports=tmp_path / "copy.npz").resolve().identity == one.identity
    collected(tmp_path, "seed=1")
    other = Settings(reports=tmp_path / "collected.npz").resolve()
    assert other.identity != one.identity
    assert other.dataset.name != one.dataset.name
    with_labels = Settings(
        reports=place / "collected.npz", labels=place / "sent" / "labels.csv"
    ).resolve()
    assert with_labels.identity != one.identity


def test_labels_only_need_no_features(place: Path) -> None:
    assert trained(place, "learner=label_propagation") == 0


def test_a_silent_user_costs_a_row_of_zeros(place: Path, tmp_path: Path) -> None:
    sent = place / "sent"
    task = client.Task.parse((sent / "task.json").read_bytes())
    wires = (sent / "reports.bin").read_bytes()
    (tmp_path / "some.bin").write_bytes(wires[: 200 * task.report_bytes])
    places = [f"task={sent / 'task.json'}", f"graph={sent / 'graph.npz'}"]
    out = tmp_path / "collected.npz"
    assert collect.main([*places, f"reports={tmp_path / 'some.bin'}", f"out={out}"]) == 0
    assert trained(tmp_path) == 0
    server = Collection.load("reports", out).collected()
    assert server.features is not None
    assert bool((server.features.rectified()[200:] == 0.5).all())
    assert not bool(server.train_mask[200:].any())


def test_what_devices_cannot_send_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "sent")]
    for words, message in (
        (["mechanism=lp"], "mechanism=lp: devices send mb"),
        (["x_eps=inf"], "devices send mb at a finite x_eps only"),
        (["y_eps=inf"], "devices send rr at a finite y_eps only"),
    ):
        assert simulate.main([*WORDS, *words, *out]) == 2
        assert message in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        simulate.main([*WORDS, "--repeat", "-1", *out])
    assert "argument --repeat: '-1': must be a whole number >= 0" in capsys.readouterr().err
    assert not (tmp_path / "sent").exists()


def test_simulated_users_can_be_simulated_again(tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert simulate.main([*WORDS, "--out", str(tmp_path / name)]) == 0
    for file in ("task.json", "reports.bin", "labels.csv"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    assert json.loads((tmp_path / "a" / "task.json").read_bytes())["salt"] == "simulated/0/0"


def test_the_published_comparison_agrees() -> None:
    """Training from reports gives what the simulation gives: the paired interval covers 0."""
    from lpgnn.rows import summarise

    path = Path(__file__).parents[2] / "results" / "reports.csv"
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 10
    simulated, learnt = ([float(row[name]) for row in rows] for name in ("simulation", "reports"))
    differences = [b - a for a, b in zip(simulated, learnt, strict=True)]
    one, other, paired = map(summarise, (simulated, learnt, differences))
    assert abs(one.mean - other.mean) <= (one.ci or 0) + (other.ci or 0)
    assert abs(paired.mean) <= (paired.ci or 0)


def test_names_go_with_the_public_graph(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    people = own_graph(60)
    folder = write_folder(people, tmp_path / "our people")
    path = collected(tmp_path, "dataset=files", f"dataset.path={folder}", "dataset.ranges=[-3,7]")
    with (tmp_path / "sent" / "labels.csv").open() as file:
        truth = {row["node"]: row["label"] for row in csv.DictReader(file)}
    clean = dict(zip(people.ids, people.labels, strict=True))
    assert truth
    assert truth == {node: clean[node] for node in truth}
    labels = f"labels={tmp_path / 'sent' / 'labels.csv'}"
    assert trained(tmp_path, labels) == 0
    plan = capsys.readouterr().out
    assert "ranges  applied by the users" in plan
    assert "split by who was asked for a label" in plan
    assert "without a label" not in plan
    given = [f"reports={path}", labels, "max_epochs=3", f"results_dir={tmp_path / 'results'}"]
    assert predict.main([*given, "--output", str(tmp_path / "p.csv")]) == 0
    with (tmp_path / "p.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [line["node"] for line in lines] == people.ids
    assert list(lines[0])[2:] == ["p_east", "p_north", "p_south"]


@pytest.mark.parametrize("names", [None, tuple(f"n{i}" for i in range(12))])
def test_a_labels_file_must_not_contradict_itself(
    names: tuple[str, ...] | None, tmp_path: Path
) -> None:
    graph = dataclasses.replace(small_graph(), node_ids=names)
    node, other = ("3", "7") if names is None else ("n3", "n7")
    path = tmp_path / "labels.csv"
    path.write_text(f"node,label\n{node},1\n{other},2\n{node},1\n")  # said twice is no conflict
    assert read_labels(path, graph, 3).tolist() == [-1] * 3 + [1] + [-1] * 3 + [2] + [-1] * 4
    with path.open("a") as file:
        file.write(f"{node},0\n")
    message = f"^labels={re.escape(str(path))}: lines 2 and 5 give node {node} different labels$"
    with pytest.raises(InputError, match=message):
        read_labels(path, graph, 3)


def test_users_of_many_runs_are_not_simulated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate.main(["experiment=mechanisms", "--out", str(tmp_path / "sent")]) == 2
    assert "must be one run, not " in capsys.readouterr().err
    assert not (tmp_path / "sent").exists()
