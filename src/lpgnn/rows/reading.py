"""Files of rows, read line by line.

Three kinds of file hold rows of a dataset: published, compacted, and shards.  Every row ends with
a CRC-32, so that a torn or damaged line shows.  In a shard, every line, its header too, ends with
two stamps: the time it was written (ns) and the CRC-32 of the text before.  In the other two, which
are tables for everybody to read, the CRC-32 is the last column, ``check``, and covers the header
before the row's own text: a row says nothing under other names.

A line that is not a valid row is set aside: it is not used, it stops nobody, and it is reported
with its number.  A table without checksums was written by hand or by an earlier version: nothing
tells whether it is as it was, so it is not used until somebody vouches for it (``seal=true``).

Of two rows of one run the later counts, wherever it is.  A row that replaces another is stamped
later than it, whatever the clock says, so that a wrong clock brings no earlier row back; two rows
that knew nothing of each other are ordered by their clocks, for every reader alike.
"""

import csv
import enum
import io
import os
import sys
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from lpgnn.files import open_regular
from lpgnn.processes import is_running
from lpgnn.rows.schema import (
    COLUMNS,
    MAX_LINE,
    REQUIRED,
    Row,
    RowValidator,
    Valid,
    as_cells,
    row_validator,
    split_line,
)

_SCHEMA = frozenset(COLUMNS)

# The last column of a table.
CHECK = "check"
UNSEALED = (
    f"has no checksums (last column {CHECK}): written by hand or by an earlier version?  "
    "If it is right, python -m lpgnn.compact seal=true adds them"
)

# The last line of a shard from another machine, without an end, may be on its way.  After so many
# seconds it is not.
_UNDER_WAY = 1.0


class Level(enum.IntEnum):
    """Which file a row is taken from if it has the same time, or none, in several: the highest."""

    PUBLISHED = 0
    COMPACTED = 1
    SHARD = 2


Rank = tuple[int, Level, str]  # written at, level, file name


class Entry(NamedTuple):
    """A valid row, kept as text: a dictionary takes several times the memory.

    Rows of one configuration share the text of its settings.
    """

    identity: str
    repeat: int
    rank: Rank
    columns: tuple[str, ...]
    settings: str  # '' if the row's own text has them
    own: str  # the line, with nothing in the place of the settings

    @classmethod
    def of(cls, line: str, row: Valid, rank: Rank, columns: tuple[str, ...]) -> "Entry":
        own = line[: row.at] + line[row.at + len(row.settings) :]
        return cls(sys.intern(row.identity), row.repeat, rank, columns, row.settings, own)

    @property
    def line(self) -> str:
        """The row as its file has it."""
        if not self.settings:
            return self.own
        return self.own.replace(",,", f",{self.settings},", 1)  # id and repeat are not blank

    def row(self) -> Row:
        """The row with every column of the schema; '' where its file has none."""
        cells = self.own.split(",") if '"' not in self.own else split_line(self.own)
        if self.settings:
            cells[2:3] = _cells(self.settings)
        row = dict(zip(self.columns, cells, strict=True))
        if self.columns is COLUMNS or row.keys() >= _SCHEMA:
            return row
        return dict.fromkeys(COLUMNS, "") | {"written": str(self.rank[0] or "")} | row


@lru_cache(maxsize=1024)
def _cells(settings: str) -> list[str]:
    """The cells of settings: rows that share the text share the cells, too."""
    return split_line(settings)


class Signature(NamedTuple):
    """Tells whether a file has changed since it was read."""

    inode: int
    size: int
    modified: int

    @classmethod
    def of(cls, path: Path | str) -> "Signature":
        status = os.stat(path)
        return cls(status.st_ino, status.st_size, status.st_mtime_ns)


