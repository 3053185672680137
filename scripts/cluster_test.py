"""The same sweep with the worker pool, joblib, submitit and a real SLURM: equal rows, and kills.

``python scripts/cluster_test.py`` first disturbs a short sweep: kill -9 of the command, of a
worker, of a job, and on SLURM scancel, pre-emption and the death of the node, at random moments,
until the sweep has finished in spite of it.  Then four sweeps work on one folder at once.  Last it
runs one sweep of 60 runs with each engine: wall times, and how much of the time runs compute.  Rows
must be equal each time, except for where and when they were computed.  Without SLURM its parts are
skipped, with the reason.  Each part writes its section of ``--out``, with the revision it tried,
and can be run alone: times are best taken when nobody else uses the machine.
"""

import argparse
import contextlib
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

from kill_test import count_rows, science_lines

from lpgnn.files import write_atomically
from lpgnn.provenance import git_revision

# Every process of the test has it in its environment, also on the cluster, and its jobs in their
# name: nobody else's processes and jobs are touched.
TOKEN = f"lpgnn-cluster-test-{secrets.token_hex(4)}"
MARK = f"LPGNN_CLUSTER_TEST={TOKEN}"
POOL, SLURM = "worker pool", "SLURM (submitit_slurm)"
ENGINES = {
    POOL: (),
    "joblib": ("hydra/launcher=joblib", "hydra.launcher.n_jobs={cores}"),
    "submitit_local": ("hydra/launcher=submitit_local",),
    SLURM: (
        *("hydra/launcher=submitit_slurm", "hydra.launcher.cpus_per_task=1"),
        *("hydra.launcher.mem_gb=null", f"hydra.launcher.name={TOKEN}"),
    ),
}
# Twelve configurations of five repeats: 60 runs, of which ten can train side by side.
GRID = (
    *("backbone=sage,gcn", "x_eps=0.1,1,3", "y_eps=1,2", "repeats=5"),
    *("filter.steps=4", "learner.steps=2", "dropout=0.5"),
)
RUNS = 60
# No sweep of the test may take longer, on however busy a machine.
LONGEST = 3600.0
TICKS = os.sysconf("SC_CLK_TCK")


def missing(engine: str) -> str:
    """Why an engine cannot be tried here; empty if it can."""
    if engine == "joblib" and find_spec("hydra_plugins.hydra_joblib_launcher") is None:
        return "hydra-joblib-launcher is not installed: pip install 'lpgnn[joblib]'"
    if "submitit" in engine and find_spec("hydra_plugins.hydra_submitit_launcher") is None:
        return "hydra-submitit-launcher is not installed: pip install 'lpgnn[slurm]'"
    if engine == SLURM:
        if shutil.which("sbatch") is None:
            return "there is no sbatch"
        found = subprocess.run(["sinfo", "-h", "-o", "%T"], capture_output=True, text=True)
        if not any(state in found.stdout for state in ("idle", "mix", "alloc")):
            return f"no node of SLURM is up ({found.stderr.strip() or 'sinfo lists none'})"
    return ""


def own_processes() -> dict[int, str]:
    """The test's processes but this one, wherever they were started, with their start times."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if MARK.encode() in (folder / "environ").read_bytes() and stat_of(folder)[0] != "Z":
                found[int(folder.name)] = stat_of(folder)[19]
    found.pop(os.getpid(), None)
    return found


def stat_of(folder: Path) -> list[str]:
    """The fields of /proc/<pid>/stat after the name, which may hold anything."""
    return (folder / "stat").read_text().rpartition(")")[2].split()


def workers_of(folder: Path) -> dict[int, str]:
    """The processes that train now, with the runs that they train."""
    found = {}
    for path in folder.glob("local/sweeps/*/*.work"):
        with contextlib.suppress(OSError):
            found[int(path.stem.rpartition("-")[2])] = path.read_text()
    return found


class Meter:
    """The processor time of a sweep's processes, and the part of it that runs take.

    Processor time hardly depends on what else the machine is doing, as wall time does.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.all: dict[tuple[int, str], float] = {}
        self.tasks: dict[tuple[int, str], float] = {}  # a process and its runs -> seconds
        self.occupied = 0.0  # core seconds in which some process trained
        self.cores = len(os.sched_getaffinity(0))

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        over = threading.Event()

        def watch() -> None:
            before = time.monotonic()
            while not over.wait(0.5):
                now = time.monotonic()
                self.sample(now - before)
                before = now

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def sample(self, seconds: float) -> None:
        training = workers_of(self.folder)
        self.occupied += seconds * min(self.cores, len(training))
        for pid, started in own_processes().items():
            with contextlib.suppress(OSError):
                fields = stat_of(Path(f"/proc/{pid}"))
                used = (int(fields[11]) + int(fields[12])) / TICKS
                new = used - self.all.get((pid, started), 0.0)
                self.all[pid, started] = used
                if pid in training:
                    task = (pid, training[pid])
                    self.tasks[task] = self.tasks.get(task, 0.0) + new

    def cell(self, seconds: float) -> str:
        whole = sum(self.all.values())
        lengths = sorted(self.tasks.values())
        share = 100 * sum(lengths) / whole
        outside = (whole - sum(lengths)) / len(lengths)
        busy = 100 * self.occupied / (seconds * self.cores)
        return (
            f"{seconds:.0f} s | {whole:.0f} s | {share:.0f} % | {outside:.1f} s | {busy:.0f} % | "
            f"{len(lengths)} of {lengths[0]:.0f} to {lengths[-1]:.0f} s"
        )


