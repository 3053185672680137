import dataclasses
import math

import pytest
import torch

from lpgnn.data.graph import Topology
from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError
from lpgnn.privacy import Feature, OneHotDegree, Ones, RandomFeatures
from propagation.mechanisms import MECHANISMS

from .path_graph import (
    BLANK,
    RAW,
    STAND_INS,
    collected,
    other_features,
    path_graph,
    path_split,
    reports_of,
    tensors_of,
)
from .pvalues import seeded


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_mechanism_makes_the_reports(name: str) -> None:
    graph = path_graph()
    assert graph.features is not None
    server = collected(graph, path_split(), name=name)
    mechanism = MECHANISMS[name](3.0, 6)
    expected = mechanism.perturb(graph.features, generator=seeded(0)).rectified()
    assert torch.equal(reports_of(server).rectified(), expected)


def test_without_a_mechanism_features_are_sent_as_they_are() -> None:
    graph = path_graph()
    assert graph.features is not None
    server = collected(graph, path_split(), name=None)
    assert reports_of(server).form == "sparse"
    assert torch.equal(reports_of(server).rectified(), graph.features.to_dense())
    assert server.x_eps == math.inf
    assert server.parameters == {}


@pytest.mark.parametrize("feature", STAND_INS, ids=repr)
def test_stand_ins_cost_no_privacy_and_need_no_features(feature: Feature) -> None:
    graph = path_graph()
    bare = dataclasses.replace(graph, features=None)
    server = collected(bare, path_split(), feature, "mb")
    assert (server.num_nodes, reports_of(server).num_features) == (40, 6)
    assert server.x_eps == math.inf
    assert server.parameters == {}
    same = collected(graph, path_split(), feature, None)
    assert torch.equal(reports_of(server).rectified(), reports_of(same).rectified())


def test_ones_are_an_offset() -> None:
    features = reports_of(collected(path_graph(), path_split(), Ones(), None))
    assert isinstance(features.sent, CsrMatrix)
    assert features.sent.nnz == 0
    assert torch.equal(features.rectified(), torch.ones(40, 6))


def test_one_hot_degree_skips_self_loops_and_clamps() -> None:
    # A star of node 0 with 1..4, a self-loop on 1, and 5 alone: degrees 4, 1, 1, 1, 1, 0
    edges = torch.tensor([[0, 0, 0, 0, 1], [1, 2, 3, 4, 1]])
    star = dataclasses.replace(
        path_graph(6, 3), topology=Topology.from_edges(6, edges), feature_dim=3
    )
    features = reports_of(collected(star, path_split(6), OneHotDegree(), None))
    assert features.form == "sparse"
    expected = torch.eye(3)[torch.tensor([2, 1, 1, 1, 1, 0])]  # 4 is clamped at d - 1 = 2
    assert torch.equal(features.rectified(), expected)


def test_random_features_are_uniform_draws_of_the_generator() -> None:
    features = reports_of(collected(path_graph(), path_split(), RandomFeatures(), None)).rectified()
    assert torch.equal(features, torch.rand(40, 6, generator=seeded(0)))


@pytest.mark.parametrize("name", MECHANISMS)
def test_blank_reports_hold_nothing(name: str) -> None:
    """The same draws make the same reports of any features, and of none."""
    graph, split = path_graph(), path_split()
    blank = collected(graph, split, BLANK, name)
    bare = dataclasses.replace(graph, features=None)  # as LastFM is where it cannot be had
    for other in (other_features(graph), bare):
        same = collected(other, split, BLANK, name)
        for a, b in zip(tensors_of(blank), tensors_of(same), strict=True):
            assert torch.equal(a, b)
        one, two = reports_of(blank), reports_of(same)
        assert (one.scale, one.offset) == (two.scale, two.offset)
    # With a budget at which features show, the reports of raw features do differ.
    sent = [
        reports_of(collected(one, split, RAW, name, x_eps=100.0)).rectified()
        for one in (graph, other_features(graph))
    ]
    assert not torch.equal(*sent)


