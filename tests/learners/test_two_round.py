"""The learner of two rounds: its estimates by hand and by dense algebra, and its blank control."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lpgnn.config import Settings
from lpgnn.data.graph import Graph, Topology
from lpgnn.data.sparse import CsrMatrix
from lpgnn.engine import run_repeats
from lpgnn.errors import InputError
from lpgnn.learners import Outcome, Run, TwoRoundLearner
from lpgnn.learners.label_propagation import Labels, of_own_fold
from lpgnn.learners.residual import smoothed
from lpgnn.learners.two_round import (
    AnswerTables,
    Evidence,
    Known,
    Lesson,
    Neighbours,
    Vectors,
    ask_others,
    beyond_the_question,
    combined,
    composition_effects,
    conjugate_gradients,
    discriminant,
    evidence_parts,
    learn_directions,
    shrunken,
    teach,
)
from lpgnn.privacy import (
    Collected,
    RandomizedResponse,
    Respondents,
    Round,
    ScoreQuestion,
    TwoRound,
    VectorQuestion,
)
from propagation.graphs import seeded

from .block_graph import C, D, N, block_graph, collected, run_of, server_of


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


@pytest.mark.parametrize(
    ("energy", "kept"),
    # Of three classes: the likeliest 1 + effect is half the energy; effect / (1 + effect) is kept.
    [(1.0, 0.0), (4.0, 1 / 2), (10.0, 4 / 5), (34.0, 16 / 17)],
)
def test_a_coordinate_alone_is_shrunken_by_its_likeliest_effect(energy: float, kept: float) -> None:
    size = math.sqrt(energy / 4)  # energy = 2 squares (c - 1) / noise
    means = torch.tensor([[size], [-size], [0.0]], dtype=torch.float64)
    assert torch.allclose(shrunken(means, 1.0), kept * means, atol=2e-3)
    assert torch.allclose(shrunken(3 * means, 9.0), 3 * kept * means, atol=6e-3)  # no unit


def test_noise_is_shrunken_away_and_a_clear_effect_is_not() -> None:
    means = normal(3, 400)
    means -= means.mean(0)  # two degrees of freedom of variance 1
    means[:, 7] = torch.tensor([20.0, -20.0, 0.0])
    found = shrunken(means, 2.0)
    noise = torch.arange(400) != 7
    assert found[:, noise].square().sum() < 0.02 * means[:, noise].square().sum()
    assert torch.allclose(found[:, 7], means[:, 7], rtol=0.03)


def test_conjugate_gradients_solve() -> None:
    factor = normal(6, 6)
    matrix, right = torch.eye(6) + factor @ factor.t(), normal(2, 6, seed=1)
    found = conjugate_gradients(lambda x: x @ matrix, right)
    assert torch.allclose(found, torch.linalg.solve(matrix, right.t()).t(), atol=1e-6)


def test_effects_of_classes_are_differences_of_means() -> None:
    """Of known classes: 2, 3 and 5 nodes with mean values 1, 3 and 8, and noise of variance 1."""
    sizes = torch.tensor([2, 3, 5])
    classes = torch.arange(3).repeat_interleave(sizes)
    values = torch.tensor([1.0, 3.0, 8.0])[classes].double()
    values[0], values[1] = 0.5, 1.5
    composition = torch.nn.functional.one_hot(classes).t().double()
    effects, covariance = composition_effects(values[:, None], composition)
    assert effects[:, 0].tolist() == pytest.approx([-3, -1, 4])
    pair = torch.tensor([1.0, -1.0, 0.0], dtype=torch.float64)
    assert float(pair @ covariance @ pair) == pytest.approx(1 / 2 + 1 / 3)


def test_a_discriminant_is_the_dense_one() -> None:
    n, d, c = 60, 5, 3
    target = normal(c, n, seed=2).softmax(0)
    sent = normal(n, d, seed=3) + 4 * target.t() @ normal(c, d, seed=4)
    vectors = Vectors(torch.arange(n), sent.float(), scale=1.5, along=0.4)
    answers = 1.5 * vectors.sent.double()
    centred = target - target.mean(1, keepdim=True)
    inverse = torch.linalg.pinv(centred @ centred.t(), rtol=1e-9)
    means = shrunken(inverse @ centred @ answers, 1.5**2 * float(inverse.trace()))
    of_vectors = (answers.t() @ answers / n - 1.5**2 * torch.eye(d)) / (0.4 * 1.5**2)
    covariance = of_vectors - torch.outer(answers.mean(0), answers.mean(0))
    ridge = 2 * 1.5**2 * (2 * math.sqrt(d / n) + d / n)
    expected = torch.linalg.solve(torch.eye(d) + covariance / ridge, means.t()).t()
    assert expected.abs().max() > 1e-3
    assert torch.allclose(discriminant(vectors, target), expected, rtol=1e-3, atol=1e-5)


def test_directions_tell_classes_from_private_vectors() -> None:
    """Two classes with a word each: the direction of a class points at its word."""
    n = 4000
    classes = torch.arange(n) % 2
    z = torch.nn.functional.one_hot(classes, 4).float()
    question = VectorQuestion(4)
    answers = question.answers(CsrMatrix.from_dense(z), 4.0, generator=seeded())
    asked = collected(feature=None, mechanism=None)
    asked = replace(asked, x_eps=4.0, rounds=(Round(torch.arange(n), question, answers),))
    found = discriminant(Vectors.of(run_of(0, asked)), z[:, :2].t().double())
    difference = found[0] - found[1]
    assert difference[0] > 0 > difference[1]
    assert difference[2:].abs().max() < 0.5 * difference[:2].abs().min()


def lesson_about(
    features: Tensor, own: Tensor, others: Tensor, epsilon: float = 4.0, degree: int = 2
) -> Lesson:
    """What vectors teach if all nodes have as many neighbours.  [n, d], [c, n], [c, n]"""
    n = features.shape[0]
    question = VectorQuestion(features.shape[1])
    answers = question.answers(CsrMatrix.from_dense(features), epsilon, generator=seeded(4))
    asked = collected(feature=None, mechanism=None)
    asked = replace(asked, x_eps=epsilon, rounds=(Round(torch.arange(n), question, answers),))
    graph = server_of(asked).graph
    neighbours = Neighbours(graph.kprop("mean"), torch.full((n,), degree))
    return learn_directions(run_of(0, asked), {"own": own, "neighbours": others}, neighbours)


def test_a_lesson_is_about_whom_the_features_tell() -> None:
    """Features that name the node's class, or its neighbours' class, and nothing of the other."""
    n = 3000
    mine, theirs = (torch.randint(2, (n,), generator=seeded(s)) for s in (1, 2))
    own, others = (torch.nn.functional.one_hot(k, 2).t().double() for k in (mine, theirs))
    for told, about in ((mine, "own"), (theirs, "neighbours")):
        lesson = lesson_about(torch.nn.functional.one_hot(told, 4).float(), own, others)
        assert lesson.about == about
        assert lesson.information > 0.05


def test_a_lesson_about_neighbours_must_be_worth_it() -> None:
    """A third of the nodes tell their own class, two thirds their neighbours', by other words.

    An answer then says four times as much about neighbours, shared among all of them: it takes
    twice as much for one of them, and so one neighbour, not three.
    """
    n = 6000
    mine, theirs = (torch.randint(2, (n,), generator=seeded(s)) for s in (1, 2))
    own, others = (torch.nn.functional.one_hot(k, 2).t().double() for k in (mine, theirs))
    words = torch.where(torch.rand(n, generator=seeded(3)) < 1 / 3, mine, 2 + theirs)
    features = torch.nn.functional.one_hot(words, 4).float()
    assert lesson_about(features, own, others, degree=1).about == "neighbours"
    assert lesson_about(features, own, others, degree=3).about == "own"


def test_features_that_tell_nothing_teach_nothing() -> None:
    """What is uncertain counts for nothing: without features, information is often exactly 0."""
    n, found = 300, []
    for seed in range(12):
        classes, words = (torch.randint(2, (n,), generator=seeded(seed + s)) for s in (100, 200))
        own = torch.nn.functional.one_hot(classes, 2).t().double()
        features = torch.nn.functional.one_hot(words, 4).float()
        found.append(lesson_about(features, own, own[[1, 0]], epsilon=1.0).information)
    assert 3 <= found.count(0.0) < 12


def tables(
    answers: list[int], epsilon: float, pairs: list[list[int]] | None = None
) -> AnswerTables:
    question = ScoreQuestion(
        torch.zeros(3, 2),
        torch.tensor(pairs or [[0, 1]] * len(answers)),
        torch.zeros(3, 3, 1, dtype=torch.float64),
    )
    transition = RandomizedResponse(epsilon, 2).transition().double()
    return AnswerTables(torch.tensor(answers), question, transition)


def test_a_table_of_true_answers_is_a_table_of_counts() -> None:
    roles = torch.tensor([[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 0, 1]]).double()
    prior = torch.tensor([[1.0, 1.0, 3.0], [1.0, 2.0, 3.0]], dtype=torch.float64)
    own = tables([0, 0, 1, 1, 1, 0], 60.0)
    found = own._table(own.answers, roles, prior)
    expected = torch.tensor([[3 / 5, 1 / 5, 4 / 7], [2 / 5, 4 / 5, 3 / 7]], dtype=torch.float64)
    assert torch.allclose(found, expected)


def test_a_table_of_noisy_answers_is_rectified() -> None:
    """Truth is told 3 times in 4, and 0 is said by 60 and 30 of 100: (0.6 - 0.25) / 0.5 = 0.7."""
    own = tables([0] * 60 + [1] * 40 + [0] * 30 + [1] * 70, math.log(3))
    roles = torch.zeros(3, 200, dtype=torch.float64)
    roles[0, :100] = roles[1, 100:] = 1
    found = own._table(own.answers, roles, torch.full((2, 3), 1e-9, dtype=torch.float64))
    assert found[0, 0] == pytest.approx(0.7, abs=5e-3)
    assert found[0, 1] == pytest.approx(0.1, abs=5e-3)
    assert torch.allclose(found.sum(0), torch.ones(3).double())


def test_likelihoods_by_hand() -> None:
    """True answers of known classes, first of the pair and second, all alike: 0 and 1.

    With 20 answers for a start, half and half, the shared table counts every answer twice, once
    from either end: 10 + 40 of 20 + 40; a pair's own is 20 of that and its 20 answers.
    """
    own = tables([0] * 20 + [1] * 20, 60.0)
    belief = torch.zeros(3, 40, dtype=torch.float64)
    belief[0, :20] = belief[1, 20:] = 1
    found = own.likelihood(belief, torch.ones(40, dtype=torch.bool))
    shared = 50 / 60
    p = (20 * shared + 20) / 40
    for node in (0, 39):  # of one pair, and so of one table
        assert found[0, :, node].tolist() == pytest.approx([p, 1 - p, 0.5])
        assert found[1, :, node].tolist() == pytest.approx([1 - p, p, 0.5])


def test_answers_of_nodes_without_a_known_class_say_nothing() -> None:
    own = tables([0, 1, 0, 1], 3.0, [[0, 1], [0, 2], [1, 2], [0, 1]])
    belief = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)[:, None].expand(3, 4)
    found = own.likelihood(belief, torch.zeros(4, dtype=torch.bool))
    assert torch.allclose(found, torch.full((2, 3, 4), 0.5, dtype=torch.float64))


def test_a_question_is_cut_where_the_scores_of_a_pair_are() -> None:
    """Middle: the mean 0.5 - 0.2, moved by who is asked; quartiles of a deviation of 2."""
    lesson = Lesson(
        about="own",
        directions=torch.eye(3, dtype=torch.float64),
        effects=torch.diag(torch.tensor([2.0, 2.0, 2.0], dtype=torch.float64)),
        mean=torch.tensor([0.5, 0.2, 0.0], dtype=torch.float64),
        center=torch.tensor([0.4, 0.3, 0.3], dtype=torch.float64),
        spread=torch.full((3, 3), 4.0, dtype=torch.float64),
        information=1.0,
    )
    composition = torch.tensor([[0.5, 0.3], [0.4, 0.6], [0.1, 0.1]], dtype=torch.float64)
    question = lesson.question(composition, 4)
    assert question.pairs.tolist() == [[0, 1], [0, 1]]
    middle = 0.3 + 2 * (0.4 - 0.4) - 2 * (0.5 - 0.3)
    quartile = 0.6744897501960817
    expected = [middle - 2 * quartile, middle, middle + 2 * quartile]
    assert question.thresholds[0, 1].tolist() == pytest.approx(expected)


def asking(repeat: int, x_eps: float, *, y_eps: float = 1.0) -> Run:
    features = block_graph().features
    assert features is not None
    reports = collected(repeat, None, feature=None, y_eps=y_eps)
    users = Respondents(features, x_eps, generator=seeded(300 + repeat))
    return replace(run_of(repeat, replace(reports, x_eps=x_eps)), respondents=users)


def learnt(run: Run) -> Outcome:
    server = replace(server_of(run.collected), protocol=TwoRound())
    return TwoRoundLearner().fit([run], server)[0]


def test_every_node_is_asked_once() -> None:
    run = asking(0, 3.0)
    assert run.respondents is not None
    learnt(run)
    assert not run.respondents.may_answer.any()
    assert run.collected.rounds == ()  # the run before is as it was


def telling_graph(n: int = 1500) -> Graph:
    """Neighbours are of a node's class a little more often than not, its words nearly always."""
    generator = seeded(9)
    labels = torch.arange(n) % C
    ends = torch.randint(n, (2, 3 * n), generator=generator)
    agree = labels[ends[0]] == labels[ends[1]]
    edges = ends[:, agree | (torch.rand(3 * n, generator=generator) < 0.4)]
    own_words = torch.arange(D)[None] % C == labels[:, None]
    words = torch.rand(n, D, generator=generator) < torch.where(own_words, 0.5, 0.1)
    topology = Topology.from_edges(n, edges)
    features = CsrMatrix.from_dense(words.float())
    return Graph("telling", topology, features, labels, C, D, D)


