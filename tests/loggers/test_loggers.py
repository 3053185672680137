import csv
import json
import subprocess
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import models.pyg  # noqa: F401  # past the warnings of torch-geometric's import
from lpgnn.config import Settings
from lpgnn.engine import Measures, run_repeats
from lpgnn.errors import InputError
from lpgnn.loggers import Logger, MLflow, TensorBoard
from lpgnn.rows import RowStore
from lpgnn.run import main
from small_run import SMALL_GRAPH, small, stored_science

pytestmark = pytest.mark.slow

GRAPH = ("dataset.num_nodes=300", "dataset.num_classes=4", "dataset.num_features=90")
SMALL = (*GRAPH, "max_epochs=3", "repeats=2", "device=cpu")
OWN = ("logger=custom", "logger._target_=loggers.own_logger.Notes")


def run(folder: Path, *words: str) -> int:
    return main([*SMALL, f"results_dir={folder}", *words])


def logged(logger: Logger, folder: Path) -> tuple[dict[str, Any], dict[str, list[float]]]:
    """The row of a run, and its curves as ``save=history`` writes them."""
    measures = Measures(save=("history",), store=RowStore(folder), logger=logger)
    logger.prepare(folder)
    (row,) = run_repeats(small(), SMALL_GRAPH.generate(), [3], measures=measures)
    path = RowStore(folder).run_folder(row["id"], 3) / "history.csv"
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    return row, {name: [float(one[name]) for one in lines] for name in lines[0] if name != "epoch"}


def test_a_logger_is_in_no_identity() -> None:
    plain = Settings().resolve()
    for choice in ("mlflow", {"_target_": "loggers.own_logger.Notes"}):
        assert Settings(logger=choice).resolve() == plain
        assert Settings(logger=choice).resolve().identity == plain.identity


@pytest.mark.parametrize("workers", [0, 1])
def test_a_logger_of_ones_own_sees_every_run(tmp_path: Path, workers: int) -> None:
    words = ("-m", "x_eps=1,2", f"workers={workers}", "save=history", "+logger.folder=seen")
    assert run(tmp_path, *OWN, *words) == 0
    rows = RowStore(tmp_path).read("sbm")
    assert len(rows) == 4
    for row in rows:
        path = tmp_path / "seen" / f"{row['id']}-{row['repeat']}.json"
        settings, summary, curves = json.loads(path.read_text())
        assert (settings["x_eps"], settings["repeat"]) == (float(row["x_eps"]), int(row["repeat"]))
        assert settings["dataset.num_nodes"] == 300
        assert summary["paper/test/acc"] == float(row["paper/test/acc"])
        assert summary["released/epoch"] == float(row["released/epoch"])
        with (RowStore(tmp_path).run_folder(row["id"], int(row["repeat"])) / "history.csv").open(
            newline=""
        ) as file:
            history = [float(line["val_loss"]) for line in csv.DictReader(file)]
        assert curves["val_loss"] == pytest.approx(history, rel=1e-6)
        assert len(history) == 3


def test_rows_are_the_same_and_off_is_nothing(tmp_path: Path) -> None:
    assert run(tmp_path / "on", *OWN, "workers=0") == 0
    assert run(tmp_path / "off", "logger=none", "workers=0") == 0
    assert stored_science(tmp_path / "on") == stored_science(tmp_path / "off")
    assert [path.name for path in (tmp_path / "off").iterdir()] == ["local"]


def test_a_failing_logger_costs_no_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, *OWN, "+logger.fails=true", "workers=0") == 1
    assert len(RowStore(tmp_path).read("sbm")) == 2
    error = capsys.readouterr().err
    assert "error: logger Notes failed with ConnectionError: no server there (" in error
    # A logger that cannot even begin is told before the work.
    (tmp_path / "other" / "notes").mkdir(parents=True)
    assert run(tmp_path / "other", *OWN, "workers=0") == 2
    assert "error: logger=Notes: cannot log: FileExistsError" in capsys.readouterr().err
    assert RowStore(tmp_path / "other").read("sbm") == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["logger=zz"], "error: logger=zz: must be one of custom, mlflow, none, tens"),
        (["logger=custom"], "error: logger._target_=???: must name a class"),
        (["logger.folder=x"], "error: logger.folder=x: "),
        (
            ["logger=custom", "logger._target_=lpgnn.learners.Drop"],
            "error: logger._target_=lpgnn.learners.Drop: must be a subclass of lpgnn.logge",
        ),
        ([*OWN, "+logger.depth=1"], "error: logger.depth=1: unknown option of Notes; known: fol"),
    ],
    ids=lambda value: str(value[-1]),
)
def test_bad_input_is_one_line(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for mode in ([], ["-m"]):
        assert run(tmp_path, *words, *mode, "workers=0") == 2
        error = capsys.readouterr().err
        assert error.startswith(message)
        assert error.count("\n") == 1


@pytest.mark.parametrize("logger", [TensorBoard, MLflow])
def test_a_missing_package_is_named(logger: type[Logger], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lpgnn.loggers.logger.find_spec", lambda name: None)
    with pytest.raises(InputError) as caught:
        logger()
    expected = f"needs {logger.package}: pip install 'lpgnn[{logger.name}]'"
    assert caught.value.allowed == expected


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="tensorboard is not installed")
@pytest.mark.filterwarnings("default")
def test_tensorboard_has_the_curves_and_the_summary(tmp_path: Path) -> None:
    for _ in range(2):  # what is computed again replaces what is there
        row, curves = logged(TensorBoard(), tmp_path)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (folder,) = (tmp_path / "tensorboard" / "sbm").iterdir()
    assert folder.name == f"{row['id']}-3"
    events = EventAccumulator(str(folder)).Reload()
    for name, values in curves.items():
        found = events.Scalars(f"curves/{name}")
        assert [one.step for one in found] == list(range(1, len(values) + 1))
        assert [one.value for one in found] == pytest.approx(values)
    (accuracy,) = events.Scalars("released/test/acc")
    assert accuracy.value == pytest.approx(row["released/test/acc"])
    assert accuracy.step == row["released/epoch"]
    assert events.PluginTagToContent("hparams").keys() >= {"_hparams_/session_start_info"}


@pytest.mark.skipif(find_spec("mlflow") is None, reason="mlflow is not installed")
@pytest.mark.filterwarnings("default")
def test_mlflow_has_the_curves_and_the_summary(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        row, curves = logged(MLflow(experiment="mine"), tmp_path)
        from mlflow import MlflowClient
    client = MlflowClient((tmp_path / "mlruns").as_uri())
    experiment = client.get_experiment_by_name("mine")
    assert experiment is not None
    (found,) = client.search_runs([experiment.experiment_id])
    assert (found.info.status, found.data.tags["lpgnn.id"]) == ("FINISHED", row["id"])
    assert found.data.metrics["released/test/acc"] == row["released/test/acc"]
    assert (found.data.params["x_eps"], found.data.params["repeat"]) == (str(row["x_eps"]), "3")
    for name, values in curves.items():
        history = client.get_metric_history(found.info.run_id, f"curves/{name}")
        assert [one.step for one in history] == list(range(1, len(values) + 1))
        assert [one.value for one in history] == pytest.approx(values)


def test_viewers_are_not_imported_without_need() -> None:
    text = "import lpgnn.sweeps, sys; print({'mlflow', 'tensorboard'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
