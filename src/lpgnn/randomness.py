"""Random streams: one independent generator for each (seed, repeat, purpose)."""

import hashlib
from dataclasses import dataclass

import torch


def derive_generator(
    seed: int, repeat: int, purpose: str, device: torch.device | str = "cpu"
) -> torch.Generator:
    """Return the generator of one purpose of one repeat.

    Streams are told apart by a hash, so that repeat 7 run alone draws what repeat 7 of ten draws,
    and one more draw for a purpose moves no other purpose.
    """
    digest = hashlib.sha256(f"lpgnn/{seed}/{repeat}/{purpose}".encode()).digest()
    generator = torch.Generator(device=device)
    generator.manual_seed(int.from_bytes(digest[:8], "little", signed=True))
    return generator


@dataclass(frozen=True)
class Streams:
    """The random streams of one repeat, one for each purpose."""

    seed: int
    repeat: int

    def generator(self, purpose: str, device: torch.device | str = "cpu") -> torch.Generator:
        return derive_generator(self.seed, self.repeat, purpose, device)
