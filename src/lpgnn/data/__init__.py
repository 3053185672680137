"""The data station: clean graphs from files, from a block model or from PyTorch Geometric."""

from lpgnn.data.dataset import Dataset as Dataset
from lpgnn.data.dataset import FunctionDataset as FunctionDataset
from lpgnn.data.dataset import GraphFacts as GraphFacts
from lpgnn.data.dataset import InMemory as InMemory
from lpgnn.data.dataset import dataset_from_target as dataset_from_target
from lpgnn.data.dataset import graph_facts as graph_facts
from lpgnn.data.graph import Graph as Graph
from lpgnn.data.graph import Topology as Topology
from lpgnn.data.karateclub import Facebook as Facebook
from lpgnn.data.karateclub import LastFM as LastFM
from lpgnn.data.normalise import make_graph as make_graph
from lpgnn.data.normalise import normalise_features as normalise_features
from lpgnn.data.planetoid import Cora as Cora
from lpgnn.data.planetoid import Pubmed as Pubmed
from lpgnn.data.planted import Planted as Planted
from lpgnn.data.published import PublishedDataset as PublishedDataset
from lpgnn.data.pyg import graph_from_pyg as graph_from_pyg
from lpgnn.data.pyg import graph_to_pyg as graph_to_pyg
from lpgnn.data.sbm import BlockModel as BlockModel
from lpgnn.data.sparse import CsrMatrix as CsrMatrix
from lpgnn.data.splits import Split as Split
from lpgnn.data.splits import random_split as random_split
