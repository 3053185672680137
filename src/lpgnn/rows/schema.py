"""The columns of a row, their types, and what makes a row valid.

A row is the result of one repeat of one configuration.  Its key is (id, repeat).
"""

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

Row = dict[str, str]
ColumnType = Literal["integer", "number", "share", "boolean", "text"]

RULES = ("paper", "released")
SHARES = ("acc", "macro_f1", "balanced_acc")  # metrics in per cent
MEASURES = (
    *("epoch", "qualified", "train/loss", "train/acc", "val/loss", "val/acc"),
    *(f"test/{name}" for name in SHARES),
)
SETTINGS = (
    *("dataset", "feature", "mechanism", "x_eps", "label_mechanism", "y_eps"),
    *("filter", "backbone", "protocol", "learner", "learning_rate", "weight_decay", "dropout"),
    *("max_epochs", "hidden_dim", "split", "seed", "options", "fingerprint"),
)
COLUMNS = (
    *("id", "repeat", *SETTINGS, "status"),
    *(f"{rule}/{measure}" for rule in RULES for measure in MEASURES),
    # "dirty" comes last: no part of its words is one of them, so that a cut row shows.
    *("duration", "device", "version", "science", "engine", "revision", "written", "dirty"),
)

# The status of a run that trained well, where there are no clean labels to compare with.
UNEVALUATED = "unevaluated"

# Where and when a row was computed; two runs of one configuration may differ in these.
PROVENANCE = ("duration", "device", "version", "engine", "revision", "written", "dirty")

# Without these a file is no table of rows.
REQUIRED = ("id", "repeat", "status")

_INTEGERS = ("repeat", "max_epochs", "hidden_dim", "seed", "written")
_NUMBERS = ("x_eps", "y_eps", "learning_rate", "weight_decay", "dropout", "duration")
_DECIMAL = r"[0-9]++(?:\.[0-9]*+)?(?:e[-+]?[0-9]++)?"
_PATTERNS: dict[ColumnType, str] = {
    "integer": "-?[0-9]++",
    "number": f"-?(?:{_DECIMAL}|inf)|nan",
    "share": r"[0-9]{1,2}(?:\.[0-9]*+)?|100(?:\.0*)?|[0-9](?:\.[0-9]*)?e-[0-9]+|nan",
    "text": ".*",
    "boolean": "true|false",
}
_KEYS = {
    "id": "[0-9A-Za-z_-]{1,64}",
    "repeat": "[0-9]{1,9}",
    "status": f"ok|{UNEVALUATED}|failed.*",
    "written": "[0-9]{0,19}",
}
_EXPECTED = {
    "id": "an identity",
    "repeat": "a number from 0",
    "status": f"ok, {UNEVALUATED} or failed",
    "written": "a time in nanoseconds",
    "integer": "an integer",
    "number": "a number",
    "share": "a number from 0 to 100",
    "boolean": "true or false",
}


def engines_of(rows: Iterable[Mapping[str, str]]) -> Counter[str]:
    """How many rows each engine computed.

    '' are rows of before engines were recorded; Laplace and Gaussian noise was drawn in floating
    point then, and has been drawn on a grid since.
    """
    return Counter(row.get("engine", "") for row in rows)


def describe_engines(engines: Mapping[str, int]) -> str:
    """Rows of several engines in a few words: they may differ by more than their noise."""
    parts = [f"{count} by {name or 'an unrecorded one'}" for name, count in engines.items()]
    return f"rows of {len(engines)} engines ({', '.join(parts)})"


@lru_cache(maxsize=1)
def package_version() -> str:
    """The installed version of lpgnn."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("lpgnn")
    except PackageNotFoundError:
        return "unknown"


def column_type(name: str) -> ColumnType:
    """The type of a column; ``<rule>/test/<metric>`` is a number whatever the metric."""
    if name in _INTEGERS or name.endswith("/epoch"):
        return "integer"
    if name == "dirty" or name.endswith("/qualified"):
        return "boolean"
    if name.partition("/")[2] in {f"test/{share}" for share in SHARES}:
        return "share"
    return "number" if name in _NUMBERS or "/" in name else "text"


def order_columns(names: Iterable[str]) -> tuple[str, ...]:
    """Columns in the order of the schema; a user's own metrics follow the built-in ones."""
    places = {name: place for place, name in enumerate(COLUMNS)}

    def place(name: str) -> tuple[int, str]:
        if name in places:
            return places[name], ""
        rule, _, measure = name.partition("/")
        if rule in RULES and measure.startswith("test/"):
            return places[f"{rule}/{MEASURES[-1]}"], name
        return len(COLUMNS), name

    return tuple(sorted(set(names), key=place))


