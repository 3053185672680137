"""What all tests share: one thread, and arithmetic as the next test expects it."""

import logging
from collections.abc import Iterator

import pytest
import torch

# The identity of a run on one of torch-geometric's networks imports it, and its first import warns:
# whichever test came first would fail.
import models.pyg  # noqa: F401


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads of one process mostly wait for each other, and pytest-xdist fills the cores."""
    torch.set_num_threads(1)
    yield
    torch.set_flush_denormal(False)


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """Hydra's --info sets up logging for the whole process, to a stream that a test closes."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    for name in ("hydra", "hydra.core.utils", "hydra._internal.hydra"):
        logging.getLogger(name).setLevel(logging.NOTSET)
