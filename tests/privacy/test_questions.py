"""Questions, those who answer them, and why a node's budget holds over all rounds."""

import copy
import itertools
import math
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from learners.block_graph import collected
from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError
from lpgnn.privacy import Respondents, Round, ScoreQuestion, TwoRound, VectorQuestion
from lpgnn.privacy.questions import most_cells, unit_vectors

from .pvalues import ALPHA, counts_p_value, mean_p_value, seeded

DIRECTIONS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, -0.5]])


def score_question(pairs: list[list[int]], cuts: list[float]) -> ScoreQuestion:
    thresholds = torch.tensor(cuts, dtype=torch.float64).expand(3, 3, -1)
    return ScoreQuestion(DIRECTIONS, torch.tensor(pairs), thresholds)


def test_unit_vectors_by_hand() -> None:
    x = CsrMatrix.from_dense(torch.tensor([[0.25, 0.75, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.5]]))
    z = unit_vectors(x).to_dense()
    expected = torch.tensor([[0.5, math.sqrt(0.75), 0], [0, 0, 0], [0, 0, 1]])
    assert torch.allclose(z, expected)
    with pytest.raises(InputError, match="features=-1"):
        unit_vectors(CsrMatrix.from_dense(torch.tensor([[-1.0, 1.0]])))


def test_cells_by_hand() -> None:
    """Scores of (0.6, 0.8): 0.6 - 0.8 for the pair (0, 1), 0.6 - (-0.1) for (0, 2)."""
    z = CsrMatrix.from_dense(torch.tensor([[0.6, 0.8]] * 4))
    question = score_question([[0, 1], [0, 2], [1, 2], [1, 0]], [-0.5, 0.0, 0.8])
    assert question.num_cells == 4
    assert question.cells(z).tolist() == [1, 2, 3, 2]


def test_most_cells_are_kept_nine_times_in_ten() -> None:
    assert [most_cells(e) for e in (0.1, 2.0, 3.0, 4.0, 8.0)] == [2, 2, 2, 4, 8]
    assert 1 / (1 + 3 * math.exp(-4)) >= 0.9 > 1 / (1 + 7 * math.exp(-4))
    assert most_cells(20.0, largest=16) == 16


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_answers_are_distributed_as_the_transition_says(epsilon: float) -> None:
    n = 20_000
    z = CsrMatrix.from_dense(torch.tensor([[0.6, 0.8]] * n))
    question = score_question([[0, 2]] * n, [-0.5, 0.0, 0.8])
    drawn = question.answers(z, epsilon, generator=seeded())
    expected = question.mechanism(epsilon).transition()[2]
    counts = torch.bincount(drawn, minlength=4).tolist()
    assert counts_p_value(counts, expected.tolist()) > ALPHA
    wrong = question.mechanism(1.2 * epsilon).transition()[2]
    assert counts_p_value(counts, wrong.tolist()) < ALPHA


def test_vectors_are_unbiased_and_their_second_moment_is_known() -> None:
    """E[r r^T] = noise (I + gamma mu z z^T), which the classifier is whitened by."""
    epsilon, n = 4.0, 60_000
    z = CsrMatrix.from_dense(torch.tensor([[0.6, 0.8]] * n))
    question = VectorQuestion(2)
    answers = question.answers(z, epsilon, generator=seeded()).rectified().double()
    mechanism = question.mechanism(epsilon)
    noise, along = mechanism.mean() ** -2, mechanism.gamma() * mechanism.mean()
    for column, clean in zip(answers.t(), (0.6, 0.8), strict=True):
        assert mean_p_value(column, clean) > ALPHA
    for i, j, outer in ((0, 0, 0.36), (0, 1, 0.48), (1, 1, 0.64)):
        products = answers[:, i] * answers[:, j]
        assert mean_p_value(products, noise * ((i == j) + along * outer)) > ALPHA
        assert mean_p_value(products, noise * ((i == j) + 1.2 * along * outer)) < ALPHA


# Three nodes, two of which answer in round one; what they say decides the question of the third.
EPSILON = 1.5
Asked = list[tuple[int, ScoreQuestion]]  # of one round


def one_cut(nodes: int, cut: float) -> ScoreQuestion:
    return score_question([[0, 1]] * nodes, [cut])


def two_rounds(answers: list[int]) -> Asked:
    """Whom to ask next, after these answers; the node, and the question as put to it."""
    if len(answers) < 2:
        return [(len(answers), one_cut(1, 0.0))]
    return [(2, one_cut(1, 0.3 if sum(answers) == 2 else -0.3))] if len(answers) == 2 else []


