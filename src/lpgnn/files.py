"""Files that are written whole or not at all, that others may share, and locks that say they wait.

A file's mode follows umask.  Inside a folder that its group or everybody may write to, it also
follows the folder: who shares a folder shares what is in it.
"""

import contextlib
import errno
import logging
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_logger = logging.getLogger("lpgnn")

# Whoever may write to a folder may read and write what is in it: group, others.
_SHARED = ((0o020, 0o060), (0o002, 0o006))


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a whole file or nothing."""
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def open_regular(path: Path) -> BinaryIO:
    """Open a file, or a link to one, to be read.

    Anything else is refused: a pipe or a device may keep its reader waiting for ever.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # no waiting for a pipe's writer
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise OSError(errno.EINVAL, "neither a file nor a link to one", str(path))
    return os.fdopen(descriptor, "rb")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A temporary file in the same folder, which takes the name at the end.

    A symbolic link stays a link: its target is replaced.  A device or a pipe is refused: a file in
    its place would be no device any more.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "neither a file nor a new name", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    # os.open applies umask, which tempfile does not.
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            yield file
            share(file.fileno(), path.parent)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_temporary_files(path: Path) -> None:
    """Remove what killed writers of a file left behind.  Only for a file's one current writer."""
    path = Path(os.path.realpath(path))
    for temporary in path.parent.glob(f".{path.name}.*.tmp"):
        temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make created, renamed and removed names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path, root: Path) -> None:
    """Make a folder and its parents; those below ``root`` are shared like the one they are in."""
    if folder.is_dir():
        return
    if folder != root:
        make_folder(folder.parent, root)
    folder.mkdir(parents=True, exist_ok=True)
    if folder != root:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            share(descriptor, folder.parent)
        finally:
            os.close(descriptor)


def share(descriptor: int, folder: Path) -> None:
    """Open a file or folder to those who may write to the folder it is in.

    Never raises: where the system does not let us, the file keeps its mode.
    """
    with contextlib.suppress(OSError):
        wanted, before = folder.stat().st_mode, os.fstat(descriptor).st_mode
        is_folder = stat.S_ISDIR(before)
        mode = stat.S_IMODE(before)
        for writable, access in _SHARED:
            if wanted & writable:
                mode |= access | (writable >> 1 if is_folder else 0)  # a folder is entered, too
        if is_folder:
            mode |= wanted & stat.S_ISGID  # what is made in it belongs to the same group
        if mode != stat.S_IMODE(before):
            os.fchmod(descriptor, mode)


@contextlib.contextmanager
def lock(path: Path, what: str, *, patience: float = 0.0) -> Iterator[None]:
    """Hold a lock file.  While another process holds it, report ``waiting for <what>``.

    patience: seconds to wait before it is reported
    """
    from filelock import FileLock, Timeout

    umask = os.umask(0)
    os.umask(umask)
    mode = 0o666 & ~umask | 0o600  # its owner must get in, whatever umask a plug-in has left
    wanted = path.parent.stat().st_mode
    for writable, access in _SHARED:
        mode |= access if wanted & writable else 0
    held = FileLock(path, mode=mode)
    try:
        held.acquire(timeout=patience, poll_interval=0.01)
    except Timeout:
        _logger.warning("waiting for %s (%s)", what, path)
        held.acquire()
    try:
        yield
    finally:
        held.release()
