import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from lpgnn import experiment
from lpgnn.results import RowStore
from lpgnn.run import main
from small_run import science_text


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


@pytest.fixture(autouse=True)
def _restore_arithmetic() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    torch.set_flush_denormal(False)


def run(folder: Path, *overrides: str, workers: int = 1) -> int:
    """The command in this process, on the small graph."""
    where = (f"results_dir={folder}", "device=cpu")
    return main(
        [*GRAPH, "max_epochs=3", "repeats=2", *where, *overrides, "--workers", str(workers)]
    )


def grid(folder: Path, *overrides: str) -> int:
    return run(folder, "-m", *overrides)


def rows_file(folder: Path) -> Path:
    return RowStore(folder).path("sbm")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a sweep that nothing disturbed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    assert grid(folder, *GRID) == 0
    torch.set_flush_denormal(False)
    return folder


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[int, ...]]]:
    """(identity, repeats) of everything that is trained in this process."""
    calls: list[tuple[str, tuple[int, ...]]] = []
    usual = experiment.run_members

    def watched(members, graph, **options):  # type: ignore[no-untyped-def]
        for configuration in dict.fromkeys(configuration for configuration, _ in members):
            repeats = tuple(repeat for own, repeat in members if own is configuration)
            calls.append((configuration.identity, repeats))
        return usual(members, graph, **options)

    monkeypatch.setattr(experiment, "run_members", watched)
    return calls


Trained = list[tuple[str, tuple[int, ...]]]


def test_one_run_tells_its_plan_and_its_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "x_eps=0.5", "y_eps=2", "mechanism=ag") == 0
    out = capsys.readouterr().out
    for told in (
        "300 nodes",
        "4 classes",
        "ag at x_eps = 0.5",
        "sigma = ",
        "randomized response at y_eps = 2",
        "2.5 a node, delta = 1e-10",
        "K_x = ",
        "learning rate 0.01",
        "paper table, as cora: x_steps, y_steps, learning_rate, weight_decay, dropout",
        "0 of 2 repeats done",
        "test accuracy",
        "±",
        str(tmp_path / "rows"),
    ):
        assert told in out, told
    rows = RowStore(tmp_path).read("sbm")
    accuracy = sum(float(row["paper/test/acc"]) for row in rows) / 2
    assert f"test accuracy {accuracy:.1f} ±" in out


def test_the_summary_is_that_of_the_chosen_rule(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "selection=released", "max_epochs=30") == 0
    rows = RowStore(tmp_path).read("sbm")
    means = {r: sum(float(w[f"{r}/test/acc"]) for w in rows) / 2 for r in ("paper", "released")}
    out = capsys.readouterr().out
    assert f"test accuracy {means['released']:.1f} ±" in out
    assert f"paper rule {means['paper']:.1f} ±" in out


