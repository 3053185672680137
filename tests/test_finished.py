import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lpgnn.finished as finished_module
from lpgnn import application, composition, config, hyperparameters
from lpgnn.config import Settings
from lpgnn.finished import asked_path, keep_asked, keep_resolved, resolved_path, tell_finished
from lpgnn.hyperparameters import conf_dir
from lpgnn.rows import RowStore
from lpgnn.run import main

pytestmark = pytest.mark.slow

SMALL = ("dataset.num_nodes=60", "dataset.num_classes=3", "dataset.num_features=40")
RUN = (*SMALL, "repeats=2", "max_epochs=2", "device=cpu", "kernels=torch", "workers=0")

LOADED = """
import sys
from lpgnn.run import main
code = main(sys.argv[1:])
heavy = {"torch", "numba", "pandas", "hydra", "omegaconf", "yaml"}
heavy |= {"numpy"} if "repeats=1" in sys.argv else set()
print("LOADED", code, *sorted(heavy & set(sys.modules)))
"""


def in_a_new_process(*words: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *words], capture_output=True, text=True, timeout=300
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def kept(folder: Path, kind: str = "resolved") -> list[Path]:
    return sorted((folder / "local" / kind).glob("*/*.json"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    assert main([*RUN, f"results_dir={folder}"]) == 0
    assert main(["-m", "x_eps=0.5,1", *RUN, f"results_dir={folder}"]) == 0
    return folder


@pytest.mark.parametrize("grid", [(), ("-m", "x_eps=0.5,1")], ids=["run", "grid"])
def test_what_is_finished_is_told_without_torch_in_the_same_words(
    finished: Path, grid: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*grid, *RUN, f"results_dir={finished}"]
    for path in kept(finished):
        path.unlink()
    assert main(words) == 0  # with torch, and keeps what it finds
    expected = capsys.readouterr().out.splitlines()
    *told, last = in_a_new_process(*words)
    assert last.split() == ["LOADED", "0"]
    assert told == expected
    said = (
        ["nothing to compute: all 2 configurations are done"] if grid else ["2 of 2 repeats done"]
    )
    assert [line.rpartition("; ")[2] for line in told if "done" in line] == said


@pytest.mark.parametrize(
    "changed",
    [
        {"x_eps": 2.0},
        {"repeats": 3},
        {"metric": "roc_auc"},
        {"save": "history"},
        {"force": True},
        {"force": "engine"},
        {"dry_run": True},
        {"learner": {"_target_": "lpgnn.learners.Drop", "steps": 1}},
    ],
    ids=str,
)
def test_anything_else_is_resolved_as_ever(finished: Path, changed: dict[str, Any]) -> None:
    main([*RUN, f"results_dir={finished}"])
    settings = composed(finished)
    assert tell_finished([settings]) == 0
    values = {**vars(settings), **changed}
    assert tell_finished([Settings(**values)]) is None


def composed(folder: Path) -> Settings:
    from lpgnn.composition import expand

    (point,) = expand([*RUN, f"results_dir={folder}"])
    return point.settings


def test_a_row_that_is_gone_is_noticed(tmp_path: Path) -> None:
    words = [*RUN, f"results_dir={tmp_path}"]
    assert main(words) == 0
    settings = composed(tmp_path)
    assert tell_finished([settings]) == 0
    for path in (tmp_path / "local" / "shards").glob("*.csv"):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert tell_finished([settings]) is None


def test_a_table_of_hyperparameters_takes_part(tmp_path: Path) -> None:
    table = tmp_path / "own.yaml"
    source = Path(__file__).parents[1] / "conf" / "hyperparameters" / "paper.yaml"
    table.write_text(source.read_text())
    assert main([*RUN, f"results_dir={tmp_path}", f"hparams={table}"]) == 0
    values = {**vars(composed(tmp_path)), "hparams": str(table)}
    assert tell_finished([Settings(**values)]) == 0
    table.write_text(source.read_text() + "# edited\n")
    assert tell_finished([Settings(**values)]) is None


def test_a_table_that_changes_while_runs_train_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    table = tmp_path / "own.yaml"
    table.write_text("one")
    settings = Settings(dataset="sbm", results_dir=tmp_path, hparams=str(table))
    before = resolved_path([settings])
    table.write_text("another")
    keep_resolved([], [settings], before)
    assert kept(tmp_path) == []
    keep_resolved([], [settings], resolved_path([settings]))
    assert len(kept(tmp_path)) == 1


NESTED = "[" * 100_000
ODD = '[{"computation": {"identity": [], "dataset": "sbm"}, "label": "", "plan": ""}]'
UNDIGESTED = f'{{"kept": {ODD}, "digest": ""}}'


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '[{"label": 1}]', "[1, 2]", "\0", NESTED, ODD, UNDIGESTED],
    ids=range(9),
)
def test_a_damaged_file_is_as_good_as_none(finished: Path, content: str) -> None:
    assert main([*RUN, f"results_dir={finished}"]) == 0
    settings = composed(finished)
    for path in kept(finished):
        path.write_text(content)
    assert tell_finished([settings]) is None
    assert main([*RUN, f"results_dir={finished}"]) == 0  # written again
    assert tell_finished([settings]) == 0


