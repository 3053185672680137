"""The growth table's "before": the same operations at the last revision with one CSV per dataset.

    git worktree add ../before 7c8bb00
    PYTHONPATH=../before/src python scripts/torture/growth_before.py TABLE

TABLE is results/faults/growth_before.csv, from which ``growth`` takes its columns of before.

That store read a whole file for every question and rewrote it at every append, so planning and
summaries are measured on a sample of configurations and multiplied; the sample is in the table.
"""

import csv
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

SIZES = (1_000, 10_000, 50_000, 200_000)
REPEATS, PLANNED = 10, 20_000
# So many CPU seconds of planning and of summaries are spent on each size, at least one of each.
BUDGET = 8.0

# Modules of that revision, which this one does not have.
Settings: Any = import_module("lpgnn.config").Settings
store_module: Any = import_module("lpgnn.results.store")
summarise: Any = import_module("lpgnn.results.summary").summarise
sweep: Any = import_module("lpgnn.sweep")


def main() -> None:
    checkout = Path(str(store_module.__file__)).parents[3]
    revision = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    _configuration(0)
    summarise([1.0, 2.0])  # imports scipy
    names = ("revision", "rows", "append", "read", "plan", "planned", "summarise", "summarised")
    lines: list[dict[str, object]] = []
    for size in SIZES:
        with tempfile.TemporaryDirectory(prefix="lpgnn-before-") as scratch:
            lines.append({"revision": revision, "rows": size, **_measured(Path(scratch), size)})
        print(lines[-1], flush=True)
    with Path(sys.argv[1]).open("w", newline="") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def _measured(folder: Path, size: int) -> dict[str, object]:
    path = folder / "rows" / "sbm.csv"
    path.parent.mkdir()
    rows = [row for number in range(size // REPEATS) for row in _rows(number)]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(rows, key=lambda row: (row["id"], row["repeat"])))
    del rows
    store = store_module.RowStore(folder)
    append, _ = _sampled(lambda number: store.add("sbm", _rows(10_000_000 + number)[:1]), 20)
    started = time.process_time()
    grouped: dict[str, list[Any]] = {}
    for row in store.read("sbm"):
        grouped.setdefault(row["id"], []).append(row)
    read = time.process_time() - started
    kept = list(grouped.values())[: PLANNED // 10]
    count = len(grouped)
    del grouped
    one_summary, summarised = _sampled(lambda number: _summary(kept[number % len(kept)]), 2_000)
    first = max(0, count - PLANNED // 2)
    one_plan, planned = _sampled(lambda number: _missing(store, first + number * 37), 200)
    return {
        "append": round(append, 5),
        "read": round(read, 2),
        "plan": round(one_plan * PLANNED),
        "planned": planned,
        "summarise": round(read + one_summary * count, 1),
        "summarised": summarised,
    }


def _sampled(work: Callable[[int], object], most: int) -> tuple[float, int]:
    """The mean CPU seconds of work, and how often it was done."""
    started, done = time.process_time(), 0
    while done < most and (done == 0 or time.process_time() - started < BUDGET):
        work(done)
        done += 1
    return (time.process_time() - started) / done, done


def _configuration(number: int) -> Any:
    return Settings(dataset="sbm", x_eps=1 + number / 1000, max_epochs=500).resolve()


def _rows(number: int) -> list[dict[str, Any]]:
    configuration = _configuration(number)
    row: dict[str, Any] = {"id": configuration.identity, "repeat": 0, **configuration.columns()}
    row |= {"fingerprint": "92e4d5b2e6fad756", "status": "ok"}
    for rule in ("paper", "released"):
        row |= {f"{rule}/epoch": 245, f"{rule}/qualified": True}
        row |= {f"{rule}/{p}/{m}": 1.234567 for p in ("train", "val") for m in ("loss", "acc")}
        row |= {f"{rule}/test/acc": 81.25}
    row |= {"duration": 1.5, "device": "cpu", "version": "0", "science": 1, "dirty": False}
    return [row | {"repeat": repeat, "paper/test/acc": 80 + repeat} for repeat in range(REPEATS)]


def _missing(store: Any, number: int) -> None:
    sweep.missing_repeats(_configuration(number), REPEATS, store)


def _summary(rows: list[Any]) -> None:
    summarise([float(row["paper/test/acc"]) for row in rows if row["status"] == "ok"])


if __name__ == "__main__":
    main()
