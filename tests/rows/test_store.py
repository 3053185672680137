import itertools
import logging
import os
import pickle
import random
import shutil
import signal
import stat
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lpgnn.errors import InputError, StorageError
from lpgnn.processes import is_running, process_name
from lpgnn.rows import COLUMNS, RowStore, SweepRecord
from lpgnn.rows import store as store_module
from lpgnn.rows.layout import Layout
from lpgnn.rows.reading import Level, RowFile, Signature, table_content
from rows.rows import (
    append_in_child,
    in_child,
    keys,
    make_row,
    publish,
    shards,
    table,
)


def accuracies(store: RowStore) -> list[str]:
    return [row["paper/test/acc"] for row in store.read("sbm")]


def test_what_is_appended_can_be_read(tmp_path: Path) -> None:
    store = RowStore(tmp_path)
    assert store.read("sbm") == []
    assert store.datasets() == []
    failed = make_row("a", 1, status='failed: "x", y')
    store.append("sbm", [make_row("b", 0, 0.1 + 0.2), failed])
    first, second = store.read("sbm")
    assert first["status"] == 'failed: "x", y'
    assert float(second["paper/test/acc"]) == 0.1 + 0.2  # no digit is lost
    assert second["options"] == make_row("b", 0)["options"]
    assert tuple(first) == COLUMNS
    assert store.datasets() == ["sbm"]


def test_rows_come_sorted_by_id_and_number_of_the_repeat(tmp_path: Path) -> None:
    store = RowStore(tmp_path)
    wanted = [(identity, repeat) for identity in "ab" for repeat in (0, 2, 10)]
    for key in random.Random(0).sample(wanted, len(wanted)):
        store.append("sbm", [make_row(*key)])
    assert keys(store.read("sbm")) == wanted


def test_datasets_have_files_of_their_own(tmp_path: Path) -> None:
    store = RowStore(tmp_path)
    store.append("cora", [make_row("a", 0, dataset="cora")])
    store.append("my.graph-2", [make_row("b", 0, dataset="my.graph-2")])
    publish(tmp_path, table([make_row("c", 0)]), "pubmed")
    assert keys(store.read("cora")) == [("a", 0)]
    assert store.datasets() == ["cora", "my.graph-2", "pubmed"]


def test_a_row_of_another_dataset_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="row a/0: dataset is 'sbm', not cora"):
        RowStore(tmp_path).append("cora", [make_row("a", 0)])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".x", "a b", "x\n"])
def test_a_name_that_leads_elsewhere_is_refused(name: str, tmp_path: Path) -> None:
    store = RowStore(tmp_path)
    with pytest.raises(InputError, match=r"dataset\.name"):
        store.append(name, [make_row("a", 0)])
    with pytest.raises(InputError, match=r"dataset\.name"):
        store.read(name)


def test_finished_rows_by_repeat(tmp_path: Path) -> None:
    store = RowStore(tmp_path)
    failed = make_row("a", 3, status="failed: loss is not finite at epoch 2")
    store.append("sbm", [failed, make_row("a", 0), make_row("b", 1)])
    assert list(store.finished("sbm", "a")) == [0, 3]
    assert store.finished("sbm", "a")[3]["status"].startswith("failed")
    assert store.finished("sbm", "c") == {}
    assert store.finished("cora", "a") == {}


def test_later_rows_replace_earlier_ones(tmp_path: Path) -> None:
    store = RowStore(tmp_path)
    publish(tmp_path, table([make_row("a", 0, 1.0), make_row("a", 1, 2.0), make_row("a", 2, 3.0)]))
    assert accuracies(store) == ["1.0", "2.0", "3.0"]
    store.append("sbm", [make_row("a", 1, 4.0), make_row("a", 2, 5.0)])
    store.append("sbm", [make_row("a", 2, 6.0)])
    assert accuracies(store) == ["1.0", "4.0", "6.0"]
    append_in_child(tmp_path, [make_row("a", 2, 7.0)])
    store.append("sbm", [make_row("a", 1, 8.0)])
    assert accuracies(store) == ["1.0", "8.0", "7.0"]
    store.compact()
    assert accuracies(store) == ["1.0", "8.0", "7.0"]
    store.append("sbm", [make_row("a", 1, 9.0)])
    assert accuracies(store) == ["1.0", "9.0", "7.0"]


