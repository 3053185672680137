"""What all tests share: one thread, and arithmetic as the next test expects it."""

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
