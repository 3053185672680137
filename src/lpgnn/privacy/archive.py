"""Files of arrays: safe to read (npz without pickle), and written whole or not at all."""

import hashlib
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from lpgnn.errors import InputError

Array = NDArray[Any]


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    with _replacing(path) as file:
        np.savez(file, allow_pickle=False, **arrays)


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A temporary file in the same folder, which takes the name at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_arrays(setting: str, path: Path, kinds: Mapping[str, str]) -> dict[str, Array]:
    """The arrays of a file, each with the kind (of ``numpy.dtype.kind``) that is asked for.

    A name that ends in "?" may be missing.
    """
    names = {name.rstrip("?"): kind for name, kind in kinds.items()}
    needed = {name for name in kinds if not name.endswith("?")}
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            found = {name: archive[name] for name in names if name in archive}
    except OSError as error:
        raise InputError(setting, path, f"cannot be read ({error.strerror or error})") from None
    except Exception as error:  # a damaged archive fails in zipfile, zlib or numpy
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(setting, path, f"is not the npz file it should be ({reason})") from None
    for name in needed - found.keys():
        raise InputError(setting, path, f"is not the npz file it should be ({name} is missing)")
    for name, array in found.items():
        if array.dtype.kind != names[name]:
            allowed = f"is not the npz file it should be ({name} has type {array.dtype})"
            raise InputError(setting, path, allowed)
    return found


def digest(*parts: bytes | Array) -> str:
    """16 hex digits of SHA-256 over the parts, each with its length in front."""
    found = hashlib.sha256()
    for part in parts:
        array = np.frombuffer(part, np.uint8) if isinstance(part, bytes) else part
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        found.update(data.size.to_bytes(8, "little"))
        found.update(data.data)
    return found.hexdigest()[:16]
