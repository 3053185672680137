"""Dropout's distribution by exact binomial tests; a correct one fails with probability ALPHA."""

import pytest
import torch
from scipy.stats import binomtest
from torch import Tensor

from lpgnn.kernels import Backend
from lpgnn.models import Dropout
from propagation.graphs import BACKENDS, NUMBA, both_backends, seeded

ALPHA = 1e-6
N, H = 20_000, 16


def kept_entries(
    rates: list[float], seeds: list[int], n: int = N, h: int = H, backend: Backend = NUMBA
) -> Tensor:
    """Which entries of an all-one input survive.  -> [R, N, h] bool"""
    dropout = Dropout(rates, [seeded(seed) for seed in seeds], backend)
    return dropout(torch.ones(len(rates), n, h)) != 0


def rate_p_value(kept: Tensor, rate: float) -> float:
    """Each of the four places of a 64-bit draw on its own, combined by Bonferroni's inequality."""
    places = kept.flatten().view(-1, 4)  # [n, 4]
    return min(
        1.0,
        4 * min(float(binomtest(int(p.sum()), p.numel(), 1 - rate).pvalue) for p in places.T),
    )


def pairs_p_value(kept: Tensor, rate: float) -> float:
    """Are entries at distances 1 to 8 both kept as often as independent ones?"""
    blocks = kept.flatten().view(-1, 16)  # disjoint pairs: one of each distance a block
    values = []
    for distance in range(1, 9):
        both = blocks[:, 0] & blocks[:, distance]
        values.append(float(binomtest(int(both.sum()), both.numel(), (1 - rate) ** 2).pvalue))
    return min(1.0, 8 * min(values))


@both_backends
@pytest.mark.parametrize("rate", [0.01, 0.25, 0.5, 0.75, 0.9])
def test_entries_are_dropped_at_the_rate_and_independently(rate: float, backend: Backend) -> None:
    kept = kept_entries([rate], [0], backend=backend)
    assert rate_p_value(kept, rate) > ALPHA
    assert pairs_p_value(kept, rate) > ALPHA


