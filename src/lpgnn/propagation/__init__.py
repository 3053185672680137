"""Filters between the reports and the first layer, and the sparse operators of a graph."""

from lpgnn.propagation.attention_pattern import AttentionPattern as AttentionPattern
from lpgnn.propagation.codes import lazy_lengths as lazy_lengths
from lpgnn.propagation.codes import spread_codes as spread_codes
from lpgnn.propagation.features import PropagatedFeatures as PropagatedFeatures
from lpgnn.propagation.filters import Conditioning as Conditioning
from lpgnn.propagation.filters import Filter as Filter
from lpgnn.propagation.filters import KProp as KProp
from lpgnn.propagation.filters import LinearFilter as LinearFilter
from lpgnn.propagation.filters import NonlinearFilter as NonlinearFilter
from lpgnn.propagation.hoa import HOA as HOA
from lpgnn.propagation.hoa import NFR as NFR
from lpgnn.propagation.operators import Aggregator as Aggregator
from lpgnn.propagation.operators import Operator as Operator
from lpgnn.propagation.page_rank import PageRank as PageRank
from lpgnn.propagation.powers import Powers as Powers
from lpgnn.propagation.prepared import PreparedGraph as PreparedGraph
from lpgnn.propagation.released_upgnet import ReleasedUPGNet as ReleasedUPGNet
