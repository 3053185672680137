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
    labels: Tensor,
    num_classes: int,
    *,
    generator: torch.Generator,
    ratios: tuple[float, float, float] = (0.5, 0.25, 0.25),
) -> Split:
    """Cut a random permutation of the nodes at int(N * ratio); the rest is the test part.

    labels: [N].  A part without one of the classes is an error: nothing could be learnt or
    measured for that class.
    """
    if min(ratios) <= 0 or abs(sum(ratios) - 1) > 1e-9:
        raise InputError("split.ratios", ratios, "three positive numbers that sum to 1")
    num_nodes = labels.numel()
    order = torch.randperm(num_nodes, generator=generator, device=generator.device).to(
        labels.device
    )
    num_train, num_val = int(num_nodes * ratios[0]), int(num_nodes * ratios[1])
    sizes = [num_train, num_val, num_nodes - num_train - num_val]

    masks = []
    for part, chosen in zip(("train", "val", "test"), torch.split(order, sizes), strict=True):
        counts = torch.bincount(labels[chosen], minlength=num_classes)
        if bool((counts == 0).any()):
            absent = int((counts == 0).nonzero()[0])
            raise InputError(
                "split",
                f"{part} part of {chosen.numel()} nodes",
                f"every class must occur in every part, but class {absent} does not; "
                "take another seed, or a graph with more nodes of this class",
            )
        mask = torch.zeros(num_nodes, dtype=torch.bool, device=labels.device)
        mask[chosen] = True
        masks.append(mask)
    return Split(*masks)
