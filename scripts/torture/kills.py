"""Kill -9 of writers and of sweeps, at random moments: nothing lost, doubled or changed."""

import contextlib
import itertools
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from harness import GRAPH, Command, group_of, in_child, science, start_sweep, sweep

from lpgnn.rows import RowStore

# Enough work that every kill finds some: 24 configurations of two repeats.
GRID = ("-m", "backbone=sage,gcn", "x_eps=0.1,1,2,inf", "y_eps=0.5,1,inf", "repeats=2")


def _row(number: int) -> dict[str, object]:
    tests = {f"{rule}/test/acc": number % 101 for rule in ("paper", "released")}
    return {
        "id": f"run{number % 7}",
        "repeat": number // 7,
        "status": "ok",
        **tests,
        "dirty": False,
    }


def store_kills(scratch: Path, kills: int) -> tuple[str, int]:
    """Four writers at a time and a compaction are killed; every acknowledged row must be there."""
    moments, acknowledged, lost, changed = random.Random(0), 0, 0, 0
    counters = itertools.count()
    killed = Counter[str]()
    known: dict[tuple[str, int], str] = {}
    wanted: dict[tuple[str, int], str] = {}
    for _ in range(-(-kills // 5)):
        writers = [
            _start(lambda n: RowStore(scratch).append("sbm", [_row(n)]), next(counters) * 100_000)
            for _ in range(4)
        ]
        compactor = _start(lambda n: RowStore(scratch).compact(publish=n % 3 == 0), 1)
        time.sleep(0.05 + 0.1 * moments.random())
        for pid, reader, first in [*writers, compactor]:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            told = 0
            while received := os.read(reader, 65536):
                told += len(received)
            os.close(reader)
            is_writer = pid != compactor[0]
            killed["writers" if is_writer else "compactions"] += 1
            if is_writer:
                acknowledged += told
                for one in range(first, first + told):
                    row = _row(one)
                    wanted[str(row["id"]), int(str(row["repeat"]))] = str(row["paper/test/acc"])
        rows = RowStore(scratch).read("sbm")
        keys = [(row["id"], int(row["repeat"])) for row in rows]
        if len(set(keys)) != len(keys):
            changed += 1
        now = {key: row["paper/test/acc"] for key, row in zip(keys, rows, strict=True)}
        lost += sum(key not in now for key in {*wanted, *known})
        changed += sum(now[key] != value for key, value in wanted.items() if key in now)
        known = now
    RowStore(scratch).compact(publish=True)
    final = len(RowStore(scratch).read("sbm"))
    lost += len(known) - final
    text = (
        "# Kills of the store\n\n"
        f"{killed['writers']} kills -9 of writers, four at a time on one folder, and "
        f"{killed['compactions']} of compactions beside them, at random moments.\n\n"
        "| rows acknowledged | rows in the end | lost | doubled or changed |\n|---|---|---|---|\n"
        f"| {acknowledged} | {final} | {lost} | {changed} |\n\n"
        "A row is acknowledged when `append` has returned; a writer killed between the write and\n"
        "its word of it leaves a row more.\n"
    )
    return text, lost + changed


def _start(write: Callable[[int], object], first: int) -> tuple[int, int, int]:
    """Fork a process that writes again and again and says so byte by byte."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            os.close(reader)
            for number in itertools.count(first):
                write(number)
                os.write(writer, b".")
        os._exit(1)
    os.close(writer)
    return pid, reader, first


def sweep_kills(scratch: Path, kills: int, at_once: int = 4) -> tuple[str, int]:
    """Kill a sweep's parent, a worker, or all of it; its rows must be an undisturbed sweep's."""
    undisturbed = scratch / "undisturbed"
    sweep(undisturbed, "max_epochs=20", grid=GRID, graph=GRAPH)
    expected = science(undisturbed)
    shares = [kills // at_once + (number < kills % at_once) for number in range(at_once)]
    records = [
        in_child(partial(_kill_sweeps, scratch / str(number), share, expected, number))
        for number, share in enumerate(shares)
    ]
    total = Counter[str]()
    wrong: list[str] = []
    for read in records:
        record = read()
        wrong += record.pop("wrong")
        total += Counter(record)
    victims = ", ".join(f"{total[name]} of {name}" for name in VICTIMS)
    text = (
        "# Kills of sweeps\n\n"
        f"{total['kills']} kills -9 ({victims}) at random moments of sweeps of "
        f"{len(expected)} runs\n"
        f"in {total['folders']} folders.  Each folder is finished by one undisturbed start, and\n"
        "its rows are compared with those of a sweep that nobody killed.\n\n"
        "| kills | while rows came in | orphans after 10 s | rows lost, doubled or changed |\n"
        "|---|---|---|---|\n"
        f"| {total['kills']} | {total['at work']} | {total['orphans']} | {len(wrong)} |\n"
    )
    return text + "".join(f"\n- {one}" for one in wrong), len(wrong) + total["orphans"]


VICTIMS = ("all of it", "the parent", "a worker")


def _kill_sweeps(scratch: Path, kills: int, expected: list[str], seed: int) -> dict[str, Any]:
    """Kill sweeps one after another; a folder whose sweep is finished is followed by a new one."""
    moments = random.Random(seed)
    counts, wrong = Counter[str](), list[str]()
    while counts["kills"] < kills:
        folder = scratch / str(counts["folders"])
        counts["folders"] += 1
        rows = 0
        while counts["kills"] < kills and rows < len(expected):
            # A worker's death is the rarest: the sweep goes on to its end.
            victim = VICTIMS[moments.choice((0, 0, 1, 1, 2))]
            process = start_sweep(
                *(folder, "max_epochs=20"), workers=moments.choice((1, 2)), grid=GRID, graph=GRAPH
            )
            # Two kills of three fall when rows are coming in, the third anywhere from the start.
            if moments.random() < 2 / 3:
                while process.is_running() and len(RowStore(folder).entries("sbm")) == rows:
                    time.sleep(0.01)
                time.sleep(0.3 * moments.random())
            else:
                time.sleep(2 * moments.random())
            if process.is_running():
                counts += Counter({"kills": 1, victim: 1})
                counts["orphans"] += _kill(process, victim, wrong)
            now = len(RowStore(folder).entries("sbm"))
            counts["at work"] += rows < now < len(expected)
            if now < rows:
                wrong.append(f"{victim} killed, and {rows - now} rows lost")
            rows = now
            print(f"{seed}: kill {counts['kills']}: {victim}, {rows} rows", flush=True)
        ended = sweep(folder, "max_epochs=20", workers=2, grid=GRID, graph=GRAPH)
        if ended.code != 0 or science(folder) != expected:
            wrong.append(f"exit code {ended.code}, and rows differ: {ended.lines}")
    return {**counts, "wrong": wrong}


def _kill(process: Command, victim: str, wrong: list[str]) -> bool:
    """Kill -9 a part of a sweep; return whether processes of it outlive its parent."""
    if victim == "a worker":
        for pid in _children(process.pid)[:1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        ended = process.wait(900)
        if ended.code not in (0, 1) or "Traceback" in ended.text:
            wrong.append(f"the death of a worker ended the sweep with {ended.code}")
        return False
    if victim == "all of it":
        process.kill()
        process.wait(60)
        return False
    os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while (process.is_running() or group_of(process)) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = bool(group_of(process))
    process.kill()
    return left


def _children(parent: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            words = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(words[1]) == parent and words[0] not in "ZX":
                found.append(int(entry.name))
    return found
