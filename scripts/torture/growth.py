"""What appending, reading, planning and summarising cost as a results folder grows."""

import csv
import os
import resource
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from lpgnn.config import Configuration, Settings
from lpgnn.data import BlockModel
from lpgnn.rows import Requirements, RowStore, summarise
from lpgnn.rows.reading import csv_line, table_content
from lpgnn.rows.schema import COLUMNS, as_cells
from lpgnn.sweeps import CostModel, outdated_rows, plan_tasks

GRAPH = BlockModel(num_nodes=300, num_classes=4, num_features=90)
REPEATS, PLANNED = 10, 20_000
SIZES = (1_000, 10_000, 50_000, 200_000)

# The same operations at an earlier revision, by ``growth_before.py``.
BEFORE = Path("results/faults/growth_before.csv")


def _configuration(number: int) -> Configuration:
    return Settings(dataset=GRAPH, x_eps=1 + number / 1000, max_epochs=500).resolve()


def _rows(configuration: Configuration) -> list[dict[str, Any]]:
    row: dict[str, Any] = {"id": configuration.identity, **configuration.columns(), "status": "ok"}
    for rule in ("paper", "released"):
        row |= {f"{rule}/epoch": 245, f"{rule}/qualified": True}
        row |= {f"{rule}/{p}/{m}": 1.234567 for p in ("train", "val") for m in ("loss", "acc")}
        row |= {f"{rule}/test/{m}": 81.25 for m in ("acc", "macro_f1", "balanced_acc")}
    row |= {"duration": 1.5, "device": "cpu", "version": "0", "science": 1, "dirty": False}
    return [row | {"repeat": repeat, "paper/test/acc": 80 + repeat} for repeat in range(REPEATS)]


def growth_table(scratch: Path, largest: int) -> tuple[str, int]:
    before = _before()
    revision = next((line["revision"] for line in before.values()), "not measured")
    lines = [
        "# Growth",
        "",
        "CPU seconds of one process on folders of so many rows; memory is the peak of planning.  "
        f"Before: revision {revision}, the last with one CSV for each dataset, measured by",
        "`scripts/torture/growth_before.py`.  In brackets: on how many configurations or summaries "
        "of its the",
        "mean is measured that is multiplied.",
        "",
        f"| rows | append, before | append | read all, before | read all "
        f"| plan {PLANNED:,} configurations, before | plan | memory, MB "
        "| summarise all, before | summarise all |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    wrong = 0
    for size in (size for size in SIZES if size <= largest):
        folder = scratch / str(size)
        _fill(folder, size)
        append = _measured(partial(_append, folder))[0]
        read = _measured(partial(_read, folder))[0]
        plan, memory = _measured(partial(_plan, folder))
        summary = _measured(partial(_summarise, folder))[0]
        old = before.get(size, dict.fromkeys(("append", "read", "plan", "summarise"), ""))
        planned = f"{old['plan']} ({old.get('planned', '')})"
        summarised = f"{old['summarise']} ({old.get('summarised', '')})"
        lines.append(
            f"| {size:,} | {old['append']} | {append:.5f} | {old['read']} | {read:.2f} "
            f"| {planned} | {plan:.1f} | {memory:.0f} | {summarised} | {summary:.1f} |"
        )
        print(lines[-1], flush=True)
        wrong += plan > 20 or memory > 1000 or append > 0.01 or summary > 5
    lines += [
        "",
        "Goals: an append that does not grow, planning under 20 s and 1 GB, a report (reading, "
        "looking up and",
        "summarising all rows) under 5 s.",
    ]
    return "\n".join(lines) + "\n", wrong


def _before() -> dict[int, dict[str, str]]:
    if not BEFORE.is_file():
        return {}
    with BEFORE.open(newline="") as file:
        return {int(line["rows"]): line for line in csv.DictReader(file)}


def _fill(folder: Path, size: int) -> None:
    path = folder / "rows" / "sbm.csv"
    path.parent.mkdir(parents=True)
    rows = (row for number in range(size // REPEATS) for row in _rows(_configuration(number)))
    path.write_bytes(table_content(COLUMNS, (csv_line(as_cells(row, COLUMNS)) for row in rows)))


def _append(folder: Path) -> float:
    """Seconds of one append, as in a worker that has read the folder."""
    store, count = RowStore(folder), 100
    rows = [_rows(_configuration(10_000_000 + number))[0] for number in range(count)]
    store.finished("sbm", "x")
    started = time.process_time()
    for row in rows:
        store.append("sbm", [row])
    return (time.process_time() - started) / count


def _read(folder: Path) -> int:
    return len(RowStore(folder).read("sbm"))


def _plan(folder: Path) -> None:
    """What ``lpgnn.run --dry-run`` does once it has its settings: half of it is done, half not."""
    store = RowStore(folder)
    known = sum(1 for _ in store.entries("sbm")) // REPEATS
    first = max(0, known - PLANNED // 2)
    wanted = [_configuration(number) for number in range(first, first + PLANNED)]
    work = [(one, Requirements().missing(one.computation, range(REPEATS), store)) for one in wanted]
    outdated_rows(work, store)
    costs = CostModel(store.stream("sbm"))
    tasks = plan_tasks(work, costs, 2)
    sum(costs.seconds(task) for task in tasks)


def _summarise(folder: Path) -> None:
    """What a report does with all rows: look each configuration up and summarise it."""
    store = RowStore(folder)
    for identity in {entry.identity: None for entry in store.entries("sbm")}:
        rows = store.finished("sbm", identity).values()
        summarise([float(row["paper/test/acc"]) for row in rows if row["status"] == "ok"])


def _measured(work: Callable[[], object]) -> tuple[float, float]:
    """CPU seconds and peak memory (MB) of work in a process of its own.

    Work that returns a float has measured itself.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        started = time.process_time()
        found = work()
        seconds = found if isinstance(found, float) else time.process_time() - started
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
        os.write(writer, f"{seconds} {peak}".encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    seconds, peak = map(float, os.read(reader, 100).split())
    os.close(reader)
    return seconds, peak
