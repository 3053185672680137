"""Damaged files: bad lines are not used, stop nobody, and are reported once."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lpgnn.rows import RowStore
from rows.rows import append_in_child, keys, make_row, publish, shards, table

ROWS = [make_row("a", 0), make_row("a", 1), make_row("b", 0)]
KEYS = [("a", 0), ("a", 1), ("b", 0)]
GOOD = table(ROWS).encode()
HEADER, FIRST, SECOND, THIRD = GOOD.splitlines(keepends=True)


def without(line: bytes, old: bytes, new: bytes) -> bytes:
    assert old in line
    return line.replace(old, new, 1)


# What is in the file, the keys that are read from it, and what the one warning says.
PUBLISHED: dict[str, tuple[bytes, list[tuple[str, int]], str]] = {
    "a word at the end": (GOOD + b"oops\n", KEYS, "line 5: 1 cells instead of 48"),
    "a word without an end": (GOOD + b"oops", KEYS, "line 5: 1 cells instead of 48"),
    "the header again": (GOOD + HEADER, KEYS, "line 5"),
    "two files in one": (GOOD + GOOD, KEYS, "line 5"),
    "conflict markers": (
        HEADER + b"<<<<<<< HEAD\n" + FIRST + b"=======\n" + SECOND + b">>>>>>> theirs\n" + THIRD,
        KEYS,
        "3 lines are not used (line 2",
    ),
    "a conflict above the header": (b"<<<<<<< HEAD\n" + GOOD, KEYS, "line 1: before the header"),
    "NULs in a line": (HEADER + b"\0\0\0\0\n" + FIRST, KEYS[:1], "line 2: control characters"),
    "NULs inside a row": (HEADER + without(FIRST, b"sage", b"s\0ge") + SECOND, KEYS[1:2], "line 2"),
    "NULs at the end": (GOOD + b"\0" * 4096, KEYS, "line 5: control characters"),
    "a row cut in the middle": (GOOD[:-150], KEYS[:2], "line 4"),
    "a row cut inside quotes": (GOOD[: GOOD.rindex(b"filter.steps")], KEYS[:2], "line 4"),
    "a row without its last cell": (GOOD[: GOOD.rindex(b",")], KEYS[:2], "47 cells instead of 48"),
    "half a word at the end": (GOOD[:-3], KEYS[:2], "dirty is 'fal'"),
    "a cell too many": (HEADER + FIRST[:-1] + b",1\n" + SECOND, KEYS[1:2], "line 2: 49 cells"),
    "a quote that never closes": (HEADER + b'"' + FIRST + SECOND, KEYS[1:2], "line 2"),
    "a stray quote": (HEADER + without(FIRST, b'lazy""', b'lazy"') + SECOND, KEYS[1:2], "line 2"),
    "no id": (HEADER + FIRST[1:] + SECOND, KEYS[1:2], "line 2: id is ''"),
    "a repeat that is no number": (
        HEADER + without(FIRST, b"a,0,", b"a,zero,") + SECOND,
        KEYS[1:2],
        "line 2: repeat is 'zero'",
    ),
    "letters in a number": (
        HEADER + without(FIRST, b"81.25", b"8l.25") + SECOND,
        KEYS[1:2],
        "line 2: paper/test/acc is '8l.25'",
    ),
    "an accuracy of 812.5": (
        HEADER + without(FIRST, b"81.25", b"812.5") + SECOND,
        KEYS[1:2],
        "not a number from 0 to 100",
    ),
    "an unknown status": (
        HEADER + without(FIRST, b",ok,", b",okay,") + SECOND,
        KEYS[1:2],
        "status is 'okay'",
    ),
    "no status": (HEADER + without(FIRST, b",ok,", b",,") + SECOND, KEYS[1:2], "status is ''"),
    "options that are no JSON": (
        HEADER + without(FIRST, b'{""', b'""') + SECOND,
        KEYS[1:2],
        "options is not a JSON object",
    ),
    "bytes that are no UTF-8": (
        HEADER + without(FIRST, b"sage", b"s\xffge") + SECOND,
        KEYS[1:2],
        "line 2: not UTF-8 text",
    ),
    "a row twice": (GOOD + THIRD, KEYS, ""),
    "a byte order mark": (b"\xef\xbb\xbf" + GOOD, KEYS, ""),
    "Windows line ends": (GOOD.replace(b"\n", b"\r\n"), KEYS, ""),
    "old Mac line ends": (GOOD.replace(b"\n", b"\r"), [], "is not a table of rows"),
    "blank lines": (GOOD.replace(b"\n", b"\n\n"), KEYS, ""),
    "no end of the last line": (GOOD[:-1], KEYS, ""),
    "an empty file": (b"", [], ""),
    "only a header": (HEADER, [], ""),
    "no header": (FIRST + SECOND, [], "is not a table of rows"),
    "a header without status": (
        without(GOOD, b",status,", b",state,"),
        [],
        "is not a table of rows: no header line with id, repeat, status and commas",
    ),
    "a header with a column twice": (
        without(GOOD, b",x_eps,", b",y_eps,"),
        [],
        "is not a table of rows",
    ),
    "semicolons": (GOOD.replace(b",", b";"), [], "is not a table of rows"),
    "UTF-16": (GOOD.decode().encode("utf-16"), [], "is not a table of rows"),
    "a binary file": (bytes(range(256)) * 50, [], "is not a table of rows"),
    "a web page": (b"<!DOCTYPE html>\n<html>\n404\n</html>\n", [], "is not a table of rows"),
    "an endless line": (GOOD + b"x" * 300_000 + b"\n", KEYS, "line 5: longer than 100,000"),
    "endless options": (
        HEADER + without(FIRST, b"lazy", b"l" * 300_000) + SECOND,
        KEYS[1:2],
        "line 2: longer than 100,000",
    ),
}


def check(
    results_dir: Path,
    path: Path,
    found: list[tuple[str, int]],
    warning: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Reading uses the good rows, warns once, and appending goes on."""
    for _ in range(2):
        assert keys(RowStore(results_dir).read("sbm")) == found
        assert sorted(RowStore(results_dir).finished("sbm", "a")) == [
            r for i, r in found if i == "a"
        ]
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == (1 if warning else 0)
    if warning:
        assert str(path) in messages[0]
        assert warning in messages[0]
        assert "\n" not in messages[0]
        assert {(r.name, r.levelno) for r in caplog.records} == {("lpgnn", logging.WARNING)}
    store = RowStore(results_dir)
    store.append("sbm", [make_row("new", 0)])
    assert keys(store.read("sbm")) == [*found, ("new", 0)]
    missing = [row for row, key in zip(ROWS, KEYS, strict=True) if key not in found]
    store.append("sbm", missing)  # computed again
    assert keys(store.read("sbm")) == [*KEYS, ("new", 0)]
    assert len(caplog.records) == len(messages)


