"""Rows as a run would write them, and files of them."""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lpgnn.rows import COLUMNS, RowStore
from lpgnn.rows.reading import csv_line
from lpgnn.rows.schema import as_cells

OPTIONS = '{"filter.steps": 16, "learner.walk": "lazy"}'


def make_row(identity: str, repeat: int, acc: float = 81.25, **changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        **{"id": identity, "repeat": repeat, "dataset": "sbm", "feature": "raw"},
        **{"mechanism": "mb", "x_eps": 1.0, "label_mechanism": "rr", "y_eps": float("inf")},
        **{"filter": "kprop", "backbone": "sage", "protocol": "one_round", "learner": "drop"},
        "learning_rate": 0.01,
        **{"weight_decay": 1e-05, "dropout": 0.5, "max_epochs": 500, "hidden_dim": 16},
        **{"split": "random", "seed": 0, "options": OPTIONS, "fingerprint": "92e4d5b2"},
        "status": "ok",
    }
    for rule in ("paper", "released"):
        row |= {f"{rule}/epoch": 245, f"{rule}/qualified": True}
        row |= {
            f"{rule}/{part}/{name}": 1.5 for part in ("train", "val") for name in ("loss", "acc")
        }
        row |= {f"{rule}/test/{name}": acc for name in ("acc", "macro_f1", "balanced_acc")}
    row |= {"duration": 1.5, "device": "cpu", "version": "0.2.0", "science": 1, "engine": "cpu"}
    return row | {"revision": "e75cb7d9c9", "dirty": False} | changes


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The text of a published file."""
    lines = [csv_line(COLUMNS), *(csv_line(as_cells(row, COLUMNS)) for row in rows)]
    return "".join(f"{line}\n" for line in lines)


def timeless(text: str) -> str:
    """The text of a file without the times at which its rows were written."""
    return re.sub(r",[0-9]{19},(true|false)$", r",,\1", text, flags=re.MULTILINE)


def publish(results_dir: Path, content: str | bytes, dataset: str = "sbm") -> Path:
    path = results_dir / "rows" / f"{dataset}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def keys(rows: Sequence[dict[str, str]]) -> list[tuple[str, int]]:
    return [(row["id"], int(row["repeat"])) for row in rows]


def shards(results_dir: Path) -> list[Path]:
    return sorted((results_dir / "local" / "shards").glob("*.csv"))


def in_child(work: Callable[[], object]) -> int:
    """Run work in a forked process; return its id."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child


def append_in_child(results_dir: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Append as another process."""
    child = in_child(lambda: RowStore(results_dir).append("sbm", rows))
    assert os.waitpid(child, 0)[1] == 0
