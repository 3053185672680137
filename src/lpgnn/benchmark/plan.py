"""From protocol and entries to runs: the search first, then what is reported."""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from lpgnn.benchmark.entries import Entry
from lpgnn.benchmark.protocol import Protocol
from lpgnn.composition import Point, expand_grid
from lpgnn.errors import InputError
from lpgnn.hyperparameters import TUNING_SEED
from lpgnn.report.notation import canonical
from lpgnn.rows import Row, RowStore
from lpgnn.rows.metrics import OTHER_METRICS

# Blank reports hold nothing, but the budget decides the frequency of their signs and the shape of
# their values, which moves accuracies by points; at one budget they also share their draws.
BLANK = "Each blank control has the same ε_x and the same random draws as what it stands beside."
DEFAULT = "mb"  # with randomized response and Drop, as most entries have them
LABELS_ONLY = "labels_only"

Values = Mapping[str, Any]  # setting -> value
Member = dict[str, Any]  # of a grid: settings with their choices
Setting = tuple[str, str, float]  # entry, dataset, y_eps
Trial = tuple[Values, list[Point]]  # values, and the runs that judge them


@dataclass(frozen=True)
class Judged:
    """A candidate of a search, with the runs that judge it."""

    values: Values
    losses: Sequence[float]  # on noisy validation labels, by collection
    rows: Sequence[Row] = ()


