import itertools
import math
from dataclasses import replace

import pytest
import torch
from scipy.stats import binom

from lpgnn.data import CsrMatrix, Graph, Planted, make_graph
from lpgnn.data.graph import Topology
from lpgnn.errors import InputError
from lpgnn.privacy import (
    MultiBit,
    OneBit,
    class_distance_squared,
    expected_informative_bits,
    feature_density,
    informative_bits,
    signal_to_noise,
)
from lpgnn.randomness import derive_generator

ALPHA = 1e-6


def graph_of(features: list[list[float]], labels: list[int]) -> Graph:
    nodes = torch.arange(len(labels))
    topology = Topology.from_edges(len(labels), torch.stack([nodes, nodes.roll(1)]))
    raw = CsrMatrix.from_dense(torch.tensor(features))
    return make_graph("tiny", topology, raw, torch.tensor(labels), max(labels) + 1)


TINY = graph_of([[0, 1, 0.5], [1, 0, 0], [0, 0.25, 1]], [0, 1, 1])


@pytest.mark.parametrize(("eps", "m"), [(1.0, 1), (3.0, 2), (8.0, 3)])
def test_expected_bits_by_enumeration(eps: float, m: int) -> None:
    """All subsets of features and, for each bit, the interval of u in which the bits differ."""
    assert TINY.features is not None
    x = TINY.features.to_dense().double()
    mechanism = MultiBit(epsilon=eps, num_features=3, num_samples=m)
    p = mechanism.bit_probability(x)  # [N, d]
    none = float(mechanism.bit_probability(torch.zeros(())))
    subsets = list(itertools.combinations(range(3), m))
    exact = sum(
        float(p[node, j]) - none for node in range(3) for subset in subsets for j in subset
    ) / len(subsets)
    density = feature_density(TINY.features, mechanism)
    assert density == pytest.approx(3.75 / 9)
    found = expected_informative_bits(3, density, mechanism)
    assert found == pytest.approx(exact, rel=1e-12)
    assert found == pytest.approx(3 * m * 3.75 / 9 * math.tanh(eps / (2 * m)), rel=1e-12)


def test_density_counts_from_alpha() -> None:
    features = CsrMatrix.from_dense(torch.tensor([[1.0, 3.0], [1.0, 2.0]]))
    mechanism = MultiBit(epsilon=1.0, num_features=2, alpha=1.0, beta=3.0)
    assert feature_density(features, mechanism) == pytest.approx((0 + 1 + 0 + 0.5) / 4)


@pytest.mark.parametrize("eps", [0.1, 1.0, 8.0])
def test_counted_bits_are_binomial_about_the_expectation(eps: float) -> None:
    """Of features that are all x, each reported bit differs with probability x tanh(eps / 2m)."""
    n, d = 4000, 12
    half = torch.full((n, d), 0.5)
    half[0], half[1] = 0, 1  # so that scaling leaves the others at 1/2
    nodes = torch.arange(n)
    topology = Topology.from_edges(n, torch.stack([nodes, nodes.roll(1)]))
    graph = make_graph("half", topology, CsrMatrix.from_dense(half), nodes % 2, 2)
    assert graph.features is not None
    mechanism = MultiBit(epsilon=eps, num_features=d)
    count = informative_bits(graph, mechanism, generator=derive_generator(0, 0, "features"))
    expected = expected_informative_bits(n, feature_density(graph.features, mechanism), mechanism)
    bits = n * mechanism.m
    tails = binom.cdf(count, bits, expected / bits), binom.sf(count - 1, bits, expected / bits)
    assert min(tails) > ALPHA
    # The formula without tanh, or at twice the budget, would not pass.
    wrong = 0.5 if eps < 4 else 0.5 * math.tanh(eps / mechanism.m)
    assert min(binom.cdf(count, bits, wrong), binom.sf(count - 1, bits, wrong)) < ALPHA


def test_counts_of_many_draws_have_the_expected_mean() -> None:
    graph = Planted(num_nodes=300, average_degree=4.0).generate()
    assert graph.features is not None
    mechanism = MultiBit(epsilon=1.0, num_features=16)
    counts = [
        informative_bits(graph, mechanism, generator=derive_generator(0, repeat, "features"))
        for repeat in range(40)
    ]
    expected = expected_informative_bits(300, feature_density(graph.features, mechanism), mechanism)
    total, bits = sum(counts), 40 * 300
    tails = (
        binom.cdf(total, bits, 40 * expected / bits),
        binom.sf(total - 1, bits, 40 * expected / bits),
    )
    assert min(tails) > ALPHA
    assert len(set(counts)) > 5


