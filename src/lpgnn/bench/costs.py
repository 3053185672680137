"""Refit the formula of ``lpgnn.sweeps.costs`` to what this version has measured."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from lpgnn.config import Configuration, configuration_of
from lpgnn.errors import InputError
from lpgnn.rows import RowStore, write_atomically
from lpgnn.sweeps.costs import FITTED, fit, is_measure


def samples(results_dir: Path, data_dir: Path) -> Iterator[tuple[Configuration, float]]:
    """Configurations and seconds of an epoch, of this version's rows."""
    store = RowStore(results_dir)
    for dataset in store.datasets():
        for row in store.read(dataset):
            if is_measure(row) and row["device"] == "cpu":
                seconds = float(row["duration"]) / int(row["max_epochs"])
                yield configuration_of(row, data_dir), seconds


def fit_costs(options: Mapping[str, str]) -> None:
    """Print the constants to put into the source, and write results/bench/costs.json."""
    results_dir = Path(options.get("results_dir", "results"))
    found = list(samples(results_dir, Path(options.get("data_dir", "data"))))
    if not found:
        raise InputError(
            "results_dir", results_dir, "holds no rows of this version to fit the costs to"
        )
    fitted = fit(found)
    constants = {name: float(f"{value:.2e}") for name, value in fitted.constants.items()}
    for name, value in constants.items():
        print(f"{name:<12}{value:>10.2e}   was {FITTED[name]:.2e}")
    print(f"median |log2(fitted / measured)| over {fitted.kinds} kinds of runs: {fitted.error:.2f}")
    record = {"constants": constants, "median_log2_error": round(fitted.error, 3)}
    record |= {"kinds": fitted.kinds, "samples": len(found)}
    write_atomically(results_dir / "bench" / "costs.json", json.dumps(record, indent=2) + "\n")