@dataclass(frozen=True)
class Plan:
    """The runs of some entries under a protocol.

    Entries that differ in nothing but what nodes report of their features are searched together:
    the values that do best on average over those of ``mechanisms`` are those of all of them, so
    that a mechanism is compared with a mechanism at equal hyper-parameters.  All others are
    searched one by one.
    """

    protocol: Protocol
    entries: Mapping[str, Entry]
    results_dir: Path
    overrides: tuple[str, ...] = ()  # where data and results lie, workers, device
    mechanisms: Mapping[str, Entry] = field(default_factory=dict)  # lpgnn's own

    def settings(self) -> Iterator[tuple[Entry, Setting]]:
        for entry in self.entries.values():
            for dataset in self.protocol.datasets:
                for y_eps in self.protocol.y_eps:
                    if self._stands(entry, dataset, y_eps):
                        yield entry, (entry.name, dataset, y_eps)

    def _stands(self, entry: Entry, dataset: str, y_eps: float) -> bool:
        """Whether an entry is run: where there are no features, ways to report them are not."""
        without = dataset in self.protocol.without_features
        about_features = entry.is_control or entry.family == "feature mechanism"
        left_out = without and about_features and entry.name not in (DEFAULT, LABELS_ONLY)
        return entry.runs_at(y_eps) and not left_out

    @cached_property
    def candidates(self) -> dict[Setting, list[Values]]:
        """What the search may choose for each entry, graph and label budget."""
        bases = [self._tuned(entry, setting) for entry, setting in self.settings()]
        expanded = expand_grid(bases, self._tuning_overrides)
        return {
            setting: self._tried(entry, point, base)
            for (entry, setting), base, (point,) in zip(
                self.settings(), bases, expanded, strict=True
            )
        }

    def trials(self) -> dict[Setting, list[Trial]]:
        """The runs of each search; none where there is nothing to choose."""
        found: dict[Setting, list[Trial]] = {}
        members, points_of = list[Member](), list[list[Point]]()
        for entry, setting in self.settings():
            key, judges = self._search_of(entry, setting)
            candidates = self.candidates[setting]
            if key in found or len(candidates) == 1:
                continue
            found[key] = [(values, []) for values in candidates]
            for values, points in found[key]:
                for seed, judge in judges.items():
                    member = self._tuned(judge, (judge.name, *setting[1:]))
                    if len(judges) > 1:  # each on a collection of its own
                        member |= {"seed": seed, "repeats": 1}
                    members.append({**member, **values})
                    points_of.append(points)
        expanded = expand_grid(members, self._tuning_overrides)
        for points, (point,) in zip(points_of, expanded, strict=True):
            points.append(point)
        return found

    def all_trials(self) -> list[Point]:
        return [p for tries in self.trials().values() for _, points in tries for p in points]

    def trials_left(self) -> list[Point]:
        """The trials that are not done: nobody looks at the others' numbers."""
        store = RowStore(tuning_folder(self.results_dir))
        return [point for point in self.all_trials() if not self._rows([point], store)]

    @cached_property
    def judged(self) -> dict[Setting, list[Judged]]:
        """The searches of which all trials are done: the lowest mean loss comes first."""
        store, found = RowStore(tuning_folder(self.results_dir)), dict[Setting, list[Judged]]()
        for key, tried in self.trials().items():
            rows = [(values, self._rows(points, store)) for values, points in tried]
            if all(own for _, own in rows):
                judged = [
                    Judged(values, [_loss(row, self.protocol.selection) for row in own], own)
                    for values, own in rows
                ]
                found[key] = sorted(judged, key=lambda one: fmean(one.losses))
        return found

    def close_calls(self) -> int:
        """In how many searches the two best differ by less than a standard error."""
        pairs = [(tried[0].losses, tried[1].losses) for tried in self.judged.values()]
        differences = [[b - a for a, b in zip(*pair, strict=True)] for pair in pairs]
        return sum(not fmean(own) >= stdev(own) / math.sqrt(len(own)) for own in differences)

    def chosen(self) -> dict[Setting, Values]:
        """The best trial of each by the loss on noisy validation labels, where all are done."""
        found = dict[Setting, Values]()
        for entry, setting in self.settings():
            key, _ = self._search_of(entry, setting)
            if len(self.candidates[setting]) == 1:
                found[setting] = self.candidates[setting][0]
            elif key in self.judged:
                found[setting] = self.judged[key][0].values
        return found

    def first_runs(self, name: str) -> list[Point]:
        """One run of each of an entry's candidates, where it stands first."""
        found = [(entry, setting) for entry, setting in self.settings() if entry.name == name]
        if not found:
            budgets = ",".join(canonical(y_eps) for y_eps in self.protocol.y_eps)
            raise InputError(
                f"entry {name}: y_eps", budgets, "it is not run at these label budgets"
            )
        (entry, setting), *_ = found
        tuned = self._tuned(entry, setting)
        members = [{**tuned, **values, "repeats": 1} for values in self.candidates[setting]]
        here = [text for text in self._tuning_overrides if not text.startswith("workers=")]
        return [point for (point,) in expand_grid(members, [*here, "workers=0"])]

    def _search_of(self, entry: Entry, setting: Setting) -> tuple[Setting, dict[int, Entry]]:
        """The search that decides on an entry's values, and whose runs judge them, by seed.

        A judge's seed is that of its place among all mechanisms that run at the label budget.
        """
        _, dataset, y_eps = setting
        running = [one for one in self.mechanisms.values() if self._stands(one, dataset, y_eps)]
        judges = {TUNING_SEED + i: one for i, one in enumerate(running) if one.is_searched_together}
        if entry.is_searched_together and judges:
            return ("", dataset, y_eps), judges
        return setting, {TUNING_SEED: entry}

    def _rows(self, points: Sequence[Point], store: RowStore) -> list[Row]:
        """The runs of a trial on all of its collections; none unless all are there."""
        rows = list[Row]()
        for point in points:
            one, wanted = point.settings.resolve(fetch=False), range(point.settings.repeats)
            found = store.finished(one.dataset.name, one.identity)
            if not found.keys() >= set(wanted):
                return []
            rows += [found[i] for i in wanted]
        return rows

    def reported(self, chosen: Mapping[Setting, Values]) -> dict[Setting, list[Point]]:
        """The runs that are shown: an entry's own, and those on blank reports (control=True).

        Where there are no features its own are on blank reports already.
        """
        budgets: Member = {"x_eps": list(self.protocol.x_eps)}
        fixed = {"repeats": self.protocol.repeats, "seed": self.protocol.seed}
        wanted = [(entry, setting) for entry, setting in self.settings() if setting in chosen]
        grid = [
            {**budgets, **self._base(entry, setting), **chosen[setting], **fixed}
            for entry, setting in wanted
        ]
        found = {
            setting: list(points)
            for (_, setting), points in zip(wanted, expand_grid(grid, self.overrides), strict=True)
        }
        controls = [
            (setting, member | {"feature": "blank", "control": True})
            for (entry, setting), member in zip(wanted, grid, strict=True)
            if not entry.is_control and setting[1] not in self.protocol.without_features
        ]
        expanded = expand_grid([member for _, member in controls], self.overrides)
        for (setting, _), points in zip(controls, expanded, strict=True):
            found[setting].extend(points)
        return found

    @property
    def _tuning_overrides(self) -> list[str]:
        other = [text for text in self.overrides if not text.startswith("results_dir=")]
        folder = str(tuning_folder(self.results_dir)).replace("'", r"\'")
        return [*other, f"results_dir='{folder}'"]

    def _tuned(self, entry: Entry, setting: Setting) -> Member:
        drawn = {"repeats": self.protocol.collections, "seed": TUNING_SEED, "split": "random"}
        return {**self.protocol.search_at, **self._base(entry, setting), **drawn}

    def _base(self, entry: Entry, setting: Setting) -> Member:
        _, dataset, y_eps = setting
        exact = math.isinf(y_eps)
        without = dataset in self.protocol.without_features
        return {
            **self.protocol.settings_at(dataset, y_eps),
            **({"feature": "blank"} if without else {}),
            **entry.settings,
            **(entry.exact_labels if exact else entry.private_labels),
            "label": entry.name,
            "selection": self.protocol.selection,
            "dataset": dataset,
            "y_eps": y_eps,
            # Recorded everywhere, so that one sweep serves all graphs.
            "+metrics.roc_auc": OTHER_METRICS["roc_auc"],
        }

    def _check_search(self, entry: Entry, point: Point, exact: bool) -> None:
        """A component that the entry names itself must have the options that it searches."""
        own = {**entry.settings, **(entry.exact_labels if exact else entry.private_labels)}
        named = {_bare(key).partition(".")[0] for key in own}
        for setting, values in entry.search.items():
            kind = _bare(setting).partition(".")[0]
            if kind in named and not _exists(setting, point):
                component: Any = point.settings.component(kind)
                known = ", ".join(component.options()) or "none"
                allowed = f"unknown option of {type(component).__name__}; known: {known}"
                raise InputError(f"entry {entry.name}: search.{setting}", values, allowed)

    def _tried(self, entry: Entry, point: Point, base: Member) -> list[Values]:
        """The candidates: every value of a setting about as often, in an order of its own.

        The order depends on the setting and its values alone, so that entries which share a setting
        try the same values of it, whatever else they search.
        """
        self._check_search(entry, point, math.isinf(base["y_eps"]))
        learner: Any = point.settings.component("learner")
        if entry.trials == 0 or not (learner.uses_network or entry.search):
            return [{}]
        own = {_bare(setting): values for setting, values in entry.search.items()}
        fixed = {_bare(setting) for setting in base}
        columns = {
            _as_override(setting, point): _balanced(setting, list(values), self.protocol.trials)
            for setting, values in {**self.protocol.search, **own}.items()
            if setting not in fixed and _exists(setting, point)
        }
        found: list[Values] = []
        for row in zip(*columns.values(), strict=True):
            values = dict(zip(columns, row, strict=True))
            if values not in found:
                found.append(values)
        return found


