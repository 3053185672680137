"""Initial weights against torch-geometric's: bounds, uniformity, and its own draws.

Kolmogorov-Smirnov tests with exact p-values; a correct sampler fails one with probability ALPHA.
"""

import math

import pytest
import torch
from scipy.stats import ks_2samp, kstest
from torch import Tensor, nn

from lpgnn.models import Network, Weights
from propagation.graphs import NUMBA, path_and_isolated, seeded

from .pyg import GATConv, GCNConv, SAGEConv
from .reference import HEADS, KINDS, Kind, build

ALPHA = 1e-6
D, H, C = 40, 7, 3
DRAWS = 100  # of all weights; small tensors need several for a test with power

ZERO = {"gcn": ["bias1", "bias2"], "sage": [], "gat": ["bias1", "bias2"]}
BOUNDS = {
    "gcn": {"weight1": (6 / (D + H)) ** 0.5, "weight2": (6 / (H + C)) ** 0.5},
    "sage": {
        **dict.fromkeys(("left1", "bias1", "right1"), D**-0.5),
        **dict.fromkeys(("left2", "bias2", "right2"), H**-0.5),
    },
    "gat": {
        "weight1": (6 / (D + HEADS * H)) ** 0.5,
        **dict.fromkeys(("source1", "target1"), (6 / (HEADS + H)) ** 0.5),
        "weight2": (6 / (HEADS * H + C)) ** 0.5,
        **dict.fromkeys(("source2", "target2"), (6 / (1 + C)) ** 0.5),
    },
}
PYG_NAMES = {
    "gcn": {"lin.weight": "weight", "bias": "bias"},
    "sage": {"lin_l.weight": "left", "lin_l.bias": "bias", "lin_r.weight": "right"},
    "gat": {"lin.weight": "weight", "att_src": "source", "att_dst": "target", "bias": "bias"},
}


def network_of(kind: Kind) -> Network:
    return build(kind, path_and_isolated(), D, H, C, NUMBA)


def draws(kind: Kind, count: int = DRAWS) -> dict[str, Tensor]:
    """All entries of each weight over many draws from one stream."""
    network, generator = network_of(kind), seeded(1)
    drawn = [network.initial_weights(generator=generator) for _ in range(count)]
    return {name: torch.cat([w[name].flatten() for w in drawn]) for name in drawn[0]}


def pyg_draws(kind: Kind, count: int = DRAWS) -> dict[str, Tensor]:
    """The same from torch-geometric's layers."""
    entries: dict[str, list[Tensor]] = {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        for _ in range(count):
            layers: tuple[nn.Module, nn.Module]
            if kind == "gcn":
                layers = GCNConv(D, H), GCNConv(H, C)
            elif kind == "sage":
                layers = SAGEConv(D, H), SAGEConv(H, C)
            else:
                layers = GATConv(D, H, heads=HEADS), GATConv(HEADS * H, C, heads=1)
            for number, layer in enumerate(layers, 1):
                for name, parameter in layer.named_parameters():
                    own = f"{PYG_NAMES[kind][name]}{number}"
                    entries.setdefault(own, []).append(parameter.detach().flatten())
    return {name: torch.cat(parts) for name, parts in entries.items()}


def thinned(entries: Tensor) -> Tensor:
    """2000 entries spread over all draws: enough power, and the exact p-value stays cheap."""
    return entries[:: max(1, entries.numel() // 2000)][:2000].double()


def uniform_p_value(entries: Tensor, bound: float) -> float:
    scaled = (thinned(entries) / bound + 1) / 2
    return float(kstest(scaled.numpy(), "uniform", method="exact").pvalue)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_uniform_between_the_bounds(kind: Kind) -> None:
    drawn = draws(kind)
    assert set(drawn) == set(BOUNDS[kind]) | set(ZERO[kind])
    for name, bound in BOUNDS[kind].items():
        assert float(drawn[name].abs().max()) <= bound * (1 + 1e-6)
        assert uniform_p_value(drawn[name], bound) > ALPHA, name
    for name in ZERO[kind]:
        assert not drawn[name].any()


@pytest.mark.parametrize("kind", KINDS)
def test_weights_follow_torch_geometrics_distribution(kind: Kind) -> None:
    ours, theirs = draws(kind), pyg_draws(kind)
    assert {name: e.numel() for name, e in ours.items()} == {
        name: e.numel() for name, e in theirs.items()
    }
    for name, entries in ours.items():
        result = ks_2samp(thinned(entries).numpy(), thinned(theirs[name]).numpy(), method="exact")
        assert float(result.pvalue) > ALPHA, name
        assert float(entries.abs().max()) == pytest.approx(
            float(theirs[name].abs().max()), rel=0.03
        )


def test_the_check_rejects_wrong_distributions() -> None:
    weight1 = draws("gat")["weight1"]
    head_by_head = math.sqrt(6 / (D + H))  # a bound drawn for each head alone
    assert uniform_p_value(weight1, head_by_head) < ALPHA
    normal = torch.randn(2000, generator=seeded()) / math.sqrt(3)  # of the right variance
    assert uniform_p_value(normal.clamp(-1, 1), 1.0) < ALPHA
    assert uniform_p_value(torch.rand(2000, generator=seeded()), 1.0) < ALPHA  # one sign only
    wide = torch.rand(2000, generator=seeded()) * 2 - 1
    assert ks_2samp(wide.numpy(), (wide * 0.8).numpy(), method="exact").pvalue < ALPHA


def equal(first: Weights, second: Weights) -> bool:
    return all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_come_from_the_generator_alone(kind: Kind) -> None:
    network = network_of(kind)
    state = torch.random.get_rng_state()
    first = network.initial_weights(generator=seeded(0))
    assert equal(first, network.initial_weights(generator=seeded(0)))
    assert not equal(first, network.initial_weights(generator=seeded(1)))
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("kind", KINDS)
def test_no_two_weights_share_their_draws(kind: Kind) -> None:
    weights = network_of(kind).initial_weights(generator=seeded(0))
    entries = torch.cat([weights[name].flatten() for name in BOUNDS[kind]])
    assert len(set(entries.tolist())) > 0.99 * entries.numel()
