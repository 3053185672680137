"""The watch itself: what it must refuse, and what it must let pass."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from no_host_sync import HostSync, NoHostSync

X = torch.tensor([[1.0, -2.0], [3.0, 0.5]])

WAITING: dict[str, Callable[[Tensor], Any]] = {
    "float": lambda x: float(x[0, 0]),
    "int": lambda x: int(x[0, 0]),
    "bool": lambda x: bool((x > 0).any()),
    "item": lambda x: x[0, 0].item(),
    "if": lambda x: 1 if x[0, 0] > 0 else 2,
    "tolist": lambda x: x.tolist(),
    "numpy": lambda x: x.numpy(),
    "cpu": lambda x: x.cpu(),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 0],
    "masked set": lambda x: x.clone().index_put_((x > 0,), torch.tensor(0.0)),
    "masked_select": lambda x: x.masked_select(x > 0),
    "where without values": lambda x: torch.where(x > 0),
    "unique": lambda x: x.unique(),
    "equal": lambda x: torch.equal(x, x + 1),
    "index": lambda x: [5, 6, 7][x[0, 0].long()],
    "narrow": lambda x: x.narrow(0, x[0, 0].long(), 1),
}
QUEUED: dict[str, Callable[[Tensor], Any]] = {
    "arithmetic": lambda x: (x @ x + 1).relu_().sum(0),
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "index": lambda x: x[torch.tensor([1, 0])],
    "slice": lambda x: x[:, :1].contiguous(),
    "gather": lambda x: x.gather(0, torch.zeros(1, 2, dtype=torch.int64)),
    "scatter": lambda x: x.clone().scatter_(0, torch.zeros(1, 2, dtype=torch.int64), 1.0),
    "shape": lambda x: x.view(x.shape[0] * x.shape[1]),
    "to its own device": lambda x: x.to(x.device),
}


@pytest.mark.parametrize("name", WAITING)
def test_what_waits_is_refused(name: str) -> None:
    with pytest.raises(HostSync), NoHostSync():
        WAITING[name](X.clone())
    WAITING[name](X.clone())  # and passes outside


@pytest.mark.parametrize("name", QUEUED)
def test_what_is_queued_passes(name: str) -> None:
    with NoHostSync():
        QUEUED[name](X.clone())


def test_copies_from_a_device_are_refused() -> None:
    """No GPU is needed: tensors without numbers count as being on a device, too."""
    away = torch.empty(2, device="meta")
    with pytest.raises(HostSync), NoHostSync():
        away.to("cpu")
    with pytest.raises(HostSync), NoHostSync():
        torch.zeros(2).copy_(away)
    with NoHostSync():
        torch.zeros(2).to("meta")
        torch.empty(2, device="meta").copy_(torch.zeros(2))


def test_the_way_back_is_watched_too() -> None:
    class WaitsOnTheWayBack(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad if float(grad.sum()) > 0 else -grad

    x = X.clone().requires_grad_()
    out = WaitsOnTheWayBack.apply(x)
    with pytest.raises(HostSync), NoHostSync():
        torch.autograd.grad(out.sum(), x)


def test_nothing_is_left_behind() -> None:
    with pytest.raises(HostSync), NoHostSync():
        float(X.sum())
    assert float(X.sum()) == 2.5
