"""Synthetic rows: what lpgnn.run would have written for a configuration, with our numbers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lpgnn.config import Settings
from lpgnn.rows import RowStore


def add_rows(
    results_dir: Path,
    settings: Settings,
    paper: Sequence[float],
    released: Sequence[float] | None = None,
    *,
    failed: Sequence[int] = (),
    metrics: Mapping[str, Sequence[float]] | None = None,
    engine: str = "",
) -> str:
    """Store a row a value; ``metrics`` are those of the paper rule.  Returns their identity."""
    configuration = settings.resolve(fetch=False)
    rows: list[dict[str, Any]] = []
    for repeat, (ours, other) in enumerate(zip(paper, released or paper, strict=True)):
        bad = repeat in failed
        row = {
            "id": configuration.identity,
            "repeat": repeat,
            **configuration.columns(),
            "status": "failed: loss is not finite at epoch 3" if bad else "ok",
            "paper/test/acc": "" if bad else f"{ours:.3f}",
            "released/test/acc": "" if bad else f"{other:.3f}",
            "duration": "1.50",
            "version": "0.1.0",
            "engine": engine,
            "revision": "0123456789",
            "dirty": False,
        }
        row |= {f"paper/test/{name}": f"{v[repeat]:.3f}" for name, v in (metrics or {}).items()}
        rows.append(row)
    RowStore(results_dir).append(configuration.dataset.name, rows)
    return configuration.identity


def write_experiment(folder: Path, name: str, text: str) -> Path:
    """Put an experiment into a user's own config folder, which is returned."""
    path = folder / "conf" / "experiment" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"# @package _global_\n{text}", encoding="utf-8")
    return folder / "conf"
