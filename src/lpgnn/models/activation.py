"""The activation between the two layers."""

import torch.nn.functional as F
from torch import Tensor

from lpgnn.kernels import Backend


def selu(mixed: Tensor, bias: Tensor, backend: Backend) -> Tensor:
    """selu(mixed + bias); ``mixed`` is overwritten.  [R, N, h], [R, h] -> [R, N, h]"""
    if backend.compiled:
        from lpgnn.models.compiled import fills_registers, selu_of_runs

        if fills_registers(mixed):
            return selu_of_runs(mixed, bias)
    return F.selu(mixed.add_(bias[:, None]), inplace=True)
