"""The same sweep with the worker pool, joblib, submitit and a real SLURM: equal rows, and kills.

``python scripts/cluster_test.py`` first runs one sweep of 60 runs with each engine and compares
the rows, wall times and the share of them in which workers compute.  Then it disturbs the sweep:
kill -9 of the command, of a job's process as when a node dies, and scancel, at random moments, and
lets the last start finish.  Last, four sweeps work on one folder at once.  Rows must be equal each
time, except for where and when they were computed.  Without SLURM its parts are skipped, with the
reason.  The table is written to ``--out``.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from kill_test import count_rows, science_lines

from lpgnn.files import write_atomically
from lpgnn.rows import RowStore

ENGINES = {
    "worker pool": (),
    "joblib": ("hydra/launcher=joblib", "hydra.launcher.n_jobs={cores}"),
    "submitit_local": ("hydra/launcher=submitit_local",),
    "SLURM (submitit_slurm)": (
        *("hydra/launcher=submitit_slurm", "hydra.launcher.cpus_per_task=1"),
        "hydra.launcher.mem_gb=null",
    ),
}
SLURM = "SLURM (submitit_slurm)"
# Twelve configurations of five repeats: 60 runs in six tasks.
GRID = ("backbone=sage,gcn", "x_eps=0.1,1,inf", "y_eps=1,inf", "repeats=5")


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


class Sweep:
    """One sweep in a folder, with an engine."""

    def __init__(self, folder: Path, engine: str, settings: Sequence[str]) -> None:
        self.folder, self.engine = folder, engine
        cores = len(os.sched_getaffinity(0))
        overrides = [text.format(cores=cores) for text in ENGINES[engine]]
        command = [sys.executable, "-m", "lpgnn.run", "-m", *GRID, *settings, *overrides]
        self.log = (folder.parent / f"{folder.name}.log").open("a")
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [*command, f"results_dir={folder}"],
            start_new_session=True,
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )

    def finish(self, seconds: float) -> float:
        """Wait for it; returns the wall time."""
        code = self.process.wait(timeout=seconds)
        if code != 0:
            tail = Path(self.log.name).read_text()[-800:]
            raise RuntimeError(f"{self.engine}: the sweep ended with code {code}: {tail}")
        return time.monotonic() - self.started

    def disturb(self, moments: random.Random) -> str:
        """Kill something of it; returns what."""
        kinds = ["parent", "worker"] + (["scancel"] if self.engine == SLURM else [])
        kind = moments.choice(kinds)
        if kind == "scancel":
            subprocess.run(["scancel", "-u", str(os.getuid())], check=False)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=120)
        elif kind == "worker":
            marks = sorted(self.folder.glob("local/sweeps/*/*.work"))
            if marks:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(marks[0].stem.rpartition("-")[2]), signal.SIGKILL)
            time.sleep(1)
        self.end()
        return kind

    def end(self) -> None:
        """End what is left of it, the jobs of the cluster as well."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.engine == SLURM:
            subprocess.run(["scancel", "-u", str(os.getuid())], check=False)
            while subprocess.run(["squeue", "-h"], capture_output=True).stdout.strip():
                time.sleep(0.5)


def computing(folder: Path) -> float:
    """Seconds that runs took, by their rows."""
    return sum(float(row["duration"]) for row in RowStore(folder).read("sbm"))


def compare(folder: Path, expected: Sequence[str], what: str) -> None:
    found = science_lines(folder)
    if found != list(expected):
        raise RuntimeError(f"{what}: {len(found)} rows, {len(expected)} wanted, or others")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--epochs", type=int, default=300, help="of a run: sets a task's length")
    parser.add_argument("--nodes", type=int, default=3000)
    parser.add_argument("--out", type=Path, default=Path("results/scaling.md"))
    options = parser.parse_args()
    settings = (f"dataset.num_nodes={options.nodes}", f"max_epochs={options.epochs}", "device=cpu")
    cores = len(os.sched_getaffinity(0))
    lines = [
        "# One sweep, four engines",
        "",
        f"60 runs (block model of {options.nodes} nodes, {options.epochs} epochs each) on {cores} "
        "cores of one machine, by `make cluster-test`.  Rows are equal in all of them.",
        "",
        "| engine | wall time | relative | share of the cores' time in which runs compute |",
        "|---|---|---|---|",
    ]
    usable: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        expected: list[str] = []
        first = 0.0
        for engine in ENGINES:
            if reason := missing(engine):
                print(f"{engine}: skipped, {reason}", flush=True)
                lines.append(f"| {engine} | skipped: {reason} | | |")
                continue
            folder = root / f"rows-{len(usable)}"
            seconds = Sweep(folder, engine, settings).finish(7200)
            expected, first = expected or science_lines(folder), first or seconds
            compare(folder, expected, engine)
            share = 100 * computing(folder) / (seconds * cores)
            lines.append(f"| {engine} | {seconds:.0f} s | {seconds / first:.2f} | {share:.0f} % |")
            print(lines[-1], flush=True)
            usable.append(engine)
        kills = disturbed(root, usable, settings, expected, options.kills)
        lines += ["", kills]
        print(kills, flush=True)
        four = root / "four"
        sweeps = [Sweep(four, "worker pool", (*settings, "workers=1")) for _ in range(4)]
        for sweep in sweeps:
            sweep.finish(7200)
        compare(four, expected, "four sweeps at once")
        lines += ["", "Four sweeps at once on one folder: rows equal to those of one."]
        print(lines[-1], flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(options.out, "\n".join(lines) + "\n")
    return 0


def disturbed(
    root: Path, engines: Sequence[str], settings: Sequence[str], expected: Sequence[str], kills: int
) -> str:
    """Kill sweeps ``kills`` times in all, let each finish, and compare."""
    moments = random.Random(0)
    counts: dict[str, int] = {}
    targets = [engine for engine in ("worker pool", SLURM) if engine in engines]
    for engine in targets:
        folder = root / f"killed-{engines.index(engine)}"
        left = 0
        for _ in range(kills // len(targets)):
            sweep = Sweep(folder, engine, settings)
            while sweep.process.poll() is None and count_rows(folder) == left:
                time.sleep(0.1)
            time.sleep(2 * moments.random())
            kind = f"{sweep.disturb(moments)} ({engine})"
            counts[kind] = counts.get(kind, 0) + 1
            now = count_rows(folder)
            if now < left:
                raise RuntimeError(f"{kind} lost rows: {left} before, {now} after")
            left = 0 if now >= len(expected) else now
            if now >= len(expected):  # all there: begin anew
                compare(folder, expected, kind)
                shutil.rmtree(folder)
        Sweep(folder, engine, settings).finish(7200)
        compare(folder, expected, f"after kills ({engine})")
    told = ", ".join(f"{count} x {kind}" for kind, count in sorted(counts.items()))
    return f"{sum(counts.values())} kills ({told}): no row lost, doubled or half-written."


if __name__ == "__main__":
    sys.exit(main())
