"""What the parts of the two-round learner are worth, and why features pay on some graphs only.

All variants of a repeat share its answers: the rounds are played once, and the scores are put
together in several ways.  Every variant has its own blank control, on users without features.  Two
must gain nothing: the answers of other nodes that were asked about the same pair of classes, and,
but for luck, directions with their coordinates shuffled.

The diagnosis looks at clean features, as no server can: how good is the classifier of round one on
the test nodes' own features, how often is it right where the propagated labels are wrong, and what
would be reached if its scores came without noise, or if the classifier itself were learnt from
clean features and labels.

Both run on seed 500, on which the learner was developed; no result is reported for it.
``python scripts/two_round_ablations.py [--data-dir data] [--repeats 10]`` writes
``results/two_round_ablations.csv`` and ``results/two_round_diagnosis.csv``.  Lines that are there
already are not computed again.  A repeat of Pubmed takes about 7 s of one core for each pair of
budgets, everything about half an hour.
"""

import argparse
import csv
import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from lpgnn.config import Configuration, Settings
from lpgnn.data import Graph
from lpgnn.data.sparse import CsrMatrix
from lpgnn.engine import collect_repeat, respondents_of, run_of, split_of
from lpgnn.kernels import Backend
from lpgnn.learners import ForwardCorrection, Run, Server, TwoRoundLearner
from lpgnn.learners.label_propagation import Walk
from lpgnn.learners.residual import smoothed, with_reports
from lpgnn.learners.two_round import (
    Lesson,
    ask_others,
    combined,
    evidence_parts,
    teach,
)
from lpgnn.models import GraphSAGE
from lpgnn.privacy import FeatureReports, ScoreQuestion, TwoRound
from lpgnn.privacy.questions import unit_vectors
from lpgnn.propagation import KProp, Operator, PreparedGraph
from lpgnn.rows import write_atomically
from lpgnn.rows.metrics import accuracy, roc_auc

SEED = 500
INF = float("inf")
BUDGETS = [(x_eps, y_eps) for y_eps in (INF, 1.0) for x_eps in (2.0, 3.0, 8.0)]
ABLATED = ("pubmed", "cora", "minesweeper", "tolokers")
DIAGNOSED = ("cora", "citeseer", "pubmed", "facebook", "actor")
_FLOOR = 1e-12


@dataclass(frozen=True)
class Users:
    """One repeat: the server's side of it, and the truth, in the server's node order."""

    configuration: Configuration
    run: Run
    prepared: PreparedGraph
    labels: Tensor  # [N], clean
    test: Tensor  # [N] bool
    features: CsrMatrix  # [N, d]: the unit vectors on the devices

    @classmethod
    def of(cls, settings: Settings, graph: Graph, prepared: PreparedGraph, repeat: int) -> "Users":
        c, order = settings.resolve(), prepared.order.cpu()
        split = split_of(c, graph, repeat)
        run = run_of(c, repeat, collect_repeat(c, graph, split, repeat), prepared)
        run = replace(run, respondents=respondents_of(c, graph, repeat, order))
        assert c.feature is not None
        features = unit_vectors(c.feature.vectors(graph).select_rows(order))
        return cls(c, run, prepared, graph.labels[order], split.test[order], features)

    @property
    def operator(self) -> Operator:
        return self.prepared.kprop("gcn")

    @property
    def feature_name(self) -> str:
        return "" if self.configuration.feature is None else self.configuration.feature.name

    def measure(self, scores: Tensor) -> float:
        """Accuracy on the test nodes; with two classes, the area under the ROC curve.  [c, N]"""
        labels, predicted = self.labels[self.test].numpy(), scores.argmax(0)[self.test].numpy()
        if scores.shape[0] > 2:
            return accuracy(labels, predicted, None)
        return roc_auc(labels, predicted, scores.softmax(0).t()[self.test].numpy())