class RowFile:
    """The rows of one file, which are all of one dataset.

    ``bad`` maps line numbers to what is wrong with them.  ``unusable`` says why nothing can be
    used; ``unreadable`` that the system did not let us read it, so that its content is unknown.

    vouched: somebody vouches for the lines of a table, whatever its checksums are
    """

    def __init__(self, path: Path, level: Level, dataset: str, *, vouched: bool = False) -> None:
        self.path, self.level, self.dataset = path, level, dataset
        self.vouched = vouched
        self.signature = Signature(0, 0, 0)
        self.entries: list[Entry] = []
        self.bad: dict[int, str] = {}
        self.unusable = ""
        self.unreadable = False
        self.is_torn = False  # the last line has no end yet
        self._validator: RowValidator | None = None
        self._header_check: int | None = None  # where checksums begin, in a table that has them
        self._offset = self._lines = 0  # what has been read

    @property
    def columns(self) -> tuple[str, ...]:
        return self._validator.columns if self._validator is not None else ()

    @property
    def is_unsealed(self) -> bool:
        """Whether the file is a table without checksums, for which nobody has vouched."""
        return self.unusable == UNSEALED

    def read(self, signature: Signature) -> list[Entry]:
        """Read the file, or what was appended to it since; return the new entries.

        Raises FileNotFoundError if the file has gone.
        """
        self.signature = signature
        number = len(self.entries)
        try:
            with open_regular(self.path) as file:
                file.seek(self._offset)
                self._read_lines(file)
        except FileNotFoundError:
            raise
        except OSError as error:
            self.unusable = f"cannot be read ({error.strerror or error})"
            self.unreadable = True
        if not self.unusable and self._validator is None and self.bad:
            wanted = ", ".join(REQUIRED)
            self.unusable = f"is not a table of rows: no header line with {wanted} and commas"
        return self.entries[number:]

    def has_grown_to(self, signature: Signature) -> bool:
        """Whether the file is a shard that has only been appended to, or ends as it did."""
        return (
            self.level is Level.SHARD
            and not self.unusable
            and signature.inode == self.signature.inode
            and signature.size > self._offset
            and (signature.size > self.signature.size or signature == self.signature)
        )

    def _read_lines(self, lines: Iterable[bytes]) -> None:
        self.is_torn = False
        for raw in lines:
            self._lines += 1
            self.bad.pop(self._lines, None)
            problem = self._take(raw)
            if self.unusable:
                break
            self.is_torn = self.level is Level.SHARD and bool(problem) and raw[-1:] != b"\n"
            if problem and not (self.is_torn and self._is_under_way()):
                self.bad[self._lines] = problem
            if self.is_torn:  # to be read again with what follows, which may be there by now
                self._lines -= 1
                break
            self._offset += len(raw)

    def _is_under_way(self) -> bool:
        """Whether somebody may be writing the last line: its writer lives, as far as we can see."""
        writer = self.path.stem.rpartition(".")[2].rpartition("-")[0]
        lives = is_running(writer)
        if lives is None:
            return time.time() - self.signature.modified / 1e9 < _UNDER_WAY
        return lives

    def _take(self, raw: bytes) -> str:
        """Use a line; return what is wrong with it."""
        raw = raw.rstrip(b"\r\n")
        if self._lines == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        if not raw.strip():
            return ""
        if b"\0" in raw or b"\r" in raw:
            return "control characters"
        if len(raw) > MAX_LINE:
            return f"longer than {MAX_LINE:,} characters"
        try:
            if self.level is Level.SHARD:
                text, written = _unstamped(raw)
            else:
                text, written = self._unchecked(raw), 0
            line = text.decode()
            if self._validator is None:
                self._take_header(line)
            else:
                self._take_row(line, written, self._validator)
        except UnicodeDecodeError:
            return "not UTF-8 text"
        except ValueError as error:
            return str(error)
        return ""

    def _unchecked(self, raw: bytes) -> bytes:
        """A table's line without its checksum."""
        if self._validator is None or self._header_check is None:
            return raw
        text, _, check = raw.rpartition(b",")
        if not self.vouched and check != _checksum(text, self._header_check):
            raise ValueError("checksum does not match line and header")
        return text

    def _take_header(self, line: str) -> None:
        columns = _read_header(line)
        if self.level is not Level.SHARD:
            if columns[-1] == CHECK:
                columns = columns[:-1]
                self._header_check = zlib.crc32(line.removesuffix(CHECK).encode())
            elif not self.vouched:
                self.unusable = UNSEALED
                return
        self._validator = row_validator(columns, self.dataset)

    def _take_row(self, line: str, written: int, validator: RowValidator) -> None:
        row = validator.check(line)
        written = written or row.written
        rank = self.entries[-1].rank if self.entries else None
        if rank is None or rank[0] != written:  # rows written together share a rank
            rank = (written, self.level, self.path.name)
        self.entries.append(Entry.of(line, row, rank, validator.columns))