def test_without_features_no_bit_depends_on_them_and_a_draw_can_be_repeated() -> None:
    empty = replace(TINY, features=CsrMatrix.from_dense(torch.zeros(3, 3)))
    for mechanism in (MultiBit(epsilon=1.0, num_features=3), OneBit(epsilon=1.0, num_features=3)):
        generator = derive_generator(0, 0, "features")
        assert informative_bits(empty, mechanism, generator=generator) == 0
        counts = {
            informative_bits(TINY, mechanism, generator=derive_generator(3, 1, "features"))
            for _ in range(3)
        }
        assert len(counts) == 1


def test_one_bit_reports_are_counted_too() -> None:
    graph = Planted(num_nodes=300, average_degree=4.0).generate()
    assert graph.features is not None
    mechanism = OneBit(epsilon=16.0, num_features=16)
    count = informative_bits(graph, mechanism, generator=derive_generator(0, 0, "features"))
    expected = expected_informative_bits(300, feature_density(graph.features, mechanism), mechanism)
    assert count == pytest.approx(expected, abs=6 * math.sqrt(expected))


def test_class_distance_by_hand() -> None:
    # Means: (0, 1, 0.5) and (0.5, 0.125, 0.5).
    assert class_distance_squared(TINY) == pytest.approx(0.5**2 + 0.875**2)


def test_class_distance_weighs_pairs_of_nodes() -> None:
    features = [[0.0], [0.0], [0.5], [1.0]]
    # Classes of 2, 1 and 1 nodes: pairs (0, 1) and (0, 2) count twice, (1, 2) once.
    graph = graph_of(features, [0, 0, 1, 2])
    assert class_distance_squared(graph) == pytest.approx((2 * 0.25 + 2 * 1.0 + 1 * 0.25) / 5)
    # The same from pairs of nodes.
    x, y = torch.tensor(features)[:, 0], graph.labels
    means = torch.stack([x[y == one].mean() for one in range(3)])
    pairs = [(a, b) for a in range(4) for b in range(a) if y[a] != y[b]]
    plain = [float((means[y[a]] - means[y[b]]) ** 2) for a, b in pairs]
    assert class_distance_squared(graph) == pytest.approx(sum(plain) / len(plain))


def test_class_distance_needs_features() -> None:
    with pytest.raises(InputError, match=r"^dataset=tiny: must have private features"):
        class_distance_squared(replace(TINY, features=None))


def test_class_distance_needs_two_classes() -> None:
    one_class = replace(TINY, labels=torch.ones(3, dtype=torch.int64))
    with pytest.raises(InputError, match=r"^dataset=tiny: must have nodes of at least two classes"):
        class_distance_squared(one_class)


def test_signal_to_noise_by_hand() -> None:
    mechanism = MultiBit(epsilon=8.0, num_features=16)
    assert mechanism.m == 3
    # tanh(8 / 6) = 0.870062
    assert signal_to_noise(2.0, mechanism) == pytest.approx(4 * 3 * 0.870062**2 * 2 / 16, rel=1e-5)
    wide = MultiBit(epsilon=8.0, num_features=16, alpha=-1.0, beta=1.0)
    assert signal_to_noise(8.0, wide) == pytest.approx(signal_to_noise(2.0, mechanism))


def test_signal_to_noise_is_the_exact_divergence_of_reports_for_weak_signals() -> None:
    """Two one-node classes with features 1/2 + D and 1/2 - D: chi-squared of their reports.

    chi^2 = sum over reports (p - q)^2 / ((p + q) / 2) of all (feature, bit), which is S here
    because an entry's variance is 1 at x = 1/2.
    """
    mechanism = MultiBit(epsilon=1.5, num_features=3)
    shift = torch.tensor([0.02, 0.0, -0.01], dtype=torch.float64)
    p, q = (mechanism.bit_probability(0.5 + sign * shift) for sign in (1, -1))
    reports = [(a / 3, b / 3) for a, b in zip(p.tolist(), q.tolist(), strict=True)]
    reports += [((1 - a) / 3, (1 - b) / 3) for a, b in zip(p.tolist(), q.tolist(), strict=True)]
    chi_squared = sum((a - b) ** 2 / ((a + b) / 2) for a, b in reports)
    distance = float((2 * shift).square().sum())
    assert signal_to_noise(distance, mechanism) == pytest.approx(chi_squared, rel=1e-9)