@dataclass(frozen=True)
class Played:
    """Both rounds of a repeat, as the learner plays them, up to where the scores are combined."""

    run: Run
    lesson: Lesson
    parts: list[Tensor]  # each [c, N]: see ``evidence_parts``

    def combined(self, parts: list[Tensor]) -> Tensor:
        """Put parts together by the private labels, as the learner does it.  -> [c, N]"""
        return combined(parts, self.run).scores

    @property
    def labels_only(self) -> Tensor:
        return self.parts[0]

    @property
    def present(self) -> Tensor:
        return self.combined(self.parts)


def play(
    users: Users, *, shuffled: bool = False, swapped: bool = False, walk: Walk | None = None
) -> Played:
    """Play both rounds.

    shuffled: the directions' coordinates; swapped: answers of other nodes; walk: another one
    """
    learner, protocol = users.configuration.learner, users.configuration.protocol
    assert isinstance(learner, TwoRoundLearner)
    assert isinstance(protocol, TwoRound)
    learner = replace(learner, walk=walk or learner.walk)
    known = learner.known(users.run.collected, users.prepared)
    run, lesson = teach(users.run, protocol, known)
    generator = torch.Generator().manual_seed(SEED)
    if shuffled:
        places = torch.randperm(lesson.directions.shape[1], generator=generator)
        lesson = replace(lesson, directions=lesson.directions[:, places])
    run = ask_others(run, protocol, known, lesson)
    if swapped:
        run = _swapped(run, generator)
    return Played(run, lesson, evidence_parts(run, known))


def _swapped(run: Run, generator: torch.Generator) -> Run:
    """The answers of round two, dealt anew among the nodes that were asked about one pair."""
    second = run.collected.rounds[1]
    assert isinstance(second.question, ScoreQuestion)
    assert isinstance(second.answers, Tensor)
    answers = second.answers.clone()
    for pair in second.question.pairs.unique(dim=0):
        places = (second.question.pairs == pair).all(1).nonzero().flatten()
        answers[places] = answers[places[torch.randperm(len(places), generator=generator)]]
    rounds = (run.collected.rounds[0], replace(second, answers=answers))
    return replace(run, collected=replace(run.collected, rounds=rounds))


def _log(p: Tensor) -> Tensor:
    return (p / p.sum(0)).clamp(min=_FLOOR).log()


def variants(users: Users) -> Iterator[tuple[str, float]]:
    """Each way to put the answers together, and what it reaches."""
    played = play(users)
    labels, operator, parts = played.run.collected.labels, users.operator, played.parts
    scores, own, one, two, spread = parts
    present = played.present
    yield "present", users.measure(present)
    yield "own answer only", users.measure(played.combined([scores, own]))
    yield "neighbours' answers only", users.measure(played.combined([scores, one, two]))
    yield "no beliefs spread", users.measure(played.combined([scores, own, one, two]))
    yield "no neighbours' answers", users.measure(played.combined([scores, own, spread]))
    posterior = with_reports(present.softmax(0), labels).clamp(min=_FLOOR)
    for steps in (1, 4):
        name = f"smoothed at the end, {steps} step{'s' if steps > 1 else ''}"
        yield name, users.measure(_log(smoothed(posterior, operator, steps)))
    yield "degrees weighed, too", users.measure(played.combined([*parts, *degree_parts(played)]))
    yield "a network on top", users.measure(with_network(users, played.run, present))


def degree_parts(played: Played) -> list[Tensor]:
    """The logarithm of a node's degree, once for each class.  -> c times [c, N]"""
    topology = played.run.collected.topology.without_self_loops()
    size = topology.indptr.diff().float().log1p()
    size = (size - size.mean()) / size.std() * played.labels_only.std()
    return list(torch.eye(len(played.labels_only))[:, :, None] * size)


@dataclass(frozen=True)
class OnTop(ForwardCorrection):
    """A network that adds to given scores."""

    scores: Tensor = field(default_factory=lambda: torch.zeros(0), kw_only=True)

    def prior(self, runs: Sequence[Run], server: Server) -> Tensor:
        return self.scores[None]


