import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lpgnn.config import Settings
from lpgnn.finished import keep_resolved, resolved_path, tell_finished
from lpgnn.rows import RowStore
from lpgnn.run import main

pytestmark = pytest.mark.slow

SMALL = ("dataset.num_nodes=60", "dataset.num_classes=3", "dataset.num_features=40")
RUN = (*SMALL, "repeats=2", "max_epochs=2", "device=cpu", "kernels=torch", "workers=0")

LOADED = """
import sys
from lpgnn.run import main
code = main(sys.argv[1:])
print("LOADED", code, *sorted({"torch", "numba", "pandas"} & set(sys.modules)))
"""


def in_a_new_process(*words: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *words], capture_output=True, text=True, timeout=300
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def kept(folder: Path) -> list[Path]:
    return sorted((folder / "local" / "resolved").glob("*/*.json"))


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
    assert "2 of 2 repeats done" in "\n".join(told) or "nothing to compute" in told[0]


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


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '[{"label": 1}]', "[1, 2]", "\0", NESTED, ODD], ids=range(8)
)
def test_a_damaged_file_is_as_good_as_none(finished: Path, content: str) -> None:
    assert main([*RUN, f"results_dir={finished}"]) == 0
    settings = composed(finished)
    for path in kept(finished):
        path.write_text(content)
    assert tell_finished([settings]) is None
    assert main([*RUN, f"results_dir={finished}"]) == 0  # written again
    assert tell_finished([settings]) == 0


def test_a_wrong_identity_in_it_finds_no_rows(finished: Path) -> None:
    for path in kept(finished):
        path.unlink()
    assert main([*RUN, f"results_dir={finished}"]) == 0
    for path in kept(finished):
        content = json.loads(path.read_text())
        content[0]["computation"]["identity"] = "0123456789ab"
        path.write_text(json.dumps(content))
    assert tell_finished([composed(finished)]) is None
    assert main([*RUN, f"results_dir={finished}"]) == 0


def test_components_and_graphs_of_the_users_own_are_not_kept(tmp_path: Path) -> None:
    own = ("mechanism=custom", "mechanism._target_=small_run.RoundedNoise", "+mechanism.size=2.0")
    graph = ("dataset=custom", "dataset._target_=small_run.two_cliques")
    assert main([*RUN, *own, f"results_dir={tmp_path}"]) == 0
    assert main([*graph, *RUN[len(SMALL) :], f"results_dir={tmp_path}"]) == 0
    assert RowStore(tmp_path).datasets() == ["sbm", "small_run.two_cliques"]
    assert kept(tmp_path) == []


def test_what_other_sources_left_is_removed(finished: Path) -> None:
    other = finished / "local" / "resolved" / "0123456789abcdef"
    other.mkdir(parents=True)
    (other / "x.json").write_text("[]")
    assert main([*RUN, f"results_dir={finished}", "force=true"]) == 0
    assert not other.exists()


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
