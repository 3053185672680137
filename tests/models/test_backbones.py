from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError
from lpgnn.kernels import Backend
from lpgnn.models import GAT, GCN, Dropout, GraphSAGE, Shape, TorchModule, Weights
from lpgnn.privacy import FeatureReports
from lpgnn.propagation import KProp, PreparedGraph, PropagatedFeatures
from no_host_sync import NoHostSync
from propagation.graphs import (
    TORCH,
    both_backends,
    dense_kprop,
    random_topology,
    seeded,
    triangle_with_tail,
)

from .reference import HEADS, KINDS, Kind, Reference, build, run_weights

N, D, H, C, R = 30, 9, 4, 3, 3


def sparse_input(steps: int, backend: Backend) -> tuple[PropagatedFeatures, Tensor]:
    """R runs' own reports, and P^K X' multiplied out in double precision ([R, N, d])."""
    reports, rectified = [], []
    for run in range(R):
        # Of both signs: where all scores of a node have one, GAT's target weights get no gradient.
        drawn = torch.randn(N, D, generator=seeded(run))
        sent = torch.where(drawn.abs() > 0.7, drawn, 0.0)
        scale, offset = 1.0 + run, 0.2 * run
        reports.append(FeatureReports(CsrMatrix.from_dense(sent), scale, offset))
        rectified.append(scale * sent.double() + offset)
    topology = random_topology(N)
    features = KProp(steps).features(reports, PreparedGraph(topology, backend))
    p_k: Tensor = torch.linalg.matrix_power(dense_kprop(topology), steps)
    return features, p_k @ torch.stack(rectified)


def stack(drawn: list[Weights]) -> Weights:
    return {name: torch.stack([w[name] for w in drawn]).requires_grad_() for name in drawn[0]}


def doubled(weights: Weights) -> Weights:
    return {name: w.detach().double().requires_grad_() for name, w in weights.items()}


def assert_close(actual: Tensor, expected: Tensor) -> None:
    """Float32 against double precision, errors measured by the largest entry."""
    scale = float(expected.abs().max())
    torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=1e-5 * scale)


@both_backends
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [0, 2])
def test_backbones_equal_torch_geometric(kind: Kind, steps: int, backend: Backend) -> None:
    """Values and the gradients of all weights, each run with weights of its own."""
    topology = random_topology(N)
    network = build(kind, topology, D, H, C, backend)
    drawn = [run_weights(network, generator=seeded(run)) for run in range(R)]
    weights = stack(drawn)
    features, x = sparse_input(steps, backend)
    hidden = network.hidden(weights, features)
    logits = network.logits(weights, hidden, None)
    width = HEADS * H if kind == "gat" else H
    assert hidden.shape == (R, N, width)
    assert logits.shape == (R, C, N)
    hidden_grad = torch.randn(hidden.shape, generator=seeded(7))
    logits_grad = torch.randn(logits.shape, generator=seeded(8))
    loss = (hidden * hidden_grad).sum() + (logits * logits_grad).sum()
    gradients = torch.autograd.grad(loss, list(weights.values()))

    reference = Reference(kind, topology, D, H, C)
    for run in range(R):
        own = doubled(drawn[run])
        own_hidden = reference.hidden(own, x[run])
        own_logits = reference.logits(own, own_hidden)
        assert_close(hidden[run].detach(), own_hidden.detach())
        assert_close(logits[run].detach(), own_logits.detach().t())
        loss = (own_hidden * hidden_grad[run]).sum() + (own_logits.t() * logits_grad[run]).sum()
        expected = torch.autograd.grad(loss, list(own.values()))
        for name, gradient, wanted in zip(weights, gradients, expected, strict=True):
            assert float(wanted.abs().max()) > 1e-4, name  # each weight matters here
            assert_close(gradient[run], wanted)


