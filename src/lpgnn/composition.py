"""From the command line to settings: Hydra composes, experiments add grids.

An experiment is one YAML file: settings, a ``grid`` (a union of members, each a product of
choices), and the tables and figures that it makes.  Only this module and entry points know Hydra.
"""

import copy
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from lpgnn.config import KINDS, Settings
from lpgnn.errors import InputError
from lpgnn.hyperparameters import conf_dir

# Keys of a grid's member that are no settings: its name in tables, and whether it is a control.
_MEMBER_KEYS = ("label", "control")
# Keys of an experiment's file that are no settings.
_EXPERIMENT_KEYS = ("title", "grid", "tables", "figures", "interval")
_INFINITE = ("inf", ".inf", "+inf")
_FOLDERS = ("data_dir", "results_dir", "dataset.path")


@dataclass(frozen=True)
class Point:
    """One run of a grid: its settings, and the choices that led to it, as they were given."""

    keys: Mapping[str, str]
    settings: Settings
    label: str | None = None
    control: bool = False


@dataclass(frozen=True)
class Experiment:
    """An experiment's file: what is run, and what is shown."""

    name: str
    title: str
    grid: tuple[Mapping[str, Any], ...]
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    figures: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    interval: Literal["percentile", "t"] = "percentile"  # of its means: the paper's, or Student's


def expand(
    overrides: Sequence[str], *, multirun: bool = False, config_dirs: Sequence[Path] = ()
) -> list[Point]:
    """The runs that a command line asks for: one, a grid, or those of experiments.

    The grid is the product of the comma-separated overrides, for each member of the union that an
    experiment lists under ``grid``.  Several experiments are the union of theirs.  What the command
    line sets wins over the experiment, and a choice for a group drops the options that a member
    sets in that group.  ``config_dirs`` hold YAML files of the user's own beside those of conf/.
    """
    with _Composer(config_dirs, overrides) as composer:
        return list(composer.points(overrides, multirun))


def load_experiment(name: str, config_dirs: Sequence[Path] = ()) -> Experiment:
    """Read an experiment's file."""
    with _Composer(config_dirs, [f"experiment={name}"]) as composer:
        return composer.experiment(composer.known_choice("experiment", name))


def experiment_names(config_dirs: Sequence[Path] = ()) -> list[str]:
    """The experiments in conf/ and in the user's own folders."""
    return _names("experiment", config_dirs)


def _names(group: str, config_dirs: Sequence[Path]) -> list[str]:
    folders = (*config_dirs, conf_dir())
    return sorted({path.stem for folder in folders for path in (folder / group).glob("*.yaml")})


def _check_names(config_dirs: Sequence[Path]) -> None:
    """Refuse two files for one choice: Hydra would take one of them in silence."""
    taken: dict[str, Path] = {}
    for folder in dict.fromkeys((conf_dir().resolve(), *config_dirs)):
        for group in (*KINDS, "experiment"):
            for path in sorted((folder / group).glob("*.yaml")):
                name = f"{group}/{path.name}"
                if name in taken:
                    allowed = f"has {name}, and so has {taken[name]}: rename one of them"
                    raise InputError("--config-dir", folder, allowed)
                taken[name] = folder


