import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lpgnn.models import GCN, Backbone, ModuleBackbone, Weights
from lpgnn.models.dropout import Dropout
from lpgnn.privacy import Collected, RandomizedResponse
from lpgnn.propagation import PropagatedFeatures, kprop_operator
from lpgnn.training import SELECTIONS, Learner, Run, Trained, train
from models.pyg import GIN
from models.reference import KINDS, Kind, Reference, build
from propagation.graphs import CPU, dense_kprop, seeded

from .block_graph import C, D, N, block_graph, block_split, collected, run_of

H = 6
EPOCHS = 10
NAMES = ("train_loss", "dropout_train_acc", "train_acc", "val_loss", "val_acc")


@dataclass
class Settings:
    learner: Learner = "drop"
    x_steps: int = 2
    y_steps: int = 2
    max_epochs: int = EPOCHS
    row_factors: Tensor | None = None  # [N]
    prior: Tensor | None = None  # [R, c, N]


def backbone_of(kind: Kind, run: Run) -> Backbone:
    return build(kind, run.collected.topology, D, H, C)


def train_runs(
    runs: Sequence[Run],
    backbone: Backbone,
    settings: Settings,
    *,
    keep_weights: bool = True,
) -> list[Trained]:
    return train(
        runs,
        backbone,
        kprop_operator(runs[0].collected.topology, "gcn", CPU),
        learner=settings.learner,
        x_steps=settings.x_steps,
        y_steps=settings.y_steps,
        max_epochs=settings.max_epochs,
        row_factors=settings.row_factors,
        prior=settings.prior,
        keep_weights=keep_weights,
    )


def assert_same(first: Trained, second: Trained) -> None:
    """Bitwise: history, choices, predictions and weights."""
    for name in NAMES:
        assert torch.equal(first.history[name], second.history[name]), name
    for selection in SELECTIONS:
        one, other = first.selected[selection], second.selected[selection]
        assert (one.epoch, one.qualified) == (other.epoch, other.qualified)
        assert torch.equal(one.predictions, other.predictions)
        assert set(one.weights) == set(other.weights)
        for name, weight in one.weights.items():
            assert torch.equal(weight, other.weights[name]), name


def assert_close(first: Trained, second: Trained) -> None:
    """To rounding: how a product sums depends on its shape, and on the processor's kernels."""
    for name in NAMES:
        torch.testing.assert_close(
            first.history[name], second.history[name], rtol=1e-4, atol=1e-5, msg=name
        )
    for selection in SELECTIONS:
        one, other = first.selected[selection], second.selected[selection]
        assert (one.epoch, one.qualified) == (other.epoch, other.qualified)
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


def plain_training(
    kind: Kind, run: Run, initial: Weights, settings: Settings, place: int = 0
) -> Plain:
    """Algorithm 3 for one run, in double precision, on dense P^K X' with torch-geometric's layers.

    The dropout masks come from the run's own stream, everything else is written out.
    ``place`` is the run's among the priors.
    """
    own, tuned = run.collected, run.hyperparameters
    p = dense_kprop(own.topology)
    x = torch.linalg.matrix_power(p, settings.x_steps) @ own.features.rectified().double()
    if settings.row_factors is not None:
        x = torch.diag(settings.row_factors.double()) @ x
    prior = torch.zeros(N, C, dtype=torch.float64)
    if settings.prior is not None:
        prior += settings.prior[place].t().double()
    transition = RandomizedResponse(own.y_eps, C).transition().double()
    if settings.learner == "cross_entropy":
        transition = torch.eye(C, dtype=torch.float64)
    one_hot = torch.zeros(N, C, dtype=torch.float64)
    labelled = own.train_mask | own.val_mask
    one_hot[labelled, own.labels[labelled]] = 1
    p_y = torch.linalg.matrix_power(p, settings.y_steps)
    received = p_y @ one_hot
    informed = own.train_mask & (received.sum(1) > 0)

    network = Reference(kind, own.topology, D, H, C)
    weights = {name: w.double().requires_grad_() for name, w in initial.items()}
    adam = torch.optim.Adam(
        list(weights.values()), lr=tuned.learning_rate, weight_decay=tuned.weight_decay
    )
    dropout = Dropout([tuned.dropout], [run.dropout_generator])
    plain = Plain()

    def accuracy(logits: Tensor, mask: Tensor) -> float:
        correct = int((logits.argmax(1) == own.labels)[mask].sum())
        # As the program rounds it, so that bounds are compared alike.
        return float(torch.tensor(correct, dtype=torch.float32) / int(mask.sum()))

    for _ in range(settings.max_epochs):
        hidden = network.hidden(weights, x)
        mask = dropout(torch.ones(1, *hidden.shape))[0]  # drawn in float32, as the program does
        logits = network.logits(weights, hidden * mask) + prior
        noisy = logits.softmax(1) @ transition
        if settings.y_steps == 0:
            loss = F.nll_loss(noisy.log()[own.train_mask], own.labels[own.train_mask])
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
            val_loss = F.nll_loss(noisy.log()[own.val_mask], own.labels[own.val_mask])
        plain.history["val_loss"].append(val_loss.item())
        plain.history["train_acc"].append(accuracy(logits, own.train_mask))
        plain.history["val_acc"].append(accuracy(logits, own.val_mask))
        plain.weights.append({name: w.detach().clone() for name, w in weights.items()})
        plain.predictions.append(logits.argmax(1))
    return plain


