import dataclasses
import math
from pathlib import Path

import pytest
import torch

from lpgnn.config import Settings
from lpgnn.data import BlockModel, Graph, random_split
from lpgnn.hyperparameters import TUNED_FILE, load_table
from lpgnn.randomness import derive_generator
from lpgnn.results import RowStore
from lpgnn.tune import GRID, Search, main, private_criterion, write_table

NARROW = (
    *("learning_rate=0.01,0.001", "weight_decay=0.001", "dropout=0,0.5", "x_steps=0,2"),
    *("y_steps=0,2", "x_eps=1,inf", "y_eps=1", "max_epochs=8", "repeats=2", "split=fixed"),
)


def two_sided(data_dir: Path, flip: bool) -> Graph:
    """A small graph; with ``flip`` every test node of the fixed split has another label."""
    graph = BlockModel(num_nodes=240, num_classes=3, num_features=60).generate()
    split = random_split(graph.labels, 3, generator=derive_generator(0, 0, "split"))
    flipped = torch.where(split.test, (graph.labels + 1) % 3, graph.labels)
    return dataclasses.replace(graph, labels=flipped) if flip else graph


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def test_the_whole_grid_is_the_papers() -> None:
    search = Search(Settings(dataset={"name": "cora", "tuned_as": "cora"}), dict(GRID))
    first = search.stage_one()
    assert set(first) == {(1.0, 1.0), (1.0, math.inf), (math.inf, 1.0), (math.inf, math.inf)}
    assert {len(candidates) for candidates in first.values()} == {3 * 4 * 4}
    assert {(s.x_steps, s.y_steps) for group in first.values() for s in group} == {(16, 8)}
    chosen = {pair: candidates[5] for pair, candidates in first.items()}
    second = search.stage_two(chosen)
    assert len(second) == 6 * 5
    assert {len(candidates) for candidates in second.values()} == {25}
    for (x, y), candidates in second.items():
        kind = (x if math.isinf(x) else 1.0, y if math.isinf(y) else 1.0)
        assert {s.learning_rate for s in candidates} == {chosen[kind].learning_rate}
        assert {(s.x_eps, s.y_eps) for s in candidates} == {(x, y)}


def test_the_criterion_is_the_mean_private_loss() -> None:
    rows = [
        {"status": "ok", "paper/val/loss": "1.5", "paper/test/acc": "10"},
        {"status": "ok", "paper/val/loss": "0.5", "paper/test/acc": "90"},
        {"status": "failed: loss is not finite at epoch 2", "paper/val/loss": "nan"},
    ]
    assert private_criterion(rows) == 1.0
    assert private_criterion(rows[2:]) == math.inf


def test_test_labels_have_no_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables, accuracies = [], []
    for flip in ("false", "true"):
        folder = tmp_path / flip
        assert main([*_own_dataset(flip), *NARROW, f"results_dir={folder}", "--workers", "1"]) == 0
        tables.append((folder / TUNED_FILE).read_text())
        rows = RowStore(folder / "tuning").read("two_sided")
        accuracies.append([row["paper/test/acc"] for row in rows])
    assert tables[0] == tables[1]
    assert accuracies[0] != accuracies[1]  # the flip did reach the evaluator
    # The table is one that lpgnn.run can use, and a finished search trains nothing again.
    table = load_table("tuned", tmp_path / "true")
    best = table.look_up("cora", "raw", 1.0, 1.0)
    assert best.learning_rate in (0.01, 0.001)
    settings = Settings(dataset="cora", hparams="tuned", results_dir=tmp_path / "true")
    assert settings.resolve().x_steps == best.x_steps
    before = RowStore(tmp_path / "true" / "tuning").path("two_sided").read_bytes()
    capsys.readouterr()
    words = [*_own_dataset("true"), *NARROW, f"results_dir={tmp_path / 'true'}"]
    assert main([*words, "--workers", "1"]) == 0
    assert RowStore(tmp_path / "true" / "tuning").path("two_sided").read_bytes() == before
    assert "hparams=tuned" in capsys.readouterr().out


def _own_dataset(flip: str) -> list[str]:
    return [
        *("dataset=cora", "dataset.name=two_sided"),
        *("+dataset.target=test_tune.two_sided", f"+dataset.flip={flip}"),
    ]


def test_graphs_share_a_table(tmp_path: Path) -> None:
    path = tmp_path / "table.yaml"
    for graph, rate in (("cora", 0.01), ("pubmed", 0.001)):
        best = Settings(learning_rate=rate, weight_decay=0.0, dropout=0.5, x_steps=4, y_steps=2)
        write_table(path, graph, "raw", {(1.0, 1.0): best}, {(1.0, 1.0): best, (2.0, 1.0): best})
    table = load_table(str(path))
    assert table.look_up("cora", "raw", 0.5, 2.0).learning_rate == 0.01
    assert table.look_up("pubmed", "raw", 3.0, 1.0).learning_rate == 0.001


def test_bad_searches(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    where = f"results_dir={tmp_path}"
    for words, told in (
        (["dataset=cora,pubmed"], "dataset=a grid: must be one graph at a time"),
        (["dropout=2"], "dropout=2: must be a number in [0, 1)"),
    ):
        assert main([*words, where]) == 2
        assert told in capsys.readouterr().err
