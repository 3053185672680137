"""Users of a small graph are asked, answer once each, and a run learns from their answers alone."""

import csv
import json
from pathlib import Path

import pytest
import torch

from lpgnn import client, collect, question, run, simulate
from lpgnn.client import ClientError, Ledger, Question, Task
from lpgnn.config import Settings
from lpgnn.data import BlockModel
from lpgnn.errors import InputError
from lpgnn.privacy.collection import Collection
from lpgnn.rows import RowStore

pytestmark = pytest.mark.slow

N = 120
GRAPH = BlockModel(num_nodes=N, num_classes=3, num_features=40)
WORDS = [f"dataset.num_nodes={N}", "dataset.num_classes=3", "dataset.num_features=40"]
SILENT = 7  # of the asked, one in so many says nothing


class Device:
    """One user: features, a label and a ledger, which nobody else reads."""

    def __init__(self, node: int, features: list[float], label: int, folder: Path) -> None:
        self.node, self.features, self.label = node, features, label
        self.path = folder / f"{node}.db"

    def report(self, task: Task) -> bytes:
        given = {"node": self.node, "features": {}, "asked": True, "label": self.label}
        with Ledger(self.path, limit=6) as ledger:
            return ledger.report(task, **given)  # type: ignore[arg-type]

    def answer(self, task: Task, asked: Question) -> bytes:
        with Ledger(self.path, limit=6) as ledger:
            return ledger.answer(task, asked, node=self.node, features=self.features)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of it, by the commands of the server and by devices of which some are silent."""
    folder = tmp_path_factory.mktemp("rounds")
    words = ["dataset=sbm", *WORDS, "learner=two_round", "x_eps=3", "y_eps=3"]
    assert simulate.main([*words, "--out", str(folder)]) == 0  # for its task and graph
    task = Task.parse((folder / "task.json").read_bytes())
    graph = GRAPH.load(Path())
    assert graph.features is not None
    rows = graph.features.to_dense().tolist()
    (folder / "ledgers").mkdir()
    devices = [
        Device(v, row, int(graph.labels[v]), folder / "ledgers") for v, row in enumerate(rows)
    ]
    reports = (folder / "reports.bin").read_bytes()
    size = task.report_bytes
    wires = (reports[i : i + size] for i in range(0, len(reports), size))
    nodes = [client.decode(task, wire).node for wire in wires]
    sent = [devices[v].report(task) for v in nodes if v % SILENT]
    (folder / "labels.bin").write_bytes(b"".join(sent))
    words = [f"task={folder / 'task.json'}", f"graph={folder / 'graph.npz'}"]
    words += [f"reports={folder / 'labels.bin'}", f"out={folder / '0.npz'}"]
    assert collect.main(words) == 0
    for number in (1, 2):
        before, path = folder / f"{number - 1}.npz", folder / f"{number}.json"
        assert asked(before, path) == 0
        one = Question.parse(path.read_bytes(), task)
        answers = [devices[v].answer(task, one) for v in one.nodes if (v + number) % SILENT]
        (folder / f"{number}.bin").write_bytes(b"".join(answers))
        words = [f"question={path}", f"collected={before}", f"out={folder / f'{number}.npz'}"]
        assert collect.main([*words, f"reports={folder / f'{number}.bin'}"]) == 0
    return folder


def asked(reports: Path, out: Path, *words: str) -> int:
    return question.main([f"reports={reports}", "learner=two_round", "--out", str(out), *words])


def trained(place: Path, name: str, *words: str) -> int:
    given = [f"reports={place / name}", "learner=two_round", "repeats=2", "--workers", "0"]
    return run.main([*given, f"results_dir={place / 'results'}", *words])


def test_every_user_answers_one_question_of_the_two(place: Path) -> None:
    rounds = Collection.load("reports", place / "2.npz").rounds
    assert [one.question.kind for one in rounds] == ["vector", "score"]
    first, second = (set(one.question.nodes) for one in rounds)
    assert not first & second
    assert first | second == set(range(N))
    spent = {}
    for path in (place / "ledgers").iterdir():
        with Ledger(path) as ledger:
            spent[int(path.stem)] = float(ledger.spent())
    assert set(spent.values()) <= {3.0, 6.0}  # an answer, and for some a label
    answered = [v for one in rounds for v, a in zip(one.question.nodes, one.answers, strict=True)
                if a >= 0]  # fmt: skip
    assert len(answered) == len(set(answered)) < N
    assert set(answered) <= set(spent)


def test_a_run_learns_from_answers_alone(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = place / "labels.csv"
    assert trained(place, "2.npz", f"labels={labels}") == 0
    shown = capsys.readouterr().out
    assert "answers to question 2" in shown
    assert " total budget  6 per node (drawn by the clients, not here)\n" in shown
    one = Settings(reports=place / "2.npz", labels=labels, learner="two_round").resolve()
    rows = RowStore(place / "results").finished(one.dataset.name, one.identity)
    (row,) = rows.values()  # of two repeats: whom to ask is decided once
    assert float(row["released/test/acc"]) > 50
    assert "a learner that asks has one repeat" in shown
    assert "; 0 of 1 repeats done\n" in shown


def test_the_same_question_is_asked_again(place: Path, tmp_path: Path) -> None:
    for number in (1, 2):
        assert asked(place / f"{number - 1}.npz", tmp_path / "q.json") == 0
        assert (tmp_path / "q.json").read_bytes() == (place / f"{number}.json").read_bytes()
    assert asked(place / "0.npz", tmp_path / "q.json", "seed=1") == 0
    other, own = (json.loads(p.read_bytes()) for p in (tmp_path / "q.json", place / "1.json"))
    assert other["nodes"] != own["nodes"]


def test_what_is_not_answered_yet_is_said_in_one_line(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trained(place, "1.npz") == 2
    (error,) = capsys.readouterr().err.splitlines()  # and no progress bar
    assert "1.npz: has no answers to question 2: python -m lpgnn.question with the same" in error
    assert asked(place / "2.npz", tmp_path / "q.json") == 2
    assert "all questions are answered: train with" in capsys.readouterr().err
    assert trained(place, "2.npz", "seed=5") == 2
    assert "question 1 has asked others: seed, learner and" in capsys.readouterr().err
    assert not (tmp_path / "q.json").exists()


def test_the_second_question_knows_answers_and_no_features(place: Path, tmp_path: Path) -> None:
    """It changes with an answer of round one, and says of nobody more than two classes."""
    earlier = Collection.load("reports", place / "1.npz")
    one = earlier.rounds[0]
    answers = one.answers.copy()
    answers[answers >= 0] ^= 1
    changed = type(one)(one.question, answers)
    Collection(*(earlier.task, earlier.graph, earlier.received, earlier.payloads), (changed,)).save(
        tmp_path / "1.npz"
    )
    assert asked(tmp_path / "1.npz", tmp_path / "q.json") == 0
    other, own = (json.loads(p.read_bytes()) for p in (tmp_path / "q.json", place / "2.json"))
    assert other["directions"] != own["directions"]
    assert other["nodes"] == own["nodes"]


def test_a_device_that_sent_its_vector_tells_no_score(place: Path, tmp_path: Path) -> None:
    task = Task.parse((place / "task.json").read_bytes())
    first, second = (
        Question.parse((place / f"{number}.json").read_bytes(), task) for number in (1, 2)
    )
    node = second.nodes[3]
    members = json.loads(first.source) | {"nodes": sorted({*first.nodes, node})}
    both = Question.parse(json.dumps(members).encode(), task)  # of a server that asks all
    device = Device(node, [0.5] * 40, 0, tmp_path)
    device.answer(task, both)
    with pytest.raises(ClientError, match="its x_eps is spent"):
        device.answer(task, second)


def test_simulated_users_answer_by_the_client(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["dataset=sbm", *WORDS, "--out", str(tmp_path), "--question", str(place / "1.json")]
    assert simulate.main(words) == 2
    assert "task.json: cannot be read" in capsys.readouterr().err
    (tmp_path / "task.json").write_bytes((place / "task.json").read_bytes())
    assert simulate.main(words) == 0
    first = (tmp_path / "1.bin").read_bytes()
    assert simulate.main(words) == 0
    assert (tmp_path / "1.bin").read_bytes() == first
    assert simulate.main([*words, "--json"]) == 0
    task = Task.parse((place / "task.json").read_bytes())
    asked_for = Question.parse((place / "1.json").read_bytes(), task)
    lines = (tmp_path / "1.jsonl").read_text().splitlines()
    assert [client.from_json(asked_for, line).node for line in lines] == list(asked_for.nodes)
    assert simulate.main([*words, "seed=3"]) == 2
    assert "but the task is for graph" in capsys.readouterr().err


def test_learners_that_need_features_are_told_that_there_are_none(place: Path) -> None:
    with pytest.raises(InputError, match=r"learner=drop: needs features.*ask \(two_round\)"):
        Settings(reports=place / "0.npz").resolve()
    with pytest.raises(InputError, match=r"x_eps=.*: is decided by the collected reports"):
        Settings(reports=place / "0.npz", learner="two_round", x_eps=5.0).resolve()
    assert run.main(
        [f"reports={place / '0.npz'}", "learner=label_propagation", "repeats=1", "--workers", "0",
         f"results_dir={place / 'results'}"]
    ) == 0  # fmt: skip


def test_only_a_collection_can_be_asked_about(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "q.json")]
    assert question.main(["learner=two_round", *out]) == 2
    assert "reports=null: must be a file of lpgnn.collect" in capsys.readouterr().err
    assert question.main([f"reports={place / '0.npz'}", "learner=label_propagation", *out]) == 2
    assert "learner=label_propagation: does not ask" in capsys.readouterr().err


def test_labels_of_the_split_and_nothing_else_are_asked_for(place: Path) -> None:
    collection = Collection.load("reports", place / "0.npz")
    with (place / "labels.csv").open() as file:
        tested = {int(row["node"]) for row in csv.DictReader(file)}
    received = set(torch.from_numpy(collection.received).nonzero().flatten().tolist())
    assert not received & tested
    assert collection.collected().features is None
