"""The data station: clean graphs from files, from a block model or from PyTorch Geometric."""

from lpgnn.data.graph import Graph as Graph
from lpgnn.data.graph import Topology as Topology
from lpgnn.data.normalise import make_graph as make_graph
from lpgnn.data.normalise import normalise_features as normalise_features
from lpgnn.data.pyg import graph_from_pyg as graph_from_pyg
from lpgnn.data.pyg import graph_to_pyg as graph_to_pyg
from lpgnn.data.registry import DATASET_NAMES as DATASET_NAMES
from lpgnn.data.registry import PAPER_STATISTICS as PAPER_STATISTICS
from lpgnn.data.registry import GraphStatistics as GraphStatistics
from lpgnn.data.registry import load_graph as load_graph
from lpgnn.data.registry import statistics as statistics
from lpgnn.data.sbm import BlockModel as BlockModel
from lpgnn.data.sparse import CsrMatrix as CsrMatrix
from lpgnn.data.splits import Split as Split
from lpgnn.data.splits import random_split as random_split
