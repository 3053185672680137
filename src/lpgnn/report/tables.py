"""Tables from an experiment's YAML and rows."""

import csv
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from lpgnn.errors import InputError
from lpgnn.privacy import GridNoise
from lpgnn.report.evidence import DAGGER, EARLY, Cell, Results, hardly_trained
from lpgnn.report.grid import Grid, Shown
from lpgnn.report.notation import canonical, symbol
from lpgnn.report.paired import Difference, holm
from lpgnn.report.placing import Entry, place, spread, unique
from lpgnn.rows import Summary, describe_engines, engines_of, write_atomically
from lpgnn.shown import TABLE_AXES as AXES
from lpgnn.shown import TableSpec, as_keys, parse_table

if TYPE_CHECKING:
    from pandas import DataFrame

Place = tuple[str, str, str]


@dataclass(frozen=True)
class Printed:
    """A number that somebody else has printed: mean ± ci."""

    mean: float
    ci: float

    def __str__(self) -> str:
        return f"{self.mean:.1f} ± {self.ci:.1f}"


@dataclass(frozen=True)
class Number:
    """A place of a table with what stands there: a cell's summary, a difference, or print only."""

    place: Place
    cell: Cell | None = None
    summary: Summary | None = None
    printed: Printed | None = None
    difference: Difference | None = None
    holm_p: float | None = None  # of the difference, adjusted for all differences of its name
    is_best: bool = False
    kept_epochs: tuple[int, ...] = ()  # of the networks behind it

    @property
    def is_early(self) -> bool:
        """Whether it is the number of networks that were hardly trained."""
        return hardly_trained(self.kept_epochs)

    @property
    def is_control(self) -> bool:
        return self.cell is not None and self.cell.point.control

    @property
    def is_there(self) -> bool:
        """Whether there is something to show: a number of ours, or one that somebody printed."""
        return bool(self.summary or self.difference or self.printed)

    @property
    def summary_text(self) -> str:
        """Mean and interval; of fewer repeats than wanted, with their number."""
        if self.cell is None or self.summary is None:
            return str(self.summary or "–")
        wanted, count = self.cell.point.settings.repeats, self.summary.count
        if count >= wanted:
            return str(self.summary)
        alone = f"{self.summary.mean:.1f}" if self.summary.ci is None else str(self.summary)
        return f"{alone}, {count} of {wanted} repeats"

    def show(self) -> Shown:
        """Ours, bold if best, and the printed mean below; what is only printed stands as it is.

        A dagger marks networks that were hardly trained.
        """
        if self.difference is not None:
            return Shown(str(self.difference), self.holm_p is not None and self.holm_p < 0.05)
        if self.cell is None:
            return Shown(str(self.printed or "–"))
        below = "" if self.printed is None else f"{self.printed.mean:.1f}"
        link = self.cell.identity if self.summary is not None else ""
        text = f"{self.summary_text} {DAGGER}" if self.is_early else self.summary_text
        return Shown(text, self.is_best, below, link=link)


