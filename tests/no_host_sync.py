"""A watch over an epoch: whoever makes the host wait for the device is refused.

On a GPU the host only queues work.  Reading a number, counting what a mask holds or copying a
tensor back makes it wait until the queue is empty.  These operations look the same on a CPU, so
that tests find them there, with torch's operations (``kernels=torch``).
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Self

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


class HostSync(AssertionError):
    """The host waited for the device."""


# Their results depend on values: a number for the host, or a size that it must know.
_WAITING = frozenset(
    {
        *("_local_scalar_dense", "item", "is_nonzero", "equal", "allclose"),
        *("nonzero", "nonzero_numpy", "argwhere", "masked_select"),
        *("_unique", "_unique2", "unique_dim", "unique_consecutive", "bincount", "histc"),
    }
)
# What Python code calls to bring a tensor to the host; on a CPU some do not reach the dispatcher.
_READING = frozenset({"cpu", "numpy", "tolist", "item", "__bool__", "__int__", "__float__"})


def _masks(args: tuple[Any, ...]) -> bool:
    """Whether an operation is indexed by a mask: it has to count what the mask holds."""
    indices = args[1] if len(args) > 1 and isinstance(args[1], list | tuple) else ()
    return any(isinstance(i, Tensor) and i.dtype in (torch.bool, torch.uint8) for i in indices)


def _copies_to_host(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if name == "copy_":
        target, source = args[0].device, args[1].device
    elif name == "_to_copy":
        source = args[0].device
        target = torch.device(kwargs.get("device") or source)
    else:
        return False
    return bool(target.type == "cpu" and source.type != "cpu")


class _Operations(TorchDispatchMode):
    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name, kwargs = func.overloadpacket.__name__, kwargs or {}
        if name in _WAITING or (name in ("index", "index_put", "index_put_") and _masks(args)):
            raise HostSync(f"{func} makes the host wait for the device")
        if _copies_to_host(name, args, kwargs):
            raise HostSync(f"{func} copies to the host")
        return func(*args, **kwargs)


class _Calls(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if getattr(func, "__name__", "") in _READING:
            raise HostSync(f"{func.__name__} reads a tensor on the host")
        return func(*args, **(kwargs or {}))


class NoHostSync:
    """``with NoHostSync():`` refuses whatever makes the host wait, forward and backward."""

    def __enter__(self) -> Self:
        self._modes = ExitStack()
        self._modes.enter_context(_Operations())
        self._modes.enter_context(_Calls())
        return self

    def __exit__(self, *raised: Any) -> None:
        self._modes.close()
