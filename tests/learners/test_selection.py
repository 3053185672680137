import math
from collections.abc import Sequence

import pytest
import torch

from lpgnn.learners.selection import RULES, BestEpoch, EpochMetrics, PaperRule, ReleasedRule
from propagation.graphs import seeded

# One epoch of one run: validation loss, validation accuracy, training accuracy, the training
# accuracy in dropout mode.
Epoch = tuple[float, float, float, float]


def metrics_of(epochs: Sequence[Epoch]) -> EpochMetrics:
    """The same epoch of several runs."""
    loss, val, train, dropout = (torch.tensor(column) for column in zip(*epochs, strict=True))
    return EpochMetrics(
        train_loss=torch.full_like(loss, torch.nan),  # no rule may look at it
        dropout_train_acc=dropout,
        train_acc=train,
        val_loss=loss,
        val_acc=val,
    )


def paper_choice(history: Sequence[Epoch], bound: float) -> tuple[int, bool]:
    """Lowest validation loss among epochs within Acc*, of all epochs if there is none."""
    within = [t for t, (_, val, train, _) in enumerate(history, 1) if val <= bound >= train]
    candidates = within or range(1, len(history) + 1)
    return min(candidates, key=lambda t: history[t - 1][0]), bool(within)  # min: first of equals


def released_choice(history: Sequence[Epoch], bound: float) -> int:
    best = 1
    for t, (loss, val, _, train) in enumerate(history, 1):
        best_loss, best_val, _, best_train = history[best - 1]
        if loss < best_loss and best_val < val <= bound and best_train < train <= 1.05 * bound:
            best = t
    return best


def watched(
    rule: PaperRule | ReleasedRule, histories: Sequence[Sequence[Epoch]]
) -> tuple[list[int], BestEpoch]:
    """The epochs chosen for several runs; the state is the epoch's number times (1, run)."""
    runs = len(histories)
    best = BestEpoch(rule)
    for t, epochs in enumerate(zip(*histories, strict=True), 1):
        state = {
            "predictions": torch.full((runs, 4), t, dtype=torch.uint8),
            "weight": t * torch.arange(runs).float()[:, None, None].expand(runs, 2, 3),
            "bias": torch.full((runs,), float(t)),
        }
        best.update(t, metrics_of(epochs), state)
    return best.epoch.tolist(), best


def paper(history: Sequence[Epoch], bound: float) -> tuple[int, bool]:
    rule = PaperRule(torch.tensor([bound]))
    chosen, _ = watched(rule, [history])
    return chosen[0], bool(rule.qualified[0])


def released(history: Sequence[Epoch], bound: float) -> int:
    rule = ReleasedRule(torch.tensor([bound]))
    chosen, _ = watched(rule, [history])
    assert bool(rule.qualified[0])
    return chosen[0]


def same(loss: float, accuracy: float) -> Epoch:
    return (loss, accuracy, accuracy, accuracy)


def test_paper_rule_takes_the_lowest_loss_within_the_bound() -> None:
    history = [same(1.0, 0.2), same(0.8, 0.3), same(0.9, 0.4), same(0.5, 0.7)]
    assert paper(history, 0.5) == (2, True)
    assert paper(history, 0.7) == (4, True)
    assert paper(history, 0.25) == (1, True)


def test_paper_rule_wants_both_accuracies_within_the_bound() -> None:
    history = [(1.0, 0.2, 0.2, 0.2), (0.5, 0.6, 0.2, 0.2), (0.4, 0.2, 0.6, 0.2)]
    assert paper(history, 0.5) == (1, True)
    # The accuracy in dropout mode is none of its business.
    assert paper([(1.0, 0.2, 0.2, 0.2), (0.5, 0.2, 0.2, 0.9)], 0.5) == (2, True)


def test_paper_rule_falls_back_to_the_lowest_loss() -> None:
    history = [same(1.0, 0.9), same(0.7, 0.9), same(0.8, 0.9)]
    assert paper(history, 0.5) == (2, False)


def test_paper_rule_drops_the_fallback_at_the_first_epoch_that_qualifies() -> None:
    history = [same(0.1, 0.9), same(2.0, 0.4), same(0.05, 0.9), same(1.5, 0.4), same(1.7, 0.4)]
    assert paper(history, 0.5) == (4, True)


def test_paper_rule_keeps_the_first_of_equals() -> None:
    assert paper([same(1.0, 0.2), same(0.5, 0.2), same(0.5, 0.3)], 0.5) == (2, True)
    assert paper([same(1.0, 0.9), same(0.5, 0.9), same(0.5, 0.9)], 0.5) == (2, False)


def test_a_bound_that_is_reached_exactly_is_kept() -> None:
    assert paper([same(1.0, 0.9), same(0.5, 1.0)], 1.0) == (2, True)
    assert paper([same(1.0, 0.2), same(0.5, 0.5)], 0.5) == (2, True)
    above = float(torch.nextafter(torch.tensor(0.5), torch.tensor(1.0)))
    assert paper([same(1.0, 0.2), same(0.5, above)], 0.5) == (1, True)
    assert released([same(1.0, 0.9), same(0.5, 1.0)], 1.0) == 2
    assert released([same(1.0, 0.2), same(0.5, 0.5)], 0.5) == 2
    assert released([same(1.0, 0.2), same(0.5, above)], 0.5) == 1


def test_released_rule_starts_with_the_first_epoch_whatever_it_is() -> None:
    assert released([same(9.0, 0.9)], 0.5) == 1
    # Its accuracies then are what has to be beaten: above the bound nothing ever does.
    assert released([same(9.0, 0.9), same(1.0, 0.4), same(0.5, 0.45)], 0.5) == 1