class Sweep:
    """One sweep in a folder, with an engine."""

    def __init__(self, folder: Path, engine: str, settings: Sequence[str]) -> None:
        self.folder, self.engine = folder, engine
        cores = len(os.sched_getaffinity(0))
        overrides = [text.format(cores=cores) for text in ENGINES[engine]]
        command = [sys.executable, "-m", "lpgnn.run", "-m", *GRID, *settings, *overrides]
        self.log = folder.parent / f"{folder.name}.log"
        self.started = self.last_job = time.monotonic()
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [*command, f"results_dir={folder}"],
                start_new_session=True,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def finish(self) -> float:
        """Wait for it; returns the wall time."""
        code = self.process.wait(timeout=LONGEST)
        if code != 0:
            tail = self.log.read_text()[-800:]
            raise RuntimeError(f"{self.engine}: the sweep ended with code {code}: {tail}")
        return time.monotonic() - self.started

    def wait(self) -> None:
        """Wait for its end, whatever it is."""

        def has_ended() -> bool:
            self.end_if_forsaken()
            return self.has_ended

        until(has_ended, f"{self.engine}: the sweep does not end")

    def end_if_forsaken(self) -> None:
        """Press Ctrl-C, as a user would, when no job is left that the sweep could wait for.

        Where SLURM keeps no accounts, submitit cannot tell a lost job from a slow one.
        """
        if self.engine != SLURM or cluster_jobs() or self.has_ended:
            self.last_job = time.monotonic()
        elif time.monotonic() - self.last_job > 60:
            self.process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=30)

    def kinds(self) -> list[str]:
        """What can be killed of it."""
        if self.engine != SLURM:
            return ["parent", "worker"]
        node = ["node"] if os.geteuid() == 0 and node_daemon() else []
        return ["parent", "worker", "job", "scancel", "pre-emption", *node]

    def kill(self, kind: str) -> bool:
        """Kill that of it; returns whether there was any."""
        if kind == "parent":  # its workers end by themselves, its jobs go on
            self.process.kill()
            self.process.wait()
            return True
        if kind == "worker":
            return any(killed(pid) for pid in list(workers_of(self.folder))[:1])
        if kind == "scancel":
            jobs = cluster_jobs()
            subprocess.run(["scancel", f"--name={TOKEN}"], check=False)
            # Without accounting, submitit waits for what never began: no user would.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=15)
            self.process.kill()
            self.process.wait()
            return bool(jobs)
        running = cluster_jobs("running")
        if not running or not workers_of(self.folder):  # nobody listens to signals yet
            return False
        if kind == "pre-emption":  # SLURM's signal for it: submitit queues the job again
            return not subprocess.run(["scancel", "--signal=USR2", running[0]]).returncode
        daemons = step_daemons(running if kind == "node" else running[:1])
        inside = [pid for pid in own_processes() if ancestors(pid) & set(daemons)]
        if kind == "job":
            return sum(killed(pid) for pid in inside) > 0
        return kill_node([*daemons, *inside])


