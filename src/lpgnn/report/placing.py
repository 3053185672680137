"""Which row, column, panel or series of a table or figure a point belongs to.

An axis is a list of keys: the first names the entry, the others follow in brackets where a point
has them.  On one axis, that of the names, a point's label takes the place of the first key.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, TypeVar

from lpgnn.errors import InputError
from lpgnn.report.evidence import Cell, Results
from lpgnn.report.notation import as_number, canonical, symbol, value_text

Spec = TypeVar("Spec")
Keys = tuple[str, ...]


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


def parse(kind: Callable[..., Spec], setting: str, options: Any) -> Spec:
    """The specification of a table or a figure from its YAML."""
    known = [name for name in signature(kind).parameters if name != "name"]
    if not isinstance(options, Mapping):
        raise InputError(setting, options, "must be a mapping of options")
    for key, value in options.items():
        if key not in known:
            allowed = f"unknown option; known: {', '.join(known)}"
            raise InputError(f"{setting}.{key}", value, allowed)
    try:
        return kind(name=setting.split(".")[1], **options)
    except TypeError as error:
        missing = str(error).rpartition("argument")[2].lstrip("s: ")
        raise InputError(setting, dict(options), f"lacks {missing}") from None


def as_keys(value: Any) -> Keys:
    """An axis as YAML has it: nothing, a key, or a list of keys."""
    return (value,) if isinstance(value, str) else tuple(map(str, value or ()))


def place(
    results: Results,
    axes: Mapping[str, Keys],
    spec: Any,
    *,
    setting: str,
    name_axis: str,
    bare: str,
) -> tuple[list[Placed], dict[str, dict[str, Entry]]]:
    """Put an experiment's points on axes; those without a name do not belong.

    Of ``spec``, ``where`` chooses points (one that lacks the key passes) and ``names`` replaces
    texts.  On the ``bare`` axis numbers stand alone, because a heading names their key.
    """
    known = {key for cell in results.cells for key in cell.keys}
    for key in (*(key for keys in axes.values() for key in keys), *spec.where):
        if key not in known:
            allowed = f"no point of the grid has this key; known: {', '.join(sorted(known))}"
            raise InputError(setting, key, allowed)
    allowed_values = {
        key: {canonical(str(one).strip()) for one in as_values(values)}
        for key, values in spec.where.items()
    }
    names = {str(key): str(text) for key, text in spec.names.items()}
    found = [c.configuration.dataset for c in results.cells if c.configuration is not None]
    titles = {dataset.name: dataset.title for dataset in found}

    def text_of(key: str, value: str, axis: str = "") -> str:
        if value not in names and key != "label" and as_number(value) is not None:
            return value_text(value) if axis == bare else f"{symbol(key)}={value_text(value)}"
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
