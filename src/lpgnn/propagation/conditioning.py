"""Public conditioning: the propagated reports brought to unit size, from public numbers only.

An entry of the rectified reports is about as large as the noise of its mechanism, sigma: thousands
at small budgets, where the network wants one.  A filter F = sum_k theta_k P^k changes that to sigma
times the length of a row of F: row v of F X' has variance sigma^2 sum_u F_vu^2.  Mechanism, budget,
graph and filter decide this number, so dividing by it is post-processing and costs no privacy.
"""

from typing import Literal

import torch
from torch import Tensor

from lpgnn.propagation.operators import Operator

Conditioning = Literal["none", "scale", "node"]
CONDITIONINGS: tuple[Conditioning, ...] = ("none", "scale", "node")

# Up to this many nodes the row lengths are computed exactly, in O(K N E); beyond, estimated.
_EXACT_NODES = 32_768
_PROBES = 512
_BLOCK = 32  # columns of one product


def row_lengths(operator: Operator, coefficients: tuple[float, ...]) -> Tensor:
    """The Euclidean length of every row of F = sum_k theta_k P^k.  -> [N]

    With Z the identity, sum_j (F Z)_vj^2 is the squared length; on large graphs Z is random signs
    from a fixed seed, and the mean over its columns estimates it (Hutchinson) to 3 % in 512.
    """
    matrix = operator.matrix
    nodes = matrix.shape[0]
    if len(coefficients) == 1:  # no product at all
        return torch.full((nodes,), abs(coefficients[0]), device=matrix.device)
    exact = nodes <= _EXACT_NODES
    columns = nodes if exact else _PROBES
    generator = torch.Generator().manual_seed(0)
    squares = torch.zeros(nodes, device=matrix.device)
    for start in range(0, columns, _BLOCK):
        width = min(_BLOCK, columns - start)
        if exact:
            probes = torch.zeros(nodes, width)
            probes[range(start, start + width), range(width)] = 1
        else:
            probes = 2.0 * torch.randint(2, (nodes, width), generator=generator) - 1
        reached = operator.filter(probes.to(matrix.device)[None], coefficients)[0]  # [N, width]
        squares += reached.square().sum(1)
    return (squares if exact else squares / columns).sqrt()


def row_factors(lengths: Tensor, magnitude: float, conditioning: Conditioning) -> Tensor:
    """What each row of F X' is multiplied by to have unit variance.  [N] -> [N]

    "scale" takes one factor for all nodes, by the mean square; "node" each node's own.
    """
    if conditioning == "scale":
        lengths = lengths.square().mean().sqrt().expand_as(lengths)
    # A row that nothing reaches is zero whatever its factor.
    return torch.where(lengths > 0, 1 / (magnitude * lengths), 1.0)
