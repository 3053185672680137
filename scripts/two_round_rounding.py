"""How far another engine moves a repeat of two rounds: what rounding alone does to it.

Every repeat is computed twice on the same users, by numba's loops and by torch's operations, which
add up in another order.  Two rounds train no network, and an error in the last bit stays one unless
it decides which of two equal candidates is taken.  That is why their rows are paired with rows of
any engine.  Seed 500 is one that no result is reported for.

``python scripts/two_round_rounding.py [--data-dir data] [--repeats 10] [DATASET ...]`` writes
``results/two_round_rounding.csv``; settings that are there already are not computed again.
"""

import argparse
import csv
from pathlib import Path
from statistics import fmean

from lpgnn.config import Settings
from lpgnn.engine import Measures, run_repeats
from lpgnn.rows import write_atomically
from lpgnn.rows.metrics import OTHER_METRICS

SEED = 500
INF = float("inf")
BUDGETS = ((2.0, INF), (8.0, INF), (2.0, 1.0), (8.0, 1.0), (2.0, 0.5))
DATASETS = ("cora", "citeseer", "pubmed", "actor", "tolokers", "minesweeper")
RANKED = ("tolokers", "minesweeper")  # one class is rare: by ROC AUC
COLUMNS = ("dataset", "metric", "x_eps", "y_eps", "repeats", "unchanged", "mean_shift", "max_shift")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("datasets", nargs="*", default=DATASETS)
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("results/two_round_rounding.csv"))
    options = parser.parse_args()
    rows: list[dict[str, str]] = []
    if options.out.is_file():
        with options.out.open(newline="") as file:
            rows = list(csv.DictReader(file))
    done = {tuple(row[name] for name in COLUMNS[:5]) for row in rows}
    for dataset in options.datasets:
        metric = "roc_auc" if dataset in RANKED else "acc"
        graph = None
        for x_eps, y_eps in BUDGETS:
            place = (dataset, metric, f"{x_eps:g}", f"{y_eps:g}", str(options.repeats))
            if place in done:
                continue
            settings = Settings(
                dataset=dataset,
                learner="two_round",
                x_eps=x_eps,
                y_eps=y_eps,
                seed=SEED,
                data_dir=options.data_dir,
            )
            configuration = settings.resolve()
            graph = graph or configuration.dataset.load(options.data_dir)
            measures = Measures({**settings.metrics, "roc_auc": OTHER_METRICS["roc_auc"]})
            by_engine = []
            for kernels in ("numba", "torch"):
                found = run_repeats(
                    configuration,
                    graph,
                    range(options.repeats),
                    device="cpu",
                    kernels=kernels,
                    measures=measures,
                )
                by_engine.append([float(row[f"released/test/{metric}"]) for row in found])
            shifts = [abs(a - b) for a, b in zip(*by_engine, strict=True)]
            unchanged = str(sum(shift == 0 for shift in shifts))
            measured = (unchanged, f"{fmean(shifts):.3f}", f"{max(shifts):.3f}")
            rows.append(dict(zip(COLUMNS, (*place, *measured), strict=True)))
            print(", ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
            lines = [",".join(COLUMNS), *(",".join(row[c] for c in COLUMNS) for row in rows)]
            write_atomically(options.out, "\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
