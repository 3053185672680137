"""``python -m lpgnn.status``: where the sweeps of a results folder stand, from any machine."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from lpgnn.commands import Command
from lpgnn.counting import counted
from lpgnn.errors import InputError, exit_code
from lpgnn.rows import RowStore, Status, records

# A sweep that has just been started imports and plans before it is on record, and makes its folder.
_START_SECONDS = 30.0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = Command(
        "status",
        "Runs done, running, failed and left of every sweep that is under way or was stopped, "
        "with the time left.",
        "A sweep that has finished is not listed.  Exit codes: 0 done, 2 bad input.",
    )
    parser.add_argument("results_dir", nargs="?", default="results", help="default: results")
    parser.add_argument("--watch", action="store_true", help="again every few seconds, to the end")
    parser.add_argument("--every", type=float, default=5.0, metavar="SECONDS")
    options = parser.parse_args(arguments)
    folder = Path(options.results_dir.removeprefix("results_dir=")).expanduser()
    return exit_code(lambda: _follow(folder, options.every) if options.watch else _show(folder))


def _show(folder: Path) -> int:
    for line in lines(_statuses(folder)):
        print(line)
    return 0


def _follow(folder: Path, seconds: float) -> int:
    _await_start(folder)
    while True:
        found = _statuses(folder)
        print(time.strftime("%H:%M:%S"), *lines(found), sep="  ", flush=True)
        if not any(one.alive for one in found):
            return 0
        time.sleep(seconds)


def _await_start(folder: Path) -> None:
    """Give a sweep that may be starting the time to come on record."""
    latest = time.monotonic() + _START_SECONDS
    if not records(folder):
        print(f"no sweep is under way in {folder} yet: waiting for one", flush=True)
    while not records(folder) and time.monotonic() < latest:
        time.sleep(0.2)


def _statuses(folder: Path) -> list[Status]:
    if not folder.is_dir():
        raise InputError("results_dir", folder, "no such folder")
    return [record.status(RowStore(folder)) for record in records(folder)]


def lines(found: Sequence[Status]) -> list[str]:
    """Each sweep in one line."""
    return [_line(one) for one in found] or ["no sweep is under way"]


def _line(one: Status) -> str:
    counts = f"{counted(one.runs, 'run')}: {one.done} done, {one.running} running, "
    counts += f"{one.failed} failed, {one.left} left"
    if not one.alive:
        return f"{one.name}  {counts}; stopped: rerun it to resume"
    return f"{one.name}  {counts}; about {duration(one.seconds)}"


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"


if __name__ == "__main__":
    sys.exit(main())