def with_network(users: Users, run: Run, scores: Tensor) -> Tensor:
    """What a network adds that knows the graph and no features.  [c, N] -> [c, N]

    As the residual learner's, on random codes of the nodes that are propagated far.
    """
    n, codes = run.collected.num_nodes, 512
    generator = run.streams.generator("codes")
    places = torch.randint(codes, (n,), generator=generator)
    signs = 2.0 * torch.randint(2, (n,), generator=generator) - 1
    sent = CsrMatrix(torch.arange(n + 1), places, signs, (n, codes))
    features = FeatureReports(sent, scale=1.0, offset=0.0, magnitude=codes**-0.5)
    run = replace(
        run,
        collected=replace(run.collected, features=features),
        learning_rate=3e-4,
        weight_decay=1e-4,
        dropout=0.75,
    )
    server = Server(
        users.prepared,
        KProp(steps=16, conditioning="node"),
        GraphSAGE(),
        max_epochs=200,
        keep_probabilities=True,
    )
    (outcome,) = OnTop(scores=scores - scores.mean(0)).fit([run], server)
    found = outcome.selected["released"].probabilities
    assert found is not None
    return _log(found)


def ablations(make: Callable[[], Users]) -> dict[str, float]:
    """All variants of a repeat; those that must gain nothing on users with features only.

    make: the users anew, as whoever has answered once is never asked again
    """
    users, other = make(), make()
    found = dict(variants(users))
    found["labels by the lazy walk"] = other.measure(play(other, walk="lazy").present)
    if users.feature_name != "blank":
        shuffled, swapped = make(), make()
        found["shuffled directions"] = shuffled.measure(play(shuffled, shuffled=True).present)
        found["answers of other nodes"] = swapped.measure(play(swapped, swapped=True).present)
    return found


def diagnosis(make: Callable[[], Users]) -> dict[str, float]:
    """How much the classifier of round one knows that the propagated labels do not, in per cent.

    What is fitted here is fitted by clean labels of nodes that had no part in the classifier.
    """
    users = make()
    played = play(users)
    labels, collected = users.labels, played.run.collected
    first = torch.zeros(labels.numel(), dtype=torch.bool)
    first[collected.rounds[0].nodes] = True
    rest = (collected.labels.classes >= 0) & ~first
    without = played.labels_only
    classifier = calibrated(scores_of(users.features, played.lesson.directions), labels, rest)
    best = clean_classifier(users.features, labels, first)
    right, knows = (s.argmax(0)[users.test] == labels[users.test] for s in (without, classifier))
    majority = torch.bincount(labels[users.test]).max() / users.test.sum()
    return {
        "majority": 100 * float(majority),
        "labels": users.measure(without),
        "classifier": users.measure(classifier),
        "right_where_labels_wrong": 100 * float(knows[~right].float().mean()),
        "wrong_where_labels_right": 100 * float((~knows[right]).float().mean()),
        "private": users.measure(played.present),
        "honest": users.measure(mixed(without, classifier, labels, rest)),
        "clean_classifier": users.measure(best),
        "clean": users.measure(mixed(without, best, labels, rest)),
    }


def mixed(scores: Tensor, more: Tensor, labels: Tensor, known: Tensor) -> Tensor:
    """Scores and as much of others as serves the accuracy on known nodes best.  [c, N]"""
    weights = [0.0, *(math.pow(2, i / 2) for i in range(-8, 17))]
    tried = [scores + weight * more for weight in weights]
    right = [float((one.argmax(0) == labels)[known].float().mean()) for one in tried]
    return tried[right.index(max(right))]


def scores_of(z: CsrMatrix, directions: Tensor) -> Tensor:
    """<w_k, z_v> for all nodes and classes.  [N, d], [c, d] -> [c, N]"""
    scores: Tensor = (_matrix(z) @ directions.double().t()).t()
    return scores


def _matrix(z: CsrMatrix) -> Tensor:
    values = z.values.double()
    found: Tensor = torch.sparse_csr_tensor(z.indptr, z.indices, values, z.shape)
    return found


