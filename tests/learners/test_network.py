"""The epoch loop against a plain training in double precision, and what must not matter to it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lpgnn.errors import InputError
from lpgnn.kernels import Backend
from lpgnn.learners import (
    RULES,
    CrossEntropy,
    Drop,
    ForwardCorrection,
    LabelBatch,
    NetworkLearner,
    Outcome,
    Run,
    Server,
)
from lpgnn.learners.selection import BestEpoch, PaperRule
from lpgnn.models import Backbone, Network, Shape, TorchModule, Weights
from lpgnn.models.dropout import Dropout
from lpgnn.privacy import (
    Collected,
    OneHotDegree,
    Ones,
    RandomFeatures,
    RandomizedResponse,
    SubsetSelection,
)
from lpgnn.privacy.reports import FeatureReports
from lpgnn.propagation import Filter, KProp, LinearFilter, PreparedGraph, PropagatedFeatures
from lpgnn.propagation.features import linear_features
from lpgnn.randomness import Streams
from models.pyg import GIN
from models.reference import BACKBONES, KINDS, Kind, Reference
from propagation.graphs import TORCH, dense_kprop, seeded

from .block_graph import (
    EPOCHS,
    GCN,
    KPROP,
    C,
    D,
    H,
    N,
    block_graph,
    block_split,
    both_kernels,
    collected,
    fit,
    run_of,
    server_of,
)

NAMES = ("train_loss", "dropout_train_acc", "train_acc", "val_loss", "val_acc")
DROP = Drop(steps=2)


@dataclass(frozen=True)
class WithFactors(LinearFilter):
    """P^2 with a given factor for each row."""

    factors: tuple[float, ...] = ()

    def coefficients(self) -> tuple[float, ...]:
        return (0.0, 0.0, 1.0)

    def features(
        self, reports: Sequence[FeatureReports], graph: PreparedGraph
    ) -> PropagatedFeatures:
        factors = torch.tensor(self.factors)
        operator = graph.kprop("gcn")
        return linear_features(
            reports, operator, self.coefficients(), graph.backend, lambda _: factors
        )


@dataclass(frozen=True, eq=False)
class WithPrior(ForwardCorrection):
    """Forward correction on top of given logits."""

    given: Tensor | None = None  # [R, c, N]

    def prior(self, runs: Sequence[Run], server: Server) -> Tensor | None:
        return self.given


def assert_same(first: Outcome, second: Outcome) -> None:
    """Bitwise: history, choices, predictions and weights."""
    for name in NAMES:
        assert torch.equal(first.history[name], second.history[name]), name
    for rule in RULES:
        one, other = first.selected[rule], second.selected[rule]
        assert (one.epoch, one.qualified) == (other.epoch, other.qualified)
        assert torch.equal(one.predictions, other.predictions)
        assert set(one.weights) == set(other.weights)
        assert one.weights
        for name, weight in one.weights.items():
            assert torch.equal(weight, other.weights[name]), name


def assert_close(first: Outcome, second: Outcome) -> None:
    """To rounding: how a product sums depends on its shape, and on the processor's kernels."""
    for name in NAMES:
        torch.testing.assert_close(
            first.history[name], second.history[name], rtol=1e-4, atol=1e-5, msg=name
        )
    for rule in RULES:
        one, other = first.selected[rule], second.selected[rule]
        assert (one.epoch, one.qualified) == (other.epoch, other.qualified)
        assert one.weights
        torch.testing.assert_close(one.weights, other.weights, rtol=1e-3, atol=1e-4)


@dataclass
class Plain:
    """What a plain training of one run leaves behind."""

    weights: list[Weights] = field(default_factory=list)  # after each epoch
    predictions: list[Tensor] = field(default_factory=list)
    history: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in NAMES})

    def paper_choice(self, bound: float) -> tuple[int, bool]:
        train_acc, val_acc, loss = (self.history[n] for n in ("train_acc", "val_acc", "val_loss"))
        epochs = range(len(loss))
        within = [t for t in epochs if train_acc[t] <= bound and val_acc[t] <= bound]
        return min(within or epochs, key=lambda t: loss[t]) + 1, bool(within)

    def released_choice(self, bound: float) -> int:
        train_acc, val_acc = self.history["dropout_train_acc"], self.history["val_acc"]
        loss, best = self.history["val_loss"], 0
        for t in range(len(loss)):
            higher = val_acc[best] < val_acc[t] and train_acc[best] < train_acc[t]
            within = val_acc[t] <= bound and train_acc[t] <= 1.05 * bound
            if loss[t] < loss[best] and higher and within:
                best = t
        return best + 1


