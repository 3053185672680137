import csv
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data.own_graph import own_graph, write_folder
from lpgnn.config import Settings, configuration_of
from lpgnn.data import Graph
from lpgnn.engine import Measures, collect_repeat, run_repeats, split_of
from lpgnn.errors import InputError
from lpgnn.predict import main, predict
from lpgnn.rows import RowStore, load_weights, save_weights
from lpgnn.run import main as run
from small_run import SMALL_GRAPH, small

PEOPLE = own_graph(60)
# Clean reports: what is learnt is the same on any machine.
GIVEN = (
    *("x_eps=inf", "y_eps=inf", "max_epochs=30", "repeats=1", "learning_rate=0.05", "device=cpu"),
    *("weight_decay=0", "dropout=0", "filter.steps=1"),
)


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_from_csv_to_predictions_in_two_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_folder(PEOPLE, tmp_path / "people")
    own = ("dataset=files", f"dataset.path={folder}", "dataset.ranges=[-3,7]")
    places = (f"results_dir={tmp_path / 'results'}",)
    assert run([*own, *GIVEN, *places, "save=weights", "--workers", "1"]) == 0
    plan = capsys.readouterr().out
    assert "[-3, 7], declared; 0 values outside, clamped by their nodes" in plan
    assert "10 nodes without a label" in plan
    assert "the graph's own masks, one split" in plan
    output = tmp_path / "out.csv"
    assert main([*own, *GIVEN, *places, "--output", str(output)]) == 0
    lines = read(output)
    assert [line["node"] for line in lines] == PEOPLE.ids
    chances = np.array(
        [[float(line[f"p_{k}"]) for k in ("east", "north", "south")] for line in lines]
    )
    np.testing.assert_allclose(chances.sum(1), 1, rtol=1e-5)
    names = np.array(["east", "north", "south"])
    assert [line["predicted"] for line in lines] == names[chances.argmax(1)].tolist()
    known = [(p["predicted"], y) for p, y in zip(lines, PEOPLE.labels, strict=True) if y]
    assert sum(a == b for a, b in known) / len(known) > 0.9
    assert "60 nodes (east " in capsys.readouterr().out


@pytest.fixture(scope="module")
def graph() -> Graph:
    return SMALL_GRAPH.generate()


def trained(graph: Graph, folder: Path, **settings: Any) -> Path:
    configuration = small(**settings)
    measures = Measures(save=("weights", "predictions"), store=RowStore(folder))
    run_repeats(configuration, graph, [2], measures=measures)
    return RowStore(folder).run_folder(configuration.identity, 2)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"backbone": "gat", "mechanism": "lp", "y_eps": float("inf")},
        {"backbone": "gcn", "filter": "conditioned"},
        {"learner": "residual", "max_epochs": 5},
        {"learner": "label_propagation"},
        {"learner": {"_target_": "lpgnn.learners.drop.Drop", "refit": True}},
        {"split": "collection"},
    ],
    ids=str,
)
def test_a_saved_model_predicts_what_its_run_predicted(
    graph: Graph, settings: dict[str, Any], tmp_path: Path
) -> None:
    folder = trained(graph, tmp_path, **settings)
    for rule in ("paper", "released"):
        lines = read(folder / f"predictions-{rule}.csv")
        found = predict(folder / f"weights-{rule}.npz")
        expected = np.array([[float(line[f"p_{k}"]) for k in range(4)] for line in lines])
        np.testing.assert_allclose(found.probabilities, expected, rtol=1e-4, atol=1e-6)
        assert found.classes.tolist() == [int(line["predicted"]) for line in lines]


def test_a_saved_model_knows_its_configuration(graph: Graph, tmp_path: Path) -> None:
    folder = trained(graph, tmp_path, x_eps=2.0, y_eps=float("inf"))
    weights, origin = load_weights(folder / "weights-paper.npz")
    rebuilt = configuration_of(origin["configuration"], tmp_path)
    assert rebuilt.identity == small(x_eps=2.0, y_eps=float("inf")).identity
    assert (origin["repeat"], origin["rule"]) == (2, "paper")
    assert set(weights) == {"left1", "bias1", "right1", "left2", "bias2", "right2"}


