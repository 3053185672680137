"""The whole benchmark on the embedded graph: search, reported runs, standings, page."""

import csv
import json
import math
import re
import shlex
import sys
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import scipy.stats

from benchmark.small_protocol import PROTOCOL
from lpgnn.benchmark import __main__ as command
from lpgnn.benchmark import caveats
from lpgnn.benchmark.entries import Entry, known_entries, own_mechanisms, read_entry
from lpgnn.benchmark.notes import Contest, best_at, contests, entry_at, notes, summary
from lpgnn.benchmark.page import write_benchmark
from lpgnn.benchmark.pareto import front
from lpgnn.benchmark.plan import BLANK, Judged, Plan, Setting, Values, _loss
from lpgnn.benchmark.protocol import load_protocol
from lpgnn.benchmark.standings import (
    Against,
    Computed,
    Standing,
    overall,
    rule_sentence,
    sentence,
    standings,
)
from lpgnn.benchmark.standings import computed as what_is_there
from lpgnn.errors import InputError
from lpgnn.report.evidence import Cell, Source
from lpgnn.report.paired import Difference, holm
from lpgnn.rows import RowStore
from lpgnn.sweeps.session import run_points

pytestmark = pytest.mark.slow

ENTRIES = {
    "labels_only": Entry(
        *("labels_only", "Labels only", "control"),
        settings={"learner": "label_propagation", "x_eps": math.inf},
        exact_labels={"learner": "label_propagation"},
        trials=0,
    ),
    "mb": Entry("mb", "Multi-bit", "feature mechanism", settings={"mechanism": "mb"}),
    "forward": Entry(
        "forward", "Forward", "learner", settings={"learner": "forward"}, labels="private"
    ),
}


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """All runs of the small benchmark."""
    folder = tmp_path_factory.mktemp("results")
    plan = Plan(PROTOCOL, ENTRIES, folder, (f"results_dir={folder}", "workers=0"))
    assert run_points([p for tried in plan.trials().values() for _, own in tried for p in own]) == 0
    assert run_points([p for points in plan.reported(plan.chosen()).values() for p in points]) == 0
    return plan


@pytest.fixture(scope="module")
def chosen(computed: Plan) -> dict[Setting, Values]:
    return computed.chosen()


@pytest.fixture(scope="module")
def there(computed: Plan) -> Computed:
    return what_is_there(computed, Source(computed.results_dir))


@pytest.fixture(scope="module")
def found(there: Computed) -> list[Standing]:
    return standings(there)


def test_everyone_has_as_many_trials_on_the_same_collections() -> None:
    trials = Plan(PROTOCOL, ENTRIES, Path("results")).trials()
    assert trials.keys() == {
        *(("mb", "sbm", y_eps) for y_eps in (1.0, math.inf)),
        ("forward", "sbm", 1.0),  # nothing to correct in clean labels
    }
    for (name, _, y_eps), tried in trials.items():
        assert len(tried) == 3
        for values, (point,) in tried:
            settings = point.settings
            assert (settings.seed, settings.split, settings.repeats) == (1000, "random", 2)
            assert settings.y_eps == y_eps
            # Steps of labels are searched where the learner has them.
            assert ("learner.steps" in values) == (name == "mb" and y_eps == 1.0)
    # What they share they try alike, whatever else they search: nobody is luckier.
    alike = [v for v, _ in trials["forward", "sbm", 1.0]]
    assert [v for v, _ in trials["mb", "sbm", math.inf]] == alike
    more = [v for v, _ in trials["mb", "sbm", 1.0]]
    assert [{k: v for k, v in values.items() if k != "learner.steps"} for values in more] == alike


def criterion(rows: Collection[dict[str, str]]) -> float:
    """Of a network that has learnt the noise the loss under the authors' rule counts, if higher."""
    losses = []
    for row in rows:
        own, other = float(row["paper/val/loss"]), float(row["released/val/loss"])
        losses.append(own if row["paper/qualified"] == "true" else max(own, other))
    return fmean(losses)


def test_the_reported_runs_have_the_values_of_the_lowest_noisy_validation_loss(
    computed: Plan, chosen: dict[Setting, Values]
) -> None:
    store, reported = RowStore(computed.results_dir / "tuning"), computed.reported(chosen)
    for setting, tried in computed.trials().items():
        losses = []
        for values, (point,) in tried:
            rows = store.finished("sbm", point.settings.resolve().identity).values()
            assert len(rows) == 2
            losses.append((criterion(rows), values))
        assert chosen[setting] == min(losses, key=lambda one: one[0])[1]
        for point in reported[setting]:
            assert point.settings.seed == 0
            assert point.settings.repeats == 3
            for name, value in chosen[setting].items():
                kind, _, option = name.partition(".")
                found = getattr(point.settings, kind)
                assert (found[option] if option else found) == value


def test_mechanisms_are_searched_together(computed: Plan) -> None:
    """The values of the lowest loss on average over feature mechanisms are those of each.

    The loss on subset selection's reports is of another scale: it is searched by itself.
    """
    mechanisms = {
        name: Entry(name, name, "feature mechanism", settings={"mechanism": name})
        for name in ("mb", "pm")
    }
    ss = Entry("ss", "ss", "label mechanism", settings={"label_mechanism": "ss"}, labels="private")
    mine = Entry("mine", "Mine", "feature mechanism", settings={"mechanism": "lp"})
    entries = {"mine": mine, "ss": ss, "forward": ENTRIES["forward"], **mechanisms}
    plan = replace(
        computed,
        entries=entries,
        mechanisms={"mb": mechanisms["mb"], "ss": ss, "pm": mechanisms["pm"]},
    )
    trials = plan.trials()
    # One search for all of them.
    assert trials.keys() == {
        ("ss", "sbm", 1.0),
        ("", "sbm", 1.0),
        ("", "sbm", math.inf),
        ("forward", "sbm", 1.0),
    }
    assert [len(points) for _, points in trials["", "sbm", 1.0]] == [2, 2, 2]
    assert [len(points) for _, points in trials["", "sbm", math.inf]] == [2, 2, 2]
    together = [
        p for (name, _, _), tried in trials.items() if not name for _, own in tried for p in own
    ]
    assert {p.label for p in together} == {"mb", "pm"}  # a submission has no say
    assert run_points(together) == 0
    store, chosen = RowStore(plan.results_dir / "tuning"), plan.chosen()
    # A seed stays that of a mechanism's place, whoever has a say.
    for y_eps, seeds in ((1.0, [1000, 1002]), (math.inf, [1000, 1001])):
        keys = []
        for values, points in trials["", "sbm", y_eps]:
            rows = [store.finished("sbm", point.settings.resolve().identity)[0] for point in points]
            assert [p.settings.seed for p in points] == seeds
            keys.append((criterion(rows), values))
        best = min(keys, key=lambda one: one[0])[1]
        assert {str(chosen[name, "sbm", y_eps]) for name in ("mine", "mb", "pm")} == {str(best)}
    assert ("ss", "sbm", 1.0) not in chosen  # not searched yet
    assert [[p.settings.seed for p in points] for _, points in trials["ss", "sbm", 1.0]] == (
        [[1000]] * 3
    )