@pytest.mark.parametrize("name", MECHANISMS)
def test_blank_reports_are_those_of_users_without_a_word(name: str) -> None:
    """They go through the mechanism, and cost its budget."""
    graph = path_graph()
    server = collected(graph, path_split(), BLANK, name)
    mechanism = MECHANISMS[name](3.0, 6)
    zeros = CsrMatrix.from_dense(torch.zeros(40, 6))
    expected = mechanism.perturb(zeros, generator=seeded(0)).rectified()
    assert torch.equal(reports_of(server).rectified(), expected)
    assert server.x_eps == 3.0
    assert server.parameters == mechanism.parameters()
    assert reports_of(server).form == mechanism.form


def test_blank_reports_need_a_mechanism() -> None:
    with pytest.raises(InputError, match="feature=blank: needs a mechanism: a finite x_eps"):
        collected(path_graph(), path_split(), BLANK, None)


@pytest.mark.parametrize("feature", [RAW, BLANK], ids=repr)
def test_the_size_of_the_noise_is_public(feature: Feature) -> None:
    """By hand, with eps = 3, d = 6 and m = 1; any features give the same."""
    split, graph = path_split(), path_graph()
    coth = {z: 1 / math.tanh(z) for z in (3 / 2, 3 / 12)}
    expected = {
        "mb": math.sqrt(6) / 2 * coth[3 / 2],  # sqrt(d / m) / 2 coth(eps / 2m)
        "1b": coth[3 / 12] / 2,
        "lp": math.sqrt(2) * 6 / 3,
        "ag": float(MECHANISMS["ag"](3.0, 6).parameters()["sigma"]),
    }
    for name, size in expected.items():
        for one in (graph, other_features(graph)):
            server = collected(one, split, feature, name)
            assert reports_of(server).magnitude == pytest.approx(size, rel=1e-12)


def test_the_size_of_public_features_is_their_root_mean_square() -> None:
    graph, split = path_graph(2000, 6), path_split(2000)
    for feature in STAND_INS:
        reports = reports_of(collected(graph, split, feature, None))
        found = float(reports.rectified().double().square().mean().sqrt())
        # 12,000 squares of uniform numbers: the standard error of their mean is 0.003.
        assert reports.magnitude == pytest.approx(
            found, rel=0.02 if feature.name == "rnd" else 1e-6
        )


def test_nothing_public_is_known_of_the_size_of_clean_features() -> None:
    assert reports_of(collected(path_graph(), path_split(), RAW, None)).magnitude is None


def test_no_features_are_collected_where_none_are_asked_for() -> None:
    bare = dataclasses.replace(path_graph(), features=None)
    for graph in (bare, path_graph()):
        assert collected(graph, path_split(), None, None).features is None


@pytest.mark.parametrize("feature", [RAW, BLANK, *STAND_INS], ids=repr)
def test_what_a_plan_counts_on_is_true(feature: Feature) -> None:
    """Its properties, and what happens."""
    graph, split = path_graph(), path_split()
    bare = dataclasses.replace(graph, features=None)
    spent = collected(graph, split, feature, "mb")
    assert (spent.x_eps < math.inf) == feature.spends_budget
    assert bool(spent.parameters) == feature.spends_budget
    if not feature.needs_mechanism:
        assert reports_of(collected(graph, split, feature, None)).form == feature.form
    for name, form in (("1b", "signs"), ("lp", "dense")):
        found = reports_of(collected(graph, split, feature, name)).form
        assert found == (form if feature.spends_budget else feature.form)
    if feature.reads_features:
        with pytest.raises(InputError, match="needs private features"):
            collected(bare, split, feature)
    else:
        collected(bare, split, feature)


def test_names_are_those_of_the_paper() -> None:
    assert [feature.name for feature in (RAW, BLANK, *STAND_INS)] == [
        "raw",
        "blank",
        "ones",
        "ohd",
        "rnd",
    ]


def test_missing_features_are_named() -> None:
    bare = dataclasses.replace(path_graph(), features=None)
    message = "feature=raw: needs private features, which path does not have here"
    with pytest.raises(InputError, match=message):
        collected(bare, path_split())