@dataclass(frozen=True)
class Table:
    """A table with its numbers, ordered by block, row and column."""

    spec: TableSpec
    results: Results
    numbers: dict[Place, Number]
    entries: dict[str, dict[str, Entry]]

    @property
    def name(self) -> str:
        return self.spec.name

    def frame(self) -> "DataFrame":
        """A line per number: the blocks' keys, row, column, mean, ci, count, best, ..., id."""
        import pandas as pd

        lines = []
        for (block, row, column), number in self.numbers.items():
            keys = zip(self.spec.axes["block"], self.entries["block"][block].values, strict=True)
            found = number.difference or number.summary
            line: dict[str, Any] = {**dict(keys), "row": row, "column": column}
            line |= {"mean": found and found.mean, "ci": number.summary and number.summary.ci}
            line |= {"count": found.count if found else 0, "best": str(number.is_best).lower()}
            if self.spec.printed:
                printed = number.printed
                line |= {"printed_mean": printed and printed.mean}
                line |= {"printed_ci": printed and printed.ci}
            if self.spec.differences:
                between = number.difference
                line |= {"low": between and between.low, "high": between and between.high}
                line |= {"p": between and between.p, "holm_p": number.holm_p}
            line |= {"kept_epoch": median(number.kept_epochs) if number.kept_epochs else None}
            lines.append({**line, "id": number.cell.identity if number.cell else ""})
        return pd.DataFrame(lines)

    def grid(self, show: Callable[[Number], Shown] = Number.show) -> Grid:
        """Lay the table out; without blocks, controls start one of their own.

        Rows and columns without a single number are left out.
        """
        columns = [one for one in self.entries["column"].values() if one.key in self._shown(2)]
        laid: list[list[list[Shown]]] = []
        own = {number.place[1] for number in self.numbers.values() if not number.is_control}
        for block in self.entries["block"].values():
            present = {row for b, row in self._shown(0, 1) if b == block.key}
            rows = [row for row in self.entries["row"].values() if row.key in present]
            parts = [rows]
            if not self.spec.blocks:
                parts = [[r for r in rows if r.key in own], [r for r in rows if r.key not in own]]
            for part in filter(None, parts):
                titles = [block.text, *[""] * (len(part) - 1)]
                laid.append([])
                for row, title in zip(part, titles, strict=True):
                    places = [(block.key, row.key, column.key) for column in columns]
                    found = [self.numbers.get(at) for at in places]
                    texts = [Shown("") if number is None else show(number) for number in found]
                    labels = [title, row.text] if self.spec.blocks else [row.text]
                    laid[-1].append([*map(Shown, labels), *texts])
        keys = [keys[0] for axis in ("block", "row") if (keys := self.spec.axes[axis])]
        names = {"label": "", **self.spec.names}
        headings = [names.get(key, symbol(key)) for key in keys]
        return Grid([*headings, *(column.text for column in columns)], laid, len(headings))

    def _shown(self, *axes: int) -> set[Any]:
        """What has a number, on one axis or two."""
        places = [at for at, number in self.numbers.items() if number.is_there] or self.numbers
        return {itemgetter(*axes)(at) for at in places}

    @property
    def has_holes(self) -> bool:
        """Whether rows or columns are left out, because nothing of them is computed."""
        rows, columns = ({itemgetter(*axes)(at) for at in self.numbers} for axes in ((0, 1), (2,)))
        return bool(rows - self._shown(0, 1) or columns - self._shown(2))

    def mixed_cells(self) -> list[str]:
        """A line for each number whose rows are of several engines, and may have other noise."""
        cells = [number.cell for number in self.numbers.values() if number.cell is not None]
        counts = [(cell, engines_of(cell.rows)) for cell in cells]
        return [
            f"{cell.dataset}, {cell.name}: {describe_engines(engines)}."
            for cell, engines in counts
            if len(engines) > 1
        ]

    def noise_engines(self) -> dict[str, Counter[str]]:
        """By dataset, how many rows with Laplace or Gaussian noise each engine computed."""
        engines: dict[str, Counter[str]] = {}
        for cell in (number.cell for number in self.numbers.values() if number.cell):
            known = cell.configuration
            if known is not None and isinstance(known.mechanism, GridNoise) and cell.rows:
                engines.setdefault(cell.dataset, Counter()).update(engines_of(cell.rows))
        return engines

    def old_noise(self) -> list[str]:
        """A line if Laplace or Gaussian noise of some rows is not that of today's mechanisms."""
        engines = self.noise_engines()
        if not any(found[""] for found in engines.values()):
            return []
        counts = (f"{found['']} of {found.total()} on {name}" for name, found in engines.items())
        return [
            "Rows of LP and AG whose noise was drawn in floating point, before rows named their "
            f"engine: {', '.join(counts)}. That of all others is drawn in whole numbers on a grid."
        ]

    def notes(self) -> list[str]:
        """What has to be said about the rows behind the numbers, a line each."""
        holes = "Rows and columns of which nothing is computed are left out."
        early = f"{DAGGER} hardly trained: the median of the kept epochs is at most {EARLY}."
        is_early = any(number.is_early for number in self.numbers.values())
        own = [*[holes] * self.has_holes, *[early] * is_early]
        return [*own, *self.mixed_cells(), *self.old_noise()]

    def write(self, folder: Path) -> None:
        """Write ``<name>.csv``, ``.md`` and ``.tex``."""
        grid, path = self.grid(), folder / self.name
        notes = [
            "Differences are paired by repeat, with 95 % t intervals; bold where Holm's rule over "
            "all differences of one name rejects 0 at 5 %. None is shown for what different "
            "engines trained."
        ] * bool(self.spec.differences) + self.notes()
        printed = ["In brackets: the mean as printed."] * bool(self.spec.printed)
        note = "".join(f"\n{text}\n" for text in printed + notes)
        lines = self.frame().to_csv(index=False, float_format="%.4f")
        caption = ". ".join(filter(None, [self.spec.caption or self.name, " ".join(notes)]))
        latex = grid.to_latex(caption, f"tab:{self.name}")
        write_atomically(path.with_name(f"{self.name}.csv"), lines)
        write_atomically(path.with_name(f"{self.name}.md"), grid.to_markdown() + note)
        write_atomically(path.with_name(f"{self.name}.tex"), latex)


def build_table(name: str, options: Any, results: Results) -> Table:
    """Look up a table's numbers, the printed ones beside them, and mark the best."""
    spec = parse_table(name, options)
    placed, entries = place(results, spec, bare="row")
    for axis in AXES:
        placed = spread(placed, axis, spec.name_axis, entries[axis])
    numbers: dict[Place, Number] = {}
    for one in unique(placed, spec.setting):
        at = (str(one.at["block"]), str(one.at["row"]), str(one.at["column"]))
        summary = results.summary(one.cell, metric=spec.metric)
        kept = one.cell.kept_epochs(results.selection) if summary is not None else ()
        numbers[at] = Number(at, one.cell, summary, kept_epochs=kept)
    for at in best_of(numbers.values(), spec.best):
        numbers[at] = replace(numbers[at], is_best=True)
    _add_differences(numbers, spec, results, entries)
    if spec.printed is not None:
        _add_printed(numbers, spec, read_printed(spec, results.config_dirs), entries)
    places = itertools.product(*(entries[axis] for axis in AXES))
    return Table(spec, results, {at: numbers[at] for at in places if at in numbers}, entries)


