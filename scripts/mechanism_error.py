"""The mean squared error of a feature, for every feature mechanism: its formula and a measurement.

Every node has features drawn uniformly from [0, 1].  The formula is the mean of the mechanism's own
``variance`` over these; the measurement is what reports miss them by.  The last column is their
difference in standard errors, from the spread over nodes.

    python scripts/mechanism_error.py --results-dir results
"""

import argparse
import csv
import io
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from lpgnn.config import component_names, make_component
from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError
from lpgnn.privacy import FeatureMechanism, MultiBit
from lpgnn.randomness import derive_generator
from lpgnn.rows import write_atomically

BUDGETS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
SIZES = (7, 10, 500, 1433)
COLUMNS = ("mechanism", "d", "epsilon", "formula", "measured", "standard_error", "z")


def mechanisms() -> dict[str, FeatureMechanism]:
    """All of conf/mechanism, and MB with the exact best m."""
    names = [name for name in component_names("mechanism") if name != "custom"]
    found: dict[str, Any] = {name: make_component("mechanism", name) for name in names}
    return {**found, "mb (exact m)": MultiBit(sample_rule="exact")}


def measure(mechanism: FeatureMechanism, nodes: int, name: str) -> tuple[float, float, float]:
    """The formula, the measured mean squared error, and its standard error."""
    d = mechanism.num_features
    x = torch.rand(nodes, d, generator=derive_generator(0, 0, f"features/{d}"))
    generator = derive_generator(0, 0, f"{name}/{d}/{mechanism.epsilon}")
    rectified = mechanism.perturb(CsrMatrix.from_dense(x), generator=generator).rectified()
    missed = (rectified.double() - x.double()).square().mean(1)  # [nodes]
    error = float(missed.std()) / math.sqrt(nodes)
    return float(mechanism.variance(x).mean()), float(missed.mean()), error


def rows(entries: int) -> Iterator[tuple[str, ...]]:
    for d in SIZES:
        for epsilon in BUDGETS:
            for name, unbound in mechanisms().items():
                mechanism = unbound.bind(epsilon, d)
                formula, measured, error = measure(mechanism, max(200, entries // d), name)
                # A sign at one scale misses by nearly the same for every node.
                z = (measured - formula) / max(error, 1e-6 * formula)
                numbers = (f"{v:.5g}" for v in (formula, measured, error))
                yield (name, str(d), f"{epsilon:g}", *numbers, f"{z:.2f}")


def table(lines: list[tuple[str, ...]]) -> str:
    """The formula's values as markdown, the smallest of a column in bold."""
    text = ["# Mean squared error of a feature", ""]
    text += ["Features uniform in [0, 1], epsilon for the whole vector; the smallest in bold.", ""]
    for d in SIZES:
        own = [line for line in lines if line[1] == str(d)]
        best = {
            budget: min(float(line[3]) for line in own if line[2] == budget)
            for budget in dict.fromkeys(line[2] for line in own)
        }
        text += [
            f"## d = {d}",
            "",
            f"| epsilon | {' | '.join(best)} |",
            f"|---{'|---' * len(best)}|",
        ]
        for name in dict.fromkeys(line[0] for line in own):
            cells = [
                f"**{float(line[3]):.4g}**" if float(line[3]) == best[line[2]] else line[3]
                for line in own
                if line[0] == name
            ]
            text.append(f"| {name} | {' | '.join(cells)} |")
        text.append("")
    return "\n".join(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results-dir", type=Path, default=Path("results"))
    parser.add_argument("--entries", type=int, default=400_000, help="features in a measurement")
    options = parser.parse_args()
    torch.set_num_threads(1)
    try:
        lines = list(rows(options.entries))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(lines)
    write_atomically(options.results_dir / "mechanism_error.csv", text.getvalue())
    write_atomically(options.results_dir / "mechanism_error.md", table(lines))
    worst = max(lines, key=lambda line: abs(float(line[-1])))
    print(
        f"{len(lines)} measurements; the largest difference is {worst[-1]} standard errors: {worst}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
