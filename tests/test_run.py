import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import models.pyg  # noqa: F401  # past the warnings of torch-geometric's import
from conftest import Imports
from lpgnn import config
from lpgnn.composition import expand
from lpgnn.config import component_names
from lpgnn.errors import exit_code
from lpgnn.files import open_regular
from lpgnn.rows import RowStore
from lpgnn.run import main
from lpgnn.sweeps import pool
from lpgnn.sweeps.session import run_points
from rows.rows import in_child
from small_run import stored_science

pytestmark = pytest.mark.slow


def _load_script(name: str) -> ModuleType:
    path = Path(__file__).parents[1] / "scripts" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


kill_test = _load_script("kill_test")

GRAPH: tuple[str, ...] = kill_test.GRAPH
GRID = ("backbone=sage,gcn", "x_eps=0.1,1,inf", "y_eps=1,inf", "repeats=2", "max_epochs=20")
NUM_CONFIGURATIONS, NUM_ROWS = 12, 24


def run(folder: Path, *overrides: str, workers: int = 0, graph: tuple[str, ...] = GRAPH) -> int:
    """The command in this process, on the small graph."""
    where = (f"results_dir={folder}", "device=cpu")
    return main(
        [*graph, "max_epochs=3", "repeats=2", *where, *overrides, "--workers", str(workers)]
    )


def run_composed(folder: Path, *overrides: str) -> int:
    """What the command does with composed settings: Hydra's application alone takes 0.2 s."""
    where = (f"results_dir={folder}", "device=cpu", "workers=0")
    words = (*GRAPH, "max_epochs=3", "repeats=2", *where, *overrides)
    return exit_code(lambda: run_points(expand(words)))


def grid(folder: Path, *overrides: str) -> int:
    return run(folder, "-m", *overrides)


def own_graph(function: str, *overrides: str) -> tuple[str, ...]:
    return ("dataset=custom", f"dataset._target_=small_run.{function}", *overrides)


