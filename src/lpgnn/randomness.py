"""Random streams: one independent generator for each (seed, repeat, purpose)."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import torch

_SERVER_PURPOSES = ("weights", "dropout")


def derive_generator(
    seed: int, repeat: int, purpose: str, device: torch.device | str = "cpu"
) -> torch.Generator:
    """Return the generator of one purpose of one repeat.

    Streams are kept apart by a hash, so that repeat 7 run alone draws what repeat 7 of ten draws,
    and one more draw for a purpose moves no other purpose.
    """
    generator = torch.Generator(device=device)
    return generator.manual_seed(_seed(f"{seed}/{repeat}/{purpose}"))


def _seed(name: str) -> int:
    digest = hashlib.sha256(f"lpgnn/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "little", signed=True)


@dataclass(frozen=True)
class Streams:
    """The random streams of one repeat, one for each purpose."""

    seed: int
    repeat: int

    def generator(self, purpose: str, device: torch.device | str = "cpu") -> torch.Generator:
        return derive_generator(self.seed, self.repeat, purpose, device)

    def of_server(self) -> "ServerStreams":
        """The streams that the server may draw from."""
        own = {name: _seed(f"{self.seed}/{self.repeat}/{name}") for name in _SERVER_PURPOSES}
        return ServerStreams(own, _seed(f"{self.seed}/{self.repeat}/server"))


@dataclass(frozen=True)
class ServerStreams:
    """Random streams of the server's side of one repeat.

    They hold neither seed nor repeat: whoever has those can redraw the users' noise and undo it.
    """

    seeds: Mapping[str, int]
    other: int  # any further purpose is derived from this

    def generator(self, purpose: str, device: torch.device | str = "cpu") -> torch.Generator:
        seed = self.seeds.get(purpose)
        generator = torch.Generator(device=device)
        return generator.manual_seed(_seed(f"{self.other}/{purpose}") if seed is None else seed)
