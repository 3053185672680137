import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lpgnn import compact
from lpgnn.errors import InputError
from lpgnn.rows import RowStore, compaction, write_atomically
from rows.rows import append_in_child, in_child, keys, make_row, publish, shards, table, timeless


def rows_in(path: Path) -> list[str]:
    return path.read_text().splitlines()[1:] if path.exists() else []


def test_shards_become_one_sorted_file(tmp_path: Path) -> None:
    store = RowStore(tmp_path)
    wanted = [make_row(identity, repeat) for identity in "ab" for repeat in (0, 2, 10)]
    for row in random.Random(0).sample(wanted, len(wanted)):
        append_in_child(tmp_path, [row])
    assert len(shards(tmp_path)) == 6
    (done,) = store.compact()
    assert (done.dataset, done.merged, done.total, done.set_aside) == ("sbm", 6, 6, 0)
    assert done.path == tmp_path / "local" / "sbm.csv"
    # But for the times, the same bytes whatever the order of writing.
    assert timeless(done.path.read_text()) == timeless(table(wanted))
    assert shards(tmp_path) == []
    assert list((tmp_path / "local" / "merging").iterdir()) == []
    assert keys(store.read("sbm")) == [(i, r) for i in "ab" for r in (0, 2, 10)]
    assert store.compact() == []  # nothing to do
    assert not store.published("sbm").exists()


def test_publishing_takes_everything_local(tmp_path: Path) -> None:
    store = RowStore(tmp_path)
    publish(tmp_path, table([make_row("a", 0, 1.0), make_row("c", 0, 2.0)]))
    store.append("sbm", [make_row("b", 0, 3.0)])
    store.compact()
    store.append("sbm", [make_row("a", 0, 4.0)])
    (done,) = store.compact(publish=True)
    assert (done.merged, done.total, done.path) == (2, 3, tmp_path / "rows" / "sbm.csv")
    new = [make_row("a", 0, 4.0), make_row("b", 0, 3.0), make_row("c", 0, 2.0)]
    assert timeless(done.path.read_text()) == timeless(table(new))
    assert not (tmp_path / "local" / "sbm.csv").exists()
    assert store.compact(publish=True) == []


def test_a_published_file_without_news_is_not_touched(tmp_path: Path) -> None:
    path = publish(tmp_path, table([make_row("z", 0), make_row("a", 0)]) + "\n\n")
    before = path.read_bytes()
    store = RowStore(tmp_path)
    store.append("cora", [make_row("a", 0, dataset="cora")])
    assert [done.dataset for done in store.compact(publish=True)] == ["cora"]
    assert path.read_bytes() == before


def test_rows_with_different_columns(tmp_path: Path) -> None:
    store = RowStore(tmp_path)
    store.append("sbm", [make_row("a", 0), {"id": "b", "repeat": 0, "status": "failed"}])
    store.append("sbm", [make_row("c", 0, **{"paper/test/auc": 0.75})])
    before = store.read("sbm")
    for is_published in (False, True):
        store.compact(publish=is_published)
        found = store.read("sbm")
        assert [row["paper/test/auc"] for row in found] == ["", "", "0.75"]
        kept = [{key: row[key] for key in old} for row, old in zip(found, before, strict=True)]
        assert kept == before


def test_a_symlinked_file_stays_a_link(tmp_path: Path) -> None:
    store = RowStore(tmp_path / "results")
    shared = tmp_path / "shared.csv"
    shared.write_text(table([make_row("a", 0)]))
    link = store.published("sbm")
    link.parent.mkdir(parents=True)
    link.symlink_to(shared)
    store.append("sbm", [make_row("b", 0)])
    store.compact(publish=True)
    assert link.is_symlink()
    assert timeless(shared.read_text()) == timeless(table([make_row("a", 0), make_row("b", 0)]))


def test_a_writer_goes_on_after_a_compaction_took_its_shard(tmp_path: Path) -> None:
    store = RowStore(tmp_path)
    for repeat in range(4):
        store.append("sbm", [make_row("a", repeat)])
        store.compact(publish=repeat == 2)
    assert list(store.finished("sbm", "a")) == [0, 1, 2, 3]


