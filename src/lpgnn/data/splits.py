"""Splits of the labelled nodes into a training, a validation and a test part."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lpgnn.errors import InputError

PARTS = ("train", "val", "test")
Ratios = tuple[float, float, float]
# A user's choice: own masks, random, or random by ratios; None takes own masks where there are any.
SplitChoice = str | Sequence[float] | None
RATIOS: Ratios = (0.5, 0.25, 0.25)  # the paper's


@dataclass(frozen=True)
class Split:
    """Three disjoint masks; a node without a label is in none of them."""

    train: Tensor  # [N] bool
    val: Tensor  # [N] bool
    test: Tensor  # [N] bool

    def parts(self) -> dict[str, Tensor]:
        return {"train": self.train, "val": self.val, "test": self.test}


@dataclass(frozen=True, eq=False)
class Splits:
    """How the nodes of a graph are split: at random by ratios, or as its own masks say."""

    ratios: Ratios = RATIOS
    own: tuple[Split, ...] = ()  # taken in turn, repeat by repeat

    def __post_init__(self) -> None:
        _check_ratios(self.ratios)

    def draw(self, labelled: Tensor, number: int, *, generator: torch.Generator) -> Split:
        """The split of a repeat.  labelled: [N] bool"""
        if self.own:
            return self.own[number % len(self.own)]
        nodes = labelled.nonzero().flatten()
        drawn = random_split(nodes.numel(), generator=generator, ratios=self.ratios)
        masks = []
        for part in drawn.parts().values():
            mask = torch.zeros_like(labelled)
            mask[nodes[part]] = True
            masks.append(mask)
        return Split(*masks)

    def for_labels(self, labels: Tensor) -> "Splits":
        """The same with unlabelled nodes taken out of the masks.  labels: [N], -1 = unlabelled"""
        labelled, usable = labels >= 0, []
        for split in self.own:
            for name, mask in split.parts().items():
                if mask.shape != labels.shape or mask.dtype != torch.bool:
                    found = f"{name} mask {tuple(mask.shape)} {mask.dtype}"
                    raise InputError("split", found, f"must be [{labels.numel()}] torch.bool")
            kept = Split(*(mask & labelled for mask in split.parts().values()))
            for name, mask in kept.parts().items():
                if not bool(mask.any()):
                    raise InputError("split", f"no {name} node", "needs a node with a label")
            if bool(((kept.train & kept.val) | (kept.train & kept.test)).any()) or bool(
                (kept.val & kept.test).any()
            ):
                raise InputError("split", "a node in two parts", "the masks must be disjoint")
            usable.append(kept)
        return Splits(self.ratios, tuple(usable))

    def content(self) -> list[tuple[Tensor, str]]:
        """What a graph's fingerprint covers; nothing for the default."""
        if self.own:
            masks = [torch.stack(list(split.parts().values())) for split in self.own]
            return [(torch.stack(masks), "u1")]
        return [] if self.ratios == RATIOS else [(torch.tensor(self.ratios).double(), "<f8")]

    def describe(self) -> str:
        """In the plan of a run."""
        if self.own:
            return own_masks_text(len(self.own))
        return "random " + "/".join(f"{100 * ratio:g}" for ratio in self.ratios)


def own_masks_text(count: int) -> str:
    many = "one split" if count == 1 else f"{count} splits in turn"
    return f"the graph's own masks, {many}"


def choose_splits(choice: SplitChoice, own: tuple[Split, ...]) -> Splits:
    """The splits that a user wants of a graph that may have masks of its own."""
    if choice == "own" and not own:
        raise InputError("split", choice, "the graph has no train, val and test masks")
    if choice is None or choice == "own":
        return Splits(own=own)
    if choice == "random":
        return Splits()
    try:
        train, val, test = (float(ratio) for ratio in choice)
    except (TypeError, ValueError):
        allowed = "must be own, random or three ratios [train, val, test]"
        raise InputError("split", choice, allowed) from None
    return Splits((train, val, test))


def random_split(
    num_nodes: int,
    *,
    generator: torch.Generator,
    ratios: Ratios = RATIOS,
) -> Split:
    """Cut a random permutation of the nodes at int(N * ratio); the rest is the test part.

    No label is looked at: whether a split is accepted would say something about them.
    """
    _check_ratios(ratios)
    num_train, num_val = int(num_nodes * ratios[0]), int(num_nodes * ratios[1])
    sizes = [num_train, num_val, num_nodes - num_train - num_val]
    if min(sizes) < 1:
        raise InputError(
            "split", f"{num_nodes} labelled nodes", "too few: every part must have one"
        )
    order = torch.randperm(num_nodes, generator=generator, device=generator.device).cpu()
    masks = []
    for chosen in torch.split(order, sizes):
        mask = torch.zeros(num_nodes, dtype=torch.bool)
        mask[chosen] = True
        masks.append(mask)
    return Split(*masks)


def _check_ratios(ratios: Ratios) -> None:
    usable = len(ratios) == 3 and all(ratio > 0 for ratio in ratios)  # false for NaN
    if not usable or not abs(sum(ratios) - 1) <= 1e-9:
        raise InputError("split.ratios", ratios, "must be three positive numbers that sum to 1")