@both_backends
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_does_not_see_another_runs_weights(kind: Kind, backend: Backend) -> None:
    network = build(kind, random_topology(N), D, H, C, backend)
    weights = stack([run_weights(network, generator=seeded(run)) for run in range(R)])
    features, _ = sparse_input(2, backend)
    before = network.logits(weights, network.hidden(weights, features), None)
    broken = {name: w.detach().clone() for name, w in weights.items()}
    for w in broken.values():
        w[1] = torch.nan
    after = network.logits(broken, network.hidden(broken, features), None)
    assert bool(after[1].isnan().all())
    assert torch.equal(after[[0, 2]], before[[0, 2]])


class Given:
    """Features as they are, K = 0."""

    def __init__(self, x: Tensor) -> None:
        self.x = x  # [R, N, d]

    def matmul(self, weight: Tensor) -> Tensor:
        return self.x @ weight

    def matmul_each(self, weights: Sequence[Tensor]) -> Sequence[Tensor]:
        return [self.matmul(weight) for weight in weights]

    def dense(self) -> Tensor:
        return self.x


def selu(x: float) -> float:
    scale, alpha = 1.0507009873554805, 1.6732632423543772
    return scale * (x if x > 0 else alpha * (torch.tensor(x).double().exp().item() - 1))


@both_backends
def test_gcn_by_hand(backend: Backend) -> None:
    """One feature, one unit: hidden_v = selu(w sum_u x_u / sqrt(d_u d_v) + b)."""
    network = GCN().build(Shape(1, 1, 2), PreparedGraph(triangle_with_tail(), backend))
    x = torch.tensor([1.0, -2.0, 0.5, 3.0]).view(1, 4, 1)
    weights = {
        "weight1": torch.tensor([[[2.0]]]),
        "bias1": torch.tensor([[0.25]]),
        "weight2": torch.tensor([[[1.0, -1.0]]]),
        "bias2": torch.tensor([[0.5, 0.0]]),
    }
    # One loop a node, the loop at 1 among them: degrees 3, 3, 4, 2.
    third, twelve, eight = 1 / 3, 12**-0.5, 8**-0.5
    mixed = [
        2 * (1 * third - 2 * third + 0.5 * twelve) + 0.25,
        2 * (1 * third - 2 * third + 0.5 * twelve) + 0.25,
        2 * (1 * twelve - 2 * twelve + 0.5 / 4 + 3 * eight) + 0.25,
        2 * (0.5 * eight + 3 / 2) + 0.25,
    ]
    expected = torch.tensor([selu(value) for value in mixed])
    hidden = network.hidden(weights, Given(x))
    torch.testing.assert_close(hidden[0, :, 0], expected)
    h = expected.tolist()
    at_3 = h[2] * eight + h[3] / 2
    logits = network.logits(weights, hidden, None)
    torch.testing.assert_close(logits[0, :, 3], torch.tensor([at_3 + 0.5, -at_3]))


@both_backends
def test_graphsage_by_hand(backend: Backend) -> None:
    """hidden_v = selu(w_l mean of neighbours + b + w_r x_v); node 1 is a neighbour of its own."""
    graph = PreparedGraph(triangle_with_tail(), backend)
    network = GraphSAGE().build(Shape(1, 1, 2), graph)
    x = torch.tensor([1.0, -2.0, 0.5, 3.0]).view(1, 4, 1)
    weights = {
        "left1": torch.tensor([[[2.0]]]),
        "right1": torch.tensor([[[-1.0]]]),
        "bias1": torch.tensor([[0.25]]),
        "left2": torch.tensor([[[1.0, 0.0]]]),
        "right2": torch.tensor([[[0.0, 1.0]]]),
        "bias2": torch.tensor([[0.0, 0.5]]),
    }
    mixed = [
        2 * (-2 + 0.5) / 2 + 0.25 - 1,
        2 * (1 - 2 + 0.5) / 3 + 0.25 + 2,
        2 * (1 - 2 + 3) / 3 + 0.25 - 0.5,
        2 * 0.5 + 0.25 - 3,
    ]
    expected = torch.tensor([selu(value) for value in mixed])
    hidden = network.hidden(weights, Given(x))
    torch.testing.assert_close(hidden[0, :, 0], expected)
    logits = network.logits(weights, hidden, None)
    torch.testing.assert_close(logits[0, 0, 3], expected[2])
    torch.testing.assert_close(logits[0, 1], expected + 0.5)