def dense_filter(filter: Filter, own: Collected) -> Tensor:
    """The filter multiplied out, one row's factor at a time.  -> [N, N] float64"""
    assert isinstance(filter, LinearFilter)
    p = dense_kprop(own.topology)
    powers = enumerate(filter.coefficients())
    dense = sum((theta * torch.linalg.matrix_power(p, k) for k, theta in powers), 0 * p)
    if isinstance(filter, WithFactors):
        return torch.diag(torch.tensor(filter.factors).double()) @ dense
    if filter.conditioning in ("scale", "node"):
        assert own.features is not None
        assert own.features.magnitude is not None
        lengths = dense.square().sum(1).sqrt()
        if filter.conditioning == "scale":
            lengths = lengths.square().mean().sqrt().expand(N)
        reached = lengths > 0
        dense[reached] /= own.features.magnitude * lengths[reached, None]
    return dense


def plain_training(
    kind: Kind, run: Run, initial: Weights, learner: NetworkLearner, filter: Filter, place: int = 0
) -> Plain:
    """Algorithm 3 for one run, in double precision, on dense P^K X' with torch-geometric's layers.

    The dropout masks come from the run's own stream, everything else is written out.
    ``place`` is the run's among the priors.
    """
    own = run.collected
    assert own.features is not None
    p = dense_kprop(own.topology)
    x = dense_filter(filter, own) @ own.features.rectified().double()
    prior = torch.zeros(N, C, dtype=torch.float64)
    if isinstance(learner, WithPrior) and learner.given is not None:
        prior += learner.given[place].t().double()
    transition = RandomizedResponse(own.y_eps, C).transition()
    if isinstance(learner, CrossEntropy):
        transition = torch.eye(C, dtype=torch.float64)
    one_hot = torch.zeros(N, C, dtype=torch.float64)
    labelled, sent = own.train_mask | own.val_mask, own.labels.classes
    one_hot[labelled, sent[labelled]] = 1
    steps = learner.steps if isinstance(learner, Drop) else 0
    p_y = torch.linalg.matrix_power(p, steps or 0)
    received = p_y @ one_hot
    informed = own.train_mask & (received.sum(1) > 0)

    network = Reference(kind, own.topology, D, H, C)
    weights = {name: w.double().requires_grad_() for name, w in initial.items()}
    adam = torch.optim.Adam(
        list(weights.values()), lr=run.learning_rate, weight_decay=run.weight_decay
    )
    dropout = Dropout([run.dropout], [run.streams.generator("dropout")], TORCH)
    plain = Plain()

    def accuracy(logits: Tensor, mask: Tensor) -> float:
        correct = int((logits.argmax(1) == sent)[mask].sum())
        # As the program rounds it, so that bounds are compared alike.
        return float(torch.tensor(correct, dtype=torch.float32) / int(mask.sum()))

    for _ in range(EPOCHS):
        hidden = network.hidden(weights, x)
        mask = dropout(torch.ones(1, *hidden.shape))[0]  # drawn in float32, as the program does
        logits = network.logits(weights, hidden * mask) + prior
        noisy = logits.softmax(1) @ transition
        if not steps:
            loss = F.nll_loss(noisy.log()[own.train_mask], sent[own.train_mask])
        else:
            denoised = received.argmax(1)
            loss = F.cross_entropy((p_y @ noisy)[informed], denoised[informed])
        adam.zero_grad()
        loss.backward()
        adam.step()
        plain.history["train_loss"].append(loss.item())
        plain.history["dropout_train_acc"].append(accuracy(logits, own.train_mask))
        with torch.no_grad():
            logits = network.logits(weights, network.hidden(weights, x)) + prior
            noisy = logits.softmax(1) @ transition
            val_loss = F.nll_loss(noisy.log()[own.val_mask], sent[own.val_mask])
        plain.history["val_loss"].append(val_loss.item())
        plain.history["train_acc"].append(accuracy(logits, own.train_mask))
        plain.history["val_acc"].append(accuracy(logits, own.val_mask))
        plain.weights.append({name: w.detach().clone() for name, w in weights.items()})
        plain.predictions.append(logits.argmax(1))
    return plain


