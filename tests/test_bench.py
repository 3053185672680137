import csv
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from lpgnn.bench.__main__ import main
from lpgnn.bench.floor import EpochClock, Product, ProductRecorder, replay
from lpgnn.bench.profile import EpochProfiler, kind_of
from lpgnn.bench.scale import COLUMNS, block_model, conclusions, dense_mb, growth, read_rows
from lpgnn.bench.speed import CASES, Speed, _write
from lpgnn.config import Settings
from lpgnn.data import BlockModel, CsrMatrix
from lpgnn.engine import run_repeats
from lpgnn.errors import InputError
from lpgnn.learners import Drop
from lpgnn.propagation import KProp
from lpgnn.propagation.compiled import CompiledMatrix
from lpgnn.rows import RowStore

SMALL = BlockModel(num_nodes=120, num_classes=3, num_features=40)


def test_sparse_products_are_recorded_while_it_listens() -> None:
    dense = torch.tensor([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]])
    matrix = CompiledMatrix(CsrMatrix.from_dense(dense), torch.device("cpu"))
    x, out = torch.ones(3, 4), torch.empty(2, 4)
    with ProductRecorder() as recorder:
        matrix.power_into(out, x)
        matrix.affine_into(out, x, 0.5)
    assert torch.equal(out, dense @ x + 1.5)  # what it listens to goes on
    matrix.power_into(out, x)
    assert recorder.products == [Product(matrix, 4, 1)] * 2
    assert replay(recorder.products) > 0


def recorded_widths(repeats: tuple[int, ...] = (0,), **settings: Any) -> list[int]:
    configuration = Settings(dataset=SMALL, max_epochs=3, **settings).resolve()
    clock = EpochClock()
    run_repeats(configuration, SMALL.generate(), repeats, device="cpu", on_epoch=clock)
    assert len(clock.epochs) == len(clock.floors) == 1
    assert clock._recorder is not None
    return [p.width * p.steps for p in clock._recorder.products]


def test_an_epoch_is_recorded_there_and_back() -> None:
    """Each further step of KProp is one more product forward and one more backward."""
    few = sum(recorded_widths(filter=KProp(1), learner=Drop(0)))
    more = sum(recorded_widths(filter=KProp(2), learner=Drop(0)))
    assert more - few == 2 * 16 * 2  # both projections of SAGE, 16 columns each
    labels = sum(recorded_widths(filter=KProp(1), learner=Drop(2)))
    assert labels - few == 2 * 16 * 2  # two steps of three classes, filled up to a register


def test_the_sums_of_attention_heads_are_recorded_there_and_back() -> None:
    """Of GAT's 4 heads and the second layer's one (twice: the evaluation); 16 columns each."""
    widths = recorded_widths(backbone="gat", filter=KProp(0), learner=Drop(0))
    reports = 2 * 4 * 16  # the projections' own products, there and back
    assert sum(widths) - reports == 16 * (4 + 2 + 4 + 1)
    both = recorded_widths(repeats=(0, 1), backbone="gat", filter=KProp(0), learner=Drop(0))
    assert sum(both) == 2 * sum(widths)  # runs may share a call


@pytest.mark.slow
def test_a_profile_accounts_for_the_whole_epoch() -> None:
    configuration = Settings(dataset=SMALL, max_epochs=6, backbone="gat").resolve()
    profiler = EpochProfiler(4)
    run_repeats(configuration, SMALL.generate(), [0, 1], device="cpu", on_epoch=profiler)
    spent = profiler.milliseconds
    assert profiler.runs == 2
    assert all(value >= 0 for value in spent.values())
    for kind in ("sparse products", "attention: scores, weights and sums over edges", "dropout"):
        assert spent[kind] > 0, kind
    assert profiler.calls > 50
    assert kind_of("_ProjectAndPropagateBackward") == kind_of("_Power") == "sparse products"
    assert kind_of("aten::bmm") != kind_of("aten::add")


def test_a_clock_starts_anew_when_the_batch_changes() -> None:
    clock = EpochClock(with_floor=False)
    for runs in (2, 2, 2, 2, 1, 1, 1):
        clock(runs)
    assert len(clock.epochs) == 3
    assert clock.floors == []


def test_a_case_whose_data_is_missing_is_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lpgnn.data.Cora.load", _missing)
    words = ["cases=cora", f"data_dir={tmp_path}", f"results_dir={tmp_path / 'results'}"]
    assert main(words) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in shown] == ["skipped cora sage mb", "skipped cora gat mb"]
    assert not (tmp_path / "results").exists()


def _missing(*_: object) -> None:
    raise InputError("data_dir", "here", "holds no graph")