@pytest.mark.parametrize("kind", PUBLISHED)
def test_damaged_published_files(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content, found, warning = PUBLISHED[kind]
    check(tmp_path, publish(tmp_path, content), found, warning, caplog)


@pytest.mark.parametrize("kind", PUBLISHED)
def test_publishing_repairs_a_damaged_file_and_keeps_a_copy(kind: str, tmp_path: Path) -> None:
    content, found, warning = PUBLISHED[kind]
    path = publish(tmp_path, content)
    store = RowStore(tmp_path)
    store.append("sbm", [make_row("new", 0)])
    (done,) = store.compact(publish=True)
    assert (done.merged, done.total) == (1, len(found) + 1)
    assert (done.set_aside > 0) == bool(warning)
    lines = path.read_bytes().splitlines(keepends=True)
    assert lines[0] == HEADER
    assert len(lines) == len(found) + 2
    assert keys(store.read("sbm")) == [*found, ("new", 0)]
    copies = list((tmp_path / "local").glob("set_aside/*"))
    assert [copy.read_bytes() for copy in copies] == ([content] if warning else [])


def flip(number: int) -> Callable[[list[bytes]], list[bytes]]:
    """Change one bit of a line at a place."""

    def damage(lines: list[bytes]) -> list[bytes]:
        line = bytearray(lines[2])
        line[number % (len(line) - 1)] ^= 1
        return [*lines[:2], bytes(line), *lines[3:]]

    return damage


SHARDS: dict[str, tuple[Callable[[list[bytes]], list[bytes]], list[tuple[str, int]], str]] = {
    **{
        f"a bit flipped at {place}": (flip(place), [KEYS[0], KEYS[2]], "line 3: checksum")
        for place in (0, 3, 20, 60, 150, 250, 300, -1, -5, -12, -25)
    },
    "a line cut": (lambda x: [*x[:2], x[2][:100] + b"\n", x[3]], [KEYS[0], KEYS[2]], "line 3"),
    "a word": (lambda x: [*x, b"oops\n"], KEYS, "line 5: checksum does not match"),
    "a published line": (lambda x: [*x[:3], THIRD], KEYS[:2], "line 4: checksum"),
    "a published header": (lambda x: [HEADER, *x[1:]], [], "is not a table of rows"),
    "a cut header": (lambda x: [x[0][:50] + b"\n", *x[1:]], [], "is not a table of rows"),
    "no header": (lambda x: x[1:], [], "is not a table of rows"),
    "the header again": (lambda x: [*x, x[0]], KEYS, "line 5"),
    "NULs": (lambda x: [*x, b"\0" * 512], KEYS, "line 5: control characters"),
    "a line missing": (lambda x: [*x[:2], x[3]], [KEYS[0], KEYS[2]], ""),
    "a line twice": (lambda x: [*x, x[2]], KEYS, ""),
    "Windows line ends": (lambda x: [line.replace(b"\n", b"\r\n") for line in x], KEYS, ""),
    "binary": (lambda x: [bytes(range(256)) * 20], [], "is not a table of rows"),
    "empty": (lambda x: [], [], ""),
}


@pytest.mark.parametrize("kind", SHARDS)
def test_damaged_shards(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    damage, found, warning = SHARDS[kind]
    append_in_child(tmp_path, ROWS)
    (shard,) = shards(tmp_path)
    shard.write_bytes(b"".join(damage(shard.read_bytes().splitlines(keepends=True))))
    os.utime(shard, (1e9, 1e9))
    check(tmp_path, shard, found, warning, caplog)


def test_any_flipped_bit_of_a_shard_is_noticed(tmp_path: Path) -> None:
    append_in_child(tmp_path, ROWS[:1])
    (shard,) = shards(tmp_path)
    header, line = shard.read_bytes().splitlines(keepends=True)
    for place in range(len(line) - 1):
        for bit in (1, 16):
            damaged = bytearray(line)
            damaged[place] ^= bit
            shard.write_bytes(header + damaged)
            assert RowStore(tmp_path).read("sbm") == [], (place, bit)
    shard.write_bytes(header + line)
    assert len(RowStore(tmp_path).read("sbm")) == 1


def test_each_bad_line_is_reported_once_also_when_the_file_grows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    publish(tmp_path, GOOD + b"oops\n")
    RowStore(tmp_path).read("sbm")
    publish(tmp_path, GOOD + b"oops\nagain\n")
    RowStore(tmp_path).read("sbm")
    first, second = (record.getMessage() for record in caplog.records)
    assert "1 line is not used (line 5: 1 cells instead of 48)" in first
    assert "1 line is not used (line 6: 1 cells instead of 48)" in second


def test_bad_lines_are_kept_in_a_file_that_the_message_names(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    publish(tmp_path, GOOD + b"oops\n" + THIRD[:-200] + b"\n")
    RowStore(tmp_path).read("sbm")
    (record,) = caplog.records
    assert record.getMessage().endswith("; kept in set_aside/rows-sbm.csv.bad")
    kept = (tmp_path / "local" / "set_aside" / "rows-sbm.csv.bad").read_bytes()
    first, second = kept.splitlines()
    assert first == b"line 5: 1 cells instead of 48: oops"
    assert second.startswith(b"line 6: ")
    assert second.endswith(THIRD[:-200])


def test_a_reader_that_may_not_write_reads_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    publish(tmp_path, GOOD + b"oops\n")
    (tmp_path / "local").write_text("in the way")
    assert keys(RowStore(tmp_path).read("sbm")) == KEYS
    (record,) = caplog.records
    assert record.getMessage().endswith("(line 5: 1 cells instead of 48)")


def test_many_bad_lines_make_one_short_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    publish(tmp_path, GOOD + b"oops\n" * 1000)
    RowStore(tmp_path).read("sbm")
    (record,) = caplog.records
    assert "1000 lines are not used (line 5" in record.getMessage()
    assert "; ...)" in record.getMessage()
    assert len(record.getMessage()) < 400


@pytest.mark.parametrize("place", ["rows/sbm.csv", "local/sbm.csv", "local/shards/sbm.x.csv"])
def test_a_folder_in_place_of_a_file(
    place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / place).mkdir(parents=True)
    append_in_child(tmp_path, ROWS)
    check(tmp_path, tmp_path / place, KEYS, "cannot be read (Is a directory)", caplog)


@pytest.mark.parametrize("place", ["rows/sbm.csv", "local/sbm.csv", "local/shards/sbm.x.csv"])
def test_a_link_to_nowhere(place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).symlink_to(tmp_path / "nowhere.csv")
    append_in_child(tmp_path, ROWS)
    check(tmp_path, tmp_path / place, KEYS, "", caplog)


def test_files_of_others_are_no_datasets(tmp_path: Path) -> None:
    for name in (".sbm.csv.1a2b.tmp", ".hidden.csv", "notes.txt", "a b.csv", "sbm.csv~"):
        publish(tmp_path, b"x").with_name(name).write_text("x")
    (tmp_path / "rows" / "sbm.csv").unlink()
    assert RowStore(tmp_path).datasets() == []