def initial_weights(kind: Kind, run: Run) -> Weights:
    graph = PreparedGraph(run.collected.topology, TORCH)
    network = BACKBONES[kind].build(Shape(D, H, C), graph)
    return network.initial_weights(generator=run.streams.generator("weights"))


def equals_plain(
    kind: Kind,
    runs: Sequence[Run],
    learner: NetworkLearner,
    kernels: str,
    filter: Filter = KPROP,
) -> None:
    """Weights, history and choices of runs that train together, each against a plain training."""
    outcomes = fit(learner, runs, kernels, filter=filter, backbone=BACKBONES[kind])
    for place, (run, outcome) in enumerate(zip(runs, outcomes, strict=True)):
        initial = initial_weights(kind, run)
        plain = plain_training(kind, run, initial, learner, filter, place)
        for name in NAMES:
            expected = torch.tensor(plain.history[name], dtype=torch.float32)
            torch.testing.assert_close(outcome.history[name], expected, rtol=1e-4, atol=1e-5)
        bound = RandomizedResponse(run.collected.y_eps, C).keep_probability()
        bound = 1.0 if isinstance(learner, CrossEntropy) else bound
        paper, released = outcome.selected["paper"], outcome.selected["released"]
        assert (paper.epoch, paper.qualified) == plain.paper_choice(bound)
        assert released.epoch == plain.released_choice(bound)
        for chosen in (paper, released):
            wanted = plain.weights[chosen.epoch - 1]
            assert set(chosen.weights) == set(wanted)
            for name, weight in chosen.weights.items():
                torch.testing.assert_close(weight.double(), wanted[name], rtol=1e-3, atol=1e-4)
                # More than rounding has happened since the start, unless a bias has no effect.
                moved = float((wanted[name] - initial[name].double()).abs().max())
                assert moved > 0.5 * run.learning_rate, name
            assert torch.equal(chosen.predictions.long(), plain.predictions[chosen.epoch - 1])


CASES: dict[str, tuple[NetworkLearner, Filter]] = {
    "drop": (DROP, KPROP),
    "drop, K = 0": (Drop(steps=0), KProp(steps=0)),
    "drop, deep": (Drop(steps=8), KProp(steps=4)),
    "forward": (ForwardCorrection(), KPROP),
    "cross entropy": (CrossEntropy(), KProp(steps=1)),
}


@pytest.mark.slow
@both_kernels
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_training_equals_a_plain_training_with_torch_geometric(
    kind: Kind, name: str, kernels: str
) -> None:
    """Two runs with budgets, rates and dropout of their own, and their own masks."""
    runs = [
        run_of(0, collected(0, y_eps=2.0), dropout=0.5),
        run_of(1, collected(1, y_eps=1.0), learning_rate=0.03, weight_decay=0.1, dropout=0.0),
    ]
    learner, filter = CASES[name]
    equals_plain(kind, runs, learner, kernels, filter)


@pytest.mark.slow
@both_kernels
@pytest.mark.parametrize("mechanism", ["1b", "ag", None])
def test_other_reports_train_alike(mechanism: str | None, kernels: str) -> None:
    """Dense int8 and float32 reports, and clean features and labels."""
    y_eps = math.inf if mechanism is None else 2.0
    runs = [
        run_of(repeat, collected(repeat, mechanism, x_eps=20.0, y_eps=y_eps)) for repeat in range(2)
    ]
    equals_plain("gcn", runs, DROP, kernels)
    equals_plain("sage", runs, ForwardCorrection(), kernels)


@both_kernels
def test_public_stand_in_features_train_alike(kernels: str) -> None:
    for feature in (Ones(), OneHotDegree(), RandomFeatures()):
        runs = [run_of(0, collected(0, None, feature=feature))]
        equals_plain("sage", runs, DROP, kernels)


def some_factors() -> tuple[float, ...]:
    factors = torch.logspace(-1, 0.5, N)[torch.randperm(N, generator=seeded(5))]
    return tuple(factors.tolist())


