"""Merging shards into one sorted file, while writers go on.

A compaction takes a shard by renaming it into ``local/merging``, where readers find it too, merges
what it has taken, makes the result durable, lists what it has merged, and only then removes it.
Killed at any point it leaves every row in at least one place, and the next compaction goes on.
"""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lpgnn.errors import InputError, StorageError
from lpgnn.files import (
    lock,
    make_folder,
    remove_temporary_files,
    sync_folder,
    write_atomically,
)
from lpgnn.rows.layout import Layout
from lpgnn.rows.reading import (
    Entry,
    Level,
    RowFile,
    RowIndex,
    Signature,
    csv_line,
    table_content,
)
from lpgnn.rows.schema import as_cells, order_columns


@dataclass(frozen=True)
class Compacted:
    """What a compaction did to a dataset."""

    dataset: str
    path: Path
    merged: int  # rows taken from shards (and, publishing, from the compacted file)
    total: int  # rows in the file now
    set_aside: int  # lines that are no valid rows

    def __str__(self) -> str:
        text = f"{self.dataset}: {self.merged} rows merged into {self.path} ({self.total} rows)"
        return f"{text}, {self.set_aside} lines set aside" if self.set_aside else text


@dataclass(frozen=True)
class Sealed:
    """A table that has been given checksums."""

    path: Path
    total: int  # rows in it
    set_aside: int  # lines that are no valid rows

    def __str__(self) -> str:
        text = f"{self.path}: checksums for {self.total} rows"
        return f"{text}, {self.set_aside} lines set aside" if self.set_aside else text


@contextlib.contextmanager
def compaction_lock(layout: Layout) -> Iterator[None]:
    """One compaction at a time.  Writers and readers do not need this lock."""
    try:
        with lock(layout.local / ".compaction.lock", "another compaction"):
            yield
    except OSError as error:
        raise StorageError.of(layout.root, error) from None


def compact_dataset(layout: Layout, dataset: str, *, publish: bool) -> Compacted | None:
    """Merge the shards of a dataset; None if there is nothing to merge."""
    compacted, published = layout.compacted(dataset), layout.published(dataset)
    target = published if publish else compacted
    for path in (compacted, published, layout.merged_list(dataset)):
        remove_temporary_files(path)
    _remove_merged(layout, dataset)
    _take_shards(layout, dataset)
    files = [
        _read(path, level, dataset)
        for path, level in layout.files(dataset)
        if path.parent != layout.shards and (publish or path != published)
        if path.exists()  # a shard may be a link to nowhere
    ]
    sources = [file for file in files if file.path != target and not file.unreadable]
    if not sources:
        return None
    for file in files:  # to replace such a file would be to lose it
        if file.is_unsealed or (file.unreadable and file.path == target):
            raise InputError("results_dir", file.path, file.unusable)
        if (file.bad or file.unusable) and not file.unreadable:
            _keep_copy(file.path, layout)
    entries = RowIndex(entry for file in files for entry in file.entries).entries()
    if entries:
        _write_table(target, entries, (name for file in files for name in file.columns))
    # A writer that had a shard open when it was taken may just have added to it: then all of them
    # stay for the next time.  Removed one by one, the files would give back rows that newer ones,
    # now gone, had replaced: so what is merged is listed first, and no longer counts.
    if all(Signature.of(file.path) == file.signature for file in sources):
        names = [str(file.path.relative_to(layout.local)) for file in sources]
        write_atomically(layout.merged_list(dataset), "".join(f"{name}\n" for name in names))
        sync_folder(layout.merging)
        _remove_merged(layout, dataset)
    merged = RowIndex(entry for file in sources for entry in file.entries)
    set_aside = sum(len(file.bad) for file in files)
    return Compacted(dataset, target, len(merged.entries()), len(entries), set_aside)


def seal_dataset(layout: Layout, dataset: str) -> Iterator[Sealed]:
    """Give the tables of a dataset checksums, taking their valid lines as they are."""
    for path, level in layout.files(dataset):
        if level is Level.SHARD:
            continue
        remove_temporary_files(path)
        if not (found := _read(path, level, dataset)).is_unsealed and not found.bad:
            continue
        file = _read(path, level, dataset, vouched=True)
        if file.unusable:
            raise InputError("results_dir", path, file.unusable)
        if file.bad:
            _keep_copy(path, layout)
        entries = RowIndex(file.entries).entries()
        _write_table(path, entries, file.columns)
        yield Sealed(path, len(entries), len(file.bad))


def _write_table(path: Path, entries: Sequence[Entry], columns: Iterable[str]) -> None:
    ordered = order_columns(["written", *columns])
    write_atomically(path, table_content(ordered, (_line(entry, ordered) for entry in entries)))
    sync_folder(Path(os.path.realpath(path)).parent)


def _line(entry: Entry, columns: tuple[str, ...]) -> str:
    if entry.columns == columns:
        return entry.line
    return csv_line(as_cells(entry.row(), columns))


def _remove_merged(layout: Layout, dataset: str) -> None:
    """Remove what has been merged; a compaction that was killed in the middle is finished."""
    for path in layout.merged_files(dataset):
        path.unlink(missing_ok=True)
    layout.merged_list(dataset).unlink(missing_ok=True)


def _take_shards(layout: Layout, dataset: str) -> None:
    make_folder(layout.merging, layout.root)
    for path, _ in list(layout.files(dataset)):
        if path.parent == layout.shards:
            path.rename(layout.merging / path.name)


def _read(path: Path, level: Level, dataset: str, *, vouched: bool = False) -> RowFile:
    file = RowFile(path, level, dataset, vouched=vouched)
    file.read(Signature.of(path))
    return file


def _keep_copy(path: Path, layout: Layout) -> None:
    """Keep a damaged file as it was: the result of the merge has its good lines only."""
    folder = layout.set_aside
    make_folder(folder, layout.root)
    copy = folder / f"{path.stem}-{secrets.token_hex(4)}{path.suffix}"
    shutil.copyfile(path, copy)
    with copy.open("rb") as file:
        os.fsync(file.fileno())
    sync_folder(folder)
