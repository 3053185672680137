"""Machine code on disk: where it is kept, and that what is loaded is what was written.

Numba keeps compiled functions as pickles and trusts them.  Here every file begins with a digest of
the rest: code that a disk or a crash has damaged is compiled again, not executed.
"""

import contextlib
import hashlib
import io
import logging
import os
import pickle
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from numba import config
from numba.core.caching import IndexDataCacheFile

from lpgnn.files import write_atomically

_log = logging.getLogger("lpgnn")

_DIGEST_BYTES = hashlib.sha256().digest_size


class CheckedFiles(IndexDataCacheFile):  # type: ignore[misc]
    """The files of one function: an index of its signatures, and the code of each."""

    def save(self, key: Any, data: Any) -> None:
        try:
            super().save(key, data)
        except OSError as error:  # a full disk: the function works, and is compiled again next time
            _log.info("machine code is not kept in %s: %s", self._cache_path, error)

    def _load_index(self) -> dict[Any, str]:
        data = _checked(Path(self._index_path))
        if data is None:
            return {}
        stream = io.BytesIO(data)
        if pickle.load(stream) != self._version:
            return {}
        stamp, overloads = pickle.loads(stream.read())
        return dict(overloads) if stamp == self._source_stamp else {}

    def _load_data(self, name: str) -> Any:
        data = _checked(Path(self._data_path(name)))
        if data is None:
            raise FileNotFoundError(name)  # numba then compiles
        return pickle.loads(data)

    @contextlib.contextmanager
    def _open_for_write(self, path: str) -> Iterator[io.BytesIO]:
        content = io.BytesIO()
        yield content
        data = content.getvalue()
        write_atomically(Path(path), hashlib.sha256(data).digest() + data)


def _checked(path: Path) -> bytes | None:
    """The content of a file; None if it is not there or not as it was written."""
    try:
        found = path.read_bytes()
    except OSError:
        return None
    digest, data = found[:_DIGEST_BYTES], found[_DIGEST_BYTES:]
    if hashlib.sha256(data).digest() != digest:
        _log.info("compiling again: %s is damaged", path)
        return None
    return data


def keep_checked(dispatcher: Any) -> None:
    """Give a function that numba compiles and caches files with digests."""
    numba_files = dispatcher._cache._cache_file
    checked = CheckedFiles.__new__(CheckedFiles)
    checked.__dict__.update(numba_files.__dict__)
    dispatcher._cache._cache_file = checked


def cache_folder(package: Path) -> Path:
    """Where machine code is kept: a folder for each state of this package's sources.

    Numba itself looks only at the file that a function stands in: after a change of this module
    it would reuse what other modules' functions were compiled from before.
    """
    sources = b"".join(path.read_bytes() for path in sorted(package.glob("*.py")))
    version = hashlib.sha256(sources).hexdigest()[:12]
    for parent in _cache_parents(package):
        folder = parent / version
        with contextlib.suppress(OSError):  # a folder that cannot be written to
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
    # Nothing can be kept: every process compiles for itself.
    return Path(tempfile.mkdtemp(prefix="lpgnn-"))


def _cache_parents(package: Path) -> Iterator[Path]:
    """The user's NUMBA_CACHE_DIR, the package, the home folder, a temporary folder."""
    if config.CACHE_DIR:
        yield Path(config.CACHE_DIR)
    yield package / "__pycache__"
    with contextlib.suppress(RuntimeError):  # a user without a home
        yield Path.home() / ".cache" / "lpgnn"
    if hasattr(os, "getuid"):
        own = Path(tempfile.gettempdir()) / f"lpgnn-{os.getuid()}"
        # Everybody may write to the temporary folder, and what is kept here is executed.
        if _is_private(own):
            yield own


def _is_private(folder: Path) -> bool:
    """Whether the folder is this user's own, made now if there is none."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