@pytest.mark.slow
@both_kernels
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mechanism", ["mb", "lp"])
def test_conditioned_reports_train_alike(kind: Kind, mechanism: str, kernels: str) -> None:
    runs = [run_of(r, collected(r, mechanism, x_eps=20.0, y_eps=2.0)) for r in range(2)]
    equals_plain(kind, runs, DROP, kernels, WithFactors(factors=some_factors()))
    equals_plain(kind, runs, DROP, kernels, KProp(steps=2, conditioning="node"))


@both_kernels
def test_runs_of_different_budgets_are_conditioned_side_by_side(kernels: str) -> None:
    """Each by the public size of its own noise."""
    runs = [run_of(r, collected(r, x_eps=x_eps)) for r, x_eps in enumerate((0.5, 5.0))]
    for conditioning in ("scale", "node"):
        equals_plain("gcn", runs, DROP, kernels, KProp(steps=2, conditioning=conditioning))


@both_kernels
def test_factors_of_one_change_no_bit_and_others_do(kernels: str) -> None:
    sage = BACKBONES["sage"]

    def outcome(filter: Filter) -> Outcome:
        return fit(DROP, [run_of()], kernels, filter=filter, backbone=sage)[0]

    plain, ones = outcome(KPROP), outcome(WithFactors(factors=(1.0,) * N))
    assert_same(plain, ones)
    other = outcome(WithFactors(factors=some_factors()))
    assert not torch.equal(plain.history["train_loss"], other.history["train_loss"])


@both_kernels
@pytest.mark.parametrize("kind", KINDS)
def test_a_network_on_top_of_a_prior_equals_a_plain_training(kind: Kind, kernels: str) -> None:
    """Each run has a prior of its own."""
    learner = WithPrior(torch.randn(2, C, N, generator=seeded(6)))
    runs = [run_of(r, collected(r, y_eps=2.0), learning_rate=0.03) for r in range(2)]
    equals_plain(kind, runs, learner, kernels)


@both_kernels
def test_a_strong_prior_decides(kernels: str) -> None:
    prior = torch.zeros(2, C, N)
    prior[0, 1] = prior[1, 2] = 1e4  # the first run is given class 1, the second class 2
    runs = [run_of(repeat) for repeat in range(2)]
    outcomes = fit(WithPrior(prior), runs, kernels, backbone=BACKBONES["sage"])
    for given, outcome in zip((1, 2), outcomes, strict=True):
        for rule in RULES:
            assert bool((outcome.selected[rule].predictions == given).all())


@both_kernels
def test_a_prior_of_zeros_is_no_prior(kernels: str) -> None:
    def outcomes(prior: Tensor | None) -> list[Outcome]:
        return fit(WithPrior(prior), [run_of(repeat) for repeat in range(2)], kernels)

    without = outcomes(None)
    for one, other in zip(without, outcomes(torch.zeros(2, C, N)), strict=True):
        assert_same(one, other)
    first_only = torch.zeros(2, C, N)
    first_only[0, 1] = 1.0
    moved, kept = outcomes(first_only)
    assert_same(without[1], kept)  # a prior is its own run's
    assert not torch.equal(without[0].history["train_loss"], moved.history["train_loss"])


class Delegating(Network):
    """A network that hands everything on to another."""

    def __init__(self, inner: Network) -> None:
        super().__init__(inner.shape, inner.graph)
        self.inner = inner

    def initial_weights(self, *, generator: torch.Generator) -> Weights:
        return self.inner.initial_weights(generator=generator)

    def hidden(self, weights: Weights, x: PropagatedFeatures) -> Tensor:
        return self.inner.hidden(weights, x)

    def logits(self, weights: Weights, hidden: Tensor, dropout: Dropout | None) -> Tensor:
        return self.inner.logits(weights, hidden, dropout)


class Recording(Delegating):
    """Keeps the weights that each epoch ends with: ``hidden`` is computed from them once."""

    seen: list[Weights]

    def hidden(self, weights: Weights, x: PropagatedFeatures) -> Tensor:
        self.seen.append({name: w.detach().clone() for name, w in weights.items()})
        return super().hidden(weights, x)


