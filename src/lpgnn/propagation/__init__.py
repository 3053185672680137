"""KProp and the sparse operators of a graph."""

from lpgnn.propagation.conditioning import Conditioning as Conditioning
from lpgnn.propagation.conditioning import row_factors as row_factors
from lpgnn.propagation.conditioning import row_lengths as row_lengths
from lpgnn.propagation.features import PropagatedFeatures as PropagatedFeatures
from lpgnn.propagation.features import propagated_features as propagated_features
from lpgnn.propagation.operators import Aggregator as Aggregator
from lpgnn.propagation.operators import Operator as Operator
from lpgnn.propagation.operators import aggregation as aggregation
from lpgnn.propagation.operators import kprop_operator as kprop_operator
from lpgnn.propagation.operators import normalised_adjacency as normalised_adjacency
from lpgnn.propagation.operators import with_self_loops as with_self_loops
from lpgnn.propagation.reorder import cache_order as cache_order
from lpgnn.propagation.reorder import reorder as reorder
from lpgnn.propagation.reorder import reorder_topology as reorder_topology