def test_candidates_are_balanced_and_alike() -> None:
    protocol = load_protocol().narrowed({"dataset": ["cora"]})
    plan = Plan(protocol, known_entries(Path("nowhere")), Path("nowhere"))
    orders: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (name, _, _), candidates in plan.candidates.items():
        for setting in candidates[0]:
            order = [str(values[setting]) for values in candidates]
            counts = Counter(order)
            assert max(counts.values()) - min(counts.values()) <= 1, (name, setting)
            assert orders.setdefault((setting, tuple(sorted(counts))), order) == order, name


@pytest.mark.parametrize(
    ("changes", "together"),
    [
        ({}, True),
        ({"settings": {"mechanism": "pm", "+mechanism.sample": 2}}, True),
        ({"settings": {"mechanism": "pm", "dropout": 0.5}}, False),
        ({"settings": {"mechanism": "pm", "label_mechanism": "ss"}}, False),
        ({"settings": {"label_mechanism": "ss"}}, False),
        ({"search": {"+mechanism.sample": [1, 2]}}, False),
        ({"exact_labels": {"learner": "drop"}}, False),
        ({"trials": 0}, False),
    ],
)
def test_who_is_searched_together(changes: dict[str, Any], together: bool) -> None:
    entry = Entry("mine", "Mine", "feature mechanism", settings={"mechanism": "pm"})
    assert replace(entry, **changes).is_searched_together is together


def test_ours_that_are_searched_together() -> None:
    names = {name for name, one in own_mechanisms().items() if one.is_searched_together}
    features = {"mb", "1b", "lp", "ag", "duchi", "pm", "hm", "sw", "privunit", "grr_fs"}
    assert not {"sw_em", "privunit_norm"} & names  # searched by themselves
    assert names == features
    assert own_mechanisms().keys() == features | {"ss", "rr_prior", "laplace_onehot"}


def test_without_all_trials_only_what_has_none_is_chosen(computed: Plan, tmp_path: Path) -> None:
    chosen = replace(computed, results_dir=tmp_path).chosen()
    assert chosen == {("labels_only", "sbm", y_eps): {} for y_eps in (1.0, math.inf)}


def test_every_entry_but_controls_has_blank_runs(
    computed: Plan, chosen: dict[Setting, Values]
) -> None:
    for (name, _, _), points in computed.reported(chosen).items():
        blank = [p for p in points if p.control]
        assert [p.settings.x_eps for p in blank] == ([] if name == "labels_only" else [0.1, 1.0])
        assert {p.settings.component("feature").name for p in blank} <= {"blank"}


def test_standings_from_the_rows(there: Computed, found: list[Standing]) -> None:
    mb = next(s for s in found if (s.entry.name, s.x_eps, s.y_eps) == ("mb", 0.1, 1.0))
    values = {int(r["repeat"]): float(r["paper/test/balanced_acc"]) for r in mb.cell.rows}
    assert mb.summary.mean == pytest.approx(fmean(values.values()))
    only = next(s for s in found if (s.entry.name, s.y_eps) == ("labels_only", 1.0))
    control = {int(r["repeat"]): float(r["paper/test/balanced_acc"]) for r in only.cell.rows}
    assert mb.labels_only is not None
    difference = fmean(values[r] - control[r] for r in values)
    assert mb.labels_only.difference.mean == pytest.approx(difference)
    assert mb.labels_only.holm_p >= mb.labels_only.difference.p
    assert mb.total_eps == pytest.approx(1.1)
    assert only.total_eps == 1.0
    released = [float(r["released/test/balanced_acc"]) for r in mb.cell.rows]
    other = next(s for s in standings(there, "released") if s.place == mb.place)
    assert other.summary.mean == pytest.approx(fmean(released))
    group = [s for s in found if (s.x_eps, s.y_eps) == (0.1, 1.0)]
    assert [s.rank for s in group] == [1, 2]
    assert group[0].summary.mean >= group[1].summary.mean


def test_the_command_of_a_standing_makes_its_rows(found: list[Standing]) -> None:
    from lpgnn.composition import expand

    for one in found:
        words = shlex.split(one.command)[3:]
        (point,) = expand(words)
        assert point.settings.resolve().identity == one.cell.identity
        assert point.settings.metric == one.metric == "balanced_acc"  # what it prints


def test_the_command_of_a_standing_can_be_pasted_into_a_shell(found: list[Standing]) -> None:
    one = found[0]
    point = replace(one.cell.point, keys={"filter": "powers", "filter.theta": "[1,1]"})
    told = replace(one, cell=replace(one.cell, point=point)).command
    assert "filter=powers 'filter.theta=[1,1]'" in told


def against(mean: float, holm_p: float) -> Against:
    return Against(Difference(mean, mean - 1, mean + 1, 10, holm_p / 2), holm_p)


def test_only_who_beats_both_controls_beats_both(found: list[Standing]) -> None:
    one = found[-1]
    verdicts = {
        (2.0, 0.01): "above",
        (-2.0, 0.01): "below",
        (2.0, 0.2): "not shown to differ",
    }
    for (mean, p), verdict in verdicts.items():
        assert against(mean, p).verdict == verdict
        other = replace(one, blank=against(2, 0.01), labels_only=against(mean, p))
        assert other.beats_both is (verdict == "above")
    assert replace(one, blank=None).beats_both is None
    none = sentence("sbm", [replace(one, blank=against(1, 0.5))])
    assert "buys nothing that can be shown: none of 1" in none
    some = sentence("sbm", [replace(one, blank=against(3, 0.01)), one])
    assert "buys up to 3.0 points over blank reports" in some
    assert f"({one.entry.title}, ε_x=∞, ε_y=∞): 1 of 1 comparisons is above 0" in some


def test_features_without_noise_have_no_finite_total(found: list[Standing]) -> None:
    one = next(s for s in found if s.entry.name == "mb" and s.y_eps == 1.0)
    assert one.cell.configuration is not None
    bare = replace(one.cell, configuration=replace(one.cell.configuration, x_eps=math.inf))
    assert replace(one, cell=bare, x_eps=math.inf).total_eps == math.inf


def without_a_repeat(there: Computed, name: str) -> Computed:
    """As if the last repeat of an entry were still to come."""
    own = {
        setting: [replace(c, rows=c.rows[:-1]) if setting[0] == name else c for c in cells]
        for setting, cells in there.own.items()
    }
    return replace(there, own=own)


@pytest.mark.parametrize(
    ("changes", "loss"),
    [
        ({}, 1.5),
        ({"paper/qualified": "false"}, 2.0),  # the lowest loss of one that has learnt the noise
        ({"paper/qualified": "false", "released/val/loss": "1.25"}, 1.5),
        ({"status": "failed: loss is not finite at epoch 3"}, math.inf),
    ],
)
def test_the_loss_of_a_trial_by_hand(changes: dict[str, str], loss: float) -> None:
    row = {"status": "ok", "paper/qualified": "true", "paper/val/loss": "1.5"}
    assert _loss(row | {"released/val/loss": "2.0"} | changes, "paper") == loss