@pytest.mark.parametrize("field", ["identity", "dataset", "has_truth", "label", "plan"])
def test_any_change_in_it_is_noticed(finished: Path, field: str) -> None:
    for path in kept(finished):
        path.unlink()
    assert main([*RUN, f"results_dir={finished}"]) == 0
    assert tell_finished([composed(finished)]) == 0
    (path,) = kept(finished)
    content = json.loads(path.read_text())
    (known,) = content["kept"]
    part = known if field in known else known["computation"]
    part[field] = f"{part[field]}x" if isinstance(part[field], str) else not part[field]
    path.write_text(json.dumps(content))
    assert tell_finished([composed(finished)]) is None
    assert main([*RUN, f"results_dir={finished}"]) == 0


@pytest.mark.parametrize("setting", ["device=banana", "device=cuda:x", "kernels=banana"])
def test_bad_input_is_refused_whatever_is_finished(
    finished: Path, setting: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*RUN, f"results_dir={finished}"]) == 0
    capsys.readouterr()
    assert main([*RUN, f"results_dir={finished}", setting]) == 2
    heard = capsys.readouterr()
    assert heard.out == ""
    assert heard.err.startswith(f"error: {setting}: must be ")


@pytest.mark.parametrize("grid", [(), ("-m", "x_eps=0.5,1")], ids=["run", "grid"])
def test_a_reader_that_goes_hears_no_more(finished: Path, grid: tuple[str, ...]) -> None:
    """Unbuffered, so that the pipe breaks in the middle of the answer."""
    words = [*grid, *RUN, f"results_dir={finished}"]
    assert main(words) == 0
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "lpgnn.run", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.communicate(timeout=60)[1] == b""
    assert process.returncode == 0


def test_one_repeat_is_told_without_numpy(tmp_path: Path) -> None:
    words = [*RUN, "repeats=1", f"results_dir={tmp_path}"]
    assert main(words) == 0
    *_, last = in_a_new_process(*words)
    assert last.split() == ["LOADED", "0"]


def test_components_and_graphs_of_the_users_own_are_not_kept(tmp_path: Path) -> None:
    own = ("mechanism=custom", "mechanism._target_=small_run.RoundedNoise", "+mechanism.size=2.0")
    graph = ("dataset=custom", "dataset._target_=small_run.two_cliques")
    assert main([*RUN, *own, f"results_dir={tmp_path}"]) == 0
    assert main([*graph, *RUN[len(SMALL) :], f"results_dir={tmp_path}"]) == 0
    assert RowStore(tmp_path).datasets() == ["sbm", "small_run.two_cliques"]
    assert kept(tmp_path) == []


def test_what_other_sources_left_is_removed(finished: Path) -> None:
    others = [finished / "local" / kind / "0123456789abcdef" for kind in ("asked", "resolved")]
    for other in others:
        other.mkdir(parents=True)
        (other / "x.json").write_text("[]")
    assert main([*RUN, f"results_dir={finished}", "force=true"]) == 0
    assert not any(other.exists() for other in others)


def test_a_folder_that_cannot_be_written_keeps_nothing_and_stops_nobody(tmp_path: Path) -> None:
    settings = Settings(dataset="sbm", results_dir=tmp_path / "file")
    (tmp_path / "file").touch()
    keep_resolved([], [settings], resolved_path([settings]))
    assert os.listdir(tmp_path) == ["file"]
    assert tell_finished([settings]) is None


def test_rows_of_several_engines_are_told(tmp_path: Path, capsys: Any) -> None:
    assert main([*RUN, f"results_dir={tmp_path}"]) == 0
    assert "rows of" not in capsys.readouterr().out
    store = RowStore(tmp_path)
    first, second = store.read("sbm")
    store.append("sbm", [second | {"engine": ""}])
    assert main([*RUN, f"results_dir={tmp_path}"]) == 0
    out = capsys.readouterr().out
    assert f"rows of 2 engines (1 by {first['engine']}, 1 by an unrecorded one)" in out
    assert "force=engine computes those of others again" in out


