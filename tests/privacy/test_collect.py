import dataclasses
import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from lpgnn.data.graph import Graph, Topology
from lpgnn.data.sparse import CsrMatrix
from lpgnn.data.splits import Split
from lpgnn.errors import InputError
from lpgnn.privacy import MECHANISMS, Collected, FeatureMechanism, RandomizedResponse, collect

from .pvalues import seeded

CHOICES = [
    *(("raw", name) for name in [*MECHANISMS, None]),
    *(("blank", name) for name in MECHANISMS),
    *((feature, None) for feature in ("ones", "ohd", "rnd", "none")),
]


def path_graph(n: int = 40, d: int = 6) -> Graph:
    """A path whose first node also has a self-loop."""
    nodes = torch.arange(n)
    edges = torch.stack([torch.cat([nodes[:1], nodes[:-1]]), torch.cat([nodes[:1], nodes[1:]])])
    features = torch.rand(n, d, generator=seeded(1))
    return Graph(
        name="path",
        topology=Topology.from_edges(n, edges),
        features=CsrMatrix.from_dense(torch.where(features > 0.5, features, 0.0)),
        labels=nodes % 3,
        num_classes=3,
        feature_dim=d,
        raw_feature_dim=d,
        fingerprint="",
    )


def path_split(n: int = 40) -> Split:
    part = torch.arange(n) % 4
    return Split(train=part < 2, val=part == 2, test=part == 3)


def mechanism_of(name: str | None, d: int = 6) -> FeatureMechanism | None:
    return None if name is None else MECHANISMS[name](3.0, d)


def collected(
    graph: Graph,
    split: Split,
    feature: str = "raw",
    name: str | None = "mb",
    y_eps: float = 1.0,
) -> Collected:
    return collect(
        graph,
        split,
        mechanism_of(name),
        y_eps,
        features_generator=seeded(0),
        labels_generator=seeded(1),
        feature=feature,
    )


def tensors_of(value: object) -> Iterator[Tensor]:
    """Every tensor reachable through the fields of (nested) dataclasses."""
    if isinstance(value, Tensor):
        yield value
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from tensors_of(getattr(value, field.name))


@pytest.mark.parametrize(("feature", "name"), CHOICES)
def test_later_changes_of_clean_tensors_do_not_reach_the_server(
    feature: str, name: str | None
) -> None:
    graph, split = path_graph(), path_split()
    server = collected(graph, split, feature, name, y_eps=math.inf)
    before = [tensor.clone() for tensor in tensors_of(server)]
    clean = [*tensors_of(graph), *tensors_of(split)]
    assert len(clean) == 9
    for tensor in clean:
        tensor.fill_(1)
    assert len(before) >= 6
    for old, new in zip(before, tensors_of(server), strict=True):
        assert torch.equal(old, new)


@pytest.mark.parametrize(("feature", "name"), CHOICES)
def test_clean_test_labels_never_enter(feature: str, name: str | None) -> None:
    graph, split = path_graph(), path_split()
    other = torch.where(split.test, (graph.labels + 1) % 3, graph.labels)
    one = collected(graph, split, feature, name)
    two = collected(dataclasses.replace(graph, labels=other), split, feature, name)
    for a, b in zip(tensors_of(one), tensors_of(two), strict=True):
        assert torch.equal(a, b)


def test_labels_are_perturbed_where_labelled_and_absent_elsewhere() -> None:
    graph, split = path_graph(), path_split()
    server = collected(graph, split)
    labelled = split.train | split.val
    assert bool((server.labels[~labelled] == -1).all())
    expected = RandomizedResponse(1.0, 3).perturb(graph.labels[labelled], generator=seeded(1))
    assert torch.equal(server.labels[labelled], expected)
    assert not torch.equal(server.labels[labelled], graph.labels[labelled])
    exact = collected(graph, split, y_eps=math.inf)
    assert torch.equal(exact.labels[labelled], graph.labels[labelled])
    assert torch.equal(server.train_mask, split.train)
    assert torch.equal(server.val_mask, split.val)


def test_public_parameters_are_recorded() -> None:
    server = collected(path_graph(), path_split(), name="ag")
    assert (server.x_eps, server.y_eps, server.alpha, server.beta) == (3.0, 1.0, 0.0, 1.0)
    assert server.parameters["delta"] == 1e-10
    assert server.num_classes == 3
    assert collected(path_graph(), path_split()).parameters == {"m": 1.0}


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_mechanism_makes_the_reports(name: str) -> None:
    graph = path_graph()
    assert graph.features is not None
    server = collected(graph, path_split(), name=name)
    mechanism = MECHANISMS[name](3.0, 6)
    expected = mechanism.perturb(graph.features, generator=seeded(0)).rectified()
    assert torch.equal(server.features.rectified(), expected)


def test_without_a_mechanism_features_are_sent_as_they_are() -> None:
    graph = path_graph()
    assert graph.features is not None
    server = collected(graph, path_split(), name=None)
    assert server.features.is_sparse
    assert torch.equal(server.features.rectified(), graph.features.to_dense())
    assert server.x_eps == math.inf
    assert server.parameters == {}


@pytest.mark.parametrize("feature", ["ones", "ohd", "rnd", "none"])
def test_stand_ins_cost_no_privacy_and_need_no_features(feature: str) -> None:
    graph = path_graph()
    bare = dataclasses.replace(graph, features=None)
    server = collected(bare, path_split(), feature, "mb")
    assert (server.num_nodes, server.num_features) == (40, 6)
    assert server.x_eps == math.inf
    assert server.parameters == {}
    same = collected(graph, path_split(), feature, None)
    assert torch.equal(server.features.rectified(), same.features.rectified())


