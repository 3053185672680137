import csv
import io
import itertools
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lpgnn.errors import InputError
from lpgnn.results import PROVENANCE, RowStore, write_atomically
from lpgnn.results.store import format_value

COLUMNS = ("id", "repeat", "x_eps", "status", "paper/test/acc")


def make_row(identity: str, repeat: int, value: float = 0.5, status: str = "ok") -> dict[str, Any]:
    return dict(zip(COLUMNS, (identity, repeat, 1.0, status, value), strict=True))


def whole_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a file that is whole: every line ends, and has every column."""
    text = path.read_text()
    assert text.endswith("\n"), "the last line is cut off"
    lines = list(csv.reader(io.StringIO(text)))
    assert tuple(lines[0]) == COLUMNS
    assert all(len(line) == len(COLUMNS) for line in lines), "a line is cut off"
    return [dict(zip(COLUMNS, line, strict=True)) for line in lines[1:]]


def keys(rows: list[dict[str, str]]) -> list[tuple[str, int]]:
    return [(row["id"], int(row["repeat"])) for row in rows]


def test_what_is_added_can_be_read(tmp_path: Path) -> None:
    store = RowStore(tmp_path)
    assert store.read("sbm") == []
    assert store.datasets() == []
    store.add("sbm", [make_row("b", 0, 0.1 + 0.2), make_row("a", 1, status='failed: "x", y')])
    first, second = store.read("sbm")
    assert first["status"] == 'failed: "x", y'
    assert float(second["paper/test/acc"]) == 0.1 + 0.2  # no digit is lost
    assert store.datasets() == ["sbm"]
    assert store.path("sbm") == tmp_path / "rows" / "sbm.csv"


def test_datasets_have_files_of_their_own(tmp_path: Path) -> None:
    store = RowStore(tmp_path)
    store.add("cora", [make_row("a", 0)])
    store.add("sbm", [make_row("b", 0)])
    assert keys(store.read("cora")) == [("a", 0)]
    assert store.datasets() == ["cora", "sbm"]


def test_a_row_of_the_same_computation_and_repeat_is_replaced(tmp_path: Path) -> None:
    store = RowStore(tmp_path)
    store.add("sbm", [make_row("a", 0, 1.0), make_row("a", 1, 2.0), make_row("b", 0, 3.0)])
    store.add("sbm", [make_row("a", 0, 9.0)])
    assert [row["paper/test/acc"] for row in store.read("sbm")] == ["9.0", "2.0", "3.0"]


def test_the_file_does_not_depend_on_the_order_of_insertion(tmp_path: Path) -> None:
    rows = [make_row(i, r, ord(i) + r) for i in "ab" for r in (0, 2, 10)]
    texts = set()
    for number, order in enumerate(itertools.islice(itertools.permutations(rows), 0, 720, 90)):
        store = RowStore(tmp_path / str(number))
        store.add("sbm", order[:1])
        store.add("sbm", order[1:4])
        store.add("sbm", order[4:])
        texts.add(store.path("sbm").read_bytes())
    assert len(texts) == 1
    # Repeat 10 comes after repeat 2: numbers, not words.
    assert keys(whole_rows(store.path("sbm"))) == [(i, r) for i in "ab" for r in (0, 2, 10)]


def test_a_new_column_is_empty_in_old_rows(tmp_path: Path) -> None:
    store = RowStore(tmp_path)
    store.add("sbm", [make_row("b", 0)])
    store.add("sbm", [make_row("a", 0) | {"new": 5}])
    assert [row["new"] for row in store.read("sbm")] == ["5", ""]


def test_failed_rows_count_as_finished(tmp_path: Path) -> None:
    store = RowStore(tmp_path)
    failed = make_row("a", 3, status="failed: loss is not finite at epoch 2")
    store.add("sbm", [make_row("a", 0), failed, make_row("b", 1)])
    assert sorted(store.finished("sbm", "a")) == [0, 3]
    assert sorted(store.finished("sbm", "c")) == []
    assert store.finished("cora", "a") == {}


def test_values_are_spelt_exactly() -> None:
    spelt = [format_value(v) for v in (True, False, 1 / 3, 1e-10, float("inf"), 3, "text")]
    assert spelt == ["true", "false", "0.3333333333333333", "1e-10", "inf", "3", "text"]


def test_provenance_does_not_hold_science() -> None:
    assert set(PROVENANCE) == {"duration", "device", "version", "revision", "dirty"}


def test_a_file_where_the_folder_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    for folder in (tmp_path / "taken", tmp_path / "taken" / "below"):
        with pytest.raises(InputError) as caught:
            RowStore(folder).check_writable()
        assert caught.value.setting == "results_dir"
        assert str(folder) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_folder_without_permission_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:  # root may write anywhere: act as if not
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("lpgnn.results.store.tempfile.TemporaryFile", refuse)
    with pytest.raises(InputError, match="Permission denied"):
        RowStore(tmp_path).check_writable()


def test_looking_whether_a_folder_is_writable_leaves_nothing_behind(tmp_path: Path) -> None:
    RowStore(tmp_path).check_writable()
    assert list((tmp_path / "rows").iterdir()) == []


@pytest.mark.parametrize("broken", ["replace", "fsync", "fdopen"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.csv"
    write_atomically(path, "old\n")

    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(f"lpgnn.results.store.os.{broken}", fail)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, "new\n")
    monkeypatch.undo()
    assert path.read_text() == "old\n"
    assert [p.name for p in tmp_path.iterdir()] == ["file.csv"]


def test_readers_never_see_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.csv"
    write_atomically(path, "old\n")
    seen = []
    replace = os.replace

    def watch(source: str, target: Path) -> None:
        seen.append((Path(target).read_text(), Path(source).read_text()))
        replace(source, target)

    monkeypatch.setattr("lpgnn.results.store.os.replace", watch)
    write_atomically(path, "new\n")
    assert seen == [("old\n", "new\n")]  # the new file was whole before it took the name
    assert path.read_text() == "new\n"


def in_child(work: Callable[[], object]) -> int:
    """Run work in a forked process (which starts in no time), return its id."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child


