"""What bit reports tell about private features: how many bits depend on them, and on the class.

These are numbers about a mechanism on a clean graph, for whoever judges it.  No server has them.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from lpgnn.data.graph import Graph
from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError
from lpgnn.privacy.features import BlankFeatures, Feature, RawFeatures
from lpgnn.privacy.mechanism import BitMechanism


def expected_informative_bits(num_nodes: int, density: float, mechanism: BitMechanism) -> float:
    """How many of the N m reported bits depend on the features, on average.

    A node draws its bit as [u < p(x)] with u uniform.  With the same sampled feature and the same u
    a node without features (x = alpha) sends another bit only if p(alpha) <= u < p(x), which has
    the probability p(x) - p(alpha) = tanh(eps / 2m) (x - alpha) / (beta - alpha).  A feature is
    sampled with probability m / d: the sum over all entries is N m density tanh(eps / 2m).
    """
    m = mechanism.m
    return num_nodes * m * density * math.tanh(mechanism.epsilon / (2 * m))


def feature_density(features: CsrMatrix, mechanism: BitMechanism) -> float:
    """The mean of (x - alpha) / (beta - alpha) over all N d entries."""
    num_entries = features.shape[0] * features.shape[1]
    mean = float(features.values.double().sum()) / num_entries
    return (mean - mechanism.alpha) / mechanism.width


def informative_bits(graph: Graph, mechanism: BitMechanism, *, generator: torch.Generator) -> int:
    """Count the bits that differ between reports of the features and of none, drawn alike.

    Both come from ``Feature.reports``, as in every run, with the generator in one state.
    """
    state = generator.get_state()

    def sent(feature: Feature) -> tuple[Tensor, Tensor]:
        """The sampled features and their bits."""
        generator.set_state(state)
        bits = feature.reports(graph, mechanism, generator=generator).sent
        if isinstance(bits, CsrMatrix):
            return bits.indices, bits.values
        return torch.empty(0), bits  # 1-bit reports sample nothing

    (sampled, bits), (blank_sampled, blank_bits) = sent(RawFeatures()), sent(BlankFeatures())
    # Were they unequal, a bit would be compared with that of another feature.
    assert torch.equal(sampled, blank_sampled)
    return int((bits != blank_bits).sum())


def class_distance_squared(graph: Graph) -> float:
    """The mean squared distance |mu_a - mu_b|^2 of the classes' mean features.

    The mean is over pairs of nodes of two classes: the pair (a, b) counts N_a N_b times.
    """
    if graph.features is None:
        raise InputError("dataset", graph.name, "must have private features")
    sizes = torch.bincount(graph.labels, minlength=graph.num_classes).double()  # [C]
    norms, pairs = 0.0, 0.0
    means = list(_class_means(graph, graph.features, sizes))
    for a, mean in enumerate(means):
        for b in range(a):
            weight = float(sizes[a] * sizes[b])
            norms += weight * float((mean - means[b]).square().sum())
            pairs += weight
    if pairs == 0:
        raise InputError("dataset", graph.name, "must have nodes of at least two classes")
    return norms / pairs


def _class_means(graph: Graph, features: CsrMatrix, sizes: Tensor) -> Iterator[Tensor]:
    """The mean feature vector of each class; zeros for a class without nodes."""
    d = features.shape[1]
    classes = graph.labels[features.row_indices()]  # [nnz]
    values = features.values.double()
    for one, size in enumerate(sizes.tolist()):
        own = classes == one
        sums = torch.zeros(d, dtype=torch.float64)
        yield sums.index_add_(0, features.indices[own], values[own]) / max(size, 1.0)


def signal_to_noise(squared_distance: float, mechanism: BitMechanism) -> float:
    """S = |mu_a - mu_b|^2 4 m tanh^2(eps / 2m) / d: what one node's report tells of its class.

    A reported entry is +1 or -1 with the mean tanh(eps / 2m) (2x - 1) and a variance of at most 1.
    Where feature j is sampled, the means of two classes differ by 2 tanh(eps / 2m) D_j; that is so
    with probability m / d.  The squares add up to S over the features: the expected squared
    distance of the classes in standard deviations.  Below 1 a report hardly tells two classes
    apart; N nodes of them, pooled, have N S.
    """
    scaled = squared_distance / mechanism.width**2
    slope = math.tanh(mechanism.epsilon / (2 * mechanism.m))
    return 4 * mechanism.m * slope**2 * scaled / mechanism.num_features
