"""torch-geometric's layers, past the deprecation warnings of its own import."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric.nn import GATConv as GATConv
    from torch_geometric.nn import GCNConv as GCNConv
    from torch_geometric.nn import SAGEConv as SAGEConv
    from torch_geometric.nn.models import GIN as GIN
