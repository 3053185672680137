"""Graphs."""

from lpgnn.data.graph import Graph as Graph
from lpgnn.data.graph import Topology as Topology
from lpgnn.data.registry import GraphStatistics as GraphStatistics
from lpgnn.data.registry import load_graph as load_graph
from lpgnn.data.registry import statistics as statistics
from lpgnn.data.sbm import BlockModel as BlockModel
from lpgnn.data.sparse import CsrMatrix as CsrMatrix