def test_features_pay_and_blank_ones_do_not() -> None:
    graph = telling_graph()
    found = {}
    for name, settings in {
        "raw": {"learner": "two_round"},
        "blank": {"learner": "two_round", "feature": "blank"},
        "labels": {"learner": "label_propagation"},
    }.items():
        configuration = Settings(dataset=graph, x_eps=6.0, **settings).resolve()  # type: ignore[arg-type]
        rows = run_repeats(configuration, graph, range(2), device="cpu")
        found[name] = torch.tensor([row["paper/test/acc"] for row in rows])
    gain, none = found["raw"] - found["blank"], found["blank"] - found["labels"]
    assert gain.min() > 5, found
    assert none.mean() < 1, found


def test_evidence_of_blank_answers_has_little_to_say() -> None:
    n = 2000
    classes = torch.arange(n) % 2
    answers = torch.randint(2, (n,), generator=seeded())
    belief = torch.nn.functional.one_hot(classes, 3).t().double()
    found = tables(answers.tolist(), 2.0).likelihood(belief, torch.ones(n, dtype=torch.bool))
    ratio = (found[:, 0] / found[:, 1]).log().abs()
    honest = tables(classes.tolist(), 2.0).likelihood(belief, torch.ones(n, dtype=torch.bool))
    assert ratio.max() < 0.15 < 1.5 < (honest[:, 0] / honest[:, 1]).log().abs().min()


