"""The users of an interactive protocol: whoever has answered once is never asked again."""

from collections.abc import Callable

import torch
from torch import Tensor

from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError
from lpgnn.privacy.questions import Answers, Question, unit_vectors


class Respondents:
    """Nodes that answer one question each, under the budget that they have.

    All that a server can do with it is ask: the features are bound into the function that draws
    answers, and no attribute leads to them.
    """

    def __init__(self, features: CsrMatrix, epsilon: float, *, generator: torch.Generator) -> None:
        z = unit_vectors(features)
        self.epsilon = epsilon
        self.num_features = features.shape[1]
        self._spent = torch.zeros(features.shape[0], dtype=torch.bool)
        self._answers = _answering(z, epsilon, generator)

    @property
    def may_answer(self) -> Tensor:
        """Which nodes have their budget still.  -> [N] bool"""
        return ~self._spent

    def ask(self, nodes: Tensor, question: Question) -> Answers:
        """The private answers of some nodes, whose budget is spent by it.  nodes: [n]"""
        if nodes.unique().numel() != nodes.numel():
            raise InputError("nodes", "a node twice", "a node answers one question")
        if bool(self._spent[nodes].any()):
            node = int(nodes[self._spent[nodes]][0])
            raise InputError("nodes", node, "has spent its x_eps: it answers no other question")
        if not question.fits(nodes.numel(), self.num_features):
            allowed = f"must be for {nodes.numel()} nodes with {self.num_features} features"
            raise InputError("question", type(question).__name__, allowed)
        self._spent[nodes] = True  # before the answer: who fails half-way has spent it, too
        return self._answers(nodes, question)


def _answering(
    z: CsrMatrix, epsilon: float, generator: torch.Generator
) -> Callable[[Tensor, Question], Answers]:
    def answers(nodes: Tensor, question: Question) -> Answers:
        return question.answers(z.select_rows(nodes), epsilon, generator=generator)

    return answers
