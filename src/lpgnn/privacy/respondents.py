"""The users of an interactive protocol: whoever has answered once is never asked again."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NoReturn, SupportsIndex

import torch
from torch import Tensor

from lpgnn.client import Task
from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError
from lpgnn.privacy.published import AnsweredQuestion, publish
from lpgnn.privacy.questions import (
    Answers,
    Question,
    ScoreQuestion,
    VectorQuestion,
    unit_vectors,
)


class Respondents:
    """Nodes that answer one question each, under the budget that they have.

    All that a server has to do with it is ask: the features are bound into the function that draws
    answers, and no public attribute leads to them.  There are no copies: each would have a budget
    of its own to spend.
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

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Neither copy nor pickle: people cannot be copied, and their budget must not be."""
        allowed = "cannot be copied: a node answers once"
        raise InputError("respondents", type(self).__name__, allowed)

    def ask(self, nodes: Tensor, question: Question) -> Answers:
        """The private answers of some nodes, whose budget is spent by it.  nodes: [n]"""
        num_nodes = self._spent.numel()
        if nodes.dtype != torch.int64 or nodes.ndim != 1:  # a mask would be read as a mask
            found = f"{nodes.dtype} {list(nodes.shape)}"
            raise InputError("nodes", found, "must be a list of whole numbers (int64)")
        outside = (nodes < 0) | (nodes >= num_nodes)  # node -1 would be another name of the last
        if bool(outside.any()):
            raise InputError("nodes", int(nodes[outside][0]), f"must be in 0..{num_nodes - 1}")
        if nodes.unique().numel() != nodes.numel():
            raise InputError("nodes", "a node twice", "a node answers one question")
        if bool(self._spent[nodes].any()):
            node = int(nodes[self._spent[nodes]][0])
            raise InputError("nodes", node, "has spent its x_eps: it answers no other question")
        # A class of the server's own could answer with anything: users know two questions.
        if type(question) not in (VectorQuestion, ScoreQuestion):
            allowed = "must be a VectorQuestion or a ScoreQuestion"
            raise InputError("question", type(question).__name__, allowed)
        assert isinstance(question, VectorQuestion | ScoreQuestion)
        question = replace(question)  # its fields alone: an instance may carry a method of its own
        if not question.fits(nodes.numel(), self.num_features):
            allowed = f"must be for {nodes.numel()} nodes with {self.num_features} features"
            raise InputError("question", type(question).__name__, allowed)
        self._spent[nodes] = True  # before the answer: who fails half-way has spent it, too
        return self._answers(nodes, question)


class Unanswered(InputError):
    """A question that nobody has answered yet: to be published."""

    def __init__(self, path: str, number: int, source: bytes) -> None:
        self.number, self.source = number, source
        how = "python -m lpgnn.question with the same settings writes it"
        super().__init__("reports", path, f"has no answers to question {number}: {how}")


class ReceivedRespondents(Respondents):
    """Users who answer over the wire: what they have answered is in a collection.

    Asked what they have not answered yet, they raise ``Unanswered``.  ``order``: node i here is
    node order[i] of the collection.
    """

    def __init__(
        self, path: str, task: Task, rounds: Sequence[AnsweredQuestion], order: Tensor
    ) -> None:
        none = torch.zeros(0, dtype=torch.int64)
        indptr = torch.zeros(task.num_nodes + 1, dtype=torch.int64)
        nothing = CsrMatrix(indptr, none, torch.zeros(0), (task.num_nodes, task.num_features))
        super().__init__(nothing, float(task.x_eps), generator=torch.Generator())
        left = list(rounds)

        def answers(nodes: Tensor, question: Question) -> Answers:
            own = order[nodes]
            if not left:
                raise Unanswered(path, len(rounds) + 1, publish(question, task, own))
            if not left[0].asks(question, own):
                number = len(rounds) - len(left) + 1
                wrong = "has asked others: seed, learner and protocol must be as they were then"
                raise InputError("reports", path, f"question {number} {wrong}")
            return left.pop(0).received(own, task)

        self._answers = answers


def _answering(
    z: CsrMatrix, epsilon: float, generator: torch.Generator
) -> Callable[[Tensor, Question], Answers]:
    def answers(nodes: Tensor, question: Question) -> Answers:
        return question.answers(z.select_rows(nodes), epsilon, generator=generator)

    return answers