def _balanced(setting: str, values: list[Any], count: int) -> list[Any]:
    """Every value about as often, in an order that the setting's name decides."""
    filled = [values[i % len(values)] for i in range(count)]
    random.Random(f"{TUNING_SEED} {setting}").shuffle(filled)
    return filled


def _loss(row: Row, rule: str) -> float:
    """The loss on noisy validation labels at the epoch that the rule keeps.

    Where no epoch is within Acc*, the lowest loss is that of a network which has learnt the noise,
    and nothing held it back: it is no match for one that an epoch within Acc* has.  The epoch that
    the authors' rule keeps comes before that.
    """
    if row["status"] != "ok":
        return math.inf
    rules = {rule} if row[f"{rule}/qualified"] == "true" else {rule, "released"}
    return max(float(row[f"{one}/val/loss"]) for one in rules)


def _bare(setting: str) -> str:
    return setting.removeprefix("+")


def _as_override(setting: str, point: Point) -> str:
    """With a + where the option is one that the component has and its YAML does not list."""
    kind, _, option = setting.partition(".")
    return setting if not option or option in getattr(point.settings, kind) else f"+{setting}"


def tuning_folder(results_dir: Path) -> Path:
    return results_dir / "tuning"


def _exists(setting: str, point: Point) -> bool:
    """Whether the run's components have an option; settings of the run itself always exist.

    ``+learner.gamma`` is an option that the learner's class has and its YAML does not list.
    """
    kind, _, option = _bare(setting).partition(".")
    return not option or option in point.settings.component(kind).options()
