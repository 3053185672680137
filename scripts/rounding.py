"""How much one last bit moves a result: the sensitivity of training to rounding, per setting.

Every setting is trained twice on the same reports, once with the rectifier's scale multiplied by
1 + 2^-23, the smallest change that a 32-bit float can hold.  A difference between the two is not
about privacy or features: it is what rounding alone does to a single repeat.  Two methods whose
rows differ by less, repeat by repeat, cannot be told apart by those repeats.

``python scripts/rounding.py [--data-dir data] [--repeats 5] [DATASET ...]`` writes
``results/rounding.csv``; settings that are there already are not computed again.
"""

import argparse
import csv
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import torch

from lpgnn.config import Settings
from lpgnn.data.sparse import CsrMatrix
from lpgnn.engine import run_members
from lpgnn.kernels import Backend
from lpgnn.privacy import FeatureReports, MultiBit
from lpgnn.propagation import PreparedGraph
from lpgnn.provenance import engine_name
from lpgnn.rows import write_atomically

COLUMNS = ("dataset", "filter", "x_eps", "y_eps", "repeats", "unchanged", "mean_shift", "max_shift")
INF = float("inf")


@dataclasses.dataclass(frozen=True)
class NudgedMultiBit(MultiBit):
    """The multi-bit mechanism with a scale that is one last bit larger."""

    def perturb(self, features: CsrMatrix, *, generator: torch.Generator) -> FeatureReports:
        reports = super().perturb(features, generator=generator)
        return dataclasses.replace(reports, scale=reports.scale * (1 + 2**-23))


def settings(dataset: str, data_dir: Path) -> Iterator[tuple[str, Settings]]:
    for filter_, hparams in (("kprop", "paper"), ("conditioned", "conditioned")):
        for y_eps, budgets in ((INF, (0.01, 0.1, 1.0, 2.0)), (1.0, (0.01, 0.1, 1.0))):
            for x_eps in budgets:
                one = Settings(dataset=dataset, filter=filter_, hparams=hparams, data_dir=data_dir)
                yield filter_, dataclasses.replace(one, x_eps=x_eps, y_eps=y_eps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("datasets", nargs="*", default=["cora", "pubmed", "facebook"])
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("results/rounding.csv"))
    options = parser.parse_args()
    rows: list[dict[str, str]] = []
    if options.out.is_file():
        with options.out.open(newline="") as file:
            rows = list(csv.DictReader(file))
    done = {tuple(row[name] for name in COLUMNS[:5]) for row in rows}
    backend = Backend.choose("cpu")
    print(f"engine {engine_name(backend)}")
    for dataset in options.datasets:
        graph = prepared = None
        for name, one in settings(dataset, options.data_dir):
            place = (dataset, name, f"{one.x_eps:g}", f"{one.y_eps:g}", str(options.repeats))
            if place in done:
                continue
            configuration = one.resolve()
            graph = graph or configuration.dataset.load(options.data_dir)
            prepared = prepared or PreparedGraph(graph.topology, backend)
            accuracies = []
            for mechanism in (configuration.mechanism, NudgedMultiBit()):
                own = dataclasses.replace(configuration, mechanism=mechanism)
                members = [(own, repeat) for repeat in range(options.repeats)]
                found = run_members(members, graph, prepared)
                accuracies.append([float(row["released/test/acc"]) for row in found])
            shifts = [abs(a - b) for a, b in zip(*accuracies, strict=True)]
            measured = (
                str(sum(s == 0 for s in shifts)),
                f"{fmean(shifts):.2f}",
                f"{max(shifts):.2f}",
            )
            rows.append(dict(zip(COLUMNS, (*place, *measured), strict=True)))
            print(", ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
            lines = [",".join(COLUMNS), *(",".join(row[c] for c in COLUMNS) for row in rows)]
            write_atomically(options.out, "\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
