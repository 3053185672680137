import math
from collections import Counter
from functools import partial

import pytest
import torch
from torch import Tensor

from lpgnn.data.sparse import CsrMatrix
from lpgnn.privacy import BitMechanism, Laplace, MultiBit, OneBit, RandomizedResponse
from lpgnn.privacy.audit import (
    bit_outputs,
    corners,
    label_outputs,
    laplace_outputs,
    worst_log_ratio,
)

from .pvalues import ALPHA, counts_p_value, seeded

BUDGETS = [0.01, 1.0, 4.0]


def audited(mechanism: BitMechanism) -> float:
    return worst_log_ratio(partial(bit_outputs, mechanism), corners(mechanism))


class UnsplitBudget(MultiBit):
    """Broken: spends the whole budget on each of the m bits."""

    def bit_probability(self, x: Tensor) -> Tensor:
        return MultiBit(self.epsilon, self.num_features, num_samples=1).bit_probability(x)


class TimidBits(MultiBit):
    """Broken in the other direction: spends only nine tenths of the budget."""

    def bit_probability(self, x: Tensor) -> Tensor:
        budget = 0.9 * self.epsilon
        return MultiBit(budget, self.num_features, num_samples=self.m).bit_probability(x)


@pytest.mark.parametrize("epsilon", BUDGETS)
@pytest.mark.parametrize(("d", "m"), [(1, 1), (2, 1), (3, 2), (4, 1), (5, 3), (5, 5)])
def test_multi_bit_loses_exactly_epsilon(epsilon: float, d: int, m: int) -> None:
    mechanism = MultiBit(epsilon, d, num_samples=m)
    # Equal to epsilon, hence a violation of every smaller budget, 0.99 epsilon among them.
    assert audited(mechanism) == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize("epsilon", BUDGETS)
@pytest.mark.parametrize("d", [1, 3, 5])
def test_one_bit_loses_exactly_epsilon(epsilon: float, d: int) -> None:
    mechanism = OneBit(epsilon, d, alpha=-1.0, beta=3.0)
    assert audited(mechanism) == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize("epsilon", BUDGETS)
@pytest.mark.parametrize("c", [2, 3, 10])
def test_randomized_response_loses_exactly_epsilon(epsilon: float, c: int) -> None:
    outputs = partial(label_outputs, RandomizedResponse(epsilon, c))
    assert worst_log_ratio(outputs, range(c)) == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize("epsilon", BUDGETS)
@pytest.mark.parametrize("d", [1, 2, 4])
def test_laplace_loses_exactly_epsilon(epsilon: float, d: int) -> None:
    mechanism = Laplace(epsilon, d, alpha=-1.0, beta=3.0)
    worst = worst_log_ratio(partial(laplace_outputs, mechanism), corners(mechanism))
    assert worst == pytest.approx(epsilon, rel=1e-9)


def test_the_audit_sees_a_budget_spent_twice_or_not_spent() -> None:
    assert audited(UnsplitBudget(1.0, 4, num_samples=2)) == pytest.approx(2.0)
    assert audited(TimidBits(1.0, 4, num_samples=2)) == pytest.approx(0.9)


def test_inner_inputs_are_not_worse_than_corners() -> None:
    mechanism = MultiBit(1.0, 2)
    grid = [(i / 4, j / 4) for i in range(5) for j in range(5)]
    inner = [x for x in grid if 0 < x[0] < 1 and 0 < x[1] < 1]
    outputs = partial(bit_outputs, mechanism)
    assert worst_log_ratio(outputs, grid) == pytest.approx(1.0)
    assert worst_log_ratio(outputs, inner) < 0.6


def test_an_output_of_one_input_alone_is_an_infinite_loss() -> None:
    tables = {0: {"a": 0.0}, 1: {"a": math.log(0.5), "b": math.log(0.5)}}
    assert worst_log_ratio(tables.__getitem__, [0, 1]) == math.inf


def test_output_tables_by_hand() -> None:
    # e^eps = 3, d = 2, m = 1: half for each dimension, then 1/4 against 3/4
    table = bit_outputs(MultiBit(math.log(3), 2), (0.0, 1.0))
    expected = {(-1, 0): 3 / 8, (1, 0): 1 / 8, (0, -1): 1 / 8, (0, 1): 3 / 8}
    assert {y: math.exp(p) for y, p in table.items()} == pytest.approx(expected)
    # density e^-|y| / 2, in steps of 2^-20
    one = laplace_outputs(Laplace(1.0, 1), (0.0,))
    middle = math.log(0.5 * 2**-20)
    assert one == pytest.approx({(0.0,): middle, (1.0,): middle - 1})


def sampler_p_value(sampler: BitMechanism, audited: BitMechanism, x: list[float]) -> float:
    """Does ``sampler`` draw whole vectors with the probabilities that the audit reasons about?"""
    features = CsrMatrix.from_dense(torch.tensor(x).expand(100_000, -1))
    sent = sampler.perturb(features, generator=seeded()).sent
    dense = sent.to_dense() if isinstance(sent, CsrMatrix) else sent
    counts = Counter(map(tuple, dense.int().tolist()))
    table = bit_outputs(audited, x)
    assert set(counts) <= set(table)
    return counts_p_value([counts[y] for y in table], [math.exp(p) for p in table.values()])


@pytest.mark.parametrize(
    "mechanism",
    [
        MultiBit(1.0, 3),
        MultiBit(1.0, 3, num_samples=2),
        MultiBit(3.0, 3, num_samples=3),
        OneBit(2.0, 3),
    ],
    ids=repr,
)
def test_samples_follow_the_audited_distribution(mechanism: BitMechanism) -> None:
    assert sampler_p_value(mechanism, mechanism, [0.0, 0.5, 1.0]) > ALPHA


def test_the_sampler_check_rejects_another_budget() -> None:
    claimed = MultiBit(0.9, 3)
    assert sampler_p_value(MultiBit(1.0, 3), claimed, [0.0, 0.5, 1.0]) < ALPHA
    split = MultiBit(1.0, 3, num_samples=2)
    assert sampler_p_value(UnsplitBudget(1.0, 3, num_samples=2), split, [0.0, 0.5, 1.0]) < ALPHA
