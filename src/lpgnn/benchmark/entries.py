"""Entries of the benchmark: one YAML file a method, ours and yours."""

import importlib.util
import math
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from lpgnn.benchmark.protocol import FREE, NARROWED
from lpgnn.components import exits_raised
from lpgnn.errors import InputError, error_line, one_line
from lpgnn.hyperparameters import conf_dir
from lpgnn.report.notation import as_number
from lpgnn.report.tables import Printed, read_printed
from lpgnn.shown import TableSpec
from lpgnn.unique_keys import parse_yaml

FAMILIES = ("control", "whole method", "feature mechanism", "label mechanism", "filter", "learner")
BUDGETS = ("x_eps", "y_eps")
# What the protocol or the command line decides; a control may say that it spends no x_eps.
_DECIDED = (
    *(*NARROWED, *FREE, "repeats", "seed", "split", "selection"),
    *("label", "feature", "control", "total_eps", "x_share", "metric", "metrics"),
    *("save", "logger", "reports", "labels"),
)
_PRINTED = ("file", "row", "column")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
# A setting, with + where the option is one that no YAML lists; ++ and ~ are Hydra's alone.
_SETTING = re.compile(r"\+?[A-Za-z_][A-Za-z0-9_.]*")


@dataclass(frozen=True)
class Entry:
    """A method: what it sets beside the protocol's settings, and what it may search.

    ``private_labels`` and ``exact_labels`` are settings for one kind of label budget only.  An
    entry for ``labels: private`` is not run where they are clean.  ``search`` maps settings to the
    values to try, over the protocol's; ``trials: 0`` takes the values as they are set.  ``module``
    is the Python file beside the YAML that holds the method's own class.  ``printed`` says where
    the method's own paper prints numbers; see ``printed_numbers``.  ``counts`` says whether that
    paper's ε_x is a node's total, as here, or that of one feature; nothing if it is not known.
    """

    name: str
    title: str
    family: str
    source: str = ""
    note: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    private_labels: Mapping[str, Any] = field(default_factory=dict)
    exact_labels: Mapping[str, Any] = field(default_factory=dict)
    labels: str = "all"
    search: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    trials: int | None = None  # None: the protocol's
    module: str = ""
    printed: Sequence[Mapping[str, Any]] = ()
    counts: str = ""
    is_added: bool = False  # by a user; no key of the YAML

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            theirs = ", ".join(one for one in FAMILIES if one != "control")
            raise self._bad("family", self.family, f"must be one of {theirs}")
        if self.labels not in ("all", "private"):
            raise self._bad("labels", self.labels, "must be all or private")
        if self.counts not in ("", "total", "feature"):
            raise self._bad("counts", self.counts, "must be total or feature, or left out")
        for name in ("title", "source", "note", "module"):
            text = getattr(self, name)
            if not isinstance(text, str) or not text.isprintable() or text != text.strip():
                raise self._bad(name, text, "must be text in one line")
        if not self.title:
            raise self._bad("title", self.title, "must not be empty")
        if self.trials == 0 and self.search:
            raise self._bad("search", self.search, "nothing is searched with trials: 0")
        if self.trials is False or self.trials not in (None, 0):
            raise self._bad("trials", self.trials, "must be 0, or left out: all have as many")
        self._check_settings()
        self._check_search()
        self._check_printed()

    def _check_settings(self) -> None:
        for name in ("settings", "private_labels", "exact_labels", "search"):
            if not isinstance(getattr(self, name), Mapping):
                raise self._bad(name, getattr(self, name), "must map settings to values")
        for name in ("settings", "private_labels", "exact_labels", "search"):
            for setting, value in getattr(self, name).items():
                if not isinstance(setting, str) or not _SETTING.fullmatch(setting):
                    allowed = "must be the name of a setting, with + if no YAML lists it"
                    raise self._bad(f"{name}.{setting}", value, allowed)
                if name != "search":
                    self._check_single(name, setting, value)
                spends_none = self.is_control and setting == "x_eps"
                if setting.removeprefix("+") in _DECIDED and not spends_none:
                    raise self._bad(f"{name}.{setting}", value, "the protocol decides it")

    def _check_search(self) -> None:
        for setting, values in self.search.items():
            if not isinstance(values, list) or not values:
                raise self._bad(f"search.{setting}", values, "must be a list of at least one value")
            for value in values:
                self._check_single("search", setting, value)
            if setting.removeprefix("+") in {key.removeprefix("+") for key in self._fixed}:
                raise self._bad(f"search.{setting}", values, "is set as well: choose one of both")

    def _check_printed(self) -> None:
        if not isinstance(self.printed, list | tuple):
            raise self._bad("printed", self.printed, "must be a list of {file, x_eps, y_eps, ...}")
        for source in self.printed:
            if not isinstance(source, Mapping) or not {"file", *BUDGETS} <= source.keys():
                raise self._bad("printed", source, "must have file, x_eps and y_eps")
            for key, value in source.items():
                if key not in (*_PRINTED, *BUDGETS):
                    known = ", ".join((*_PRINTED, *BUDGETS))
                    raise self._bad(f"printed.{key}", value, f"unknown key; known: {known}")
                if key in BUDGETS and value not in ("row", "column") and not _is_number(value):
                    raise self._bad(f"printed.{key}", value, "must be row, column or a number")

    @property
    def _fixed(self) -> set[str]:
        return {*self.settings, *self.private_labels, *self.exact_labels}

    def _check_single(self, where: str, setting: str, value: Any) -> None:
        """Options of a component may be lists; a setting of the run is one value."""
        grids = isinstance(value, str) and "," in value and value.strip()[:1] not in ("[", "(", "'")
        if grids or (isinstance(value, list | Mapping) and "." not in setting):
            raise self._bad(
                f"{where}.{setting}", value, "must be one value: what is tried stands under search"
            )

    @cached_property
    def printed_numbers(self) -> dict[tuple[str, float, float], Printed]:
        """What the method's paper prints, by graph, x_eps and y_eps.

        A source is a CSV file of dataset, row, column, mean and ci, with the row or column that is
        this method; x_eps and y_eps are numbers, or the axis (row or column) that holds them.
        """
        found: dict[tuple[str, float, float], Printed] = {}
        for source in self.printed:
            found |= self._printed_in(source)
        return found

    def _printed_in(self, source: Mapping[str, Any]) -> dict[tuple[str, float, float], Printed]:
        file = source["file"]
        try:
            numbers = read_printed(
                TableSpec(self.name, "row", "column", "dataset", printed=str(file))
            )
        except InputError as error:
            raise self._bad("printed", file, error.allowed) from None
        found: dict[tuple[str, float, float], Printed] = {}
        for (dataset, row, column), number in numbers.items():
            at = {"row": row, "column": column}
            if all(str(source.get(axis, key)) == key for axis, key in at.items()):
                budgets = [at.get(str(source[key]), source[key]) for key in BUDGETS]
                if not all(map(_is_number, budgets)):
                    allowed = f"x_eps and y_eps must be numbers, not {budgets[0]} and {budgets[1]}"
                    raise self._bad("printed", file, allowed)
                found[dataset, float(budgets[0]), float(budgets[1])] = number
        if not found:
            wanted = ", ".join(f"{k}={source[k]}" for k in ("row", "column") if k in source)
            raise self._bad("printed", file, f"has no line with {wanted or 'numbers'}")
        return found

    def _bad(self, key: str, value: Any, allowed: str) -> InputError:
        return InputError(f"entry {self.name}: {key}", value, allowed)

    @property
    def given(self) -> set[str]:
        """All settings that the entry names, as it names them: with + where its YAML has one."""
        return {*self._fixed, *self.search}

    @property
    def kinds(self) -> set[str]:
        """The components, or settings of the run, of which the entry sets something."""
        return {key.removeprefix("+").partition(".")[0] for key in self.given}

    @property
    def is_mechanism(self) -> bool:
        """Whether only what nodes report is the entry's own, and nothing of it is searched."""
        reported = {"mechanism", "label_mechanism"}
        return self.kinds <= reported and not self.search and self.trials is None

    @property
    def is_searched_together(self) -> bool:
        """Whether only what nodes report of their features is: such entries share their values.

        Losses on another mechanism's label reports are likelihoods of another scale.
        """
        return self.is_mechanism and "label_mechanism" not in self.kinds

    def runs_at(self, y_eps: float) -> bool:
        return self.labels == "all" or math.isfinite(y_eps)

    @property
    def is_control(self) -> bool:
        return self.family == "control"


