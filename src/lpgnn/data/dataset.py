"""Datasets: components that give a clean graph, be it from files, a function or memory."""

import dataclasses
import inspect
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from lpgnn.components import Component, construct, import_target, source_digest
from lpgnn.data.graph import Graph
from lpgnn.data.ranges import Ranges
from lpgnn.data.splits import Splits
from lpgnn.errors import InputError

TARGET_SETTING = "dataset._target_"


@dataclass(frozen=True)
class GraphFacts:
    """The sizes and the fingerprint of a graph, known of a published one without its files."""

    fingerprint: str
    num_nodes: int
    num_entries: int  # directed: an edge counts twice, a self-loop once
    num_features: int  # without constant columns
    raw_num_features: int
    num_classes: int
    num_unlabelled: int = 0
    ranges: str = Ranges().describe()  # how features came to lie in [0, 1]
    splits: str = Splits().describe()

    @property
    def num_edges(self) -> int:
        """Edges as the paper's dataset table counts them."""
        return self.num_entries // 2

    @property
    def average_degree(self) -> float:
        return self.num_entries / self.num_nodes


def graph_facts(graph: Graph) -> GraphFacts:
    return GraphFacts(
        graph.fingerprint,
        graph.num_nodes,
        graph.topology.num_entries,
        graph.feature_dim,
        graph.raw_feature_dim,
        graph.num_classes,
        int((graph.labels < 0).sum()),
        graph.ranges.describe(),
        graph.splits.describe(),
    )


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}", name):
        allowed = "names a file: up to 100 of A-Z, a-z, 0-9, '.', '_' and '-', no dot in front"
        raise InputError("dataset.name", name, allowed)


@dataclass(frozen=True)
class Dataset(Component, ABC):
    """Where a graph comes from.  Its name is the name of the file that keeps its rows.

    ``suggests`` are values of settings for a table of hyper-parameters that lacks the graph.
    ``is_fixed``: the options decide the graph, whatever the files of the user are.
    """

    kind: ClassVar[str] = "dataset"
    suggests: ClassVar[Mapping[str, Any]] = {}
    is_fixed: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        _check_name(cls.name)

    @abstractmethod
    def load(self, data_dir: Path) -> Graph:
        """Read or generate the graph."""

    @property
    def facts(self) -> GraphFacts | None:
        """Facts known without loading the graph; None if only loading tells."""
        return None

    def facts_at(self, data_dir: Path) -> GraphFacts | None:
        """Facts of the graph that ``load(data_dir)`` returns, None if only loading tells."""
        return self.facts

    def will_fetch(self, data_dir: Path) -> bool:
        """Whether ``load`` tries to download something."""
        return False

    @property
    def has_truth(self) -> bool:
        """Whether there are clean labels to evaluate with."""
        return True

    @property
    def title(self) -> str:
        """The name in tables and figures."""
        return self.name

    @property
    def tuned_as(self) -> str | None:
        """The name to look for in tables of hyper-parameters.

        A graph without one, or whose name a table does not have, takes the values of the
        tabulated graph with the nearest average degree.
        """
        return self.name


@dataclass(frozen=True)
class FunctionDataset(Dataset):
    """A user's function ``load(data_dir, **options) -> Graph``.

    ``function`` is its import path, ``arguments`` are its options, and ``label`` replaces the name
    made from the import path.
    """

    function: str
    arguments: tuple[tuple[str, Any], ...] = field(default=(), hash=False)  # may hold lists
    label: str = ""

    def __post_init__(self) -> None:
        # The name belongs to the instance here, while the base class declares one per class.
        name = self.label or re.sub(r"[^A-Za-z0-9._-]", "_", self.function)
        object.__setattr__(self, "name", name)
        _check_name(self.name)
        function = import_target(TARGET_SETTING, self.function)
        if inspect.isclass(function):
            allowed = "must be a subclass of lpgnn.data.Dataset or a function that loads a graph"
            raise InputError(TARGET_SETTING, self.function, allowed)
        try:
            inspect.signature(function).bind(Path(), **dict(self.arguments))
        except (TypeError, ValueError) as error:  # ValueError: a builtin without a signature
            allowed = f"not accepted by {self.function}(data_dir, **options): {error}"
            raise InputError("dataset", self.options() or "{}", allowed) from None

    def load(self, data_dir: Path) -> Graph:
        function = import_target(TARGET_SETTING, self.function)
        graph = function(Path(data_dir), **self.options())
        if not isinstance(graph, Graph):
            allowed = (
                f"must return a lpgnn.Graph, not {type(graph).__name__}; "
                "lpgnn.Graph.from_pyg makes one from PyTorch Geometric's Data"
            )
            raise InputError(TARGET_SETTING, self.function, allowed)
        return graph

    def options(self) -> dict[str, Any]:
        return dict(self.arguments)

    @property
    def target(self) -> str:
        return self.function

    @property
    def source(self) -> str:
        """A digest of the module that names the function and, if another, of the one it is from."""
        function = import_target(TARGET_SETTING, self.function)
        digests = [source_digest(sys.modules[self.function.rpartition(".")[0]])]
        if inspect.isfunction(function):  # a functools.partial would add Python's own source
            digests.append(source_digest(function))
        return "+".join(dict.fromkeys(filter(None, digests)))

    @property
    def identity(self) -> dict[str, Any]:
        return super().identity | {"target": self.target}


@dataclass(frozen=True)
class InMemory(Dataset):
    """A graph that a notebook already has."""

    graph: Graph = field(repr=False, compare=False)
    fingerprint: str = field(init=False)  # stands for the graph in comparisons

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.graph.name)
        _check_name(self.name)
        object.__setattr__(self, "fingerprint", self.graph.fingerprint)

    def load(self, data_dir: Path) -> Graph:
        return self.graph

    def options(self) -> dict[str, Any]:
        return {}

    @property
    def facts(self) -> GraphFacts:
        return graph_facts(self.graph)

    @property
    def identity(self) -> dict[str, Any]:
        return super().identity | {"fingerprint": self.fingerprint}


def renamed(dataset: Dataset, name: str) -> Dataset:
    """The dataset under another name: two graphs of one class need two."""
    _check_name(name)
    twin = dataclasses.replace(dataset)
    object.__setattr__(twin, "name", name)
    return twin


def dataset_from_target(target: str, options: Mapping[str, Any]) -> Dataset:
    """Build the dataset behind ``_target_``: a Dataset's class, or a function that loads a graph.

    An option ``name`` is the dataset's name and is not passed on.
    """
    found = import_target(TARGET_SETTING, target)
    arguments = {str(key): value for key, value in options.items()}
    label = arguments.pop("name", None)
    if inspect.isclass(found) and issubclass(found, Dataset):
        dataset = construct("dataset", found, arguments)
        return dataset if label is None else renamed(dataset, str(label))
    return FunctionDataset(
        target, tuple(sorted(arguments.items())), "" if label is None else str(label)
    )
