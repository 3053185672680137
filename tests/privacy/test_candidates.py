"""A choice among public vectors: its moments by hand, by PrivUnit, and as devices draw it."""

import json
import math
import random

import pytest
import torch

from lpgnn import client
from lpgnn.client import Question, Task, write_task
from lpgnn.privacy import PrivUnit
from lpgnn.privacy.candidates import Candidates, _moments_of_largest

from .pvalues import ALPHA, mean_p_value

ROOT_PI = math.sqrt(math.pi)


@pytest.mark.parametrize(
    ("size", "near", "first", "second"),
    [
        (2, 1, 1 / ROOT_PI, 1.0),
        (3, 1, 1.5 / ROOT_PI, 1 + math.sqrt(3) / (2 * math.pi)),
        (3, 2, 0.75 / ROOT_PI, (3 - (1 + math.sqrt(3) / (2 * math.pi))) / 2),
    ],
)
def test_moments_of_the_largest_by_hand(size: int, near: int, first: float, second: float) -> None:
    assert _moments_of_largest(size, near) == pytest.approx((first, second), abs=1e-9)


def test_a_choice_of_one_of_two_by_hand() -> None:
    """The larger with p = e^eps / (1 + e^eps): E[a] = (2 p - 1) / sqrt(pi), E[a^2] = 1."""
    found = Candidates(1.0, 2, 1)
    p = math.e / (1 + math.e)
    assert found.near_probability() == pytest.approx(p)
    assert found.mean() == pytest.approx((2 * p - 1) / ROOT_PI)
    assert found.gamma() == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("d", [7, 500])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0, 8.0])
def test_many_candidates_are_worth_as_much_as_privunit(epsilon: float, d: int) -> None:
    found, privunit = Candidates.suited(epsilon, d), PrivUnit(epsilon, d, norm_bound=1.0)
    assert 256 <= found.num_candidates <= 8192
    noise = (privunit.mean() / found.mean()) ** 2
    assert 1 < noise < 1.015
    assert found.gamma() == pytest.approx(privunit.gamma(), abs=0.02)


def test_large_budgets_cost_some_noise_and_no_time_without_end() -> None:
    found = Candidates.suited(16.0, 500)
    assert (found.num_candidates, found.num_near) == (16384, 1)
    assert 1.2 < (PrivUnit(16.0, 500, norm_bound=1.0).mean() / found.mean()) ** 2 < 1.4


@pytest.fixture(scope="module")
def asked() -> tuple[Task, Question]:
    n = 2500
    source = write_task(
        name="t",
        graph="g",
        num_nodes=n,
        x_eps=3.0,
        num_features=4,
        num_samples=0,
        y_eps=1.0,
        num_classes=2,
        salt="s",
    )
    task = Task.parse(source)
    members = {"lpgnn_question": 1, "task": task.hash.hex(), "nodes": list(range(n))}
    members |= {"kind": "vector", "candidates": 48, "near": 6}
    return task, Question.parse(json.dumps(members).encode(), task)


def test_what_devices_choose_is_unbiased_and_its_noise_is_known(
    asked: tuple[Task, Question],
) -> None:
    """Drawn by the client and read by the server; another scale or noise is refuted."""
    task, question = asked
    draws = random.Random(1).getrandbits
    x = [0.1, 0.2, 0.3, 0.4]
    n = question.num_nodes
    chosen = [
        client.answer(task, question, node=v, features=x, random_bits=draws).label for v in range(n)
    ]
    mechanism = Candidates(3.0, 48, 6)
    reports = mechanism.received(question, torch.arange(n), torch.tensor(chosen))
    sent = reports.rectified().double()
    z = torch.tensor(x, dtype=torch.float64).sqrt()
    along = sent @ z
    assert mean_p_value(along, 1.0) > ALPHA
    assert mean_p_value(1.2 * along, 1.0) < ALPHA
    noise = mechanism.mean() ** -2
    across = sent @ torch.tensor([0.8, 0.0, 0.0, -0.4], dtype=torch.float64)  # <., z> = 0
    across /= math.sqrt(0.8)
    assert mean_p_value(across, 0.0) > ALPHA
    assert mean_p_value(across.square(), noise) > ALPHA
    assert mean_p_value(across.square(), 1.3 * noise) < ALPHA
    expected = noise * (1 + mechanism.gamma() * mechanism.mean())
    assert mean_p_value(along.square(), expected) > ALPHA
    assert mean_p_value(along.square(), noise) < ALPHA


def test_a_server_makes_the_candidates_that_devices_saw(asked: tuple[Task, Question]) -> None:
    _, question = asked
    found = Candidates(3.0, 48, 6).received(question, torch.tensor([7, 3]), torch.tensor([5, 0]))
    for row, (node, k) in zip(found.rectified() / found.scale, ((7, 5), (3, 0)), strict=True):
        bits = client.candidate(question, node, k)
        ones = [int.from_bytes(bits[4 * i : 4 * i + 4], "big").bit_count() for i in range(4)]
        assert row.tolist() == pytest.approx([(one - 16) / math.sqrt(8) for one in ones], abs=1e-5)
