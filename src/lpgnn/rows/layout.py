"""Where the files of a results folder are.

    <results_dir>/rows/<dataset>.csv            published: tracked by git, sorted
    <results_dir>/local/<dataset>.csv           compacted from shards
    <results_dir>/local/shards/<dataset>.*.csv  one for each process that writes
    <results_dir>/local/merging/                shards that a compaction has taken
    <results_dir>/local/set_aside/              lines that are no rows (.bad), and copies of damaged
                                                files that a compaction replaced
    <results_dir>/local/runs/<id>/<repeat>/     what a run saved beside its row
    <results_dir>/local/asked/, resolved/       what finished commands asked for (lpgnn.finished)

Files are listed in the order in which a compaction moves rows (shards, merging, compacted,
published), so that a row on the move is found once or twice, never missed.
"""

import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

from lpgnn.errors import InputError
from lpgnn.processes import process_name
from lpgnn.rows.reading import Level

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


class Layout:
    """Where the files of a results folder are."""

    def __init__(self, results_dir: Path) -> None:
        self.root = results_dir
        self.tracked = results_dir / "rows"
        self.local = results_dir / "local"
        self.shards = self.local / "shards"
        self.merging = self.local / "merging"
        self.set_aside = self.local / "set_aside"

    def published(self, dataset: str) -> Path:
        return self.tracked / f"{check_name(dataset)}.csv"

    def compacted(self, dataset: str) -> Path:
        return self.local / f"{check_name(dataset)}.csv"

    def new_shard(self, dataset: str) -> Path:
        writer = f"{process_name()}-{secrets.token_hex(4)}"
        return self.shards / f"{check_name(dataset)}.{writer}.csv"

    def files(self, dataset: str) -> Iterator[tuple[Path, Level]]:
        """The files that may hold rows of a dataset, in the order that misses no row."""
        check_name(dataset)
        merged = self.merged_files(dataset)
        for folder in (self.shards, self.merging):
            for name in _csv_names(folder):
                if _dataset_of_shard(name) == dataset and folder / name not in merged:
                    yield folder / name, Level.SHARD
        for path, level in (
            (self.compacted(dataset), Level.COMPACTED),
            (self.published(dataset), Level.PUBLISHED),
        ):
            # Path.exists raises where the folder is closed to us
            if os.path.exists(path) and path not in merged:
                yield path, level

    def merged_list(self, dataset: str) -> Path:
        """Names the files whose rows a compaction has merged and is about to remove."""
        return self.merging / f"{check_name(dataset)}.merged"

    def merged_files(self, dataset: str) -> set[Path]:
        """Files that no longer count: what is left of them may be older than what they gave."""
        try:
            names = self.merged_list(dataset).read_text(encoding="utf-8").splitlines()
        except OSError:
            return set()
        return {self.local / name for name in names}

    def datasets(self) -> list[str]:
        shards = (*_csv_names(self.shards), *_csv_names(self.merging))
        tables = (*_csv_names(self.local), *_csv_names(self.tracked))
        names = {_dataset_of_shard(name) for name in shards}
        names |= {name.removesuffix(".csv") for name in tables}
        return sorted(name for name in names if _NAME.fullmatch(name))


def check_name(dataset: str) -> str:
    """A dataset's name becomes a file name, and must not lead out of the folder."""
    if not _NAME.fullmatch(dataset):
        raise InputError("dataset.name", dataset, "must consist of letters, digits and . _ -")
    return dataset


def _csv_names(folder: Path) -> list[str]:
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError("results_dir", folder, f"cannot be read ({reason})") from None
    return sorted(name for name in names if name.endswith(".csv") and not name.startswith("."))


def _dataset_of_shard(name: str) -> str:
    return name.removesuffix(".csv").rpartition(".")[0]  # writers' names have no dot