def test_close_calls_are_counted_by_paired_losses(computed: Plan) -> None:
    def searches(*losses: tuple[list[float], list[float]]) -> int:
        plan = replace(computed)  # nothing is cached
        tried: list[list[Judged]] = [
            [Judged({}, best), Judged({}, second), Judged({}, [9.0, 9.0, 9.0])]
            for best, second in losses
        ]
        plan.__dict__["judged"] = {(str(i), "sbm", 1.0): own for i, own in enumerate(tried)}
        return plan.close_calls()

    # Differences 1, 1, 4: mean 2, standard error 1.  Then 0, 0, 3: mean 1, standard error 1.
    far, near = ([0.0, 1.0, 2.0], [1.0, 2.0, 6.0]), ([0.0, 1.0, 2.0], [0.0, 1.0, 4.9])
    assert searches(far) == 0
    assert searches(near) == 1
    assert searches(far, near, far) == 1
    assert searches(([1.0, 1.0, 1.0], [1.5, 1.5, 1.5])) == 0  # no doubt


def test_what_a_search_chose_is_placed_by_test_labels(computed: Plan) -> None:
    def tried(engine: str, *candidates: tuple[tuple[float, float], str]) -> list[Judged]:
        return [
            Judged(
                {},
                [float(i)] * 2,
                [
                    {
                        "paper/test/balanced_acc": str(value),
                        "paper/qualified": qualified,
                        "engine": f"{engine}{i}",
                    }
                    for value in values
                ],
            )
            for i, (values, qualified) in enumerate(candidates)
        ]

    plan = replace(computed)
    # Means 60, 70, 50, 60: above one of three others, level with one.  Then 40 and 45, all noise.
    shared = tried(
        "a", ((50, 70), "true"), ((70, 70), "true"), ((40, 60), "true"), ((60, 60), "false")
    )
    own = tried("a", ((40, 40), "false"), ((45, 45), "true"))
    plan.__dict__["judged"] = {("", "sbm", 1.0): shared, ("forward", "sbm", 1.0): own}
    grid = caveats.searches(plan)
    assert grid is not None
    # (50 + 0) / 2, (10 + 5) / 2; the shared search; one whose networks have all fitted the noise.
    assert grid.to_markdown().splitlines()[-1] == "| sbm | 1 | 2 | 25 | 7.5 | 50 | 10.0 | 1 |"
    assert "of 2 of these searches were computed by more than one engine" in caveats.search_text(
        plan
    )
    title = plan.entries["forward"].title
    assert caveats.missed(plan) == f"{title} on sbm (40.0, 45.0)"
    plan.__dict__["judged"] = {("forward", "sbm", 1.0): own[:1] + own[:1]}
    assert caveats.missed(plan) == ""  # there was no other
    grid = caveats.searches(plan)
    assert grid is not None
    assert grid.to_markdown().splitlines()[-1] == "| sbm | 1 | 1 | 50 | 0.0 | – | – | 1 |"
    assert "more than one engine" not in caveats.search_text(plan)


def test_the_best_of_a_learner_is_chosen_place_by_place(found: list[Standing]) -> None:
    mb = [s for s in found if s.entry.name == "mb" and s.y_eps == 1.0]
    assert [s.x_eps for s in mb] == [0.1, 1.0]
    rival = replace(mb[0].entry, name="pm")
    higher = replace(mb[0].summary, mean=mb[0].summary.mean + 1)
    lower = replace(mb[1].summary, mean=mb[1].summary.mean - 1)
    others = [
        replace(one, entry=rival, summary=summary)
        for one, summary in zip(mb, (higher, lower), strict=True)
    ]
    best = best_at([*found, *others], "drop")
    # Drop trains with private labels only, and forward correction is another learner.
    assert {place: one.entry.name for place, one in best.items()} == {
        ("sbm", 0.1, 1.0): "pm",
        ("sbm", 1.0, 1.0): "mb",
    }
    assert best_at([replace(s, rank=None) for s in found], "drop") == {}


def test_what_the_correction_can_show_and_where_chance_is(found: list[Standing]) -> None:
    mb = [s for s in found if s.entry.name == "mb" and s.y_eps == 1.0]
    judged = [
        replace(mb[0], blank=against(2, 0.01)),
        replace(mb[1], blank=against(-2, 0.5)),
    ]
    grid = caveats.power(judged)
    assert grid is not None
    # Two comparisons: the first has to pass at 0.025; t of ten repeats at 0.9875 and at 0.975.
    least = scipy.stats.t.ppf(0.9875, 9) / scipy.stats.t.ppf(0.975, 9)
    assert f"| sbm | 1 | 2 | {least:.1f} | 1 | 1 |" in grid.to_markdown()
    assert caveats.power([replace(s, blank=None) for s in mb]) is None
    low, high = (
        replace(s, metric="roc_auc", summary=replace(s.summary, mean=mean, ci=2.0))
        for s, mean in zip(mb, (51.9, 52.1), strict=True)
    )
    reached = "many intervals reach it: those of 1 of 2 cells on sbm at ε_y=1."
    assert reached in caveats.chance([low, high])
    assert "Labels only" not in caveats.chance([low, high])
    assert caveats.chance([high, replace(low, metric="acc")]) == ""
    control = next(s for s in found if s.entry.name == "labels_only" and s.y_eps == 1.0)
    for one, told in ((low, True), (high, False)):
        only = replace(control, metric="roc_auc", summary=one.summary)
        text = caveats.chance([low, only])
        assert "those of 1 of 1 cells on" in text
        assert ("Labels only is at chance itself on sbm at ε_y=1" in text) is told


def test_who_lacks_repeats_has_no_rank_and_no_verdict(there: Computed) -> None:
    found = standings(without_a_repeat(there, "mb"))
    for one in found:
        if one.entry.name == "mb":
            assert (one.rank, one.beats_both, one.lacks) == (None, None, ("2 of 3 repeats",))
        elif one.entry.name == "forward":
            assert one.rank == 1
            assert one.labels_only is not None
            # Two in its family, one for each feature budget.
            assert one.labels_only.holm_p <= 2 * one.labels_only.difference.p + 1e-12
    assert [one.entry.name for one in overall(found)] == ["forward"]


def test_a_control_that_lacks_repeats_is_none(there: Computed) -> None:
    found = standings(without_a_repeat(there, "labels_only"))
    own = [one for one in found if not one.entry.is_control]
    assert {one.lacks for one in own} == {("labels only: not computed",)}
    assert {one.beats_both for one in own} == {None}


def by_another_engine(cell: Cell) -> Cell:
    return replace(cell, rows=[{**row, "engine": "another"} for row in cell.rows])


def test_a_control_of_another_engine_is_named(there: Computed) -> None:
    blanks = {place: by_another_engine(cell) for place, cell in there.blanks.items()}
    own = [s for s in standings(replace(there, blanks=blanks)) if not s.entry.is_control]
    assert {one.lacks for one in own} == {("blank: computed by another engine",)}