def test_who_was_not_asked_in_round_two_gives_no_evidence() -> None:
    run = asking(0, 3.0)
    nodes = torch.arange(0, N, 2)
    question = ScoreQuestion(
        torch.zeros(C, D),
        torch.tensor([[0, 1]]).expand(nodes.numel(), 2),
        torch.zeros(C, C, 1, dtype=torch.float64),
    )
    rounds = (
        Round(torch.arange(1, N, 2), VectorQuestion(D), torch.zeros(N // 2, dtype=torch.int64)),
        Round(nodes, question, torch.arange(nodes.numel()) % 2),
    )
    run = replace(run, collected=replace(run.collected, rounds=rounds))
    belief = torch.full((C, N), 1 / C, dtype=torch.float64)
    targets = {"own": belief, "neighbours": belief}
    everybody = torch.ones(N, dtype=torch.bool)
    found = Evidence.read(run, targets, torch.full((N,), 3), everybody)
    assert not found.own[:, 1::2].any()
    assert not found.about_neighbours[:, 1::2].any()
    assert torch.allclose(found.own.sum(0), torch.zeros(N), atol=1e-6)


def test_what_an_answer_says_is_beyond_its_question() -> None:
    """Pair (0, 1) was answered by 0, 0 and 1: a node's answers say 2/3 and 1/3 of their values."""
    log = torch.tensor(
        [
            [[3.0, 6.0, 9.0, 4.0], [0.0, 3.0, 0.0, 4.0]],  # of answer 0, by class and node
            [[-3.0, 0.0, 3.0, 1.0], [3.0, 3.0, 6.0, 1.0]],
        ],
        dtype=torch.float64,
    )
    pairs = torch.tensor([[0, 1], [0, 1], [0, 1], [1, 2]])
    found = beyond_the_question(log, torch.tensor([0, 0, 1, 0]), pairs)
    # Node 0: 3 - (2 * 3 - 3) / 3 = 2 and 0 - 3 / 3 = -1; the last pair has one answer: nothing.
    expected = [[2.0, 2.0, -4.0, 0.0], [-1.0, 0.0, 4.0, 0.0]]
    assert torch.allclose(found, torch.tensor(expected, dtype=torch.float64))


def test_answers_that_all_agree_say_nothing() -> None:
    """Users without features all lie in one cell: their answers tell the question, no class."""
    run = asking(0, 3.0)
    question = ScoreQuestion(
        torch.zeros(C, D),
        torch.tensor([[0, 1], [1, 2]]).repeat(N // 2, 1),
        torch.zeros(C, C, 1, dtype=torch.float64),
    )
    everybody = torch.arange(N)
    nobody = Round(everybody[:0], VectorQuestion(D), torch.zeros(0, dtype=torch.int64))
    same = Round(everybody, question, torch.zeros(N, dtype=torch.int64))
    run = replace(run, collected=replace(run.collected, rounds=(nobody, same)))
    classes = (torch.arange(N) % 10).clamp(max=2)  # the rarer, the nearer to its table's prior
    belief = torch.nn.functional.one_hot(classes, C).t().double()
    seen, degrees = torch.ones(N, dtype=torch.bool), torch.arange(N) % 7
    found = Evidence.read(run, {"own": belief, "neighbours": belief}, degrees, seen)
    assert torch.allclose(found.own, torch.zeros(C, N), atol=1e-6)
    assert torch.allclose(found.about_neighbours, torch.zeros(C, N), atol=1e-6)


def test_an_answer_about_neighbours_is_about_one_of_them() -> None:
    """Answers that name the neighbours' class say the less of one, the more neighbours there are.

    And what was learnt about own classes is learnt from seen nodes alone.
    """
    run = asking(0, 6.0)
    question = ScoreQuestion(
        torch.zeros(C, D),
        torch.tensor([[0, 1]]).repeat(N, 1),
        torch.zeros(C, C, 1, dtype=torch.float64),
    )
    everybody, classes = torch.arange(N), torch.arange(N) % 2
    nobody = Round(everybody[:0], VectorQuestion(D), torch.zeros(0, dtype=torch.int64))
    told = Round(everybody, question, 1 - classes)
    run = replace(run, collected=replace(run.collected, rounds=(nobody, told)))
    belief = torch.nn.functional.one_hot(classes, C).t().double()
    degrees = torch.where(everybody < N // 2, 1, 10)
    seen = torch.zeros(N, dtype=torch.bool)
    found = Evidence.read(run, {"own": belief, "neighbours": belief}, degrees, seen)
    assert not found.own.abs().gt(1e-6).any()
    near, far = (found.about_neighbours[0, nodes] for nodes in (0, N // 2))
    assert near > 4 * far > 0


def test_neighbours_answers_are_summed_and_those_of_the_next_averaged() -> None:
    """Against the dense adjacency matrix."""
    run = asking(0, 3.0)
    topology = run.collected.topology
    operator = server_of(run.collected).graph.kprop("mean")
    degrees = topology.without_self_loops().indptr.diff()
    said = normal(C, N, seed=9).float()
    one, two = Evidence(torch.zeros(C, N), said).from_neighbours(Neighbours(operator, degrees))
    dense = torch.zeros(N, N)
    for node in range(N):
        start, end = topology.indptr[node], topology.indptr[node + 1]
        dense[node, topology.indices[start:end]] = 1
    dense.fill_diagonal_(0)
    assert torch.allclose(one, said @ dense.t(), atol=1e-4)
    assert torch.allclose(two, one @ (dense / degrees.clamp(min=1)[:, None]).t(), atol=1e-4)


def test_too_few_answers_are_refused() -> None:
    """Users over the wire may stay silent: one vector teaches nothing."""
    run = asking(0, 8.0)
    known = TwoRoundLearner().known(run.collected, server_of(run.collected).graph)
    protocol = TwoRound(share=0.001)  # one node
    with pytest.raises(InputError, match="round one=1 answers: at least 6 are needed; "):
        teach(run, protocol, known)


def test_round_one_asks_a_random_part_that_grows_with_the_noise_of_labels() -> None:
    asked, counts = [], []
    for repeat, y_eps in ((0, math.inf), (1, math.inf), (0, 1.0)):
        run = asking(repeat, 60.0, y_eps=y_eps)
        known = TwoRoundLearner().known(run.collected, server_of(run.collected).graph)
        labelled = (run.collected.labels.classes >= 0).nonzero().flatten()
        run, _ = teach(run, TwoRound(), known)
        nodes = run.collected.rounds[0].nodes
        asked.append(torch.isin(labelled, nodes).tolist())
        counts.append(nodes.numel() / labelled.numel())
    assert asked[0] != asked[1]
    assert asked[0] != sorted(asked[0], reverse=True)  # not simply the first ones
    assert counts[2] > counts[0]


def played(run: Run) -> tuple[Run, Known]:
    learner, protocol = TwoRoundLearner(), TwoRound()
    known = learner.known(run.collected, server_of(run.collected).graph)
    run, lesson = teach(run, protocol, known)
    return ask_others(run, protocol, known, lesson), known


def plainly(known: Known, reports: Collected) -> Known:
    """Labels propagated by two lazy steps, as how far is otherwise chosen by all labels."""
    fold = known.propagated.fold
    folds = len(known.propagated.without) - 1
    shown = [reports.labels.estimate * ((fold != f) & (fold < folds)) for f in range(folds + 1)]
    without = torch.stack([4 * smoothed(z, known.operator, 2) for z in shown])
    own = of_own_fold(without, fold)
    return replace(known, propagated=replace(known.propagated, scores=own, without=without))


def test_no_part_of_a_node_s_evidence_has_seen_its_label() -> None:
    """After both rounds another label is put in a node's place: no part of its evidence changes."""
    run, known = played(asking(0, 6.0, y_eps=math.inf))
    before = evidence_parts(run, plainly(known, run.collected))
    assert len(before) == 5
    assert all(part.shape == (C, N) for part in before)
    labels = run.collected.labels
    labelled = (labels.classes >= 0).nonzero().flatten()
    node = int(labelled[3])
    other = (int(labels.classes[node]) + 1) % C
    one_hot = torch.nn.functional.one_hot(torch.tensor(other), C).float()
    changed = {}
    for name in ("classes", "likelihood", "estimate"):
        values = getattr(labels, name).clone()
        values[..., node] = other if name == "classes" else one_hot
        changed[name] = values
    reports = replace(run.collected, labels=replace(labels, **changed))
    after = evidence_parts(replace(run, collected=reports), plainly(known, reports))
    seen_by_others = False
    for one, two in zip(before, after, strict=True):
        assert torch.allclose(one[:, node], two[:, node], atol=1e-5)
        seen_by_others |= not torch.allclose(one, two, atol=1e-3)
    assert seen_by_others


def other_labels(run: Run, nodes: Tensor) -> Run:
    """The same run where some nodes have reported the next class, without noise."""
    labels = run.collected.labels
    classes = torch.where(nodes, (labels.classes + 1) % C, labels.classes)
    one_hot = torch.nn.functional.one_hot(classes.clamp(min=0), C).t().float()
    changed = {
        "classes": classes,
        "likelihood": torch.where(nodes, one_hot, labels.likelihood),
        "estimate": torch.where(nodes, one_hot, labels.estimate),
    }
    reports = replace(run.collected, labels=replace(labels, **changed))
    return replace(run, collected=reports)


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("labels", ["train", "train+val"])
def test_labels_that_take_no_part_teach_nothing(labels: Labels, private: bool) -> None:
    """With labels=train nothing that is asked changes with the validation nodes' labels."""
    learner, lessons = TwoRoundLearner(labels=labels), []
    for with_others in (False, True):
        run = asking(0, 6.0, y_eps=1.0 if private else math.inf)
        graph = server_of(run.collected).graph
        known = plainly(learner.known(run.collected, graph), run.collected)
        validation = (run.collected.labels.classes >= 0) & ~run.collected.train_mask
        assert validation.any()
        if with_others:
            run = other_labels(run, validation)
            known = plainly(known, run.collected)
        run, lesson = teach(run, TwoRound(), known)
        taught = validation[run.collected.rounds[0].nodes]
        assert bool(taught.any()) == (labels == "train+val")
        lessons.append((lesson, known.targets(run), evidence_parts_of(run, known, lesson)))
    (one, targets, parts), (two, other_targets, other_parts) = lessons
    assert torch.equal(one.directions, two.directions) == (labels == "train")
    for name, target in targets.items():
        assert torch.equal(target, other_targets[name]) == (labels == "train")
    if labels == "train":
        assert all(map(torch.equal, parts, other_parts))


def evidence_parts_of(run: Run, known: Known, lesson: Lesson) -> list[Tensor]:
    return evidence_parts(ask_others(run, TwoRound(), known, lesson), known)


def test_the_first_round_of_earlier_rows_is_named_by_their_identity() -> None:
    """Only rows with labels=train differ: with all labels the first round was as it is."""
    train, earlier = (TwoRoundLearner(labels="train", first=f) for f in ("labels", "labelled"))
    assert train.identity["options"]["first"] == "labels"
    assert "first" not in earlier.identity["options"]
    assert TwoRoundLearner().identity == TwoRoundLearner(first="labelled").identity
    run = asking(0, 3.0)
    server = replace(server_of(run.collected), protocol=TwoRound())
    with pytest.raises(InputError, match="first=labelled: names earlier rows; a run must have lab"):
        earlier.fit([run], server)
    with pytest.raises(InputError, match="first=all: must be labels"):
        TwoRoundLearner(first="all")  # type: ignore[arg-type]


def test_scores_that_say_nothing_change_no_prediction() -> None:
    """But for the classes' biases, what is left are the propagated labels."""
    run = asking(0, 3.0, y_eps=math.inf)
    labels = torch.nn.functional.one_hot(block_graph().labels, C).t().float()
    nothing = torch.zeros(C, N)
    found = combined([4 * labels, nothing, nothing, nothing, nothing], run)
    assert torch.equal(found.scores.argmax(0), block_graph().labels)
    one = found.choice.split()
    assert one[1:5] == ["0.00"] * 4


def test_weights_by_hand() -> None:
    """L clean labels and a part that gives t to each true class of three: a fixed point.

    The loss is log(1 + 2 exp(-w t)) and the ridge 4 w^2 / L, so that w (2 + exp(w t)) = L t / 4.
    """
    run = asking(0, 3.0, y_eps=math.inf)
    num_labels, t = int((run.collected.labels.classes >= 0).sum()), 0.2
    part = t * torch.nn.functional.one_hot(block_graph().labels, C).t().float()
    weight = float(combined([torch.zeros(C, N), part], run).choice.split()[1])
    assert weight * (2 + math.exp(weight * t)) == pytest.approx(num_labels * t / 4, rel=0.02)
    assert weight > 1  # as many labels as these are heard


def test_few_and_noisy_labels_leave_the_answers_out() -> None:
    """Evidence of nothing at all: with private labels its weight is near 0, not near 1."""
    run = asking(0, 3.0, y_eps=0.2)
    noise = torch.randn(C, N, generator=seeded(5))
    scores = 0.1 * torch.randn(C, N, generator=seeded(6))
    found = combined([scores, noise], run)
    assert abs(float(found.choice.split()[1])) < 0.1


def test_biases_count_in_units_of_the_labels_spread() -> None:
    """Labels that hardly differ are not outvoted by a class's bias: predictions stay."""
    run = asking(0, 3.0, y_eps=1.0)
    scores = 1e-3 * torch.randn(C, N, generator=seeded(6))
    found = combined([scores], run)
    assert (found.scores.argmax(0) == scores.argmax(0)).float().mean() > 0.95


def test_earlier_rows_are_not_taken_for_this_learner_s() -> None:
    assert TwoRoundLearner().identity["options"]["evidence"] == "held_out"
    assert TwoRoundLearner.earlier_options() == {"evidence": "in_sample", "first": "labelled"}
    earlier = TwoRoundLearner(evidence="in_sample")  # their rows can be read, and no more be made
    assert "evidence" not in earlier.identity["options"]
    run = asking(0, 3.0)
    server = replace(server_of(run.collected), protocol=TwoRound())
    with pytest.raises(
        InputError, match="evidence=in_sample: names earlier rows; a run must have held_out"
    ):
        earlier.fit([run], server)
    assert run.respondents is not None
    assert run.respondents.may_answer.all()  # nobody was asked in vain
    with pytest.raises(InputError, match="evidence=whole: must be held_out"):
        TwoRoundLearner(evidence="whole")  # type: ignore[arg-type]


def test_it_needs_users_and_a_protocol() -> None:
    run = asking(0, 3.0)
    with pytest.raises(InputError, match="needs protocol=two_round"):
        TwoRoundLearner().fit([run], server_of(run.collected))
    with pytest.raises(InputError, match="needs users who answer"):
        replace(run, respondents=None).ask(torch.tensor([0]), VectorQuestion(D))
    with pytest.raises(InputError, match="cannot learn again from a file"):
        TwoRoundLearner().apply({}, run, server_of(run.collected), "paper")


def test_users_have_the_budget_of_the_run() -> None:
    from lpgnn.config import Settings
    from lpgnn.engine import respondents_of

    configuration = Settings(dataset="sbm", learner="two_round", x_eps=0.7, y_eps=1.0).resolve()
    graph = configuration.dataset.load(Path())
    users = respondents_of(configuration, graph, 0, torch.arange(graph.num_nodes))
    assert users is not None
    assert users.epsilon == 0.7
