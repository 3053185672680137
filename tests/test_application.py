"""lpgnn.run as a Hydra application: what Hydra's users expect of one."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hydra.core.config_store import ConfigStore

import models.pyg  # noqa: F401  # past the warnings of torch-geometric's import
from lpgnn.errors import RunError
from lpgnn.hyperparameters import conf_dir
from lpgnn.rows import RowStore, SweepRecord, Wanted, at_work
from lpgnn.run import main
from lpgnn.status import main as status
from lpgnn.sweeps import Task
from lpgnn.sweeps.jobs import Sight, compute_job, failures_of, write_jobs
from lpgnn.sweeps.slurm import SlurmQueue
from small_run import small, stored_science

pytestmark = pytest.mark.slow

GRAPH = ("dataset.num_nodes=300", "dataset.num_classes=4", "dataset.num_features=90")
SMALL = (*GRAPH, "max_epochs=3", "repeats=2", "device=cpu", "workers=0")


def run(*words: str) -> int:
    return main([*SMALL, *words])


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A config folder of a user's own: a dataset, a mechanism and an experiment."""
    files = {
        "dataset/tiny.yaml": """\
            _target_: lpgnn.data.BlockModel
            num_nodes: 120
            num_classes: 3
            num_features: 40
            """,
        "mechanism/Fine.yaml": """\
            _target_: lpgnn.privacy.MultiBit
            num_samples: 4
            """,
        "experiment/mine.yaml": """\
            # @package _global_
            grid:
              - {dataset: tiny, mechanism: [mb, Fine], x_eps: 2}
            """,
    }
    for name, text in files.items():
        path = tmp_path / "own" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return tmp_path / "own"