class BreaksAtEpochFour(Delegating):
    """The logits of the second run turn into NaN in the fourth training step."""

    calls = 0

    def logits(self, weights: Weights, hidden: Tensor, dropout: Dropout | None) -> Tensor:
        out = super().logits(weights, hidden, dropout)
        if dropout is not None:
            self.calls += 1
            if self.calls == 4:
                factor = torch.ones(out.shape[0], 1, 1)
                factor[1] = torch.nan
                out = out * factor
        return out


@dataclass(frozen=True)
class WrappedGCN(Backbone):
    """GCN with a network around its own."""

    wrapper: type[Delegating] = Delegating

    def build(self, shape: Shape, graph: PreparedGraph) -> Network:
        return self.wrapper(GCN.build(shape, graph))


@both_kernels
def test_weights_after_every_epoch_equal_a_plain_training(kernels: str) -> None:
    """Not only those that a rule keeps; and the first layer is computed once an epoch."""
    runs = [run_of(repeat) for repeat in range(3)]
    Recording.seen = []
    fit(DROP, runs, kernels, backbone=WrappedGCN(Recording))
    assert len(Recording.seen) == EPOCHS + 1
    for place, run in enumerate(runs):
        initial = initial_weights("gcn", run)
        for name, weight in initial.items():
            assert torch.equal(Recording.seen[0][name][place], weight)
        plain = plain_training("gcn", run, initial, DROP, KPROP)
        for seen, wanted in zip(Recording.seen[1:], plain.weights, strict=True):
            for name, weight in seen.items():
                torch.testing.assert_close(
                    weight[place].double(), wanted[name], rtol=1e-3, atol=1e-4
                )


def ten_runs(mechanism: str | None = "mb") -> list[Run]:
    """Different rates, decays, dropout (one without any) and label budgets."""
    return [
        run_of(
            repeat,
            collected(repeat, mechanism, y_eps=1.0 + repeat % 3),
            learning_rate=0.01 * (1 + repeat % 4),
            weight_decay=0.0 if repeat % 2 else 1e-3,
            dropout=0.1 * (repeat % 7),
        )
        for repeat in range(10)
    ]


@pytest.mark.slow
@both_kernels
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mechanism", ["mb", "1b"])
@pytest.mark.parametrize("learner", [DROP, ForwardCorrection()], ids=["drop", "forward"])
def test_a_run_alone_is_the_run_among_ten(
    kind: Kind, mechanism: str, learner: NetworkLearner, kernels: str
) -> None:
    runs, backbone = ten_runs(mechanism), BACKBONES[kind]
    together = fit(learner, runs, kernels, backbone=backbone)
    for place in (0, 3, 9):
        (alone,) = fit(learner, [runs[place]], kernels, backbone=backbone)
        assert_close(alone, together[place])
    reversed_order = fit(learner, runs[::-1], kernels, backbone=backbone)
    for one, other in zip(together, reversed_order[::-1], strict=True):
        assert_close(one, other)
    assert len({float(outcome.history["train_loss"][-1]) for outcome in together}) == 10


@both_kernels
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_call_twice_gives_the_same_bits(kind: Kind, kernels: str) -> None:
    runs, backbone = [run_of(r) for r in range(3)], BACKBONES[kind]
    first = fit(DROP, runs, kernels, backbone=backbone)
    state = torch.random.get_rng_state()
    torch.rand(7)  # the global stream has no part in it
    second = fit(DROP, runs, kernels, backbone=backbone)
    torch.random.set_rng_state(state)
    for one, other in zip(first, second, strict=True):
        assert_same(one, other)


