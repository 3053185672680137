"""Damaged files: bad lines are not used, stop nobody, and are reported once."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lpgnn.compact import main as compact
from lpgnn.errors import InputError
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
    "a word at the end": (GOOD + b"oops\n", KEYS, "line 5: checksum does not match"),
    "a word without an end": (GOOD + b"oops", KEYS, "line 5: checksum does not match"),
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
    "a row without its last cell": (GOOD[: GOOD.rindex(b",")], KEYS[:2], "line 4: checksum"),
    "half a word at the end": (GOOD[:-3], KEYS[:2], "line 4: checksum"),
    "a cell too many": (HEADER + FIRST[:-1] + b",1\n" + SECOND, KEYS[1:2], "line 2: checksum"),
    "a quote that never closes": (HEADER + b'"' + FIRST + SECOND, KEYS[1:2], "line 2"),
    "a stray quote": (HEADER + without(FIRST, b'lazy""', b'lazy"') + SECOND, KEYS[1:2], "line 2"),
    "no id": (HEADER + FIRST[1:] + SECOND, KEYS[1:2], "line 2: checksum"),
    "a repeat that is no number": (
        HEADER + without(FIRST, b"a,0,", b"a,zero,") + SECOND,
        KEYS[1:2],
        "line 2: checksum",
    ),
    "letters in a number": (
        HEADER + without(FIRST, b"81.25", b"8l.25") + SECOND,
        KEYS[1:2],
        "line 2: checksum",
    ),
    "an accuracy of 812.5": (
        HEADER + without(FIRST, b"81.25", b"812.5") + SECOND,
        KEYS[1:2],
        "line 2: checksum",
    ),
    "an unknown status": (
        HEADER + without(FIRST, b",ok,", b",okay,") + SECOND,
        KEYS[1:2],
        "line 2: checksum",
    ),
    "no status": (HEADER + without(FIRST, b",ok,", b",,") + SECOND, KEYS[1:2], "line 2: checksum"),
    "options that are no JSON": (
        HEADER + without(FIRST, b'{""', b'""') + SECOND,
        KEYS[1:2],
        "line 2: checksum",
    ),
    "bytes that are no UTF-8": (
        HEADER + without(FIRST, b"sage", b"s\xffge") + SECOND,
        KEYS[1:2],
        "line 2: checksum",
    ),
    "a row of another dataset": (
        table([*ROWS, make_row("c", 0, dataset="cora")]).encode(),
        KEYS,
        "line 5: dataset is 'cora', not sbm, after which the file is named",
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
    "a header with another name": (
        without(GOOD, b",paper/test/acc,", b",paper/test/agc,"),
        [],
        "3 lines are not used (line 2: checksum does not match",
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

# Beside those of the schema, a column that we do not know stays in the file.
KEPT_HEADERS = {
    "a header with another name": without(
        HEADER, b",paper/test/balanced_acc,", b",paper/test/balanced_acc,paper/test/agc,"
    )
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
    assert lines[0] == KEPT_HEADERS.get(kind, HEADER)
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


def test_any_flipped_bit_of_a_table_is_noticed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of its header, too: a row may not come back under other names."""
    one = table(ROWS[:1]).encode()
    for place in range(len(one)):
        damaged = bytearray(one)
        damaged[place] ^= 1 << place % 8
        publish(tmp_path, bytes(damaged))
        assert RowStore(tmp_path).read("sbm") == [], (place, damaged[place])
    assert 1 <= len(caplog.records) < 20  # one line for each thing that can be wrong, once
    publish(tmp_path, one)
    assert len(RowStore(tmp_path).read("sbm")) == 1


OLDER = "".join(line.rpartition(",")[0] + "\n" for line in GOOD.decode().splitlines())


def test_a_table_without_checksums_is_not_used_until_somebody_vouches_for_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    path = publish(tmp_path, OLDER + "oops\n")
    store = RowStore(tmp_path)
    assert store.read("sbm") == []
    (record,) = caplog.records
    assert "has no checksums (last column check)" in record.getMessage()
    assert "python -m lpgnn.compact seal=true adds them" in record.getMessage()
    store.append("sbm", [make_row("new", 0)])
    with pytest.raises(InputError, match="has no checksums"):  # it would be lost
        store.compact(publish=True)
    assert path.read_text() == OLDER + "oops\n"
    assert compact([f"results_dir={tmp_path}", "seal=true"]) == 0
    assert f"{path}: checksums for 3 rows, 1 lines set aside" in capsys.readouterr().out
    assert path.read_bytes() == GOOD
    assert keys(store.read("sbm")) == [*KEYS, ("new", 0)]
    assert [one.read_text() for one in (tmp_path / "local").glob("set_aside/*-*.csv")] == [
        OLDER + "oops\n"
    ]
    assert store.seal() == []


def test_a_row_that_was_edited_counts_when_somebody_vouches_for_it(tmp_path: Path) -> None:
    edited = GOOD.replace(b"81.25", b"82.25", 1)
    publish(tmp_path, edited)
    store = RowStore(tmp_path)
    assert keys(store.read("sbm")) == KEYS[1:]
    (sealed,) = store.seal()
    assert (sealed.total, sealed.set_aside) == (3, 0)
    assert [row["paper/test/acc"] for row in store.read("sbm")] == ["82.25", "81.25", "81.25"]


def test_tables_of_two_branches_can_be_merged_line_by_line(tmp_path: Path) -> None:
    ours, theirs = (table([ROWS[0], row]) for row in ROWS[1:])
    merged = list(dict.fromkeys((ours + theirs).splitlines(keepends=True)))
    publish(tmp_path, "".join(merged))
    assert "".join(merged) == GOOD.decode()
    assert keys(RowStore(tmp_path).read("sbm")) == KEYS


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
    assert "1 line is not used (line 5: checksum does not match line and header)" in first
    assert "1 line is not used (line 6: checksum does not match line and header)" in second


def test_bad_lines_are_kept_in_a_file_that_the_message_names(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    publish(tmp_path, GOOD + b"oops\n" + THIRD[:-200] + b"\n")
    RowStore(tmp_path).read("sbm")
    (record,) = caplog.records
    assert record.getMessage().endswith("; kept in set_aside/rows-sbm.csv.bad")
    kept = (tmp_path / "local" / "set_aside" / "rows-sbm.csv.bad").read_bytes()
    first, second = kept.splitlines()
    assert first == b"line 5: checksum does not match line and header: oops"
    assert second.startswith(b"line 6: ")
    assert second.endswith(THIRD[:-200])


def test_a_reader_that_may_not_write_reads_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    publish(tmp_path, GOOD + b"oops\n")
    (tmp_path / "local").write_text("in the way")
    assert keys(RowStore(tmp_path).read("sbm")) == KEYS
    (record,) = caplog.records
    assert record.getMessage().endswith("(line 5: checksum does not match line and header)")


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
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_pipe_or_a_device_in_place_of_a_file(
    kind: str, place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Who opened the pipe would wait for its writer for ever."""
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    append_in_child(tmp_path, ROWS)
    reason = "cannot be read (neither a file nor a link to one)"
    check(tmp_path, path, KEYS, reason, caplog)


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