def test_ones_are_an_offset() -> None:
    features = collected(path_graph(), path_split(), "ones", None).features
    assert isinstance(features.sent, CsrMatrix)
    assert features.sent.nnz == 0
    assert torch.equal(features.rectified(), torch.ones(40, 6))


def test_one_hot_degree_skips_self_loops_and_clamps() -> None:
    # A star of node 0 with 1..4, a self-loop on 1, and 5 alone: degrees 4, 1, 1, 1, 1, 0
    edges = torch.tensor([[0, 0, 0, 0, 1], [1, 2, 3, 4, 1]])
    star = dataclasses.replace(
        path_graph(6, 3), topology=Topology.from_edges(6, edges), feature_dim=3
    )
    features = collected(star, path_split(6), "ohd", None).features
    assert features.is_sparse
    expected = torch.eye(3)[torch.tensor([2, 1, 1, 1, 1, 0])]  # 4 is clamped at d - 1 = 2
    assert torch.equal(features.rectified(), expected)


def test_random_features_are_uniform_draws_of_the_generator() -> None:
    features = collected(path_graph(), path_split(), "rnd", None).features.rectified()
    assert torch.equal(features, torch.rand(40, 6, generator=seeded(0)))


def other_features(graph: Graph) -> Graph:
    """The same graph and labels, every feature value another."""
    assert graph.features is not None
    changed = CsrMatrix.from_dense(1 - graph.features.to_dense())
    return dataclasses.replace(graph, features=changed)


@pytest.mark.parametrize("name", MECHANISMS)
def test_blank_reports_hold_nothing(name: str) -> None:
    """The same draws make the same reports of any features, and of none."""
    graph, split = path_graph(), path_split()
    usual = collected(graph, split, "blank", name)
    bare = dataclasses.replace(graph, features=None)  # as LastFM is where it cannot be had
    for other in (other_features(graph), bare):
        same = collected(other, split, "blank", name)
        for a, b in zip(tensors_of(usual), tensors_of(same), strict=True):
            assert torch.equal(a, b)
        assert (usual.features.scale, usual.features.offset) == (
            same.features.scale,
            same.features.offset,
        )
    # With a budget at which features show, the reports of raw features do differ.
    loud = MECHANISMS[name](100.0, 6)
    sent = [
        collect(
            one,
            split,
            loud,
            1.0,
            features_generator=seeded(0),
            labels_generator=seeded(1),
        ).features.rectified()
        for one in (graph, other_features(graph))
    ]
    assert not torch.equal(*sent)


@pytest.mark.parametrize("name", MECHANISMS)
def test_blank_reports_are_those_of_users_without_a_word(name: str) -> None:
    """They go through the mechanism, and cost its budget."""
    graph = path_graph()
    server = collected(graph, path_split(), "blank", name)
    mechanism = MECHANISMS[name](3.0, 6)
    zeros = CsrMatrix.from_dense(torch.zeros(40, 6))
    expected = mechanism.perturb(zeros, generator=seeded(0)).rectified()
    assert torch.equal(server.features.rectified(), expected)
    assert server.x_eps == 3.0
    assert server.parameters == mechanism.parameters()
    assert server.features.is_sparse == (name == "mb")


def test_blank_reports_need_a_mechanism() -> None:
    with pytest.raises(InputError, match="feature=blank: needs a mechanism: a finite x_eps"):
        collected(path_graph(), path_split(), "blank", None)


@pytest.mark.parametrize("feature", ["raw", "blank"])
def test_the_size_of_the_noise_is_public(feature: str) -> None:
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
            assert server.features.magnitude == pytest.approx(size, rel=1e-12)


def test_the_size_of_public_features_is_their_root_mean_square() -> None:
    graph, split = path_graph(2000, 6), path_split(2000)
    for feature in ("ones", "ohd", "rnd"):
        reports = collected(graph, split, feature, None).features
        found = float(reports.rectified().double().square().mean().sqrt())
        # 12,000 squares of uniform numbers: the standard error of their mean is 0.003.
        assert reports.magnitude == pytest.approx(found, rel=0.02 if feature == "rnd" else 1e-6)


def test_nothing_public_is_known_of_the_size_of_clean_features() -> None:
    assert collected(path_graph(), path_split(), "raw", None).features.magnitude is None
    assert collected(path_graph(), path_split(), "none", None).features.magnitude is None


def test_feature_and_label_streams_are_separate() -> None:
    graph, split = path_graph(), path_split()
    labels = collected(graph, split, name="mb").labels
    for name in ("1b", "lp", None):
        assert torch.equal(collected(graph, split, name=name).labels, labels)


def test_bad_input_is_named() -> None:
    graph, split = path_graph(), path_split()
    with pytest.raises(
        InputError, match="feature=degree: must be one of raw, blank, ones, ohd, rnd"
    ):
        collected(graph, split, "degree")
    message = "feature=raw: needs private features, which path does not have here"
    with pytest.raises(InputError, match=message):
        collected(dataclasses.replace(graph, features=None), split)
    with pytest.raises(InputError, match="y_eps=nan"):
        collected(graph, split, y_eps=math.nan)
    with pytest.raises(InputError, match="val_mask"):
        collected(graph, Split(train=split.train, val=split.train, test=split.test))
