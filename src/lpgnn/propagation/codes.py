"""Who is near whom: codes of the nodes spread over the graph, from public numbers only.

Every node starts with one of ``_WIDTH`` coordinates and a sign, both random, and all walk the same
number of steps.  The product of two nodes' codes is then, up to noise of 1 / sqrt(_WIDTH), the
overlap of their neighbourhoods, so that a linear regression on codes is one on neighbourhoods.
The seed is fixed: codes belong to the graph, as its order does.
"""

import torch
from torch import Tensor

from lpgnn.propagation.operators import Operator

_WIDTH = 512
_PROBES = 128


def spread_codes(operator: Operator, steps: int) -> Tensor:
    """Codes after some steps, each of length 1, or 0 where nothing arrives.  -> [N, w]"""
    nodes = operator.matrix.shape[0]
    codes = operator.propagate(_codes(nodes, _WIDTH).to(operator.matrix.device)[None], steps)[0]
    lengths: Tensor = codes.norm(dim=1, keepdim=True)
    return codes / lengths.clamp(min=torch.finfo(codes.dtype).tiny)


def lazy_lengths(operator: Operator, steps: tuple[int, ...]) -> dict[int, Tensor]:
    """The Euclidean length of every row of ((I + P) / 2)^k.  -> k -> [N]

    From codes: exact on small graphs, elsewhere to 6 %.
    """
    nodes = operator.matrix.shape[0]
    codes = _codes(nodes, _PROBES).to(operator.matrix.device)[None]
    found = {}
    for step in range(1, max(steps) + 1):
        codes = (codes + operator.propagate(codes)) / 2
        if step in steps:
            found[step] = codes[0].norm(dim=1)
    return found


def _codes(nodes: int, width: int) -> Tensor:
    """A random coordinate and sign for every node; on small graphs one of its own.  -> [N, w]"""
    if nodes <= width:
        return torch.eye(nodes)
    generator = torch.Generator().manual_seed(0)
    places = torch.randint(width, (nodes, 1), generator=generator)
    signs = 2.0 * torch.randint(2, (nodes, 1), generator=generator) - 1
    return torch.zeros(nodes, width).scatter_(1, places, signs)