@pytest.mark.parametrize(
    ("second", "chosen"),
    [
        ((0.9, 0.3, 0.0, 0.3), 2),
        ((1.0, 0.3, 0.0, 0.3), 1),  # the loss has to fall
        ((0.9, 0.2, 0.0, 0.3), 1),  # the validation accuracy has to rise
        ((0.9, 0.3, 0.0, 0.2), 1),  # and so does the training accuracy
        ((0.9, 0.51, 0.0, 0.3), 1),  # validation at most Acc*
        ((0.9, 0.3, 0.0, 0.5245), 2),  # training at most 1.05 Acc* = 0.525
        ((0.9, 0.3, 0.0, 0.5255), 1),
        ((0.9, 0.3, 0.99, 0.3), 2),  # without dropout is not asked for
    ],
)
def test_released_rule_condition_by_condition(second: Epoch, chosen: int) -> None:
    assert released([(1.0, 0.2, 0.2, 0.2), second], 0.5) == chosen


def test_released_rule_compares_with_the_best_not_with_the_last() -> None:
    history = [same(1.0, 0.2), same(0.8, 0.3), same(0.9, 0.25), same(0.85, 0.4), same(0.7, 0.31)]
    assert released(history, 0.5) == 5


@pytest.mark.parametrize("seed", range(5))
def test_both_rules_equal_plain_python_on_random_histories(seed: int) -> None:
    """Coarse values, so that ties and exact bounds are common; 200 runs side by side."""
    generator = seeded(seed)
    runs, length = 200, 12
    loss = torch.randint(1, 15, (runs, length), generator=generator) / 8
    accuracy = torch.randint(0, 9, (3, runs, length), generator=generator) / 8
    bounds = torch.randint(1, 9, (runs,), generator=generator) / 8
    histories: list[list[Epoch]] = [
        [
            (float(loss[run, t]), *(float(a[run, t]) for a in accuracy))  # type: ignore[misc]
            for t in range(length)
        ]
        for run in range(runs)
    ]
    rule = PaperRule(bounds)
    chosen, _ = watched(rule, histories)
    expected = [paper_choice(h, float(b)) for h, b in zip(histories, bounds, strict=True)]
    assert list(zip(chosen, rule.qualified.tolist(), strict=True)) == expected
    assert {qualified for _, qualified in expected} == {True, False}

    chosen, _ = watched(ReleasedRule(bounds), histories)
    wanted = [released_choice(h, float(b)) for h, b in zip(histories, bounds, strict=True)]
    assert chosen == wanted
    assert len(set(wanted)) > 5


def test_the_best_epoch_keeps_each_runs_own_state() -> None:
    histories = [
        [same(1.0, 0.2), same(0.5, 0.2), same(0.7, 0.2)],
        [same(1.0, 0.2), same(1.5, 0.2), same(0.7, 0.2)],
        [same(0.1, 0.2), same(0.5, 0.2), same(0.7, 0.2)],
        [same(0.1, 0.9), same(0.2, 0.9), same(0.05, 0.9)],
    ]
    chosen, best = watched(PaperRule(torch.full((4,), 0.5)), histories)
    assert chosen == [2, 3, 1, 3]
    at = torch.tensor(chosen)
    assert torch.equal(best.state["predictions"], at.to(torch.uint8)[:, None].expand(4, 4))
    weight = (at * torch.arange(4)).float()[:, None, None].expand(4, 2, 3)
    assert torch.equal(best.state["weight"], weight)
    assert torch.equal(best.state["bias"], at.float())


def test_the_best_epoch_does_not_hold_on_to_tensors_that_train_on() -> None:
    """Weights are updated in place after they were watched."""
    weight = torch.zeros(2, 3)
    best = BestEpoch(PaperRule(torch.ones(2)))
    for t, losses in enumerate([(1.0, 1.0), (0.5, 2.0), (0.7, 3.0)], 1):
        weight.fill_(t)
        best.update(t, metrics_of([same(loss, 0.5) for loss in losses]), {"w": weight})
    weight.fill_(99)
    assert torch.equal(best.state["w"], torch.tensor([[2.0] * 3, [1.0] * 3]))


def test_a_run_whose_loss_is_no_number_keeps_what_it_had() -> None:
    history = [same(1.0, 0.2), same(0.5, 0.3), same(math.nan, 0.4), same(math.nan, 0.5)]
    assert paper(history, 0.5) == (2, True)
    assert released(history, 0.5) == 2


def test_choices_of_one_run_do_not_depend_on_the_others() -> None:
    quiet = [same(1.0, 0.2), same(0.5, 0.3), same(0.7, 0.4)]
    broken = [same(math.nan, 0.9)] * 3

    def choices(histories: list[list[Epoch]]) -> list[int]:
        bounds = torch.full((len(histories),), 0.5)
        rules = (PaperRule(bounds), ReleasedRule(bounds))
        return [watched(rule, histories)[0][0] for rule in rules]

    assert choices([quiet]) == choices([quiet, broken]) == [2, 2]


def test_every_rule_has_a_name() -> None:
    assert {"paper": PaperRule, "released": ReleasedRule} == RULES


def test_curves_are_the_epochs_in_order() -> None:
    epochs = [[same(1.0, 0.25), same(3.0, 0.5)], [same(2.0, 0.75), same(4.0, 1.0)]]
    curves = EpochMetrics.curves([metrics_of(runs) for runs in epochs])
    assert list(curves) == ["train_loss", "dropout_train_acc", "train_acc", "val_loss", "val_acc"]
    assert curves["val_loss"].tolist() == [[1.0, 3.0], [2.0, 4.0]]  # [T, R]
    assert curves["val_acc"].tolist() == [[0.25, 0.5], [0.75, 1.0]]