def test_of_two_shards_the_one_written_later_counts_whatever_their_names(tmp_path: Path) -> None:
    for name, acc in (("z", 1.0), ("a", 2.0)):  # the later one has the first name
        append_in_child(tmp_path, [make_row("i", 0, acc)])
        (new,) = (path for path in shards(tmp_path) if "renamed" not in path.name)
        new.rename(new.with_name(f"sbm.renamed-{name}.csv"))
    assert accuracies(RowStore(tmp_path)) == ["2.0"]


def test_a_wrong_clock_brings_no_replaced_row_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row of a machine a year ahead, computed again where the clock is right or a year behind."""
    year = 365 * 24 * 3600 * 10**9
    now = time.time_ns()
    for number, clock in enumerate((now + year, now, now - year)):
        monkeypatch.setattr(store_module, "_shared_folder", lambda path: _fresh_folder(path))
        monkeypatch.setattr("lpgnn.rows.store.time.time_ns", lambda clock=clock: clock)
        store = RowStore(tmp_path)
        store.finished("sbm", "a")  # as a worker does before it stores a row
        store.append("sbm", [make_row("a", 0, float(number))])
        assert accuracies(RowStore(tmp_path)) == [f"{number}.0"]
    assert len(shards(tmp_path)) == 3
    RowStore(tmp_path).compact()
    assert accuracies(RowStore(tmp_path)) == ["2.0"]


def _fresh_folder(results_dir: Path) -> Any:
    """What another process knows of a folder: nothing."""
    return store_module._Folder(Layout(results_dir))


def test_a_folder_that_is_gone_is_an_error_and_not_made_again(tmp_path: Path) -> None:
    store = RowStore(tmp_path / "results")
    store.check_writable()
    shutil.rmtree(tmp_path / "results")
    with pytest.raises(StorageError, match="No such file or directory") as caught:
        store.append("sbm", [make_row("a", 0)])
    assert "rerun to resume" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "results").exists()
    store.check_writable()  # the next start
    store.append("sbm", [make_row("a", 0)])
    assert store.repeats("sbm", "a") == {0}


def test_who_may_write_to_a_folder_may_use_what_is_in_it(tmp_path: Path) -> None:
    """Two users of one group: the folder says so, umask does not."""
    before = os.umask(0o077)
    try:
        tmp_path.chmod(0o2770)
        store = RowStore(tmp_path)
        store.append("sbm", [make_row("a", 0)])
        store.compact()
        store.append("sbm", [make_row("a", 1)])
        SweepRecord.start(tmp_path, [])
    finally:
        os.umask(before)
    found = {path: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "local").rglob("*")}
    found[tmp_path / "local"] = stat.S_IMODE((tmp_path / "local").stat().st_mode)
    # Three folders, a lock, a compacted file and a shard; a sweep's record in two folders,
    # and the mark of its process.
    assert len(found) == 6 + 4
    assert {mode for path, mode in found.items() if path.is_dir()} == {0o2770}
    assert {mode for path, mode in found.items() if path.is_file()} == {0o660}


def test_a_process_has_one_shard_for_each_dataset_and_set_of_columns(tmp_path: Path) -> None:
    store = RowStore(tmp_path)
    for repeat in range(5):
        RowStore(tmp_path).append("sbm", [make_row("a", repeat)])
    assert len(shards(tmp_path)) == 1
    store.append("sbm", [make_row("b", 0, **{"paper/test/auc": 0.5})])
    assert len(shards(tmp_path)) == 2
    append_in_child(tmp_path, [make_row("c", 0)])  # forked: it knows its parent's shard
    assert len(shards(tmp_path)) == 3
    assert len(store.read("sbm")) == 7
    assert [row.get("paper/test/auc") for row in store.read("sbm")][5:] == ["0.5", None]


def test_rows_have_every_column_of_the_schema(tmp_path: Path) -> None:
    columns = ("id", "repeat", "status", "paper/test/acc", "mine")
    publish(tmp_path, table_content(columns, ["a,0,ok,50.5,x"]))
    (row,) = RowStore(tmp_path).read("sbm")
    assert row["paper/test/acc"] == "50.5"
    assert row["mine"] == "x"
    assert row["options"] == ""
    assert row.keys() == {*COLUMNS, "mine"}


def test_a_row_that_no_reader_would_accept_is_refused_by_the_writer(tmp_path: Path) -> None:
    store = RowStore(tmp_path)
    for bad in (make_row("a", 0, 101.0), make_row("a", -1), make_row("a", 0, device="x" * 200_000)):
        with pytest.raises(ValueError, match="row a/"):
            store.append("sbm", [make_row("b", 0), bad])
    assert store.read("sbm") == []
    store.append("sbm", [])
    assert shards(tmp_path) == []


def test_a_file_where_the_folder_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    for folder in (tmp_path / "taken", tmp_path / "taken" / "below"):
        with pytest.raises(InputError) as caught:
            RowStore(folder)
        assert caught.value.setting == "results_dir"
        assert str(folder) in str(caught.value)
        assert str(caught.value).endswith(f"must be a folder, and {tmp_path / 'taken'} is a file")


def test_a_folder_without_permission_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:  # root may write anywhere: act as if not
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("lpgnn.rows.store.tempfile.TemporaryFile", refuse)
    with pytest.raises(InputError, match="Permission denied"):
        RowStore(tmp_path).check_writable()
    monkeypatch.setattr("lpgnn.rows.layout.os.listdir", refuse)
    with pytest.raises(InputError, match="cannot be read"):
        RowStore(tmp_path).datasets()


def test_looking_whether_a_folder_is_writable_leaves_no_file_behind(tmp_path: Path) -> None:
    RowStore(tmp_path).check_writable()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_folder_with_a_space_or_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    RowStore("~/my results").append("sbm", [make_row("a", 0)])
    assert keys(RowStore(tmp_path / "my results").read("sbm")) == [("a", 0)]


def test_a_store_can_be_sent_to_a_worker(tmp_path: Path) -> None:
    store = RowStore(tmp_path)
    store.append("sbm", [make_row("a", 0)])
    assert keys(pickle.loads(pickle.dumps(store)).read("sbm")) == [("a", 0)]


def test_files_follow_umask(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        store = RowStore(tmp_path)
        store.append("sbm", [make_row("a", 0)])
        (shard,) = shards(tmp_path)
        assert shard.stat().st_mode & 0o777 == 0o664
        store.compact(publish=True)
        assert store.published("sbm").stat().st_mode & 0o777 == 0o664
    finally:
        os.umask(before)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The folder and the number of new entries each time that a file is parsed."""
    calls: list[tuple[str, int]] = []
    read = RowFile.read

    def counted(self: RowFile, *arguments: Any) -> Any:
        found = read(self, *arguments)
        calls.append((self.path.parent.name, len(found)))
        return found

    monkeypatch.setattr(RowFile, "read", counted)
    return calls


