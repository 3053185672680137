"""What users draw for a seed is part of the science.

The engine's name covers the server's arithmetic and not the drawing of reports: it names rows that
round alike.  Rows of before and after a change of the drawing code would be paired, though their
noise differs.  So such a change has to raise SCIENCE_VERSION, after which old rows do not count.
"""

import hashlib

import pytest
import torch
from torch import Tensor

from lpgnn.config import SCIENCE_VERSION
from lpgnn.data.sparse import CsrMatrix
from lpgnn.privacy import MultiBit, RandomizedResponse
from lpgnn.randomness import derive_generator

# By version of the science.
DRAWN = {
    1: {
        "mb, m=1": "04c1e682afdce3bb",
        "mb, m=3": "53fee8d7e0bdc0cd",
        "rr": "3af93ef482f5c9cc",
    }
}


def features() -> CsrMatrix:
    """2,000 nodes with 40 features in [0, 1], two of three of them 0."""
    at = torch.arange(2000)[:, None] * 31 + torch.arange(40) * 17  # [N, d]
    return CsrMatrix.from_dense(torch.where(at % 3 == 0, (at % 11) / 10, 0.0))


def digest(*parts: Tensor) -> str:
    whole = b"".join(part.to(torch.int64).numpy().tobytes() for part in parts)
    return hashlib.sha256(whole).hexdigest()[:16]


def drawn(kind: str, *, repeat: int = 0) -> str:
    generator = derive_generator(0, repeat, "reports")
    if kind == "rr":
        return digest(
            RandomizedResponse(1.0, 7).perturb(torch.arange(2000) % 7, generator=generator)
        )
    mechanism = MultiBit({"mb, m=1": 1.0, "mb, m=3": 8.0}[kind], 40)
    assert kind == f"mb, m={mechanism.m}"
    sent = mechanism.perturb(features(), generator=generator).sent
    assert isinstance(sent, CsrMatrix)
    assert set(sent.values.tolist()) == {-1.0, 1.0}
    return digest(sent.indptr, sent.indices, sent.values)


@pytest.mark.parametrize("kind", DRAWN[SCIENCE_VERSION])
def test_reports_of_a_seed_stay_the_same_within_a_version_of_the_science(kind: str) -> None:
    assert drawn(kind) == DRAWN[SCIENCE_VERSION][kind], (
        "reports differ from those behind the committed rows: raise SCIENCE_VERSION in config.py, "
        "and enter the new digests under it"
    )


@pytest.mark.parametrize("kind", DRAWN[SCIENCE_VERSION])
def test_another_repeat_draws_other_reports(kind: str) -> None:
    assert drawn(kind, repeat=1) != drawn(kind)