def read_entry(path: Path) -> Entry:
    """Read an entry's file; the module that it names must lie beside it."""
    import yaml

    if not path.is_file():
        raise InputError("entry", path, "must be a file" if path.exists() else "no such file")
    if not _NAME.fullmatch(path.stem):
        raise InputError("entry", path.name, "names files: letters, digits, _ and - only")
    try:
        content = parse_yaml(path.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeError) as error:
        reason = one_line(error)
        raise InputError("entry", path, f"cannot be read as YAML ({reason})") from None
    known = [f.name for f in fields(Entry) if f.name not in ("name", "is_added")]
    if not isinstance(content, dict):
        allowed = f"must have title and family, and may have {', '.join(known[2:])}"
        raise InputError(f"entry {path.stem}", content, allowed)
    for key in content:
        if key not in known:
            allowed = f"unknown key; known: {', '.join(known)}"
            raise InputError(f"entry {path.stem}: {key}", content[key], allowed)
    for key in ("title", "family"):
        if key not in content:
            raise InputError(f"entry {path.stem}: {key}", ..., "is missing: every entry has one")
        if not isinstance(content[key], str):
            raise InputError(f"entry {path.stem}: {key}", content[key], "must be text")
    entry = _beside(path.parent, Entry(path.stem, **content))
    file = path.parent / entry.module
    is_beside = file.parent == path.parent and file.is_file()
    if entry.module and not (is_beside and file.suffix == ".py"):
        allowed = f"must be a Python file beside {path.name}"
        raise InputError(f"entry {entry.name}: module", entry.module, allowed)
    _ = entry.printed_numbers  # read now, so that what is wrong with them is found at once
    return entry