def test_files_are_parsed_once_and_again_only_when_they_change(
    tmp_path: Path, parsed: list[tuple[str, int]]
) -> None:
    path = publish(tmp_path, table([make_row("a", r) for r in range(3)]))
    append_in_child(tmp_path, [make_row("b", r) for r in range(4)])
    for _ in range(3):
        assert len(RowStore(tmp_path).read("sbm")) == 7
        assert len(RowStore(tmp_path).finished("sbm", "b")) == 4
    assert sorted(parsed) == [("rows", 3), ("shards", 4)]
    parsed.clear()
    store = RowStore(tmp_path)
    store.append("sbm", [make_row("c", 0), make_row("c", 1)])
    assert len(store.finished("sbm", "c")) == 2
    store.append("sbm", [make_row("c", 2)])
    assert len(store.finished("sbm", "c")) == 3
    assert parsed == [("shards", 2), ("shards", 1)]  # of a shard that grew only what is new
    parsed.clear()
    publish(tmp_path, path.read_text() + table([make_row("d", 0)]).splitlines()[1] + "\n")
    assert len(store.read("sbm")) == 11
    assert parsed == [("rows", 4)]
    path.unlink()
    assert len(store.read("sbm")) == 7
    assert parsed == [("rows", 4)]


def test_what_others_write_is_seen(tmp_path: Path) -> None:
    store = RowStore(tmp_path)
    assert store.finished("sbm", "a") == {}
    for repeat in range(3):
        append_in_child(tmp_path, [make_row("a", repeat)])
        assert len(store.read("sbm")) == repeat + 1
    time.sleep(2 * store_module._RECHECK_SECONDS)
    assert list(store.finished("sbm", "a")) == [0, 1, 2]


