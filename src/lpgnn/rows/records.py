"""Who is at work in a results folder, and on what: read from any machine that sees the folder.

    local/sweeps/<sweep>/sweep.json      the runs that a sweep set out to compute
    local/sweeps/<sweep>/<process>.beat  there while the sweep's process lives, touched meanwhile
    local/sweeps/<sweep>/<process>.work  the runs that a process trains now, touched meanwhile
    local/.claims.lock                   held by a process that chooses its next runs

A finished sweep leaves nothing; one that was killed leaves its record until its runs are done.

A process trains only runs that nobody else is training (``claimed``), so that sweeps on one folder
share their work.  Runs are trained twice only where one process cannot see the other: its mark is
older than 45 s though it lives (a suspended machine), the file system has no locks or shows files
late, or one of them computes on purpose what is done (force=true).
"""

import contextlib
import json
import math
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lpgnn.errors import StorageError
from lpgnn.files import lock, make_folder, write_atomically
from lpgnn.processes import is_running, process_name
from lpgnn.rows.schema import UNEVALUATED
from lpgnn.rows.store import RowStore

_BEAT_SECONDS = 5.0
# A process whose mark is older has died; clocks of machines may differ by some seconds.
_ALIVE_SECONDS = 45.0

Run = tuple[str, int]  # identity and repeat


@dataclass(frozen=True)
class Wanted:
    """Runs of a configuration that a sweep has to compute."""

    id: str
    dataset: str
    label: str
    repeats: Sequence[int]
    seconds: float  # of one run on one core, estimated


class SweepRecord:
    """The record of a sweep: what it wants, and marks of the processes that work on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._touched = -math.inf

    @classmethod
    def start(
        cls, results_dir: Path, wanted: Sequence[Wanted], folder: Path | None = None
    ) -> "SweepRecord":
        """Put a sweep on record in a new folder: this one, if others look for records there."""
        ours = {(one.id, repeat) for one in wanted for repeat in one.repeats}
        for earlier in records(results_dir):
            if not earlier.is_alive() and earlier.missing(RowStore(results_dir)) <= ours:
                earlier.remove()  # it was killed, and has nothing left that we do not take over
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{process_name()}-{secrets.token_hex(2)}"
        if folder is not None and holds_records(folder, results_dir) and not folder.exists():
            name = folder.name
        record = cls(_sweeps(results_dir) / name)
        content = {"started": time.time(), "wanted": [asdict(one) for one in wanted]}
        try:
            make_folder(record.folder, results_dir)
            write_atomically(record._beat, "")  # first: a record without one is a dead sweep's
            write_atomically(record.folder / "sweep.json", json.dumps(content))
        except OSError as error:
            raise StorageError.of(results_dir, error) from None
        return record

    def alive(self, *, beats: bool) -> contextlib.AbstractContextManager[None]:
        """While inside, the sweep counts as alive.

        beats: touch the mark, for other machines to see.  A sweep that forks its workers does so
        itself (``beat``): the thread would keep them from being forked.
        """
        return _marked(self._beat, "", beats=beats)

    def beat(self) -> None:
        """Touch this process's mark if it has one; for loops, which may call this at any rate."""
        if time.monotonic() - self._touched >= _BEAT_SECONDS:
            self._touched = time.monotonic()
            with contextlib.suppress(OSError):
                os.utime(self._beat)

    @property
    def _beat(self) -> Path:
        return self.folder / f"{process_name()}.beat"

    def finish(self, *, failed: bool) -> None:
        """What is over leaves no record, unless something failed and the jobs' own words count."""
        if not failed or not any(self.folder.glob("task-*")):
            self.remove()

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def is_alive(self) -> bool:
        return any(_lives(path) for path in self.folder.glob("*.beat")) or bool(self.at_work())

    def at_work(self) -> list[Run]:
        """The runs that are being trained now."""
        return _trained(self.folder.glob("*.work"))

    def missing(self, store: RowStore) -> set[Run]:
        """The runs that have no row yet."""
        wanted = (Wanted(**one) for one in self._content().get("wanted", []))
        return {
            (one.id, repeat)
            for one in wanted
            for repeat in set(one.repeats) - store.finished(one.dataset, one.id).keys()
        }

    def status(self, store: RowStore) -> "Status":
        content = self._content()
        wanted = [Wanted(**one) for one in content.get("wanted", [])]
        done = failed = 0
        seconds_done = seconds_left = 0.0
        left: list[Run] = []
        for one in wanted:
            finished = store.finished(one.dataset, one.id)
            for repeat in one.repeats:
                if repeat in finished:
                    seconds_done += one.seconds
                    is_ok = finished[repeat]["status"] in ("ok", UNEVALUATED)
                    done, failed = done + is_ok, failed + (not is_ok)
                else:
                    seconds_left += one.seconds
                    left.append((one.id, repeat))
        started = float(content.get("started", time.time()))
        elapsed = max(1e-9, time.time() - started)
        running = len(set(left) & set(self.at_work()))
        # The pace so far, if there is one, else the estimate of one core.
        pace = seconds_done / elapsed if seconds_done else 1.0
        return Status(
            *(self.folder.name, self.is_alive(), done, running, failed, len(left) - running),
            seconds_left / pace if left else 0.0,
        )

    def _content(self) -> dict[str, Any]:
        try:
            content: dict[str, Any] = json.loads((self.folder / "sweep.json").read_text())
        except (OSError, ValueError):
            return {}
        return content


