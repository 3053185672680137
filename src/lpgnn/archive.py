"""Files of arrays: safe to read (npz without pickle), and written whole or not at all."""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lpgnn.errors import InputError, one_line
from lpgnn.files import replacing

Array = NDArray[Any]

_ZIP = (b"PK\x03\x04", b"PK\x05\x06")  # what an archive begins with; the latter is empty


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    with replacing(path) as file:
        np.savez(file, allow_pickle=False, **arrays)


def read_npz(
    setting: str, path: Path, value: object, wanted: Callable[[str], bool] = lambda name: True
) -> tuple[dict[str, Array], set[str]]:
    """The wanted arrays of a file, and the names of those that are Python objects: not loaded.

    value: how messages name the file
    """
    found: dict[str, Array] = {}
    objects = set()
    try:
        with path.open("rb") as stream:
            # Without it numpy would take the file for a pickle or for a single array.
            if stream.read(4) not in _ZIP:
                raise ValueError("it is no zip archive")
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as archive:
                for name in filter(wanted, archive.files):
                    try:
                        found[name] = archive[name]
                    except ValueError as error:
                        if "allow_pickle" not in str(error):
                            raise
                        objects.add(name)
    except OSError as error:
        raise InputError(setting, value, f"cannot be read ({error.strerror or error})") from None
    except Exception as error:  # damage shows in zipfile, zlib or numpy, or as a lack of memory
        reason = one_line(error) or type(error).__name__
        raise InputError(setting, value, f"not a readable npz of plain arrays: {reason}") from None
    return found, objects


def read_arrays(setting: str, path: Path, kinds: Mapping[str, str]) -> dict[str, Array]:
    """The arrays of a file, each with the kind (of ``numpy.dtype.kind``) that is asked for.

    A name that ends in "?" may be missing.
    """
    names = {name.rstrip("?"): kind for name, kind in kinds.items()}
    found, objects = read_npz(setting, path, path, names.__contains__)
    for name in objects:
        raise InputError(setting, path, f"{name} must be a plain array, not Python objects")
    for name in kinds:
        if not name.endswith("?") and name not in found:
            raise InputError(setting, path, f"must be an npz file with the array {name}")
    for name, array in found.items():
        if array.dtype.kind != names[name]:
            raise InputError(setting, path, f"{name} must not be of type {array.dtype}")
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
