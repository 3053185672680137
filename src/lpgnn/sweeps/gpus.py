"""The GPUs of a machine, one worker each.

Written for machines with several GPUs, and tested without one.
"""

import os
from collections import Counter
from collections.abc import Iterable, Sequence

import torch

VISIBLE = "CUDA_VISIBLE_DEVICES"


def gpus_for(device: str, kernels: str) -> tuple[str, ...]:
    """The GPUs that workers share out, as ``CUDA_VISIBLE_DEVICES`` names them.

    None if runs use the CPU.  A GPU that was asked for by its number is the only one.
    """
    kind, _, number = device.partition(":")
    on_cpu = kind == "cpu" or (kind == "auto" and kernels == "numba")
    if on_cpu or not torch.cuda.is_available():
        return ()
    names = visible_names(os.environ.get(VISIBLE), torch.cuda.device_count())
    return tuple(name for own, name in enumerate(names) if number in ("", str(own)))


def visible_names(listed: str | None, count: int) -> tuple[str, ...]:
    """The names of the ``count`` usable GPUs: those that a scheduler has listed, else numbers."""
    names = [name.strip() for name in listed.split(",")] if listed else map(str, range(count))
    return tuple(names)[:count]


def least_used(gpus: Sequence[str], used: Iterable[str | None]) -> str | None:
    """The GPU with the fewest workers, the first of several; None if there is none."""
    counts = Counter(used)
    return min(gpus, key=lambda gpu: counts[gpu], default=None)


def see_only(gpu: str) -> None:
    """Hide the other GPUs from this process, which must not have used any yet."""
    os.environ[VISIBLE] = gpu
