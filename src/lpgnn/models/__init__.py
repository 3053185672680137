"""The backbones: GCN, GAT, GraphSAGE, and a door for any torch-geometric network."""

from lpgnn.models.backbones import GAT as GAT
from lpgnn.models.backbones import GCN as GCN
from lpgnn.models.backbones import Backbone as Backbone
from lpgnn.models.backbones import GraphSAGE as GraphSAGE
from lpgnn.models.backbones import Weights as Weights
from lpgnn.models.plugin import ModuleBackbone as ModuleBackbone