def composes(words: list[str], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a command, which must succeed, needs Hydra to know what its words stand for."""
    seen = []

    def run_application(*arguments: Any) -> int:
        seen.append(arguments)
        return real(*arguments)

    real = application.run_application
    with monkeypatch.context() as patched:
        patched.setattr(application, "run_application", run_application)
        assert main(words) == 0
    return bool(seen)


@pytest.fixture
def own_conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of conf/ in place of ours, to be edited."""
    folder = tmp_path / "conf"
    shutil.copytree(conf_dir(), folder)
    for module in (application, composition, config, hyperparameters, finished_module):
        monkeypatch.setattr(module, "conf_dir", lambda: folder)
    return folder


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_words_are_looked_up_before_hydra_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [*RUN, "results_dir=rows"]
    assert composes(words, monkeypatch)
    assert len(kept(tmp_path / "rows", "asked")) == 1
    capsys.readouterr()
    assert not composes(words, monkeypatch)
    quick = capsys.readouterr()
    for path in kept(tmp_path / "rows", "asked"):
        path.unlink()
    assert composes(words, monkeypatch)  # and is kept again, from rows
    assert capsys.readouterr() == quick
    assert not composes(words, monkeypatch)
    assert composes([*words, "seed=0"], monkeypatch)  # other words for the same
    for flag in (["--cfg", "job"], ["--dry-run"]):  # another question
        assert composes([*words, *flag], monkeypatch)
        assert composes([*words, *flag], monkeypatch)
    assert composes([*words, "force=true"], monkeypatch)
    assert composes([*words, "force=true"], monkeypatch)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # another folder, though it has the same name
    assert composes(words, monkeypatch)


def test_rows_that_are_gone_or_damaged_are_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*RUN, f"results_dir={tmp_path}"]
    assert main(words) == 0
    for damaged in (b"", b"oops\n"):
        assert not composes(words, monkeypatch)
        for path in (tmp_path / "local" / "shards").glob("*.csv"):
            header, first, *_ = path.read_bytes().splitlines(keepends=True)
            path.write_bytes(header + first + damaged)
        assert len(RowStore(tmp_path).read("sbm")) == 1
        assert composes(words, monkeypatch)
        assert len(RowStore(tmp_path).read("sbm")) == 2


@pytest.mark.parametrize("damage", ["", "{", '{"kept": [{"x_eps": 2.0}], "digest": ""}'])
def test_damaged_settings_are_as_good_as_none(
    finished: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*RUN, f"results_dir={finished}"]
    assert main(words) == 0
    assert not composes(words, monkeypatch)
    for path in kept(finished, "asked"):
        path.write_text(damage)
    assert composes(words, monkeypatch)
    assert not composes(words, monkeypatch)


def test_an_edited_default_is_noticed(
    own_conf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*RUN, f"results_dir={tmp_path / 'rows'}"]
    assert main(words) == 0
    assert not composes(words, monkeypatch)
    state = (own_conf / "config.yaml").stat()
    edit(own_conf / "config.yaml", "\nx_eps: 1.0", "\nx_eps: 2.0")
    os.utime(own_conf / "config.yaml", ns=(state.st_atime_ns, state.st_mtime_ns))  # same size, too
    assert composes(words, monkeypatch)
    rows = RowStore(tmp_path / "rows").read("sbm")
    assert sorted(row["x_eps"] for row in rows) == ["1.0", "1.0", "2.0", "2.0"]
    assert not composes(words, monkeypatch)
    edit(own_conf / "mechanism" / "mb.yaml", "_target_", "# a comment\n_target_")
    assert composes(words, monkeypatch)
    (own_conf / "mechanism" / "new.yaml").write_text("_target_: lpgnn.privacy.MultiBit\n")
    assert composes(words, monkeypatch)


def test_what_the_environment_decides_is_not_kept(
    own_conf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*RUN, f"results_dir={tmp_path / 'rows'}"]
    monkeypatch.setenv("BUDGET", "1")
    monkeypatch.setenv("SPLIT", "random")
    given = [*words, "split=${oc.env:SPLIT}"]
    assert main(given) == 0
    assert composes(given, monkeypatch)
    at_home = [*RUN, "results_dir=~/rows"]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(at_home) == 0
    assert composes(at_home, monkeypatch)
    assert kept(tmp_path / "rows", "asked") == []
    for path, old, new in (
        ("config.yaml", "\nx_eps: 1.0", "\nx_eps: ${oc.decode:${oc.env:BUDGET}}"),
        ("config.yaml", "  - mechanism: mb", "  - mechanism: ${oc.env:NOISE}"),
    ):
        before = (own_conf / path).read_text()
        monkeypatch.setenv("NOISE", "mb")
        edit(own_conf / path, old, new)
        assert main(words) == 0
        assert composes(words, monkeypatch)
        (own_conf / path).write_text(before)
    assert kept(tmp_path / "rows", "asked") == []


