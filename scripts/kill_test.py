"""Kill a sweep again and again, let the last start finish, and look whether its rows suffered.

``python scripts/kill_test.py [--kills 20]`` runs a sweep undisturbed, then the same sweep in
another folder under kill -9, at random moments, of all its processes at once.  The rows of both
must be equal, except for the columns that say where and when they were computed.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from lpgnn.rows import PROVENANCE, RowStore

GRAPH = ("dataset.num_nodes=300", "dataset.num_classes=4", "dataset.num_features=90")


def start_sweep(overrides: Sequence[str], results_dir: Path, workers: int) -> subprocess.Popen[str]:
    """Start a sweep as a process group of its own, as a shell would."""
    command = [sys.executable, "-m", "lpgnn.run", "-m", *GRAPH, *overrides]
    return subprocess.Popen(
        [*command, f"results_dir={results_dir}", "--workers", str(workers)],
        start_new_session=True,
        # Started in the background, a shell's job ignores Ctrl-C, and its children would, too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> None:
    output, _ = process.communicate(timeout=600)
    if process.returncode != 0:
        raise RuntimeError(f"the sweep ended with code {process.returncode}: {output[-500:]}")


def count_rows(results_dir: Path) -> int:
    """Rows that are there; lines that a kill has torn do not count."""
    return len(RowStore(results_dir).entries("sbm"))


def science_lines(results_dir: Path) -> list[str]:
    """A line for each row, without the columns of where and when."""
    rows = RowStore(results_dir).read("sbm")
    kept = ({k: v for k, v in row.items() if k not in PROVENANCE} for row in rows)
    return [json.dumps(row, sort_keys=True) for row in kept]


def kill_once(
    overrides: Sequence[str],
    results_dir: Path,
    workers: int,
    moments: random.Random,
    total_rows: int,
) -> int:
    """Start the sweep and kill -9 all of it at a random moment; return the rows it leaves.

    Two kills of three fall shortly after the sweep has stored a row, when others are under way;
    the third anywhere from its very start.
    """
    process = start_sweep(overrides, results_dir, workers)
    before = count_rows(results_dir)
    if moments.random() < 2 / 3:
        while process.poll() is None and count_rows(results_dir) in (before, total_rows - 1):
            time.sleep(0.01)
        time.sleep(0.2 * moments.random())
    else:
        time.sleep(4 * moments.random())
    # A group outlives its leader: also workers whose parent is gone are killed.
    with contextlib.suppress(ProcessLookupError):  # the sweep was faster, and all of it has ended
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return count_rows(results_dir)


def compare_killed(
    overrides: Sequence[str], folder: Path, kills: int, expected: Sequence[str], *, seed: int = 0
) -> list[int]:
    """Kill the sweep ``kills`` times, finish it, and compare; return the rows after each kill."""
    moments = random.Random(seed)
    history: list[int] = []
    for kill in range(kills):
        workers = 1 + kill % 2  # work in the process itself, and in workers
        left = kill_once(overrides, folder, workers, moments, len(expected))
        if history and left < history[-1]:
            raise RuntimeError(f"kill {kill + 1} lost rows: {history[-1]} before, {left} after")
        history.append(left)
    finish(start_sweep(overrides, folder, 2))
    found = science_lines(folder)
    if found != list(expected):
        wrong = sum(a != b for a, b in zip(found, expected, strict=False))
        raise RuntimeError(f"{wrong} of {len(expected)} rows differ, {len(found)} rows found")
    return history


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    # Enough configurations that every kill finds work: 60, of two repeats each.
    grid = ("backbone=sage,gcn", "x_eps=0.01,0.1,1,2,3,inf", "y_eps=0.5,1,2,3,inf")
    overrides = (*grid, "repeats=2", "max_epochs=30")
    with tempfile.TemporaryDirectory() as folder:
        undisturbed, killed = Path(folder) / "undisturbed", Path(folder) / "killed"
        finish(start_sweep(overrides, undisturbed, 2))
        expected = science_lines(undisturbed)
        print(f"undisturbed: {len(expected)} rows", flush=True)
        try:
            history = compare_killed(overrides, killed, options.kills, expected, seed=options.seed)
        except RuntimeError as error:
            print(f"FAILED: {error}")
            return 1
    print(f"rows after each of {len(history)} kills: {', '.join(map(str, history))}")
    steps = zip([0, *history], history, strict=False)
    at_work = sum(before < after < len(expected) for before, after in steps)
    print(f"passed: all rows equal; {at_work} kills fell between two rows, the others at start-up")
    return 0


if __name__ == "__main__":
    sys.exit(main())
