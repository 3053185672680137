import csv
import stat
from pathlib import Path

import numpy as np
import pytest
import torch

from lpgnn.rows import RowStore, save_history, save_predictions, save_weights


def read(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_predictions_with_probabilities(tmp_path: Path) -> None:
    path = RowStore(tmp_path).run_folder("0123abcd", 7) / "predictions.csv"
    probabilities = torch.tensor([[0.1, 0.9], [1.0, 0.0], [1 / 3, 2 / 3]])
    save_predictions(path, torch.tensor([1, 0, 1]), probabilities)
    assert path == tmp_path / "local" / "runs" / "0123abcd" / "7" / "predictions.csv"
    header, *lines = read(path)
    assert header == ["node", "predicted", "p_0", "p_1"]
    assert [line[:2] for line in lines] == [["0", "1"], ["1", "0"], ["2", "1"]]
    again = torch.tensor([[float(value) for value in line[2:]] for line in lines])
    assert torch.equal(again, probabilities)
    assert lines[0][2] == "0.1"  # as many digits as a float32 needs


def test_predictions_without_probabilities(tmp_path: Path) -> None:
    save_predictions(tmp_path / "p.csv", torch.tensor([2, 0]), None)
    assert read(tmp_path / "p.csv") == [["node", "predicted"], ["0", "2"], ["1", "0"]]


def test_probabilities_of_another_number_of_nodes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="zip"):
        save_predictions(tmp_path / "p.csv", torch.tensor([2, 0]), torch.ones(3, 2))
    assert list(tmp_path.iterdir()) == []


def test_weights_need_no_pickle(tmp_path: Path) -> None:
    weights = {
        "first/weight": torch.randn(3, 4, requires_grad=True),
        "file": torch.randn(4, 3).t(),  # not contiguous, and a name that numpy.savez takes itself
        "scalar": torch.tensor(2.5, dtype=torch.float64),
    }
    save_weights(tmp_path / "weights.npz", weights, {"repeat": 3})
    with np.load(tmp_path / "weights.npz", allow_pickle=False) as found:
        assert set(found) == {*weights, "origin.json"}
        for name, weight in weights.items():
            assert np.array_equal(found[name], weight.detach().numpy())
            assert found[name].dtype == weight.detach().numpy().dtype


def test_history(tmp_path: Path) -> None:
    history = {"train_loss": torch.tensor([1.5, 0.1]), "val_acc": torch.tensor([0.25, 0.5])}
    save_history(tmp_path / "history.csv", history)
    assert read(tmp_path / "history.csv") == [
        ["epoch", "train_loss", "val_acc"],
        ["1", "1.5", "0.25"],
        ["2", "0.1", "0.5"],
    ]


def test_saved_files_are_plain_files(tmp_path: Path) -> None:
    save_history(tmp_path / "history.csv", {"loss": torch.ones(1)})
    (path,) = tmp_path.iterdir()
    assert not stat.S_IMODE(path.stat().st_mode) & 0o111