@pytest.mark.parametrize("failing", ["write", "fsync"])
def test_after_an_error_nothing_is_torn_and_the_next_append_works(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = RowStore(tmp_path)
    real_write = os.write

    def fail(descriptor: int, *data: bytes) -> int:
        if failing == "write" and len(data[0]) > 100:
            return real_write(descriptor, data[0][:100])  # a part fits on the disk
        raise OSError(28, "No space left on device")

    for identity in "ab":  # a new shard, and one that exists
        with monkeypatch.context() as patch:
            patch.setattr(f"lpgnn.rows.store.os.{failing}", fail)
            with pytest.raises(StorageError, match="No space"):
                store.append("sbm", [make_row(identity, 0)])
        store.append("sbm", [make_row(identity, 1)])
        assert store.finished("sbm", identity).keys() == {1}
    assert caplog.records == []


class IoCounter:
    """Characters that this process has read and written."""

    def __enter__(self) -> "IoCounter":
        self._before = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        self.read, self.written = (
            now - before for now, before in zip(self._now(), self._before, strict=True)
        )

    @staticmethod
    def _now() -> tuple[int, int]:
        fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
        return int(fields["rchar"]), int(fields["wchar"])


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="needs Linux")
def test_an_append_reads_nothing_and_writes_only_its_rows(tmp_path: Path) -> None:
    sizes = {}
    for stored in (10, 5000):
        folder = tmp_path / str(stored)
        publish(folder, table([make_row(f"p{i}", 0) for i in range(stored)]))
        append_in_child(folder, [make_row(f"s{i}", 0) for i in range(stored)])
        store = RowStore(folder)
        store.append("sbm", [make_row("first", 0)])
        with IoCounter() as io:
            store.append("sbm", [make_row("second", 0)])
        with IoCounter() as whole:
            store.read("sbm")
        assert whole.read > 2 * 250 * stored  # the counter counts
        sizes[stored] = (io.read, io.written)
    few, many = sizes[10], sizes[5000]
    assert abs(few[0] - many[0]) < 100  # of /proc/self/io itself
    assert few[1] == many[1] < 1000
    with IoCounter() as io:
        store.read("sbm")  # nothing has changed: no file is read again
    assert io.read < 2000


def kill_at_random(write: Callable[[int], object], moments: random.Random, number: int) -> int:
    """Kill -9 a writer at a random moment; return how many writes it acknowledged before.

    number: of the first write; the writer goes on to the next ones until it is killed.
    """
    reader, writer = os.pipe()

    def work() -> None:
        for one in itertools.count(number):
            write(one)
            os.write(writer, b".")  # one byte: it arrives whole or not at all

    child = in_child(work)
    os.close(writer)
    acknowledged = len(os.read(reader, 1))  # the writer has started
    time.sleep(0.02 * moments.random())
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while received := os.read(reader, 4096):
        acknowledged += len(received)
    os.close(reader)
    return acknowledged


@pytest.mark.slow
def test_a_writer_killed_at_any_moment_loses_no_acknowledged_row(tmp_path: Path) -> None:
    store, moments = RowStore(tmp_path), random.Random(0)
    acknowledged = 0
    for _ in range(30):
        received = kill_at_random(
            lambda number: store.append("sbm", [make_row("a", number)]), moments, acknowledged
        )
        assert received > 0
        acknowledged += received
        found = list(RowStore(tmp_path).finished("sbm", "a"))
        # The writer may have been killed between its last write and the word of it.
        assert found in (list(range(acknowledged)), list(range(acknowledged + 1)))
    assert keys(RowStore(tmp_path).read("sbm")) == [("a", r) for r in found]


def test_the_kill_test_finds_a_writer_that_is_not_safe(tmp_path: Path) -> None:
    path = tmp_path / "rows" / "sbm.csv"
    path.parent.mkdir()

    def write_in_place(number: int) -> None:
        lines = table([make_row("a", repeat) for repeat in range(number + 50)]).splitlines()
        with path.open("w") as file:
            for line in lines:
                file.write(f"{line}\n")
                file.flush()
                time.sleep(1e-4)  # most of its time the file is not whole, on any machine

    moments, acknowledged = random.Random(0), 0
    for _ in range(20):
        acknowledged += kill_at_random(write_in_place, moments, acknowledged)
        if len(RowStore(tmp_path).read("sbm")) < acknowledged + 49:
            return
    pytest.fail("twenty kills of a writer that rewrites its file in place were not noticed")