def test_what_the_whole_benchmark_lacks(there: Computed) -> None:
    assert there.unfinished() == {"sbm": []}
    assert there.unfinished_text() == []
    part = without_a_repeat(there, "mb")
    assert part.unfinished_text() == ["sbm: 2 of 3 entries are complete; missing: mb"]
    less = without_a_repeat(part, "forward")
    assert less.unfinished_text() == ["sbm: 1 of 3 entries are complete: labels_only"]
    assert replace(there, chosen={}).unfinished_text() == ["no entry is complete on sbm"]


def test_equal_means_share_a_rank(there: Computed) -> None:
    own = dict(there.own)
    (mb,) = (cells for (name, _, y_eps), cells in own.items() if (name, y_eps) == ("mb", 1.0))
    own["forward", "sbm", 1.0] = mb
    found = [s for s in standings(replace(there, own=own)) if s.rank and s.y_eps == 1.0]
    assert {one.rank for one in found} == {1}
    assert {one.place for one in overall(found)} == {50.0}


def test_the_sentence_on_the_other_rule_by_hand(found: list[Standing]) -> None:
    mb = [s for s in found if s.entry.name == "mb" and s.y_eps == 1.0]
    assert len(mb) == 2
    low = [replace(s, rank=1, blank=against(1, 0.5), labels_only=against(2, 0.01)) for s in mb]
    shifted = zip(mb, (1, 3), strict=True)
    up = [replace(s.summary, mean=s.summary.mean + shift) for s, shift in shifted]
    high = [
        replace(low[0], summary=up[0], blank=against(2, 0.01)),
        replace(low[1], summary=up[1], rank=2),
    ]
    assert rule_sentence(low, high, "released") == (
        "Under the released rule the same runs' means move by +2.0 points at ε_y=1 on average; "
        "of 2 cells 1 are above blank reports (here 0) and 1 above both controls (here 0); "
        "the first place is the same in 1 of 2 settings."
    )


def test_the_front_is_what_no_smaller_budget_reaches() -> None:
    names = {"a": (2.0, 60.0), "b": (1.0, 50.0), "c": (1.0, 40.0), "d": (4.0, 55.0)}
    points = [(*at, name) for name, at in {**names, "e": (8.0, 61.0)}.items()]
    assert front(points) == [(1.0, 50.0, "b"), (2.0, 60.0, "a"), (8.0, 61.0, "e")]


def with_column(one: Standing, column: str, value: str) -> Standing:
    rows = [{**row, column: value} for row in one.cell.rows]
    return replace(one, cell=replace(one.cell, rows=rows))


def test_contests_with_the_default(computed: Plan, found: list[Standing]) -> None:
    (contest,) = contests(found, computed, ["forward", "nobody"], entry_at(found, "mb"))
    own = {s.x_eps: s.summary.mean for s in found if s.entry.name == "forward"}
    usual = {s.x_eps: s.summary.mean for s in found if s.entry.name == "mb" and s.y_eps == 1.0}
    assert contest.cells == len(contest.found) == 2
    assert sorted(one.difference.mean for one in contest.found) == pytest.approx(
        sorted(own[eps] - usual[eps] for eps in own)
    )
    for name in ("forward", "mb"):  # of either side
        for qualified in ("true", "false"):
            given = [
                with_column(s, "paper/qualified", qualified if s.entry.name == name else "true")
                for s in found
            ]
            (one,) = contests(given, computed, ["forward"], entry_at(given, "mb"))
            assert one.fits_noise == (qualified == "false")
    verdicts = {
        (against(1, 0.01), against(2, 0.2)): "higher in every cell, significantly in 1",
        (against(1, 0.01), against(-2, 0.2)): "not higher in 1 of 2 cells",
        (against(1, 0.01),): "undecided",
    }
    for differences, verdict in verdicts.items():
        made = Contest(contest.entry, "sbm", 2, differences)
        assert made.verdict == verdict
        assert made.count("above") == 1
    sure, same = (against(1, 0.01), against(2, 0.01)), (against(0, 1.0), against(0, 1.0))
    assert Contest(contest.entry, "sbm", 2, sure).verdict == "above in every cell"
    assert Contest(contest.entry, "sbm", 2, sure, True).line()[-1] == "above in every cell ‡"
    assert Contest(contest.entry, "sbm", 2, sure).line()[-1] == "above in every cell"
    assert Contest(contest.entry, "sbm", 2, same).verdict == "the same"


def test_contests_between_two_engines_are_by_welchs_test(
    computed: Plan, found: list[Standing]
) -> None:
    moved = [
        replace(s, cell=by_another_engine(s.cell)) if s.entry.name == "forward" else s
        for s in found
    ]
    (contest,) = contests(moved, computed, ["forward"], entry_at(moved, "mb"))
    for one, x_eps in zip(contest.found, (0.1, 1.0), strict=True):
        ours, theirs = (
            [*s.cell.values("paper", s.metric).values()]
            for name in ("forward", "mb")
            for s in found
            if (s.entry.name, s.x_eps, s.y_eps) == (name, x_eps, 1.0)
        )
        expected = scipy.stats.ttest_ind(ours, theirs, equal_var=False)
        assert one.difference.mean == pytest.approx(fmean(ours) - fmean(theirs))
        assert one.difference.p == pytest.approx(expected.pvalue)


def test_the_tests_of_a_graph_are_one_family(found: list[Standing]) -> None:
    for control in ("blank", "labels_only"):
        judged = [getattr(s, control) for s in found if getattr(s, control) is not None]
        assert len(judged) == 6  # of both label budgets
        assert [one.holm_p for one in judged] == holm([one.difference.p for one in judged])


def test_ranks_and_sentences_wait_for_a_graph_to_be_complete(
    there: Computed, tmp_path: Path
) -> None:
    part = without_a_repeat(there, "forward")
    assert (there.whole, part.whole) == (("sbm",), ())
    (tmp_path / "benchmark").mkdir()
    write_benchmark(part, standings(part), tmp_path)
    assert "Not complete" in (tmp_path / "benchmark" / "sbm.md").read_text()
    assert "Graphs that are complete: none yet." in (tmp_path / "benchmark/ranks.md").read_text()
    assert "What spending" not in (tmp_path / "benchmark" / "notes.md").read_text()
    # A graph whose rows are gone has no table.
    (tmp_path / "benchmark" / "cora.md").write_text("old")
    protocol = replace(PROTOCOL, metrics={**PROTOCOL.metrics, "cora": "acc"})
    plan = replace(part.plan, protocol=protocol)
    plan.__dict__["judged"] = {}  # the settings are sbm's: nothing can be planned on cora
    part = replace(part, plan=plan)
    write_benchmark(part, standings(part), tmp_path)
    assert not (tmp_path / "benchmark" / "cora.md").exists()


