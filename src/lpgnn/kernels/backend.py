"""Where an epoch runs, and by which loops."""

import logging
from dataclasses import dataclass
from functools import lru_cache

import torch

from lpgnn.errors import InputError

KERNELS = ("auto", "numba", "torch")

_log = logging.getLogger("lpgnn")


@dataclass(frozen=True)
class Backend:
    """A device, and whether numba's loops or torch's operations do the work on it."""

    device: torch.device
    compiled: bool  # numba's loops, on a CPU only; otherwise torch's operations, as on a GPU

    @classmethod
    def choose(cls, device: str | torch.device = "auto", kernels: str = "auto") -> "Backend":
        """The fastest backend that the settings ``device`` and ``kernels`` allow.

        ``device=auto`` takes a GPU if there is one, ``kernels=auto`` numba's loops on a CPU.
        """
        if kernels not in KERNELS:
            raise InputError("kernels", kernels, f"must be one of {', '.join(KERNELS)}")
        # Numba's loops run on a CPU: who asks for them and leaves the device open gets one.
        chosen = _device("cpu" if kernels == "numba" and device == "auto" else str(device))
        if kernels == "torch":
            return cls(chosen, compiled=False)
        if chosen.type != "cpu":
            if kernels == "numba":
                raise InputError("kernels", kernels, f"needs device=cpu, not device={device}")
            return cls(chosen, compiled=False)
        problem = numba_problem()
        if problem is None:
            return cls(chosen, compiled=True)
        if kernels == "numba":
            raise InputError("kernels", kernels, f"numba does not work here: {problem}")
        _log_fallback(problem)
        return cls(chosen, compiled=False)

    @property
    def prefers_panels(self) -> bool:
        """Whether products with dense matrices are fastest in panels (``kernels.panels``).

        A panel's sums fill 24 registers of sixteen floats, which only AVX-512 has.  Measured on
        6000 x 3000 numbers and 32 columns, there and back: 9 ms against 29 ms of torch's with
        AVX-512, but 36 ms against 38 ms with AVX2 (forward 21 against 19 ms; on another machine,
        before panels were prefetched), where the sums spill to memory.  The other loops need few
        registers and win either way: sparse products 2.2 times, signs 5 times, SELU 3 times.
        """
        return self.compiled and "+avx512f" in _cpu_features()


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise InputError("device", name, "must be auto, cpu, cuda or cuda:N")
    if device.type == "cuda":
        found = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if found == 0:
            raise InputError("device", name, "no usable GPU was found; choose auto or cpu")
        if (device.index or 0) >= found:
            raise InputError("device", name, f"must be below cuda:{found}: {found} GPUs were found")
    return device


@lru_cache(maxsize=1)
def numba_problem() -> str | None:
    """Why numba's loops cannot be used on this machine, or None: one small product tells."""
    try:
        import numpy as np

        from lpgnn.kernels.products import multiply

        indptr, indices = np.array([0, 1], dtype=np.int32), np.array([0], dtype=np.int32)
        two, three = np.array([2], dtype=np.float32), np.full(16, 3, dtype=np.float32)
        out = np.zeros(16, dtype=np.float32)
        multiply(indptr, indices, two, three, out, 16, three[:0])
        return None if bool((out == 6).all()) else "a product of 2 and 3 is not 6"
    except Exception as error:  # a broken installation may raise anything
        lines = str(error).splitlines() or [""]
        return f"{type(error).__name__}: {lines[0]}"


@lru_cache(maxsize=1)
def _log_fallback(problem: str) -> None:
    """Once a process, however often a backend is chosen."""
    _log.warning("kernels=auto: using torch's operations, numba does not work here: %s", problem)


@lru_cache(maxsize=1)
def _cpu_features() -> tuple[str, ...]:
    """What numba compiles for, its settings NUMBA_CPU_FEATURES and NUMBA_ENABLE_AVX included."""
    from numba.core.registry import cpu_target

    _, _, features = cpu_target.target_context.codegen().magic_tuple()
    return tuple(features.split(","))
