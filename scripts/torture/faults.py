"""The fault table: every fault is run, and what happens is compared with what should."""

import ctypes
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from harness import (
    GRID,
    PLUG_IN,
    Command,
    Ended,
    group_of,
    in_child,
    science,
    spawn_workers,
    start_sweep,
    sweep,
)
from plugins import FAULTS

from lpgnn.data import BlockModel
from lpgnn.data.karateclub import Facebook
from lpgnn.data.planetoid import Cora
from lpgnn.errors import InputError
from lpgnn.rows import RowStore

Lines = list[bytes]
Run = Callable[[Path], tuple[str, bool]]


@dataclass(frozen=True)
class Outcome:
    """A fault, what happened, and whether that is what should."""

    group: str
    fault: str
    happened: str
    is_right: bool


def all_faults(scratch: Path, data_dir: Path | None, at_once: int = 4) -> list[Outcome]:
    """Run every fault in a folder of its own, some at once."""
    undisturbed = scratch / "undisturbed"
    first = sweep(undisturbed)
    if first.code != 0:
        raise RuntimeError(f"the undisturbed sweep ended with {first.code}: {first.text[-2000:]}")
    expected = science(undisturbed)
    RowStore(undisturbed).compact(publish=True)
    table = (undisturbed / "rows" / "sbm.csv").read_bytes().splitlines(keepends=True)
    faults = list(_faults(table, expected, data_dir))

    def run_share(share: int) -> dict[str, Any]:
        return {
            str(number): _run_fault(*faults[number], scratch / str(number), scratch)
            for number in range(share, len(faults), at_once)
        }

    found: dict[str, Any] = {}
    for read in [in_child(partial(run_share, share)) for share in range(at_once)]:
        found |= read()
    return [Outcome(*found[str(number)]) for number in range(len(faults))]


def _run_fault(
    group: str, fault: str, run: Run, folder: Path, scratch: Path
) -> tuple[str, str, str, bool]:
    folder.mkdir()
    try:
        happened, is_right = run(folder)
    except Exception as error:  # a fault that breaks the script is not survived
        happened, is_right = f"{type(error).__name__}: {error}", False
    happened = _clean(happened, scratch)
    print("ok   " if is_right else "WRONG", fault, "->", happened, flush=True)
    return group, fault, happened, is_right


def _faults(
    table: Lines, expected: list[str], data_dir: Path | None
) -> Iterator[tuple[str, str, Run]]:
    for fault, damage in DAMAGE.items():
        yield "a damaged file of rows", fault, partial(_damaged_rows, damage, table, expected)
    bits = "one bit of a table flipped, 120 times"
    yield "a damaged file of rows", bits, partial(_flipped_tables, table)
    end = "a shard whose last line has no end, of a writer that was killed"
    yield "a damaged file of rows", end, partial(_unterminated, expected)
    for fault in FAULTS:
        yield "a run that misbehaves", fault, partial(_misbehaving, fault)
    yield from (("another plug-in", fault, run) for fault, run in PLUG_INS.items())
    yield from (("storage", fault, partial(run, expected)) for fault, run in STORAGE.items())
    yield from (("names and data", fault, run) for fault, run in NAMES.items())
    if data_dir is not None and (data_dir / "cora" / "raw").is_dir():
        for name in ("cora", "facebook"):
            run = partial(_flipped_bits, data_dir, name)
            yield "names and data", f"one bit of {name}'s raw files flipped, 20 times", run
    yield from (("machine code", fault, run) for fault, run in MACHINE_CODE.items())
    yield from (("shared memory", fault, partial(run, expected)) for fault, run in SHM.items())
    yield from (("start and end", fault, run) for fault, run in ENDS.items())


# Damaged tables: the sweep after it must end with code 0, say so in one line, and have every row.


def _cut(lines: Lines, count: int) -> Lines:
    return [*lines[:-1], lines[-1][:-count]]