def own_entries() -> dict[str, Entry]:
    """The entries of lpgnn."""
    return _entries_of(conf_dir() / "benchmark" / "entries")


def own_mechanisms() -> dict[str, Entry]:
    """Our mechanisms: no submission has a say in the values of others."""
    return {name: one for name, one in own_entries().items() if one.is_mechanism}


def known_entries(results_dir: Path) -> dict[str, Entry]:
    """Our entries, and those that were added to a results folder; controls first."""
    added = _entries_of(added_folder(results_dir)).values()
    found = [*own_entries().values(), *(replace(entry, is_added=True) for entry in added)]
    found.sort(key=lambda entry: FAMILIES.index(entry.family))
    return {entry.name: entry for entry in found}


def _entries_of(folder: Path) -> dict[str, Entry]:
    found = {path.stem: read_entry(path) for path in sorted(folder.glob("*.yaml"))}
    if any(entry.module for entry in found.values()):
        _importable(folder)
    return found


def read_submission(path: Path) -> Entry:
    """Read an entry of a user's own, under a name of its own."""
    entry = read_entry(path)
    if entry.is_control:
        families = ", ".join(family for family in FAMILIES if family != entry.family)
        raise InputError(
            f"entry {entry.name}: family", entry.family, f"is lpgnn's own; may be {families}"
        )
    if (conf_dir() / "benchmark" / "entries" / path.name).is_file():
        raise InputError("entry", entry.name, "is the name of an entry of lpgnn: rename the file")
    for own in own_entries().values():
        if own.title == entry.title:
            allowed = f"is the title of an entry of lpgnn, {own.name}: choose another"
            raise InputError(f"entry {entry.name}: title", entry.title, allowed)
    return replace(entry, is_added=True)