def with_a_second_question(answers: list[int]) -> Asked:
    """Broken: node 0 is asked again when all have answered."""
    return [(0, one_cut(1, 0.3))] if len(answers) == 3 else two_rounds(answers)


def probabilities(ask: Callable[[list[int]], Asked], x: Tensor) -> dict[tuple[int, ...], float]:
    """The exact probability of every sequence of answers."""
    z = unit_vectors(CsrMatrix.from_dense(x))
    found: dict[tuple[int, ...], float] = {}
    open_: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    while open_:
        said, p = open_.pop()
        following = ask(list(said))
        if not following:
            found[said] = p
        for node, question in following:
            cell = int(question.cells(z.select_rows(torch.tensor([node]))))
            for answer, q in enumerate(question.mechanism(EPSILON).transition()[cell].tolist()):
                open_.append(((*said, answer), p * q))
    return found


def worst_ratio(ask: Callable[[list[int]], Asked]) -> float:
    """The largest |ln p / p'| over answers, and over data that differ in one node."""
    rows = [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.8, 0.2]]
    worst = 0.0
    for others in itertools.product(rows[:3], repeat=2):
        for node in range(3):
            for one, other in itertools.permutations(rows, 2):
                data = [list(others[0]), list(others[1])]
                left = probabilities(ask, torch.tensor([*data[:node], one, *data[node:]]))
                right = probabilities(ask, torch.tensor([*data[:node], other, *data[node:]]))
                assert sum(left.values()) == pytest.approx(1)
                worst = max(worst, *(abs(math.log(left[a] / right[a])) for a in left))
    return worst


@pytest.mark.slow
def test_who_answers_once_spends_its_budget_once_whatever_was_asked_before() -> None:
    assert worst_ratio(two_rounds) == pytest.approx(EPSILON, rel=1e-9)


@pytest.mark.slow
def test_who_answers_twice_spends_more() -> None:
    assert worst_ratio(with_a_second_question) > 1.5 * EPSILON


def test_a_node_s_data_decide_nothing_but_its_own_answer() -> None:
    x = torch.rand(6, 2, generator=seeded(1))
    question = score_question([[0, 1], [0, 2], [1, 2]] * 2, [-0.2, 0.1])
    before = question.cells(unit_vectors(CsrMatrix.from_dense(x)))
    changed = x.clone()
    changed[3] = 1 - changed[3]
    after = question.cells(unit_vectors(CsrMatrix.from_dense(changed)))
    assert (before != after).nonzero().flatten().tolist() == [3]


def respondents(epsilon: float = 2.0) -> Respondents:
    x = CsrMatrix.from_dense(torch.rand(6, 2, generator=seeded(1)))
    return Respondents(x, epsilon, generator=seeded())


def test_a_node_cannot_be_asked_twice() -> None:
    users = respondents()
    assert users.may_answer.all()
    users.ask(torch.tensor([0, 4]), VectorQuestion(2))
    assert users.may_answer.tolist() == [False, True, True, True, False, True]
    with pytest.raises(InputError, match=r"nodes=4.*spent its x_eps"):
        users.ask(torch.tensor([1, 4]), one_cut(2, 0.0))
    with pytest.raises(InputError, match="a node twice"):
        users.ask(torch.tensor([1, 1]), one_cut(2, 0.0))
    users.ask(torch.tensor([1]), one_cut(1, 0.0))  # who was refused has spent nothing


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (torch.tensor([-1]), r"nodes=-1: must be in 0\.\.5"),
        (torch.tensor([5, -1]), r"nodes=-1: must be in 0\.\.5"),  # one node under two names
        (torch.tensor([2, 6]), r"nodes=6: must be in 0\.\.5"),
        (torch.tensor([True, False]), "must be a list of whole numbers"),
        (torch.tensor([1, 0], dtype=torch.uint8), "must be a list of whole numbers"),
        (torch.tensor([[1], [0]]), "must be a list of whole numbers"),
    ],
)
def test_nodes_have_one_name_each(nodes: Tensor, message: str) -> None:
    users = respondents()
    with pytest.raises(InputError, match=message):
        users.ask(nodes, one_cut(nodes.numel(), 0.0))
    assert users.may_answer.all()


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_budget_cannot_be_copied(copied: Callable[[object], object]) -> None:
    with pytest.raises(InputError, match="respondents=Respondents: cannot be copied"):
        copied(respondents())