@pytest.mark.parametrize("way", ["--config-dir={}", "hydra.searchpath=[file://{}]"])
def test_yaml_files_of_the_users_own_are_always_read(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own" / "mechanism" / "mine.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("_target_: lpgnn.privacy.MultiBit\nnum_samples: 4\n")
    words = [*RUN, f"results_dir={tmp_path}", way.format(tmp_path / "own"), "mechanism=mine"]
    assert main(words) == 0
    assert composes(words, monkeypatch)
    assert kept(tmp_path, "asked") == []
    edit(own, "4", "5")
    assert main(words) == 0
    assert len(RowStore(tmp_path).read("sbm")) == 4


def test_a_search_path_in_our_own_file_is_noticed(
    own_conf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own" / "mechanism" / "mine.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("_target_: lpgnn.privacy.MultiBit\n")
    edit(own_conf / "config.yaml", "\nhydra:", f"\nhydra:\n  searchpath: ['{tmp_path / 'own'}']")
    words = [*RUN, f"results_dir={tmp_path}", "mechanism=mine"]
    for many in ([], ["-m"]):
        assert main([*many, *words]) == 0
        assert composes([*many, *words], monkeypatch)
    assert kept(tmp_path, "asked") == []


def test_sources_that_change_while_a_command_runs_are_not_taken_for_the_old_ones(
    own_conf: Path, tmp_path: Path
) -> None:
    words = ["x_eps=1", f"results_dir={tmp_path}"]
    settings, before = [Settings(results_dir=str(tmp_path), save=[])], asked_path(words)
    edit(own_conf / "config.yaml", "\nx_eps: 1.0", "\nx_eps: 2.0")
    keep_asked(settings, words, before)
    assert kept(tmp_path, "asked") == []
    keep_asked(settings, words, asked_path(words))
    assert len(kept(tmp_path, "asked")) == 1


def test_a_plug_in_of_hydras_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = asked_path(["x_eps=1"])
    (tmp_path / "hydra_plugins" / "other").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert asked_path(["x_eps=1"]) not in (before, None)


def test_a_class_or_a_graph_of_the_users_own_is_asked_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their words may be known, but not what their files say now."""
    graph = tmp_path / "graph"
    graph.mkdir()
    edges = [(i, j) for i in range(24) for j in (i + 2, i + 4) if j < 24]
    (graph / "edges.csv").write_text("source,target\n" + "".join(f"{i},{j}\n" for i, j in edges))
    (graph / "labels.csv").write_text("node,label\n" + "".join(f"{i},{i % 2}\n" for i in range(24)))
    cells = "".join(f"{i},{i % 2},{i % 3 // 2}\n" for i in range(24))
    (graph / "features.csv").write_text("node,a,b\n" + cells)
    words = ["dataset=files", f"dataset.path={graph}", "dataset.ranges=unit", "filter.steps=2"]
    words += [*RUN[len(SMALL) :], f"results_dir={tmp_path}"]
    assert main(words) == 0
    assert composes(words, monkeypatch)
    edit(graph / "features.csv", "node,a,b\n0,0,0", "node,a,b\n0,1,0")
    config._loaded_facts.cache_clear()  # as in a new process
    assert composes(words, monkeypatch)
    (name,) = RowStore(tmp_path).datasets()
    assert len({row["id"] for row in RowStore(tmp_path).read(name)}) == 2


def test_settings_of_a_grid_come_back_as_they_were(tmp_path: Path) -> None:
    words = ["-m", "x_eps=1,1.0,inf", "seed=0,1", f"results_dir={tmp_path}"]
    settings = [
        Settings(x_eps=x_eps, seed=seed, save=["history"], results_dir=str(tmp_path))
        for x_eps in (1, 1.0, math.inf)
        for seed in (0, 1)
    ]
    keep_asked(settings, words, asked_path(words))
    (path,) = kept(tmp_path, "asked")
    found = finished_module._settings(json.loads(path.read_text())["kept"])
    assert [repr(one) for one in found] == [repr(one) for one in settings]
