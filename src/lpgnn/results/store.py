"""Rows on disk: one CSV a dataset, one line a repeat, sorted, and never half-written."""

import csv
import io
import os
import tempfile
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from filelock import FileLock

from lpgnn.errors import InputError

Row = dict[str, str]

# What is not recorded of a row's numbers: where and when they were computed.
PROVENANCE = ("duration", "device", "version", "revision", "dirty")


@lru_cache(maxsize=1)
def package_version() -> str:
    """The version that is installed: a row's, and with it the speed of its run."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("lpgnn")
    except PackageNotFoundError:
        return "unknown"


class RowStore:
    """The rows of a results folder.

    Writers take a lock, read what is there, add their rows and replace the file in one step, so
    that kill -9 leaves the old file or the new one, and two sweeps on one folder both count.  The
    order of the lines depends on the rows only.
    """

    def __init__(self, results_dir: Path | str) -> None:
        self.folder = Path(results_dir) / "rows"

    def path(self, dataset: str) -> Path:
        return self.folder / f"{dataset}.csv"

    def check_writable(self) -> None:
        """Find out before the work, not after it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise InputError(
                "results_dir", self.folder.parent, f"must be a writable folder ({reason})"
            ) from None

    def read(self, dataset: str) -> list[Row]:
        path = self.path(dataset)
        if not path.is_file():
            return []
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def datasets(self) -> list[str]:
        return sorted(path.stem for path in self.folder.glob("*.csv"))

    def finished(self, dataset: str, identity: str) -> dict[int, Row]:
        """The rows of a computation by repeat; failed ones are finished too."""
        return {int(r["repeat"]): r for r in self.read(dataset) if r["id"] == identity}

    def add(self, dataset: str, rows: Iterable[Mapping[str, object]]) -> None:
        """Add rows; a row of the same computation and repeat is replaced."""
        fresh = [{key: format_value(value) for key, value in row.items()} for row in rows]
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / f".{dataset}.lock"):
            by_key = {(r["id"], int(r["repeat"])): r for r in self.read(dataset)}
            by_key |= {(r["id"], int(r["repeat"])): r for r in fresh}
            columns = list(dict.fromkeys(name for row in by_key.values() for name in row))
            text = io.StringIO()
            writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(by_key[key] for key in sorted(by_key))
            write_atomically(self.path(dataset), text.getvalue())


def format_value(value: object) -> str:
    """A value as it stands in a CSV file: shortest exact floats, lower-case booleans."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a whole file or nothing, through a temporary file in the same folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
