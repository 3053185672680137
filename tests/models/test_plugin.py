from typing import Any

import torch
from torch import Tensor

from lpgnn.models import ModuleBackbone, Weights
from lpgnn.models.dropout import Dropout
from lpgnn.privacy import FeatureReports
from lpgnn.propagation import PropagatedFeatures, kprop_operator, propagated_features
from propagation.graphs import CPU, dense_kprop, random_topology, seeded

from .pyg import GIN

N, D, H, C = 30, 6, 8, 3


def backbone_of(dropout: float = 0.0, options: dict[str, Any] | None = None) -> ModuleBackbone:
    return ModuleBackbone(random_topology(N), D, H, C, CPU, GIN, options or {}, dropout)


def reports(run: int) -> FeatureReports:
    return FeatureReports(torch.randn(N, D, generator=seeded(run)), scale=2.0, offset=0.1)


def features(runs: list[int]) -> PropagatedFeatures:
    operator = kprop_operator(random_topology(N), "gcn", CPU)
    return propagated_features([reports(run) for run in runs], operator, 2, CPU)


def stacked(backbone: ModuleBackbone, runs: list[int]) -> Weights:
    drawn = [backbone.initial_weights(generator=seeded(run)) for run in runs]
    return {name: torch.stack([w[name] for w in drawn]).requires_grad_() for name in drawn[0]}


def logits(backbone: ModuleBackbone, runs: list[int], dropout: Dropout | None) -> Tensor:
    weights = stacked(backbone, runs)
    return backbone.logits(weights, backbone.hidden(weights, features(runs)), dropout)


def test_a_plugged_in_network_equals_the_module_itself() -> None:
    """Logits and gradients of three runs with weights of their own."""
    backbone = backbone_of()
    runs = [0, 1, 2]
    weights = stacked(backbone, runs)
    out = backbone.logits(weights, backbone.hidden(weights, features(runs)), None)
    assert out.shape == (3, C, N)
    grad = torch.randn(out.shape, generator=seeded(5))
    gradients = torch.autograd.grad(out, list(weights.values()), grad)
    p_k = torch.linalg.matrix_power(dense_kprop(random_topology(N)), 2)
    for run in runs:
        module = GIN(D, H, num_layers=2, out_channels=C)
        module.load_state_dict({name: w[run].detach() for name, w in weights.items()}, strict=False)
        x = (p_k @ reports(run).rectified().double()).float()
        expected = module(x, random_topology(N).edge_index()).t()
        torch.testing.assert_close(out[run], expected, rtol=1e-4, atol=1e-4)
        wanted = torch.autograd.grad(expected, list(module.parameters()), grad[run])
        own = dict(zip((name for name, _ in module.named_parameters()), wanted, strict=True))
        for name, gradient in zip(weights, gradients, strict=True):
            torch.testing.assert_close(gradient[run], own[name], rtol=1e-3, atol=1e-3)


def test_initial_weights_come_from_the_generator_alone() -> None:
    backbone = backbone_of()
    state = torch.random.get_rng_state()
    first = backbone.initial_weights(generator=seeded(0))
    again = backbone.initial_weights(generator=seeded(0))
    other = backbone.initial_weights(generator=seeded(1))
    assert torch.equal(torch.random.get_rng_state(), state)
    for name, weight in first.items():
        assert torch.equal(weight, again[name])
    assert not all(torch.equal(weight, other[name]) for name, weight in first.items())


def test_dropout_follows_the_runs_own_stream() -> None:
    backbone = backbone_of(dropout=0.5)

    def two_epochs(runs: list[int], global_seed: int) -> Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(global_seed)
            dropout = Dropout([0.5] * len(runs), [seeded(100 + run) for run in runs])
            return torch.stack([logits(backbone, runs, dropout) for _ in range(2)])

    together = two_epochs([0, 1, 2], 0)
    assert torch.equal(together, two_epochs([0, 1, 2], 1))  # not torch's global stream
    for run in range(3):
        assert torch.equal(two_epochs([run], 2)[:, 0], together[:, run])
    assert not torch.equal(together[0], together[1])  # each epoch its own mask
    same_weights = torch.stack(
        [logits(backbone, [0], Dropout([0.5], [seeded(seed)])) for seed in (100, 101)]
    )
    assert not torch.equal(same_weights[0], same_weights[1])


def test_evaluation_drops_nothing_and_training_leaves_the_global_stream_alone() -> None:
    backbone = backbone_of(dropout=0.5)
    plain = backbone_of(dropout=0.0)
    state = torch.random.get_rng_state()
    evaluated = logits(backbone, [0, 1], None)
    assert torch.equal(evaluated, logits(plain, [0, 1], None))
    trained = logits(backbone, [0, 1], Dropout([0.5, 0.5], [seeded(0), seeded(1)]))
    assert not torch.equal(trained, evaluated)
    assert torch.equal(logits(backbone, [0, 1], None), evaluated)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_modules_buffers_do_not_carry_one_run_into_another() -> None:
    """Batch normalisation keeps running statistics: they are a run's own, like its weights."""
    backbone = backbone_of(options={"norm": "batch_norm"})

    def evaluated(runs: list[int], steps: int) -> Tensor:
        weights = stacked(backbone, runs)  # a new training begins
        hidden = backbone.hidden(weights, features(runs))
        dropout = Dropout([0.0] * len(runs), [seeded(run) for run in runs])
        for _ in range(steps):
            backbone.logits(weights, hidden, dropout)
        return backbone.logits(weights, hidden, None).detach()

    alone = evaluated([0], 3)
    together = evaluated([1, 0, 2], 3)
    assert torch.equal(together[1], alone[0])
    assert torch.equal(evaluated([0], 3), alone)  # nor into the next training
    assert not torch.equal(evaluated([0], 1), alone)  # but from a run's step to its evaluation