def _changed(old: bytes, new: bytes, number: int = 2) -> Callable[[Lines], Lines]:
    def damage(lines: Lines) -> Lines:
        if old not in lines[number]:
            raise ValueError(f"{old!r} is not in line {number}")
        return [*lines[:number], lines[number].replace(old, new, 1), *lines[number + 1 :]]

    return damage


DAMAGE: dict[str, Callable[[Lines], Lines]] = {
    "a word at the end": lambda x: [*x, b"oops\n"],
    "a word in the middle": lambda x: [*x[:3], b"oops\n", *x[3:]],
    "a second header": lambda x: [*x, x[0]],
    "the file twice in one": lambda x: x + x,
    "conflict markers": lambda x: [*x[:2], b"<<<<<<< HEAD\n", x[2], b"=======\n", *x[3:]],
    "conflict markers above the header": lambda x: [b"<<<<<<< HEAD\n", *x],
    "a line of NULs": lambda x: [*x[:2], b"\0" * 64 + b"\n", *x[2:]],
    "4,096 NULs at the end": lambda x: [*x, b"\0" * 4096],
    "the last row cut by 3 characters": lambda x: _cut(x, 3),
    "the last row cut by 30 characters": lambda x: _cut(x, 30),
    "the last row cut by half": lambda x: [*x[:-1], x[-1][: len(x[-1]) // 2]],
    "the last row without its last cell": lambda x: [*x[:-1], x[-1].rpartition(b",")[0] + b"\n"],
    "a row with blank results": lambda x: [*x[:2], re.sub(rb"[0-9.]+", b"", x[2]), *x[3:]],
    "a row twice": lambda x: [*x, x[2]],
    "a row missing": lambda x: [*x[:2], *x[3:]],
    "an unknown status": _changed(b",ok,", b",okay,"),
    "a letter in a number": _changed(b"true,", b"trve,"),
    "bytes that are no UTF-8": _changed(b"sage", b"s\xffge"),
    "options that are no JSON": _changed(b'{""', b'""'),
    "a quote that never closes": lambda x: [*x[:2], b'"' + x[2], *x[3:]],
    "Windows line ends": lambda x: [line.replace(b"\n", b"\r\n") for line in x],
    "a byte order mark": lambda x: [b"\xef\xbb\xbf", *x],
    "blank lines": lambda x: [part for line in x for part in (line, b"\n")],
    "semicolons for commas": lambda x: [line.replace(b",", b";") for line in x],
    "UTF-16": lambda x: [b"".join(x).decode().encode("utf-16")],
    "no header": lambda x: x[1:],
    "only a header": lambda x: x[:1],
    "an empty file": lambda x: [],
    "a binary file": lambda x: [bytes(range(256)) * 50],
    "a web page": lambda x: [b"<!DOCTYPE html>\n<html>404</html>\n"],
    "a table of before checksums": lambda x: [line.rpartition(b",")[0] + b"\n" for line in x],
    "a line of a million characters": lambda x: [*x, b"x" * 1_000_000 + b"\n"],
}


def _damaged_rows(
    damage: Callable[[Lines], Lines], table: Lines, expected: list[str], folder: Path
) -> tuple[str, bool]:
    path = folder / "rows" / "sbm.csv"
    path.parent.mkdir()
    path.write_bytes(b"".join(damage(table)))
    ended = sweep(folder)
    shards = (folder / "local" / "shards").glob("*.csv")
    again = sum(len(path.read_bytes().splitlines()) - 1 for path in shards)
    message = next(iter(ended.lines), "nothing to say")
    is_right = ended.code == 0 and len(ended.lines) <= 1 and science(folder) == expected
    return f"{message}; {again} of 6 runs computed again, all rows as before", is_right


def _flipped_tables(table: Lines, folder: Path) -> tuple[str, bool]:
    path = folder / "rows" / "sbm.csv"
    path.parent.mkdir()
    content, choose = b"".join(table), random.Random(0)
    path.write_bytes(content)
    whole = {(row["id"], row["repeat"]): row for row in RowStore(folder).read("sbm")}
    noticed = changed = 0
    for _ in range(120):
        flipped = bytearray(content)
        flipped[choose.randrange(len(content))] ^= 1 << choose.randrange(8)
        path.write_bytes(flipped)
        rows = RowStore(folder).read("sbm")
        changed += any(whole.get((row["id"], row["repeat"])) != row for row in rows)
        noticed += len(rows) < len(whole)
    return f"{noticed} noticed, {changed} read as other rows", (noticed, changed) == (120, 0)


def _unterminated(expected: list[str], folder: Path) -> tuple[str, bool]:
    sweep(folder)
    (shard,) = (folder / "local" / "shards").glob("*.csv")
    shard.write_bytes(shard.read_bytes()[:-20])
    ended = sweep(folder)
    message = next(iter(ended.lines), "nothing to say")
    is_right = ended.code == 0 and len(ended.lines) == 1 and science(folder) == expected
    return f"{message}; the run computed again, all rows as before", is_right


# Plug-ins: the two innocent configurations must have their rows, and the guilty one is named.

_HANGS = ("sleeping for ever", "an endless loop", "an endless loop that ignores signals")
_HARMLESS = (
    *("leaving a child process behind", "leaving a thread behind", "another working folder"),
    *("umask 777",),
)
_OF_STORAGE = (
    *("the results folder removed", "the folder of shards removed"),
    *("a file where the folder of shards was", "a full disk (a limit on file size)"),
)


def _misbehaving(fault: str, folder: Path) -> tuple[str, bool]:
    limit = ("time_limit=4",) if fault in _HANGS else ()
    results = folder / "results"
    ended = sweep(
        results,
        *PLUG_IN,
        *limit,
        workers=1,
        grid=("-m", "x_eps=0.5,1,2", "repeats=1", "max_epochs=3"),
        environment={"TORTURE_FAULT": fault},
    )
    budgets = [float(row["x_eps"]) for row in RowStore(results).read("sbm")]
    happened = f"exit code {ended.code}; {_errors(ended)}; {len(budgets)} of 3 rows"
    said = len([line for line in ended.lines if line.startswith("error: ")])
    if "Traceback" in ended.text:
        return happened, False
    if fault in _HARMLESS:
        return happened, ended.code == 0 and sorted(budgets) == [0.5, 1, 2] and said == 0
    if fault in _OF_STORAGE:
        return happened, ended.code == 1 and said == 1
    return happened, ended.code == 1 and sorted(budgets) == [0.5, 2] and said == 1


def _errors(ended: Ended) -> str:
    return "; ".join(ended.lines) or "nothing said"


def _loader(name: str, folder: Path) -> tuple[str, bool]:
    ended = sweep(folder, graph=("dataset=custom", f"dataset._target_=plugins.{name}"))
    is_right = ended.code in (1, 2) and "Traceback" not in ended.text and len(ended.lines) == 1
    return f"exit code {ended.code}; {_errors(ended)}", is_right


def _metric(name: str, folder: Path) -> tuple[str, bool]:
    ended = sweep(folder, f"+metrics.mine=plugins.{name}")
    rows = len(RowStore(folder).read("sbm"))
    is_right = ended.code == 1 and rows == 6 and "Traceback" not in ended.text
    return f"exit code {ended.code}; {_errors(ended)}; {rows} of 6 rows stored", is_right


PLUG_INS: dict[str, Run] = {
    "a loader that raises": partial(_loader, "raises"),
    "a loader that calls sys.exit(0)": partial(_loader, "exits"),
    "a loader that returns text": partial(_loader, "gives_text"),
    "a loader that is not there": partial(_loader, "no_such_loader"),
    "a metric that raises": partial(_metric, "fails"),
    "a metric that returns text": partial(_metric, "speaks"),
}


# Storage.


def _deleted_in_the_middle(expected: list[str], folder: Path) -> tuple[str, bool]:
    # Several tasks one after another: the rows of the first are deleted, the others go on.
    several = ("-m", "x_eps=0.5,1,2", "repeats=2", "max_epochs=980,990,1000")
    process = start_sweep(folder, workers=1, grid=several)
    shards = folder / "local" / "shards"
    while process.is_running() and not RowStore(folder).entries("sbm"):
        time.sleep(0.01)
    time.sleep(0.3)  # a row that is deleted before its writer has looked at it is written again
    for path in shards.glob("*.csv"):
        path.unlink()
    ended = process.wait(600)
    again = sweep(folder, grid=several)
    found = len(science(folder))
    is_right = ended.code == 1 and "gone" in ended.text and again.code == 0 and found == 18
    return f"exit code {ended.code}; {_errors(ended)}; the next start has all rows", is_right


def _results_dir(
    make: Callable[[Path], object], expected: list[str], folder: Path
) -> tuple[str, bool]:
    results = folder / "results"
    make(results)
    ended = sweep(results)
    is_right = ended.code == 2 and len(ended.lines) == 1 and "results_dir=" in ended.text
    return f"exit code {ended.code}; {_errors(ended)}", is_right


def _several_at_once(
    count: int, kill_one: bool, expected: list[str], folder: Path
) -> tuple[str, bool]:
    """Identical sweeps: every row is computed once, also what a killed one was computing."""
    alike = [start_sweep(folder, workers=1) for _ in range(count)]
    if kill_one:
        while alike[0].is_running() and not list(folder.glob("local/sweeps/*/*.work")):
            time.sleep(0.005)
        alike[0].kill()
    codes = [process.wait(600).code for process in alike]
    shards = (folder / "local" / "shards").glob("*.csv")
    rows = sum(len(path.read_bytes().splitlines()) - 1 for path in shards)
    is_right = codes[kill_one:] == [0] * (count - kill_one) and science(folder) == expected
    return f"exit codes {codes}, {rows} rows computed, all there", is_right and rows == 6


def _compacting_meanwhile(expected: list[str], folder: Path) -> tuple[str, bool]:
    process = start_sweep(folder, workers=1)
    compactions = 0
    while process.is_running():
        compactions += 1
        RowStore(folder).compact(publish=compactions % 2 == 0)
        time.sleep(0.02)
    is_right = science(folder) == expected
    return f"all rows once after {compactions > 0 and 'several'} compactions", is_right


def _clock(offset: float, expected: list[str], folder: Path) -> tuple[str, bool]:
    """A first sweep whose clock is wrong; what is computed again later must count."""
    real = time.time_ns

    def wrong_clock() -> None:
        time.time_ns = lambda: real() + int(offset * 1e9)

    sweep(folder, before=wrong_clock)
    before = {row["written"] for row in RowStore(folder).read("sbm")}
    ended = sweep(folder, "force=true")
    after = {row["written"] for row in RowStore(folder).read("sbm")}
    is_right = ended.code == 0 and not before & after and science(folder) == expected
    return "rows computed again with force=true replace the earlier ones", is_right


def _symlinked(expected: list[str], folder: Path) -> tuple[str, bool]:
    sweep(folder / "results")
    shared = folder / "shared.csv"
    RowStore(folder / "results").compact(publish=True)
    link = folder / "results" / "rows" / "sbm.csv"
    link.rename(shared)
    link.symlink_to(shared)
    sweep(folder / "results", "seed=1")
    RowStore(folder / "results").compact(publish=True)
    is_right = link.is_symlink() and len(shared.read_text().splitlines()) == 13
    return "publishing writes to the file behind the link, which stays a link", is_right


def _group_folder(expected: list[str], folder: Path) -> tuple[str, bool]:
    folder.chmod(0o2770)
    sweep(folder, before=lambda: os.umask(0o077))
    files = [path for path in (folder / "local").rglob("*") if path.is_file()]
    folders = [path for path in (folder / "local").rglob("*") if path.is_dir()]
    open_files = all(path.stat().st_mode & 0o060 == 0o060 for path in files)
    open_folders = all(path.stat().st_mode & 0o070 == 0o070 for path in folders)
    is_right = bool(files) and open_files and open_folders
    return "files and folders are open to the group, because the results folder is", is_right


def _locked(expected: list[str], folder: Path) -> tuple[str, bool]:
    from filelock import FileLock

    sweep(folder)
    reader, writer = os.pipe()
    holder = os.fork()
    if holder == 0:
        held = FileLock(folder / "local" / ".compaction.lock")
        held.acquire()
        os.write(writer, b".")
        time.sleep(3)
        os._exit(0)
    os.read(reader, 1)
    ended = Command("compact", [f"results_dir={folder}"]).wait(120)
    os.waitpid(holder, 0)
    return f"exit code {ended.code}; {_errors(ended)}", (
        ended.code == 0 and "waiting for another compaction" in ended.text
    )


STORAGE: dict[str, Callable[[list[str], Path], tuple[str, bool]]] = {
    "rows deleted in the middle of a sweep": _deleted_in_the_middle,
    "results_dir is a file": partial(_results_dir, lambda path: path.touch()),
    "results_dir is a link to nowhere below a file": partial(
        _results_dir, lambda path: path.symlink_to("/dev/null/results")
    ),
    "two identical sweeps at once on one folder": partial(_several_at_once, 2, False),
    "four identical sweeps at once on one folder": partial(_several_at_once, 4, False),
    "one of four identical sweeps killed": partial(_several_at_once, 4, True),
    "compactions while a sweep writes": _compacting_meanwhile,
    "a clock a year ahead": partial(_clock, 3.15e7),
    "a clock a year behind": partial(_clock, -3.15e7),
    "a CSV that is a symbolic link": _symlinked,
    "a second user: umask 077 in a folder of a group": _group_folder,
    "another compaction holds the lock": _locked,
}


# Names that become paths, and raw data.


def _name(name: str, folder: Path) -> tuple[str, bool]:
    below = folder / "below" / "results"
    graph = ("dataset=custom", "dataset._target_=plugins.loads", f"+dataset.name='{name}'")
    ended = sweep(below, graph=graph)
    written = [path for path in folder.rglob("*") if path.is_file()]
    is_right = ended.code == 2 and not written and "dataset.name" in ended.text
    return f"exit code {ended.code}; {_errors(ended)}", is_right


def _replaced_graph(folder: Path) -> tuple[str, bool]:
    graph = BlockModel(num_nodes=300, num_classes=4, num_features=90).generate()
    other = replace(graph, labels=graph.labels.flip(0))
    is_right = other.fingerprint != graph.fingerprint
    return "the copy has a fingerprint of its own", is_right


NAMES: dict[str, Run] = {
    **{
        f"dataset.name={name}": partial(_name, name)
        for name in ("../../x", "/tmp/x", "..", ".hidden", "a/b", "a b")
    },
    "dataclasses.replace of a graph": _replaced_graph,
}


def _flipped_bits(data_dir: Path, name: str, folder: Path) -> tuple[str, bool]:
    dataset = {"cora": Cora, "facebook": Facebook}[name](download=False)
    source = data_dir / name / "raw"
    raw = folder / name / "raw"
    shutil.copytree(source, raw)
    choose, refused, same, other = random.Random(0), 0, 0, 0
    for _ in range(20):
        path = choose.choice(sorted(raw.iterdir()))
        content = path.read_bytes()
        flipped = bytearray(content)
        flipped[choose.randrange(len(content))] ^= 1 << choose.randrange(8)
        path.write_bytes(flipped)
        try:
            graph = dataset.load(folder)
            same += graph.fingerprint == dataset.facts.fingerprint
            other += graph.fingerprint != dataset.facts.fingerprint
        except InputError:
            refused += 1
        path.write_bytes(content)
    text = f"{refused} refused, {same} load as the same graph, {other} as another"
    return text, other == 0 and refused > 0


# Machine code: these need an interpreter of their own.

_KERNEL = """
import numpy as np
from lpgnn.kernels.dropout import keep_where
x = np.ones(1, dtype=np.float32)
keep_where(np.zeros(1, dtype=np.int16), 0, 1.0, x, x)
print("works,", sum(keep_where.stats.cache_hits.values()), "from disk")
"""


def _kernel(**environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _KERNEL],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    last = (done.stderr.strip().splitlines() or [""])[-1]
    return done.stdout.strip() or f"exit code {done.returncode}: {last}"


def _damaged_code(suffix: str, folder: Path) -> tuple[str, bool]:
    _kernel(NUMBA_CACHE_DIR=str(folder))
    for path in folder.rglob(f"*keep_where*.{suffix}"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 16
        path.write_bytes(content)
    after, again = (_kernel(NUMBA_CACHE_DIR=str(folder)) for _ in range(2))
    is_right = (after, again) == ("works, 0 from disk", "works, 1 from disk")
    return f"compiled again ({after}), then kept ({again})", is_right


def _no_folder(folder: Path) -> tuple[str, bool]:
    """The package as a read-only copy, a home that is a file, as a user who may write nowhere."""
    import lpgnn

    package = folder / "site" / "lpgnn"
    shutil.copytree(Path(lpgnn.__file__).parent, package, ignore=shutil.ignore_patterns("*.pyc"))
    for path in package.rglob("__pycache__"):
        shutil.rmtree(path)
        path.touch()  # a file in its place: closed to root, too
    for name in ("", "kernels"):
        (package / name / "__pycache__").touch()
    home = folder / "home"
    home.touch()
    temporary = folder / "temporary"
    temporary.mkdir()
    said = _kernel(
        PYTHONPATH=str(folder / "site"), HOME=str(home), TMPDIR=str(temporary), NUMBA_CACHE_DIR=""
    )
    return said, said == "works, 0 from disk"


MACHINE_CODE: dict[str, Run] = {
    "a flipped bit in the index of machine code": partial(_damaged_code, "nbi"),
    "a flipped bit in the machine code": partial(_damaged_code, "nbc"),
    "a package and a home that cannot be written to": _no_folder,
}


# Shared memory, in a mount namespace of its own; only root may make one.


def _shared_memory(
    options: str, content: int, expected: list[str], folder: Path
) -> tuple[str, bool]:
    def mount() -> None:
        _enter_namespace()
        _mount("tmpfs", Path("/dev/shm"), options)
        if content:
            Path("/dev/shm/full").write_bytes(bytes(content))

    return _without_shared_memory(mount, expected, folder)


def _no_shared_memory(expected: list[str], folder: Path) -> tuple[str, bool]:
    devices = folder / "dev"
    devices.mkdir()

    def mount() -> None:
        _enter_namespace()
        _mount("tmpfs", devices, "")
        for name in ("null", "zero", "urandom"):
            (devices / name).touch()
            subprocess.run(["mount", "--bind", f"/dev/{name}", devices / name], check=True)
        subprocess.run(["mount", "--move", devices, "/dev"], check=True)

    return _without_shared_memory(mount, expected, folder)


def _without_shared_memory(
    mount: Callable[[], object], expected: list[str], folder: Path
) -> tuple[str, bool]:
    def prepare() -> None:
        mount()
        spawn_workers()  # which import everything anew

    ended = sweep(folder / "results", workers=2, before=prepare)
    warned = "Warning" in ended.text
    is_right = ended.code == 0 and science(folder / "results") == expected and not warned
    return f"exit code {ended.code}; {_errors(ended)}; all rows as ever", is_right


def _enter_namespace() -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


def _mount(kind: str, folder: Path, options: str) -> None:
    given = ["-o", options] if options else []
    subprocess.run(["mount", "-t", kind, *given, "none", folder], check=True)


_CLONE_NEWNS = 0x00020000

SHM: dict[str, Callable[[list[str], Path], tuple[str, bool]]] = {
    "no /dev/shm": _no_shared_memory,
    "a read-only /dev/shm": partial(_shared_memory, "ro", 0),
    "a full /dev/shm": partial(_shared_memory, "size=4k", 4096),
}


# The end while workers start.  Workers that are new interpreters import for seconds.


def _ended_at_start(
    number: signal.Signals, code: int, spawned: bool, moment: float, folder: Path
) -> tuple[str, bool]:
    results = folder / "results"
    process = start_sweep(results, workers=2, before=spawn_workers if spawned else None)
    while process.is_running() and len(group_of(process)) < 2:
        time.sleep(0.005)
    time.sleep(moment)
    were = len(group_of(process)) - 1
    os.kill(process.pid, number)
    started = time.monotonic()
    while group_of(process) and time.monotonic() - started < 2:
        time.sleep(0.02)
    orphans = [pid for pid in group_of(process) if pid != process.pid]
    ended = process.wait(60)
    said = [line for line in ended.text.replace("\r", "\n").splitlines() if "resume" in line]
    last = "".join(said[-1:]) or "nothing said"
    is_clean = "Traceback" not in ended.text
    if number is signal.SIGKILL and not is_clean:
        # Python's own words from before any of ours: a parent is killed before it has told a new
        # interpreter what to do, which nobody can keep it from saying.
        last, is_clean = "an interpreter without its orders says EOFError", "EOFError" in ended.text
    text = f"{were > 0 and 'workers there'}; exit code {ended.code}; {last}; "
    is_right = ended.code == code and not orphans and is_clean
    leftover = [path for path in folder.rglob("*") if path.name.endswith(".tmp")]
    again = sweep(results, workers=1)
    is_right = is_right and again.code == 0 and not leftover
    return f"{text}{len(orphans)} processes left after 2 s", is_right


def _closed_stdout(grid: tuple[str, ...], folder: Path) -> tuple[str, bool]:
    """As `| head` does, when everything is finished and only told."""

    def close() -> None:
        reader, writer = os.pipe()
        os.close(reader)
        os.dup2(writer, 1)
        sys.stdout = os.fdopen(1, "w", buffering=1)  # line by line, so that it breaks inside

    first = sweep(folder, grid=grid)
    ended = sweep(folder, grid=grid, before=close)
    is_right = (first.code, ended.code, ended.text) == (0, 0, "")
    return f"exit code {ended.code}; {ended.text.strip() or 'nothing said'}", is_right


ENDS: dict[str, Run] = {
    "stdout closed, a finished run": partial(_closed_stdout, ("repeats=2", "max_epochs=3")),
    "stdout closed, a finished grid": partial(_closed_stdout, GRID),
    **{
        f"{name} while {what}": partial(_ended_at_start, number, code, spawned, moment)
        for name, number, code in (
            ("Ctrl-C", signal.SIGINT, 130),
            ("SIGTERM", signal.SIGTERM, 143),
            ("SIGHUP", signal.SIGHUP, 129),
            ("kill -9 of the parent", signal.SIGKILL, -signal.SIGKILL),
        )
        for what, spawned, moment in (
            ("new interpreters start", True, 0.0),
            ("new interpreters import", True, 0.5),
            ("forked workers start", False, 0.0),
        )
    },
}


def _clean(text: str, scratch: Path) -> str:
    """Without the names of folders and processes of this run."""
    text = text.replace(str(scratch), "").replace(tempfile.gettempdir(), "")
    text = re.sub(r"sbm\.[A-Za-z0-9-]+-[0-9]+-[0-9a-f]{8}\.csv", "sbm.SHARD.csv", text)
    text = re.sub(r"/[0-9]+/(below/)?(results|rows|local)", r"\2", text)
    text = re.sub(r"results_dir='?/[0-9]+'?", "results_dir=results", text)
    return re.sub(r"'/[^']*/([a-z_]+\.py)'", r"\1", text).replace("|", r"\|")
