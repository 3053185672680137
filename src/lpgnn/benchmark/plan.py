"""From protocol and entries to runs: the search first, then what is reported."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from lpgnn.benchmark.entries import Entry
from lpgnn.benchmark.protocol import Protocol
from lpgnn.composition import Point, expand_grid
from lpgnn.errors import InputError
from lpgnn.hyperparameters import TUNING_SEED
from lpgnn.rows import RowStore
from lpgnn.rows.metrics import OTHER_METRICS
from lpgnn.tune import private_criterion

# Blank reports hold nothing, but the budget decides the frequency of their signs and the shape of
# their values, which moves accuracies by points; at one budget they also share their draws.
BLANK = "The blank control of a number has its ε_x and its random draws."

Values = Mapping[str, Any]  # setting -> value
Member = dict[str, Any]  # of a grid: settings with their choices
Setting = tuple[str, str, float]  # entry, dataset, y_eps


@dataclass(frozen=True)
class Plan:
    """The runs of some entries under a protocol."""

    protocol: Protocol
    entries: Mapping[str, Entry]
    results_dir: Path
    overrides: tuple[str, ...] = ()  # where data and results lie, workers, device

    def settings(self) -> Iterator[tuple[Entry, Setting]]:
        for entry in self.entries.values():
            for dataset in self.protocol.datasets:
                for y_eps in self.protocol.y_eps:
                    if not (entry.labels == "private" and math.isinf(y_eps)):
                        yield entry, (entry.name, dataset, y_eps)

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

    def trials(self) -> dict[Setting, list[tuple[Values, Point]]]:
        """The runs of the search, on one collection; none where there is nothing to choose."""
        candidates = {
            setting: values for setting, values in self.candidates.items() if len(values) > 1
        }
        members = [
            {**self._tuned(entry, setting), **values}
            for entry, setting in self.settings()
            for values in candidates.get(setting, ())
        ]
        points = iter(expand_grid(members, self._tuning_overrides))
        return {
            setting: [(values, next(points)[0]) for values in own]
            for setting, own in candidates.items()
        }

    def chosen(self) -> dict[Setting, Values]:
        """The best trial of each by the loss on noisy validation labels, where all are done."""
        store = RowStore(tuning_folder(self.results_dir))
        found = {
            setting: values[0] for setting, values in self.candidates.items() if len(values) == 1
        }
        for setting, tried in self.trials().items():
            scores = []
            for values, point in tried:
                one = point.settings.resolve(fetch=False)
                rows = store.finished(one.dataset.name, one.identity)
                scores.append((private_criterion(rows.values()), values) if rows else None)
            known = [score for score in scores if score is not None]
            if len(known) == len(tried):
                found[setting] = min(known, key=lambda score: score[0])[1]
        return found

    def reported(self, chosen: Mapping[Setting, Values]) -> dict[Setting, list[Point]]:
        """The runs that are shown: an entry's own, and those on blank reports (control=True)."""
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
            if not entry.is_control
        ]
        expanded = expand_grid([member for _, member in controls], self.overrides)
        for (setting, _), points in zip(controls, expanded, strict=True):
            found[setting].extend(points)
        return found

    @property
    def _tuning_overrides(self) -> list[str]:
        other = [text for text in self.overrides if not text.startswith("results_dir=")]
        return [*other, f"results_dir={tuning_folder(self.results_dir)}"]

    def _tuned(self, entry: Entry, setting: Setting) -> Member:
        collection = {"repeats": 1, "seed": TUNING_SEED, "split": "collection"}
        return {**self.protocol.search_at, **self._base(entry, setting), **collection}

    def _base(self, entry: Entry, setting: Setting) -> Member:
        _, dataset, y_eps = setting
        exact = math.isinf(y_eps)
        return {
            **self.protocol.settings,
            **(self.protocol.exact_labels if exact else {}),
            **entry.settings,
            **(entry.exact_labels if exact else entry.private_labels),
            "label": entry.name,
            "dataset": dataset,
            "y_eps": y_eps,
            # Recorded everywhere, so that one sweep serves all graphs.
            "+metrics.roc_auc": OTHER_METRICS["roc_auc"],
        }

    def _check_search(self, entry: Entry, point: Point, exact: bool) -> None:
        """A component that the entry names itself must have the options that it searches."""
        own = {**entry.settings, **(entry.exact_labels if exact else entry.private_labels)}
        named = {key.removeprefix("+").partition(".")[0] for key in own}
        for setting, values in entry.search.items():
            kind = setting.removeprefix("+").partition(".")[0]
            if kind in named and not _exists(setting, point):
                component: Any = point.settings.component(kind)
                known = ", ".join(component.options()) or "none"
                allowed = f"unknown option of {type(component).__name__}; known: {known}"
                raise InputError(f"entry {entry.name}: search.{setting}", values, allowed)

    def _tried(self, entry: Entry, point: Point, base: Member) -> list[Values]:
        """Draws from the space, as many as the protocol allows; equal spaces have equal ones."""
        from sklearn.model_selection import ParameterGrid, ParameterSampler

        self._check_search(entry, point, math.isinf(base["y_eps"]))
        learner: Any = point.settings.component("learner")
        if entry.trials == 0 or not (learner.uses_network or entry.search):
            return [{}]
        space = {
            setting: list(values)
            for setting, values in {**self.protocol.search, **entry.search}.items()
            if setting not in base and _exists(setting, point)
        }
        size = min(self.protocol.trials, len(ParameterGrid(space)))
        return list(ParameterSampler(space, size, random_state=TUNING_SEED))


def tuning_folder(results_dir: Path) -> Path:
    return results_dir / "tuning"


def _exists(setting: str, point: Point) -> bool:
    """Whether the run's components have an option; settings of the run itself always exist.

    ``+learner.gamma`` is an option that the learner's class has and its YAML does not list.
    """
    kind, _, option = setting.removeprefix("+").partition(".")
    return not option or option in point.settings.component(kind).options()