def equals_plain(kind: Kind, runs: Sequence[Run], again: Sequence[Run], settings: Settings) -> None:
    """Weights, history and choices of runs that train together, each against a plain training."""
    backbone = backbone_of(kind, runs[0])
    outcomes = train_runs(runs, backbone, settings)
    for place, (run, outcome) in enumerate(zip(again, outcomes, strict=True)):
        initial = backbone.initial_weights(generator=run.weights_generator)
        plain = plain_training(kind, run, initial, settings, place)
        for name in NAMES:
            expected = torch.tensor(plain.history[name], dtype=torch.float32)
            torch.testing.assert_close(outcome.history[name], expected, rtol=1e-4, atol=1e-5)
        bound = RandomizedResponse(run.collected.y_eps, C).keep_probability()
        bound = 1.0 if settings.learner == "cross_entropy" else bound
        paper, released = outcome.selected["paper"], outcome.selected["released"]
        assert (paper.epoch, paper.qualified) == plain.paper_choice(bound)
        assert released.epoch == plain.released_choice(bound)
        for chosen in (paper, released):
            wanted = plain.weights[chosen.epoch - 1]
            for name, weight in chosen.weights.items():
                torch.testing.assert_close(weight.double(), wanted[name], rtol=1e-3, atol=1e-4)
                # More than rounding has happened since the start, unless a bias has no effect.
                moved = float((wanted[name] - initial[name].double()).abs().max())
                assert moved > 0.5 * run.hyperparameters.learning_rate, name
            assert torch.equal(chosen.predictions.long(), plain.predictions[chosen.epoch - 1])


SETTINGS = {
    "drop": Settings("drop", 2, 2),
    "drop, K = 0": Settings("drop", 0, 0),
    "drop, deep": Settings("drop", 4, 8),
    "forward": Settings("forward", 2, 0),
    "cross entropy": Settings("cross_entropy", 1, 0),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SETTINGS)
def test_training_equals_a_plain_training_with_torch_geometric(kind: Kind, name: str) -> None:
    """Two runs with budgets, rates and dropout of their own, and their own masks."""

    def runs() -> list[Run]:
        return [
            run_of(0, collected(0, y_eps=2.0), dropout=0.5),
            run_of(1, collected(1, y_eps=1.0), learning_rate=0.03, weight_decay=0.1, dropout=0.0),
        ]

    equals_plain(kind, runs(), runs(), SETTINGS[name])


@pytest.mark.parametrize("mechanism", ["1b", "ag", None])
def test_other_reports_train_alike(mechanism: str | None) -> None:
    """Dense int8 and float32 reports, and clean features and labels."""
    y_eps = math.inf if mechanism is None else 2.0

    def runs() -> list[Run]:
        return [
            run_of(repeat, collected(repeat, mechanism, x_eps=20.0, y_eps=y_eps))
            for repeat in range(2)
        ]

    equals_plain("gcn", runs(), runs(), Settings())
    equals_plain("sage", runs(), runs(), Settings("forward", 2, 0))


def test_public_stand_in_features_train_alike() -> None:
    for feature in ("ones", "ohd", "rnd"):
        runs, again = ([run_of(0, collected(0, None, feature=feature))] for _ in range(2))
        equals_plain("sage", runs, again, Settings())


def some_factors() -> Tensor:
    return torch.logspace(-1, 0.5, N)[torch.randperm(N, generator=seeded(5))]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mechanism", ["mb", "lp"])