def files(folder: Path) -> dict[str, bytes]:
    """The content of every file in a folder."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def has_rows(folder: Path) -> bool:
    return bool(RowStore(folder).read("sbm"))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a sweep that nothing disturbed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    assert grid(folder, *GRID) == 0
    return folder


Trained = list[tuple[str, tuple[int, ...]]]


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Trained:
    """(identity, repeats) of everything that is trained in this process."""
    calls: Trained = []
    run_members = vars(pool)["run_members"]

    def watched(members, *arguments, **options):  # type: ignore[no-untyped-def]
        for configuration in dict.fromkeys(configuration for configuration, _ in members):
            repeats = tuple(repeat for own, repeat in members if own is configuration)
            calls.append((configuration.identity, repeats))
        return run_members(members, *arguments, **options)

    monkeypatch.setattr(pool, "run_members", watched)
    return calls


def test_one_run_tells_its_plan_and_its_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "x_eps=0.5", "y_eps=2", "mechanism=ag") == 0
    out = capsys.readouterr().out
    for line in (
        "300 nodes",
        "4 classes",
        "ag at x_eps = 0.5",
        "sigma = ",
        "rr at y_eps = 2 (keep = 0.7112)",
        "2.5 per node, delta = 1e-10",
        "kprop (",
        "learning rate 0.01",
        "paper table, as cora: learner.steps, filter.steps, learning_rate, weight_decay, dropout",
        "0 of 2 repeats done",
        "test acc ",
        "±",
        f"rows: {tmp_path}",
    ):
        assert line in out, line
    rows = RowStore(tmp_path).read("sbm")
    accuracy = sum(float(row["released/test/acc"]) for row in rows) / 2
    assert f"test acc {accuracy:.1f} ±" in out


@pytest.mark.parametrize("metric", ["acc", "macro_f1"])
def test_the_summary_is_that_of_the_chosen_rule_and_metric(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], metric: str
) -> None:
    assert run(tmp_path, "selection=paper", "max_epochs=30", f"metric={metric}") == 0
    rows = RowStore(tmp_path).read("sbm")
    means = {
        rule: sum(float(row[f"{rule}/test/{metric}"]) for row in rows) / 2
        for rule in ("paper", "released")
    }
    out = capsys.readouterr().out
    assert f"test {metric} {means['paper']:.1f} ±" in out
    assert f"(paper rule; released rule {means['released']:.1f} ±" in out


def test_a_grid_stores_and_tells_every_configuration(
    undisturbed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = RowStore(undisturbed).read("sbm")
    assert len(rows) == NUM_ROWS
    assert len({row["id"] for row in rows}) == NUM_CONFIGURATIONS
    assert {row["status"] for row in rows} == {"ok"}
    assert grid(undisturbed, *GRID) == 0
    out = capsys.readouterr().out
    assert out.count("test acc") == NUM_CONFIGURATIONS
    assert f"nothing to compute: all {NUM_CONFIGURATIONS} configurations are done" in out


def test_finished_configurations_are_skipped(undisturbed: Path, trained: Trained) -> None:
    before = files(undisturbed)
    assert grid(undisturbed, *GRID) == 0
    assert trained == []
    assert files(undisturbed) == before


def test_rows_are_read_once_however_many_configurations_there_are(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two folders, so that nothing is known of the second one's rows before.
    copies = []
    for name in ("published", "local"):
        store = RowStore(tmp_path / name)
        store.append("sbm", RowStore(undisturbed).read("sbm"))
        store.compact(publish=name == "published")
        copies.append(tmp_path / name)
    read: Counter[Path] = Counter()

    def counted(path: Path) -> Any:
        read[path] += path.suffix == ".csv"
        return open_regular(path)

    monkeypatch.setattr("lpgnn.rows.reading.open_regular", counted)
    for folder, name in zip(copies, ("rows", "local"), strict=True):
        for _ in range(2):
            assert grid(folder, *GRID) == 0
        assert +read == {folder / name / "sbm.csv": 1}
        read.clear()


def test_force_computes_again(tmp_path: Path, trained: Trained) -> None:
    assert run(tmp_path) == 0
    before = stored_science(tmp_path)
    assert run(tmp_path, "force=true") == 0
    assert len(trained) == 2
    assert trained[0] == trained[1]
    assert stored_science(tmp_path) == before


def test_force_engine_computes_what_another_engine_has_rounded(
    tmp_path: Path, trained: Trained
) -> None:
    assert run(tmp_path, "repeats=3") == 0
    before, store = stored_science(tmp_path), RowStore(tmp_path)
    other = store.read("sbm")[1] | {"engine": "another", "released/test/acc": "1"}
    store.append("sbm", [other])
    assert run(tmp_path, "repeats=3") == 0
    assert run(tmp_path, "repeats=3", "force=engine") == 0
    assert [repeats for _, repeats in trained] == [(0, 1, 2), (1,)]
    assert stored_science(tmp_path) == before


def test_only_missing_repeats_are_computed(tmp_path: Path, trained: Trained) -> None:
    assert run(tmp_path, "repeats=2") == 0
    before = RowStore(tmp_path).read("sbm")
    assert run(tmp_path, "repeats=4") == 0
    assert [repeats for _, repeats in trained] == [(0, 1), (2, 3)]
    after = RowStore(tmp_path).read("sbm")
    assert after[:2] == before
    assert [row["repeat"] for row in after] == ["0", "1", "2", "3"]


def test_published_rows_count_as_done_and_stay_as_they_are(
    tmp_path: Path, trained: Trained
) -> None:
    assert run(tmp_path) == 0
    RowStore(tmp_path).compact(publish=True)
    before = files(tmp_path)
    assert sorted(name for name in before if name.endswith(".csv")) == ["rows/sbm.csv"]
    assert run(tmp_path, "repeats=3") == 0
    assert [repeats for _, repeats in trained] == [(0, 1), (2,)]
    after = files(tmp_path)
    assert after["rows/sbm.csv"] == before["rows/sbm.csv"]
    assert all(name.startswith("local/") for name in after.keys() - before.keys())
    assert len(RowStore(tmp_path).read("sbm")) == 3


def test_fewer_repeats_are_summarised_alone(
    undisturbed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(undisturbed, "max_epochs=20", "repeats=1") == 0
    out = capsys.readouterr().out
    assert "1 of 1 repeats done" in out
    assert re.search(r"test acc [\d.]+ \(released rule; paper rule [\d.]+; 1 repeat\)$", out, re.M)
    assert "±" not in out  # one repeat has no interval


def test_shared_configurations_are_computed_once(tmp_path: Path, trained: Trained) -> None:
    # Drop without steps is forward correction; without perturbation there is no mechanism.
    assert grid(tmp_path, "learner.steps=0", "x_eps=inf", "mechanism=mb,lp") == 0
    assert len(trained) == 1
    assert len(RowStore(tmp_path).read("sbm")) == 2
    assert run(tmp_path, "learner=forward", "x_eps=inf", "mechanism=ag") == 0
    assert len(trained) == 1


def test_a_grid_with_several_numbers_of_repeats_computes_the_most(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert grid(tmp_path, "repeats=1,3") == 0
    assert len(RowStore(tmp_path).read("sbm")) == 3
    assert "0 of 3 repeats done" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["results_dir", "data_dir", "selection", "force"])
def test_what_holds_for_a_whole_grid_has_one_value(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {
        "results_dir": f"{tmp_path / 'a'},{tmp_path / 'b'}",
        "data_dir": f"{tmp_path / 'a'},{tmp_path / 'b'}",
        "selection": "paper,released",
        "force": "true,false",
    }
    assert main(["-m", *GRAPH, f"results_dir={tmp_path}", f"{name}={values[name]}"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {name}=")
    assert "must be one value for the whole grid" in error
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_counts_and_writes_nothing(
    undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], trained: Trained
) -> None:
    assert grid(tmp_path / "new", *GRID, "--dry-run") == 0
    out = capsys.readouterr().out
    assert f"{NUM_CONFIGURATIONS} configurations, 0 done, {NUM_CONFIGURATIONS} to do" in out
    assert not (tmp_path / "new").exists()

    before = files(undisturbed)
    assert grid(undisturbed, *GRID, "y_eps=1,2", "--dry-run") == 0
    assert "12 configurations, 6 done, 6 to do, about" in capsys.readouterr().out
    assert files(undisturbed) == before
    assert trained == []


def test_a_dry_run_downloads_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    overrides = ("+experiment=features", f"data_dir={data}", f"results_dir={tmp_path / 'new'}")
    assert main([*overrides, "--dry-run"]) == 0
    assert "40 configurations, 0 done, 40 to do" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


EXPERIMENT = """\
# @package _global_
max_epochs: 3
grid:
  - {dataset: tiny, x_eps: [0.5, 2]}
  - {label: Blank, control: true, dataset: tiny, feature: blank, x_eps: 2}
