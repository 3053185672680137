import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lpgnn.errors import InputError
from lpgnn.kernels import Backend
from lpgnn.models import Dropout, Network, Shape, TorchModule, Weights
from lpgnn.privacy import FeatureReports
from lpgnn.propagation import KProp, PreparedGraph, PropagatedFeatures
from no_host_sync import NoHostSync
from propagation.graphs import (
    NUMBA,
    TORCH,
    both_backends,
    dense_kprop,
    random_topology,
    seeded,
)

from .pyg import GIN

N, D, H, C = 30, 6, 8, 3


class Wide(nn.Module):
    """A user's own module, as wide as it is asked to be, and more."""

    def __init__(
        self, in_channels: int, out_channels: int, extra: int = 0, result: str = "", **_: Any
    ) -> None:
        super().__init__()
        self.linear = nn.Linear(in_channels, out_channels + extra)
        self.result = result

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        out = self.linear(x)
        return {"": out, "turned": out.t(), "pair": (out, edge_index)}[self.result]


def not_a_module(**_: Any) -> str:
    return "not a module"


def network_of(
    dropout: float = 0.0, arguments: dict[str, Any] | None = None, backend: Backend = NUMBA
) -> Network:
    graph = PreparedGraph(random_topology(N), backend)
    return TorchModule(arguments=arguments or {}).build(Shape(D, H, C, dropout), graph)


def reports(run: int) -> FeatureReports:
    return FeatureReports(torch.randn(N, D, generator=seeded(run)), scale=2.0, offset=0.1)


def features(runs: list[int], backend: Backend = NUMBA) -> PropagatedFeatures:
    graph = PreparedGraph(random_topology(N), backend)
    return KProp(2).features([reports(run) for run in runs], graph)


def stacked(network: Network, runs: list[int]) -> Weights:
    drawn = [network.initial_weights(generator=seeded(run)) for run in runs]
    return {name: torch.stack([w[name] for w in drawn]).requires_grad_() for name in drawn[0]}


def logits(network: Network, runs: list[int], dropout: Dropout | None) -> Tensor:
    weights = stacked(network, runs)
    return network.logits(weights, network.hidden(weights, features(runs)), dropout)


@both_backends
def test_the_network_equals_the_module_itself(backend: Backend) -> None:
    """Logits and gradients of three runs with weights of their own."""
    network = network_of(backend=backend)
    runs = [0, 1, 2]
    weights = stacked(network, runs)
    out = network.logits(weights, network.hidden(weights, features(runs, backend)), None)
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
    network = network_of()
    state = torch.random.get_rng_state()
    first = network.initial_weights(generator=seeded(0))
    again = network.initial_weights(generator=seeded(0))
    other = network.initial_weights(generator=seeded(1))
    assert torch.equal(torch.random.get_rng_state(), state)
    for name, weight in first.items():
        assert torch.equal(weight, again[name])
    assert not all(torch.equal(weight, other[name]) for name, weight in first.items())


def test_dropout_follows_the_runs_own_stream() -> None:
    network = network_of(dropout=0.5)

    def two_epochs(runs: list[int], global_seed: int) -> Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(global_seed)
            dropout = Dropout([0.5] * len(runs), [seeded(100 + run) for run in runs], NUMBA)
            return torch.stack([logits(network, runs, dropout) for _ in range(2)])

    together = two_epochs([0, 1, 2], 0)
    assert torch.equal(together, two_epochs([0, 1, 2], 1))  # not torch's global stream
    for run in range(3):
        assert torch.equal(two_epochs([run], 2)[:, 0], together[:, run])
    assert not torch.equal(together[0], together[1])  # each epoch its own mask
    same_weights = torch.stack(
        [logits(network, [0], Dropout([0.5], [seeded(seed)], NUMBA)) for seed in (100, 101)]
    )
    assert not torch.equal(same_weights[0], same_weights[1])


def test_evaluation_drops_nothing_and_training_leaves_the_global_stream_alone() -> None:
    network, plain = network_of(dropout=0.5), network_of(dropout=0.0)
    state = torch.random.get_rng_state()
    evaluated = logits(network, [0, 1], None)
    assert torch.equal(evaluated, logits(plain, [0, 1], None))
    trained = logits(network, [0, 1], Dropout([0.5, 0.5], [seeded(0), seeded(1)], NUMBA))
    assert not torch.equal(trained, evaluated)
    assert torch.equal(logits(network, [0, 1], None), evaluated)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_modules_buffers_do_not_carry_one_run_into_another() -> None:
    """Batch normalisation keeps running statistics: they are a run's own, like its weights."""
    network = network_of(arguments={"norm": "batch_norm"})

    def evaluated(runs: list[int], steps: int) -> Tensor:
        weights = stacked(network, runs)  # a new training begins
        hidden = network.hidden(weights, features(runs))
        dropout = Dropout([0.0] * len(runs), [seeded(run) for run in runs], NUMBA)
        for _ in range(steps):
            network.logits(weights, hidden, dropout)
        return network.logits(weights, hidden, None).detach()

    alone = evaluated([0], 3)
    together = evaluated([1, 0, 2], 3)
    assert torch.equal(together[1], alone[0])
    assert torch.equal(evaluated([0], 3), alone)  # nor into the next training
    assert not torch.equal(evaluated([0], 1), alone)  # but from a run's step to its evaluation


