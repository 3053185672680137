"""Two rounds: some nodes teach the server a classifier, the others tell what they make of it.

A report of a whole feature vector says little about the node that sent it and much, with thousands
of others, about the classes.  So a part of the labelled nodes sends vectors in round one; the
server learns a direction for each class from them and publishes it; and every other node answers
one small question about its own score, which randomized response hardly disturbs.  The answers are
evidence beside the propagated labels.

How much they are worth is learnt from the label reports.  So, given the questions, the evidence of
a node is made without the labels of its own fold, and what a question says before it is answered
is subtracted: labels chose it.  Who was asked what, the published directions and the few weights
that all nodes share still depend on all labels.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from lpgnn.components import before
from lpgnn.errors import InputError
from lpgnn.learners.label_propagation import (
    Combine,
    Labels,
    LabelScores,
    PropagatedLabels,
    Walk,
    check_options,
    fit_weights,
    label_scores,
    of_own_fold,
    outcome_of,
    report_losses,
)
from lpgnn.learners.learner import Learner, Outcome, Run, Server
from lpgnn.learners.residual import smoothed, with_reports
from lpgnn.models import Weights
from lpgnn.privacy import Collected, FeatureReports, ScoreQuestion, TwoRound, VectorQuestion
from lpgnn.propagation import Aggregator, Operator, PreparedGraph

_FOLDS = 3
_CLEARLY = 2.0  # times as much information
# Sizes of a true effect that a coordinate may have, in variances of its noise.
_EFFECTS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
# What tables of answers are worth before any answer has come: this many answers.
_PRIOR_ANSWERS = 20.0
# Weights are normal about "labels only" before any label is seen, of variance 1 / (2 ridge).
_RIDGE = 4.0
_SPREAD_STEPS = 4


@dataclass(frozen=True)
class TwoRoundLearner(Learner):
    """Propagated labels, and what nodes answer about their own features.

    The options are those of the propagated labels, as for label_propagation.
    """

    name: ClassVar[str] = "two_round"
    uses_network: ClassVar[bool] = False
    asks: ClassVar[bool] = True
    suggests: ClassVar[dict[str, Any]] = {"protocol": "two_round"}

    walk: Walk = "coded"
    combine: Combine = "stack"
    aggregator: Aggregator = "gcn"
    labels: Labels = "train+val"
    # in_sample names earlier rows, whose evidence had seen a node's own label; no more are made.
    evidence: Literal["held_out", "in_sample"] = field(
        default="held_out", metadata=before("in_sample")
    )

    # labelled names earlier rows with labels=train, whose first round had asked validation nodes
    # as well and learnt from their labels; no more are made.
    first: Literal["labels", "labelled"] = field(default="labels", metadata=before("labelled"))

    def __post_init__(self) -> None:
        check_options(self.walk, self.combine, self.aggregator, self.labels)
        if self.evidence not in ("held_out", "in_sample"):
            raise InputError("evidence", self.evidence, "must be held_out")
        if self.first not in ("labels", "labelled"):
            raise InputError("first", self.first, "must be labels")

    @property
    def identity(self) -> dict[str, Any]:
        """Where all labels take part, ``first`` makes no difference."""
        own = super().identity
        if self.labels == "train+val":
            own["options"].pop("first", None)
        return own

    def fit(self, runs: Sequence[Run], server: Server) -> list[Outcome]:
        outcomes = []
        for run in runs:
            outcomes.append(self._learn(run, server))
            if server.on_epoch is not None:
                server.on_epoch()
        return outcomes

    def apply(self, weights: Weights, run: Run, server: Server, rule: str) -> Tensor:
        allowed = "asks its users while it learns: it cannot learn again from a file"
        raise InputError("learner", self.name, allowed)

    def _learn(self, run: Run, server: Server) -> Outcome:
        protocol, respondents = server.protocol, run.respondents
        if not isinstance(protocol, TwoRound) or respondents is None:
            raise InputError("learner", self.name, "needs protocol=two_round")
        if self.evidence != "held_out":
            allowed = "names earlier rows; a run must have held_out"
            raise InputError("learner.evidence", self.evidence, allowed)
        if self.first != "labels":
            allowed = "names earlier rows; a run must have labels"
            raise InputError("learner.first", self.first, allowed)
        known = self.known(run.collected, server.graph)
        run, lesson = teach(run, protocol, known)
        run = ask_others(run, protocol, known, lesson)
        return outcome_of(combined(evidence_parts(run, known), run), run.collected)

    def known(self, collected: Collected, graph: PreparedGraph) -> "Known":
        """What the server knows before it asks."""
        propagated = label_scores(
            collected, graph, self.aggregator, self.walk, self.combine, self.labels
        )
        degrees = collected.topology.without_self_loops().indptr.diff()
        neighbours = Neighbours(graph.kprop("mean"), degrees)
        return Known(propagated, graph.kprop(self.aggregator), neighbours)


@dataclass(frozen=True)
class Neighbours:
    """Means and sums over neighbours."""

    operator: Operator
    degrees: Tensor  # [N]

    def mean(self, x: Tensor) -> Tensor:  # [c, N] -> [c, N]
        device = self.operator.matrix.device
        return self.operator.propagate_classes(x.float().to(device)[None])[0].cpu()

    def sum(self, x: Tensor) -> Tensor:  # [c, N] -> [c, N]
        return self.mean(x) * self.degrees


@dataclass(frozen=True)
class Known:
    """The propagated labels, and the graph they came by."""

    propagated: PropagatedLabels
    operator: Operator
    neighbours: Neighbours

    @property
    def scores(self) -> Tensor:  # -> [c, N], a node's own label left out
        scores = self.propagated.scores
        return (scores - scores.mean(0)).cpu()

    @property
    def sending(self) -> Tensor:  # -> [N]: whose labels take part
        return (self.propagated.fold < len(self.propagated.without) - 1).cpu()

    def targets(self, run: Run) -> dict[str, Tensor]:
        """Beliefs about classes, of a node itself and of its neighbours.

        A node's own label is included where it takes part.
        """
        hidden = (run.collected.labels.classes >= 0) & ~self.sending
        return _targets(_with_some(self.scores, run, ~hidden), self.neighbours)


def _targets(belief: Tensor, neighbours: Neighbours) -> dict[str, Tensor]:
    return {"own": belief.double(), "neighbours": neighbours.mean(belief).double()}


def teach(run: Run, protocol: TwoRound, known: Known) -> tuple[Run, "Lesson"]:
    """Round one: some of the nodes whose labels take part send their vectors."""
    respondents, labels = run.respondents, run.collected.labels
    assert respondents is not None
    labelled = ((labels.classes >= 0) & known.sending).nonzero().flatten()
    order = torch.randperm(labelled.numel(), generator=run.streams.generator("rounds"))
    question = VectorQuestion(respondents.num_features)
    noise = float(labels.estimate[:, labelled].square().sum(0).mean())
    count = protocol.num_first(labelled.numel(), question, respondents.epsilon, noise)
    run = run.ask(labelled[order[:count]].sort().values, question)
    answered = run.collected.rounds[0].nodes.numel()
    if answered < 2 * _FOLDS:
        allowed = (
            f"at least {2 * _FOLDS} are needed; {count} of {labelled.numel()} labelled nodes were "
            "asked (protocol.share decides how many)"
        )
        raise InputError("round one", f"{answered} answers", allowed)
    return run, learn_directions(run, known.targets(run), known.neighbours)


def ask_others(run: Run, protocol: TwoRound, known: Known, lesson: "Lesson") -> Run:
    """Round two: all others are asked about their scores."""
    respondents = run.respondents
    assert respondents is not None
    asked = respondents.may_answer.nonzero().flatten()
    about_neighbours = lesson.about == "neighbours"
    likely = known.targets(run)["neighbours"] if about_neighbours else known.scores.softmax(0)
    cells = protocol.num_cells(respondents.epsilon)
    return run.ask(asked, lesson.question(likely.double()[:, asked], cells))


def evidence_parts(run: Run, known: Known) -> list[Tensor]:
    """Scores to be weighed, each [c, N]; given the questions, without labels of a node's own fold.

    The propagated labels; a node's own answer; its neighbours' answers, and their neighbours'; and
    the beliefs that labels and answers lead to, spread over the graph.
    """
    propagated, neighbours = known.propagated, known.neighbours
    fold, none = propagated.fold.cpu(), len(propagated.without) - 1
    found = []
    for hidden, scores in enumerate(propagated.without.cpu()):
        seen = (fold != hidden) & (fold < none)
        scores = scores - scores.mean(0)
        targets = _targets(_with_some(scores, run, seen), neighbours)
        evidence = Evidence.read(run, targets, neighbours.degrees, seen)
        after = _with_some(scores + evidence.own, run, seen)
        spread = smoothed(after.to(known.operator.matrix.device), known.operator, _SPREAD_STEPS)
        log = spread.cpu().clamp(min=1e-12).log()
        parts = (scores, evidence.own, *evidence.from_neighbours(neighbours), log - log.mean(0))
        found.append(torch.stack(parts))  # [J, c, N]
    return [of_own_fold(part, fold) for part in torch.stack(found, 1)]  # of [J, F + 1, c, N]


def _with_some(scores: Tensor, run: Run, seen: Tensor) -> Tensor:
    """Beliefs that know the reports of some nodes.  [c, N], [N] bool -> [c, N]"""
    p = scores.softmax(0)
    return torch.where(seen, with_reports(p, run.collected.labels), p)


@dataclass(frozen=True)
class Lesson:
    """What round one taught: a direction for each class, and what its scores look like."""

    about: str  # whose class the directions tell: "own" or "neighbours"
    directions: Tensor  # [c, d] float64
    effects: Tensor  # [c, c]: of being of class k on the score of class j
    mean: Tensor  # [c]: of the scores
    center: Tensor  # [c]: the mean composition
    spread: Tensor  # [c, c]: the variance of the score of a pair
    information: float  # what an answer tells, for comparison with the other lesson

    def question(self, composition: Tensor, cells: int) -> ScoreQuestion:
        """Ask every node about the two classes that are likeliest so far.  [c, n]

        The cells of a pair hold the same share of a normal distribution that has the mean and the
        variance of the scores of those who are asked.
        """
        c = composition.shape[0]
        pairs = composition.topk(2, dim=0).indices.sort(0).values.t()  # [n, 2], a < b
        normal = torch.distributions.Normal(0.0, 1.0)
        cuts = normal.icdf(torch.arange(1, cells, dtype=torch.float64) / cells)  # [k - 1]
        thresholds = torch.zeros(c, c, cells - 1, dtype=torch.float64)
        for a in range(c):
            for b in range(a + 1, c):
                asked = composition[:, (pairs == torch.tensor([a, b])).all(1)]
                if not asked.shape[1]:
                    continue
                effect = self.effects[:, a] - self.effects[:, b]  # [c]
                middle = self.mean[a] - self.mean[b] + (asked.mean(1) - self.center) @ effect
                thresholds[a, b] = middle + self.spread[a, b].sqrt() * cuts
        return ScoreQuestion(self.directions.float(), pairs, thresholds)


def learn_directions(run: Run, targets: dict[str, Tensor], neighbours: Neighbours) -> Lesson:
    """Directions that tell the nodes' own classes, or their neighbours'.

    The latter only where an answer says clearly more about them: estimates of both are noisy.
    """
    vectors = Vectors.of(run)
    reach = 1 / neighbours.degrees.clamp(min=1)[vectors.nodes].double()  # one of deg neighbours
    weights = {"own": 1.0, "neighbours": float(reach.mean())}
    known = {name: target[:, vectors.nodes] for name, target in targets.items()}
    own, other = (_lesson(name, vectors, known, weights) for name in ("own", "neighbours"))
    return other if other.information > _CLEARLY * own.information else own


@dataclass(frozen=True)
class Vectors:
    """The answers of round one: unbiased for unit vectors, noise of a known size."""

    nodes: Tensor  # [n]
    sent: Tensor  # [n, d] float32
    scale: float  # the answer is scale * sent
    along: float  # E[answer answer^T] = noise (I + along z z^T)

    @classmethod
    def of(cls, run: Run) -> "Vectors":
        asked = run.collected.rounds[0]
        assert isinstance(asked.answers, FeatureReports)
        assert isinstance(asked.answers.sent, Tensor)
        mechanism = asked.question.mechanism(run.collected.x_eps)
        along = mechanism.gamma() * mechanism.mean()
        return cls(asked.nodes, asked.answers.sent, asked.answers.scale, along)

    @property
    def noise(self) -> float:
        """The variance of an entry."""
        return self.scale**2

    def weighted_sum(self, weights: Tensor) -> Tensor:  # [c, n] -> [c, d]
        return (weights.float() @ self.sent).double() * self.scale

    def scores(self, directions: Tensor) -> Tensor:  # [c, d] -> [c, n]
        return (directions.float() @ self.sent.t()).double() * self.scale

    def some(self, chosen: Tensor) -> "Vectors":
        return Vectors(self.nodes[chosen], self.sent[chosen], self.scale, self.along)


def _lesson(
    name: str, vectors: Vectors, targets: dict[str, Tensor], weights: dict[str, float]
) -> Lesson:
    """Directions for one target, judged by scores of vectors that had no part in them."""
    target = targets[name]  # [c, n]
    c, n = target.shape
    fold = torch.arange(n) % _FOLDS  # a random sample, dealt out in turn
    scores, lengths = torch.zeros(c, n, dtype=torch.float64), torch.zeros(c, c, dtype=torch.float64)
    for hidden in range(_FOLDS):
        kept = fold != hidden
        directions = discriminant(vectors.some(kept), target[:, kept])
        scores[:, ~kept] = vectors.some(~kept).scores(directions)
        lengths += torch.cdist(directions, directions).square() * float((~kept).sum()) / n
    noise = vectors.noise * lengths  # [c, c]: of the score of a pair
    upper = torch.triu(torch.ones(c, c, dtype=torch.bool), 1)
    information, effects, gap = 0.0, torch.zeros(c, c), torch.zeros(c, c)
    for other, composition in targets.items():
        found, uncertainty = composition_effects(scores.t(), composition)
        own = found.diagonal()
        step = own[:, None] + own - found - found.t()  # of a pair's score, from one to the other
        error = (_of_pairs(uncertainty) * noise).clamp(min=0).sqrt()
        # A direction must point to its own target; to the other it may point either way.
        sure = ((step if other == name else step.abs()) - error).clamp(min=0)
        information += weights[other] * float(
            (sure.square() / lengths.clamp(min=1e-300))[upper].mean()
        )
        if other == name:
            effects, gap = found, step
    centred = scores - scores.mean(1, keepdim=True)
    spread = _of_pairs(centred @ centred.t() / n) - noise
    directions = discriminant(vectors, target)
    return Lesson(
        name,
        directions,
        effects,
        scores.mean(1),
        target.mean(1),
        torch.maximum(spread, (gap / 2).square()),
        information,
    )


def _of_pairs(form: Tensor) -> Tensor:
    """(e_a - e_b)^T F (e_a - e_b) for all pairs.  [c, c] -> [c, c]"""
    own = form.diagonal()
    return own[:, None] + own - form - form.t()


def composition_effects(values: Tensor, composition: Tensor) -> tuple[Tensor, Tensor]:
    """Least squares of values on a composition of classes, both about their means.

    [n, m], [c, n] -> effects [c, m], which sum to zero, and their covariance for unit noise [c, c]
    """
    centred = composition - composition.mean(1, keepdim=True)
    inverse = torch.linalg.pinv(centred @ centred.t(), hermitian=True, rtol=1e-9)
    return inverse @ (centred @ values), inverse


def discriminant(vectors: Vectors, target: Tensor) -> Tensor:
    """A direction for each class: shrunken class means, whitened as far as noise lets.

    [c, n] -> [c, d].  The second moment of the answers is that of their noise and of the vectors;
    less the former it is known up to the edge of the noise's spectrum (Marchenko and Pastur),
    v (2 sqrt(d/n) + d/n).  A ridge of twice that keeps what is left positive, and is so large at
    small budgets that the means stay as they are.
    """
    n, d = vectors.sent.shape
    centred = target - target.mean(1, keepdim=True)
    inverse = torch.linalg.pinv(centred @ centred.t(), hermitian=True, rtol=1e-9)
    means = inverse @ vectors.weighted_sum(centred)  # [c, d]
    means = shrunken(means, vectors.noise * float(inverse.trace()))
    middle = vectors.weighted_sum(torch.full((1, n), 1 / n))[0]  # [d]
    ratio = d / n
    ridge = 2 * vectors.noise * (2 * math.sqrt(ratio) + ratio)

    def second_moment(x: Tensor) -> Tensor:  # [c, d] -> [c, d]
        of_answers = vectors.weighted_sum(vectors.scores(x)) / n
        of_vectors = (of_answers - vectors.noise * x) / (vectors.along * vectors.noise)
        return of_vectors - (x @ middle)[:, None] * middle

    return conjugate_gradients(lambda x: x + second_moment(x) / ridge, means)


def shrunken(means: Tensor, noise: float) -> Tensor:
    """Shrink the coordinates of class means by empirical Bayes.  [c, d] -> [c, d]

    noise: the variance that a coordinate's squares sum to if there is nothing to find.  A true
    effect is normal, its size one of a few; how often each occurs is estimated from all
    coordinates.  Where most hold nothing, little of the noise is left.
    """
    c = means.shape[0]
    energy = means.square().sum(0) * (c - 1) / max(noise, 1e-300)  # [d] ~ (1 + effect) chi^2
    effect = torch.tensor(_EFFECTS, dtype=torch.float64)[:, None]
    log_p = -(c - 1) / 2 * (1 + effect).log() - energy / (2 * (1 + effect))  # [g, d]
    p = (log_p - log_p.amax(0)).exp()
    share = torch.full_like(effect, 1 / len(_EFFECTS))
    for _ in range(100):
        posterior = p * share
        posterior = posterior / posterior.sum(0)
        share = posterior.mean(1, keepdim=True)
    return means * (posterior * effect / (1 + effect)).sum(0)


def conjugate_gradients(product: Any, right: Tensor, steps: int = 50) -> Tensor:
    """Solve product(x) = right row by row, for a positive definite product.  [c, d]"""
    x, rest = torch.zeros_like(right), right.clone()
    direction, size = rest.clone(), rest.square().sum(1, keepdim=True)
    enough = 1e-12 * size
    for _ in range(steps):
        image = product(direction)
        step = size / (direction * image).sum(1, keepdim=True).clamp(min=1e-300)
        x, rest = x + step * direction, rest - step * image
        old, size = size, rest.square().sum(1, keepdim=True)
        if bool((size <= enough).all()):
            break
        direction = rest + size / old.clamp(min=1e-300) * direction
    return x


@dataclass(frozen=True)
class Evidence:
    """What the answers of round two say about classes, as log likelihoods."""

    own: Tensor  # [c, N]: of the node that answered
    about_neighbours: Tensor  # [c, N]: of each of its neighbours

    @classmethod
    def read(
        cls, run: Run, targets: dict[str, Tensor], degrees: Tensor, seen: Tensor
    ) -> "Evidence":
        """Learn from beliefs what answers mean; own classes from nodes whose label is seen."""
        asked = run.collected.rounds[1]
        question: ScoreQuestion = asked.question
        assert isinstance(asked.answers, Tensor)
        transition = question.mechanism(run.collected.x_eps).transition()
        tables = AnswerTables(asked.answers, question, transition)
        n = run.collected.num_nodes
        degree = degrees[asked.nodes]
        composition = targets["neighbours"][:, asked.nodes]
        found = []
        for target, known in (("own", seen[asked.nodes]), ("neighbours", degree > 0)):
            likelihood = tables.likelihood(targets[target][:, asked.nodes], known)  # [k, c, n]
            if target == "neighbours":
                # One of deg neighbours is of class k, the others are as neighbours are.
                usual = (composition.mean(1)[:, None] * likelihood).sum(1, keepdim=True)
                one = 1 / degree.clamp(min=1)
                likelihood = one * likelihood + (1 - one) * usual
            log = torch.zeros(composition.shape[0], n, dtype=torch.float64)
            log[:, asked.nodes] = beyond_the_question(
                likelihood.log(), asked.answers, question.pairs
            )
            found.append((log - log.mean(0)).float())
        return cls(*found)

    def from_neighbours(self, neighbours: Neighbours) -> tuple[Tensor, Tensor]:
        """What a node's neighbours' answers say, and its neighbours' neighbours' on the average."""
        one = neighbours.sum(self.about_neighbours)
        return one, neighbours.mean(one)


def beyond_the_question(log: Tensor, answers: Tensor, pairs: Tensor) -> Tensor:
    """Log likelihoods of the answers less what answers about that pair say on the average.

    [k, c, n], [n], [n, 2] -> [c, n].  Labels chose the pair, a neighbour's own among them: what the
    pair says is known, and would come back to the neighbour as if somebody had answered it.  What
    an answer is worth depends on the node's degree, and so does what is taken from it: otherwise
    the sum over neighbours would tell their degrees.
    """
    k, c, n = log.shape
    kinds, kind = pairs.unique(dim=0, return_inverse=True)
    counts = torch.zeros(len(kinds), k, dtype=log.dtype)
    counts.index_put_((kind, answers), torch.ones(n, dtype=log.dtype), accumulate=True)
    share = (counts / counts.sum(1, keepdim=True))[kind].t()  # [k, n]
    return log.gather(0, answers.expand(1, c, n))[0] - (share[:, None] * log).sum(0)


@dataclass(frozen=True)
class AnswerTables:
    """p(answer | class), learnt from answers of nodes with a belief about their class."""

    answers: Tensor  # [n]
    question: ScoreQuestion
    transition: Tensor  # [k, k]: p(answer | cell)

    def likelihood(self, belief: Tensor, known: Tensor) -> Tensor:
        """p(answer | class) for every node.  [c, n], [n] bool: learnt from these -> [k, c, n]

        A class is the first of a node's pair, the second, or another.  All pairs share a table, the
        same in both directions; each pair's own is drawn to it, and it to one that says nothing.
        """
        k, (c, n) = self.question.num_cells, belief.shape
        first, second = self.question.pairs.t()
        place = torch.arange(n)
        p = torch.stack([belief[first, place], belief[second, place]])
        roles = torch.cat([p, (1 - p.sum(0, keepdim=True)).clamp(min=0)])  # [3, n]
        flat = torch.full((k, 3), _PRIOR_ANSWERS / k, dtype=torch.float64)
        shared = self._table(
            torch.cat([self.answers[known], k - 1 - self.answers[known]]),
            torch.cat([roles[:, known], roles[[1, 0, 2]][:, known]], 1),
            flat,
        )
        found = torch.empty(k, c, n, dtype=torch.float64)
        for a in range(c):
            for b in range(a + 1, c):
                of_pair = (first == a) & (second == b)
                here = of_pair & known
                own = self._table(self.answers[here], roles[:, here], _PRIOR_ANSWERS * shared)
                p_answer = self.transition.t() @ own  # [k answers, 3]
                values = p_answer[:, 2:].repeat(1, c)
                values[:, a], values[:, b] = p_answer[:, 0], p_answer[:, 1]
                found[:, :, of_pair] = values[:, :, None]
        return found

    def _table(self, answers: Tensor, roles: Tensor, prior: Tensor) -> Tensor:
        """p(cell | role) by expectation maximisation.  [n], [3, n], [k, 3] -> [k, 3]"""
        table = prior / prior.sum(0)
        if not answers.numel():
            return table
        kinds = torch.nn.functional.one_hot(answers, prior.shape[0]).double().t()  # [k, n]
        for _ in range(30):
            p_answer = self.transition.t() @ table  # [k answers, 3]
            joint = roles * p_answer[answers].t()  # [3, n]
            responsibility = joint / joint.sum(0).clamp(min=1e-300)
            counts = kinds @ responsibility.t() / p_answer.clamp(min=1e-300)  # [k answers, 3]
            table = table * (self.transition @ counts) + prior
            table = table / table.sum(0)
        return table


def combined(parts: list[Tensor], run: Run) -> LabelScores:
    """A weighted sum of scores and a bias for each class, by forward-corrected loss.

    The first part is the propagated labels.  A ridge draws the weights to them alone: few or very
    noisy labels leave it there, many tell what the answers are worth.  A bias counts in units of
    the labels' spread, so that it moves no prediction where labels hardly differ.
    """
    labels = run.collected.labels
    known = labels.classes >= 0
    c, n = parts[0].shape
    biases = parts[0].std() * torch.eye(c)[:, :, None].expand(c, c, n)
    candidates = torch.cat([torch.stack([part.float() for part in parts]), biases])  # [J, c, N]
    start = torch.zeros(len(candidates))
    start[0] = 1
    reports = labels.likelihood[:, known]
    weights = fit_weights(start, candidates[:, :, known], reports, _RIDGE)
    scores = (weights[:, None, None] * candidates).sum(0)
    loss = float(report_losses(scores[:, known], reports).mean())
    return LabelScores(scores, " ".join(f"{w:.2f}" for w in weights.tolist()), loss)
