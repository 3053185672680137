"""The data station: clean graphs from files, from a block model or from PyTorch Geometric."""

from lpgnn.data.benchmarks import CiteSeer as CiteSeer
from lpgnn.data.benchmarks import Heterophilous as Heterophilous
from lpgnn.data.dataset import Dataset as Dataset
from lpgnn.data.dataset import FunctionDataset as FunctionDataset
from lpgnn.data.dataset import GraphFacts as GraphFacts
from lpgnn.data.dataset import InMemory as InMemory
from lpgnn.data.dataset import dataset_from_target as dataset_from_target
from lpgnn.data.dataset import graph_facts as graph_facts
from lpgnn.data.dataset import renamed as renamed
from lpgnn.data.files import Files as Files
from lpgnn.data.graph import Graph as Graph
from lpgnn.data.graph import Topology as Topology
from lpgnn.data.karateclub import Facebook as Facebook
from lpgnn.data.karateclub import LastFM as LastFM
from lpgnn.data.normalise import make_graph as make_graph
from lpgnn.data.normalise import normalise_features as normalise_features
from lpgnn.data.planetoid import Cora as Cora
from lpgnn.data.planetoid import Pubmed as Pubmed
from lpgnn.data.published import PublishedDataset as PublishedDataset
from lpgnn.data.pyg import PygDataset as PygDataset
from lpgnn.data.ranges import Ranges as Ranges
from lpgnn.data.sbm import BlockModel as BlockModel
from lpgnn.data.sparse import CsrMatrix as CsrMatrix
from lpgnn.data.splits import Split as Split
from lpgnn.data.splits import Splits as Splits
from lpgnn.data.splits import random_split as random_split