def format_value(value: object) -> str:
    """A value as a CSV cell: shortest exact floats, lower-case booleans."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


# The csv module refuses longer cells, and a longer line is not a row.
MAX_LINE = 100_000


def split_line(line: str) -> list[str]:
    """The cells of one line; raises csv.Error if its quotes do not match."""
    return next(csv.reader((line,), strict=True), [])


class Valid(NamedTuple):
    """What a reader wants to know of a valid row first."""

    identity: str
    repeat: int
    written: int  # 0 in rows that were published before rows had a time
    settings: str = ""  # the cells between repeat and status as they stand in the line, if known
    at: int = 0  # where in the line


class RowValidator:
    """Checks rows with given columns: identity, repeat, status, and the type of every cell.

    They must be of the dataset that their file is named after: a copy under another name would
    count its rows twice.

    A cell may be blank where a row is older than its column or a setting does not apply, but a row
    that is ok has at least one test metric.  No check depends on blank columns being there:
    compaction adds them.
    """

    def __init__(self, columns: Sequence[str], dataset: str) -> None:
        self.columns = COLUMNS if tuple(columns) == COLUMNS else tuple(columns)
        self._dataset = dataset
        self._patterns = {name: re.compile(_pattern(name, dataset)) for name in columns}
        self._tests = [name for name in columns if "/test/" in name]
        self._plain = _PlainLine.of(self.columns, dataset)
        self._valid_options = {""}  # cells as they stand in a line
        self._settings = ""  # of the last plain line

    def check(self, line: str) -> Valid:
        """What identifies the row of a line; ValueError if the row is not valid."""
        if self._plain is not None:
            # Rows of one configuration stand together: what was found valid in the last line is
            # not matched again.  Splitting a line would take twice as long as matching it.
            settings = self._settings
            if settings and (found := self._plain.match(line, settings)):
                return found
            settings, options = self._plain.settings_of(line)
            if settings and self._are_valid(options):
                self._settings = settings
                if found := self._plain.match(line, settings):
                    return found
        try:
            cells = split_line(line)
        except csv.Error as error:
            raise ValueError(str(error)) from None
        if problem := self.problem(cells):
            raise ValueError(problem)
        row = dict(zip(self.columns, cells, strict=True))
        return Valid(row["id"], int(row["repeat"]), int(row.get("written") or 0))

    def _are_valid(self, options: str) -> bool:
        if options not in self._valid_options and _is_json_object(split_line(options)[0]):
            self._valid_options.add(options)
        return options in self._valid_options

    def problem(self, cells: Sequence[str]) -> str:
        """What is wrong with a row, '' if nothing is."""
        if len(cells) != len(self.columns):
            return f"{len(cells)} cells instead of {len(self.columns)}"
        row = dict(zip(self.columns, cells, strict=True))
        for name, pattern in self._patterns.items():
            if not pattern.fullmatch(row[name]):
                own = {**_EXPECTED, "dataset": f"{self._dataset}, after which the file is named"}
                expected = own.get(name) or own[column_type(name)]
                return f"{name} is {row[name][:20]!r}, not {expected}"
        if row["status"] == "ok":
            if not any(row[name] for name in self._tests):
                return "no test metric"
            if any(row[name] == "nan" for name in self._tests if name.endswith("/acc")):
                return "the accuracy is nan"
        if row.get("options") and not _is_json_object(row["options"]):
            return "options is not a JSON object"
        return ""


@lru_cache(maxsize=64)
def row_validator(columns: tuple[str, ...], dataset: str) -> RowValidator:
    """The validator of rows with these columns; files of the same kind share it."""
    return RowValidator(columns, dataset)


def _pattern(name: str, dataset: str) -> str:
    """What a cell must match."""
    if name in _KEYS:
        return _KEYS[name]
    if name == "dataset":
        return f"(?:{re.escape(dataset)})?"
    return f"(?:{_PATTERNS[column_type(name)]})?"


class _PlainLine:
    """Matches lines of valid rows that are ok, have every accuracy and quote nothing but text.

    They are id and repeat, the settings, and what was measured.  Whether the options among the
    settings are JSON is left open.
    """

    def __init__(self, settings: Sequence[str], measured: Sequence[str], dataset: str) -> None:
        text = r'(?:[^",]*+|"(?:[^"]++|"")*+")'
        cells = {
            name: text if column_type(name) == "text" else _pattern(name, dataset)
            for name in (*settings, *measured)
        }
        cells["dataset"] = _pattern("dataset", dataset)
        for name in measured:
            if name.endswith("/test/acc"):
                cells[name] = _PATTERNS["share"].removesuffix("|nan")
        cells |= {"status": "ok", "written": f"(?P<written>{_KEYS['written']})"}
        cells["options"] = f"(?P<options>{text})"
        without = {
            "settings": "" if "options" in settings else "(?P<options>)",
            "measured": "" if "written" in measured else "(?P<written>)",
        }
        self._head = re.compile(f"({_KEYS['id']}),({_KEYS['repeat']}),")
        self._settings = re.compile(_joined(cells, settings) + without["settings"])
        self._measured = re.compile("," + _joined(cells, measured) + without["measured"])

    @classmethod
    def of(cls, columns: Sequence[str], dataset: str) -> "_PlainLine | None":
        """None for columns in another order than ours, or without settings or an accuracy."""
        if columns[:2] != ("id", "repeat") or "status" not in columns:
            return None
        at = columns.index("status")
        settings, measured = columns[2:at], columns[at:]
        is_usual = "written" not in settings and "options" not in measured
        has_accuracy = any(name.endswith("/test/acc") for name in measured)
        return cls(settings, measured, dataset) if settings and is_usual and has_accuracy else None

    def match(self, line: str, settings: str) -> Valid | None:
        """The row of a line with these settings; None if it has others or is no plain one."""
        head = self._head.match(line)
        if head is None or not line.startswith(settings, head.end()):
            return None
        measured = self._measured.fullmatch(line, head.end() + len(settings))
        if measured is None:
            return None
        return Valid(head[1], int(head[2]), int(measured["written"] or 0), settings, head.end())

    def settings_of(self, line: str) -> tuple[str, str]:
        """The settings of a line and the options among them, as they stand there."""
        head = self._head.match(line)
        found = None if head is None else self._settings.match(line, head.end())
        return ("", "") if found is None else (found[0], found["options"])


def _joined(cells: Mapping[str, str], names: Iterable[str]) -> str:
    return ",".join(f"(?:{cells[name]})" for name in names)


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def as_cells(row: Mapping[str, object], columns: Sequence[str]) -> list[str]:
    """The cells of a row.  A row is one line: control characters become spaces."""
    return [format_value(row.get(name, "")).translate(_CONTROL) for name in columns]


_CONTROL = dict.fromkeys((*range(32), 127), " ")