def test_caveats_are_counted_from_the_rows(there: Computed, found: list[Standing]) -> None:
    mb = next(s for s in found if s.entry.name == "mb" and s.y_eps == 1.0)
    kept = (1, 3, 96)
    rows = [
        {**row, "paper/epoch": str(e), "paper/qualified": "true"}
        for row, e in zip(mb.cell.rows, kept, strict=True)
    ]
    assert mb.cell.configuration is not None
    long = replace(mb.cell.configuration, max_epochs=100)
    trained = replace(mb, cell=replace(mb.cell, rows=rows, configuration=long))
    grid = caveats.epochs([trained], "paper")
    assert grid is not None
    assert "| sbm | 1 | 3 | 33 % | 67 % | 0 % |" in grid.to_markdown()
    assert trained.marks("paper") == "†"
    for count, share, marks in ((1, 33, ""), (2, 67, "‡")):
        rows = [
            {**row, "paper/epoch": "50", "paper/qualified": "false" if i < count else "true"}
            for i, row in enumerate(mb.cell.rows)
        ]
        noisy = replace(mb, cell=replace(mb.cell, rows=rows, configuration=long))
        grid = caveats.epochs([noisy], "paper")
        assert grid is not None
        assert f"| sbm | 1 | 3 | 0 % | 0 % | {share} % |" in grid.to_markdown()
        assert noisy.marks("paper") == marks
    only = next(s for s in found if s.entry.name == "labels_only")
    assert only.cell.rows
    assert only.cell.fitted_noise("paper") == ()  # it trains no network
    assert only.marks("paper") == ""
    assert caveats.engines(found) == ""
    mixed = [{**row, "engine": name} for row, name in zip(mb.cell.rows, "aba", strict=True)]
    said = caveats.engines([replace(mb, cell=replace(mb.cell, rows=mixed))])
    assert "from 2 engines, which round sums differently: a (2), b (1)." in said
    text = caveats.search_text(there.plan)
    assert "3 candidates" in text
    assert "No search: none." in text
    close = there.plan.close_calls()
    assert f"in {close} of {len(there.plan.trials())} searches" in text
    none = replace(there.plan, entries={"mine": replace(ENTRIES["mb"], title="Mine", trials=0)})
    assert "No search: Mine." in caveats.search_text(none)


def test_the_summary_counts_what_is_above_the_controls(
    there: Computed, found: list[Standing]
) -> None:
    mb = [s for s in found if s.entry.name == "mb" and s.y_eps == 1.0]
    controls = [s for s in found if s.entry.is_control]
    judged = [
        replace(mb[0], blank=against(2, 0.01), labels_only=against(1, 0.01)),
        replace(mb[1], blank=against(3, 0.01), labels_only=against(1, 0.9)),
        replace(mb[1], blank=against(-3, 0.01), labels_only=against(-1, 0.01)),
    ]
    text = summary(there, [*controls, *judged])
    assert "added" not in text
    mine = replace(mb[0], entry=replace(mb[0].entry, name="mine", is_added=True))
    more = summary(there, [*controls, *judged, mine])
    assert more.startswith("1 methods,")
    assert "Among these are 1 added entries, where they have been computed." in more
    assert text.startswith("1 methods, none of them for private labels only, at ε_x=0.1, 1 and")
    assert "ε_y=1, ∞, 3 repeats each" in text
    assert "of 3 comparisons with blank reports through the same method 2 are above 0" in text
    assert "and 1 are above labels only as well" in text
    # p is half of what is given: 0.01, 0.02, 0.03 to blank are kept (0.03, 0.04, 0.04), and of
    # 0.01, 0.04, 0.04 to labels only the first is (0.03, 0.08, 0.08).
    at_once = [
        replace(mb[0], blank=against(2, 0.04), labels_only=against(1, 0.02)),
        replace(mb[1], blank=against(3, 0.02), labels_only=against(1, 0.08)),
        replace(mb[1], blank=against(-3, 0.06), labels_only=against(1, 0.08)),
    ]
    said = "By one correction over all graphs these are 2 and 1."
    assert said in summary(there, [*controls, *at_once])
    # Features, cells; above both, above and below blank, above and below labels only.
    assert "| sbm | balanced_acc | 60 | 3 | 1 | 2 | 1 | 1 | 1 |" in text
    assert summary(without_a_repeat(there, "mb"), found) == "No graph is complete yet.\n"


def test_the_summary_shows_what_reports_are_worth_where_some_gain_holds(
    there: Computed, found: list[Standing]
) -> None:
    at = {(s.entry.name, s.x_eps, s.y_eps): s for s in found}
    one, exact, small = (at["mb", *budgets] for budgets in ((1, 1), (1, math.inf), (0.1, 1)))
    other = replace(one, entry=replace(one.entry, name="pm", title="Piecewise"))
    learner = at["forward", 1, 1]

    def worth(*standings: tuple[Standing, float, float]) -> str:
        text = summary(there, [replace(s, blank=against(*gain)) for s, *gain in standings])
        return text.partition("What reports are worth at ε_x=1: ")[2].partition("\n\n")[2]

    assert worth((one, 9.5, 0.2), (small, 3, 0.01), (learner, 3, 0.2)) == ""
    # The gain that holds comes first, whatever is larger; a budget without one is left out, and so
    # is a learner without one.
    assert worth((one, 9.5, 0.2), (other, 2, 0.01), (exact, 1, 0.2), (learner, 3, 0.2)) == (
        "| Entry | sbm, ε_y=1 |\n|---|---|\n| Piecewise | **+2.0** |\n| Multi-bit | +9.5 |\n"
    )
    assert worth((one, 9.5, 0.2), (learner, 3, 0.01)) == (
        "| Entry | sbm, ε_y=1 |\n|---|---|\n| Forward | **+3.0** |\n| Multi-bit | +9.5 |\n"
    )
    assert worth((other, 2, 0.01), (exact, 1.24, 0.04)) == (
        "| Entry | sbm, ε_y=1 | sbm, ε_y=∞ |\n|---|---|---|\n"
        "| Piecewise | **+2.0** | – |\n| Multi-bit | – | **+1.2** |\n"
    )


def test_the_notes_have_the_gain_of_every_way_to_report_features(
    there: Computed, found: list[Standing]
) -> None:
    largest = next(s for s in found if (s.entry.name, s.x_eps, s.y_eps) == ("mb", 1.0, 1.0))
    others = [s for s in found if s is not largest]
    text = notes(there, [*others, replace(largest, blank=against(2, 0.01))], "")
    assert "Over blank reports at ε_x=1 and ε_y=1," in text
    assert f"| Multi-bit | **{against(2, 0.01).difference}** |" in text
    assert "| Multi-bit | – |" in notes(there, [*others, replace(largest, blank=None)], "")
    assert "| Forward | " not in text.partition("Over blank reports")[2]  # a learner