"""


def test_an_experiment_of_ones_own_runs_without_m(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], trained: Trained
) -> None:
    folder, results = tmp_path / "mine", tmp_path / "results"
    for name, text in (
        ("experiment/first.yaml", EXPERIMENT),
        ("experiment/second.yaml", EXPERIMENT.replace("0.5", "1")),
        (
            "dataset/tiny.yaml",
            "_target_: lpgnn.data.BlockModel\nnum_nodes: 120\nnum_classes: 3\nnum_features: 40\n",
        ),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    words = ["repeats=1", f"results_dir={results}", "--config-dir", str(folder), "--workers", "0"]
    assert main(["+experiment=first", *words]) == 0
    assert len(trained) == 3
    assert len(RowStore(results).read("sbm")) == 3
    assert capsys.readouterr().out.count("test acc") == 3
    # Of the union only what the second one adds is left.
    assert main(["-m", "experiment=first,second", *words]) == 0
    assert len(trained) == 4
    assert capsys.readouterr().out.count("test acc") == 4
    assert main(["+experiment=first", "feature=ones", "learner=label_propagation", *words]) == 0
    assert len(trained) == 5


def test_a_failing_configuration_is_named_and_stops_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], trained: Trained
) -> None:
    """A graph that breaks where it is computed on."""
    graph = own_graph("breaks_in_workers", "+dataset.seed=0,1,2", f"data_dir={tmp_path}")
    plan = ("-m", "x_eps=0.5", "--dry-run")
    assert run(tmp_path, *plan, graph=graph) == 0  # all three can be looked at
    (tmp_path / "broken").touch()
    for _ in range(2):  # what failed is tried again, what is done is not
        assert run(tmp_path, "-m", "x_eps=0.5", graph=graph) == 1
        captured = capsys.readouterr()
        (line,) = [text for text in captured.err.splitlines() if text.startswith("error: ")]
        assert "ArithmeticError: the graph of seed 1 is broken" in line
        assert "small_run.breaks_in_workers sage mb x_eps=0.5" in line
        assert "Traceback" not in captured.err
        assert captured.out.count("test acc") == 2
    assert len(trained) == 2
    assert len(RowStore(tmp_path).read("small_run.breaks_in_workers")) == 4


@pytest.mark.parametrize("more", [(), ("--dry-run",)], ids=["run", "dry run"])
def test_a_grid_without_a_single_usable_graph_is_bad_input(
    more: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str], trained: Trained
) -> None:
    words = ("dataset=files", f"dataset.path={tmp_path / 'nowhere'}", "x_eps=0.5,1")
    assert main([*words, "-m", f"results_dir={tmp_path / 'results'}", *more]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: dataset.path=")
    assert captured.err.count("\n") == 1
    assert not trained
    assert not (tmp_path / "results").exists()


def test_a_graph_that_cannot_be_loaded_is_named_and_stops_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], trained: Trained
) -> None:
    graph = own_graph("breaks_with_seed_1", "+dataset.seed=0,1,2", "x_eps=0.5,1")
    assert run(tmp_path, "-m", graph=graph) == 1
    captured = capsys.readouterr()
    (line,) = [text for text in captured.err.splitlines() if text.startswith("error: ")]
    assert "ArithmeticError: the graph of seed 1 is broken" in line
    assert "dataset.seed=1 x_eps=0.5" in line
    assert "and 1 more" in line
    assert captured.out.count("test acc") == len(trained) == 4
    assert run(tmp_path, graph=own_graph("breaks_with_seed_1", "+dataset.seed=1")) == 1


def test_a_loss_that_is_no_number_is_told_and_the_sweep_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], trained: Trained
) -> None:
    assert grid(tmp_path, "learning_rate=1e30,0.01") == 1
    out = capsys.readouterr().out
    assert out.count("failed: loss is not finite at epoch") == 2
    assert [row["status"] == "ok" for row in RowStore(tmp_path).read("sbm")].count(True) == 2
    assert len(trained) == 2
    # Failed rows count as finished: they would fail again.
    assert grid(tmp_path, "learning_rate=1e30,0.01") == 1
    assert len(trained) == 2


def test_a_metric_of_ones_own_is_computed_where_it_is_missing_and_nowhere_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], trained: Trained
) -> None:
    mine = ("+metrics.mine=small_run.always_seven", "metric=mine")
    assert run(tmp_path, "repeats=1") == 0
    before = stored_science(tmp_path)
    assert run(tmp_path, *mine) == 0
    assert "test mine 7.0 ± 0.0" in capsys.readouterr().out
    assert [repeats for _, repeats in trained] == [(0,), (0, 1)]
    after = stored_science(tmp_path)
    assert {row["paper/test/mine"] for row in after} == {"7.0"}
    own = ("options", *(k for k in after[0] if k.endswith("/mine")))
    assert {k: v for k, v in before[0].items() if k != "options"} == {
        k: v for k, v in after[0].items() if k not in own
    }
    assert json.loads(after[0]["options"])["metrics.mine"].startswith("small_run.always_seven ")
    # Rows that have it are done, with it and without.
    assert run(tmp_path, *mine) == 0
    assert run(tmp_path) == 0
    assert run(tmp_path, "metric=macro_f1") == 0
    assert len(trained) == 2


def test_predictions_are_saved_beside_the_rows(tmp_path: Path, trained: Trained) -> None:
    assert run(tmp_path, "save=[predictions,weights,history]") == 0
    ((identity, repeats),) = trained
    assert repeats == (0, 1)
    for repeat in ("0", "1"):
        folder = tmp_path / "local" / "runs" / identity / repeat
        assert sorted(path.name for path in folder.iterdir()) == [
            *("history.csv", "predictions-paper.csv", "predictions-released.csv"),
            *("weights-paper.npz", "weights-released.npz"),
        ]
    assert run(tmp_path, "save=predictions") == 0
    assert run(tmp_path) == 0
    assert len(trained) == 1


def test_what_was_not_saved_is_computed_again(tmp_path: Path, trained: Trained) -> None:
    assert run(tmp_path) == 0
    before = stored_science(tmp_path)
    assert run(tmp_path, "save=history", "repeats=3") == 0
    assert [repeats for _, repeats in trained] == [(0, 1), (0, 1, 2)]
    assert stored_science(tmp_path)[:2] == before
    assert run(tmp_path, "save=history", "repeats=3") == 0
    assert len(trained) == 2


@pytest.mark.parametrize("kernels", ["numba", "torch"])
@pytest.mark.parametrize(
    "overrides",
    [
        own_graph("two_cliques", "+dataset.size=40", "+dataset.name=mine"),
        own_graph("Ring", "+dataset.degree=6"),
        (*GRAPH, "mechanism=custom", "mechanism._target_=small_run.RoundedNoise"),
        (*GRAPH, "backbone=custom", "backbone._target_=small_run.PlainSage", "+backbone.width=2"),
        (*GRAPH, "label_mechanism=custom", "label_mechanism._target_=small_run.OwnResponse"),
        (*GRAPH, "backbone=pyg", "backbone.module=torch_geometric.nn.models.GCN"),
    ],
    ids=lambda value: " ".join(value[-2:]),
)
def test_components_of_ones_own_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], overrides: tuple[str, ...], kernels: str
) -> None:
    assert run(tmp_path, f"kernels={kernels}", graph=overrides) == 0
    captured = capsys.readouterr()
    assert "test acc " in captured.out
    assert "2 runs" in captured.err
    (dataset,) = RowStore(tmp_path).datasets()
    rows = RowStore(tmp_path).read(dataset)
    assert [row["status"] for row in rows] == ["ok", "ok"]


# Refused by the application, or by what it makes of the command line.
BAD_COMMAND_LINES: list[tuple[list[str], str]] = [
    (["x_eps=-1"], "x_eps=-1: must be a positive number, or inf for no perturbation"),
    (["x_eps=1,2"], "x_eps=1,2: is a grid: add -m to run it"),
    (
        ["mechanism=zz"],
        "mechanism=zz: must be one of 1b, ag, custom, duchi, grr_fs, hm, lp, mb, pm, privunit, sw",
    ),
    (["nothing=1"], "nothing=1: unknown setting"),
    (["+nothing=1"], "nothing=1: unknown setting"),
    (["x_steps=2"], "x_steps=2: unknown setting"),
    (["metrics=3"], "metrics=3: must map names to module.function"),
    (
        ["+metrics.mine=small_run.no_graph", "metric=mine"],
        "metrics.mine=small_run.no_graph: failed with TypeError",
    ),
    (["save=[colours]"], "save=colours: must be one of predictions, weights, history"),
    (["results_dir="], "results_dir=: must be a folder"),
    (["results_dir=/proc/nowhere"], "results_dir=/proc/nowhere: must be a writable folder"),
    (["data_dir=null"], "data_dir=null: must be a folder"),
    (["+dataset.colour=3"], "dataset.colour=3: unknown option of sbm"),
    (["+learner.q=1", "learner=backward"], "learner.q=1: unknown option of backward"),
    (
        ["learner=propagation"],
        "learner=propagation: must be one of backward, cross_entropy, custom",
    ),
    (["backbone=pyg", "backbone.arguments={out_channels: 3}"], "backbone.module=torch_geometric"),
    (["backbone=custom"], "backbone._target_=???: must name a class"),
    (
        ["backbone=custom", "backbone._target_=lpgnn.privacy.MultiBit"],
        "backbone._target_=lpgnn.privacy.MultiBit: must be a subclass of lpgnn.models.Backbone",
    ),
    (
        ["hparams=nothing"],
        "hparams=nothing: must be conditioned, paper, residual, value_of_features, tuned or a file",
    ),
    (["x_eps"], "x_eps=: not understood"),
    (["x_eps=[1"], "x_eps=[1: not understood"),
    (["+experiment=nothing"], "experiment=nothing: must be one of budget_split, budgets"),
    (["--config-dir", "/nowhere"], "--config-dir=/nowhere: must be a folder with YAML files"),
    (["-m", "x_eps=1,-2"], "x_eps=-2: must be a positive number"),
    (["-m", "mechanism.num_samples=2,5000"], "mechanism.num_samples=5000: must be a whole"),
]
# Refused when settings are resolved.
BAD_SETTINGS: list[tuple[list[str], str]] = [
    (["x_eps=nan"], "x_eps=nan: must be a positive number"),
    (["x_eps=much"], "x_eps=much: must be a positive number"),
    (["x_eps=1e308", "mechanism=ag"], "x_eps=1e+308: must be above 0 and at most 1e+06"),
    (["x_eps=1e-300"], "x_eps=1e-300: is too small"),
    (["y_eps=0"], "y_eps=0: must be a positive number"),
    (["device=abacus"], "device=abacus: must be auto, cpu, cuda or cuda:N"),
    (["device=mps"], "device=mps: must be auto, cpu, cuda or cuda:N"),
    (["kernels=fortran"], "kernels=fortran: must be one of auto, numba, torch"),
    (["metric=f2"], "metric=f2: must be one of acc, macro_f1, balanced_acc"),
    (["+metrics.mine=nope.fn", "metric=mine"], "metrics.mine=nope.fn: must be an importable"),
    (["dataset.num_nodes=3"], "dataset.num_nodes=3: must be at least 8 per class: 32"),
    (["+mechanism.colour=3"], "mechanism.colour=3: unknown option of mb"),
    (["+backbone.colour=3"], "backbone.colour=3: unknown option of sage"),
    (["mechanism.num_samples=5000"], "mechanism.num_samples=5000: must be a whole number in 1..90"),
    (["mechanism.num_samples=two"], "mechanism.num_samples=two: must be a whole number"),
    (["mechanism=ag", "mechanism.delta=2"], "mechanism.delta=2: must lie strictly between 0 and 1"),
    (["filter.steps=-1"], "filter.steps=-1: must be a whole number >= 0"),
    (["filter.conditioning=foo"], "filter.conditioning=foo: must be one of none, scale, node"),
    (["learner.steps=1.5"], "learner.steps=1.5: must be a whole number >= 0"),
    (["filter=hoa", "filter.steps=-1"], "filter.steps=-1: must be a whole number >= 0"),
    (["filter=nfr", "filter.mu=-1"], "filter.mu=-1: must be a number >= 0"),
    (["filter=upgnet_released", "filter.mu=x"], "filter.mu=x: must be a number >= 0"),
    (["filter=ppr", "filter.alpha=2"], "filter.alpha=2: must be a number >= 0 and <= 1"),
    (["filter=powers", "filter.theta=[]"], "filter.theta=[]: must be a list of finite numbers"),
    (["learner=gce", "learner.q=0"], "learner.q=0: must be a number above 0 and <= 1"),
    (["learner=sce", "learner.beta=-1"], "learner.beta=-1: must be a number >= 0"),
    (["learner=elr", "learner.momentum=2"], "learner.momentum=2: must be a number >= 0 and <= 1"),
    (["learner=rgnn", "learner.clusters=0"], "learner.clusters=0: must be a whole number >= 1"),
    (["learner=rtgnn", "learner.ramp=0"], "learner.ramp=0: must be a whole number >= 1"),
    (["learner=residual", "learner.walk=drunk"], "learner.walk=drunk: must be one of plain, lazy"),
    (["feature=blank", "x_eps=inf"], "x_eps=inf: must be finite with feature=blank"),
    (["backbone=gat", "backbone.heads=0"], "backbone.heads=0: must be a whole number >= 1"),
    (["backbone=pyg", "backbone.module=no.Here"], "backbone.module=no.Here: must be an importable"),
    (["learning_rate=fast"], "learning_rate=fast: must be a positive number"),
    (["dropout=1"], "dropout=1: must be a number in [0, 1)"),
    (["max_epochs=0"], "max_epochs=0: must be a whole number >= 1"),
    (["hidden_dim=16.5"], "hidden_dim=16.5: must be a whole number >= 1"),
    (["repeats=-1"], "repeats=-1: must be a whole number >= 1"),
    (["seed=-1"], "seed=-1: must be a whole number >= 0"),
    (["split=half"], "split=half: must be one of random, fixed"),
    (["selection=best"], "selection=best: must be one of paper, released"),
    (["force=yes"], "force=yes: must be true, false or engine"),
]


EVERY = [
    *(f"filter={name}" for name in component_names("filter") if name != "custom"),
    *(f"learner={name}" for name in component_names("learner") if name != "custom"),
]


@pytest.mark.parametrize("choice", EVERY)
def test_every_filter_and_learner_runs(choice: str, tmp_path: Path) -> None:
    assert run_composed(tmp_path, choice) == 0
    rows = RowStore(tmp_path).read("sbm")
    assert [row["status"] for row in rows] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("started", "overrides", "message"),
    [
        *((run, *case) for case in BAD_COMMAND_LINES),
        *((run_composed, *case) for case in BAD_SETTINGS),
    ],
    ids=[" ".join(words) for words, _ in (*BAD_COMMAND_LINES, *BAD_SETTINGS)],
)
def test_bad_input_ends_with_code_2_and_one_line(
    started: Callable[..., int],
    overrides: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert started(tmp_path, *overrides) == 2
    error = capsys.readouterr().err.replace("\r", "\n")
    lines = [line for line in error.splitlines() if line and "runs" not in line]  # no progress bar
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert message in lines[0]
    # A metric that fails costs its own cell; the trained rows are kept.
    assert has_rows(tmp_path) == ("small_run.no_graph" in message)


@pytest.mark.parametrize("folder", ["with space", "ünïcode", "'single'"])
def test_folders_may_have_any_name(tmp_path: Path, folder: str, trained: Trained) -> None:
    assert run(tmp_path, f"results_dir={tmp_path}/{folder}") == 0
    assert len(RowStore(tmp_path / folder).read("sbm")) == 2


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run(tmp_path, "results_dir=~/my results") == 0
    assert len(RowStore(tmp_path / "my results").read("sbm")) == 2


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], trained: Trained
) -> None:
    (tmp_path / "taken").write_text("")
    assert run(tmp_path / "taken") == 2
    assert f"results_dir={tmp_path / 'taken'}" in capsys.readouterr().err
    assert trained == []


def test_workers_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--workers", "-1"]) == 2
    assert "error: workers=-1: must be a whole number >= 1, or 0" in capsys.readouterr().err


def test_an_interrupt_ends_with_code_130(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pool, "run_members", interrupted)
    assert run(tmp_path) == 130
    assert "interrupted; finished runs are kept; rerun to resume" in capsys.readouterr().err


def command(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """``python -m lpgnn.run`` in a process of its own, which finds the modules in ``cwd``."""
    return subprocess.run(
        [sys.executable, "-m", "lpgnn.run", "device=cpu", "kernels=torch", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_bad_input_in_a_process_of_its_own(tmp_path: Path) -> None:
    done = command("x_eps=-1", cwd=tmp_path)
    assert done.returncode == 2
    message = "x_eps=-1: must be a positive number, or inf for no perturbation"
    assert done.stderr.startswith(f"error: {message}")
    assert done.stderr.count("\n") == 1


START = """\
import resource, sys
def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
import torch
after_torch = cpu()
from lpgnn.run import main
code = main(sys.argv[1:])
print("CPU", cpu() - after_torch, "scipy.stats" in sys.modules, code)
"""


def test_a_finished_configuration_is_told_in_under_a_second(undisturbed: Path) -> None:
    words = [*GRAPH, *GRID[-2:], f"results_dir={undisturbed}"]
    for _ in range(2):  # other processes may slow the first one down
        done = subprocess.run(
            [sys.executable, "-c", START, *words], capture_output=True, text=True, timeout=300
        )
        _, used, has_scipy, code = done.stdout.splitlines()[-1].split()
        assert "2 of 2 repeats done" in done.stdout
        assert (has_scipy, code) == ("False", "0")
        if float(used) < 1:
            break
    assert float(used) < 1


NOISE = '''\
"""A mechanism of a user's own."""
from dataclasses import dataclass