def test_a_graph_in_memory_is_given_again(graph: Graph, tmp_path: Path) -> None:
    own = dataclasses.replace(graph, name="mine", node_ids=tuple(f"n{v}" for v in range(300)))
    configuration = Settings(dataset=own, max_epochs=2).resolve()
    measures = Measures(save=("weights",), store=RowStore(tmp_path))
    run_repeats(configuration, own, [0], measures=measures)
    path = RowStore(tmp_path).run_folder(configuration.identity, 0) / "weights-paper.npz"
    predict(path, own).save(tmp_path / "p.csv")
    assert read(tmp_path / "p.csv")[7]["node"] == "n7"
    with pytest.raises(InputError):
        predict(path)


def test_a_model_applies_to_another_graph_of_its_features_and_classes(
    graph: Graph, tmp_path: Path
) -> None:
    model = trained(graph, tmp_path) / "weights-released.npz"
    other = SMALL_GRAPH.replace(seed=5, num_nodes=200)
    assert predict(model, other).probabilities.shape == (200, 4)
    with pytest.raises(InputError, match=r"dataset=5 num_classes: the model has 4"):
        predict(model, SMALL_GRAPH.replace(num_classes=5))
    with pytest.raises(InputError, match=r"num_features: the model has"):
        predict(model, SMALL_GRAPH.replace(num_features=50))


def test_predictions_read_no_clean_value(graph: Graph, tmp_path: Path) -> None:
    """Only reports decide: clean features and labels changed after collection change nothing."""
    from lpgnn.engine import probabilities_of

    model = trained(graph, tmp_path) / "weights-released.npz"
    weights, origin = load_weights(model)
    configuration = small()
    copy = dataclasses.replace(graph, labels=graph.labels.clone())
    collected = collect_repeat(configuration, copy, split_of(configuration, copy, 2), 2)
    copy.labels.zero_()
    p = probabilities_of(configuration, collected, 2, weights, origin["rule"])
    torch.testing.assert_close(p.t(), predict(model).probabilities)


def changed(model: Path, folder: Path, **changes: Any) -> Path:
    weights, origin = load_weights(model)
    save_weights(folder / "changed.npz", weights, {**origin, **changes})
    return folder / "changed.npz"


def test_bad_models_are_refused_in_one_line(
    graph: Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = trained(graph, tmp_path) / "weights-released.npz"
    weights, origin = load_weights(model)
    row = origin["configuration"]
    options = json.loads(row["options"]) | {"dataset._target_": "shutil.rmtree"}
    (tmp_path / "empty.npz").write_text("")
    np.savez(tmp_path / "plain.npz", a=np.ones(2))
    save_weights(tmp_path / "fewer.npz", {"left1": weights["left1"]}, origin)
    cases = [
        (tmp_path / "missing.npz", "cannot be read (No such file or directory)"),
        (tmp_path / "empty.npz", "not a readable npz of plain arrays"),
        (tmp_path / "plain.npz", "must be a file of save=weights"),
        (tmp_path / "fewer.npz", "weights=left1: must be"),
    ]
    for path, message in cases:
        assert main(["--model", str(path), "--output", str(tmp_path / "p.csv")]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    for change, message in [
        ({"configuration": {}}, "must be a file of save=weights"),
        ({"configuration": {**row, "fingerprint": "0"}}, "the model was trained on 0"),
        (
            {"configuration": {**row, "options": json.dumps(options)}},
            r"names dataset=shutil\.rmtree: import it with --trust",
        ),
    ]:
        with pytest.raises(InputError, match=message):
            predict(changed(model, tmp_path, **change), data_dir=tmp_path)
    assert model.is_file()  # nobody removed the folder
    assert not (tmp_path / "p.csv").exists()
    assert main(["--model", str(model), "x_eps=2"]) == 2
    assert "overrides=x_eps: the model decides" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["--repeat", "-1"])


def test_a_run_is_trained_first_where_it_saved_no_weights(tmp_path: Path) -> None:
    folder = write_folder(PEOPLE, tmp_path / "people")
    own = ["dataset=files", f"dataset.path={folder}", "dataset.ranges=[-3,7]", *GIVEN]
    own += [f"results_dir={tmp_path / 'results'}", "--output", str(tmp_path / "p.csv")]
    assert main(own) == 0
    first = (tmp_path / "p.csv").read_text()
    rows = RowStore(tmp_path / "results").read("people")
    assert [row["repeat"] for row in rows] == ["0"]
    assert main(own) == 0
    assert (tmp_path / "p.csv").read_text() == first
    assert len(RowStore(tmp_path / "results").read("people")) == 1