class _Composer:
    """Hydra's composition for one command line; errors come out as one line of bad input."""

    def __init__(self, config_dirs: Sequence[Path], overrides: Iterable[str]) -> None:
        self.config_dirs = [Path(folder).expanduser().resolve() for folder in config_dirs]
        for folder in self.config_dirs:
            if not folder.is_dir():
                raise InputError("--config-dir", folder, "must be a folder with YAML files")
        _check_names(self.config_dirs)
        self.command_line = " ".join(overrides)
        self.composed: dict[tuple[str, ...], dict[str, Any]] = {}

    def __enter__(self) -> "_Composer":
        from hydra import initialize_config_dir

        self.context = initialize_config_dir(str(conf_dir().resolve()), version_base="1.3")
        self.context.__enter__()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self.context.__exit__(kind, error, trace)
        from hydra.errors import HydraException
        from omegaconf.errors import OmegaConfBaseException

        if isinstance(error, HydraException | OmegaConfBaseException):
            reason = " ".join(str(error).split())
            raise InputError("overrides", self.command_line, f"not understood: {reason}") from None

    def points(self, overrides: Sequence[str], multirun: bool) -> Iterator[Point]:
        given = self._parse(overrides)
        experiments = [
            self.known_choice("experiment", value)
            for override in given
            if override.key_or_group == "experiment"
            for value in _choices(override)
        ]
        given = [override for override in given if override.key_or_group != "experiment"]
        sweep = multirun or any(self.experiment(name).grid for name in experiments)
        for override in given:
            if override.is_sweep_override() and not sweep:
                value = override.input_line.split("=", 1)[1]
                raise InputError(override.key_or_group, value, "is a grid: add -m to run it")
        if not experiments:
            yield from self._member_points(None, {}, given)
        for name in experiments:
            for member in self.experiment(name).grid or [{}]:
                yield from self._member_points(name, member, given)

    def _member_points(
        self, experiment: str | None, member: Mapping[str, Any], given: Sequence[Any]
    ) -> Iterator[Point]:
        """The product of a member's choices with those of the command line."""
        taken = {override.key_or_group for override in given}
        lines = [
            f"{key}={_choice_text(value)}"
            for key, value in member.items()
            if key not in _MEMBER_KEYS and key not in taken and key.split(".")[0] not in taken
        ]
        # Hydra's parser takes a millisecond: each choice is parsed once, not once per run.
        axes = [
            [(override, *self._choice(override, text)) for text in _choices(override)]
            for override in (*self._parse(lines), *given)
        ]
        label, control = member.get("label"), bool(member.get("control", False))
        for combination in itertools.product(*axes):
            keys = {override.key_or_group: text for override, text, _ in combination}
            groups = tuple(f"{key}={text}" for key, text in keys.items() if key in KINDS)
            values = [(o, value) for o, _, value in combination if o.key_or_group not in KINDS]
            settings = self._settings(self._compose(experiment, groups), values)
            yield Point(keys, settings, label, control)

    def _choice(self, override: Any, text: str) -> tuple[str, Any]:
        """One choice as text and as a value."""
        if override.key_or_group in KINDS:
            return self.known_choice(override.key_or_group, text), None
        if not override.is_sweep_override():
            return text, override.value()
        return text, self._parse([f"{override.input_line.split('=', 1)[0]}={text}"])[0].value()

    def _compose(self, experiment: str | None, groups: tuple[str, ...]) -> dict[str, Any]:
        """A composed config as plain values.

        Hydra takes tens of milliseconds for each.  A choice that changes nothing but its own group
        is composed once and put into the others; any other is composed with them.
        """
        config = dict(self._compose_with_hydra(experiment, ()))
        base = dict(config)
        for choice in groups:
            group = choice.partition("=")[0]
            alone = self._compose_with_hydra(experiment, (choice,))
            others = alone.keys() - {group}
            if others != base.keys() - {group} or any(alone[k] != base[k] for k in others):
                return self._compose_with_hydra(experiment, groups)
            config[group] = alone[group]
        return config

    def _compose_with_hydra(
        self, experiment: str | None, groups: tuple[str, ...]
    ) -> dict[str, Any]:
        from hydra import compose
        from hydra.errors import HydraException
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException
        from yaml import YAMLError

        key = (f"+experiment={experiment}", *groups) if experiment else groups
        if key not in self.composed:
            folders = ",".join(f"file://{folder}" for folder in self.config_dirs)
            search = [f"hydra.searchpath=[{folders}]"] if folders else []
            try:
                config = OmegaConf.to_container(compose("config", [*key, *search]))
            except (HydraException, OmegaConfBaseException, YAMLError, UnicodeError) as error:
                setting, _, value = " ".join(key).lstrip("+").partition("=")
                reason = " ".join(str(error).split())
                raise InputError(setting, value, f"cannot be read: {reason}") from None
            assert isinstance(config, dict)
            if "experiment" in config:
                allowed = "its file must start with the line '# @package _global_'"
                raise InputError("experiment", experiment, allowed)
            self.composed[key] = {str(name): value for name, value in config.items()}
        return self.composed[key]

    def experiment(self, name: str) -> Experiment:
        config = self._compose(name, ())
        grid = config.get("grid") or []
        if not isinstance(grid, list) or not all(isinstance(member, dict) for member in grid):
            raise InputError(f"experiment={name} grid", grid, "must be a list of mappings")
        interval = config.get("interval", "percentile")
        if interval not in ("percentile", "t"):
            raise InputError(f"experiment={name} interval", interval, "must be percentile or t")
        for shown in ("tables", "figures"):
            _check_shown(f"experiment={name} {shown}", config.get(shown) or {})
        return Experiment(
            name,
            str(config.get("title") or name),
            tuple(grid),
            config.get("tables") or {},
            config.get("figures") or {},
            interval,
        )

    def known_choice(self, group: str, value: str) -> str:
        """Check a group's choice, ignoring its case (MB, 1B, LP, AG)."""
        known = _names(group, self.config_dirs)
        for name in known:
            if value.strip("'\"").lower() == name.lower():
                return name
        raise InputError(group, value, f"must be one of {', '.join(known)}")

    def _parse(self, texts: Sequence[str]) -> list[Any]:
        from hydra.core.override_parser.overrides_parser import OverridesParser
        from hydra.errors import HydraException

        parser, parsed = OverridesParser.create(), []
        for text in texts:
            key, _, value = text.partition("=")
            try:
                (override,) = parser.parse_overrides([_quoted(key, value) if value else text])
            except HydraException as error:
                reason = " ".join(str(error).split()).split(" See https")[0]
                raise InputError(key, value, f"not understood: {reason}") from None
            if override.is_delete():
                raise InputError(key, value, "a setting cannot be removed")
            parsed.append(override)
        return parsed

    def _settings(self, config: dict[str, Any], values: Sequence[tuple[Any, Any]]) -> Settings:
        """Put values over a composed config, as Hydra would."""
        config = copy.deepcopy(config)
        for override, value in values:
            _update(config, override, value)
        if "${" in str(config):
            config = _resolved(config)
        wanted = {key: value for key, value in config.items() if key not in _EXPERIMENT_KEYS}
        for name in ("x_eps", "y_eps"):
            if isinstance(wanted[name], str) and wanted[name].lower() in _INFINITE:
                wanted[name] = math.inf
        known = {f.name for f in fields(Settings)}
        for key, value in wanted.items():
            if key not in known:
                raise InputError(key, value, f"unknown setting; known: {', '.join(sorted(known))}")
        return Settings(**wanted)


