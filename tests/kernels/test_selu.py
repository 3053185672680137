import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lpgnn.kernels import Backend
from lpgnn.kernels.selu import ALPHA, SCALE
from lpgnn.models.activation import selu
from propagation.graphs import both_backends, seeded

R, N = 2, 13

# The last is not a multiple of a register's lanes: torch's own SELU is taken.
widths = pytest.mark.parametrize("width", [16, 32, 5])


def inputs(width: int) -> tuple[Tensor, Tensor]:
    x = 3 * torch.randn(R, N, width, generator=seeded(1))
    return x.requires_grad_(), torch.randn(R, width, generator=seeded(2)).requires_grad_()


def exact(x: Tensor, bias: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The unit and its two gradients, by torch in float64."""
    given = tuple(t.detach().double().requires_grad_() for t in (x, bias))
    out = F.selu(given[0] + given[1][:, None])
    d_x, d_bias = torch.autograd.grad(out, given, grad.double())
    return out.detach(), d_x, d_bias


def check(x: Tensor, bias: Tensor, out: Tensor, grad: Tensor) -> None:
    actual = (out.detach(), *torch.autograd.grad(out, (x, bias), grad))
    for own, wanted in zip(actual, exact(x, bias, grad), strict=True):
        torch.testing.assert_close(own.double(), wanted, rtol=1e-6, atol=3e-6)


def test_the_constants_are_torchs() -> None:
    ends = F.selu(torch.tensor([1.0, -math.inf], dtype=torch.float64))
    assert ends.tolist() == [SCALE, pytest.approx(-SCALE * ALPHA, rel=1e-15)]


@both_backends
@widths
def test_values_and_gradients(width: int, backend: Backend) -> None:
    x, bias = inputs(width)
    grad = torch.randn(R, N, width, generator=seeded(3))
    check(x, bias, selu(x.clone(), bias, backend), grad)


@both_backends
@widths
def test_the_input_is_overwritten(width: int, backend: Backend) -> None:
    x, bias = inputs(width)
    mixed = x.detach().clone()
    out = selu(mixed, bias.detach(), backend)
    assert out.data_ptr() == mixed.data_ptr()
    assert not torch.equal(mixed, x)


@both_backends
@widths
def test_strided_gradients_and_biases(width: int, backend: Backend) -> None:
    x, _ = inputs(width)
    bias = torch.randn(width, R, generator=seeded(2)).t().requires_grad_()
    grad = torch.randn(R, 1, width, generator=seeded(3)).expand(R, N, width)
    check(x, bias, selu(x.clone(), bias, backend), grad)


def test_the_check_rejects_broken_units() -> None:
    x, bias = inputs(16)
    grad = torch.randn(R, N, 16, generator=seeded(3))
    moved = x + bias[:, None]
    for broken in (
        F.elu(moved),
        F.selu(x + bias.flip(0)[:, None]),  # each run has another's bias
        F.selu(x.detach() + bias[:, None] + 0 * x),  # no gradient of x
        F.selu(moved + 1e-4),
    ):
        with pytest.raises(AssertionError):
            check(x, bias, broken, grad)


@both_backends
@pytest.mark.parametrize("width", [16, 32])
def test_the_ends_and_the_middle(width: int, backend: Backend) -> None:
    ends = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan])
    x = torch.zeros(1, 2, width)
    x[0, 1, :5] = ends
    x.requires_grad_()
    out = selu(x.clone(), torch.zeros(1, width), backend)
    (d_x,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(out.detach()[0, 1, :5], F.selu(ends), equal_nan=True)
    below = SCALE * ALPHA
    slopes = torch.tensor([below, below, SCALE, 0.0, math.nan])
    torch.testing.assert_close(d_x[0, 1, :5], slopes, equal_nan=True, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(d_x[0, 0], torch.full((width,), below))
