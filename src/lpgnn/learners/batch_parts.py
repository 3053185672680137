"""What a batch with more in it than reports and masks is made of."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from lpgnn.learners.batch import LabelBatch
from lpgnn.learners.learner import Run


def parts_of(batch: LabelBatch) -> dict[str, Any]:
    """The fields of a batch, for one of a class that adds to them."""
    return {f.name: getattr(batch, f.name) for f in fields(LabelBatch)}


def estimates_of(runs: Sequence[Run], device: torch.device) -> Tensor:
    """Unbiased estimates of the one-hot labels; zeros off the labelled nodes.  -> [R, c, N]"""
    return torch.stack([run.collected.labels.estimate for run in runs]).to(device)
