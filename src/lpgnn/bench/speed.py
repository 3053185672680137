"""Our engine against the plain pipeline and against its own bare products, case by case."""

import csv
import dataclasses
import gc
import io
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lpgnn.bench.floor import EpochClock
from lpgnn.bench.plain import time_plain
from lpgnn.config import Configuration, Settings
from lpgnn.engine import run_repeats
from lpgnn.errors import InputError
from lpgnn.rows import write_atomically

FLOOR_GOAL = 2.5  # an epoch takes at most this many times its own sparse products


@dataclass(frozen=True)
class Case:
    """One comparison: the settings, the ratio to reach, and how many epochs are timed."""

    settings: dict[str, Any]
    goal: float
    epochs: int
    plain_epochs: int

    @property
    def backbone(self) -> str:
        return str(self.settings.get("backbone", "sage"))

    def configuration(self) -> Configuration:
        return Settings(**self.settings).resolve()


CASES = {
    "cora sage mb": Case({"dataset": "cora"}, 15, 60, 20),
    "pubmed sage mb": Case({"dataset": "pubmed"}, 15, 20, 5),
    "facebook sage mb": Case({"dataset": "facebook"}, 100, 10, 3),
    "facebook gcn mb": Case({"dataset": "facebook", "backbone": "gcn"}, 40, 10, 3),
    "cora gat mb": Case({"dataset": "cora", "backbone": "gat"}, 8, 30, 10),
    "facebook gat mb": Case({"dataset": "facebook", "backbone": "gat"}, 15, 5, 3),
    "facebook sage lp": Case({"dataset": "facebook", "mechanism": "lp"}, 6, 5, 3),
}


@dataclass(frozen=True)
class Speed:
    """A line of the table; the floor is None where it says nothing."""

    case: str
    plain_ms: float
    ours_ms: float
    goal: float
    floor_ms: float | None

    def columns(self) -> dict[str, str]:
        floor, times = "", ""
        if self.floor_ms is not None:
            floor, times = f"{self.floor_ms:.2f}", f"{self.ours_ms / self.floor_ms:.2f}"
        return {
            "case": self.case,
            "plain_ms": f"{self.plain_ms:.1f}",
            "ours_ms": f"{self.ours_ms:.2f}",
            "ratio": f"{self.plain_ms / self.ours_ms:.1f}",
            "goal": f"{self.goal:g}",
            "floor_ms": floor,
            "epoch_per_floor": times,
            "floor_goal": f"{FLOOR_GOAL:g}" if floor else "",
        }


def measure_speed(options: Mapping[str, str]) -> None:
    """Print the table as it grows and write results/bench/speed.csv and speed.md."""
    data_dir, runs = Path(options.get("data_dir", "data")), int(options.get("runs", 10))
    prefixes = tuple(options.get("cases", "").split(","))
    for prefix in prefixes:
        if not any(name.startswith(prefix) for name in CASES):
            raise InputError("cases", prefix, f"must be the start of one of: {', '.join(CASES)}")
    torch.set_num_threads(1)
    lines: list[Speed] = []
    memory: list[str] = []
    for name, case in CASES.items():
        if not name.startswith(prefixes):
            continue
        try:
            line = _measure(name, case, data_dir, runs)
        except InputError as error:
            print(f"skipped {name}: {error}", flush=True)
            continue
        if not lines:
            print(_row(dict(zip(line.columns(), _HEADINGS, strict=True))))
        lines.append(line)
        print(_row(line.columns()), flush=True)
    if any(line.case == "facebook sage mb" for line in lines):
        for count in (1, runs):
            peak = peak_memory("facebook", data_dir, count)
            memory.append(
                f"Peak memory of a process with {count} Facebook MB run(s): {peak:.0f} MB."
            )
        print(*memory, sep="\n")
    if lines:
        _write(lines, memory, runs, Path(options.get("results_dir", "results")) / "bench")


def _measure(name: str, case: Case, data_dir: Path, runs: int) -> Speed:
    configuration = case.configuration()
    graph = configuration.dataset.load(data_dir)
    plain = time_plain(configuration, graph, case.backbone, case.plain_epochs)
    gc.collect()
    # Dense reports spend their epochs in dense products: sparse ones are no floor of them.
    is_sparse = not configuration.holds_matrix
    clock = EpochClock(with_floor=is_sparse)
    longer = dataclasses.replace(configuration, max_epochs=case.epochs + 2)
    run_repeats(longer, graph, range(runs), device="cpu", on_epoch=clock)
    floor = 1e3 * clock.floor() if is_sparse else None
    return Speed(name, 1e3 * plain, 1e3 * clock.epoch(), case.goal, floor)


def peak_memory(dataset: str, data_dir: Path, runs: int) -> float:
    """Peak MB of a process that loads a graph and trains ``runs`` repeats of it (Linux only).

    getrusage will not do: a new process inherits the peak of the one that started it.
    """
    script = (
        "import torch; torch.set_num_threads(1)\n"
        "from lpgnn.config import Configuration, Settings; from lpgnn.experiment import *\n"
        f"c = Settings(dataset={dataset!r}, max_epochs=20).resolve()\n"
        f"run_repeats(c, load_dataset(c, {str(data_dir)!r}), range({runs}))\n"
        "print(*[l for l in open('/proc/self/status') if l.startswith('VmHWM')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    if done.returncode != 0:
        raise InputError("dataset", dataset, f"could not be measured: {done.stderr[-300:]}")
    return float(done.stdout.split()[1]) / 1024


def _with_earlier(rows: list[dict[str, str]], path: Path) -> list[dict[str, str]]:
    """The rows with those of an earlier file for cases that were not measured this time."""
    by_case = {row["case"]: row for row in rows}
    if path.is_file():
        with path.open(newline="", encoding="utf-8") as file:
            by_case = {row["case"]: row for row in csv.DictReader(file)} | by_case
    order = [name for name in CASES if name in by_case]
    return [by_case[name] for name in order]


_HEADINGS = ("case", "plain ms", "ours ms", "ratio", "goal", "floor ms", "epoch/floor", "goal")
_WIDTHS = (18, 10, 9, 8, 6, 10, 13, 6)


def _row(columns: Mapping[str, str]) -> str:
    first, *others = (
        f"{text or '-':>{width}}" for text, width in zip(columns.values(), _WIDTHS, strict=True)
    )
    return "".join([first.strip().ljust(_WIDTHS[0]), *others])


def _write(lines: list[Speed], memory: list[str], runs: int, folder: Path) -> None:
    rows = _with_earlier([line.columns() for line in lines], folder / "speed.csv")
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(folder / "speed.csv", text.getvalue())
    table = [_HEADINGS, ("---", *["---:"] * (len(_HEADINGS) - 1))]
    table += [tuple(value or "-" for value in row.values()) for row in rows]
    page = [
        "# Speed of an epoch",
        "",
        *("| " + " | ".join(cells) + " |" for cells in table),
        "",
        f"Median CPU milliseconds of one epoch of one run, on one thread of {platform.machine()},"
        f" torch {torch.__version__}; {runs} runs of ours train side by side as far as they fit.",
        "Plain is the dense torch-geometric pipeline in the same process.  Floor: the sparse"
        " products that the same epoch was seen to ask for, run bare between the epochs; an"
        " attention head's sums are in it, its scores, weights and products sampled at the edges"
        " are not, and dense reports have none.  profile.md shows where the rest goes.",
        "",
        *memory,
    ]
    write_atomically(folder / "speed.md", "\n".join(page).rstrip() + "\n")
