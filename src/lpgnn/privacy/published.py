"""Questions over the wire: as they are published, and what comes back."""

import json
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lpgnn.archive import Array
from lpgnn.client import LARGEST_DIRECTION, VECTOR_PLACES, VERSION, Task
from lpgnn.client import Question as PublishedQuestion
from lpgnn.errors import InputError
from lpgnn.privacy.candidates import Candidates
from lpgnn.privacy.questions import Question, ScoreQuestion, VectorQuestion
from lpgnn.privacy.reports import Received

_LARGEST_CUT = float(1 << 62)


def publish(question: Question, task: Task, nodes: Tensor) -> bytes:
    """A question as devices read it, in whole numbers.  nodes: [n], as the graph numbers them"""
    order = nodes.argsort()
    members = {"lpgnn_question": VERSION, "task": task.hash.hex(), "nodes": nodes[order].tolist()}
    if isinstance(question, VectorQuestion):
        found = Candidates.suited(float(task.x_eps), question.num_features)
        members |= {"kind": "vector", "candidates": found.num_candidates, "near": found.num_near}
    elif isinstance(question, ScoreQuestion):
        members |= {"kind": "score", **_whole_numbers(question, order)}
    else:
        allowed = "devices answer VectorQuestion and ScoreQuestion only"
        raise InputError("question", type(question).__name__, allowed)
    source = (json.dumps(members) + "\n").encode()
    PublishedQuestion.parse(source, task)
    return source


def _whole_numbers(question: ScoreQuestion, order: Tensor) -> dict[str, object]:
    """Directions of at most 2^24, and thresholds in units of their products with vectors.

    A score in whole numbers lies above a threshold if and only if it lies above its floor.
    """
    w = question.directions.double()
    if not bool(w.isfinite().all()) or not bool(question.thresholds.isfinite().all()):
        raise InputError("question", "ScoreQuestion", "is not finite: round one taught nothing")
    _, exponent = math.frexp(float(w.abs().max()))
    places = int(math.log2(LARGEST_DIRECTION)) - exponent
    pairs = question.pairs[order].tolist()
    thresholds = []
    for a, b in sorted({(a, b) for a, b in pairs}):
        cuts = (question.thresholds[a, b] * 2.0 ** (places + VECTOR_PLACES)).floor()
        whole = [int(cut) for cut in cuts.clamp(-_LARGEST_CUT, _LARGEST_CUT).tolist()]
        thresholds.append([a, b, whole])
    return {
        "directions": (w * 2.0**places).round().long().tolist(),
        "places": places,
        "pairs": pairs,
        "thresholds": thresholds,
    }


@dataclass(frozen=True)
class AskedVectors:
    """A vector question as it was published: how its answers are to be read."""

    num_candidates: int
    num_near: int

    def mechanism(self, epsilon: float) -> Candidates:
        return Candidates(epsilon, self.num_candidates, self.num_near)


@dataclass(frozen=True, eq=False)
class AnsweredQuestion:
    """A published question, and what those who were asked have answered."""

    question: PublishedQuestion
    answers: Array  # [n] int32, of the question's nodes; -1 where none has come

    def asks(self, question: Question, nodes: Tensor) -> bool:
        """Whether it was put to these nodes and is of this kind."""
        kind = "vector" if isinstance(question, VectorQuestion) else "score"
        asked = nodes.sort().values.tolist()
        return self.question.kind == kind and asked == list(self.question.nodes)

    def received(self, nodes: Tensor, task: Task) -> Received:
        """Its answers in the order of these nodes, which are all that were asked."""
        published = self.question
        place = torch.searchsorted(torch.tensor(published.nodes), nodes)
        answers = torch.from_numpy(self.answers.astype(np.int64))[place]
        answered = answers >= 0
        answers, place = answers[answered], place[answered]
        if published.kind == "vector":
            asked = AskedVectors(published.num_classes, published.near)
            mechanism = asked.mechanism(float(task.x_eps))
            return Received(
                answered, asked, mechanism.received(published, nodes[answered], answers)
            )
        return Received(answered, _as_asked(published, place), answers)


def _as_asked(published: PublishedQuestion, places: Tensor) -> ScoreQuestion:
    """A score question as it was answered, of the nodes at these places.

    Whole numbers of at most 2^24 are exact in float32.
    """
    c, cells = len(published.directions), published.num_classes
    thresholds = torch.zeros(c, c, cells - 1, dtype=torch.float64)
    for (a, b), cuts in published.thresholds.items():
        thresholds[a, b] = torch.tensor(cuts, dtype=torch.float64)
    return ScoreQuestion(
        (torch.tensor(published.directions).double() * 2.0**-published.places).float(),
        torch.tensor(published.pairs)[places],
        thresholds * 2.0 ** -(published.places + VECTOR_PLACES),
    )