def test_cfg_shows_the_job(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--cfg", "job", "dataset=cora", "mechanism=LP", "x_eps=0.25"]) == 0
    shown = capsys.readouterr().out
    for line in ("x_eps: 0.25", "_target_: lpgnn.privacy.Laplace", "workers: null"):
        assert line in shown
    assert main(["--cfg", "job", "+experiment=mechanisms", "--package", "title"]) == 0
    assert "Mechanisms" in capsys.readouterr().out


def test_info_names_the_sweeper_and_the_search_path(
    capsys: pytest.CaptureFixture[str], own: Path
) -> None:
    assert main(["--info", "plugins"]) == 0
    assert "LpgnnSweeper" in capsys.readouterr().out
    assert main(["--info", "searchpath", "--config-dir", str(own)]) == 0
    assert str(own) in capsys.readouterr().out


def test_help_lists_groups_and_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for text in (
        "usage: lpgnn run",
        "dataset: actor, chameleon",
        "experiment: budget_split, budgets",
        "hydra/launcher: basic, joblib",
        "x_eps: 1.0",
    ):
        assert text in shown


def test_help_lists_what_is_in_folders_of_ones_own(
    capsys: pytest.CaptureFixture[str], own: Path
) -> None:
    assert main(["--help", "--config-dir", str(own)]) == 0
    assert "sbm, squirrel, tiny, tolokers" in capsys.readouterr().out


@pytest.mark.parametrize("many", [(), ("-m",), ("--cfg", "job")])
@pytest.mark.parametrize("way", ["--config-dir={}", "hydra.searchpath=[file://{}]"])
def test_a_file_of_the_name_of_one_of_ours_is_refused(
    way: str, many: tuple[str, ...], own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hydra would run ours in silence."""
    (own / "mechanism" / "Fine.yaml").rename(own / "mechanism" / "mb.yaml")
    assert run(*many, way.format(own), "mechanism=mb", f"results_dir={own}") == 2
    output = capsys.readouterr()
    reason = f"has mechanism/mb.yaml, and so has {conf_dir().resolve()}: rename one of them"
    assert output.err == f"error: {way.partition('=')[0]}={own}: {reason}\n"
    assert output.out == ""
    assert run("hydra.searchpath=3") == 2
    assert "hydra.searchpath=3: must be a list of folders" in capsys.readouterr().err


@pytest.mark.parametrize("way", ["config-dir", "searchpath"])
def test_a_folder_of_ones_own(
    own: Path, tmp_path: Path, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = {
        "config-dir": ("--config-dir", str(own)),
        "searchpath": (f"hydra.searchpath=[file://{own}]",),
    }[way]
    where = (*words, f"results_dir={tmp_path / 'results'}", "repeats=1", "max_epochs=2")
    assert main(["experiment=mine", *where, "--dry-run"]) == 0
    assert "2 configurations, 0 done, 2 to do" in capsys.readouterr().out
    spelling = "fine" if way == "config-dir" else "Fine"
    assert main(["dataset=tiny", f"mechanism={spelling}", *where, "workers=0"]) == 0
    (row,) = RowStore(tmp_path / "results").read("sbm")
    assert json.loads(row["options"])["mechanism.num_samples"] == 4
    assert main(["-m", "dataset=tiny", "mechanism=glob([mb,F*])", *where, "--dry-run"]) == 0
    assert "2 configurations, 1 done, 1 to do" in capsys.readouterr().out


def test_hydra_leaves_no_folder_behind_unless_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("results_dir=rows") == 0
    assert run("-m", "results_dir=rows", "x_eps=1,2") == 0
    assert [path.name for path in tmp_path.iterdir()] == ["rows"]
    assert list((tmp_path / "rows" / "local" / "sweeps").iterdir()) == []
    assert run("results_dir=rows", "hydra.run.dir=mine", "hydra.output_subdir=.hydra") == 0
    assert "x_eps: 1.0" in (tmp_path / "mine" / ".hydra" / "config.yaml").read_text()
    assert Path.cwd() == tmp_path


def test_a_sweep_folder_of_ones_own_has_what_hydra_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    grid = ("-m", "results_dir=rows", "x_eps=1,2", "hydra.sweep.dir=mine")
    assert run(*grid, "--dry-run") == 0
    assert list(tmp_path.iterdir()) == []
    assert run(*grid) == 0
    kept = (tmp_path / "mine" / "multirun.yaml").read_text()
    assert "results_dir: rows" in kept
    assert "- x_eps=1,2" in kept
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["multirun.yaml"]
    assert list((tmp_path / "rows" / "local" / "sweeps").iterdir()) == []
    (tmp_path / "file").touch()
    capsys.readouterr()
    assert run(*grid, "hydra.sweep.dir=file") == 2
    expected = "error: hydra.sweep.dir=file: must be a writable folder (File exists)\n"
    assert capsys.readouterr().err == expected


def test_what_is_no_grid_may_belong_to_one_choice_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hydra itself would look for the option in the default choice."""
    words = ("learner=residual", "learner.smooth=2", "x_eps=1,2", "--dry-run")
    assert run("-m", f"results_dir={tmp_path}", *words) == 0
    assert "2 configurations" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-m", "x_eps=interval(0,1)"], "error: x_eps=interval(0,1): has no steps"),
        (["x_eps=1,2"], "error: x_eps=1,2: is a grid: add -m"),
        (
            ["hydra/launcher=nowhere", "-m"],
            "error: hydra/launcher=nowhere: must be one of basic, joblib",
        ),
        (["hydra.nothing=1"], "error: hydra.nothing=1: not understood"),
        (["logger=null"], "error: logger=null: must be one of"),
        (["-m", "mechanism=5"], "error: mechanism=5: must be one of"),
        (["=1"], "error: =1: unknown setting"),
        (["hydra.run.dir=/proc/x", "hydra.output_subdir=a"], "error: hydra.run.dir=/proc/x: not"),
        (["--workers"], "error: --workers: needs a value"),
        (["~nothing"], "error: nothing="),
        (["~filter.steps"], "error: filter.steps=null: is null already: leave ~filter.steps out"),
        (["~x_eps"], "error: x_eps=null: every run has this setting: give it a value instead"),
        (["-m", "~mechanism", "x_eps=1,2"], "error: mechanism=null: every run has this setting"),
    ],
    ids=lambda value: str(value),
)
def test_bad_input_is_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(f"results_dir={tmp_path}", *words) == 2
    error = capsys.readouterr().err
    assert error.startswith(message)
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("launcher", "extra"),
    [("joblib", "joblib"), ("submitit_slurm", "slurm"), ("slurm_gpu", "slurm"), ("ray", "ray")],
)
def test_a_launcher_that_is_not_installed_names_its_extra(
    launcher: str,
    extra: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Installed launchers are in Hydra's store of structured configs.
    groups = ConfigStore.instance().repo["hydra"]
    monkeypatch.setitem(groups, "launcher", {"basic.yaml": groups["launcher"]["basic.yaml"]})
    assert run("-m", f"results_dir={tmp_path}", f"hydra/launcher={launcher}") == 2
    told = f"its plug-in is not installed: pip install 'lpgnn[{extra}]'"
    assert capsys.readouterr().err == f"error: hydra/launcher={launcher}: {told}\n"


def test_values_of_flags_are_no_overrides(capsys: pytest.CaptureFixture[str]) -> None:
    """Hydra shows its own part alone, without what it refers to."""
    assert main(["--cfg", "hydra", "--resolve"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: --cfg=hydra: not understood: Interpolation key")


def test_everything_is_shown_on_demand(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    assert main(["x_eps=-1"]) == 2
    error = capsys.readouterr().err
    assert "Traceback" in error
    assert "error: x_eps=-1: must be a positive number" in error
    assert os.environ["HYDRA_FULL_ERROR"] == "1"


def test_the_shell_completes_verbs_and_choices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Hydra's bash function asks for them, also in a folder of one's own."""
    from lpgnn.__main__ import main as lpgnn

    own = tmp_path / "conf" / "dataset" / "village.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("_target_: lpgnn.data.BlockModel\n")
    monkeypatch.chdir(tmp_path)

    for line, expected in (
        ("lpgnn ru", {"run", "status"}),
        ("lpgnn run mechanism=", {"mechanism=mb", "mechanism=ag"}),
        ("lpgnn run x_eps=1 learner=d", {"learner=drop"}),
        ("lpgnn run --config-dir conf dataset=v", {"dataset=village"}),
        ("lpgnn run --config-dir=conf dataset=v", {"dataset=village"}),
        ("lpgnn run --config-dir con", set[str]()),
    ):
        monkeypatch.setenv("COMP_LINE", line)
        assert lpgnn(["-sc", "query=bash"]) == 0
        assert expected <= set(capsys.readouterr().out.split())
    assert main(["-sc", "install=bash"]) == 0
    assert capsys.readouterr().out.rstrip().endswith("-F hydra_bash_completion lpgnn")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="no /proc")
def test_a_command_starts_no_threads(tmp_path: Path) -> None:
    """It forks its workers then: a new interpreter for each would take seconds of every job."""
    code = """
        import os
        from lpgnn.application import run_application

        def task(config):
            import torch
            torch.ones(1 << 20).exp()
            print(len(os.listdir("/proc/self/task")), os.environ.get("OMP_NUM_THREADS"))

        run_application(task, [])
        print("OMP_NUM_THREADS" in os.environ)
        """
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert found.stdout.split() == ["1", "1", "False"], found.stderr


@pytest.mark.skipif(find_spec("hydra_plugins.hydra_joblib_launcher") is None, reason="no joblib")
def test_a_launcher_gives_the_rows_of_the_pool(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    grid = ("-m", "x_eps=0.5", "mechanism=mb,lp")
    assert run(f"results_dir={tmp_path / 'pool'}", *grid) == 0
    launcher = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=1")
    assert run(f"results_dir={tmp_path / 'joblib'}", *grid, *launcher) == 0
    assert "for joblib" in capsys.readouterr().out
    assert stored_science(tmp_path / "joblib") == stored_science(tmp_path / "pool")
    assert len(stored_science(tmp_path / "pool")) == 4
    assert list((tmp_path / "joblib" / "local" / "sweeps").iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["joblib", "pool"]
    # Jobs write what Hydra's would where the user wants it, and nothing else.
    own = ("hydra.sweep.dir=mine", "hydra.sweep.subdir=one", "hydra.output_subdir=.hydra")
    assert run("results_dir=other", *grid, *launcher, *own) == 0
    assert stored_science(tmp_path / "other") == stored_science(tmp_path / "pool")
    assert list((tmp_path / "other" / "local" / "sweeps").iterdir()) == []
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == ["multirun.yaml", "one"]
    assert (tmp_path / "mine" / "one" / ".hydra" / "overrides.yaml").is_file()


def job(folder: Path, *overrides: str) -> tuple[Path, Task]:
    """A task's file as the sweeper writes it."""
    from lpgnn.composition import expand

    (point,) = expand([*SMALL, f"results_dir={folder}", *overrides])
    configuration = point.settings.resolve()
    task = Task(((configuration, (0, 1)),))
    sweep = folder / "local" / "sweeps" / "one"
    ((override,),) = write_jobs(sweep, [task], {configuration.identity: point.settings})
    return Path(override.removeprefix("+task='").removesuffix("'")), task


def test_a_sweep_does_not_wait_for_ever_for_a_lost_job_which_computes_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lpgnn.sweeps import jobs

    path, task = job(tmp_path)
    mark = path.with_suffix(".job")
    queue = SlurmQueue(path.parent, 1)  # SLURM was given nothing: it cannot tell
    assert [one.error for one in failures_of(path.parent, [task])] != []  # nobody has begun
    assert jobs.sights(path.parent, [task], queue) == {0: Sight.UNSEEN}
    mark.touch()
    assert jobs.sights(path.parent, [task], queue) == {0: Sight.LOST}
    found = jobs.sights(path.parent, [task, task], queue)
    assert found == {0: Sight.LOST, 1: Sight.UNSEEN}  # the other may come
    with at_work(path.parent, [(task.configuration.identity, 1)]):
        assert jobs.sights(path.parent, [task], queue) == {0: Sight.ALIVE}
    monkeypatch.setattr(jobs, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(jobs, "LOST_SECONDS", 0.1)
    started = time.monotonic()
    with jobs.ended_if_lost(path.parent, [task], queue):
        wait_as_launchers_do()
    assert time.monotonic() - started > 0.1
    (failure,) = failures_of(path.parent, [task])
    assert "its job was lost" in str(failure.error)
    compute_job(path)  # queued again after all
    assert failures_of(path.parent, [task]) == []
    assert not mark.exists()
    assert jobs.sights(path.parent, [task], queue) == {}
    before = {p: p.read_bytes() for p in tmp_path.rglob("*.csv")}
    assert len(RowStore(tmp_path).read("sbm")) == 2
    compute_job(path)  # started once more
    assert {p: p.read_bytes() for p in tmp_path.rglob("*.csv")} == before


def wait_as_launchers_do() -> None:
    """In short steps: a signal just before a sleep, or to another thread, does not cut it short."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        time.sleep(0.02)
    raise AssertionError("nothing has ended the wait")


def slurm_lists(folder: Path, monkeypatch: pytest.MonkeyPatch, *lines: str, code: int = 0) -> None:
    """A squeue that answers with these lines."""
    text = "\n".join(("#!/bin/sh", *(f"echo '{line}'" for line in lines), f"exit {code}\n"))
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / "squeue").write_text(text)
    (folder / "bin" / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")


def submitted(sweep: Path, number: int, script: str = "#!/bin/bash\n#SBATCH --array=0-1\n") -> None:
    """What submitit leaves of a job that it has submitted."""
    (sweep / ".submitit" / str(number)).mkdir(parents=True)
    (sweep / ".submitit" / str(number) / f"{number}_submission.sh").write_text(script)


def test_a_job_that_never_began_is_waited_for_as_long_as_slurm_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that is cancelled while it is pending, or fails before Python, leaves no trace."""
    from lpgnn.sweeps import jobs

    monkeypatch.setattr("lpgnn.sweeps.slurm._ASK_SECONDS", 0.0)
    path, task = job(tmp_path)
    tasks, queue, fresh = [task, task], SlurmQueue(path.parent, 2), SlurmQueue(path.parent, 2)
    unseen = {0: Sight.UNSEEN, 1: Sight.UNSEEN}
    slurm_lists(tmp_path, monkeypatch, "118_0 RUNNING", "118_1 PENDING")
    assert jobs.sights(path.parent, tasks, queue) == unseen  # it is not known that they are ours
    submitted(path.parent, 118)
    assert jobs.sights(path.parent, tasks, queue) == {0: Sight.ALIVE, 1: Sight.ALIVE}
    path.with_suffix(".job").touch()  # killed with its node, and queued again
    assert jobs.sights(path.parent, tasks, queue)[0] is Sight.ALIVE
    path.with_suffix(".job").unlink()
    slurm_lists(tmp_path, monkeypatch, "118_0 COMPLETING", "118_1 CANCELLED")
    assert jobs.sights(path.parent, tasks, queue) == {0: Sight.ALIVE, 1: Sight.LOST}
    slurm_lists(tmp_path, monkeypatch, "slurm_load_jobs error", code=1)
    assert jobs.sights(path.parent, tasks, queue) == unseen
    slurm_lists(tmp_path, monkeypatch, "119 RUNNING")  # ours are over and forgotten
    assert jobs.sights(path.parent, tasks, queue) == {0: Sight.LOST, 1: Sight.LOST}
    assert jobs.sights(path.parent, tasks, fresh) == unseen  # never seen by it: maybe elsewhere
    monkeypatch.setattr(jobs, "_LOOK_SECONDS", 0.01)
    for limit, one in (("LOST_SECONDS", queue), ("UNSEEN_SECONDS", fresh)):
        with monkeypatch.context() as patched:
            patched.setattr(jobs, limit, 0.1)
            started = time.monotonic()
            with jobs.ended_if_lost(path.parent, tasks, one):
                wait_as_launchers_do()
            assert time.monotonic() - started > 0.1
    assert "its job has not begun" in str(failures_of(path.parent, [task])[0].error)


def test_jobs_of_this_machine_are_not_looked_up_in_slurm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm_lists(tmp_path, monkeypatch, "118 CANCELLED")
    queue = SlurmQueue(tmp_path / "local", 1)
    submitted(tmp_path / "local", 118, script="")
    assert queue.held() is None
    queue = SlurmQueue(tmp_path / "one", 1)
    submitted(tmp_path / "one", 118)
    assert queue.held() == set()


def test_jobs_of_an_earlier_sweep_in_the_same_folder_are_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm_lists(tmp_path, monkeypatch, "117 CANCELLED", "118 RUNNING")
    submitted(tmp_path, 117)
    queue = SlurmQueue(tmp_path, 1)
    assert queue.held() is None
    submitted(tmp_path, 118)
    assert queue.held() == {0}


def test_a_job_that_begins_after_a_long_wait_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lpgnn.sweeps import jobs

    path, task = job(tmp_path)
    monkeypatch.setattr(jobs, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(jobs, "LOST_SECONDS", 0.5)
    with jobs.ended_if_lost(path.parent, [task], SlurmQueue(path.parent, 1)):
        time.sleep(0.7)  # nobody can tell where it is
        begun = time.monotonic()
        path.with_suffix(".job").touch()
        wait_as_launchers_do()
    assert time.monotonic() - begun > 0.5


def test_a_sweep_waits_for_the_others_when_a_job_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lpgnn.sweeps import jobs

    path, task = job(tmp_path)
    monkeypatch.setattr(jobs, "_LOOK_SECONDS", 0.02)
    queue = SlurmQueue(path.parent, 2)
    jobs.wait_for_others(path.parent, [task, task], queue)  # nothing was submitted: returns at once
    path.with_suffix(".job").touch()
    monkeypatch.setattr(jobs, "QUIET_SECONDS", 0.2)
    trains, ended = threading.Event(), threading.Event()

    def work() -> None:
        with at_work(path.parent, [(task.configuration.identity, 1)]):
            trains.set()
            time.sleep(0.6)
        ended.set()

    threading.Thread(target=work).start()
    assert trains.wait(20)
    jobs.wait_for_others(path.parent, [task], queue)  # it leaves no end: nobody waits for ever
    assert ended.is_set()
    path.with_suffix(".end.json").write_text("{}")
    monkeypatch.setattr(jobs, "QUIET_SECONDS", 60.0)
    jobs.wait_for_others(path.parent, [task], queue)  # all have ended


def test_sigterm_ends_a_sweep_that_waits_for_its_jobs(tmp_path: Path) -> None:
    from lpgnn.errors import Terminated
    from lpgnn.sweeps import jobs

    path, task = job(tmp_path)

    def wait() -> None:
        with jobs.ended_if_lost(path.parent, [task], SlurmQueue(path.parent, 1)):
            os.kill(os.getpid(), signal.SIGTERM)
            wait_as_launchers_do()

    with pytest.raises(Terminated):
        wait()


def test_a_job_on_another_installation_computes_nothing(tmp_path: Path) -> None:
    path, task = job(tmp_path)
    path.write_text(path.read_text().replace(task.configuration.identity, "0" * 12))
    compute_job(path)
    (failure,) = failures_of(path.parent, [task])
    assert isinstance(failure.error, RunError)
    assert "other sources or another graph on this node" in str(failure.error)
    assert RowStore(tmp_path).read("sbm") == []


def test_a_job_that_is_terminated_keeps_its_rows_and_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM, as scancel or a scheduler that needs the node sends it."""
    from lpgnn.sweeps import jobs

    path, task = job(tmp_path)
    run_tasks = vars(jobs)["run_tasks"]

    def terminated(tasks, execution, **options):  # type: ignore[no-untyped-def]
        ((configuration, _),) = tasks[0].parts
        run_tasks([Task(((configuration, (0,)),))], replace(execution, workers=0), **options)
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("was not ended")

    monkeypatch.setattr(jobs, "run_tasks", terminated)
    compute_job(path)
    (failure,) = failures_of(path.parent, [task])
    assert str(failure.error) == "its job was ended by a signal"
    assert [row["repeat"] for row in RowStore(tmp_path).read("sbm")] == ["0"]
    monkeypatch.setattr(
        *(jobs, "run_tasks"),
        lambda tasks, execution, **options: run_tasks(
            tasks, replace(execution, workers=0), **options
        ),
    )
    compute_job(path)
    assert failures_of(path.parent, [task]) == []
    assert [row["repeat"] for row in RowStore(tmp_path).read("sbm")] == ["0", "1"]


def test_a_job_that_is_queued_again_is_not_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As submitit does when SLURM announces pre-emption; SIGTERM follows at once."""
    from lpgnn.sweeps import jobs

    path, task = job(tmp_path)

    def requeue(number: int, frame: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        sys.exit(-1)

    def announced(*arguments: Any, **options: Any) -> None:
        assert path.with_suffix(".job").exists()
        os.kill(os.getpid(), signal.SIGUSR2)
        raise AssertionError("was not ended")

    monkeypatch.setattr(jobs, "run_tasks", announced)
    before = signal.signal(signal.SIGUSR2, requeue)
    try:
        with pytest.raises(SystemExit):
            compute_job(path)
        assert signal.getsignal(signal.SIGUSR2) is requeue
    finally:
        signal.signal(signal.SIGUSR2, before)
    (failure,) = failures_of(path.parent, [task])
    assert "still in the queue" in str(failure.error)  # no end: it may come back
    assert sorted(file.name for file in path.parent.iterdir()) == [path.name]


@pytest.mark.skipif(
    find_spec("hydra_plugins.hydra_submitit_launcher") is None, reason="no submitit"
)
def test_the_launcher_for_gpu_nodes_resolves() -> None:
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    words = ["hydra/launcher=slurm_gpu", "hydra.launcher.partition=gpu", "hydra.job.name=run"]
    with initialize_config_dir(str(conf_dir().resolve()), version_base="1.3"):
        config = compose("config", words, return_hydra_config=True)
        shown: Any = OmegaConf.to_container(config.hydra.launcher, resolve=True)
    assert shown["_target_"].endswith("submitit_launcher.SlurmLauncher")
    expected = {"gpus_per_node": 1, "cpus_per_task": 4, "partition": "gpu", "max_num_timeout": 10}
    assert {key: shown[key] for key in expected} == expected


def test_a_login_node_needs_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the nodes that compute have the device; many runs go into each of their tasks."""
    from lpgnn.composition import expand
    from lpgnn.sweeps.session import Launcher, run_points

    sent: list[Sequence[Sequence[str]]] = []
    grid = ("x_eps=0.5,1,2,3", "y_eps=1,2", "filter.steps=2", "learner.steps=2", "dropout=0.5")
    points = expand(
        [*SMALL, f"results_dir={tmp_path}", "workers=1", "device=cuda", *grid], multirun=True
    )
    assert run_points(points, Launcher("slurm_gpu", tmp_path / "sweep", sent.append)) == 1
    assert [len(jobs) for jobs in sent] == [1]  # 16 runs; a CPU takes ten together
    assert "its job has not begun" in capsys.readouterr().err


def test_status_counts_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status([str(tmp_path / "nowhere")]) == 2
    assert status([str(tmp_path)]) == 0
    assert "no sweep is under way" in capsys.readouterr().out
    configuration = small()
    wanted = [Wanted(configuration.identity, "sbm", "a run", (0, 1, 2, 3), 60.0)]
    record = SweepRecord.start(tmp_path, wanted)
    from lpgnn.engine import run_repeats
    from small_run import SMALL_GRAPH

    rows = run_repeats(configuration, SMALL_GRAPH.generate(), [0, 1])
    rows[1]["status"] = "failed: loss is not finite at epoch 2"
    RowStore(tmp_path).append("sbm", rows)
    with record.alive(beats=True), at_work(record.folder, [(configuration.identity, 2)]):
        assert status([str(tmp_path)]) == 0
        line = capsys.readouterr().out
        assert "4 runs: 1 done, 1 running, 1 failed, 1 left; about" in line
    assert status([str(tmp_path), "--watch"]) == 0
    line = capsys.readouterr().out
    assert "1 done, 0 running, 1 failed, 2 left; stopped: rerun it to resume" in line
    # A sweep that takes over what is left takes the record over, too.
    SweepRecord.start(tmp_path, wanted).finish(failed=False)
    assert status([str(tmp_path)]) == 0
    assert "no sweep is under way" in capsys.readouterr().out


def test_status_waits_for_a_sweep_that_is_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Started beside a sweep, which makes its folder and its record some seconds later."""
    folder = tmp_path / "results"
    monkeypatch.setattr("lpgnn.status._START_SECONDS", 0.3)
    assert status([str(folder), "--watch"]) == 2
    heard = capsys.readouterr()
    assert heard.out == f"no sweep is under way in {folder} yet: waiting for one\n"
    assert heard.err == f"error: results_dir={folder}: no such folder\n"
    monkeypatch.setattr("lpgnn.status._START_SECONDS", 30)
    wanted = [Wanted("0" * 12, "sbm", "a run", (0, 1), 60.0)]

    def sweep() -> None:
        time.sleep(0.5)
        record = SweepRecord.start(folder, wanted)
        time.sleep(1)
        record.finish(failed=False)

    thread = threading.Thread(target=sweep)
    thread.start()
    assert status([str(folder), "--watch", "--every=0.1"]) == 0
    thread.join()
    waiting, *told = capsys.readouterr().out.splitlines()
    assert waiting.endswith("waiting for one")
    assert "2 runs: 0 done, 0 running, 0 failed, 2 left; about 2 min" in told[0]
    assert "no sweep is under way" in told[-1]


LIGHT = """
import json, sys
from importlib import import_module
for module, words in json.loads(sys.argv[1]):
    try:
        code = import_module(f"lpgnn.{module}").main(words)
    except SystemExit as end:
        code = end.code
    heavy = sorted({"torch", "numba", "pandas", *sys.argv[2:]} & set(sys.modules))
    print("LOADED", module, *words, code, *heavy)
"""


def test_what_computes_nothing_starts_without_torch() -> None:
    """One after another in one process: the first that loads something heavy is named."""
    commands = [
        ("run", ["--help"], 0),
        ("run", ["--cfg", "job"], 0),
        ("run", ["x_eps=-1"], 2),
        ("run", ["nothing=1"], 2),
        ("run", ["-m", "mechanism=mb,zz"], 2),
        ("status", ["results_dir=/nowhere"], 2),
    ]
    check_loaded(commands)


def test_help_and_plain_bad_input_start_without_hydra() -> None:
    commands = [
        ("run", ["--help"], 0),
        ("run", ["x_eps=banana"], 2),
        ("run", ["nothing=1"], 2),
        ("run", ["--dryrun"], 2),
        ("run", ["-m", "x_eps=1,2", "y_eps=banana"], 2),
        ("run", ["-m", "x_eps=1,-2"], 2),
        ("tune", ["--help"], 0),
        ("tune", ["dropout=2"], 2),
        ("benchmark.__main__", ["x_eps=banana"], 2),
    ]
    check_loaded(commands, "hydra", "omegaconf")


def check_loaded(commands: list[tuple[str, list[str], int]], *heavy: str) -> None:
    given = json.dumps([command[:2] for command in commands])
    done = subprocess.run(
        [sys.executable, "-c", LIGHT, given, *heavy], capture_output=True, text=True, timeout=120
    )
    told = [line for line in done.stdout.splitlines() if line.startswith("LOADED")]
    expected = [f"LOADED {module} {' '.join(words)} {code}" for module, words, code in commands]
    assert told == expected, done.stderr
