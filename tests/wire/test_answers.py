"""Answers on the server's side: published, collected, kept, and put before a learner."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from learners.block_graph import collected as block_collected
from lpgnn import client, collect
from lpgnn.client import Question, Report
from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError
from lpgnn.privacy import FeatureReports, Round, ScoreQuestion, VectorQuestion
from lpgnn.privacy.candidates import Candidates
from lpgnn.privacy.collection import Collection, ReceivedReports
from lpgnn.privacy.collector import Collector
from lpgnn.privacy.published import AnsweredQuestion, publish
from lpgnn.privacy.questions import unit_vectors
from lpgnn.privacy.respondents import ReceivedRespondents, Unanswered

from .questions import TASK, asking_task, score_question, vector_question
from .tasks import small_graph
from .test_client_questions import BAD_QUESTIONS

GRAPH = small_graph()


def labels_only() -> Collection:
    """The labels of the nine nodes that are asked for one, all of class 1."""
    collector = Collector(TASK, GRAPH.asked.numpy())
    wires = [client.encode(TASK, Report(v, (), (), 1)) for v in range(9)]
    collector.add_stream(io.BytesIO(b"".join(wires)), "s")
    return Collection(TASK, GRAPH, *collector.received())


def answered(question: Question, answers: dict[int, int]) -> bytes:
    return b"".join(client.encode(question, Report(v, (), (), a)) for v, a in answers.items())


def test_a_collection_of_labels_has_no_features() -> None:
    found = labels_only().collected()
    assert found.features is None
    assert found.x_eps == 1.0
    assert found.labels.classes.tolist() == [1] * 9 + [-1] * 3


SCORES = torch.tensor([[0.5, -1.25, 3.0], [0.0, 0.1, 0.2]])


def test_a_score_question_is_published_in_whole_numbers_and_read_back_exactly() -> None:
    task = asking_task(num_features=3, num_classes=2)
    cuts = torch.tensor([-0.1, 0.3], dtype=torch.float64)
    thresholds = torch.zeros(2, 2, 2, dtype=torch.float64)
    thresholds[0, 1], thresholds[1, 0] = cuts, 2 * cuts
    meant = ScoreQuestion(SCORES, torch.tensor([[1, 0], [0, 1]]), thresholds)
    source = publish(meant, task, torch.tensor([7, 2]))
    members = json.loads(source)
    assert members["nodes"] == [2, 7]
    assert members["pairs"] == [[0, 1], [1, 0]]  # of node 2 and of node 7
    assert members["places"] == 22  # 3 < 4 = 2^(24 - 22)
    assert members["directions"][0] == [2**21, -5 * 2**20, 3 * 2**22]
    assert members["thresholds"][0] == [0, 1, [int(-0.1 * 2**46) - 1, int(0.3 * 2**46)]]
    found = Question.parse(source, task)
    one = AnsweredQuestion(found, np.array([-1, 2], np.int32)).received(torch.tensor([7, 2]), task)
    assert one.answered.tolist() == [True, False]
    assert one.answers.tolist() == [2]  # type: ignore[union-attr]
    assert torch.allclose(one.question.directions, SCORES, rtol=0, atol=2**-23)
    assert one.question.pairs.tolist() == [[1, 0]]
    assert torch.allclose(one.question.thresholds, thresholds, rtol=0, atol=2**-45)
    # What was published is published again as it is.
    nodes, back = torch.tensor([2, 7]), AnsweredQuestion(found, np.array([0, 0], np.int32))
    again = publish(back.received(nodes, task).question, task, nodes)
    assert json.loads(again) == members


def test_a_vector_question_is_published_as_candidates() -> None:
    task = asking_task(x_eps=3.0)
    members = json.loads(publish(VectorQuestion(5), task, torch.tensor([4, 1])))
    suited = Candidates.suited(3.0, 5)
    assert (members["candidates"], members["near"]) == (suited.num_candidates, suited.num_near)
    assert members["nodes"] == [1, 4]


def test_directions_of_nothing_are_published_and_such_that_are_no_numbers_are_not() -> None:
    task, cuts = asking_task(num_features=3, num_classes=2), torch.zeros(2, 2, 1).double()
    zero = ScoreQuestion(torch.zeros(2, 3), torch.tensor([[0, 1]]), cuts)
    assert json.loads(publish(zero, task, torch.tensor([0])))["directions"] == [[0] * 3] * 2
    for bad in (
        ScoreQuestion(torch.full((2, 3), torch.nan), torch.tensor([[0, 1]]), cuts),
        ScoreQuestion(SCORES, torch.tensor([[0, 1]]), cuts / 0),
    ):
        with pytest.raises(InputError, match="is not finite"):
            publish(bad, task, torch.tensor([0]))


def test_answers_are_checked_like_reports() -> None:
    question = score_question()  # to 3, 7 and 11
    good = answered(question, {3: 2, 7: 0})
    other = score_question(places=11)
    wrong = [
        (answered(question, {4: 1}), "answer of node 4: was not asked for"),
        (answered(question, {11: None}), "answer of node 11: is missing"),  # type: ignore[dict-item]
        (answered(question, {3: 1}), "replay of node 3: another report is here already"),
        (answered(question, {7: 0}), "replay of node 7: the same report again"),
        (answered(other, {11: 1}), f"task {other.hash.hex()}: must be {question.hash.hex()}"),
        (client.encode(TASK, Report(3, (), (), 1)), f"task {TASK.hash.hex()}: must be"),
        (answered(question, {11: 1})[:-1], "length 19: must be 20 bytes"),
    ]
    reasons: list[str] = []
    asked = np.isin(np.arange(12), question.nodes)
    collector = Collector(question, asked, lambda refusal: reasons.append(refusal.reason))
    for data, _ in [(good, ""), *wrong]:
        collector.add_stream(io.BytesIO(data), "s")
    collection = labels_only().with_answers(question, *collector.received())
    assert collection.rounds[0].answers.tolist() == [2, 0, -1]
    for (_, reason), found in zip(wrong, sorted_as(wrong, reasons), strict=True):
        assert reason in found


def sorted_as(wrong: list[tuple[bytes, str]], reasons: list[str]) -> list[str]:
    """Reasons in the order of what they are about: a collector looks at many reports at once."""
    assert len(reasons) == len(wrong)
    return [next(found for found in reasons if reason in found) for _, reason in wrong]


def two_rounds() -> Collection:
    one = AnsweredQuestion(vector_question(), np.array([3, -1, 7], np.int32))
    two = AnsweredQuestion(score_question(nodes=[7, 10, 11]), np.array([0, 2, -1], np.int32))
    first = labels_only()
    return Collection(TASK, GRAPH, first.received, first.payloads, (one, two))


def test_a_collection_with_answers_comes_back_from_its_file(tmp_path: Path) -> None:
    before = two_rounds()
    before.save(tmp_path / "c.npz")
    after = Collection.load("reports", tmp_path / "c.npz")
    assert after.digest == before.digest
    assert [one.question.source for one in after.rounds] == [
        one.question.source for one in before.rounds
    ]
    assert [one.answers.tolist() for one in after.rounds] == [[3, -1, 7], [0, 2, -1]]
    assert labels_only().digest != before.digest
    text = ReceivedReports(str(tmp_path / "c.npz")).describe()
    assert "9 of 9 labels, 2 of 3 answers to question 1, 2 of 3 answers to question 2" in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"answers": np.array([3, -1, 8, 0, 2, -1])},
            r"must be 3 of -1\.\.7 to question 1",
        ),
        (
            {"answers": np.array([3, -1, 7, 0, 2, -2])},
            r"must be 3 of -1\.\.2 to question 2",
        ),
        ({"answers": np.array([3, -1, 7])}, "answers must be 3 of .* to question 2"),
        ({"answers": np.zeros(7, int)}, "answers must be of its questions"),
        ({"answers": np.zeros((2, 3), int)}, "must be lists"),
        ({"question_sizes": np.array([5, 5])}, "question_sizes must add up"),
        ({"question_sizes": np.array([-1, 1])}, "must be lists"),
        ({"questions": np.frombuffer(b"{}", np.uint8), "question_sizes": np.array([2])}, "lpgnn_q"),
        ({"answers": np.array(["x"])}, "answers must not be of type"),
    ],
)
def test_a_file_of_wrong_answers_is_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    two_rounds().save(tmp_path / "c.npz")
    with np.load(tmp_path / "c.npz") as archive:
        arrays = dict(archive) | changes
    np.savez(tmp_path / "c.npz", **arrays)
    with pytest.raises(InputError, match=message):
        Collection.load("reports", tmp_path / "c.npz")


def test_a_node_that_was_asked_is_not_asked_again(tmp_path: Path) -> None:
    again = score_question()  # to 3, 7 and 11; 3 was asked for its vector
    with pytest.raises(InputError, match="asks node 3, which was asked before"):
        two_rounds().check_new("question", "q.json", again)
    one = AnsweredQuestion(vector_question(), np.array([3, -1, 7], np.int32))
    two = AnsweredQuestion(again, np.array([0, 2, -1], np.int32))
    first = labels_only()
    Collection(TASK, GRAPH, first.received, first.payloads, (one, two)).save(tmp_path / "c.npz")
    with pytest.raises(InputError, match="asks node 3, which was asked before"):
        Collection.load("reports", tmp_path / "c.npz")


ORDER = torch.tensor([11, 3, 0, 4, 7, 10, 1, 2, 5, 6, 8, 9])  # node i of the server is ORDER[i]


def users(rounds: tuple[AnsweredQuestion, ...]) -> ReceivedRespondents:
    return ReceivedRespondents("c.npz", TASK, rounds, ORDER)


def test_users_who_have_not_answered_are_asked_the_same_each_time() -> None:
    sources = []
    for _ in range(2):
        with pytest.raises(Unanswered, match=r"reports=c\.npz: has no answers to question 1") as e:
            users(()).ask(torch.tensor([3, 1, 2]), VectorQuestion(5))
        sources.append(e.value.source)
    assert sources[0] == sources[1]
    assert json.loads(sources[0])["nodes"] == [0, 3, 4]


def test_answers_reach_the_server_in_its_own_order_without_the_silent() -> None:
    respondents = users(two_rounds().rounds)
    answers = respondents.ask(torch.tensor([3, 1, 2]), VectorQuestion(5))  # 4, 3 and 0
    found = Round(torch.tensor([3, 1, 2]), VectorQuestion(5), answers).of_those_who_answered()
    assert found.nodes.tolist() == [3, 2]
    mechanism = found.question.mechanism(1.0)
    assert (mechanism.num_candidates, mechanism.num_near) == (8, 2)
    expected = mechanism.received(vector_question(), torch.tensor([4, 0]), torch.tensor([7, 3]))
    assert isinstance(found.answers, FeatureReports)
    assert torch.equal(found.answers.rectified(), expected.rectified())
    assert respondents.may_answer.sum() == 9  # silent or not, they were asked
    score = ScoreQuestion(torch.zeros(3, 5), torch.zeros(3, 2).long(), torch.zeros(3, 3, 2))
    second = respondents.ask(torch.tensor([5, 0, 4]), score)  # 10, 11 and 7
    found = Round(torch.tensor([5, 0, 4]), score, second).of_those_who_answered()
    assert found.nodes.tolist() == [5, 4]
    assert found.answers.tolist() == [2, 0]  # type: ignore[union-attr]
    assert found.question.pairs.tolist() == [[0, 2], [0, 1]]
    with pytest.raises(Unanswered, match="question 3"):
        respondents.ask(torch.tensor([6]), VectorQuestion(5))


def test_a_collection_keeps_those_who_answered() -> None:
    answers = users(two_rounds().rounds).ask(torch.tensor([3, 1, 2]), VectorQuestion(5))
    before = block_collected(feature=None, mechanism=None)
    after = before.with_round(Round(torch.tensor([3, 1, 2]), VectorQuestion(5), answers))
    assert after.rounds[0].nodes.tolist() == [3, 2]


def test_answers_to_other_questions_are_not_taken_for_these() -> None:
    for nodes, question in (
        (torch.tensor([3, 1, 0]), VectorQuestion(5)),
        (
            torch.tensor([3, 1, 2]),
            ScoreQuestion(torch.zeros(3, 5), torch.zeros(3, 2).long(), torch.zeros(3, 3, 2)),
        ),
    ):
        with pytest.raises(InputError, match="question 1 has asked others: seed, learner and"):
            users(two_rounds().rounds).ask(nodes, question)


def test_the_respondents_hold_no_features() -> None:
    held = vars(users(()))
    assert {name for name, value in held.items() if isinstance(value, CsrMatrix)} == set()


def files(folder: Path, question: bytes, reports: bytes) -> list[str]:
    labels_only().save(folder / "labels.npz")
    (folder / "q.json").write_bytes(question)
    (folder / "r.bin").write_bytes(reports)
    given = {"question": "q.json", "collected": "labels.npz", "reports": "r.bin", "out": "c.npz"}
    return [f"{name}={folder / file}" for name, file in given.items()]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    question = score_question()
    words = files(tmp_path, question.source, answered(question, {3: 2, 4: 1, 7: 0}))
    assert collect.main(words) == 0
    shown = capsys.readouterr().out
    assert f"question 1 ({question.hash.hex()}): score, one of 3 answers at x_eps = 1" in shown
    assert "2 of 3 answers" in shown
    assert "1 x answer of node 4: was not asked for" in shown
    assert Collection.load("reports", tmp_path / "c.npz").rounds[0].answers.tolist() == [2, 0, -1]
    again = [word.replace("labels.npz", "c.npz") for word in words]
    assert collect.main(again) == 2
    assert "asks node 3, which was asked before" in capsys.readouterr().err


@pytest.mark.parametrize("name", BAD_QUESTIONS)
def test_malformed_questions_are_refused_by_the_collector(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = files(tmp_path, BAD_QUESTIONS[name][0], b"")
    assert collect.main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: question={tmp_path / 'q.json'}: question: ")
    assert not (tmp_path / "c.npz").exists()


@pytest.mark.parametrize(
    ("left_out", "message"),
    [("question", "question=null: must be a file"), ("collected", "collected=null: must be a")],
)
def test_a_question_goes_with_its_collection(
    left_out: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = files(tmp_path, score_question().source, b"")
    assert collect.main([word for word in words if not word.startswith(left_out)]) == 2
    assert message in capsys.readouterr().err


def test_unit_vectors_of_the_published_directions_have_the_same_cells() -> None:
    """A question means the same to the server, which reads it back in floating point."""
    task = asking_task(num_features=6)
    x = torch.rand(12, 6, generator=torch.Generator().manual_seed(3))
    pairs = torch.tensor([[0, 1], [0, 2], [1, 2]] * 4)
    w = torch.randn(3, 6, generator=torch.Generator().manual_seed(4))
    cuts = torch.tensor([-0.3, 0.0, 0.3], dtype=torch.float64).expand(3, 3, 3)
    nodes = torch.arange(12)
    published = Question.parse(publish(ScoreQuestion(w, pairs, cuts), task, nodes), task)
    everyone = AnsweredQuestion(published, np.zeros(12, np.int32)).received(nodes, task)
    cells = everyone.question.cells(unit_vectors(CsrMatrix.from_dense(x))).tolist()
    own = [published.cell(client.unit_vector(task, row), v) for v, row in enumerate(x.tolist())]
    assert cells == own