from lpgnn.privacy import MultiBit


@dataclass(frozen=True)
class Uniform(MultiBit):
    def scale(self) -> float:
        return SIZE * super().scale()


SIZE = 1.0
'''


@dataclass(frozen=True)
class Done:
    code: int
    stdout: str


NewProcess = Callable[..., Done]


@pytest.fixture
def as_new(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    import_anew: Imports,
) -> NewProcess:
    """The command in this process, which forgets modules and graphs as a new one would."""
    monkeypatch.chdir(tmp_path)

    def as_new(*words: str) -> Done:
        import_anew(tmp_path)
        config._loaded_facts.cache_clear()
        capsys.readouterr()
        code = main(["device=cpu", "kernels=torch", *words])
        return Done(code, capsys.readouterr().out)

    return as_new


def test_rows_of_an_edited_plug_in_no_longer_count(tmp_path: Path, as_new: NewProcess) -> None:
    words = [
        *("dataset.num_nodes=120", "dataset.num_classes=3", "dataset.num_features=40"),
        *("mechanism=custom", "mechanism._target_=noise.Uniform"),
        *("max_epochs=2", "repeats=2", "results_dir=results", "--workers", "0"),
    ]
    (tmp_path / "noise.py").write_text(NOISE)
    first, again = command(*words, cwd=tmp_path), as_new(*words)
    assert (first.returncode, again.code) == (0, 0), first.stderr
    assert "0 of 2 repeats done" in first.stdout
    assert "2 of 2 repeats done" in again.stdout
    assert "no longer count" not in first.stdout + again.stdout

    (tmp_path / "noise.py").write_text(NOISE.replace("SIZE = 1.0", "SIZE = 3.0"))
    edited = as_new(*words)
    assert edited.code == 0
    (line,) = [text for text in edited.stdout.splitlines() if "no longer count" in text]
    assert line == "2 earlier rows no longer count: the source of mechanism has changed"
    assert "0 of 2 repeats done" in edited.stdout
    rows = RowStore(tmp_path / "results").read("sbm")
    assert len(rows) == 4
    assert len({row["id"] for row in rows}) == 2
    assert len({row["paper/val/loss"] for row in rows}) == 4


def test_values_of_an_edited_metric_no_longer_count(tmp_path: Path, as_new: NewProcess) -> None:
    words = [
        *("dataset.num_nodes=120", "dataset.num_classes=3", "dataset.num_features=40"),
        *("+metrics.fixed=own_metric.fixed", "metric=fixed"),
        *("max_epochs=2", "repeats=2", "results_dir=results", "--workers", "0"),
    ]
    metric = "def fixed(labels, predictions, probabilities):\n    return 1.5\n"
    (tmp_path / "own_metric.py").write_text(metric)
    first, again = (as_new(*words) for _ in range(2))
    assert "test fixed 1.5 ± 0.0" in first.stdout
    assert "2 of 2 repeats done" in again.stdout
    (tmp_path / "own_metric.py").write_text(metric.replace("1.5", "2.5"))
    edited = as_new(*words)
    assert edited.code == 0
    line = "2 earlier rows no longer count: the source of metrics.fixed has changed"
    assert line in edited.stdout.splitlines()
    assert "test fixed 2.5 ± 0.0" in edited.stdout
    assert len(RowStore(tmp_path / "results").read("sbm")) == 2  # the same computation


GRAPH_FILE = '''\
"""A graph of a user's own, whose size stands in a file."""
from lpgnn import BlockModel