def load_submission(path: Path, results_dir: Path) -> Entry:
    """Read an entry of a user's own and import its module: this very file, whatever else is there.

    Nothing else that lies beside it can be imported.
    """
    entry = read_submission(path)
    for other in _entries_of(added_folder(results_dir)).values():
        if other.title == entry.title and other.name != entry.name:
            allowed = f"is the title of the entry {other.name}: choose another"
            raise InputError(f"entry {entry.name}: title", entry.title, allowed)
    if not entry.module:
        _check_family(entry)
        return entry
    file, setting = path.parent / entry.module, f"entry {entry.name}: module"
    for other in _entries_of(added_folder(results_dir)).values():
        if other.module == entry.module and other.name != entry.name:
            kept = added_folder(results_dir) / entry.module
            if kept.read_bytes() != file.read_bytes():
                allowed = (
                    f"entry {other.name} keeps another file of this name: rename it, or delete "
                    f"{kept.with_name(other.name + '.yaml')} and add both again"
                )
                raise InputError(setting, entry.module, allowed)
    found = importlib.util.find_spec(file.stem)
    places = {file.resolve(), (added_folder(results_dir) / entry.module).resolve()}
    if found is not None and (found.origin is None or Path(found.origin).resolve() not in places):
        raise InputError(setting, entry.module, "is the name of another module: rename it")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
    try:
        with exits_raised():
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # it may raise anything
        del sys.modules[file.stem]
        reason = error_line(error)
        raise InputError(setting, entry.module, f"cannot be imported ({reason})") from None
    _check_family(entry)
    return entry


def _check_family(entry: Entry) -> None:
    """The family decides where an entry stands, and whether it runs without features."""
    kind = entry.family.replace(" ", "_").removeprefix("feature_")
    if entry.family != "whole method" and kind not in entry.kinds:
        allowed = f"needs {kind} in its settings: without, it is of another family"
        raise InputError(f"entry {entry.name}: family", entry.family, allowed)


def add_entry(path: Path, results_dir: Path) -> Entry:
    """Check an entry and keep a copy of it, with its module, in the results folder."""
    entry, folder = read_submission(path), added_folder(results_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError("results_dir", results_dir, f"cannot keep entries ({reason})") from None
    given = [source["file"] for source in entry.printed if isinstance(source["file"], Path)]
    for source in (path, *([path.parent / entry.module] if entry.module else []), *given):
        if source.resolve() != (folder / source.name).resolve():
            shutil.copyfile(source, folder / source.name)
    if entry.module:
        _importable(folder)
    return read_entry(folder / path.name)


def added_folder(results_dir: Path) -> Path:
    return results_dir / "benchmark" / "entries"


def _is_number(value: Any) -> bool:
    number = as_number(str(value))
    return number is not None and not math.isnan(number)


def _beside(folder: Path, entry: Entry) -> Entry:
    """An entry whose files of printed numbers lie beside it, unless they are the paper's."""
    found = []
    for source in entry.printed:
        path = folder / str(source["file"])
        if not str(source["file"]).startswith("paper/") and not path.is_file():
            allowed = f"must be paper/NAME or a CSV file beside {entry.name}.yaml"
            raise InputError(f"entry {entry.name}: printed", source["file"], allowed)
        found.append({**source, "file": path} if path.is_file() else source)
    return replace(entry, printed=found)


def _importable(folder: Path) -> None:
    """Put a folder on the path, also of worker processes."""
    place = str(folder.resolve())
    if place not in sys.path:
        sys.path.insert(0, place)
        rest = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = place if not rest else f"{place}{os.pathsep}{rest}"