def test_an_epoch_of_a_module_never_makes_the_host_wait() -> None:
    network = network_of(dropout=0.5, backend=TORCH)
    weights = stacked(network, [0, 1])
    hidden = network.hidden(weights, features([0, 1], TORCH))
    dropout = Dropout([0.5, 0.5], [seeded(0), seeded(1)], TORCH)
    network.logits(weights, hidden, dropout)  # seeds are drawn ahead
    with NoHostSync():
        out = network.logits(weights, hidden, dropout)
        torch.autograd.grad(out.square().sum(), list(weights.values()))
        network.logits(weights, hidden, None)


def wide(**arguments: Any) -> TorchModule:
    return TorchModule(module=f"{__name__}.Wide", arguments=arguments)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [({"extra": 2}, "(30, 5)"), ({"result": "turned"}, "(3, 30)"), ({"result": "pair"}, "tuple")],
)
def test_logits_of_another_shape_are_bad_input(arguments: dict[str, Any], found: str) -> None:
    network = wide(**arguments).build(Shape(D, H, C), PreparedGraph(random_topology(N), NUMBA))
    with pytest.raises(InputError) as caught:
        logits(network, [0], None)
    assert str(caught.value) == (
        f"backbone.module={__name__}.Wide: must return a tensor of shape [N, c] = [30, 3], "
        f"not {found}"
    )


def test_logits_of_the_right_shape_pass() -> None:
    network = wide().build(Shape(D, H, C), PreparedGraph(random_topology(N), NUMBA))
    assert logits(network, [0, 1], None).shape == (2, C, N)


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("no_such_package.GIN", "must be an importable module.name"),
        ("torch_geometric.nn.models.NoSuchModel", "must be an importable module.name"),
        ("GIN", "must be an importable module.name"),
        (f"{__name__}.not_a_module", "must be a torch.nn.Module"),
        ("math.pi", "must be an importable class or function"),
    ],
)
def test_what_is_no_module_is_bad_input(module: str, reason: str) -> None:
    backbone = TorchModule(module=module)
    with pytest.raises(InputError) as caught:
        backbone.build(Shape(D, H, C), PreparedGraph(random_topology(N), NUMBA))
    assert str(caught.value).startswith(f"backbone.module={module}: {reason}")
    assert "\n" not in str(caught.value)


def test_arguments_that_the_module_refuses_are_bad_input() -> None:
    backbone = TorchModule(arguments={"norm": "no_such_norm"})
    with pytest.raises(InputError, match=r"^backbone.module="):
        backbone.build(Shape(D, H, C), PreparedGraph(random_topology(N), NUMBA))
    with pytest.raises(InputError, match=r"^arguments=3: must be a mapping"):
        TorchModule(arguments=3)  # type: ignore[arg-type]


SOURCE = """
from torch import nn

class Own(nn.Module):
    pass
"""


def test_the_identity_covers_the_modules_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edited module is another backbone: results of the old one must not count for it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    identities = []
    for name, source in (("own_a", SOURCE), ("own_b", SOURCE), ("own_c", SOURCE + "\n# edited")):
        (tmp_path / f"{name}.py").write_text(source)
        identities.append(TorchModule(module=f"{name}.Own").identity)
        sys.modules.pop(name)
    sources = [identity["source"] for identity in identities]
    assert sources[0] == sources[1] != sources[2]
    assert all(len(source) == 12 for source in sources)
    assert identities[0]["options"] == {"module": "own_a.Own", "arguments": {}}
    with pytest.raises(InputError, match=r"^backbone.module=no_such.Own: "):
        _ = TorchModule(module="no_such.Own").identity


def test_the_identity_covers_the_arguments() -> None:
    plain, normed = TorchModule(), TorchModule(arguments={"norm": "batch_norm"})
    assert plain.identity != normed.identity
    assert plain.identity == TorchModule().identity
    assert hash(plain) == hash(TorchModule())
    assert plain.identity["source"]
