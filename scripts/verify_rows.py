"""Recompute a random sample of published rows and compare them with what is recorded.

``python scripts/verify_rows.py [--data-dir data] [--rows 20] [--seed 0] [DATASET ...]`` trains each
sampled repeat by itself.  Rows of one revision agree up to float rounding; rows of an earlier one
may differ more, because unconditioned training at small budgets amplifies a last bit.
"""

import argparse
import random
import sys
from pathlib import Path

from lpgnn.config import configuration_of
from lpgnn.engine import run_repeats
from lpgnn.rows import RowStore


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("datasets", nargs="*", default=["cora", "pubmed", "facebook"])
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--results-dir", type=Path, default=Path("results"))
    parser.add_argument("--rows", type=int, default=20, help="rows of each dataset")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    sampling, store, same, total = random.Random(options.seed), RowStore(options.results_dir), 0, 0
    for dataset in options.datasets:
        rows = store.read(dataset)
        graph = None
        for row in sampling.sample(rows, min(options.rows, len(rows))):
            configuration = configuration_of(row, options.data_dir)
            if configuration.identity != row["id"]:
                print(f"{dataset} {row['id']}: its columns belong to {configuration.identity}")
                return 1
            graph = graph or configuration.dataset.load(options.data_dir)
            (again,) = run_repeats(configuration, graph, [int(row["repeat"])])
            recorded, found = (float(one["released/test/acc"]) for one in (row, again))
            same += recorded == found
            total += 1
            print(
                f"{dataset} {row['id']} repeat {row['repeat']} (revision {row['revision']}): "
                f"recorded {recorded}, found {found}",
                flush=True,
            )
    print(f"{same} of {total} rows have the recorded accuracy")
    return 0 if same == total else 1


if __name__ == "__main__":
    sys.exit(main())
