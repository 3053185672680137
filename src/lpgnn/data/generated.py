"""Graphs that are drawn from a seed: what block models have in common."""

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from lpgnn.data.dataset import Dataset
from lpgnn.data.graph import Graph
from lpgnn.errors import InputError

MIN_NODES_PER_CLASS = 8
_COUNTS = ("num_nodes", "num_classes", "num_features", "seed")
_RATES = ("average_degree", "homophily")


@dataclass(frozen=True)
class GeneratedGraph(Dataset):
    """Nodes in classes; a share ``homophily`` of the edges joins nodes of one class.

    A subclass gives every option its default, names its further ``rates``, and checks those.
    """

    num_nodes: int
    average_degree: float
    num_classes: int
    num_features: int
    homophily: float
    seed: int

    is_fixed: ClassVar[bool] = True
    rates: ClassVar[tuple[str, ...]] = ()
    least_features: ClassVar[int] = 1

    def __post_init__(self) -> None:
        for setting in _COUNTS:
            self.check(setting, type(getattr(self, setting)) is int, "must be a whole number")
        for setting in (*_RATES, *self.rates):
            self.check(setting, type(getattr(self, setting)) in (int, float), "must be a number")
        self.check("num_classes", self.num_classes >= 2, "must be at least 2")
        least = MIN_NODES_PER_CLASS * self.num_classes
        enough = f"must be at least {MIN_NODES_PER_CLASS} per class: {least}"
        self.check("num_nodes", self.num_nodes >= least, enough)
        limit = self.num_nodes / 4
        sparse = f"must lie in (0, num_nodes / 4 = {limit:g}]"
        self.check("average_degree", 0 < self.average_degree <= limit, sparse)
        fewest = self.least_features
        self.check("num_features", self.num_features >= fewest, f"must be at least {fewest}")
        self.check("homophily", 0 <= self.homophily <= 1, "must lie in [0, 1]")
        self.check("seed", self.seed >= 0, "must be a whole number >= 0")
        self.check_rates()
        for setting in (*_RATES, *self.rates):  # 4 and 4.0 are one graph: one identity
            object.__setattr__(self, setting, float(getattr(self, setting)))

    def check(self, setting: str, fits: bool, allowed: str) -> None:
        if not fits:
            raise InputError(f"dataset.{setting}", getattr(self, setting), allowed)

    def check_rates(self) -> None:
        """Check the rates of the subclass, which are numbers by now."""

    def load(self, data_dir: Path) -> Graph:
        return self.generate()

    @abstractmethod
    def generate(self) -> Graph:
        """Draw the graph that belongs to the seed."""