@both_backends
def test_an_isolated_node_keeps_its_own_features_only(backend: Backend) -> None:
    """The last node: GCN and GAT see it through its loop, GraphSAGE's neighbour mean is zero."""
    for kind in KINDS:
        network = build(kind, random_topology(N), D, H, C, backend)
        weights = stack([run_weights(network, generator=seeded(0))])
        x = torch.randn(1, N, D, generator=seeded(1))
        hidden = network.hidden(weights, Given(x)).detach()
        assert bool(hidden.isfinite().all())
        w = {name: tensor.detach()[0] for name, tensor in weights.items()}
        if kind == "gat":
            own = torch.cat([x[0, -1] @ w["weight1"][head] for head in range(HEADS)])
        else:
            own = x[0, -1] @ w["weight1" if kind == "gcn" else "right1"]
        torch.testing.assert_close(hidden[0, -1], torch.nn.functional.selu(own + w["bias1"]))


BACKBONES = {"gcn": GCN(), "sage": GraphSAGE(), "gat": GAT(), "pyg": TorchModule()}


def test_what_others_need_to_know() -> None:
    """For costs and batches; nobody asks for a backbone by its name."""
    assert {name: own.name for name, own in BACKBONES.items()} == {n: n for n in BACKBONES}
    assert all(own.kind == "backbone" for own in BACKBONES.values())
    assert [own.projections for own in BACKBONES.values()] == [1, 2, 4, 2]
    assert [own.attention_heads for own in BACKBONES.values()] == [0, 0, 4, 0]
    assert [own.needs_dense for own in BACKBONES.values()] == [False, False, False, True]
    assert [own.shares_dropout for own in BACKBONES.values()] == [False, False, False, True]
    assert (GAT(7).projections, GAT(7).attention_heads) == (7, 7)
    assert GAT().options() == {"heads": 4}


@pytest.mark.parametrize("heads", [0, -1, 2.0, "4", True, None])
def test_heads_are_counted(heads: object) -> None:
    with pytest.raises(InputError, match=r"^heads=.*: must be a whole number >= 1$"):
        GAT(heads)  # type: ignore[arg-type]


def test_networks_on_a_graph_share_its_operators() -> None:
    graph = PreparedGraph(random_topology(N), TORCH)
    first, second = (GCN().build(Shape(D, H, C), graph) for _ in range(2))
    assert first.aggregate is second.aggregate  # type: ignore[attr-defined]


@pytest.mark.parametrize("conditioning", ["none", "node"])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_never_makes_the_host_wait(kind: Kind, dense: bool, conditioning: str) -> None:
    """First layer, dropout, second layer, the way back, and the evaluation, as on a GPU."""
    graph = PreparedGraph(random_topology(N), TORCH)
    drawn = torch.randn(R, N, D, generator=seeded(1))
    reports = [
        FeatureReports(x if dense else CsrMatrix.from_dense(x.relu()), 2.0, 0.5, magnitude=3.0)
        for x in drawn
    ]
    features = KProp(2).replace(conditioning=conditioning).features(reports, graph)
    network = build(kind, random_topology(N), D, H, C, TORCH)
    weights = stack([network.initial_weights(generator=seeded(run)) for run in range(R)])
    dropout = Dropout([0.5, 0.25, 0.0], [seeded(run) for run in range(R)], TORCH)
    operator = graph.kprop("gcn")

    def epoch() -> Tensor:
        hidden = network.hidden(weights, features)
        logits = network.logits(weights, hidden, dropout)
        loss = operator.propagate_classes(logits.softmax(1), 3).log_softmax(1).sum()
        gradients = torch.autograd.grad(loss, list(weights.values()))
        with torch.no_grad():
            clean = network.logits(weights, hidden, None)
        return clean.sum() + torch.stack([g.sum() for g in gradients]).sum()

    with NoHostSync():
        total = epoch()
    assert bool(total.isfinite())