def test_conditioned_reports_train_alike(kind: Kind, mechanism: str) -> None:
    settings = Settings(row_factors=some_factors())
    runs, again = (
        [run_of(r, collected(r, mechanism, x_eps=20.0, y_eps=2.0)) for r in range(2)]
        for _ in range(2)
    )
    equals_plain(kind, runs, again, settings)


def test_factors_of_one_change_no_bit_and_others_do() -> None:
    backbone = backbone_of("sage", run_of())
    (usual,) = train_runs([run_of()], backbone, Settings())
    (ones,) = train_runs([run_of()], backbone, Settings(row_factors=torch.ones(N)))
    assert_same(usual, ones)
    (other,) = train_runs([run_of()], backbone, Settings(row_factors=some_factors()))
    assert not torch.equal(usual.history["train_loss"], other.history["train_loss"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_network_on_top_of_a_prior_equals_a_plain_training(kind: Kind) -> None:
    """Each run has a prior of its own."""
    settings = Settings("forward", 2, 0, prior=torch.randn(2, C, N, generator=seeded(6)))
    runs, again = (
        [run_of(r, collected(r, y_eps=2.0), learning_rate=0.03) for r in range(2)] for _ in range(2)
    )
    equals_plain(kind, runs, again, settings)


def test_a_strong_prior_decides() -> None:
    prior = torch.zeros(2, C, N)
    prior[0, 1] = prior[1, 2] = 1e4  # the first run is told class 1, the second class 2
    runs = [run_of(repeat) for repeat in range(2)]
    outcomes = train_runs(
        runs, backbone_of("sage", runs[0]), Settings("forward", 2, 0, prior=prior)
    )
    for told, outcome in zip((1, 2), outcomes, strict=True):
        for selection in SELECTIONS:
            assert bool((outcome.selected[selection].predictions == told).all())


def test_a_prior_of_zeros_is_no_prior() -> None:
    def outcomes(prior: Tensor | None) -> list[Trained]:
        runs = [run_of(repeat) for repeat in range(2)]
        settings = Settings("forward", 2, 0, prior=prior)
        return train_runs(runs, backbone_of("gcn", runs[0]), settings)

    usual = outcomes(None)
    for one, other in zip(usual, outcomes(torch.zeros(2, C, N)), strict=True):
        assert_same(one, other)
    first_only = torch.zeros(2, C, N)
    first_only[0, 1] = 1.0
    moved, kept = outcomes(first_only)
    assert_same(usual[1], kept)  # a prior is its own run's
    assert not torch.equal(usual[0].history["train_loss"], moved.history["train_loss"])


class RecordingGCN(GCN):
    """Keeps the weights that each epoch ends with: ``hidden`` is computed from them once."""

    seen: list[Weights]

    def hidden(self, weights: Weights, x: PropagatedFeatures) -> Tensor:
        self.seen.append({name: w.detach().clone() for name, w in weights.items()})
        return super().hidden(weights, x)


def test_weights_after_every_epoch_equal_a_plain_training() -> None:
    """Not only those that a rule keeps; and the first layer is computed once an epoch."""
    runs, again = ([run_of(repeat) for repeat in range(3)] for _ in range(2))
    backbone = RecordingGCN(runs[0].collected.topology, D, H, C)
    backbone.seen = []
    train_runs(runs, backbone, Settings())
    assert len(backbone.seen) == EPOCHS + 1
    for place, run in enumerate(again):
        initial = backbone.initial_weights(generator=run.weights_generator)
        for name, weight in initial.items():
            assert torch.equal(backbone.seen[0][name][place], weight)
        plain = plain_training("gcn", run, initial, Settings())
        for seen, wanted in zip(backbone.seen[1:], plain.weights, strict=True):
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mechanism", ["mb", "1b"])
@pytest.mark.parametrize("name", ["drop", "forward"])
def test_a_run_alone_is_the_run_among_ten(kind: Kind, mechanism: str, name: str) -> None:
    together = train_runs(ten_runs(mechanism), backbone_of(kind, run_of()), SETTINGS[name])
    for place in (0, 3, 9):
        run = ten_runs(mechanism)[place]
        (alone,) = train_runs([run], backbone_of(kind, run), SETTINGS[name])
        assert_close(alone, together[place])
    runs = ten_runs(mechanism)
    reversed_order = train_runs(runs[::-1], backbone_of(kind, runs[0]), SETTINGS[name])
    for one, other in zip(together, reversed_order[::-1], strict=True):
        assert_close(one, other)
    assert len({float(outcome.history["train_loss"][-1]) for outcome in together}) == 10


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_call_twice_gives_the_same_bits(kind: Kind) -> None:
    backbone = backbone_of(kind, run_of())
    first = train_runs([run_of(r) for r in range(3)], backbone, Settings())
    state = torch.random.get_rng_state()
    torch.rand(7)  # the global stream has no part in it
    second = train_runs([run_of(r) for r in range(3)], backbone, Settings())
    torch.random.set_rng_state(state)
    for one, other in zip(first, second, strict=True):
        assert_same(one, other)


def test_each_of_the_two_streams_matters() -> None:
    """So that the equalities above are not those of constants."""
    base = run_of()
    (outcome,) = train_runs([run_of()], backbone_of("gcn", base), Settings())
    other_weights = dataclasses.replace(run_of(), weights_generator=seeded(1))
    other_dropout = dataclasses.replace(run_of(), dropout_generator=seeded(1))
    for changed in (other_weights, other_dropout):
        (other,) = train_runs([changed], backbone_of("gcn", base), Settings())
        assert not torch.equal(outcome.history["val_loss"], other.history["val_loss"])


@pytest.mark.parametrize("mechanism", ["mb", "1b", "lp", None])
@pytest.mark.parametrize("y_eps", [1.0, math.inf])
def test_clean_values_changed_after_collection_change_no_weight(
    mechanism: str | None, y_eps: float
) -> None:
    def outcome(reports: Collected) -> Trained:
        run = run_of(0, reports)
        return train_runs([run], backbone_of("gcn", run), Settings())[0]

    graph, split = block_graph(), block_split()
    before = outcome(collected(0, mechanism, y_eps=y_eps, graph=graph, split=split))
    reports = collected(0, mechanism, y_eps=y_eps, graph=graph, split=split)
    assert graph.features is not None
    graph.features.values.fill_(0.0)
    graph.features.indices.fill_(0)
    graph.labels.copy_((graph.labels + 1) % C)
    for mask in (split.train, split.val, split.test):
        mask.fill_(False)
    graph.topology.indices.fill_(0)
    assert_same(outcome(reports), before)


def test_test_labels_never_matter_but_training_labels_do() -> None:
    """Changes before collection: of a test label without effect, of a training label with."""

    def outcome(part: str | None) -> Trained:
        graph, split = block_graph(), block_split()
        if part is not None:
            mask = split.test if part == "test" else split.train
            graph.labels[mask] = (graph.labels[mask] + 1) % C
        run = run_of(0, collected(0, y_eps=math.inf, graph=graph, split=split))
        return train_runs([run], backbone_of("gcn", run), Settings())[0]

    assert_same(outcome("test"), outcome(None))
    changed = outcome("train").history["train_loss"]
    assert not torch.equal(changed, outcome(None).history["train_loss"])


class BreaksAtEpochFour(GCN):
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


@pytest.mark.parametrize("name", SETTINGS)
def test_a_broken_run_is_reported_with_its_epoch_and_leaves_the_others_alone(name: str) -> None:
    runs = [run_of(repeat) for repeat in range(3)]
    breaking = BreaksAtEpochFour(runs[0].collected.topology, D, H, C)
    outcomes = train_runs(runs, breaking, SETTINGS[name])
    sound = train_runs([run_of(r) for r in range(3)], backbone_of("gcn", runs[0]), SETTINGS[name])
    assert [outcome.failed_epoch for outcome in outcomes] == [None, 4, None]
    assert [outcome.failed_epoch for outcome in sound] == [None, None, None]
    assert_same(outcomes[0], sound[0])
    assert_same(outcomes[2], sound[2])
    for column in NAMES:
        assert torch.equal(outcomes[1].history[column][:3], sound[1].history[column][:3])
    assert 1 <= outcomes[1].selected["paper"].epoch <= 3  # the last sound model stays


def test_diverging_learning_rates_are_reported() -> None:
    """Weights of 1e30 overflow in the first evaluation."""
    runs = [run_of(0), run_of(1, learning_rate=1e30)]
    outcomes = train_runs(runs, backbone_of("gcn", runs[0]), Settings("cross_entropy", 2, 0))
    assert outcomes[0].failed_epoch is None
    assert outcomes[1].failed_epoch == 1


HEAVY: dict[Learner, int] = {"cross_entropy": 0, "forward": 0, "drop": 2}


@pytest.mark.parametrize("learner", HEAVY)
def test_clean_labels_and_heavy_feature_noise_train_without_a_break(learner: Learner) -> None:
    """The setting of the paper's mechanism table: large logits, clean labels.

    Probabilities that underflow to 0 in float32 must not turn the loss into NaN.
    """
    runs = [run_of(r, collected(r, "lp", x_eps=0.01, y_eps=math.inf), dropout=0.0) for r in (0, 1)]
    settings = Settings(learner, 2, HEAVY[learner], max_epochs=5)
    outcomes = train_runs(runs, backbone_of("gcn", runs[0]), settings)
    assert [outcome.failed_epoch for outcome in outcomes] == [None, None]


@pytest.mark.parametrize("kind", KINDS)
def test_training_learns(kind: Kind) -> None:
    """R = 1, K = 0, no dropout, clean data: the communities are found."""
    run = run_of(0, collected(0, None, y_eps=math.inf), dropout=0.0)
    settings = Settings("drop", 0, 0, max_epochs=60)
    (outcome,) = train_runs([run], backbone_of(kind, run), settings, keep_weights=False)
    losses = outcome.history["train_loss"]
    assert float(losses[-1]) < 0.5 * float(losses[0])
    chosen = outcome.selected["paper"]
    test = block_split().test
    accuracy = float((chosen.predictions.long() == block_graph().labels)[test].float().mean())
    assert accuracy > 0.8
    assert chosen.weights == {}
    assert chosen.qualified
    assert chosen.predictions.shape == (N,)


def test_every_epoch_is_counted() -> None:
    run = run_of()
    calls: list[int] = []
    outcomes = train(
        [run],
        backbone_of("gcn", run),
        kprop_operator(run.collected.topology, "mean", CPU),
        learner="drop",
        x_steps=1,
        y_steps=1,
        max_epochs=7,
        on_epoch=lambda: calls.append(1),
    )
    assert len(calls) == 7
    assert all(outcomes[0].history[name].shape == (7,) for name in NAMES)


def plugged_in(run: Run, dropout: float = 0.5) -> Backbone:
    return ModuleBackbone(run.collected.topology, D, H, C, CPU, GIN, {}, dropout)


def test_a_plugged_in_network_trains_reproducibly() -> None:
    def runs() -> list[Run]:
        clean = [collected(repeat, None, y_eps=math.inf) for repeat in range(3)]
        return [run_of(repeat, reports) for repeat, reports in enumerate(clean)]

    settings = Settings("drop", 1, 0, max_epochs=30)
    together = train_runs(runs(), plugged_in(run_of()), settings)
    for one, other in zip(
        together, train_runs(runs(), plugged_in(run_of()), settings), strict=True
    ):
        assert_same(one, other)
    (alone,) = train_runs(runs()[1:2], plugged_in(run_of()), settings)
    assert_same(alone, together[1])
    for outcome in together:
        losses = outcome.history["train_loss"]
        assert float(losses[-5:].mean()) < 0.7 * float(losses[0])
    (undropped, *_) = train_runs(runs(), plugged_in(run_of(), dropout=0.0), settings)
    assert not torch.equal(undropped.history["train_loss"], together[0].history["train_loss"])


def test_a_plugged_in_network_equals_its_own_training() -> None:
    """Five epochs without dropout against the module trained by torch.optim.Adam."""
    run, settings = run_of(0, dropout=0.0), Settings("cross_entropy", 1, 0, max_epochs=5)
    backbone = plugged_in(run, dropout=0.0)
    (outcome,) = train_runs([run], backbone, settings)
    own = run.collected
    module = GIN(D, H, num_layers=2, out_channels=C)
    initial = backbone.initial_weights(generator=run_of(0).weights_generator)
    module.load_state_dict(initial, strict=False)
    adam = torch.optim.Adam(module.parameters(), lr=0.01, weight_decay=1e-3)
    x = (dense_kprop(own.topology) @ own.features.rectified().double()).float()
    losses = []
    for _ in range(5):
        logits = module(x, own.topology.edge_index())
        loss = F.cross_entropy(logits[own.train_mask], own.labels[own.train_mask])
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    torch.testing.assert_close(
        outcome.history["train_loss"], torch.tensor(losses), rtol=1e-3, atol=1e-4
    )