def test_the_checks_reject_broken_dropouts() -> None:
    assert rate_p_value(kept_entries([0.52], [0]), 0.5) < ALPHA
    # One place of four at another rate leaves the mean nearly right.
    uneven = kept_entries([0.5], [0]).flatten().view(-1, 4)
    uneven[:, 3] |= kept_entries([0.9], [1]).flatten().view(-1, 4)[:, 3]
    assert rate_p_value(uneven, 0.5) < ALPHA
    # The same draw for two neighbours keeps the rate, but not the independence.
    repeated = kept_entries([0.5], [0], h=H // 2).flatten().repeat_interleave(2)
    assert rate_p_value(repeated, 0.5) > ALPHA
    assert pairs_p_value(repeated, 0.5) < ALPHA


@both_backends
@pytest.mark.parametrize("rate", [0.25, 0.5, 0.7])
def test_what_is_kept_is_scaled_so_that_the_expectation_holds(
    rate: float, backend: Backend
) -> None:
    hidden = torch.randn(1, 1000, 8, generator=seeded(3))
    out = Dropout([rate], [seeded(0)], backend)(hidden)
    rounded = round(rate * 2**16) / 2**16  # rates are multiples of 2^-16
    kept = out != 0
    torch.testing.assert_close(out[kept], hidden[kept] / (1 - rounded), rtol=1e-6, atol=0)
    # P(kept) * scale = 1 for the rate in use; the rate asked for is at most 2^-17 away.
    assert abs(rounded - rate) <= 2**-17
    assert float(out[kept][0] / hidden[kept][0]) * (1 - rounded) == pytest.approx(1, rel=1e-6)


@both_backends
def test_the_gradient_is_the_mask(backend: Backend) -> None:
    hidden = torch.randn(2, 50, 8, generator=seeded(3), requires_grad=True)
    out = Dropout([0.5, 0.25], [seeded(0), seeded(1)], backend)(hidden)
    (gradient,) = torch.autograd.grad(out.sum(), hidden)
    torch.testing.assert_close(gradient * hidden.detach(), out.detach())
    expected = torch.tensor([2.0, 4 / 3])[:, None, None].expand_as(out)
    torch.testing.assert_close(gradient, torch.where(out.detach() != 0, expected, 0.0))


def joint_p_value(kept: Tensor, rates: tuple[float, float]) -> float:
    """Are the two runs' masks independent of each other, entry by entry?"""
    both = kept[0] & kept[1]
    probability = (1 - rates[0]) * (1 - rates[1])
    return float(binomtest(int(both.sum()), both.numel(), probability).pvalue)


def test_runs_draw_independently() -> None:
    assert joint_p_value(kept_entries([0.5, 0.5], [0, 1]), (0.5, 0.5)) > ALPHA
    assert joint_p_value(kept_entries([0.5, 0.2], [5, 6]), (0.5, 0.2)) > ALPHA
    # Rejects one stream for both.
    assert joint_p_value(kept_entries([0.5, 0.5], [0, 0]), (0.5, 0.5)) < ALPHA


@both_backends
def test_calls_draw_anew(backend: Backend) -> None:
    dropout = Dropout([0.5], [seeded(0)], backend)
    ones = torch.ones(1, N, H)
    two_epochs = torch.cat([dropout(ones), dropout(ones)]) != 0
    assert joint_p_value(two_epochs, (0.5, 0.5)) > ALPHA


@both_backends
@pytest.mark.parametrize("shape", [(10, 8), (7, 3), (1, 1), (5, 5)])
def test_same_streams_same_masks_whatever_the_other_runs_do(
    shape: tuple[int, int], backend: Backend
) -> None:
    """Bitwise, over three calls, for sizes that do and do not fill whole 64-bit draws."""
    hidden = torch.randn(3, *shape, generator=seeded(9))

    def three_calls(rates: list[float], seeds: list[int], runs: list[int]) -> Tensor:
        dropout = Dropout(rates, [seeded(seed) for seed in seeds], backend)
        return torch.stack([dropout(hidden[runs]) for _ in range(3)])

    together = three_calls([0.5, 0.25, 0.8], [0, 1, 2], [0, 1, 2])
    assert torch.equal(together, three_calls([0.5, 0.25, 0.8], [0, 1, 2], [0, 1, 2]))
    other_rates = three_calls([0.5, 0.9, 0.0], [0, 7, 8], [0, 1, 2])
    assert torch.equal(other_rates[:, 0], together[:, 0])
    for run, rate in enumerate([0.5, 0.25, 0.8]):
        alone = three_calls([rate], [run], [run])
        assert torch.equal(alone[:, 0], together[:, run])


def test_different_seeds_give_different_masks() -> None:
    assert not torch.equal(kept_entries([0.5], [0]), kept_entries([0.5], [1]))


@both_backends
def test_a_rate_of_zero_is_the_identity(backend: Backend) -> None:
    hidden = torch.randn(2, 10, 4, generator=seeded(9))
    assert torch.equal(Dropout([0.0, 0.0], [seeded(0), seeded(1)], backend)(hidden), hidden)
    beside_another = Dropout([0.0, 0.5], [seeded(0), seeded(1)], backend)(hidden)
    assert torch.equal(beside_another[0], hidden[0])
    assert not torch.equal(beside_another[1], hidden[1])


@both_backends
def test_the_input_and_the_global_stream_stay_as_they_are(backend: Backend) -> None:
    hidden = torch.randn(1, 10, 4, generator=seeded(9))
    state = torch.random.get_rng_state()
    Dropout([0.5], [seeded(0)], backend)(hidden)
    assert torch.equal(hidden, torch.randn(1, 10, 4, generator=seeded(9)))
    assert torch.equal(torch.random.get_rng_state(), state)


@both_backends
def test_seeds_for_plugged_in_modules_come_from_the_runs_own_stream(backend: Backend) -> None:
    dropout = Dropout([0.5, 0.5], [seeded(0), seeded(1)], backend)
    drawn = [dropout.seed(run) for run in (0, 1, 0, 1)]
    assert len(set(drawn)) == 4
    again = Dropout([0.5, 0.5], [seeded(0), seeded(1)], backend)
    assert [again.seed(run) for run in (1, 1, 0, 0)] == [drawn[1], drawn[3], drawn[0], drawn[2]]


def test_seeds_are_those_of_single_draws_however_many_are_drawn_at_once() -> None:
    dropout, generator = Dropout([0.5], [seeded(0)], NUMBA), seeded(0)
    singly = [int(torch.randint(2**62, (), generator=generator)) for _ in range(1100)]
    assert [dropout.seed(0) for _ in range(1100)] == singly


@pytest.mark.parametrize("shape", [(10, 8), (7, 3), (1, 1)])
def test_both_backends_give_the_same_bits(shape: tuple[int, int]) -> None:
    hidden = torch.randn(3, *shape, generator=seeded(9))
    first, second = (
        Dropout([0.5, 0.3, 0.9], [seeded(run) for run in range(3)], backend)(hidden)
        for backend in BACKENDS.values()
    )
    assert torch.equal(first, second)
