"""How fast an epoch could be: its own sparse products, run again with nothing around them."""

import statistics
import time
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lpgnn.propagation.operators import multiply_into


class ProductRecorder(TorchDispatchMode):
    """Notes matrix and width of every sparse-times-dense product that torch is asked for.

    It listens below autograd, where forward and backward look alike, so that it stays right when
    the engine changes.  Attention's sampled products (dense times dense, read at the edges) are no
    such products and are left out.
    """

    def __init__(self) -> None:
        super().__init__()
        self.products: list[tuple[Tensor, int]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func.overloadpacket in (torch.ops.aten.addmm, torch.ops.aten.mm):
            left, right = args[-2:]
            if left.layout == torch.sparse_csr:
                self.products.append((left, right.shape[1]))
        return func(*args, **(kwargs or {}))


def replay(products: list[tuple[Tensor, int]]) -> float:
    """CPU seconds of the products on row-major operands."""
    operands: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
    for matrix, width in products:
        for rows in matrix.shape:
            # Filled: pages that were never written all lie on one page of zeros.
            pair = (torch.ones(rows, width), torch.ones(rows, width))
            operands.setdefault((rows, width), pair)
    started = time.process_time()
    for matrix, width in products:
        rows, columns = matrix.shape
        multiply_into(operands[rows, width][0], matrix, operands[columns, width][1])
    return time.process_time() - started


class EpochClock:
    """Times epochs and, between them, their bare products: an ``on_epoch`` of ``run_repeats``.

    CPU seconds, so that other work on the machine counts little; epoch and floor take turns, so
    that it counts for both alike.  The first epoch after a change of the batch pays for caches and
    the second for the recording: neither counts.
    """

    def __init__(self, *, with_floor: bool = True) -> None:
        self.with_floor = with_floor
        self.epochs: list[float] = []  # seconds of one epoch of one run
        self.floors: list[float] = []
        self._recorder: ProductRecorder | None = None
        self._seen = self._runs = 0
        self._started = 0.0

    def __call__(self, runs: int) -> None:
        """An epoch of ``runs`` runs is done."""
        seconds = time.process_time() - self._started
        if runs != self._runs:
            self._runs, self._seen, self._recorder = runs, 0, None
        self._seen += 1
        if self._seen == 1 and self.with_floor:
            self._recorder = ProductRecorder()
            self._recorder.__enter__()
        elif self._seen == 2 and self._recorder is not None:
            self._recorder.__exit__(None, None, None)
        elif self._seen > 2:
            self.epochs.append(seconds / runs)
            if self._recorder is not None:
                self.floors.append(replay(self._recorder.products) / runs)
        self._started = time.process_time()

    def epoch(self) -> float:
        """Median seconds of an epoch."""
        return statistics.median(self.epochs)

    def floor(self) -> float:
        """Median seconds of its bare sparse products."""
        return statistics.median(self.floors)
