"""Names of processes: files that belong to one have it in theirs, to tell whether it lives."""

import contextlib
import hashlib
import os
import re
import socket
from collections.abc import Sequence
from pathlib import Path


def process_name(number: int | None = None) -> str:
    """A process of this machine, by default this one, for names of files.

    Its machine and the set of processes it can see, when it started, and its number: a container
    has numbers of its own, and the number of a process that has ended goes to another.
    """
    status = _status("self" if number is None else str(number))
    return f"{_place()}-{_start(status)}-{os.getpid() if number is None else number}"


def is_running(process: str) -> bool | None:
    """Whether the process of this name lives; None if that cannot be seen from here."""
    rest, _, number = process.rpartition("-")
    place, _, started = rest.rpartition("-")
    if place != _place() or not _sees_own_processes():
        return None
    status = _status(number)
    if not status:
        return None if _is_hidden(int(number)) else False
    # A zombie has died, though nobody has noticed.
    return _start(status) == started and status[0] not in ("Z", "X")


def _status(number: str) -> list[str]:
    """The fields of /proc/<number>/stat after the name, which may hold anything; maybe none."""
    try:
        status = Path(f"/proc/{number}/stat").read_bytes()
    except OSError:
        return []
    return status.rpartition(b")")[2].decode().split()


def _start(status: Sequence[str]) -> str:
    """When a process started, in ticks since its machine did."""
    return status[19] if status else "0"


def _sees_own_processes() -> bool:
    """Whether /proc has the numbers that processes here have: a container may see its host's."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


def _is_hidden(number: int) -> bool:
    """Whether a process is there that /proc does not show us: another user's may be hidden."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return False  # ours would be shown: it has ended, and the number has just been given again


def _place() -> str:
    """This machine since it started, and the set of processes (namespace) that we are in."""
    parts = []
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return f"{_host()}-{hashlib.sha256(' '.join(parts).encode()).hexdigest()[:8]}"


def _host() -> str:
    return re.sub("[^A-Za-z0-9]+", "-", socket.gethostname())[:40]
