"""The client's answers to questions: in whole numbers, once, at the budget of their task."""

import itertools
import json
import math
import re
import sqlite3
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from lpgnn import client
from lpgnn.client import ClientError, Ledger, Question, Report, Task
from lpgnn.data.sparse import CsrMatrix
from lpgnn.privacy import RandomizedResponse, ScoreQuestion
from lpgnn.privacy.published import publish
from lpgnn.privacy.questions import unit_vectors

from .questions import (
    TASK,
    asking_task,
    score_members,
    score_question,
    source_of,
    vector_members,
    vector_question,
)
from .tasks import small_task, task_source
from .test_client import DAMAGED, EPSILONS, exp_bounds, outcomes

UNIT = 1 << client.VECTOR_PLACES
X = [0.36, 0.64, 0.0, 0.0, 0.0]  # z = (0.6, 0.8, 0, 0, 0)


def test_unit_vectors_by_hand() -> None:
    assert client.unit_vector(TASK, [0.25, 0.75, 0, 0, 0]) == {
        0: UNIT // 2,
        1: math.isqrt(3 * UNIT**2 // 4),
    }
    assert client.unit_vector(TASK, {2: 1.0, 4: 9.0}) == {
        2: math.isqrt(UNIT**2 // 2),
        4: math.isqrt(UNIT**2 // 2),  # clamped to 1
    }
    assert client.unit_vector(TASK, [0.0] * 5) == client.unit_vector(TASK, {}) == {}
    assert client.unit_vector(TASK, {3: None}) == {3: UNIT}  # in the middle of its range, alone


def test_what_is_absent_is_zero_wherever_that_lies() -> None:
    ranges = [(-1, 1), (0, 1), (0, 1), (0, 1), (-1, 3)]
    task = asking_task(ranges=ranges)
    z = client.unit_vector(task, {})
    assert list(z) == [0, 4]  # at 1/2 and 1/4 of their ranges
    assert z[0] / UNIT == pytest.approx(math.sqrt(2 / 3), abs=1e-6)
    assert z == client.unit_vector(task, [0.0] * 5)


def test_vectors_are_those_of_the_simulation() -> None:
    x = torch.rand(50, 40, generator=torch.Generator().manual_seed(1))
    x[:, ::3] = 0
    task = asking_task(num_features=40)
    simulated = unit_vectors(CsrMatrix.from_dense(x)).to_dense()
    for row, expected in zip(x.tolist(), simulated, strict=True):
        z = client.unit_vector(task, row)
        found = torch.tensor([z.get(i, 0) / UNIT for i in range(40)])
        assert torch.allclose(found, expected, rtol=0, atol=2 / UNIT)


def test_cells_by_hand() -> None:
    """The score of (0.6, 0.8, 0, 0, 0) is -0.2 for the pair (0, 1) and 0.6 for (0, 2)."""
    z, question = client.unit_vector(TASK, X), score_question()
    assert question.cell(z, 3) == 1
    assert question.cell(z, 7) == 2
    assert question.cell(client.unit_vector(TASK, [0, 1, 0, 0, 0]), 3) == 0
    assert question.cell({}, 3) == 1


def test_a_score_on_a_cut_lies_below_it() -> None:
    z = client.unit_vector(TASK, [1, 0, 0, 0, 0])
    score = (1 << 10) * UNIT
    for cut, cell in ((score - 1, 1), (score, 0)):
        question = score_question(pairs=[[0, 1]] * 3, thresholds=[[0, 1, [cut]]])
        assert question.cell(z, 3) == cell


@pytest.mark.parametrize("cells", [2, 5])
def test_cells_are_those_of_the_simulation(cells: int) -> None:
    """Of the question as it was meant, and as it was published; no node of a thousand differs."""
    n, d, c = 1000, 40, 3
    draws = torch.Generator().manual_seed(cells)
    x = torch.rand(n, d, generator=draws)
    x[torch.rand(n, d, generator=draws) < 0.6] = 0
    x[17] = 0
    pairs = torch.tensor([[0, 1], [0, 2], [1, 2]])[torch.randint(3, (n,), generator=draws)]
    cuts = torch.linspace(-0.4, 0.4, cells - 1, dtype=torch.float64) + 0.01
    meant = ScoreQuestion(
        torch.randn(c, d, generator=draws) * 0.3, pairs, cuts.expand(c, c, -1).contiguous()
    )
    task = asking_task(num_nodes=n, num_features=d)
    nodes = torch.randperm(n, generator=draws)
    asked = ScoreQuestion(meant.directions, pairs[nodes], meant.thresholds)
    question = Question.parse(publish(asked, task, nodes), task)
    assert question.num_classes == cells
    own = [question.cell(client.unit_vector(task, row), v) for v, row in enumerate(x.tolist())]
    assert own == meant.cells(unit_vectors(CsrMatrix.from_dense(x))).tolist()
    assert len(set(own)) == cells


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize(("size", "near"), [(2, 1), (8, 1), (256, 33), (16384, 50)])
def test_an_answer_spends_at_most_its_budget_and_almost_all_of_it(
    epsilon: Fraction, size: int, near: int
) -> None:
    task = asking_task(x_eps=float(epsilon))
    weight = vector_question(task, candidates=size, near=near).answer_weight(task)
    below, above = exp_bounds(task.x_eps)
    others = size - near

    def ratio(weight: int) -> Fraction:  # of a near answer to another
        return Fraction(2**64 - others * weight, near * weight)

    assert ratio(weight) <= below
    assert ratio(weight - 1) > above * (1 - Fraction(1, 2**40))  # one less would be too few


def test_answer_probabilities_are_those_of_the_simulation() -> None:
    task = asking_task(x_eps=1.7)
    question = score_question(task)
    transition = RandomizedResponse(1.7, 3).transition()
    other = question.answer_weight(task) / 2**64
    assert other == pytest.approx(float(transition[0, 1]), rel=1e-12)
    assert 1 - 2 * other == pytest.approx(float(transition[0, 0]), rel=1e-12)


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probabilities of five bits, so that all draws can be tried."""
    monkeypatch.setattr(client, "PRECISION", 5)


def table_of(question: Question, task: Task, node: int, x: Any) -> Counter[int]:
    """The exact probability of every answer, over all random bits."""
    draw = partial(client.answer, task, question, node=node, features=x)
    found: Counter[int] = Counter()
    for probability, report in outcomes(lambda bits: draw(random_bits=bits)):
        assert (report.node, report.indices, report.bits) == (node, (), ())
        found[report.label] += probability  # type: ignore[assignment]
    assert sum(found.values()) == 1
    return found


@pytest.mark.usefixtures("coarse")
def test_cells_are_drawn_with_exactly_the_stated_probabilities() -> None:
    task = asking_task(x_eps=1.5)
    question = score_question(task)
    other = question.answer_weight(task)
    found = table_of(question, task, 3, X)
    assert found == {0: Fraction(other, 32), 1: 1 - Fraction(2 * other, 32), 2: Fraction(other, 32)}


@pytest.mark.usefixtures("coarse")
def test_candidates_are_drawn_with_exactly_the_stated_probabilities() -> None:
    task = asking_task(x_eps=1.5)
    question = vector_question(task)
    near = question.nearest(client.unit_vector(task, X), 3)
    other = Fraction(question.answer_weight(task), 32)
    found = table_of(question, task, 3, X)
    assert set(found) == set(range(8))
    for k, probability in found.items():
        assert probability == ((1 - 6 * other) / 2 if k in near else other)


INPUTS = [
    *itertools.product((0.0, 0.5, 1.0), (0.0, 1.0), (0.0, 0.3), (0.0,), (1.0,)),
    (0.0,) * 5,
    (math.nan, 9.0, -4.0, 0.0, None),
]


def worst_ratio(question: Question, task: Task, node: int) -> Fraction:
    """Of an answer's probabilities, over all pairs of inputs and all answers."""
    tables = [table_of(question, task, node, x) for x in INPUTS]
    return max(
        Fraction(a[k], b[k])
        for a, b in itertools.permutations(tables, 2)
        for k in range(question.num_classes)
    )


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("make", [vector_question, score_question])
def test_no_input_makes_an_answer_more_than_e_to_the_eps_likelier(make: Any) -> None:
    task = asking_task(x_eps=1.5)
    question = make(task)
    assert 2 < worst_ratio(question, task, 3) <= exp_bounds(task.x_eps)[0]


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("make", [vector_question, score_question])
def test_a_weight_that_is_rounded_down_spends_more(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = asking_task(x_eps=1.5)
    question = make(task)
    right = Question.answer_weight
    monkeypatch.setattr(Question, "answer_weight", lambda *given: right(*given) - 1)
    assert worst_ratio(question, task, 3) > exp_bounds(task.x_eps)[1]


def test_near_candidates_have_the_largest_products_by_hand() -> None:
    """Against the products themselves, entry by entry, as the description has it."""
    question = vector_question(candidates=40, near=7)
    z = client.unit_vector(TASK, X)
    products = []
    for k in range(40):
        bits = client.candidate(question, 3, k)
        assert len(bits) == 24
        ones = [bin(int.from_bytes(bits[4 * i : 4 * i + 4], "big")).count("1") for i in range(6)]
        products.append(sum((ones[i] - 16) * z.get(i, 0) for i in range(5)))
    order = sorted(range(40), key=lambda k: (-products[k], k))
    assert question.nearest(z, 3) == sorted(order[:7])
    last = [client.candidate(question, 3, k)[20:] for k in range(40)]  # of a vector of zeros
    ones = [int.from_bytes(entry, "big").bit_count() for entry in last]
    order = sorted(range(40), key=lambda k: (-ones[k], k))
    assert question.nearest({}, 3) == sorted(order[:7])


def test_every_node_has_candidates_of_its_own() -> None:
    question = vector_question()
    other = vector_question(near=3)
    found = {client.candidate(q, v, k) for q in (question, other) for v in (0, 3) for k in (0, 1)}
    assert len(found) == 8


def test_what_was_published_once_can_be_answered_for_good() -> None:
    """A change of hash, candidates, vectors or products is a new version of the format."""
    assert TASK.hash.hex() == "82c6e0cfc9c42a01"
    question = vector_question()
    assert question.hash.hex() == "b803eec311e8228a"
    assert (
        client.candidate(question, 3, 5).hex() == "d08aa4e6b2dad82ffc502875a3a13bbc933b42770896b328"
    )
    assert question.nearest(client.unit_vector(TASK, X), 3) == [3, 4]
    assert score_question().hash.hex() == "c20254e814562be3"
    wire = client.encode(question, Report(3, (), (), 5))
    assert wire.hex() == "4c5001b803eec311e8228a000000035056f5ea5f"
    assert client.decode(question, wire) == Report(3, (), (), 5)
    line = client.to_json(question, Report(3, (), (), 5))
    assert client.from_json(question, line) == Report(3, (), (), 5)


def test_a_node_s_features_decide_nothing_but_its_own_answer() -> None:
    task = asking_task(x_eps=20.0)
    for question in (
        vector_question(task, nodes=list(range(12)), candidates=64, near=1),
        score_question(task, nodes=list(range(12)), pairs=[[0, 1]] * 12),
    ):
        rows = [[(v + i) % 4 / 4 for i in range(5)] for v in range(12)]

        def answers(rows: list[list[float]], question: Question = question) -> list[Report]:
            return [
                client.answer(task, question, node=v, features=x, random_bits=lambda k: 2**k - 1)
                for v, x in enumerate(rows)
            ]

        before = answers(rows)
        after = answers([*rows[:5], [1.0, 0, 0, 0, 0], *rows[6:]])
        assert [v for v in range(12) if before[v] != after[v]] == [5]


def respond(ledger: Ledger, question: Question, task: Task = TASK, **given: Any) -> bytes:
    inputs: dict[str, Any] = {"node": 3, "features": X}
    return ledger.answer(task, question, **(inputs | given))


def no_draws(patch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Report:
        raise AssertionError("drawn")

    patch.setattr(client, "answer", fail)


def test_a_question_is_answered_once_and_the_answer_repeated(tmp_path: Path) -> None:
    question = vector_question(candidates=4096, near=1000)
    with Ledger(tmp_path / "ledger", limit=5) as ledger:
        first = respond(ledger, question)
        again = {respond(ledger, question, features=[1.0] * 5) for _ in range(5)}
        assert again == {first}
        assert ledger.spent() == 1
    with Ledger(tmp_path / "ledger") as ledger:
        assert respond(ledger, question) == first
    assert client.decode(question, first).node == 3


@pytest.mark.parametrize("first", ["vector", "score"])
def test_of_all_questions_of_a_task_one_is_answered(
    first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever came first; and what is refused is refused before anything is drawn."""
    one, other = vector_question(), score_question()
    if first == "score":
        one, other = other, one
    with Ledger(tmp_path / "ledger", limit=100) as ledger:
        wire = respond(ledger, one)
        no_draws(monkeypatch)
        another = vector_question(near=3)
        for refused in (other, another):
            with pytest.raises(ClientError, match=rf"{one.hash.hex()}: its x_eps is spent"):
                respond(ledger, refused)
        assert respond(ledger, one) == wire
        assert ledger.spent() == 1


def test_a_ledger_without_that_rule_would_spend_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_remembered", lambda *_: None)
    with Ledger(tmp_path / "ledger", limit=100) as ledger:
        respond(ledger, vector_question())
        respond(ledger, score_question())
        assert ledger.spent() == 2


def test_the_label_and_one_answer_are_what_a_task_costs(tmp_path: Path) -> None:
    task = asking_task(x_eps=2.0, y_eps=0.5)
    with Ledger(tmp_path / "ledger", limit=2.5) as ledger:
        label = ledger.report(task, node=3, features={}, asked=True, label=1)
        assert ledger.spent() == Fraction(1, 2)
        answer = respond(ledger, score_question(task), task)
        assert ledger.spent() == Fraction(5, 2)
        assert ledger.report(task, node=3, features={}, asked=True, label=2) == label
        assert client.decode(score_question(task), answer).node == 3
        with pytest.raises(ClientError, match=f"must be {task.hash.hex()}"):
            client.decode(task, answer)


def test_the_limit_of_the_user_covers_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = asking_task(x_eps=2.0, y_eps=0.5)
    with Ledger(tmp_path / "ledger", limit=2.4) as ledger:
        ledger.report(task, node=3, features={}, asked=True, label=1)
        no_draws(monkeypatch)
        with pytest.raises(ClientError, match=r"this question costs 2, and 0\.5 of 2\.4 is spent"):
            respond(ledger, score_question(task), task)
        assert ledger.spent() == Fraction(1, 2)


def test_another_task_has_questions_of_its_own(tmp_path: Path) -> None:
    other = asking_task(salt="t")
    with Ledger(tmp_path / "ledger", limit=1.5) as ledger:
        respond(ledger, score_question())
        with pytest.raises(ClientError, match=r"costs 1, and 1 of 1\.5 is spent"):
            respond(ledger, score_question(other), other)
        ledger.change_limit(2)
        respond(ledger, score_question(other), other)


def test_one_device_is_one_node_in_all_rounds(tmp_path: Path) -> None:
    question = score_question()
    for first in ("label", "answer"):
        with Ledger(tmp_path / first, limit=5) as ledger:
            if first == "label":
                ledger.report(TASK, node=3, features={}, asked=True, label=1)
                with pytest.raises(ClientError, match="drawn for node 3"):
                    respond(ledger, question, node=7)
            else:
                respond(ledger, question)
                with pytest.raises(ClientError, match="drawn for node 3"):
                    ledger.report(TASK, node=7, features={}, asked=True, label=1)


def test_a_failed_answer_spends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Report:
        raise KeyboardInterrupt

    with Ledger(tmp_path / "ledger", limit=5) as ledger:
        with monkeypatch.context() as patch:
            patch.setattr(client, "answer", broken)
            with pytest.raises(KeyboardInterrupt):
                respond(ledger, score_question())
        assert ledger.spent() == 0
        assert respond(ledger, vector_question(nodes=[3]))  # any question is open still


def test_a_killed_answer_spends_nothing(tmp_path: Path) -> None:
    """Killed with the answer written and not yet committed, and as early as it can be sent."""
    script = (
        "import os, sys; sys.path.insert(0, sys.argv[1])\n"
        "from lpgnn import client\n"
        "ledger = client.Ledger(sys.argv[2], limit=5)\n"
        "draw = ledger._drawn\n"
        "def killed(*given):\n"
        "    draw(*given)\n"
        "    os.kill(os.getpid(), 9)\n"
        "ledger._drawn = killed\n"
        "task = client.Task.parse(open(sys.argv[3], 'rb').read())\n"
        "question = client.Question.parse(open(sys.argv[4], 'rb').read(), task)\n"
        "ledger.answer(task, question, node=3, features=[0.5] * 5)\n"
    )
    (tmp_path / "task.json").write_bytes(TASK.source)
    (tmp_path / "question.json").write_bytes(score_question().source)
    source, path = str(Path(client.__file__).parents[1]), str(tmp_path / "ledger")
    files = [str(tmp_path / "task.json"), str(tmp_path / "question.json")]
    assert subprocess.run([sys.executable, "-c", script, source, path, *files]).returncode == -9
    with Ledger(path) as ledger:
        assert ledger.spent() == 0
        assert respond(ledger, score_question()) == respond(ledger, score_question())
        assert ledger.spent() == 1


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM reports",
        "UPDATE reports SET task = substr(task, 1, 16)",
        "UPDATE reports SET task = 'x' || task",
        "UPDATE reports SET task = replace(task, '/', '-')",
        "UPDATE reports SET spent = '0'",
        "UPDATE reports SET node = 7",
    ],
)
def test_no_change_of_a_ledger_opens_another_question(change: str, tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with Ledger(path, limit=5) as ledger:
        respond(ledger, vector_question())
    database = sqlite3.connect(path)
    database.execute(change)
    database.commit()
    database.close()
    with pytest.raises(ClientError, match=DAMAGED), Ledger(path) as ledger:
        respond(ledger, score_question())


def test_bad_inputs_are_named() -> None:
    other = asking_task(salt="t")
    for task, given, message in (
        (TASK, {"node": 12}, r"node=12: must be a whole number in 0\.\.11"),
        (TASK, {"node": 4}, "node=4: is not asked this question"),
        (TASK, {"features": [0.0] * 4}, "features: 4 of them: must be 5"),
        (TASK, {"features": {5: 1.0}}, r"features: 5: must be a number in 0\.\.4"),
        (TASK, {"features": "abcde"}, "features: 'abcde': must be 5 numbers"),
        (other, {}, f"task={TASK.hash.hex()!r}: must be that of the task, {other.hash.hex()}"),
    ):
        inputs: dict[str, Any] = {"node": 3, "features": X}
        with pytest.raises(ClientError, match=message):
            client.answer(task, score_question(), **(inputs | given))


def test_a_task_with_questions_asks_for_labels_only() -> None:
    report = client.perturb(TASK, node=3, features={}, asked=True, label=1)
    assert (report.indices, report.bits) == ((), ())
    with pytest.raises(ClientError, match="asks for labels only, and not for that of this node"):
        client.perturb(TASK, node=3, features={}, asked=False)
    assert (TASK.payload_bits, TASK.report_bytes) == (2, 20)


def vector(**changes: Any) -> bytes:
    return source_of(vector_members() | changes)


def score(**changes: Any) -> bytes:
    return source_of(score_members() | changes)


def less(name: str) -> bytes:
    members = score_members()
    del members[name]
    return source_of(members)


D = score_members()["directions"]
CUTS = score_members()["thresholds"]
BAD_QUESTIONS = {
    "not JSON": (b"{", "question: not JSON"),
    "not text": (b"\xff\xfe\x00", "question: not JSON"),
    "no object": (b"[1]", "question: must be a JSON object"),
    "a member twice": (vector()[:-2] + b', "near": 1}', "a member is there twice"),
    "deep": (b"[" * 100_000, "question: not JSON"),
    "a task": (task_source(), "lpgnn_question=None: must be 1"),
    "version": (vector(lpgnn_question=2), "lpgnn_question=2: must be 1"),
    "true for a version": (vector(lpgnn_question=True), "lpgnn_question=True: must be 1"),
    "kind": (vector(kind="all"), "kind='all': must be vector or score"),
    "a list for a kind": (vector(kind=[]), r"kind=\[\]: must be vector or score"),
    "missing member": (less("pairs"), "pairs is missing"),
    "unknown member": (vector(x_eps=9), "'x_eps' is unknown"),
    "a member of the other kind": (vector(pairs=[]), "'pairs' is unknown"),
    "another task": (vector(task="00" * 8), "task='0000000000000000': must be that of the task"),
    "no nodes": (vector(nodes=[]), r"nodes=\[\]: must be whole numbers in 0\.\.11, ascending"),
    "unknown node": (vector(nodes=[3, 12]), "nodes: 12: must be"),
    "a node twice": (vector(nodes=[3, 3]), "nodes: 3: must be"),
    "nodes descending": (vector(nodes=[4, 3]), "nodes: 3: must be"),
    "true for a node": (vector(nodes=[True]), "nodes: True: must be"),
    "text for nodes": (vector(nodes="all"), "nodes='all': must be"),
    "one candidate": (vector(candidates=1), r"candidates=1: must be a whole number in 2\.\."),
    "many candidates": (vector(candidates=10**9), "candidates=1000000000: must be"),
    "none near": (vector(near=0), r"near=0: must be a whole number in 1\.\.7"),
    "all near": (vector(near=8), r"near=8: must be a whole number in 1\.\.7"),
    "directions of two classes": (score(directions=D[:2]), "must be 3 lists"),
    "short direction": (score(directions=[*D[:2], [1]]), r"\[1\]: must be 5 numbers"),
    "a fraction": (score(directions=[*D[:2], [0.5] * 5]), r"directions: 0\.5: must be whole"),
    "a large direction": (score(directions=[*D[:2], [2**24 + 1] * 5]), "16777217: must be"),
    "places": (score(places=0.5), r"places=0\.5: must be a whole number"),
    "a pair too few": (score(pairs=[[0, 1]] * 2), "must be one for each of 3 nodes"),
    "three classes": (score(pairs=[[0, 1, 2]] * 3), r"\[0, 1, 2\]: must be \[a, b\]"),
    "a class twice": (score(pairs=[[1, 1]] * 3), r"\[1, 1\]: must be two different classes"),
    "unknown class": (score(pairs=[[0, 3]] * 3), r"\[0, 3\]: must be two different classes"),
    "no cuts for a pair": (score(pairs=[[1, 2]] * 3), r"none for the pair \[1, 2\]"),
    "cuts of a pair twice": (score(thresholds=[*CUTS, CUTS[0]]), r"\[0, 1\]: is there twice"),
    "cuts of no pair": (score(thresholds=[[0, 1]]), r"\[0, 1\]: must be \[a, b, \[cuts\]\]"),
    "no cuts": (score(thresholds=[[0, 1, []]]), "thresholds: 0 cuts: must be"),
    "too many cuts": (score(thresholds=[[0, 1, [0] * 64]]), "thresholds: 64 cuts: must be"),
    "uneven cuts": (score(thresholds=[CUTS[0], [0, 2, [1]]]), "1 cuts: .*as many for every pair"),
    "falling cuts": (score(thresholds=[[0, 1, [5, 4]]]), "thresholds: 4: must be .* rising"),
    "a huge cut": (score(thresholds=[[0, 1, [2**70]]]), "must be whole numbers of at most"),
    "NaN": (score().replace(b'"places": 10', b'"places": NaN'), "NaN is no JSON number"),
}


@pytest.mark.parametrize("name", BAD_QUESTIONS)
def test_bad_questions_are_refused_in_one_line_and_cost_nothing(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, message = BAD_QUESTIONS[name]
    with pytest.raises(ClientError, match=message) as caught:
        Question.parse(source, TASK)
    assert len(str(caught.value)) < 400
    (tmp_path / "task.json").write_bytes(TASK.source)
    (tmp_path / "question.json").write_bytes(source)
    (tmp_path / "features.json").write_text("[0, 1, null, 0.5, 0]")
    words = [str(tmp_path / "task.json"), "--question", str(tmp_path / "question.json")]
    words += ["--node", "3", "--features", str(tmp_path / "features.json"), "--limit", "5"]
    assert client.main([*words, "--ledger", str(tmp_path / "ledger")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(message, line)
    assert not (tmp_path / "ledger").exists()


def test_a_question_of_a_task_that_asked_for_features_is_refused() -> None:
    task = small_task()
    with pytest.raises(ClientError, match="has no questions: features went with the report"):
        vector_question(task)


def test_budgets_that_say_nothing_are_refused() -> None:
    task = asking_task(x_eps=1e-17)
    with pytest.raises(ClientError, match="x_eps=1e-17: is too small to say anything"):
        vector_question(task, candidates=65536, near=1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_samples": 1}, r"num_samples=1: must be a whole number in 0\.\.0"),
        ({"mechanism": "mb"}, r"num_samples=0: must be a whole number in 1\.\.5"),
    ],
)
def test_questions_and_samples_exclude_each_other(changes: dict[str, Any], message: str) -> None:
    members = json.loads(TASK.source) | changes
    with pytest.raises(ClientError, match=message):
        Task.parse(json.dumps(members).encode())


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "task.json").write_bytes(TASK.source)
    (tmp_path / "features.json").write_text("[0, 1, null, 0.5, 0]")
    (tmp_path / "first.json").write_bytes(vector_question().source)
    (tmp_path / "second.json").write_bytes(score_question().source)
    words = [sys.executable, client.__file__, str(tmp_path / "task.json"), "--node", "3"]
    words += ["--ledger", str(tmp_path / "ledger"), "--limit", "2"]
    label = subprocess.run([*words, "--label", "1"], capture_output=True)
    assert client.decode(TASK, label.stdout).node == 3
    asked = [*words, "--features", str(tmp_path / "features.json"), "--question"]
    first = subprocess.run([*asked, str(tmp_path / "first.json")], capture_output=True)
    assert first.returncode == 0, first.stderr
    report = client.decode(vector_question(), first.stdout)
    as_json = subprocess.run([*asked, str(tmp_path / "first.json"), "--json"], capture_output=True)
    assert client.from_json(vector_question(), as_json.stdout) == report
    second = subprocess.run([*asked, str(tmp_path / "second.json")], capture_output=True, text=True)
    assert second.returncode == 2
    assert second.stderr == (
        f"error: question: another question of its task is answered, "
        f"{vector_question().hash.hex()}: its x_eps is spent\n"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--question", "question.json"], "features: missing (--features FILE)"),
        (["--question", "question.json", "--label", "1"], "label: a question is about features"),
        (["--question", "question.json", "--asked"], "label: a question is about features only"),
        (["--question", "none.json"], "none.json: No such file or directory"),
        ([], "asked: this task asks for labels only"),
    ],
)
def test_a_wrong_command_is_one_line(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "task.json").write_bytes(TASK.source)
    (tmp_path / "question.json").write_bytes(score_question().source)
    given = ["task.json", "--node", "3", "--ledger", "ledger", "--limit", "5", *words]
    assert client.main(given) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
