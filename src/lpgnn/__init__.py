"""lpgnn: a workbench for locally private graph neural networks.

Everything here works without Hydra: load a graph, describe a run, train it, look at its rows.
"""

from pathlib import Path

from lpgnn.config import Configuration as Configuration
from lpgnn.config import Settings as Settings
from lpgnn.config import make_component as _make_component
from lpgnn.data import BlockModel as BlockModel
from lpgnn.data import Dataset as Dataset
from lpgnn.data import Graph as Graph
from lpgnn.engine import run_repeats as run_repeats
from lpgnn.errors import InputError as InputError
from lpgnn.rows import RowStore as RowStore
from lpgnn.rows import Summary as Summary
from lpgnn.rows import results as results
from lpgnn.rows import summarise as summarise


def load_graph(dataset: str | Dataset, data_dir: str | Path = "data") -> Graph:
    """Load a dataset by its name in conf/dataset, or any other ``Dataset``."""
    component: Dataset = _make_component("dataset", dataset)
    return component.load(Path(data_dir).expanduser())