def test_a_copy_of_what_holds_respondents_does_not_copy_them() -> None:
    with pytest.raises(InputError, match="cannot be copied"):
        copy.deepcopy([respondents()])


def test_who_fails_to_answer_has_spent_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError("the line is dead")

    monkeypatch.setattr(VectorQuestion, "answers", broken)
    users = respondents()
    with pytest.raises(OSError, match="dead"):
        users.ask(torch.tensor([2]), VectorQuestion(2))
    assert not users.may_answer[2]


@pytest.mark.parametrize("question", [VectorQuestion(3), one_cut(1, 0.0)])
def test_a_question_must_fit_those_who_are_asked(question: VectorQuestion | ScoreQuestion) -> None:
    with pytest.raises(InputError, match="must be for 2 nodes with 2 features"):
        respondents().ask(torch.tensor([0, 1]), question)


def test_no_attribute_of_the_respondents_leads_to_features() -> None:
    held = vars(respondents())
    assert {name for name, value in held.items() if isinstance(value, CsrMatrix)} == set()
    assert {n for n, v in held.items() if isinstance(v, Tensor)} == {"_spent"}


def test_features_that_change_after_collection_do_not_reach_the_server() -> None:
    x = CsrMatrix.from_dense(torch.rand(6, 2, generator=seeded(1)) + 0.1)
    users = Respondents(x, 50.0, generator=seeded())
    x.values.fill_(0.5)
    answers = users.ask(torch.arange(6), score_question([[0, 1]] * 6, [-0.3, 0.0, 0.3]))
    assert answers.unique().numel() > 1  # type: ignore[union-attr]


def test_a_collection_refuses_a_node_that_was_asked_in_two_rounds() -> None:
    first = Round(torch.tensor([0, 3]), VectorQuestion(18), torch.zeros(2, dtype=torch.int64))
    second = Round(torch.tensor([3]), VectorQuestion(18), torch.zeros(1, dtype=torch.int64))
    before = collected(feature=None, mechanism=None)
    grown = before.with_round(first)
    assert before.rounds == ()
    assert grown.rounds == (first,)
    with pytest.raises(InputError, match="rounds=a node asked twice"):
        grown.with_round(second)


def test_shares_of_round_one() -> None:
    question = VectorQuestion(500)
    assert TwoRound().num_first(14_788, question, 2.0) == round(0.7 * 14_788)
    assert TwoRound().num_first(7_500, VectorQuestion(7), 8.0) == round(0.2 * 7_500)
    variance = VectorQuestion(7).mechanism(1.0).mean() ** -2
    assert TwoRound().num_first(7_500, VectorQuestion(7), 1.0) == round(100 * 7 * variance)
    # Noisier labels want more reports, up to the largest share.
    assert TwoRound().num_first(7_500, VectorQuestion(7), 1.0, 1.1) == round(110 * 7 * variance)
    assert TwoRound().num_first(7_500, VectorQuestion(7), 1.0, 9.0) == round(0.7 * 7_500)
    assert TwoRound(share=0.5).num_first(10, question, 1.0) == 5
    assert TwoRound(share=0.999).num_first(10, question, 1.0) == 9  # somebody is left to ask
    assert TwoRound(cells=3).num_cells(1.0) == 3


@pytest.mark.parametrize("bad", [{"share": 0.0}, {"share": 1.0}, {"cells": 1}, {"cells": 65}])
def test_options_of_two_rounds_are_checked(bad: dict[str, float]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(bad))}="):
        TwoRound(**bad)  # type: ignore[arg-type]


class Curious(VectorQuestion):
    """A server's own class, which would take the vectors as they are."""

    def answers(self, z: CsrMatrix, epsilon: float, *, generator: torch.Generator):  # type: ignore[no-untyped-def]
        return z.to_dense()


def test_users_answer_no_question_of_the_servers_own_making() -> None:
    users = Respondents(CsrMatrix.from_dense(torch.eye(3)), 1.0, generator=seeded(0))
    with pytest.raises(InputError, match="question=Curious: must be a VectorQuestion or"):
        users.ask(torch.arange(3), Curious(3))
    assert bool(users.may_answer.all())  # nothing is spent by what was never answered
    # Nor one of a known class that carries a method of its own.
    changed = VectorQuestion(3)
    object.__setattr__(changed, "answers", lambda z, epsilon, generator: z.to_dense())
    answers = users.ask(torch.arange(3), changed)
    assert not isinstance(answers, Tensor)  # reports, and not the vectors