def test_rows_of_cases_that_were_not_measured_stay(tmp_path: Path) -> None:
    first = Speed("cora sage mb", 100.0, 5.0, 15, 2.5)
    _write([first, Speed("facebook sage lp", 90.0, 9.0, 6, None)], [], 10, tmp_path)
    again = Speed("cora sage mb", 80.0, 4.0, 15, 2.0)
    _write([again], [], 10, tmp_path)
    with (tmp_path / "speed.csv").open(newline="") as file:
        rows = {row["case"]: row["ours_ms"] for row in csv.DictReader(file)}
    assert rows == {"cora sage mb": "4.00", "facebook sage lp": "9.00"}


def test_a_line_of_the_table() -> None:
    shown = Speed("cora", 100.0, 5.0, 15, 2.5).columns()
    assert (shown["ratio"], shown["epoch_per_floor"]) == ("20.0", "2.00")
    dense = Speed("lp", 100.0, 5.0, 6, None).columns()
    assert (dense["floor_ms"], dense["epoch_per_floor"], dense["floor_goal"]) == ("", "", "")
    dense_cases = [name for name, case in CASES.items() if case.configuration().holds_matrix]
    assert dense_cases == ["facebook sage lp"]


def scale_row(nodes: int, epoch_s: float | str, side: str = "ours") -> dict[str, Any]:
    row = {"side": side, "nodes": nodes, "edges": 5 * nodes, "features": 5000, "graph_s": 1.0}
    return row | {"epoch_s": epoch_s, "peak_mb": 2000, "dense_mb": dense_mb(nodes, 5000)}


def test_growth_is_the_slope_of_the_logarithms() -> None:
    rows = [scale_row(n, 1e-6 * n**1.1) for n in (10**4, 10**5, 10**6)]
    plain = [scale_row(10**4, 1.0, "plain"), scale_row(10**6, "", "plain")]
    assert growth(rows + plain) == pytest.approx(1.1)
    assert growth(rows, 10**5) == pytest.approx(1.1)
    assert math.isnan(growth(rows[:1]))
    text = "\n".join(conclusions(rows + plain))
    assert "edges^1.10" in text
    assert "a million nodes: 2.00 GB" in text
    assert "not run, features alone 20 GB" in text


def check_measured(text: str) -> None:
    row = json.loads(text)
    assert tuple(row) == COLUMNS
    assert row["edges"] == 1500
    assert row["epoch_s"] > 0
    assert row["peak_mb"] > 50


@pytest.mark.slow
def test_one_size_is_measured_in_its_own_process() -> None:
    command = [sys.executable, "-m", "lpgnn.bench", "one", "side=ours", "nodes=300"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    check_measured(done.stdout)


def test_one_size_is_measured_by_the_plain_pipeline(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["one", "side=plain", "nodes=300"]) == 0
    check_measured(capsys.readouterr().out)


@pytest.mark.slow
def test_scale_is_drawn_from_its_rows(tmp_path: Path) -> None:
    folder = tmp_path / "bench"
    folder.mkdir()
    rows = [scale_row(10**4, 0.02), scale_row(10**5, 0.3), scale_row(10**4, 0.9, "plain")]
    with (folder / "scale.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows([*rows, scale_row(10**5, "", "plain")])
    assert read_rows(folder / "scale.csv")[0]["epoch_s"] == 0.02
    assert main(["scale", "draw=only", f"results_dir={tmp_path}"]) == 0
    first = (folder / "scale.svg").read_bytes()
    assert main(["scale", "draw=only", f"results_dir={tmp_path}"]) == 0
    assert (folder / "scale.svg").read_bytes() == first
    assert (folder / "scale.png").stat().st_size > 1000


def test_costs_are_fitted_to_what_was_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["costs", f"results_dir={tmp_path}"]) == 2
    assert "holds no rows" in capsys.readouterr().err
    store = RowStore(tmp_path)
    for nodes in (100, 200, 400):
        graph = BlockModel(num_nodes=nodes, num_classes=3, num_features=40)
        configuration = Settings(dataset=graph, max_epochs=3).resolve()
        rows = run_repeats(configuration, graph.generate(), [0], device="cpu")
        store.append("sbm", [row | {"duration": 3e-4 * nodes} for row in rows])
    assert main(["costs", f"results_dir={tmp_path}"]) == 0
    record = json.loads((tmp_path / "bench" / "costs.json").read_text())
    assert record["kinds"] == record["samples"] == 3
    assert record["median_log2_error"] < 0.2


def test_sizes_of_the_scale_are_the_block_models_own() -> None:
    assert block_model(30_000).num_nodes == 30_000
    assert block_model(30_000).num_features == 5000


def test_words_that_mean_nothing_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["fast"], ["cases"], ["cases=nope"], ["nodes=3"], ["scale", "runs=3"]):
        assert main(words) == 2
        assert capsys.readouterr().err.startswith("error: ")