def killed(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


def ancestors(pid: int) -> set[int]:
    found: set[int] = set()
    with contextlib.suppress(OSError):
        while pid > 1:
            pid = int(stat_of(Path(f"/proc/{pid}"))[1])
            found.add(pid)
    return found


def cluster_jobs(state: str = "") -> list[str]:
    """The numbers of the test's jobs on SLURM."""
    wanted = [f"--states={state}"] if state else []
    command = ["squeue", "-h", "-r", f"--name={TOKEN}", "-o", "%A", *wanted]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()


def step_daemons(jobs: Sequence[str]) -> list[int]:
    """The daemons on this machine that run jobs of SLURM: ``slurmstepd: [12.batch]``."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if words.startswith("slurmstepd: [") and words[13:].split(".")[0] in jobs:
                found.append(int(folder.name))
    return found


def node_daemon() -> int:
    """The process number of this machine's slurmd; 0 if there is none."""
    config = subprocess.run(["scontrol", "show", "config"], capture_output=True, text=True).stdout
    paths = [line.split("=")[1].strip() for line in config.splitlines() if "SlurmdPidFile" in line]
    with contextlib.suppress(OSError, ValueError, IndexError):
        pid = int(Path(paths[0]).read_text())
        return pid if Path(f"/proc/{pid}").exists() else 0
    return 0


def kill_node(processes: Sequence[int]) -> bool:
    """Kill SLURM's daemon of this machine with its jobs, as when the machine dies, and start it.

    The controller would find out minutes later: it is told that the node is down, and up again.
    """
    node = subprocess.run(
        ["sinfo", "-h", "-n", socket.gethostname().split(".")[0], "-o", "%n"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()[0]
    update = ["scontrol", "update", f"nodename={node}"]
    daemon = node_daemon()
    command = Path(f"/proc/{daemon}/cmdline").read_text().rstrip("\0").split("\0")
    died = sum(killed(pid) for pid in (daemon, *processes))
    subprocess.run([*update, "state=down", "reason=killed by a test"], check=True)
    time.sleep(1)
    clean = {key: value for key, value in os.environ.items() if value != TOKEN}
    subprocess.run(command, env=clean, check=True)
    subprocess.run([*update, "state=resume"], capture_output=True)  # it may be back by itself
    until(lambda: not missing(SLURM), "the node does not come back")
    return died > 0


def until(holds: Callable[[], bool], complaint: str) -> None:
    last = time.monotonic() + LONGEST
    while not holds():
        if time.monotonic() > last:
            raise RuntimeError(f"{complaint} in {LONGEST:.0f} s")
        time.sleep(0.5)


def clear(engine: str) -> None:
    """Wait until orphans have ended by themselves, and jobs of the cluster by scancel."""
    if engine == SLURM:
        subprocess.run(["scancel", f"--name={TOKEN}"], check=False)
        until(lambda: not cluster_jobs(), "jobs do not end")
    until(lambda: not own_processes(), "processes of a killed sweep go on")


def compare(folder: Path, expected: Sequence[str], what: str) -> None:
    found = science_lines(folder)
    if found != list(expected):
        raise RuntimeError(f"{what}: {len(found)} rows, {len(expected)} wanted, or others")


def disturbed(
    folder: Path, engine: str, settings: Sequence[str], expected: Sequence[str], kills: int
) -> Counter[str]:
    """Kill parts of a sweep ``kills`` times, start it again where it ended, and compare.

    Two kills of three fall shortly after a row was stored, the third anywhere.
    """
    moments = random.Random(0)
    counts: Counter[str] = Counter()
    sweep = Sweep(folder, engine, settings)
    waiting: list[str] = []
    while counts.total() < kills:
        if not waiting:  # each kind as often as the others, in random order
            waiting = sweep.kinds()
            moments.shuffle(waiting)
        before = count_rows(folder)
        if moments.random() < 2 / 3:
            while not sweep.has_ended and count_rows(folder) == before:
                time.sleep(0.2)
                sweep.end_if_forsaken()
            time.sleep(0.5 * moments.random())
        else:
            time.sleep(8 * moments.random())
        before = count_rows(folder)
        kind = waiting[-1]
        if not sweep.has_ended and sweep.kill(kind):
            waiting.pop()
            counts[kind] += 1
            print(f"{engine}: {kind} killed at {before} rows ({counts.total()})", flush=True)
        if (after := count_rows(folder)) < before:
            raise RuntimeError(f"{engine}: rows were lost: {before} before, {after} after")
        if after >= len(expected):  # all there: begin anew
            sweep.wait()
            clear(engine)
            compare(folder, expected, f"after kills ({engine})")
            shutil.rmtree(folder)
        if sweep.has_ended:
            sweep = Sweep(folder, engine, settings)
    sweep.wait()
    Sweep(folder, engine, settings).finish()
    clear(engine)
    compare(folder, expected, f"after kills ({engine})")
    return counts


@dataclass(frozen=True)
class Bench:
    """Where the test works, and the sweeps that it runs."""

    root: Path
    long: Sequence[str]  # settings of the sweep that is timed
    short: Sequence[str]  # and of the one that is disturbed
    kills: int

    @cached_property
    def expected(self) -> list[str]:
        """The rows of the short sweep, undisturbed."""
        Sweep(self.root / "short", POOL, self.short).finish()
        return science_lines(self.root / "short")


def time_engines(bench: Bench) -> list[str]:
    """The same sweep with each engine."""
    lines = [
        f"{RUNS} runs ({' '.join(bench.long)}) on {len(os.sched_getaffinity(0))} cores of one "
        "machine.  Rows are equal in all of them.  Processor time is that of all processes of a "
        "sweep; cores are busy while a worker holds a task; the load is the machine's in the last "
        "five minutes, by everybody who used it.",
        "",
        "| engine | wall time | processor time | of it in runs | outside of runs, per task | "
        "cores busy | tasks | load |",
        "|---|---|---|---|---|---|---|---|",
    ]
    expected: list[str] = []
    for number, engine in enumerate(ENGINES):
        if reason := missing(engine):
            lines.append(f"| {engine} | skipped: {reason} | | | | | | |")
        else:
            folder = bench.root / f"rows-{number}"
            meter = Meter(folder)
            with meter.running():
                seconds = Sweep(folder, engine, bench.long).finish()
            expected = expected or science_lines(folder)
            if len(expected) != RUNS:
                raise RuntimeError(f"{engine}: {len(expected)} rows, {RUNS} wanted")
            compare(folder, expected, engine)
            load = os.getloadavg()[1]
            lines.append(f"| {engine} | {meter.cell(seconds)} | {load:.1f} |")
        print(lines[-1], flush=True)
    return lines


def kill_engines(bench: Bench) -> list[str]:
    """Kills of the worker pool's sweep and, where there is SLURM, as many there."""
    lines = []
    targets = [engine for engine in (POOL, SLURM) if not missing(engine)]
    for number, engine in enumerate(targets):
        folder, kills = bench.root / f"killed-{number}", bench.kills // len(targets)
        counts = disturbed(folder, engine, bench.short, bench.expected, kills)
        told = ", ".join(f"{count} x {kind}" for kind, count in sorted(counts.items()))
        found = "no row lost, doubled or half-written."
        lines += [f"{counts.total()} kills with {engine} ({told}): {found}", ""]
        print(lines[-2], flush=True)
    if SLURM not in targets:
        lines += [f"{SLURM} skipped: {missing(SLURM)}", ""]
    return lines[:-1]


def run_four(bench: Bench) -> list[str]:
    """Four sweeps of the same runs at once."""
    sweeps = [Sweep(bench.root / "four", POOL, (*bench.short, "workers=1")) for _ in range(4)]
    for sweep in sweeps:
        sweep.finish()
    compare(bench.root / "four", bench.expected, "four sweeps at once")
    lines = ["The table is that of one sweep: no row lost, doubled or half-written."]
    print("Four sweeps at once:", *lines, flush=True)
    return lines


# Each writes its own section of the page, and leaves the others as they were.
PARTS = {
    "kills": ("Kills", kill_engines),
    "four": ("Four sweeps at once on one folder", run_four),
    "times": ("Time", time_engines),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)}; all unless given")
    parser.add_argument("--kills", type=int, default=30, help="in all")
    parser.add_argument("--epochs", type=int, default=380, help="of a run: sets a task's length")
    parser.add_argument("--nodes", type=int, default=6000)
    parser.add_argument("--out", type=Path, default=Path("results/scaling.md"))
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    # What a shell starts in the background ignores Ctrl-C, and so would the sweeps.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ |= dict([MARK.split("=")])
    long = (f"dataset.num_nodes={options.nodes}", f"max_epochs={options.epochs}", "device=cpu")
    short = ("dataset.num_nodes=400", "max_epochs=40", "device=cpu")
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name), long, short, options.kills)
        for part in options.parts or PARTS:
            heading, run = PARTS[part]
            load = os.getloadavg()[1]
            lines = run(bench)
            write_section(options.out, heading, [measured(load), "", *lines])
    return 0


def measured(load: float) -> str:
    """Of which sources a part's results are, and how busy the machine was with everything else."""
    revision, changed = git_revision()
    edited = ", edited" if changed else ""
    return (
        f"Revision {revision or 'unknown'}{edited}, {time.strftime('%Y-%m-%d')}; load of the last "
        f"five minutes {load:.1f} before, {os.getloadavg()[1]:.1f} at the end."
    )


def write_section(path: Path, heading: str, lines: Sequence[str]) -> None:
    text = path.read_text() if path.exists() else ""
    found = dict(section.split("\n\n", 1) for section in text.split("\n## ")[1:])
    found[heading] = "\n".join(lines) + "\n"
    wanted = [known for known, _ in PARTS.values() if known in found]
    page = "# One sweep, four engines\n\nBy `make cluster-test`.\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, page + "".join(f"\n## {one}\n\n{found[one]}" for one in wanted))


if __name__ == "__main__":
    sys.exit(main())