def test_where_there_are_no_features_all_stand_on_blank_reports(tmp_path: Path) -> None:
    protocol = replace(PROTOCOL, x_eps=(1.0,), y_eps=(1.0,), without_features=("sbm",))
    absent = {
        "pm": Entry("pm", "Piecewise", "feature mechanism", settings={"mechanism": "pm"}),
        "bare": Entry("bare", "Bare", "control", settings={"x_eps": math.inf, "filter": "kprop"}),
    }
    folder = (f"results_dir={tmp_path}", "workers=0")
    plan = Plan(protocol, ENTRIES | absent, tmp_path, folder, own_mechanisms())
    # Neither other ways to report features nor features without noise; nor have they a vote.
    assert [setting[0] for _, setting in plan.settings()] == ["labels_only", "mb", "forward"]
    trials = [p for tried in plan.trials().values() for _, own in tried for p in own]
    assert {p.keys["mechanism"] for p in trials if "mechanism" in p.keys} == {"mb"}
    assert {p.keys.get("label_mechanism") for p in trials} == {None}  # each for itself
    assert run_points(trials) == 0
    reported = [p for points in plan.reported(plan.chosen()).values() for p in points]
    assert [(p.keys["feature"], p.control) for p in reported] == [("blank", False)] * 3
    assert run_points(reported) == 0

    there = what_is_there(plan, Source(tmp_path))
    found = {one.entry.name: one for one in standings(there)}
    assert there.unfinished_text() == []
    for one in (found["mb"], found["forward"]):
        assert one.is_on_blank
        assert (one.blank, one.beats_both, one.lacks) == (None, None, ("no features here",))
        assert one.labels_only is not None
    ours = [replace(found["mb"], labels_only=against(2, 0.01))]
    theirs = [replace(found["forward"], labels_only=against(-2, 0.2))]
    assert sentence("sbm", [*ours, *theirs]) == (
        "Its features were not available, so every entry stands on blank reports: 1 of 2 are above "
        "labels only after Holm's correction over all of them, and none below."
    )
    text = summary(there, [*ours, *theirs])
    assert "of 0 comparisons" in text
    assert "| sbm | balanced_acc | none here | 2 | – | – | – | 1 | 0 |" in text
    page = write_benchmark(there, standings(there), tmp_path)
    assert "no features here" in page.read_text("utf-8")
    assert "Graphs that are complete: none yet" in (page.parent / "ranks.md").read_text("utf-8")
    allowed = "must be among sbm"
    with pytest.raises(InputError, match=allowed):
        replace(PROTOCOL, without_features=("cora",))


def test_places_over_all_settings_by_hand(found: list[Standing]) -> None:
    entries = [replace(found[-1].entry, name=name) for name in "abc"]
    above, below = against(2, 0.01), against(-2, 0.01)

    def at(entry: int, x_eps: float, rank: int, blank: Against, only: Against) -> Standing:
        one = replace(found[-1], entry=entries[entry], x_eps=x_eps, rank=rank)
        return replace(one, blank=blank, labels_only=only)

    first, second, third = overall(
        [
            *(
                at(0, 1.0, 1, above, above),
                at(1, 1.0, 2, above, below),
                at(2, 1.0, 3, below, below),
            ),
            *(at(1, 2.0, 1, below, above), at(0, 2.0, 2, above, above)),
            replace(found[-1], rank=None),  # a control has no place
        ]
    )
    # Above both others, then above none of one: 100 and 0; above one of two, then first.
    assert (first.entry.name, first.settings, first.place) == ("b", 2, 75.0)
    assert (second.entry.name, second.settings, second.place) == ("a", 2, 50.0)
    assert (third.entry.name, third.settings, third.place) == ("c", 1, 0.0)
    counts = ("firsts", "above_blank", "above_labels_only", "above_both")
    assert [getattr(first, name) for name in counts] == [1, 1, 1, 0]
    assert [getattr(second, name) for name in counts] == [1, 2, 2, 2]
    assert [getattr(third, name) for name in counts] == [0, 0, 0, 0]


def test_numbers_of_the_paper_stand_beside_ours() -> None:
    entries = known_entries(Path("nowhere"))
    with_paper = {name for name, entry in entries.items() if entry.printed_numbers}
    assert with_paper == {"1b", "lp", "ag", "lpgnn", "cross_entropy", "forward"}
    assert str(entries["lpgnn"].printed_numbers["cora", 1.0, 1.0]) == "69.3 ± 1.2"
    assert str(entries["lpgnn"].printed_numbers["cora", 0.01, math.inf]) == "68.0 ± 2.9"
    assert str(entries["1b"].printed_numbers["cora", 0.1, math.inf]) == "62.3 ± 1.5"
    assert str(entries["forward"].printed_numbers["cora", 1.0, 1.0]) == "37.1 ± 2.5"
    assert ("cora", 1.0, 0.5) in entries["forward"].printed_numbers
    assert ("cora", 0.1, 1.0) not in entries["forward"].printed_numbers