def _check_shown(setting: str, shown: Any) -> None:
    """Tables and figures by name; a name becomes a file's."""
    if not isinstance(shown, dict) or not all(isinstance(one, dict) for one in shown.values()):
        raise InputError(setting, shown, "must map names to what they show")
    for name in shown:
        if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", str(name)):
            raise InputError(setting, name, "names a file: letters, digits and . _ - only")


def _choices(override: Any) -> list[str]:
    """The single values that a (sweep) override stands for, as text."""
    if override.is_sweep_override():
        return [str(value) for value in override.sweep_string_iterator()]
    return [override.input_line.split("=", 1)[1]]


def _resolved(config: dict[str, Any]) -> dict[str, Any]:
    """Plain values with every ${interpolation} filled in."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        found = OmegaConf.to_container(OmegaConf.create(config), resolve=True)
    except OmegaConfBaseException as error:
        key, reason = str(error.full_key or ""), str(error).splitlines()[0]
        value = config.get(key.split(".")[0].split("[")[0])
        raise InputError(key, value, f"not understood: {reason}") from None
    assert isinstance(found, dict)
    return {str(name): value for name, value in found.items()}


def _quoted(key: str, value: str) -> str:
    """An override in Hydra's grammar, which has no folders like ~/ü and takes lists for grids."""
    if key == "save" and "," in value and not value.startswith("["):
        return f"{key}=[{value}]"
    if key in _FOLDERS and value != "null" and not re.search(r"[,$]|^['\"\[]", value):
        escaped = value.replace("'", r"\'")
        return f"{key}='{escaped}'"
    return f"{key}={value}"


def _choice_text(value: Any) -> str:
    """A member's value as an override: a list is a choice, and text may hold commas."""
    if isinstance(value, list):
        return ",".join(_choice_text(one) for one in value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _update(config: dict[str, Any], override: Any, value: Any) -> None:
    """Set a dotted key of nested plain values; a new key needs a +."""
    *parents, last = override.key_or_group.split(".")
    node = config
    for name in parents:
        inner = node.get(name)
        if inner is None and (override.is_add() or override.is_force_add()):
            inner = node[name] = {}
        if not isinstance(inner, dict):
            raise InputError(
                override.key_or_group, value, f"unknown setting: {name} has no options"
            )
        node = inner
    adds = override.is_add() or override.is_force_add()
    if last not in node and not adds:
        known = ", ".join(sorted(name for name in node if name not in _EXPERIMENT_KEYS)) or "none"
        hint = f" (+{override.key_or_group}=... adds an option that the YAML does not list)"
        allowed = f"unknown setting; known here: {known}{hint if parents else ''}"
        raise InputError(override.key_or_group, value, allowed)
    node[last] = value