def calibrated(scores: Tensor, labels: Tensor, known: Tensor) -> Tensor:
    """Logits by multinomial logistic regression on c scores.  [c, N] -> [c, N]"""
    scores = (scores - scores.mean(1, keepdim=True)) / scores.std(1, keepdim=True).clamp(min=1e-12)
    c, some = len(scores), scores[:, known]
    weights = _regression(lambda w: w[:, :-1] @ some + w[:, -1:], labels[known], c, c + 1, 1e-4)
    return (weights[:, :-1] @ scores + weights[:, -1:]).float()


def clean_classifier(z: CsrMatrix, labels: Tensor, known: Tensor) -> Tensor:
    """Logits by multinomial logistic regression on the clean vectors.  [N, d] -> [c, N]"""
    c, nodes = int(labels.max()) + 1, known.nonzero().flatten()
    matrix, d = _matrix(z.select_rows(nodes)), z.shape[1]
    weights = _regression(
        lambda w: (matrix @ w[:, :-1].t()).t() + w[:, -1:], labels[nodes], c, d + 1, 1e-3
    )
    return (scores_of(z, weights[:, :-1]) + weights[:, -1:]).float()


def _regression(
    logits: Callable[[Tensor], Tensor], labels: Tensor, c: int, width: int, ridge: float
) -> Tensor:
    """Minimise cross entropy and a ridge.  -> [c, width]"""
    weights = torch.zeros(c, width, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(logits(weights).t(), labels)
        value = loss + ridge * weights.square().sum() / 2
        value.backward()
        return value

    optimizer.step(closure)
    return weights.detach()


@dataclass(frozen=True)
class Options:
    data_dir: Path
    repeats: int


Measure = Callable[[Callable[[], Users]], dict[str, float]]
KEYS = ("dataset", "y_eps", "x_eps", "feature", "seed", "repeat")


def extend(
    path: Path,
    measure: Measure,
    datasets: Sequence[str],
    features: Sequence[str],
    budgets: Sequence[tuple[float, float]],
    options: Options,
) -> None:
    """Add the lines that a file lacks: one for each graph, pair of budgets, feature and repeat."""
    lines: list[dict[str, str]] = []
    if path.is_file():
        with path.open(newline="", encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
    done = {tuple(line[key] for key in KEYS) for line in lines}
    for dataset in datasets:
        graph = prepared = None
        for x_eps, y_eps in budgets:
            for feature in features:
                settings = Settings(
                    dataset=dataset,
                    learner="two_round",
                    feature=feature,
                    x_eps=x_eps,
                    y_eps=y_eps,
                    seed=SEED,
                    data_dir=options.data_dir,
                )
                for repeat in range(options.repeats):
                    numbers = (f"{y_eps:g}", f"{x_eps:g}", feature, str(SEED), str(repeat))
                    if (dataset, *numbers) in done:
                        continue
                    graph = graph or settings.resolve().dataset.load(options.data_dir)
                    prepared = prepared or PreparedGraph(graph.topology, Backend.choose("cpu"))
                    make = partial(Users.of, settings, graph, prepared, repeat)
                    found = {name: f"{value:.3f}" for name, value in measure(make).items()}
                    lines.append({**dict(zip(KEYS, (dataset, *numbers), strict=True)), **found})
                    text = io.StringIO()
                    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
                    writer.writeheader()
                    writer.writerows(lines)
                    write_atomically(path, text.getvalue())
                    print(", ".join(f"{k} {v}" for k, v in lines[-1].items()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--ablated", nargs="*", default=ABLATED, metavar="GRAPH")
    parser.add_argument("--diagnosed", nargs="*", default=DIAGNOSED, metavar="GRAPH")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # as every run does
    torch.sparse.check_sparse_tensor_invariants.enable()
    out: Path = given.out
    options = Options(given.data_dir, given.repeats)
    path = out / "two_round_ablations.csv"
    extend(path, ablations, given.ablated, ("raw", "blank"), BUDGETS, options)
    fewer = replace(options, repeats=min(options.repeats, 3))
    some = [budgets for budgets in BUDGETS if budgets[0] > 2]
    path = out / "two_round_diagnosis.csv"
    extend(path, diagnosis, given.diagnosed, ("raw",), some, fewer)


if __name__ == "__main__":
    main()