def test_the_page_and_tables_say_what_the_standings_say(
    computed: Plan, found: list[Standing], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lpgnn.benchmark.protocol.load_protocol", lambda: PROTOCOL)
    monkeypatch.setattr("lpgnn.benchmark.entries.own_entries", lambda: ENTRIES)
    folder = computed.results_dir
    assert command.main(["page", f"results_dir={folder}"]) == 0
    page = (folder / "benchmark" / "leaderboard.html").read_text()
    assert "http" not in re.sub(r"http://www\.w3\.org", "", page.split("<script>")[0])
    rows = json.loads(re.search(r"const rows = (.*);\n", page)[1])  # type: ignore[index]
    with (folder / "benchmark" / "standings.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(rows) == len(lines) == len(found)
    for row, line, one in zip(rows, lines, found, strict=True):
        assert row["mean"] == round(one.summary.mean, 4)
        assert float(line["mean"]) == pytest.approx(one.summary.mean, abs=1e-4)
        assert row["beats"] == one.beats_both
        assert line["id"] == one.cell.identity
    table = (folder / "benchmark" / "sbm.md").read_text()
    assert str(found[-1].summary) in table
    assert "Multi-bit" in (folder / "benchmark" / "cost.md").read_text()
    best = overall([one for one in found if one.y_eps == 1.0])[0]
    stand = f"| {best.entry.title} | {best.settings} | {best.place:.0f} |"
    assert stand in (folder / "benchmark" / "ranks.md").read_text()
    assert f'<td data-name="Place">{best.place:.0f}</td>' in page
    assert (folder / "benchmark" / "pareto.png").stat().st_size > 5000
    assert 'the rule "paper"' in (folder / "benchmark" / "notes.md").read_text()
    assert "the paper rule" in (folder / "benchmark" / "printed.md").read_text()
    assert BLANK in (folder / "benchmark" / "notes.md").read_text()
    assert "Under the released rule" in page


def test_ours_is_a_protocol_that_can_be_planned() -> None:
    """Every entry resolves on every graph: no name or option is wrong."""
    protocol = load_protocol()
    entries = known_entries(Path("nowhere"))
    plan = Plan(protocol.narrowed({"dataset": ["cora"]}), entries, Path("nowhere"))
    for (name, _, _), candidates in plan.candidates.items():
        searched = entries[name].trials is None
        assert len(candidates) == (protocol.trials if searched else 1), name
    plan.trials()
    chosen = {setting: candidates[0] for setting, candidates in plan.candidates.items()}
    for points in plan.reported(chosen).values():
        for point in points:
            point.settings.resolve(fetch=False)


def test_graphs_of_few_features_have_more_epochs_with_clean_labels() -> None:
    protocol = load_protocol()
    epochs = {
        (name, y_eps): protocol.settings_at(name, y_eps)["max_epochs"]
        for name in ("cora", "tolokers")
        for y_eps in (1.0, math.inf)
    }
    assert epochs.pop(("tolokers", math.inf)) == 500
    assert set(epochs.values()) == {100}
    assert protocol.settings_at("cora", math.inf)["learner"] == "cross_entropy"
    assert protocol.settings_at("cora", 1.0)["learner"] == "drop"


def test_a_protocol_is_narrowed_to_what_it_has() -> None:
    protocol = load_protocol()
    small = protocol.narrowed({"dataset": ["pubmed", "cora"], "x_eps": ["1.0"], "y_eps": ["inf"]})
    assert small.datasets == ("cora", "pubmed")
    assert (small.x_eps, small.y_eps) == ((1.0,), (math.inf,))
    with pytest.raises(InputError, match=r"x_eps=7: must be among 0.01, 0.1, 1, 3"):
        protocol.narrowed({"x_eps": ["7"]})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["max_epochs=3"], "max_epochs=3: the protocol is fixed; may be set: dataset, x_eps"),
        (["dataset=sbm"], "dataset=sbm: must be among cora, citeseer"),
        (["--entries", "mb,nope"], "--entries=nope: must be among clean_features, labels_only"),
        (["add"], "add: needs the YAML file of one entry"),
        (["add", "nope.yaml"], "entry=nope.yaml: no such file"),
        (["results_dir=", "--dry-run"], "results_dir=: must be a folder"),
        (["results_dir=/dev/null", "--dry-run"], "results_dir=/dev/null: must be a folder, and"),
        (["page", "results_dir=nowhere"], "has no rows of the benchmark: run it first"),
        (
            ["page", "dataset=cora"],
            "dataset=cora: page takes results_dir=... and data_dir=... only",
        ),
        (["page", "--dry-run"], "--dry-run: page takes results_dir=... and data_dir=... only"),
        (["--entries", "--dry-run"], "--entries: needs a value"),
        (["--entries", "dataset=cora"], "--entries: needs a value"),
        (["--entries", "mb,,pm"], "--entries=mb,,pm: must be names with a comma between two"),
        (["--entries=mb;pm"], "--entries=mb;pm: must be names with a comma between two"),
        (["--entries", "mb", "--entries=pm"], "--entries=pm: is set already: once is enough"),
        (["add", "my.yaml", "--entries", "mb"], "--entries: goes with run: add has the entry of"),
        (["foo"], "benchmark=foo: must be run, add, page or KEY=VALUE"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command.main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "settings: {learner: gce}\nsearch: {learner.delta: [1, 2]}",
            "entry mine: search.learner.delta=[1, 2]: unknown option of GeneralisedCrossEntropy",
        ),
        ("settings: {learner: gce, learner.q: 9}", "q=9"),
        ("settings: {learner: custom, learner._target_: nowhere.Nothing}", "nowhere.Nothing"),
    ],
)
def test_an_entry_that_cannot_be_run_is_not_kept(
    content: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("lpgnn.benchmark.protocol.load_protocol", lambda: PROTOCOL)
    (tmp_path / "mine.yaml").write_text(f"title: Mine\nfamily: learner\n{content}\n")
    words = [f"results_dir={tmp_path / 'results'}", "workers=0"]
    assert command.main(["add", str(tmp_path / "mine.yaml"), *words]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "results" / "benchmark").exists()


BROKEN_FILTER = """
from dataclasses import dataclass
from lpgnn.propagation import LinearFilter

@dataclass(frozen=True)
class Broken(LinearFilter):
    def coefficients(self):
        return 1 / 0
"""
# Only the last of the values that the search tries makes it fail.
LATE_FILTER = """
from dataclasses import dataclass
from lpgnn.propagation import LinearFilter

@dataclass(frozen=True)
class Broken(LinearFilter):
    steps: int = 4

    def coefficients(self):
        return (0.0, 1 / (self.steps - 1))
"""
NAN_FILTER = """
from dataclasses import dataclass
from lpgnn.propagation import NonlinearFilter

@dataclass(frozen=True)
class Broken(NonlinearFilter):
    def transform(self, columns, graph):
        return columns * float("nan")
"""
BROKEN_NOISE = """
from dataclasses import dataclass
from lpgnn.privacy import AdditiveNoise

@dataclass(frozen=True)
class Broken(AdditiveNoise):
    def noise(self, shape, *, generator):
        raise ValueError("no noise today")

    def variance(self, x):
        return x

    def parameters(self):
        return {}
"""


@pytest.mark.parametrize(
    ("kind", "source", "code", "message"),
    [
        (
            *("filter", BROKEN_FILTER, 2),
            "entry mine: filter=Broken: coefficients() failed with ZeroDivisionError: division by",
        ),
        ("filter", LATE_FILTER, 2, "failed with ZeroDivisionError: division by zero (aggreg"),
        ("filter", NAN_FILTER, 2, "filter=Broken: transform must return finite numbers"),
        ("mechanism", "raise SystemExit(0)", 2, "cannot be imported (sys.exit(0) was called)"),
        (
            "mechanism",
            "import os\nos._exit(0)",
            2,
            "cannot be imported (SystemExit: os._exit(0) was called)",
        ),
        ("mechanism", BROKEN_NOISE, 1, "no noise today"),
    ],
)
def test_an_entry_that_fails_in_its_first_run_is_not_kept(
    kind: str,
    source: str,
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("lpgnn.benchmark.protocol.load_protocol", lambda: PROTOCOL)
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.delitem(sys.modules, f"broken_{kind}", raising=False)
    (tmp_path / f"broken_{kind}.py").write_text(source)
    family = "filter" if kind == "filter" else f"feature {kind}"
    (tmp_path / "mine.yaml").write_text(
        f"title: Mine\nfamily: {family}\nmodule: broken_{kind}.py\n"
        f"settings: {{{kind}: custom, {kind}._target_: broken_{kind}.Broken}}\n"
    )
    words = ["add", str(tmp_path / "mine.yaml"), f"results_dir={tmp_path / 'results'}"]
    assert command.main(words) == code
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not (tmp_path / "results" / "benchmark").exists()


def test_an_own_component_is_searched_by_options_that_its_yaml_does_not_list(
    tmp_path: Path,
) -> None:
    settings = {"filter": "custom", "filter._target_": "lpgnn.propagation.HOA"}
    own: dict[str, list[Any]] = {"+filter.conditioning": ["node"], "+filter.steps": [2, 4]}
    entries = {
        "mine": Entry("mine", "Mine", "filter", settings=settings),
        "yours": Entry("yours", "Yours", "filter", settings=settings, search=own),
    }
    plan = Plan(PROTOCOL, entries, tmp_path, (f"results_dir={tmp_path}",))
    for name, steps in (("mine", {1, 2, 4}), ("yours", {2, 4})):
        tried = plan.trials()[name, "sbm", 1.0]
        assert {values["+filter.steps"] for values, _ in tried} == steps
        for values, (point,) in tried:
            found: Any = point.settings.component("filter")
            assert found.steps == values["+filter.steps"]
            assert found.conditioning == values.get("+filter.conditioning")


def test_an_entry_that_is_added_says_nothing_about_a_graph(computed: Plan) -> None:
    mine = Entry("mine", "Mine", "learner", settings={"learner": "gce"}, labels="private")
    entries = {**ENTRIES, "mine": mine}
    added = {**ENTRIES, "mine": replace(mine, is_added=True)}
    source = Source(computed.results_dir)
    assert what_is_there(replace(computed, entries=entries), source).whole == ()
    there = what_is_there(replace(computed, entries=added), source)
    assert (there.whole, there.unfinished_text()) == (("sbm",), [])


def test_a_dry_run_counts_both_stages_and_says_what_else_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lpgnn.benchmark.protocol.load_protocol", lambda: PROTOCOL)
    monkeypatch.setattr("lpgnn.benchmark.entries.own_entries", lambda: ENTRIES)
    words = [f"results_dir={tmp_path}", "y_eps=1", "--entries", "mb", "--dry-run"]
    assert command.main(words) == 0
    out = capsys.readouterr().out
    search, _, reported = out.partition(
        "reported runs and their blank controls (the search of 1 of 1 settings is not done):"
    )
    assert "3 configurations, 0 done, 3 to do, about " in search
    # Two budgets of its own and as many controls, with the first trial's values.
    assert "4 configurations, 0 done, 4 to do, about " in reported
    assert "still missing from the whole benchmark: no entry is complete on sbm" in out


def test_a_method_of_ones_own_is_added_and_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    protocol = replace(PROTOCOL, x_eps=(1.0,), y_eps=(1.0,), repeats=2, trials=2)
    monkeypatch.setattr("lpgnn.benchmark.protocol.load_protocol", lambda: protocol)
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "")
    (tmp_path / "steady_noise.py").write_text(
        "from dataclasses import dataclass\n"
        "import torch\n"
        "from lpgnn.privacy import AdditiveNoise\n\n\n"
        "@dataclass(frozen=True)\n"
        "class SteadyNoise(AdditiveNoise):\n"
        "    def noise(self, shape, *, generator):\n"
        "        return torch.rand(shape, generator=generator, dtype=torch.float64) - 0.5\n\n"
        "    def variance(self, x):\n"
        "        return torch.full_like(x, 1 / 12)\n\n"
        "    def parameters(self):\n"
        "        return {}\n"
    )
    (tmp_path / "steady.yaml").write_text(
        "title: Steady noise\nfamily: feature mechanism\nmodule: steady_noise.py\n"
        "settings: {mechanism: custom, mechanism._target_: steady_noise.SteadyNoise}\n"
        "printed: [{file: steady.csv, row: steady, x_eps: column, y_eps: 1}]\n"
    )
    (tmp_path / "steady.csv").write_text(
        "dataset,row,column,mean,ci\nsbm,steady,1,81.5,0.5\nsbm,other,1,3.0,0.1\n"
    )
    results = tmp_path / "results"
    words = [f"results_dir={results}", "workers=0"]
    assert command.main(["add", str(tmp_path / "steady.yaml"), *words, "--dry-run"]) == 0
    assert not (results / "benchmark").exists()  # looked at, and not kept
    ours = (tmp_path / "steady.yaml").rename(tmp_path / "mb.yaml")
    assert command.main(["add", str(ours), *words, "--dry-run"]) == 2  # a name of ours
    ours.rename(tmp_path / "steady.yaml")
    assert command.main(["add", str(tmp_path / "steady.yaml"), *words]) == 0
    with (results / "benchmark" / "standings.csv").open() as file:
        lines = {line["entry"]: line for line in csv.DictReader(file)}
    assert lines.keys() == {"steady", "labels_only"}
    # Its own files come along: a page can be built where the originals are not.
    entry = read_entry(results / "benchmark" / "entries" / "steady.yaml")
    assert {at: str(number) for at, number in entry.printed_numbers.items()} == {
        ("sbm", 1.0, 1.0): "81.5 ± 0.5"
    }
    assert entry.printed[0]["file"] == results / "benchmark" / "entries" / "steady.csv"
    assert lines["steady"]["beats_both"] in ("true", "false")
    shown = capsys.readouterr().out.splitlines()
    assert shown[-1].startswith("Steady noise on sbm at x_eps=1, y_eps=1: balanced_acc ")
    assert "; − blank " in shown[-1]
    assert "a first run:" in shown
    assert "mechanism._target_=steady_noise.SteadyNoise" in lines["steady"]["command"]
    # The page's command runs as it is.
    told = lines["steady"]["command"]
    assert told.startswith(f"PYTHONPATH={results / 'benchmark' / 'entries'} python -m lpgnn.run ")
    assert told.endswith(f" results_dir={results}")
    # What is looked at is the file that is given, not the copy of before.
    source = (tmp_path / "steady_noise.py").read_text()
    (tmp_path / "steady_noise.py").write_text(source + "def (:\n")
    capsys.readouterr()
    for more in (["--dry-run"], []):
        assert command.main(["add", str(tmp_path / "steady.yaml"), *words, *more]) == 2
        message = "error: entry steady: module=steady_noise.py: cannot be imported (SyntaxError: "
        assert message in capsys.readouterr().err
    assert (results / "benchmark" / "entries" / "steady_noise.py").read_text() == source
    (tmp_path / "steady_noise.py").write_text(source.replace("- 0.5", "- 0.25"))
    assert command.main(["add", str(tmp_path / "steady.yaml"), *words, "--dry-run"]) == 0
    assert "3 configurations, 1 done, 2 to do" in capsys.readouterr().out
    # Nor can another entry take its file.
    other = (tmp_path / "steady.yaml").rename(tmp_path / "other.yaml")
    other.write_text(other.read_text().replace("title: Steady noise", "title: Other noise"))
    assert command.main(["add", str(tmp_path / "other.yaml"), *words]) == 2
    told = "entry other: module=steady_noise.py: entry steady keeps another file of this name"
    assert told in capsys.readouterr().err
    assert (results / "benchmark" / "entries" / "steady_noise.py").read_text() == source
    # A copy that was changed has no rows.
    (results / "benchmark" / "entries" / "steady_noise.py").write_text(source + "ONE = 1\n")
    del sys.modules["steady_noise"]
    assert command.main(["page", words[0]]) == 0
    assert "entry steady has no rows, or its source has changed" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["random", "torch", "lpgnn"])
def test_a_module_cannot_take_the_name_of_another(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / f"{name}.py").write_text("ONE = 1\n")
    (tmp_path / "mine.yaml").write_text(f"title: Mine\nfamily: learner\nmodule: {name}.py\n")
    words = [f"results_dir={tmp_path / 'results'}", "--dry-run"]
    assert command.main(["add", str(tmp_path / "mine.yaml"), *words]) == 2
    message = f"entry mine: module={name}.py: is the name of another module: rename it"
    assert message in capsys.readouterr().err


def test_a_results_folder_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "title: Mine\nfamily: feature mechanism\nsettings: {mechanism: lp}\n"
    (tmp_path / "mine.yaml").write_text(text)
    (tmp_path / "file").write_text("")
    assert (
        command.main(["add", str(tmp_path / "mine.yaml"), f"results_dir={tmp_path / 'file'}"]) == 2
    )
    assert f"must be a folder, and {tmp_path / 'file'} is a file" in capsys.readouterr().err