def test_a_torn_end_costs_only_its_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    append_in_child(tmp_path, [make_row("a", 0), make_row("a", 1)])
    (shard,) = shards(tmp_path)
    whole = shard.read_bytes()
    ends = [len(whole) - 1, len(whole) - 5, len(whole) - 100, whole.rindex(b"\n", 0, -1) + 2]
    for number, end in enumerate(ends):
        folder = tmp_path / str(number)
        torn = folder / "local" / "shards" / f"sbm.{process_name()}-{number:08x}.csv"
        torn.parent.mkdir(parents=True)
        torn.write_bytes(whole[:end])
        found = keys(RowStore(folder).read("sbm"))
        assert found == ([("a", 0), ("a", 1)] if number == 0 else [("a", 0)])
        os.utime(torn, (1e9, 1e9))
        RowStore(folder).read("sbm")
        assert caplog.records == []  # it may be on its way: we live
        with torn.open("ab") as file:  # and now the rest of it
            file.write(whole[end:])
        assert len(RowStore(folder).read("sbm")) == 2


@pytest.mark.parametrize("age", [0, 1000])
def test_a_torn_end_whose_writer_has_died_is_reported_at_once(
    age: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    append_in_child(tmp_path, [make_row("a", 0), make_row("a", 1)])
    (shard,) = shards(tmp_path)
    shard.write_bytes(shard.read_bytes()[:-5])
    os.utime(shard, (time.time() - age,) * 2)
    for _ in range(2):
        assert keys(RowStore(tmp_path).read("sbm")) == [("a", 0)]
    (record,) = caplog.records
    assert f"{shard}: 1 line is not used (line 3: checksum" in record.getMessage()
    (done,) = RowStore(tmp_path).compact()
    assert (done.total, done.set_aside) == (1, 1)


def test_a_torn_end_is_reported_when_its_writer_dies(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    append_in_child(tmp_path, [make_row("a", 0)])
    (shard,) = shards(tmp_path)
    child = in_child(lambda: time.sleep(60))
    owned = shard.with_name(f"sbm.{process_name(child)}-00000000.csv")
    shard.rename(owned)
    owned.write_bytes(owned.read_bytes()[:-5])
    assert RowStore(tmp_path).read("sbm") == []
    assert caplog.records == []
    os.kill(child, signal.SIGKILL)
    while is_running(process_name(child)):
        time.sleep(0.01)  # a zombie does not run, either
    assert RowStore(tmp_path).read("sbm") == []
    assert len(caplog.records) == 1
    os.waitpid(child, 0)


@pytest.mark.parametrize(("age", "warnings"), [(0, 0), (1000, 1)])
def test_a_torn_end_from_another_machine_is_reported_after_a_while(
    age: int, warnings: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    append_in_child(tmp_path, [make_row("a", 0)])
    (shard,) = shards(tmp_path)
    remote = shard.rename(shard.with_name("sbm.another-machine-1-00000000.csv"))
    remote.write_bytes(remote.read_bytes()[:-5])
    os.utime(remote, (time.time() - age,) * 2)
    assert RowStore(tmp_path).read("sbm") == []
    assert len(caplog.records) == warnings


def test_the_rest_of_a_torn_line_is_not_taken_for_a_line(tmp_path: Path) -> None:
    """A reader at the end of a shard may get half a line, and the other half at its next try."""
    append_in_child(tmp_path, [make_row("a", 0), make_row("a", 1)])
    (shard,) = shards(tmp_path)
    shard = shard.rename(shard.with_name(f"sbm.{process_name()}-00000000.csv"))  # we live
    header, first, second = shard.read_bytes().splitlines(keepends=True)
    file = RowFile(shard, Level.SHARD, "sbm")
    file.signature = Signature.of(shard)
    file._read_lines([header, first[:50], first[50:], second])
    assert (file.entries, file.bad) == ([], {})
    assert [entry.repeat for entry in file.read(Signature.of(shard))] == [0, 1]
    assert file.bad == {}


def test_four_writers_at_once_lose_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = RowStore(tmp_path)

    def append_all(identity: str) -> None:
        for repeat in range(60):
            store.append("sbm", [make_row(identity, repeat), make_row("shared", repeat)])

    children = [in_child(partial(append_all, name)) for name in "abcd"]
    seen, start = 0, time.monotonic()
    while seen < 5 * 60:
        assert time.monotonic() - start < 60
        assert len(store.read("sbm")) >= seen  # a reader meanwhile: rows never disappear
        seen = len(store.read("sbm"))
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0, 0]
    wanted = [(i, r) for i in (*"abcd", "shared") for r in range(60)]
    assert keys(store.read("sbm")) == wanted
    assert len(shards(tmp_path)) == 4
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []
