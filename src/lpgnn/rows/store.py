"""Rows on disk: appended to shards, merged by readers, compacted on demand.

Writers need no lock: nobody else writes to a process's shard.
"""

import contextlib
import errno
import logging
import os
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from lpgnn.errors import InputError, StorageError
from lpgnn.files import make_folder, share, sync_folder, write_atomically
from lpgnn.rows.compaction import (
    Compacted,
    Sealed,
    compact_dataset,
    compaction_lock,
    seal_dataset,
)
from lpgnn.rows.layout import Layout, check_name
from lpgnn.rows.reading import (
    Entry,
    Level,
    RowFile,
    RowIndex,
    Signature,
    describe_bad_lines,
    shard_header,
    shard_lines,
)
from lpgnn.rows.schema import Row, order_columns

logger = logging.getLogger("lpgnn")

# ``finished`` is called thousands of times in a row: it looks for changes by others this often.
_RECHECK_SECONDS = 0.05

_FOLDERS = {Level.PUBLISHED: "rows", Level.COMPACTED: "local", Level.SHARD: "local/shards"}


class RowStore:
    """The rows of a results folder.

    Stores of one folder share what they have read: files are parsed once per process and again
    only when they change.  A row replaces an earlier one with the same id and repeat.
    """

    def __init__(self, results_dir: Path | str) -> None:
        self.results_dir = Path(results_dir).expanduser()
        for place in (self.results_dir, *self.results_dir.parents):
            if place.exists() and not place.is_dir():
                allowed = f"must be a folder, and {place} is a file"
                raise InputError("results_dir", self.results_dir, allowed)
        self._folder = _shared_folder(self.results_dir.absolute())
        self._folder.expire()

    def __reduce__(self) -> tuple[type["RowStore"], tuple[Path]]:
        return RowStore, (self.results_dir,)

    def published(self, dataset: str) -> Path:
        """The file of a dataset that is tracked by git."""
        return self._folder.layout.published(dataset)

    def run_folder(self, identity: str, repeat: int) -> Path:
        """Where a run saves what it keeps beside its row."""
        return self.results_dir / "local" / "runs" / identity / str(repeat)

    def check_writable(self) -> None:
        """Find out before the work, not after it."""
        try:
            self._folder.open()
            with tempfile.TemporaryFile(dir=self._folder.layout.shards):
                pass
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise InputError(
                "results_dir", self.results_dir, f"must be a writable folder ({reason})"
            ) from None

    def datasets(self) -> list[str]:
        return self._folder.layout.datasets()

    def read(self, dataset: str) -> list[Row]:
        """All rows of a dataset, sorted by id and repeat."""
        return [entry.row() for entry in self.entries(dataset)]

    def stream(self, dataset: str) -> Iterator[Row]:
        """The same one by one, for who does not need them all at once."""
        return (entry.row() for entry in self.entries(dataset))

    def entries(self, dataset: str) -> list[Entry]:
        """The same as text, which takes a fifth of the memory."""
        return self._folder.index(dataset).entries()

    def finished(self, dataset: str, identity: str) -> dict[int, Row]:
        """The rows of a configuration by repeat; failed ones are finished too."""
        index = self._folder.index(dataset, recheck_after=_RECHECK_SECONDS)
        found = index.by_identity.get(identity, {})
        return {repeat: found[repeat].row() for repeat in sorted(found)}

    def files_of(self, dataset: str, identity: str) -> tuple[str, ...]:
        """The files that hold the rows of a configuration, from the results folder."""
        index = self._folder.index(dataset, recheck_after=_RECHECK_SECONDS)
        ranks = {entry.rank[1:] for entry in index.by_identity.get(identity, {}).values()}
        return tuple(f"{_FOLDERS[level]}/{name}" for level, name in sorted(ranks))

    def repeats(self, dataset: str, identity: str) -> frozenset[int]:
        """The repeats of a configuration that have a row."""
        index = self._folder.index(dataset, recheck_after=_RECHECK_SECONDS)
        return frozenset(index.by_identity.get(identity, ()))

    def append(self, dataset: str, rows: Iterable[Mapping[str, object]]) -> None:
        """Add rows to this process's shard; they are on disk when this returns.

        Raises StorageError if they cannot be written, and ValueError for a row that no reader would
        accept, such as one of another dataset.
        """
        check_name(dataset)
        taken = list(rows)  # a generator may raise an OSError of its own
        try:
            self._folder.append(dataset, taken)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise  # this process has opened too many files, which is no fault of the folder
            raise StorageError.of(self.results_dir, error) from None

    def compact(self, *, publish: bool = False) -> list[Compacted]:
        """Merge shards into ``local/<dataset>.csv``, or with ``publish`` all local rows into
        ``rows/<dataset>.csv``.

        Writers may go on meanwhile.  Datasets with nothing to merge are left alone.
        """
        layout = self._folder.layout
        if not layout.local.is_dir():
            return []
        with compaction_lock(layout):
            found = [compact_dataset(layout, name, publish=publish) for name in layout.datasets()]
        self._folder.expire()
        return [one for one in found if one is not None]

    def seal(self) -> list[Sealed]:
        """Vouch for the tables: give rows that were edited, or are older than checksums, theirs.

        Tables that need none are left alone.
        """
        layout = self._folder.layout
        make_folder(layout.local, layout.root)
        with compaction_lock(layout):
            done = [one for name in layout.datasets() for one in seal_dataset(layout, name)]
        self._folder.expire()
        return done


@lru_cache(maxsize=16)
def _shared_folder(results_dir: Path) -> "_Folder":
    return _Folder(Layout(results_dir))


class _Folder:
    """What this process knows about a results folder, and the shards it writes to."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._files: dict[str, dict[Path, RowFile]] = {}
        self._indices: dict[str, RowIndex] = {}
        self._checked: dict[str, float] = {}
        self._reported: set[tuple[str, int, str]] = set()
        self._shards: dict[tuple[int, str, tuple[str, ...]], Path] = {}
        self._last_written = 0
        self._is_open = False
        self._lock = threading.RLock()

    def open(self) -> None:
        """Make the folder of shards; from now on it is an error if it is gone."""
        make_folder(self.layout.shards, self.layout.root)
        self._is_open = True

    def expire(self) -> None:
        """Look for changes at the next question, however soon it comes."""
        self._checked.clear()

    def index(self, dataset: str, *, recheck_after: float = 0.0) -> RowIndex:
        with self._lock:
            if time.monotonic() - self._checked.get(dataset, -1e9) >= recheck_after:
                self._refresh(dataset)
                self._checked[dataset] = time.monotonic()
            return self._indices[dataset]

    def append(self, dataset: str, rows: list[Mapping[str, object]]) -> None:
        if not rows:
            return
        columns = order_columns(name for row in rows for name in row if name != "written")
        with self._lock:
            written = self._last_written = max(
                *(self._last_written + 1, time.time_ns()),
                *(1 + time for time in self._times(dataset, rows)),
            )
            lines = shard_lines(dataset, columns, rows, written)
            # After a fork the parent's shards stay the parent's; after an error a shard may end in
            # a torn line, and is not used again.
            key = (os.getpid(), dataset, columns)
            shard = self._shards.pop(key, None)
            if shard is None or not _append_to(shard, lines):
                shard = self._new_shard(dataset, shard_header(columns, written) + lines)
            self._shards[key] = shard
            self.expire()

    def _times(self, dataset: str, rows: list[Mapping[str, object]]) -> Iterator[int]:
        """When the rows that these replace were written: those that this process has read."""
        known = self._indices[dataset].by_identity if dataset in self._indices else {}
        for row in rows:
            entry = known.get(str(row["id"]), {}).get(int(str(row["repeat"])))
            if entry is not None:
                yield entry.rank[0]

    def _new_shard(self, dataset: str, content: bytes) -> Path:
        if not self._is_open:
            self.open()
        while True:
            shard = self.layout.new_shard(dataset)
            if _create(shard, content):
                return shard

    def _refresh(self, dataset: str) -> None:
        known = self._files.get(dataset, {})
        found: dict[Path, RowFile] = {}
        added: list[Entry] = []
        rebuild = dataset not in self._indices
        for path, level in self.layout.files(dataset):
            try:
                signature = Signature.of(path)
                file = known.get(path)
                # A line without an end may have lost its writer, which changes no file.
                if file is None or file.signature != signature or file.is_torn:
                    rebuild |= file is not None and not file.has_grown_to(signature)
                    if file is None or not file.has_grown_to(signature):
                        file = RowFile(path, level, dataset)
                    added += file.read(signature)
                found[path] = file
            except FileNotFoundError:
                continue  # a compaction has moved it on, to where we have yet to look
        if rebuild or not known.keys() <= found.keys():
            self._indices[dataset] = RowIndex(e for file in found.values() for e in file.entries)
        else:
            self._indices[dataset].insert(added)
        self._files[dataset] = found
        self._report(dataset)

    def _report(self, dataset: str) -> None:
        """One line for each file with lines that are not used, once."""
        for file in self._files[dataset].values():
            place = f"{file.path.parent.name}/{file.path.name}"
            if file.unusable:
                if (place, 0, file.unusable) not in self._reported:
                    self._reported.add((place, 0, file.unusable))
                    logger.warning("%s %s; the file is not used", file.path, file.unusable)
                continue
            bad = {
                number: problem
                for number, problem in file.bad.items()
                if (place, number, problem) not in self._reported
            }
            if bad:
                self._reported |= {(place, number, problem) for number, problem in bad.items()}
                what = "1 line is" if len(bad) == 1 else f"{len(bad)} lines are"
                kept = self._keep_bad_lines(file)
                logger.warning(
                    "%s: %s not used (%s)%s", file.path, what, describe_bad_lines(bad), kept
                )

    def _keep_bad_lines(self, file: RowFile) -> str:
        """Copy the bad lines of a file to one of their own: who repairs the file wants them."""
        copy = self.layout.set_aside / f"{file.path.parent.name}-{file.path.name}.bad"
        try:
            with file.path.open("rb") as lines:
                numbered = enumerate(lines, start=1)
                kept = [(n, line.rstrip(b"\r\n")) for n, line in numbered if n in file.bad]
            content = b"".join(
                b"line %d: %s: %s\n" % (n, file.bad[n].encode(), line) for n, line in kept
            )
            if not copy.exists() or copy.read_bytes() != content:
                make_folder(copy.parent, self.layout.root)
                write_atomically(copy, content)
        except OSError:  # a reader may have no right to write here
            return ""
        return f"; kept in {copy.parent.name}/{copy.name}"


def _create(path: Path, content: bytes) -> bool:
    """Make a new shard; False if a compaction took it before it was written."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        share(descriptor, path.parent)
        _write_durably(descriptor, content)
        sync_folder(path.parent)
        return _is_same_file(descriptor, path)
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink()
        raise
    finally:
        os.close(descriptor)


def _append_to(path: Path, content: bytes) -> bool:
    """Append to a shard; False if it is not there any more and the rows belong elsewhere.

    A compaction takes a shard by renaming it, then reads it.  If the name is still ours after the
    write, the compaction is yet to come and will read these rows.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    except FileNotFoundError:
        return False
    try:
        size = os.fstat(descriptor).st_size
        try:
            _write_durably(descriptor, content)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, size)
            raise
        return _is_same_file(descriptor, path)
    finally:
        os.close(descriptor)


def _is_same_file(descriptor: int, path: Path) -> bool:
    # Opened, not asked by name: network file systems answer for a name from memory.
    try:
        again = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return os.path.samestat(os.fstat(descriptor), os.fstat(again))
    finally:
        os.close(again)


def _write_durably(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    os.fsync(descriptor)
