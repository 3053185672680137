"""What an experiment shows: its tables and figures as its YAML describes them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, TypeVar

from lpgnn.errors import InputError

TABLE_AXES = ("block", "row", "column")
FIGURE_AXES = ("panel_row", "panel", "x", "series")
Keys = tuple[str, ...]
Spec = TypeVar("Spec")


@dataclass(frozen=True)
class TableSpec:
    """A table as an experiment's YAML describes it; see docs/howto/experiment.md."""

    name: str
    rows: str | list[str]
    columns: str | list[str]
    blocks: str | list[str] | None = None
    caption: str = ""
    metric: str = "acc"
    best: str | None = None  # rows or columns: among what the highest mean is bold
    where: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[Any, str] = field(default_factory=dict)
    printed: str | None = None
    differences: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.best not in (None, "rows", "columns"):
            raise InputError(f"{self.setting}.best", self.best, "must be rows or columns")
        setting = f"{self.setting}.differences"
        if not isinstance(self.differences, Mapping):
            raise InputError(setting, self.differences, "must be a mapping of names to pairs")
        for name, pair in self.differences.items():
            if isinstance(pair, str) or not isinstance(pair, Sequence) or len(set(pair)) != 2:
                raise InputError(f"{setting}.{name}", pair, "must be two entries: [first, second]")

    @property
    def setting(self) -> str:
        return f"tables.{self.name}"

    @property
    def axes(self) -> dict[str, Keys]:
        keys = map(as_keys, (self.blocks, self.rows, self.columns))
        return dict(zip(TABLE_AXES, keys, strict=True))

    @property
    def name_axis(self) -> str:
        """Where labels stand: on the axis that asks for them, else on the compared one."""
        asked = [axis for axis in TABLE_AXES if "label" in self.axes[axis]]
        return asked[0] if asked else "column" if self.best == "columns" else "row"


@dataclass(frozen=True)
class FigureSpec:
    """A figure as an experiment's YAML describes it; see docs/howto/experiment.md."""

    name: str
    x: str | list[str] = ""
    series: str | list[str] | None = None
    panels: str | list[str] | None = None  # one key, or one for the rows and one for the columns
    title: str = ""  # of a strip, beside its panels
    legend: str = ""  # what the series are, above their names
    caption: str = ""
    metric: str = "acc"
    scale: str = "even"  # even = values side by side | log
    lines: bool = False
    where: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[Any, str] = field(default_factory=dict)
    printed: str | list[str] | None = None  # other experiments whose printed values are shown
    strips: list[Any] = field(default_factory=list)  # parts above each other, over these options
    map: str = ""  # a table whose differences are drawn as colours, instead of all of the above

    def __post_init__(self) -> None:
        if self.map and (self.x or self.series or self.panels or self.strips):
            allowed = "takes its axes from the table: leave out x, series, panels and strips"
            raise InputError(f"{self.setting}.map", self.map, allowed)
        if not (self.x or self.strips or self.map):
            raise InputError(self.setting, "x", "must name the key of the x axis")
        if self.scale not in ("even", "log"):
            raise InputError(f"{self.setting}.scale", self.scale, "must be even or log")
        if len(as_keys(self.panels)) > 2:
            raise InputError(f"{self.setting}.panels", self.panels, "must be one key or two")

    @property
    def setting(self) -> str:
        return f"figures.{self.name}"

    @property
    def axes(self) -> dict[str, Keys]:
        rows, column = [(), (), *((key,) for key in as_keys(self.panels))][-2:]
        keys = (rows, column, as_keys(self.x or None), as_keys(self.series))
        return dict(zip(FIGURE_AXES, keys, strict=True))

    @property
    def name_axis(self) -> str:
        return "series" if self.series else "x"


def parse_table(name: str, options: Any) -> TableSpec:
    return _parse(TableSpec, f"tables.{name}", options)


def parse_figure(name: str, options: Any) -> list[FigureSpec]:
    """The strips of a figure, or the figure as the only one."""
    setting = f"figures.{name}"
    strips = _parse(FigureSpec, setting, options).strips or [{}]
    if not all(isinstance(strip, Mapping) for strip in strips):
        raise InputError(f"{setting}.strips", strips, "must be a list of mappings")
    return [_parse(FigureSpec, setting, {**options, "strips": [], **strip}) for strip in strips]


def _parse(kind: Callable[..., Spec], setting: str, options: Any) -> Spec:
    """Options as YAML has them; a wrong or missing one is named."""
    known = [name for name in signature(kind).parameters if name != "name"]
    if not isinstance(options, Mapping):
        raise InputError(setting, options, "must be a mapping of options")
    for key, value in options.items():
        if key not in known:
            allowed = f"unknown option; known: {', '.join(known)}"
            raise InputError(f"{setting}.{key}", value, allowed)
    try:
        return kind(name=setting.partition(".")[2], **options)
    except TypeError as error:
        missing = str(error).rpartition("argument")[2].lstrip("s: ")
        raise InputError(setting, dict(options), f"lacks {missing}") from None


def check_keys(spec: TableSpec | FigureSpec, known: Collection[str]) -> None:
    """Refuse axes and choices by keys that no point of the grid has."""
    for key in (*(key for keys in spec.axes.values() for key in keys), *spec.where):
        if key not in known:
            allowed = f"no point of the grid has this key; known: {', '.join(sorted(known))}"
            place = f"{spec.setting}.where" if key in spec.where else spec.setting
            raise InputError(place, key, allowed)


def check_metric(spec: TableSpec | FigureSpec, known: Collection[str]) -> None:
    """Refuse a metric that no run records."""
    if spec.metric not in known:
        allowed = f"must be among {', '.join(sorted(known))}"
        raise InputError(f"{spec.setting}.metric", spec.metric, allowed)


def check_map(spec: FigureSpec, tables: Mapping[str, Mapping[str, Any]]) -> None:
    """A map draws a table of its own experiment, with blocks, rows, columns and differences."""
    mapped = [name for name, table in tables.items() if table.get("differences")]
    if spec.map and spec.map not in mapped:
        known = ", ".join(mapped) or "none"
        allowed = f"must be a table of the experiment that has differences; there: {known}"
        raise InputError(f"{spec.setting}.map", spec.map, allowed)


def as_keys(value: Any) -> Keys:
    """An axis as YAML has it: nothing, a key, or a list of keys."""
    return (value,) if isinstance(value, str) else tuple(map(str, value or ()))
