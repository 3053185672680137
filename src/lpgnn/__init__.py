"""lpgnn: a workbench for locally private graph neural networks.

Everything here works without Hydra: load a graph, describe a run, train it, look at its rows.
"""

from lpgnn.config import Configuration as Configuration
from lpgnn.config import Settings as Settings
from lpgnn.data import BlockModel as BlockModel
from lpgnn.data import Graph as Graph
from lpgnn.data import load_graph as load_graph
from lpgnn.errors import InputError as InputError
from lpgnn.experiment import run_repeats as run_repeats
from lpgnn.results import RowStore as RowStore
from lpgnn.results import Summary as Summary
from lpgnn.results import summarise as summarise