def test_a_grid_stores_and_tells_every_configuration(
    undisturbed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = RowStore(undisturbed).read("sbm")
    assert len(rows) == NUM_ROWS
    assert len({row["id"] for row in rows}) == NUM_CONFIGURATIONS
    assert {row["status"] for row in rows} == {"ok"}
    assert grid(undisturbed, *GRID) == 0
    assert capsys.readouterr().out.count("test accuracy") == NUM_CONFIGURATIONS


def test_finished_configurations_are_skipped(undisturbed: Path, trained: Trained) -> None:
    file = rows_file(undisturbed)
    before, changed = file.read_bytes(), file.stat().st_mtime_ns
    assert grid(undisturbed, *GRID) == 0
    assert trained == []
    assert file.read_bytes() == before
    assert file.stat().st_mtime_ns == changed


def test_force_computes_again(tmp_path: Path, trained: Trained) -> None:
    assert run(tmp_path) == 0
    before = science_text(rows_file(tmp_path))
    assert run(tmp_path, "force=true") == 0
    assert len(trained) == 2
    assert trained[0] == trained[1]
    assert science_text(rows_file(tmp_path)) == before


def test_only_missing_repeats_are_computed(tmp_path: Path, trained: Trained) -> None:
    assert run(tmp_path, "repeats=2") == 0
    before = rows_file(tmp_path).read_text()
    assert run(tmp_path, "repeats=4") == 0
    assert [repeats for _, repeats in trained] == [(0, 1), (2, 3)]
    after = rows_file(tmp_path).read_text()
    assert after.startswith(before)
    assert len(after.splitlines()) == 1 + 4


def test_fewer_repeats_are_summarised_alone(
    undisturbed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(undisturbed, "max_epochs=20", "repeats=1") == 0
    out = capsys.readouterr().out
    assert "1 repeats" in out
    assert "± 0.0" in out


def test_shared_configurations_are_computed_once(tmp_path: Path, trained: Trained) -> None:
    # Drop without steps is forward correction; without perturbation there is no mechanism.
    assert grid(tmp_path, "learner=drop,forward", "y_steps=0", "x_eps=inf", "mechanism=mb,lp") == 0
    assert len(trained) == 1
    assert len(RowStore(tmp_path).read("sbm")) == 2
    assert run(tmp_path, "learner=forward", "x_eps=inf", "mechanism=ag") == 0
    assert len(trained) == 1


def test_a_grid_with_several_numbers_of_repeats_computes_the_most(tmp_path: Path) -> None:
    assert grid(tmp_path, "repeats=1,3") == 0
    assert len(RowStore(tmp_path).read("sbm")) == 3


def test_a_grid_over_folders_is_not_half_obeyed(tmp_path: Path) -> None:
    folders = f"results_dir={tmp_path / 'a'},{tmp_path / 'b'}"
    code = main(["-m", *GRAPH, "max_epochs=3", "repeats=1", folders, "--workers", "1"])
    assert code == 2 or all(rows_file(tmp_path / name).is_file() for name in "ab")


def test_a_dry_run_counts_and_writes_nothing(
    undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], trained: Trained
) -> None:
    assert grid(tmp_path / "new", *GRID, "--dry-run") == 0
    out = capsys.readouterr().out
    assert f"{NUM_CONFIGURATIONS} configurations, 0 done, {NUM_CONFIGURATIONS} to do" in out
    assert not (tmp_path / "new").exists()

    before = rows_file(undisturbed).read_bytes()
    assert grid(undisturbed, *GRID, "y_eps=1,2", "--dry-run") == 0
    assert "12 configurations, 6 done, 6 to do, about" in capsys.readouterr().out
    assert rows_file(undisturbed).read_bytes() == before
    assert trained == []


@pytest.mark.parametrize("name", ["convexity", "datasets", "tuning"])
def test_a_dry_run_of_other_tasks_does_nothing_either(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def computed(*args: object, **options: object) -> None:
        raise AssertionError("a dry run computes nothing")

    monkeypatch.setattr("lpgnn.tune.run_tasks", computed)
    code = grid(tmp_path / "new", f"+experiment={name}", "dataset=sbm", "--dry-run")
    assert code in (0, 2)  # 2: this task knows no dry run, and says so
    assert not (tmp_path / "new").exists()


def test_a_failing_configuration_is_named_and_stops_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = "+dataset.target=small_run.breaks_with_seed_1"
    assert grid(tmp_path, target, "dataset.seed=0,1,2", "x_eps=0.5") == 1
    captured = capsys.readouterr()
    assert len(RowStore(tmp_path).read("sbm")) == 4
    (line,) = [text for text in captured.err.splitlines() if text.startswith("error: ")]
    assert "ArithmeticError: the graph of seed 1 is broken" in line
    assert "sbm sage mb x_eps=0.5" in line
    assert captured.out.count("test accuracy") == 2
    # What failed is tried again, what is done is not.
    assert grid(tmp_path, target, "dataset.seed=0,1,2", "x_eps=0.5") == 1


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


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (["x_eps=-1"], "x_eps=-1"),
        (["x_eps=1,2"], "x_eps=1,2"),
        (["mechanism=zz"], "mechanism=zz"),
        (["nothing=1"], "nothing=1"),
        (["device=abacus", "force=true"], "device=abacus"),
        (["dataset.num_nodes=3"], "dataset.num_nodes=3"),
        (["+dataset.colour=3"], "colour"),
        (["+mechanism.colour=3"], "colour"),
        (["+backbone.colour=3"], "colour"),
        (["mechanism.num_samples=5000"], "num_samples=5000"),
        (["mechanism.num_samples=two"], "num_samples"),
        (["dataset.num_nodes=40", "dataset.average_degree=2"], "every class must occur"),
        (["-m", "x_eps=1,-2"], "x_eps=-2"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_ends_with_code_2_and_one_line(
    overrides: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, *overrides) == 2
    error = capsys.readouterr().err
    told = [line for line in error.splitlines() if line and "runs" not in line]  # no progress bar
    assert [line.startswith("error: ") for line in told] == [True]
    assert named in told[0]


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], trained: Trained
) -> None:
    (tmp_path / "taken").write_text("")
    assert run(tmp_path / "taken") == 2
    assert f"results_dir={tmp_path / 'taken'}" in capsys.readouterr().err
    assert trained == []


@pytest.mark.parametrize("workers", ["0", "-1"])
def test_workers_are_checked(workers: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--workers", workers]) == 2
    assert "--workers" in capsys.readouterr().err


def test_an_interrupt_ends_with_code_130(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(experiment, "run_members", interrupted)
    assert run(tmp_path) == 130
    assert "interrupted" in capsys.readouterr().err


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
    sweeps = [start(tmp_path, *GRID, workers=1) for _ in range(2)]
    wrong = [sys.executable, "-m", "lpgnn.run", "x_eps=-1"]
    bad = subprocess.run(wrong, capture_output=True, text=True, timeout=120)
    for process in sweeps:
        kill_test.finish(process)  # both end with code 0
    expected = science_text(rows_file(undisturbed))
    assert science_text(rows_file(tmp_path)) == expected
    assert bad.returncode == 2
    assert bad.stderr == (
        "error: x_eps=-1: must be a positive number, or inf for no perturbation\n"
    )


def test_rows_after_kills_are_those_of_an_undisturbed_sweep(
    undisturbed: Path, tmp_path: Path
) -> None:
    expected = kill_test.science_lines(undisturbed)
    assert len(expected) == 1 + NUM_ROWS
    history = kill_test.compare_killed(GRID, tmp_path, 5, expected, seed=1)
    steps = zip([0, *history], history, strict=False)
    under_way = sum(before < after < NUM_ROWS for before, after in steps)
    assert under_way >= 1  # not only at start-up


def test_the_kill_test_notices_a_changed_row(undisturbed: Path, tmp_path: Path) -> None:
    expected = kill_test.science_lines(undisturbed)
    store = RowStore(tmp_path)
    rows = RowStore(undisturbed).read("sbm")
    store.add("sbm", [*rows[:-1], rows[-1] | {"duration": "1e9", "revision": "other"}])
    assert kill_test.science_lines(tmp_path) == expected
    store.add("sbm", [rows[-1] | {"paper/epoch": "999"}])
    assert kill_test.science_lines(tmp_path) != expected
    text = rows_file(tmp_path).read_text()
    rows_file(tmp_path).write_text(text[:-20])
    with pytest.raises(RuntimeError, match="damaged"):
        kill_test.science_lines(tmp_path)


# Two workers: one is soon idle, the other busy for much longer than the test.
LONG = ("max_epochs=1,1000000", "repeats=1")


def test_ctrl_c_ends_promptly_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    process = start(tmp_path, *LONG, workers=2)
    try:
        assert wait_until(lambda: rows_file(tmp_path).is_file(), 60)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        output, _ = process.communicate(timeout=15)
        assert process.returncode == 130
        assert "interrupted" in output
        assert "Traceback" not in output
        assert wait_until(lambda: group_is_gone(process.pid), 5)
    finally:
        _end(process)
    assert kill_test.count_rows(tmp_path) == 1
    left = {path.name for path in (tmp_path / "rows").iterdir()}
    assert left <= {"sbm.csv", ".sbm.lock"}


def test_orphaned_workers_exit_by_themselves(tmp_path: Path) -> None:
    process = start(tmp_path, *LONG, workers=2)
    try:
        assert wait_until(lambda: rows_file(tmp_path).is_file(), 60)
        assert not group_is_gone(process.pid)
        process.kill()  # the parent only: it can tell nobody
        assert wait_until(lambda: group_is_gone(process.pid), 10)
    finally:
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    if not group_is_gone(process.pid):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
