"""Random streams, and what of them the server gets."""

import dataclasses

import pytest
import torch

from lpgnn.randomness import ServerStreams, Streams, derive_generator


def draw(generator: torch.Generator) -> list[int]:
    return torch.randint(2**40, (4,), generator=generator).tolist()


def test_a_stream_depends_on_seed_repeat_and_purpose() -> None:
    streams = [(s, r, p) for s in (0, 1) for r in (0, 7) for p in ("weights", "labels")]
    drawn = [draw(derive_generator(*one)) for one in streams]
    assert len({tuple(one) for one in drawn}) == len(streams)
    assert draw(Streams(1, 7).generator("labels")) == drawn[-1]


@pytest.mark.parametrize("purpose", ["weights", "dropout"])
def test_the_server_draws_its_own_purposes_as_ever(purpose: str) -> None:
    whole = Streams(3, 2)
    assert draw(whole.of_server().generator(purpose)) == draw(whole.generator(purpose))


@pytest.mark.parametrize("purpose", ["features", "labels", "split"])
def test_the_server_cannot_redraw_what_users_drew(purpose: str) -> None:
    whole = Streams(3, 2)
    server = whole.of_server()
    assert draw(server.generator(purpose)) != draw(whole.generator(purpose))
    assert {field.name for field in dataclasses.fields(ServerStreams)} == {"seeds", "other"}
    assert set(server.seeds) == {"weights", "dropout"}
    assert not {3, 2} & {server.other, *server.seeds.values()}


def test_further_purposes_of_the_server_are_streams_of_their_own() -> None:
    server = Streams(0, 0).of_server()
    drawn = [draw(server.generator(purpose)) for purpose in ("one", "two", "weights")]
    assert len({tuple(one) for one in drawn}) == 3
    assert drawn[0] == draw(server.generator("one"))
