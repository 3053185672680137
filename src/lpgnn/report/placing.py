"""Which row, column, panel or series of a table or figure a point belongs to.

An axis is a list of keys: the first names the entry, the others follow in brackets where a point
has them.  On one axis, that of the names, a point's label takes the place of the first key.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lpgnn.errors import InputError
from lpgnn.report.evidence import Cell, Results
from lpgnn.report.notation import as_number, canonical, symbol, value_text
from lpgnn.shown import FigureSpec, TableSpec, check_keys


@dataclass(frozen=True)
class Entry:
    """A place on an axis: its key in CSV files, its text, and the values of the axis' keys."""

    key: str
    text: str
    values: tuple[str, ...]

    @classmethod
    def named(cls, name: str) -> "Entry":
        return cls(name, name, (name,))


@dataclass(frozen=True)
class Placed:
    """A cell with an entry's key for each axis, None for an axis that it lacks."""

    cell: Cell
    at: Mapping[str, str | None]


def place(
    results: Results, spec: TableSpec | FigureSpec, *, bare: str
) -> tuple[list[Placed], dict[str, dict[str, Entry]]]:
    """Put an experiment's points on axes; those without a name do not belong.

    Of ``spec``, ``where`` chooses points (one that lacks the key passes) and ``names`` replaces
    texts.  On the ``bare`` axis numbers stand alone, because a heading names their key.
    """
    axes, name_axis = spec.axes, spec.name_axis
    check_keys(spec, {key for cell in results.cells for key in cell.keys})
    allowed_values = {
        key: {canonical(str(one).strip()) for one in as_values(values)}
        for key, values in spec.where.items()
    }
    names = {str(key): str(text) for key, text in spec.names.items()}
    found = [c.configuration.dataset for c in results.cells if c.configuration is not None]
    titles = {dataset.name: dataset.title for dataset in found}

    def text_of(key: str, value: str, axis: str = "") -> str:
        if value not in names and key != "label" and as_number(value) is not None:
            heading = names.get(key, symbol(key))
            return value_text(value) if axis == bare else f"{heading}={value_text(value)}"
        return names.get(value) or (titles.get(value, value) if key == "dataset" else value)

    def entry_of(cell: Cell, axis: str) -> Entry | None:
        if not axes[axis]:
            return Entry("", "", ())
        first, *rest = axes[axis]
        key = "label" if axis == name_axis and "label" in cell.keys else first
        if key not in cell.keys:
            return None
        more = [(k, cell.keys[k]) for k in rest if k in cell.keys]
        details = ", ".join(text_of(*one) for one in more)
        return Entry(
            ", ".join([cell.keys[key], *("=".join(one) for one in more)]),
            text_of(key, cell.keys[key], axis) + (f" ({details})" if details else ""),
            tuple(cell.keys.get(k, "") for k in axes[axis]),
        )

    placed: list[Placed] = []
    entries: dict[str, dict[str, Entry]] = {axis: {} for axis in axes}
    for cell in results.cells:
        own = {axis: entry_of(cell, axis) for axis in axes}
        passes = all(cell.keys.get(k) in {*v, None} for k, v in allowed_values.items())
        if passes and own[name_axis] is not None:
            keys = {axis: None if entry is None else entry.key for axis, entry in own.items()}
            placed.append(Placed(cell, keys))
            for axis, entry in own.items():
                if entry is not None:
                    entries[axis].setdefault(entry.key, entry)
    return placed, entries


def as_values(value: Any) -> Sequence[Any]:
    """Values as YAML has them: one, a list, or a comma-separated string."""
    return value if isinstance(value, list | tuple) else str(value).split(",")


def spread(
    placed: Iterable[Placed], axis: str, name_axis: str, entries: Iterable[str]
) -> list[Placed]:
    """Points that lack an axis fill all of it, if no other point of their name is on it."""
    placed, entries = list(placed), list(entries)
    there = [one for one in placed if one.at[axis] is not None]
    names = {one.at[name_axis] for one in there}
    levels = [o for o in placed if o.at[axis] is None and o.at[name_axis] not in names]
    return there + [replace(o, at={**o.at, axis: entry}) for o in levels for entry in entries]


def unique(placed: Iterable[Placed], setting: str) -> list[Placed]:
    """One computation per place; the same computation reached twice counts once."""
    found: dict[tuple[str | None, ...], Placed] = {}
    for one in placed:
        if found.setdefault(tuple(one.at.values()), one).cell.identity != one.cell.identity:
            where = ", ".join(key for key in one.at.values() if key)
            allowed = "several computations there: put the key that tells them apart on an axis"
            raise InputError(setting, where, f"{allowed}, or choose one with where")
    return list(found.values())