def best_of(numbers: Iterable[Number], compared: str | None) -> set[Place]:
    """The places of the highest unrounded mean of each comparison; ties are all best.

    Controls take no part.  A comparison that lacks a number has no best: it might be the missing
    one.  ``compared``: rows or columns.
    """
    groups: dict[tuple[str, str], list[Number]] = {}
    for number in numbers:
        if compared and not number.is_control:
            block, row, column = number.place
            groups.setdefault((block, column if compared == "rows" else row), []).append(number)
    best: set[Place] = set()
    for group in groups.values():
        means = [number.summary.mean for number in group if number.summary is not None]
        if len(means) == len(group):
            pairs = zip(group, means, strict=True)
            best |= {number.place for number, mean in pairs if mean == max(means)}
    return best


def _moved(at: Place, axis: str, key: str) -> Place:
    block, row, column = (key if one == axis else k for one, k in zip(AXES, at, strict=True))
    return block, row, column


def _add_differences(
    numbers: dict[Place, Number],
    spec: TableSpec,
    results: Results,
    entries: dict[str, dict[str, Entry]],
) -> None:
    """Paired differences of two entries of the name axis, as one more entry.

    Those of one name are a family: their p-values are adjusted together.
    """
    axis = spec.name_axis
    for name, pair in spec.differences.items():
        if not set(pair) <= set(entries[axis]):
            allowed = "must be two of " + "; ".join(entries[axis])
            raise InputError(f"tables.{spec.name}.differences.{name}", list(pair), allowed)
        for at in [at for at in numbers if at[AXES.index(axis)] == pair[0]]:
            first, second = numbers[at].cell, numbers.get(_moved(at, axis, pair[1]))
            if first is not None and second is not None and second.cell is not None:
                found = results.difference(first, second.cell, spec.metric)
                place = _moved(at, axis, name)
                numbers[place] = Number(place, difference=found)
        family = {
            at: number.difference
            for at, number in numbers.items()
            if at[AXES.index(axis)] == name and number.difference is not None
        }
        adjusted = holm([difference.p for difference in family.values()])
        for at, p in zip(family, adjusted, strict=True):
            numbers[at] = replace(numbers[at], holm_p=p)
        entries[axis][name] = Entry.named(name)


def _add_printed(
    numbers: dict[Place, Number],
    spec: TableSpec,
    printed: Mapping[Place, Printed],
    entries: dict[str, dict[str, Entry]],
) -> None:
    """Put printed numbers beside ours; names that the grid lacks become entries of their own."""
    known = set(entries[spec.name_axis])
    for at, number in printed.items():
        keys = dict(zip(AXES, at, strict=True))
        name = keys.pop(spec.name_axis)
        if at in numbers:
            numbers[at] = replace(numbers[at], printed=number)
        elif name not in known and all(key in entries[axis] for axis, key in keys.items()):
            entries[spec.name_axis].setdefault(name, Entry.named(name))
            numbers[at] = Number(at, printed=number)


def read_printed(spec: TableSpec, config_dirs: Sequence[Path] = ()) -> dict[Place, Printed]:
    """Printed means and half widths by block, row and column.

    ``paper/NAME`` is a file of this package; anything else is the path of a CSV file, from here or
    from the folder of the user's experiments.  Its columns are the keys of the blocks, row and
    column, as in the table's own CSV, then mean and ci.
    """
    setting, reference = f"tables.{spec.name}.printed", str(spec.printed)
    folders = [Path(), *(folder / "experiment" for folder in config_dirs)]
    candidates = [folder / Path(reference).expanduser() for folder in folders]
    if reference.startswith("paper/"):
        candidates = [Path(str(files("lpgnn") / f"{reference}.csv"))]
    found = [path for path in candidates if path.is_file()]
    if not found:
        raise InputError(setting, reference, "must be paper/NAME or the path of a CSV file")
    first, rest = as_keys(spec.blocks)[:1], as_keys(spec.blocks)[1:]
    printed: dict[Place, Printed] = {}
    try:
        lines = csv.DictReader(found[0].read_text("utf-8").splitlines())
    except UnicodeError:
        raise InputError(setting, reference, "must be text in UTF-8") from None
    for number, line in enumerate(lines, start=2):
        try:
            block = [canonical(line[key]) for key in first]
            block += [f"{key}={canonical(line[key])}" for key in rest]
            at = (", ".join(block), canonical(line["row"]), canonical(line["column"]))
            printed[at] = Printed(float(line["mean"]), float(line["ci"]))
        except (KeyError, TypeError, ValueError):
            needed = ", ".join((*first, *rest, "row", "column", "mean", "ci"))
            allowed = f"line {number} must have numbers in mean and ci; columns: {needed}"
            raise InputError(setting, reference, allowed) from None
    return printed


def decimal(value: float | None) -> str:
    """A number of a CSV file: four decimals, which a mean of ten recorded accuracies fills."""
    return "" if value is None else f"{value:.4f}"
