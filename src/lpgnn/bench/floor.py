"""How fast an epoch could be: its own sparse products, run again with nothing around them."""

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from lpgnn.data.sparse import CsrMatrix
from lpgnn.kernels.attention import aggregate, attention_gradients
from lpgnn.models import compiled
from lpgnn.propagation.compiled import CompiledMatrix


@dataclass(frozen=True)
class Product:
    """A sparse product, or as many of them as it has steps."""

    matrix: CompiledMatrix
    width: int
    steps: int


class ProductRecorder:
    """Notes every sparse-times-dense product while it is entered, forward and backward alike.

    An attention head's sums over neighbours are such products, too, one there and one back, with
    its weights for values; its scores, weights and products sampled at the edges are not.
    """

    def __init__(self) -> None:
        self.products: list[Product] = []
        self._patches = ExitStack()
        self._patterns: dict[int, CompiledMatrix] = {}

    def __enter__(self) -> "ProductRecorder":
        power_into, affine_into = CompiledMatrix.power_into, CompiledMatrix.affine_into

        def power(matrix: CompiledMatrix, out: Tensor, x: Tensor, steps: int = 1) -> Tensor:
            self.products.append(Product(matrix, x.shape[1], steps))
            return power_into(matrix, out, x, steps)

        def affine(matrix: CompiledMatrix, out: Tensor, x: Tensor, offset: float) -> Tensor:
            self.products.append(Product(matrix, x.shape[1], 1))
            return affine_into(matrix, out, x, offset)

        def attending(
            loop: Callable[..., None], width_at: int, nodes_at: int
        ) -> Callable[..., None]:
            def record(indptr: Any, columns: Any, *others: Any) -> None:
                matrix = self._pattern(indptr, columns)
                runs = others[nodes_at].size // matrix.shape[0]  # that share the call
                self.products += [Product(matrix, others[width_at], 1)] * runs
                loop(indptr, columns, *others)

            return record

        loops = {
            "aggregate": attending(aggregate, -1, -2),
            "attention_gradients": attending(attention_gradients, 3, 0),
        }
        for name, loop in loops.items():
            self._patches.enter_context(patch.object(compiled, name, loop))
        for name, recording in {"power_into": power, "affine_into": affine}.items():
            self._patches.enter_context(patch.object(CompiledMatrix, name, recording))
        return self

    def _pattern(self, indptr: Any, columns: Any) -> CompiledMatrix:
        """An attention's neighbour lists as a matrix of ones."""
        if id(columns) not in self._patterns:
            lists = torch.from_numpy(indptr).long(), torch.from_numpy(columns).long()
            shape = (len(indptr) - 1, len(indptr) - 1)
            ones = CsrMatrix(*lists, torch.ones(len(columns)), shape)
            self._patterns[id(columns)] = CompiledMatrix(ones, torch.device("cpu"))
        return self._patterns[id(columns)]

    def __exit__(self, *_: object) -> None:
        self._patches.close()


def replay(products: list[Product]) -> float:
    """CPU seconds of the products on row-major operands."""
    operands: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
    for product in products:
        for rows in product.matrix.shape:
            # Filled: pages that were never written all lie on one page of zeros.
            pair = (torch.ones(rows, product.width), torch.ones(rows, product.width))
            operands.setdefault((rows, product.width), pair)
    started = time.process_time()
    for product in products:
        rows, columns = product.matrix.shape
        out, x = operands[rows, product.width][0], operands[columns, product.width][1]
        product.matrix.power_into(out, x, product.steps)
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
