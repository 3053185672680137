"""Kill -9 of writers and of sweeps, at random moments: nothing lost, doubled or changed."""

import contextlib
import itertools
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from harness import GRAPH, science, start_sweep, sweep

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


def sweep_kills(scratch: Path, kills: int) -> tuple[str, int]:
    """Kill a sweep's parent, a worker, or all of it; its rows must be an undisturbed sweep's."""
    undisturbed = scratch / "undisturbed"
    sweep(undisturbed, "max_epochs=20", grid=GRID, graph=GRAPH)
    expected = science(undisturbed)
    moments = random.Random(0)
    victims = Counter[str]()
    wrong, done, rounds, at_work, orphans, finished = [], 0, 0, 0, 0, 0
    while done < kills:
        folder = scratch / f"killed{rounds}"
        rounds += 1
        rows = 0
        while done < kills and rows < len(expected):
            workers = 1 + done % 2
            process = start_sweep(folder, "max_epochs=20", workers=workers, grid=GRID, graph=GRAPH)
            victim = ("all of it", "the parent", "a worker")[done % 3]
            before = len(RowStore(folder).entries("sbm"))
            # Two kills of three fall when rows are coming in, the third anywhere from the start.
            if moments.random() < 2 / 3:
                while process.is_running() and len(RowStore(folder).entries("sbm")) == before:
                    time.sleep(0.005)
                time.sleep(0.3 * moments.random())
            else:
                time.sleep(1.5 * moments.random())
            if not process.is_running():
                finished += 1  # it was faster than the kill
            elif victim == "a worker":
                children = _children(process.pid)
                for pid in children[:1]:
                    os.kill(pid, signal.SIGKILL)
                ended = process.wait(600)
                if ended.code not in (0, 1) or "Traceback" in ended.text:
                    wrong.append(f"kill {done}: a worker's death ended the sweep: {ended.code}")
                done, victims[victim] = done + 1, victims[victim] + 1
            elif victim == "the parent":
                os.kill(process.pid, signal.SIGKILL)
                while process.is_running():
                    time.sleep(0.01)
                deadline = time.monotonic() + 10
                while _group(process.pid) and time.monotonic() < deadline:
                    time.sleep(0.05)
                orphans += bool(_group(process.pid))
                process.kill()
                done, victims[victim] = done + 1, victims[victim] + 1
            else:
                process.kill()
                process.wait(60)
                done, victims[victim] = done + 1, victims[victim] + 1
            rows_now = len(RowStore(folder).entries("sbm"))
            at_work += before < rows_now < len(expected)
            if rows_now < before:
                wrong.append(f"kill {done} lost {before - rows_now} rows")
            rows = rows_now
            print(f"kill {done}: {victim}, {rows} rows", flush=True)
        ended = sweep(folder, "max_epochs=20", workers=2, grid=GRID, graph=GRAPH)
        if ended.code != 0 or science(folder) != expected:
            wrong.append(f"folder {rounds}: exit code {ended.code}, rows differ")
    kinds = ", ".join(f"{count} of {name}" for name, count in sorted(victims.items()))
    text = (
        "# Kills of sweeps\n\n"
        f"{done} kills -9 ({kinds}) at random moments of a sweep of {len(expected)} runs, in "
        f"{rounds} folders; each folder is finished by one undisturbed start, and its rows are\n"
        "compared with those of a sweep that nobody killed.\n\n"
        "| kills | while rows came in | orphans after 10 s | rows lost, doubled or changed |\n"
        "|---|---|---|---|\n"
        f"| {done} | {at_work} | {orphans} | {len(wrong)} |\n"
    )
    return text + "".join(f"\n- {one}" for one in wrong), len(wrong) + orphans


def _children(parent: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            words = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(words[1]) == parent and words[0] not in "ZX":
                found.append(int(entry.name))
    return found


def _group(group: int) -> list[int]:
    """The living processes of a group."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            words = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(words[2]) == group and words[0] not in "ZX":
                found.append(int(entry.name))
    return found