def test_a_row_written_while_its_shard_is_taken_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worst moment: the compaction has read the shard, the writer has it open."""
    store = RowStore(tmp_path)
    store.append("sbm", [make_row("a", 0)])
    fsync = os.fsync

    def compact_then_sync(descriptor: int) -> None:
        monkeypatch.undo()
        fsync(descriptor)
        RowStore(tmp_path).compact()

    monkeypatch.setattr("lpgnn.rows.store.os.fsync", compact_then_sync)
    store.append("sbm", [make_row("a", 1)])
    assert list(store.finished("sbm", "a")) == [0, 1]

    write = os.write

    def compact_then_write(descriptor: int, data: bytes) -> int:
        monkeypatch.undo()
        RowStore(tmp_path).compact()
        return write(descriptor, data)  # to a file that has been merged and removed

    monkeypatch.setattr("lpgnn.rows.store.os.write", compact_then_write)
    store.append("sbm", [make_row("a", 2)])
    assert list(store.finished("sbm", "a")) == [0, 1, 2]
    assert [len(rows_in(path)) for path in shards(tmp_path)] == [1]


def test_a_new_shard_taken_before_it_is_written_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, write = RowStore(tmp_path), os.write

    def compact_then_write(descriptor: int, data: bytes) -> int:
        monkeypatch.undo()
        (done,) = RowStore(tmp_path).compact()
        assert done.merged == 0
        return write(descriptor, data)

    monkeypatch.setattr("lpgnn.rows.store.os.write", compact_then_write)
    store.append("sbm", [make_row("a", 0)])
    assert list(store.finished("sbm", "a")) == [0]
    assert len(shards(tmp_path)) == 1


def test_a_shard_that_appears_during_a_compaction_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_in_child(tmp_path, [make_row("a", 0)])
    take_shards = compaction._take_shards

    def take_then_append(*arguments: Any) -> None:
        take_shards(*arguments)
        append_in_child(tmp_path, [make_row("a", 1)])

    monkeypatch.setattr(compaction, "_take_shards", take_then_append)
    (done,) = RowStore(tmp_path).compact()
    assert done.merged == 1
    assert len(shards(tmp_path)) == 1
    assert list(RowStore(tmp_path).finished("sbm", "a")) == [0, 1]


def test_a_taken_shard_that_still_grows_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer may have been killed before it could write the row again."""
    append_in_child(tmp_path, [make_row("a", 0), make_row("a", 1)])
    (shard,) = shards(tmp_path)
    *lines, last = shard.read_bytes().splitlines(keepends=True)
    shard.write_bytes(b"".join(lines))

    def append_then_write(*arguments: Any) -> None:
        with (tmp_path / "local" / "merging" / shard.name).open("ab") as file:
            file.write(last)
        write_atomically(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(compaction, "write_atomically", append_then_write)
        (done,) = RowStore(tmp_path).compact()
    assert done.total == 1
    assert list(RowStore(tmp_path).finished("sbm", "a")) == [0, 1]
    (done,) = RowStore(tmp_path).compact()
    assert done.total == 2
    assert list((tmp_path / "local" / "merging").iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("is_published", [False, True])
def test_killed_at_any_step_a_compaction_loses_nothing(is_published: bool, tmp_path: Path) -> None:
    """Stop before the n-th change of the folder, for every n until there is none left."""
    changes = ("open", "os.rename", "os.remove", "os.mkdir")
    before = tmp_path / "before"
    publish(before, table([make_row("a", 0, 1.0), make_row("a", 1, 1.0)]))
    for acc, repeats in ((2.0, (1, 2)), (3.0, (2, 3))):
        append_in_child(before, [make_row("a", repeat, acc) for repeat in repeats])
    expected = [row["paper/test/acc"] for row in RowStore(before).read("sbm")]
    assert expected == ["1.0", "2.0", "3.0", "3.0"]
    for number in itertools.count():
        folder = shutil.copytree(before, tmp_path / str(number))

        def killed(folder: Path = folder, number: int = number) -> None:
            counter = itertools.count()

            def stop(event: str, _: Any) -> None:
                if event in changes and next(counter) == number:
                    os._exit(9)

            sys.addaudithook(stop)
            RowStore(folder).compact(publish=is_published)

        code = os.waitstatus_to_exitcode(os.waitpid(in_child(killed), 0)[1])
        for _ in range(2):  # as it was left, and after the next compaction
            found = RowStore(folder).read("sbm")
            assert [row["paper/test/acc"] for row in found] == expected, number
            RowStore(folder).compact(publish=is_published)
        left = [p.name for p in folder.rglob("*") if p.is_file() and not p.name.endswith(".lock")]
        assert left == ["sbm.csv"] if is_published else sorted(left) == ["sbm.csv", "sbm.csv"]
        if code == 0:
            break
        assert code == 9
    assert number > 10


def test_compactions_writers_and_readers_at_once(tmp_path: Path) -> None:
    store = RowStore(tmp_path)

    def append_all(identity: str) -> None:
        for repeat in range(80):
            store.append("sbm", [make_row(identity, repeat)])

    def compact_often() -> None:
        for number in range(40):
            RowStore(tmp_path).compact(publish=number % 4 == 0)

    children = [in_child(partial(append_all, name)) for name in "abc"]
    children += [in_child(compact_often) for _ in range(2)]
    seen, start = 0, time.monotonic()
    while seen < 240:
        assert time.monotonic() - start < 60
        found = len(store.read("sbm"))
        assert found >= seen  # rows on the move never disappear
        seen = found
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 5
    store.compact()
    assert keys(store.read("sbm")) == [(i, r) for i in "abc" for r in range(80)]


@pytest.mark.slow
def test_compactions_killed_at_random_lose_nothing(tmp_path: Path) -> None:
    moments = random.Random(0)
    for number in range(25):
        append_in_child(tmp_path, [make_row("a", number), make_row("b", number)])

        def compact_for_ever(number: int = number) -> None:
            while True:
                RowStore(tmp_path).append("sbm", [make_row("c", number)])
                RowStore(tmp_path).compact(publish=number % 3 == 0)

        child = in_child(compact_for_ever)
        time.sleep(0.02 * moments.random())
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        found = {key for key in keys(RowStore(tmp_path).read("sbm")) if key[0] != "c"}
        assert found == {(i, r) for i in "ab" for r in range(number + 1)}
    RowStore(tmp_path).compact(publish=True)
    assert not list(tmp_path.rglob("*.tmp"))


def test_damaged_lines_are_kept_in_a_copy(tmp_path: Path) -> None:
    append_in_child(tmp_path, [make_row("a", 0), make_row("a", 1)])
    (shard,) = shards(tmp_path)
    damaged = shard.read_bytes().replace(b"81.25", b"18.25", 1)
    shard.write_bytes(damaged)
    store = RowStore(tmp_path)
    (done,) = store.compact()
    assert (done.merged, done.total, done.set_aside) == (1, 1, 1)
    (copy,) = (tmp_path / "local" / "set_aside").iterdir()
    assert copy.read_bytes() == damaged
    assert copy.name.startswith(shard.stem)
    assert store.datasets() == ["sbm"]
    assert keys(store.read("sbm")) == [("a", 1)]


def test_a_shard_without_any_row_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "local" / "shards" / "sbm.x.csv"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\0\1\2\n\3")
    os.utime(path, (1e9, 1e9))
    (done,) = RowStore(tmp_path).compact()
    assert (done.merged, done.total, done.set_aside) == (0, 0, 2)
    assert not done.path.exists()
    (copy,) = (tmp_path / "local" / "set_aside").iterdir()
    assert copy.read_bytes() == b"\0\1\2\n\3"


def test_a_file_that_cannot_be_read_is_neither_merged_nor_removed(tmp_path: Path) -> None:
    store = RowStore(tmp_path)
    store.append("sbm", [make_row("a", 0)])
    unreadable = tmp_path / "local" / "shards" / "sbm.x.csv"
    unreadable.mkdir()  # root may read any file, but not a folder as one
    (done,) = store.compact()
    assert done.total == 1
    assert (tmp_path / "local" / "merging" / "sbm.x.csv").is_dir()
    store.append("sbm", [make_row("a", 1)])
    store.published("sbm").mkdir(parents=True)
    with pytest.raises(InputError, match="cannot be read"):
        store.compact(publish=True)
    assert keys(store.read("sbm")) == [("a", 0), ("a", 1)]


def test_a_shard_that_is_a_link_to_nowhere_stops_nobody(tmp_path: Path) -> None:
    store = RowStore(tmp_path)
    store.append("sbm", [make_row("a", 0)])
    (tmp_path / "local" / "shards" / "sbm.x.csv").symlink_to(tmp_path / "nowhere.csv")
    (done,) = store.compact()
    assert done.total == 1


def test_waiting_for_another_compaction_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = RowStore(tmp_path)
    store.append("sbm", [make_row("a", 0)])
    with compaction.compaction_lock(store._folder.layout):
        waiting = threading.Thread(target=store.compact)
        waiting.start()
        while not caplog.records:
            time.sleep(0.01)
        assert len(shards(tmp_path)) == 1
    waiting.join()
    assert caplog.records[0].getMessage().startswith("waiting for another compaction")
    assert shards(tmp_path) == []


def test_the_entry_point(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = RowStore(tmp_path)
    store.append("sbm", [make_row("a", 0), make_row("a", 1)])
    store.append("cora", [make_row("a", 0, dataset="cora")])
    publish(tmp_path, table([make_row("b", 0, dataset="cora")]) + "oops\n", "cora")
    assert compact.main([f"results_dir={tmp_path}"]) == 0
    local = tmp_path / "local"
    assert capsys.readouterr().out.splitlines() == [
        f"cora: 1 rows merged into {local / 'cora.csv'} (1 rows)",
        f"sbm: 2 rows merged into {local / 'sbm.csv'} (2 rows)",
    ]
    assert compact.main([f"results_dir={tmp_path}", "publish=true"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"cora: 1 rows merged into {tmp_path / 'rows' / 'cora.csv'} (2 rows), 1 lines set aside",
        f"sbm: 2 rows merged into {tmp_path / 'rows' / 'sbm.csv'} (2 rows)",
    ]
    assert compact.main([f"results_dir={tmp_path}"]) == 0
    assert capsys.readouterr().out == f"nothing to merge in {local}\n"


@pytest.mark.parametrize(
    ("bad", "start"),
    [
        ("results_dir=nowhere", "error: results_dir=nowhere: "),
        ("publish=maybe", "error: publish=maybe: "),
        ("rubbish=1", "error: rubbish=1: "),
        ("publish", "error: publish: must be KEY=VALUE"),
    ],
)
def test_the_entry_point_refuses_bad_input(
    bad: str,
    start: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    assert compact.main([bad]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(start)


def test_the_module_runs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lpgnn.compact", f"results_dir={tmp_path}"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("nothing to merge")


@pytest.mark.slow
@pytest.mark.parametrize("publish_rows", [False, True])
@pytest.mark.parametrize("survivors", [0, 1, 2])
def test_a_compaction_killed_while_it_removes_gives_no_older_row_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, publish_rows: bool, survivors: int
) -> None:
    """Two shards, each with an older and a newer value of one of two rows."""
    for rows in (
        [make_row("a", 0, 10.0)],
        [make_row("b", 0, 11.0), make_row("a", 0, 20.0)],
        [make_row("b", 0, 21.0)],
    ):
        append_in_child(tmp_path, rows)
    unlink, removed = Path.unlink, 0

    def dies(path: Path, missing_ok: bool = False) -> None:
        nonlocal removed
        if path.suffix == ".csv" and "merging" in path.parts:
            if removed == 3 - survivors:
                raise KeyboardInterrupt
            removed += 1
        unlink(path, missing_ok=missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", dies)
        if survivors:
            with pytest.raises(KeyboardInterrupt):
                RowStore(tmp_path).compact(publish=publish_rows)
        else:
            RowStore(tmp_path).compact(publish=publish_rows)
    for _ in range(2):  # as it was left, and after the next compaction
        found = {row["id"]: float(row["paper/test/acc"]) for row in RowStore(tmp_path).read("sbm")}
        assert found == {"a": 20.0, "b": 21.0}
        RowStore(tmp_path).compact(publish=publish_rows)
    assert list((tmp_path / "local" / "merging").iterdir()) == []


def test_a_compaction_keeps_the_time_of_a_row(tmp_path: Path) -> None:
    store = RowStore(tmp_path)
    store.append("sbm", [make_row("a", 0)])
    (written,) = [row["written"] for row in store.read("sbm")]
    assert len(written) == 19
    for is_published in (False, True):
        store.compact(publish=is_published)
        assert [row["written"] for row in store.read("sbm")] == [written]


@pytest.mark.parametrize("later", ["published", "local"])
def test_the_later_of_a_published_and_a_local_row_counts(later: str, tmp_path: Path) -> None:
    """A colleague's newer row, pulled by git, replaces an older one of ours, and not conversely."""
    store = RowStore(tmp_path)
    store.append("sbm", [make_row("a", 0, 50.0)])
    ((_, entry),) = enumerate(store.entries("sbm"))
    written = entry.rank[0] + (1 if later == "published" else -1)
    publish(tmp_path, table([make_row("a", 0, 75.0, written=written)]))
    expected = "75.0" if later == "published" else "50.0"
    for step in ("shard", "compacted", "published"):
        assert [row["paper/test/acc"] for row in store.read("sbm")] == [expected], step
        store.compact(publish=step == "compacted")