def load(data_dir):
    size = int((data_dir / "size.txt").read_text())
    return BlockModel(num_nodes=size, num_classes=3, num_features=40).generate()
'''


def test_rows_of_a_replaced_graph_are_not_mixed_with_those_of_the_new_one(
    tmp_path: Path, as_new: NewProcess
) -> None:
    words = [
        *("dataset=custom", "dataset._target_=own.load", "+dataset.name=mine", "max_epochs=2"),
        *(f"data_dir={tmp_path}", "results_dir=results", "--workers", "0"),
    ]
    (tmp_path / "own.py").write_text(GRAPH_FILE)
    (tmp_path / "size.txt").write_text("290")
    small = as_new(*words, "repeats=1")
    assert small.code == 0
    assert "mine: 290 nodes" in small.stdout
    (tmp_path / "size.txt").write_text("772")
    large = as_new(*words, "repeats=2")
    assert large.code == 0
    assert "mine: 772 nodes" in large.stdout
    assert "0 of 2 repeats done" in large.stdout
    rows = RowStore(tmp_path / "results").read("mine")
    by_graph = Counter(row["fingerprint"] for row in rows)
    old, new = sorted(by_graph, key=lambda fingerprint: by_graph[fingerprint])
    assert by_graph == {old: 1, new: 2}
    (line,) = [text for text in large.stdout.splitlines() if "no longer count" in text]
    assert line == (
        f"1 earlier row no longer counts: mine was another graph (fingerprint {old}, now {new})"
    )
    mean = sum(float(r["released/test/acc"]) for r in rows if r["fingerprint"] == new) / 2
    assert f"test acc {mean:.1f} ±" in large.stdout
    # The function itself may change: the graph it returns decides.
    (tmp_path / "own.py").write_text(GRAPH_FILE + "# edited\n")
    same = as_new(*words, "repeats=2", "--dry-run")
    assert "1 configuration, 1 done" in same.stdout


def test_options_that_are_not_those_of_a_row_are_no_news(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another value of an option is another run, and nothing that an earlier row has lost."""
    assert run(tmp_path, "mechanism=ag") == 0
    assert run(tmp_path, "mechanism=ag", "mechanism.delta=1e-3") == 0
    captured = capsys.readouterr()
    assert "no longer count" not in captured.out
    assert captured.out.count("0 of 2 repeats done") == 2
    options = [json.loads(row["options"]) for row in RowStore(tmp_path).read("sbm")]
    assert Counter(one["mechanism.delta"] for one in options) == {1e-10: 2, 1e-3: 2}


def start(folder: Path, *overrides: str, workers: int) -> subprocess.Popen[str]:
    process: subprocess.Popen[str] = kill_test.start_sweep(overrides, folder, workers)
    return process


def wait_until(what: Callable[[], bool], seconds: float) -> bool:
    """Whether something comes true in time; the time is for a machine under load."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if what():
            return True
        time.sleep(0.02)
    return False


def group_is_gone(group: int) -> bool:
    """Whether no process of a group lives; the dead that nobody waited for do not count."""
    for entry in Path("/proc").iterdir():
        try:
            state, _, own_group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if int(own_group) == group and state not in "ZX":
            return False
    return True


def test_two_sweeps_on_one_folder_give_the_rows_of_one(undisturbed: Path, tmp_path: Path) -> None:
    def sweep() -> None:
        assert run(tmp_path, "-m", *GRID, workers=1) == 0

    other = in_child(sweep)
    # Its plan is made and no row is there: from here on both compute the same.
    assert wait_until(lambda: any((tmp_path / "local" / "sweeps").glob("*")), 60)
    assert grid(tmp_path, *GRID) == 0
    assert os.waitpid(other, 0)[1] == 0
    assert stored_science(tmp_path) == stored_science(undisturbed)


def test_rows_after_kills_are_those_of_an_undisturbed_sweep(
    undisturbed: Path, tmp_path: Path
) -> None:
    expected = kill_test.science_lines(undisturbed)
    assert len(expected) == NUM_ROWS
    # The seed has both kills fall after a row: in the process itself, and in workers.
    history = kill_test.compare_killed(GRID, tmp_path, 2, expected, seed=3)
    steps = zip([0, *history], history, strict=False)
    under_way = sum(before < after < NUM_ROWS for before, after in steps)
    assert under_way >= 1  # not only at start-up


def test_the_kill_test_notices_a_changed_row(undisturbed: Path, tmp_path: Path) -> None:
    expected = kill_test.science_lines(undisturbed)
    store = RowStore(tmp_path)
    rows = RowStore(undisturbed).read("sbm")
    store.append("sbm", [*rows[:-1], rows[-1] | {"duration": "1e9", "revision": "other"}])
    assert kill_test.science_lines(tmp_path) == expected
    assert kill_test.count_rows(tmp_path) == NUM_ROWS
    store.append("sbm", [rows[-1] | {"paper/epoch": "999"}])
    assert kill_test.count_rows(tmp_path) == NUM_ROWS
    assert kill_test.science_lines(tmp_path) != expected


def test_the_kill_test_notices_a_lost_row(undisturbed: Path, tmp_path: Path) -> None:
    expected = kill_test.science_lines(undisturbed)
    RowStore(tmp_path).append("sbm", RowStore(undisturbed).read("sbm"))
    (shard,) = (tmp_path / "local" / "shards").iterdir()
    torn = shard.read_bytes()[:-20]
    shard.unlink()
    shard.with_name(shard.name.replace("sbm.", "sbm.other-")).write_bytes(torn)
    assert kill_test.count_rows(tmp_path) == NUM_ROWS - 1
    assert kill_test.science_lines(tmp_path) == expected[:-1]


# Two workers: one is soon idle, the other busy for much longer than the test.
LONG = ("max_epochs=1,1000000", "repeats=1")


def test_ctrl_c_ends_promptly_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    process = start(tmp_path, *LONG, workers=2)
    try:
        assert wait_until(lambda: has_rows(tmp_path), 60)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        output, _ = process.communicate(timeout=15)
        assert process.returncode == 130
        assert "interrupted; finished runs are kept; rerun to resume" in output
        assert "Traceback" not in output
        assert wait_until(lambda: group_is_gone(process.pid), 5)
    finally:
        _end(process)
    assert kill_test.count_rows(tmp_path) == 1
    kept = {name for name in files(tmp_path) if "/sweeps/" not in name}
    (shard,) = kept - {"local/.claims.lock"}
    assert shard.startswith("local/shards/sbm.")


def test_orphaned_workers_exit_by_themselves(tmp_path: Path) -> None:
    process = start(tmp_path, *LONG, workers=2)
    try:
        assert wait_until(lambda: has_rows(tmp_path), 60)
        assert not group_is_gone(process.pid)
        process.kill()  # the parent only: it can tell nobody
        assert wait_until(lambda: group_is_gone(process.pid), 10)
    finally:
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    if not group_is_gone(process.pid):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