def test_a_server_serves_several_batches() -> None:
    """What a prepared graph holds is built once; nothing of a training stays in it."""
    server = server_of(collected())
    first, second = (DROP.fit([run_of(r) for r in range(2)], server) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert_same(one, other)


@both_kernels
def test_each_of_the_two_streams_matters(kernels: str) -> None:
    """So that the equalities above are not those of constants."""
    (outcome,) = fit(DROP, [run_of()], kernels)
    for purpose in ("weights", "dropout"):
        own = Streams(5, 0).of_server()
        other_seed = Streams(6, 0).of_server().seeds[purpose]
        changed = replace(run_of(), streams=replace(own, seeds={**own.seeds, purpose: other_seed}))
        (other,) = fit(DROP, [changed], kernels)
        assert not torch.equal(outcome.history["val_loss"], other.history["val_loss"])
    unchanged = replace(run_of(), streams=replace(own, other=7))
    assert_same(outcome, fit(DROP, [unchanged], kernels)[0])


@both_kernels
@pytest.mark.parametrize("mechanism", ["mb", "1b", "lp", None])
@pytest.mark.parametrize("y_eps", [1.0, math.inf])
def test_clean_values_changed_after_collection_change_no_weight(
    mechanism: str | None, y_eps: float, kernels: str
) -> None:
    for labels in (RandomizedResponse(), SubsetSelection(subset_size=2)):
        graph, split = block_graph(), block_split()
        before, reports = (
            collected(0, mechanism, y_eps=y_eps, labels=labels, graph=graph, split=split)
            for _ in range(2)
        )
        (expected,) = fit(DROP, [run_of(0, before)], kernels)
        assert graph.features is not None
        graph.features.values.fill_(0.0)
        graph.features.indices.fill_(0)
        graph.labels.copy_((graph.labels + 1) % C)
        for mask in (split.train, split.val, split.test):
            mask.fill_(False)
        graph.topology.indices.fill_(0)
        assert_same(fit(DROP, [run_of(0, reports)], kernels)[0], expected)


@both_kernels
def test_test_labels_never_matter_but_training_labels_do(kernels: str) -> None:
    """Changes before collection: of a test label without effect, of a training label with."""

    def outcome(part: str | None) -> Outcome:
        graph, split = block_graph(), block_split()
        if part is not None:
            mask = split.test if part == "test" else split.train
            graph.labels[mask] = (graph.labels[mask] + 1) % C
        reports = collected(0, y_eps=math.inf, graph=graph, split=split)
        return fit(DROP, [run_of(0, reports)], kernels)[0]

    assert_same(outcome("test"), outcome(None))
    changed = outcome("train").history["train_loss"]
    assert not torch.equal(changed, outcome(None).history["train_loss"])


@both_kernels
@pytest.mark.parametrize("name", CASES)
def test_a_broken_run_is_reported_with_its_epoch_and_leaves_the_others_alone(
    name: str, kernels: str
) -> None:
    learner, filter = CASES[name]
    runs = [run_of(repeat) for repeat in range(3)]
    outcomes = fit(learner, runs, kernels, filter=filter, backbone=WrappedGCN(BreaksAtEpochFour))
    sound = fit(learner, runs, kernels, filter=filter)
    assert [outcome.failed_epoch for outcome in outcomes] == [None, 4, None]
    assert [outcome.failed_epoch for outcome in sound] == [None, None, None]
    assert_same(outcomes[0], sound[0])
    assert_same(outcomes[2], sound[2])
    for column in NAMES:
        assert torch.equal(outcomes[1].history[column][:3], sound[1].history[column][:3])
    assert 1 <= outcomes[1].selected["paper"].epoch <= 3  # the last sound model stays


@both_kernels
def test_diverging_learning_rates_are_reported(kernels: str) -> None:
    """Weights of 1e30 overflow in the first evaluation."""
    runs = [run_of(0), run_of(1, learning_rate=1e30)]
    outcomes = fit(CrossEntropy(), runs, kernels)
    assert outcomes[0].failed_epoch is None
    assert outcomes[1].failed_epoch == 1


@both_kernels
@pytest.mark.parametrize("learner", [CrossEntropy(), ForwardCorrection(), DROP], ids=repr)
def test_clean_labels_and_heavy_feature_noise_train_without_a_break(
    learner: NetworkLearner, kernels: str
) -> None:
    """The setting of the paper's mechanism table: large logits, clean labels.

    Probabilities that underflow to 0 in float32 must not turn the loss into NaN.
    """
    runs = [run_of(r, collected(r, "lp", x_eps=0.01, y_eps=math.inf), dropout=0.0) for r in (0, 1)]
    outcomes = fit(learner, runs, kernels, max_epochs=5)
    assert [outcome.failed_epoch for outcome in outcomes] == [None, None]


@both_kernels
@pytest.mark.parametrize("kind", KINDS)
def test_training_learns(kind: Kind, kernels: str) -> None:
    """R = 1, K = 0, no dropout, clean data: the communities are found."""
    run = run_of(0, collected(0, None, y_eps=math.inf), dropout=0.0)
    server = server_of(
        run.collected,
        kernels,
        filter=KProp(steps=0),
        backbone=BACKBONES[kind],
        max_epochs=60,
        keep_weights=False,
    )
    (outcome,) = Drop(steps=0).fit([run], server)
    losses = outcome.history["train_loss"]
    assert float(losses[-1]) < 0.5 * float(losses[0])
    chosen = outcome.selected["paper"]
    test = block_split().test
    accuracy = float((chosen.predictions.long() == block_graph().labels)[test].float().mean())
    assert accuracy > 0.8
    assert chosen.weights == {}
    assert chosen.probabilities is None
    assert chosen.qualified
    assert chosen.predictions.shape == (N,)


@both_kernels
def test_probabilities_are_those_of_the_chosen_epoch(kernels: str) -> None:
    """Kept on request: the predictions are the likeliest classes, and nothing else changes."""
    runs = [run_of(r) for r in range(2)]
    plain = fit(DROP, runs, kernels)
    kept = DROP.fit(runs, server_of(runs[0].collected, kernels, keep_probabilities=True))
    for one, other in zip(plain, kept, strict=True):
        assert_same(one, other)
        for rule in RULES:
            p = other.selected[rule].probabilities
            assert p is not None
            torch.testing.assert_close(p.sum(0), torch.ones(N))
            assert torch.equal(p.argmax(0), other.selected[rule].predictions.long())


@both_kernels
def test_every_epoch_is_counted(kernels: str) -> None:
    run, calls = run_of(), list[int]()
    server = Server(
        PreparedGraph(run.collected.topology, Backend.choose("cpu", kernels)),
        KProp(steps=1, aggregator="mean"),
        GCN,
        max_epochs=7,
        hidden_dim=H,
        on_epoch=lambda: calls.append(1),
    )
    (outcome,) = Drop(steps=1, aggregator="mean").fit([run], server)
    assert len(calls) == 7
    assert all(outcome.history[name].shape == (7,) for name in NAMES)


def test_the_aggregators_differ() -> None:
    """Of the labels and of the features: neither option is ignored."""
    (plain,) = fit(DROP, [run_of()])
    for learner, filter in (
        (Drop(steps=2, aggregator="mean"), KPROP),
        (DROP, KProp(steps=2, aggregator="mean")),
    ):
        (other,) = fit(learner, [run_of()], filter=filter)
        assert not torch.equal(plain.history["train_loss"], other.history["train_loss"])


def test_outcomes_go_back_to_the_order_of_the_users_graph() -> None:
    run = run_of(0, collected(0, None, y_eps=math.inf), learning_rate=0.1)
    (outcome,) = DROP.fit([run], server_of(run.collected, keep_probabilities=True))
    order = torch.randperm(N, generator=seeded(3))
    back = outcome.in_original_order(order)
    for rule in RULES:
        here, there = outcome.selected[rule], back.selected[rule]
        # Node i of the prepared graph is node order[i] of the user's.
        assert torch.equal(there.predictions[order], here.predictions)
        assert here.probabilities is not None
        assert there.probabilities is not None
        assert torch.equal(there.probabilities[:, order], here.probabilities)
        assert not torch.equal(there.predictions, here.predictions)
        assert there.weights is here.weights
    assert back.history is outcome.history


class OneClassTooMany(Delegating):
    def logits(self, weights: Weights, hidden: Tensor, dropout: Dropout | None) -> Tensor:
        out = super().logits(weights, hidden, dropout)
        return torch.cat([out, out[:, :1]], dim=1)


@dataclass(frozen=True)
class OneNumberForAllRuns(CrossEntropy):
    def loss(self, logits: Tensor, batch: LabelBatch) -> Tensor:
        return super().loss(logits, batch).mean()


@dataclass(frozen=True)
class OneNumberForEachNode(CrossEntropy):
    def loss(self, logits: Tensor, batch: LabelBatch) -> Tensor:
        return batch.surprise(logits)


def test_a_network_or_a_loss_of_the_wrong_shape_is_refused() -> None:
    runs = [run_of(r) for r in range(2)]
    expected = f"backbone=WrappedGCN: must give a tensor of shape [2, {C}, {N}], not [2, 4, {N}]"
    with pytest.raises(InputError) as caught:
        fit(DROP, runs, backbone=WrappedGCN(OneClassTooMany))
    assert str(caught.value) == expected
    for learner, shape in ((OneNumberForAllRuns(), []), (OneNumberForEachNode(), [2, N])):
        with pytest.raises(InputError) as caught:
            fit(learner, runs)
        expected = f"learner={learner.name}: must give a tensor of shape [2], not {shape}"
        assert str(caught.value) == expected


PLUGGED_IN = TorchModule("torch_geometric.nn.models.GIN")


@pytest.mark.slow
@both_kernels
def test_a_plugged_in_network_trains_reproducibly(kernels: str) -> None:
    def outcomes(repeats: Sequence[int], dropout: float = 0.5) -> list[Outcome]:
        runs = [
            run_of(repeat, collected(repeat, None, y_eps=math.inf), dropout=dropout)
            for repeat in repeats
        ]
        return fit(
            Drop(steps=0),
            runs,
            kernels,
            filter=KProp(steps=1),
            backbone=PLUGGED_IN,
            max_epochs=30,
        )

    together = outcomes(range(3))
    for one, other in zip(together, outcomes(range(3)), strict=True):
        assert_same(one, other)
    (alone,) = outcomes([1])
    assert_same(alone, together[1])
    for outcome in together:
        losses = outcome.history["train_loss"]
        assert float(losses[-5:].mean()) < 0.7 * float(losses[0])
    (undropped, *_) = outcomes(range(3), dropout=0.0)
    assert not torch.equal(undropped.history["train_loss"], together[0].history["train_loss"])


@both_kernels
def test_a_plugged_in_network_equals_its_own_training(kernels: str) -> None:
    """Five epochs without dropout against the module trained by torch.optim.Adam."""
    run, filter = run_of(0, dropout=0.0), KProp(steps=1)
    (outcome,) = fit(
        CrossEntropy(), [run], kernels, filter=filter, backbone=PLUGGED_IN, max_epochs=5
    )
    own = run.collected
    assert own.features is not None
    network = PLUGGED_IN.build(Shape(D, H, C), PreparedGraph(own.topology, TORCH))
    module = GIN(D, H, num_layers=2, out_channels=C)
    initial = network.initial_weights(generator=run.streams.generator("weights"))
    module.load_state_dict(initial, strict=False)
    adam = torch.optim.Adam(module.parameters(), lr=0.01, weight_decay=1e-3)
    x = (dense_kprop(own.topology) @ own.features.rectified().double()).float()
    losses = []
    for _ in range(5):
        logits = module(x, own.topology.edge_index())
        loss = F.cross_entropy(logits[own.train_mask], own.labels.classes[own.train_mask])
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    torch.testing.assert_close(
        outcome.history["train_loss"], torch.tensor(losses), rtol=1e-3, atol=1e-4
    )


@both_kernels
def test_a_refit_learns_from_validation_nodes_up_to_the_chosen_epochs(kernels: str) -> None:
    run = run_of(reports=collected(y_eps=1.0))
    server = server_of(run.collected, kernels, max_epochs=6)
    (plain,) = ForwardCorrection().fit([run], server)
    (again,) = ForwardCorrection(refit=True).fit([run], server)
    own = run.collected
    # The same as a training whose training nodes are all labelled ones, stopped at that epoch.
    moved = run_of(
        reports=replace(
            own, train_mask=own.train_mask | own.val_mask, val_mask=torch.zeros_like(own.val_mask)
        )
    )
    for rule, chosen in plain.selected.items():
        refitted = again.selected[rule]
        assert (refitted.epoch, refitted.qualified) == (chosen.epoch, chosen.qualified)
        last = BestEpoch(PaperRule(torch.ones(1)))
        last.epoch = torch.tensor([chosen.epoch])
        best, _ = ForwardCorrection()._train([moved], server, chosen={rule: last})
        for name, weight in refitted.weights.items():
            assert torch.equal(weight, best[rule].state[name][0])
            assert not torch.equal(weight, chosen.weights[name])
    for name, curve in plain.history.items():
        assert torch.equal(again.history[name], curve)