@dataclass(frozen=True)
class Status:
    """Where a sweep stands, in runs."""

    name: str
    alive: bool
    done: int
    running: int
    failed: int
    left: int  # neither done nor running
    seconds: float  # until the end, at the pace so far

    @property
    def runs(self) -> int:
        return self.done + self.running + self.failed + self.left


def holds_records(folder: Path, results_dir: Path) -> bool:
    """Whether a folder is one of those that hold a sweep's record, which go when it is over."""
    return folder.absolute().parent == _sweeps(results_dir).absolute()


def records(results_dir: Path) -> list[SweepRecord]:
    """The sweeps on record, in the order in which they started."""
    with contextlib.suppress(OSError):
        return [
            SweepRecord(path.parent) for path in sorted(_sweeps(results_dir).glob("*/sweep.json"))
        ]
    return []


def at_work(folder: Path, runs: Iterable[Run]) -> contextlib.AbstractContextManager[None]:
    """While inside, this process is on record as training these runs."""
    return _marked(folder / f"{process_name()}.work", json.dumps(list(runs)), beats=True)


@contextlib.contextmanager
def claimed(
    results_dir: Path,
    folder: Path,
    runs: Sequence[Run],
    missing: Callable[[], Collection[Run]],
) -> Iterator[tuple[list[Run], list[Run]]]:
    """Take those of the runs that nobody else is training or has finished.

    While inside, this process is on record in ``folder`` as training them.  Gives them, and those
    that others are training now.  missing: those without a result, asked after the others' marks
    were read, which are there until the result is
    """
    with contextlib.ExitStack() as marks:
        with _alone(results_dir):
            # Of any folder: a mark counts though the record beside it was removed.
            found = set(_trained(_sweeps(results_dir).glob("*/*.work")))
            elsewhere = [run for run in runs if run in found]
            left = missing()
            mine = [run for run in runs if run not in found and run in left]
            if mine:
                marks.enter_context(at_work(folder, mine))
        yield mine, elsewhere


@contextlib.contextmanager
def _alone(results_dir: Path) -> Iterator[None]:
    """Only one process at a time is inside, where the file system knows locks."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError, NotImplementedError):
            path = results_dir / "local" / ".claims.lock"
            held.enter_context(lock(path, "others to choose their runs", patience=10.0))
        yield


def marked(path: Path) -> contextlib.AbstractContextManager[None]:
    """While inside, an empty file is there; who is killed leaves it behind."""
    return _marked(path, "", beats=False)


@contextlib.contextmanager
def _marked(path: Path, text: str, *, beats: bool) -> Iterator[None]:
    """A file that is there and fresh as long as this process lives.

    It is for readers only: a full disk or a folder that is gone stops no work.
    """
    over = threading.Event()

    def beat() -> None:
        while not over.wait(_BEAT_SECONDS):
            with contextlib.suppress(OSError):
                os.utime(path)

    with contextlib.suppress(OSError):
        write_atomically(path, text)
    if beats:
        threading.Thread(target=beat, daemon=True).start()
    try:
        yield
    finally:
        over.set()
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _trained(marks: Iterable[Path]) -> list[Run]:
    """The runs in the marks of living processes."""
    found: list[Run] = []
    for path in marks:
        with contextlib.suppress(OSError, ValueError):
            # Touched, too: a living process may have failed to take its mark away.
            if _lives(path) and _is_touched(path):
                found += [(one, repeat) for one, repeat in json.loads(path.read_text())]
    return found


def _lives(path: Path) -> bool:
    """Whether the process that made a mark lives, as far as can be seen from here."""
    lives = is_running(path.stem)
    return _is_touched(path) if lives is None else lives


def _is_touched(path: Path) -> bool:
    try:
        return abs(time.time() - path.stat().st_mtime) < _ALIVE_SECONDS
    except OSError:
        return False


def _sweeps(results_dir: Path) -> Path:
    return results_dir / "local" / "sweeps"
