import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lpgnn.config import Settings
from lpgnn.engine import run_repeats
from lpgnn.kernels import Backend
from lpgnn.propagation import PreparedGraph

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
import two_round_ablations as script


@pytest.fixture(scope="module")
def users() -> script.Users:
    return made()


def made() -> script.Users:
    settings = Settings(dataset="sbm", learner="two_round", x_eps=3.0, y_eps=1.0, seed=script.SEED)
    graph = settings.resolve().dataset.load(Path())
    prepared = PreparedGraph(graph.topology, Backend.choose("cpu"))
    return script.Users.of(settings, graph, prepared, 1)


@pytest.mark.slow
def test_the_present_variant_is_the_learner(users: script.Users) -> None:
    """The script plays the rounds by itself: it must reach what a run reaches, to the last node."""
    configuration = users.configuration
    graph = configuration.dataset.load(Path())
    (row,) = run_repeats(configuration, graph, [1], device="cpu")
    found = script.play(users)
    predicted = found.present.argmax(0)[users.test] == users.labels[users.test]
    assert 100 * float(predicted.float().mean()) == pytest.approx(
        float(row["released/test/acc"]), abs=1e-3
    )


@pytest.mark.slow
def test_answers_of_other_nodes_stay_within_their_pair() -> None:
    before, after = script.play(made()), script.play(made(), swapped=True)
    first, second = before.run.collected.rounds[1], after.run.collected.rounds[1]
    assert isinstance(first.answers, torch.Tensor)
    assert isinstance(second.answers, torch.Tensor)
    assert torch.equal(first.nodes, second.nodes)
    assert torch.equal(first.question.pairs, second.question.pairs)
    assert not torch.equal(first.answers, second.answers)
    for pair in first.question.pairs.unique(dim=0):
        here = (first.question.pairs == pair).all(1)
        assert torch.equal(first.answers[here].sort().values, second.answers[here].sort().values)


@pytest.mark.slow
def test_shuffled_directions_are_the_same_numbers_elsewhere() -> None:
    before, after = script.play(made()), script.play(made(), shuffled=True)
    plain, shuffled = before.lesson.directions, after.lesson.directions
    assert not torch.equal(plain, shuffled)
    assert torch.equal(plain.sort(1).values, shuffled.sort(1).values)


def test_as_much_of_a_classifier_is_taken_as_serves_known_nodes() -> None:
    labels = torch.tensor([0, 1, 0, 1])
    scores = torch.tensor([[1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    truth = torch.nn.functional.one_hot(labels, 2).t().float()
    known = torch.tensor([True, True, False, False])
    assert script.mixed(scores, truth, labels, known).argmax(0).tolist() == labels.tolist()
    assert torch.equal(script.mixed(truth, -truth, labels, known), truth)


def test_lines_that_are_there_are_not_computed_again(tmp_path: Path) -> None:
    calls = []

    def measure(make: object) -> dict[str, float]:
        calls.append(make)
        return {"present": 1.0}

    options = script.Options(Path(), 2)
    path = tmp_path / "found.csv"
    script.extend(path, measure, ["sbm"], ["raw"], [(3.0, 1.0)], options)
    script.extend(path, measure, ["sbm"], ["raw"], [(3.0, 1.0)], replace(options, repeats=3))
    assert len(calls) == 3
    assert path.read_text().splitlines() == [
        "dataset,y_eps,x_eps,feature,seed,repeat,present",
        *(f"sbm,1,3,raw,500,{repeat},1.000" for repeat in range(3)),
    ]
