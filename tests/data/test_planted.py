import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from scipy.stats import binom, chi2

from lpgnn.config import Settings
from lpgnn.data import Graph, Planted
from lpgnn.errors import InputError

ALPHA = 1e-6
SMALL = Planted(num_nodes=400, average_degree=8.0)


def homophily(graph: Graph) -> float:
    source, target = graph.topology.edge_index()
    return float((graph.labels[source] == graph.labels[target]).double().mean())


def dense(graph: Graph) -> torch.Tensor:
    assert graph.features is not None
    return graph.features.to_dense()


@pytest.fixture(scope="module")
def default_graph() -> Graph:
    return Planted().generate()


def test_default_is_the_graph_of_the_committed_rows(default_graph: Graph) -> None:
    graph = default_graph
    assert graph.fingerprint == "1f4fa5fbff134254"
    assert (graph.name, graph.num_nodes, graph.num_classes) == ("planted", 2000, 4)
    assert (graph.feature_dim, graph.raw_feature_dim) == (16, 16)
    assert graph.topology.num_edges == 20_000
    assert graph.topology.num_self_loops() == 0
    assert torch.bincount(graph.labels).tolist() == [500] * 4
    assert set(dense(graph).unique().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("share", [0.0, 0.25, 0.35, 0.9, 1.0])
def test_homophily_and_degree_are_met_exactly(share: float) -> None:
    graph = replace(SMALL, homophily=share).generate()
    assert graph.topology.num_edges == 1600
    assert homophily(graph) == round(share * 1600) / 1600


def test_degrees_are_those_of_a_graph_without_hubs(default_graph: Graph) -> None:
    """Poisson: the variance equals the mean (chi-squared dispersion, both tails)."""
    degrees = default_graph.topology.indptr.diff().double()
    statistic = float(((degrees - 20) ** 2).sum() / 20)
    assert ALPHA < chi2.sf(statistic, 1999) < 1 - ALPHA


def edge_kind_p_value(graph: Graph, classes: int) -> float:
    """Whether the edges between classes choose the pair of classes at random."""
    source, target = graph.topology.edge_index()
    pairs = graph.labels[source] * classes + graph.labels[target]
    counts = torch.bincount(pairs, minlength=classes**2).view(classes, classes).double()
    between = counts[*torch.triu_indices(classes, classes, 1)]
    expected = between.mean()
    return float(chi2.sf(float(((between - expected) ** 2 / expected).sum()), between.numel() - 1))


def test_all_pairs_of_classes_are_alike(default_graph: Graph) -> None:
    assert edge_kind_p_value(default_graph, 4) > ALPHA


def class_ones(graph: Graph) -> tuple[torch.Tensor, torch.Tensor]:
    """The ones of each feature in each class [C, d], and the sizes of the classes [C]."""
    one_hot = torch.nn.functional.one_hot(graph.labels, graph.num_classes).double()
    return one_hot.T @ dense(graph).double(), one_hot.sum(0)


@pytest.mark.parametrize(("delta", "classes"), [(0.4, 4), (0.1, 5), (0.5, 2)])
def test_features_are_bernoulli_one_half_plus_or_minus_delta(delta: float, classes: int) -> None:
    graph = Planted(num_nodes=4000, average_degree=2.0, delta=delta, num_classes=classes).generate()
    ones, sizes = class_ones(graph)
    is_high = ones > sizes[:, None] / 2
    assert is_high.sum(0).tolist() == [classes // 2] * 16  # each feature splits the classes
    p = torch.where(is_high, 0.5 + delta, 0.5 - delta)
    cells = ones.numel()
    for count, n, probability in zip(
        ones.flatten().tolist(),
        sizes[:, None].expand_as(ones).flatten().tolist(),
        p.flatten().tolist(),
        strict=True,
    ):
        tails = binom.cdf(count, n, probability), binom.sf(count - 1, n, probability)
        assert min(tails) > ALPHA / cells


def test_a_wrong_delta_would_be_found() -> None:
    ones, sizes = class_ones(Planted(num_nodes=4000, average_degree=2.0, delta=0.4).generate())
    high = ones[ones > sizes[:, None] / 2]
    assert binom.sf(float(high.min()) - 1, 1000, 0.8) < ALPHA  # 1/2 + 0.3 instead of 1/2 + 0.4


def test_without_delta_features_say_nothing_of_classes() -> None:
    ones, sizes = class_ones(Planted(num_nodes=4000, average_degree=2.0, delta=0).generate())
    statistic = float(((ones - sizes[:, None] / 2) ** 2 / (sizes[:, None] / 4)).sum())
    assert chi2.sf(statistic, ones.numel()) > ALPHA


def test_same_seed_same_graph_and_seed_zero_is_a_seed() -> None:
    prints = [replace(SMALL, seed=seed).generate().fingerprint for seed in (0, 0, 1, 2)]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3
    torch.manual_seed(5)  # the global stream is not used
    assert SMALL.generate().fingerprint == prints[0]


def test_delta_changes_the_features_only() -> None:
    first, second = SMALL.generate(), replace(SMALL, delta=0.2).generate()
    assert torch.equal(first.labels, second.labels)
    assert torch.equal(first.topology.indices, second.topology.indices)
    assert first.fingerprint != second.fingerprint


def test_whole_numbers_and_decimals_are_one_identity() -> None:
    whole = replace(SMALL, average_degree=8, homophily=1)
    assert repr(whole.identity) == repr(replace(SMALL, average_degree=8.0, homophily=1.0).identity)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *[("delta", -0.1), ("delta", 0.51), ("delta", "x"), ("homophily", 1.01)],
        *[("homophily", float("nan")), ("num_classes", 1), ("num_nodes", 31), ("num_nodes", 2.5)],
        *[("num_features", 0), ("average_degree", 0), ("average_degree", 101), ("seed", -1)],
    ],
)
def test_bad_settings_are_named(setting: str, value: object) -> None:
    with pytest.raises(InputError, match=rf"^dataset\.{setting}={re.escape(str(value))}: "):
        replace(SMALL, **{setting: value})  # type: ignore[arg-type]


def test_too_dense_a_graph_is_refused() -> None:
    crowded = Planted(num_nodes=80, num_classes=8, homophily=1.0, average_degree=19.0)
    with pytest.raises(InputError, match=r"dataset\.average_degree=19\.0: too dense"):
        crowded.generate()


def test_it_brings_its_steps_unless_a_table_has_the_graph(tmp_path: Path) -> None:
    """Without its own values it would take those of Facebook, whose degree is nearest."""
    run = Settings(dataset="planted").resolve()
    assert (run.filter, run.learner) == (
        Settings(dataset="planted", filter={"_target_": "lpgnn.propagation.KProp", "steps": 0})
        .resolve()
        .filter,
        Settings(dataset="planted", learner="forward").resolve().learner,
    )
    assert (run.learning_rate, run.weight_decay) == (0.01, 0.01)
    assert run.origin == "paper table, as facebook: weight_decay, dropout"

    table = tmp_path / "own.yaml"
    table.write_text(
        "training: {raw: {finite: {finite: {planted: [0.002, 0.0, 0.0]}}}}\n"
        "steps: {planted: {1: {1: [3, 2]}}}\n"
    )
    tuned = Settings(dataset="planted", hparams=str(table)).resolve()
    assert tuned.learning_rate == 0.002
    assert "planted" in tuned.origin
    assert tuned.filter is not None
    assert (tuned.filter.options()["steps"], tuned.learner.options()["steps"]) == (3, 2)
