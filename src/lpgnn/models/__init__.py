"""The backbones: GCN, GAT, GraphSAGE, and an adapter for any torch module."""

from lpgnn.models.backbone import Backbone as Backbone
from lpgnn.models.backbone import Network as Network
from lpgnn.models.backbone import Shape as Shape
from lpgnn.models.backbone import Weights as Weights
from lpgnn.models.dropout import Dropout as Dropout
from lpgnn.models.gat import GAT as GAT
from lpgnn.models.gcn import GCN as GCN
from lpgnn.models.sage import GraphSAGE as GraphSAGE
from lpgnn.models.torch_module import TorchModule as TorchModule
