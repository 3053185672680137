"""Random splits of the nodes into a training, a validation and a test part."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lpgnn.errors import InputError


@dataclass(frozen=True)
class Split:
    """Three disjoint masks that cover every node."""

    train: Tensor  # [N] bool
    val: Tensor  # [N] bool
    test: Tensor  # [N] bool


def random_split(
    num_nodes: int,
    *,
    generator: torch.Generator,
    ratios: tuple[float, float, float] = (0.5, 0.25, 0.25),
) -> Split:
    """Cut a random permutation of the nodes at int(N * ratio); the rest is the test part.

    No label is looked at: whether a split is accepted would say something about them.
    """
    if min(ratios) <= 0 or abs(sum(ratios) - 1) > 1e-9:
        raise InputError("split.ratios", ratios, "three positive numbers that sum to 1")
    num_train, num_val = int(num_nodes * ratios[0]), int(num_nodes * ratios[1])
    sizes = [num_train, num_val, num_nodes - num_train - num_val]
    if min(sizes) < 1:
        raise InputError("split", f"{num_nodes} nodes", "every part must have at least one node")
    order = torch.randperm(num_nodes, generator=generator, device=generator.device).cpu()
    masks = []
    for chosen in torch.split(order, sizes):
        mask = torch.zeros(num_nodes, dtype=torch.bool)
        mask[chosen] = True
        masks.append(mask)
    return Split(*masks)