def _read_header(line: str) -> tuple[str, ...]:
    try:
        columns = tuple(split_line(line))
    except csv.Error as error:
        raise ValueError(str(error)) from None
    if not set(REQUIRED) <= set(columns):
        raise ValueError("before the header line")
    if len(set(columns)) < len(columns):
        raise ValueError("header line with a column twice")
    return columns


def _unstamped(raw: bytes) -> tuple[bytes, int]:
    """A shard's line without its stamps, and when it was written."""
    stamped, _, check = raw.rpartition(b",")
    if check != _checksum(stamped):
        raise ValueError("checksum does not match")
    text, _, written = stamped.rpartition(b",")
    return text, int(written)


def _stamped(text: str, written: int) -> bytes:
    data = b"%s,%d" % (text.encode(errors="backslashreplace"), written)
    return b"%s,%s\n" % (data, _checksum(data))


def _checksum(text: bytes, before: int = 0) -> bytes:
    """The CRC-32 of a line, or of a text with this CRC-32 and the line after it."""
    return b"%08x" % zlib.crc32(text, before)


def table_content(columns: Sequence[str], lines: Iterable[str]) -> bytes:
    """A table of rows, which are lines of these columns."""
    header = f"{csv_line(columns)},".encode()
    before = zlib.crc32(header)
    content = [header, CHECK.encode(), b"\n"]
    for line in lines:
        text = line.encode()
        content += (text, b",", _checksum(text, before), b"\n")
    return b"".join(content)


def shard_header(columns: Sequence[str], written: int) -> bytes:
    """The first line of a shard."""
    return _stamped(csv_line(columns), written)


def shard_lines(
    dataset: str, columns: Sequence[str], rows: Sequence[Mapping[str, object]], written: int
) -> bytes:
    """The lines of rows in a shard.  Raises ValueError for a row that no reader would accept."""
    validator = row_validator(tuple(columns), dataset)
    lines = []
    for row in rows:
        cells = as_cells(row, columns)
        line = _stamped(csv_line(cells), written)
        problem = validator.problem(cells)
        if problem or len(line) > MAX_LINE:
            problem = problem or f"longer than {MAX_LINE:,} characters"
            raise ValueError(f"row {row.get('id')}/{row.get('repeat')}: {problem}")
        lines.append(line)
    return b"".join(lines)


def csv_line(cells: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(cells)
    return text.getvalue()


class RowIndex:
    """One entry for each key: of the highest rank, and of a file's entries the last."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.by_identity: dict[str, dict[int, Entry]] = {}
        self.insert(entries)

    def insert(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            repeats = self.by_identity.setdefault(entry.identity, {})
            known = repeats.get(entry.repeat)
            if known is None or entry.rank >= known.rank:
                repeats[entry.repeat] = entry

    def entries(self) -> list[Entry]:
        """All entries by identity and repeat."""
        return [
            repeats[repeat]
            for _, repeats in sorted(self.by_identity.items())
            for repeat in sorted(repeats)
        ]


def describe_bad_lines(bad: Mapping[int, str]) -> str:
    """Line numbers with what is wrong, the first few of them."""
    first = [f"line {number}: {bad[number]}" for number in sorted(bad)[:3]]
    return "; ".join([*first, "..."] if len(bad) > 3 else first)
