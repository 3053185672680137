"""The numbers the paper prints.

``paper_numbers.csv`` holds the three accuracy tables of Sajadmanesh and Gatica-Perez, "Locally
Private Graph Neural Networks" (CCS 2021): ``mechanisms`` is its table "Accuracy of LPGNN with
different LDP mechanisms" (64 cells), ``features`` its table "Accuracy of LPGNN with different
features" (24), ``denoising`` its table "Effect of Drop on the accuracy of LPGNN" (36); mean and
half width of the 95 % interval in per cent, as printed.  ``paper_statistics.csv`` holds its table
"Descriptive statistics of the used datasets".
"""

import csv
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

Key = tuple[str, str, str, str]  # table, dataset, row, column


@dataclass(frozen=True)
class Printed:
    """A printed accuracy: mean ± ci in per cent."""

    mean: float
    ci: float

    def __str__(self) -> str:
        return f"{self.mean:.1f} ± {self.ci:.1f}"


def _read(name: str) -> list[dict[str, str]]:
    text = files("lpgnn.report").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


@lru_cache(maxsize=1)
def paper_numbers() -> dict[Key, Printed]:
    """The accuracies of the paper's three tables by table, dataset, row and column."""
    return {
        (r["table"], r["dataset"], r["row"], r["column"]): Printed(float(r["mean"]), float(r["ci"]))
        for r in _read("paper_numbers.csv")
    }


@lru_cache(maxsize=1)
def paper_statistics() -> dict[str, dict[str, str]]:
    """The paper's dataset table as printed: dataset -> column -> value."""
    return {row["dataset"]: row for row in _read("paper_statistics.csv")}
