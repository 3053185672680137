"""lpgnn: a workbench for locally private graph neural networks.

Everything here works without Hydra: load a graph, describe a run, train it, look at its rows.
Names are imported at their first use, so that commands that compute nothing start without torch,
and ``lpgnn.client`` needs the standard library only.  So are modules of Python's own: what a
command imports before it handles Ctrl-C takes no time.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from lpgnn.config import Configuration as Configuration
    from lpgnn.config import Settings as Settings
    from lpgnn.data import BlockModel as BlockModel
    from lpgnn.data import Dataset as Dataset
    from lpgnn.data import Graph as Graph
    from lpgnn.engine import run_repeats as run_repeats
    from lpgnn.errors import InputError as InputError
    from lpgnn.rows import RowStore as RowStore
    from lpgnn.rows import Summary as Summary
    from lpgnn.rows import results as results
    from lpgnn.rows import summarise as summarise

_HOMES = {
    **dict.fromkeys(("Configuration", "Settings"), "config"),
    **dict.fromkeys(("BlockModel", "Dataset", "Graph"), "data"),
    "run_repeats": "engine",
    "InputError": "errors",
    **dict.fromkeys(("RowStore", "Summary", "results", "summarise"), "rows"),
}
_STATIONS = ("data", "privacy", "propagation", "models", "learners", "rows", "config", "engine")


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("lpgnn")
    from importlib import import_module

    if name in _HOMES:
        return getattr(import_module(f"lpgnn.{_HOMES[name]}"), name)
    if name in _STATIONS:
        return import_module(f"lpgnn.{name}")
    raise AttributeError(f"module 'lpgnn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted((*globals(), "__version__", *_HOMES, *_STATIONS))


def load_graph(dataset: str | Dataset, data_dir: str | Path = "data") -> Graph:
    """Load a dataset by its name in conf/dataset, or any other ``Dataset``."""
    from pathlib import Path

    from lpgnn.config import make_component

    component: Dataset = make_component("dataset", dataset)
    return component.load(Path(data_dir).expanduser())
