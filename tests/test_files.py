import os
from pathlib import Path
from typing import Any

import pytest

from lpgnn.files import remove_temporary_files
from lpgnn.rows import write_atomically


@pytest.mark.parametrize("broken", ["replace", "fsync", "fdopen"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.csv"
    write_atomically(path, "old\n")

    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(f"lpgnn.files.os.{broken}", fail)
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

    monkeypatch.setattr("lpgnn.files.os.replace", watch)
    write_atomically(path, b"new\n")
    assert seen == [("old\n", "new\n")]  # the new file was whole before it took the name
    assert path.read_text() == "new\n"


@pytest.mark.parametrize("mask", [0o022, 0o002, 0o077])
def test_modes_follow_umask(mask: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        write_atomically(tmp_path / "below" / "file.csv", "x")
    finally:
        os.umask(before)
    assert (tmp_path / "below" / "file.csv").stat().st_mode & 0o777 == 0o666 & ~mask


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "elsewhere" / "file.csv", tmp_path / "file.csv"
    target.parent.mkdir()
    link.symlink_to(target)
    for text in ("first\n", "second\n"):  # at first a link to nowhere
        write_atomically(link, text)
        assert link.is_symlink()
        assert target.read_text() == text
    assert [p.name for p in target.parent.iterdir()] == ["file.csv"]


def test_a_device_or_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(OSError, match="neither a file nor a new name"):
        write_atomically(path, "text")
    assert path.is_fifo()
    assert [p.name for p in tmp_path.iterdir()] == ["pipe"]


def test_what_killed_writers_left_is_removed(tmp_path: Path) -> None:
    for name in (".a.csv.12345678.tmp", ".a.csv.87654321.tmp", ".b.csv.12345678.tmp", "a.csv"):
        (tmp_path / name).write_text("x")
    remove_temporary_files(tmp_path / "a.csv")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".b.csv.12345678.tmp", "a.csv"]