def test_two_processes_that_add_at_once_lose_nothing(tmp_path: Path) -> None:
    store = RowStore(tmp_path)

    def add_all(identity: str) -> None:
        for repeat in range(40):
            store.add("sbm", [make_row(identity, repeat)])

    children = [in_child(lambda name=name: add_all(name)) for name in "abc"]  # type: ignore[misc]
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    assert keys(whole_rows(store.path("sbm"))) == [(i, r) for i in "abc" for r in range(40)]


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
    acknowledged = len(os.read(reader, 1))  # the writer is on its way
    time.sleep(0.03 * moments.random())
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while told := os.read(reader, 4096):
        acknowledged += len(told)
    os.close(reader)
    return acknowledged


def test_a_writer_killed_at_any_moment_leaves_whole_files_and_every_acknowledged_row(
    tmp_path: Path,
) -> None:
    store, moments = RowStore(tmp_path), random.Random(0)
    store.add("sbm", [make_row("z", r, status="x" * 500) for r in range(200)])  # 100 KB

    def add(number: int) -> None:
        store.add("sbm", [make_row("a", number)])

    acknowledged = 0
    for _ in range(40):
        told = kill_at_random(add, moments, acknowledged)
        assert told > 0
        acknowledged += told
        found = [r for name, r in keys(whole_rows(store.path("sbm"))) if name == "a"]
        # The writer may have been killed between its last write and the word of it.
        assert found in (list(range(acknowledged)), list(range(acknowledged + 1)))
    store.add("sbm", [make_row("b", 0)])  # no lock is left behind
    assert len(whole_rows(store.path("sbm"))) == 200 + len(found) + 1


def test_the_kill_test_finds_a_writer_that_is_not_atomic(tmp_path: Path) -> None:
    path = tmp_path / "sbm.csv"

    def write_in_place(number: int) -> None:
        with path.open("w") as file:
            file.write(",".join(COLUMNS) + "\n")
            for repeat in range(number + 200):
                file.write(f"a,{repeat},1.0,ok,{'5' * 500}\n")
                file.flush()

    moments = random.Random(0)
    for _ in range(20):
        kill_at_random(write_in_place, moments, 0)
        try:
            found = len(whole_rows(path))
        except AssertionError:
            return
        if found < 200:
            return
    pytest.fail("twenty kills in the middle of a write went unnoticed")
