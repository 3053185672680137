"""From the command line to settings: Hydra composes, experiments add grids.

An experiment is one YAML file: settings, a ``grid`` (a union of members, each a product of
choices), and the tables and figures that it makes.  Only this module and entry points know Hydra.
"""

import contextlib
import itertools
import math
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from lpgnn.config import KINDS, WATCHERS, Settings, check_setting
from lpgnn.errors import InputError, one_line
from lpgnn.hyperparameters import conf_dir
from lpgnn.rows import DEFAULT_METRICS, OTHER_METRICS
from lpgnn.shown import check_keys, check_map, check_metric, parse_figure, parse_table

# Keys of a grid's member that are no settings: its name in tables, and whether it is a control.
_MEMBER_KEYS = ("label", "control")
# Keys of an experiment's file that are no settings.
_EXPERIMENT_KEYS = ("title", "grid", "tables", "figures", "interval")
# Groups of conf/ that a user chooses from: components, and experiments.
_COMPONENTS = (*KINDS, *WATCHERS)
GROUPS = (*_COMPONENTS, "experiment")
# Keys that stand for x_eps and y_eps together: their sum, and the share of it that x_eps has.
SPLIT_KEYS = _TOTAL, _SHARE = ("total_eps", "x_share")
_INFINITE = ("inf", ".inf", "+inf")
_FOLDERS = ("data_dir", "results_dir", "dataset.path", "reports", "labels")
# Values of these that Hydra's grammar reads: grids, interpolations, quoted text and lists.
_AS_IT_IS = re.compile(r"[,$]|^['\"\[]|^(choice|glob|shuffle|sort)\(")
# Hydra's search path: folders, and how deep their files lie (defaults, groups, launchers).
_LEVELS = ("*.yaml", "*/*.yaml", "hydra/*/*.yaml")
_SEARCH = "hydra.searchpath"
_MAIN = "config"
_KNOWN = {f.name for f in fields(Settings)}
# Values without any of the grammar's own characters.
_PLAIN = re.compile(r"[\w.+-]+")
_CONSTANTS = {"null": None, "true": True, "false": False}


@dataclass(frozen=True)
class _Kept:
    """What Hydra has told in this process about one state of the files that it reads."""

    composed: dict[tuple[str, ...], dict[str, Any]] = field(default_factory=dict)  # by its words
    read: dict[str, dict[str, Any] | None] = field(default_factory=dict)  # files as they are
    names: dict[str, list[str]] = field(default_factory=dict)  # the choices of a group


_KEPT: dict[Hashable, _Kept] = {}


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
    settings: Mapping[str, Any] = field(default_factory=dict)  # that it sets for its whole grid

    def overrides(self, point: Point) -> list[str]:
        """What ``lpgnn.run`` is given to compute one point of the grid alone."""
        shared = {k: _choice_text(v) for k, v in _flat(self.settings) if k not in point.keys}
        return [f"{key}={text}" for key, text in (shared | dict(point.keys)).items()]


def _flat(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Settings as overrides name them: the entries of a mapping one by one, there before or not."""
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from ((f"++{key}.{name}", entry) for name, entry in value.items())
        else:
            yield key, value


def expand(
    overrides: Sequence[str],
    *,
    multirun: bool = False,
    config_dirs: Sequence[Path] = (),
    hydra_overrides: Sequence[str] = (),
) -> list[Point]:
    """The runs that a command line asks for: one, a grid, or those of experiments.

    The grid is the product of the comma-separated overrides, for each member of the union that an
    experiment lists under ``grid``.  Several experiments are the union of theirs.  What the command
    line sets wins over the experiment, and a choice for a group drops the options that a member
    sets in that group.  ``total_eps`` and ``x_share`` set both budgets; an x_share of 0 spends
    nothing on features.  ``config_dirs`` hold YAML files of the user's own beside those of conf/;
    inside a Hydra application its search path counts, with that of ``hydra_overrides``.
    """
    with _Composer(config_dirs, overrides, hydra_overrides) as composer:
        return list(composer.points(overrides, multirun))


def expand_grid(
    members: Sequence[Mapping[str, Any]], overrides: Sequence[str] = ()
) -> list[list[Point]]:
    """The runs of each member of a grid that no file lists, with overrides for all of them."""
    with _Composer((), overrides) as composer:
        given = composer.parse(overrides)
        return [list(composer.member_points(None, member, given)) for member in members]


def composed_point(config: Any) -> Point:
    """The one run of a config that Hydra has composed."""
    from omegaconf import OmegaConf

    content = OmegaConf.to_container(config)
    assert isinstance(content, dict)
    return Point({}, _settings({str(key): value for key, value in content.items()}, ()))


def is_closed(hydra: Any) -> bool:
    """Whether conf/ and the words of a command decide all settings of a Hydra application.

    Nothing else was searched for YAML files, and what these say depends on no environment or clock.
    hydra: the application's own part of its config
    """
    import yaml

    searched = {f"{one.schema}://{one.path}" for one in hydra.runtime.config_sources}
    if searched != {f"file://{conf_dir().resolve()}", "pkg://hydra.conf", "structured://"}:
        return False
    texts = [path.read_text(encoding="utf-8") for path in conf_dir().rglob("*.yaml")]
    contents = [yaml.safe_load(text) for text in texts if "${" in text]
    # What is under hydra: is about folders, which a finished command does not write to.
    return not any("${" in str({**content, "hydra": None}) for content in contents)


def load_experiment(name: str, config_dirs: Sequence[Path] = ()) -> Experiment:
    """Read an experiment's file."""
    with _Composer(config_dirs, [f"experiment={name}"]) as composer:
        return composer.whole_experiment(name)


def read_experiment(
    name: str, overrides: Sequence[str] = (), config_dirs: Sequence[Path] = ()
) -> tuple[Experiment, list[Point]]:
    """An experiment's file, and the runs of its grid with overrides put over them."""
    words = [f"experiment={name}", *overrides]
    with _Composer(config_dirs, words) as composer:
        return composer.whole_experiment(name), list(composer.points(words, multirun=True))


def experiment_names(config_dirs: Sequence[Path] = ()) -> list[str]:
    """The experiments in conf/ and in the user's own folders."""
    return choice_names("experiment", config_dirs)


def known_spelling(group: str, choice: str, config_dirs: Sequence[Path]) -> str:
    """A choice as its file is spelt; as it is if there is no such file."""
    return _spelling(choice, choice_names(group, config_dirs)) or choice


def _spelling(choice: str, names: Sequence[str]) -> str | None:
    if choice in names:
        return choice
    return next((name for name in names if name.lower() == choice.lower()), None)


def choice_names(group: str, config_dirs: Sequence[Path]) -> list[str]:
    """The choices of a group in conf/ and in the user's own folders."""
    folders = (*config_dirs, conf_dir())
    return sorted({path.stem for folder in folders for path in (folder / group).glob("*.yaml")})


def check_names(config_dirs: Sequence[Path], hydra_overrides: Sequence[str] = ()) -> None:
    """Refuse two files for one choice: Hydra would take one of them in silence."""
    taken: dict[str, Path] = {}
    settings = dict.fromkeys((conf_dir().resolve(), *config_dirs), "--config-dir")
    for folder in _searched(hydra_overrides):
        settings.setdefault(folder, _SEARCH)
    for folder, setting in settings.items():
        for group in GROUPS:
            for path in sorted((folder / group).glob("*.yaml")):
                name = f"{group}/{path.name}"
                if name in taken:
                    allowed = f"has {name}, and so has {taken[name]}: rename one of them"
                    raise InputError(setting, folder, allowed)
                taken[name] = folder


def check_words(words: Iterable[str]) -> None:
    """Refuse overrides that are wrong whatever else is set, before Hydra, which starts slowly.

    That is seen of plain values of settings only; all others are left to Hydra.
    """
    known = (*_KNOWN, *GROUPS, *SPLIT_KEYS, *_EXPERIMENT_KEYS)
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key.isidentifier():
            continue
        if key not in known:
            raise _unknown_setting(key, text)
        for one in text.split(","):
            if key in _KNOWN and _PLAIN.fullmatch(one):
                check_setting(key, _budget(key, _plain_value(one)))


def _plain_value(text: str) -> Any:
    """A plain value as Hydra's grammar reads it."""
    lower = text.lower()
    if lower in _CONSTANTS:
        return _CONSTANTS[lower]
    if re.fullmatch(r"[+-]?\d+(_\d+)*", text):
        return int(text)
    # float() takes more words for infinity than the grammar
    is_number = lower.lstrip("+-") in ("inf", "nan") or re.search(r"\d", text)
    with contextlib.suppress(ValueError):
        return float(text) if is_number else text
    return text


def _unknown_setting(key: str, value: Any) -> InputError:
    return InputError(key, value, f"unknown setting; known: {', '.join(sorted(_KNOWN))}")


def _budget(name: str, value: Any) -> Any:
    """A budget may be infinite in YAML's spelling, too."""
    is_text = name in ("x_eps", "y_eps") and isinstance(value, str)
    return math.inf if is_text and value.lower() in _INFINITE else value


def _searched(hydra_overrides: Sequence[str]) -> list[Path]:
    """The folders that are added to Hydra's search path."""
    found: list[Path] = []
    for text in hydra_overrides:
        if text.partition("=")[0].lstrip("+") == _SEARCH:
            listed = _parsed(text).value()
            if not isinstance(listed, list):
                raise InputError(_SEARCH, listed, "must be a list of folders")
            found += _folders(str(one) for one in listed)
    return found


def _folders(searched: Iterable[str]) -> list[Path]:
    """Those entries of a search path of Hydra's that are folders."""
    places = [place.removeprefix("file://") for place in searched]
    return [Path(place).resolve() for place in places if "://" not in place]


class _Composer:
    """Hydra's composition for one command line; errors come out as one line of bad input."""

    def __init__(
        self,
        config_dirs: Sequence[Path],
        overrides: Iterable[str],
        hydra_overrides: Sequence[str] = (),
    ) -> None:
        folders = [Path(folder).expanduser().resolve() for folder in config_dirs]
        for folder in folders:
            if not folder.is_dir():
                raise InputError("--config-dir", folder, "must be a folder with YAML files")
        self.search = [text for text in hydra_overrides if text.startswith(f"{_SEARCH}=")]
        if folders:
            check_names(folders)
            listed = ",".join(f"file://{folder}" for folder in folders)
            self.search.append(f"{_SEARCH}=[{listed}]")
        self.command_line = " ".join(overrides)
        self.parsed: dict[str, Any] = {}
        self.joined: dict[tuple[str | None, tuple[str, ...]], dict[str, Any]] = {}

    def __enter__(self) -> "_Composer":
        from hydra import initialize_config_dir
        from hydra.core.global_hydra import GlobalHydra

        with contextlib.ExitStack() as stack:
            if not GlobalHydra.instance().is_initialized():  # we are in no Hydra application
                folder = str(conf_dir().resolve())
                stack.enter_context(initialize_config_dir(folder, version_base="1.3"))
            self.loader = GlobalHydra.instance().config_loader()
            searched = [one.path for one in self.loader.get_search_path().get_path()]
            self.folders = [*_folders(searched), *_searched(self.search)]
            self.kept = _KEPT.setdefault(self._read_from(searched), _Kept())
            self.context = stack.pop_all()
        return self

    def _read_from(self, searched: Sequence[str]) -> Hashable:
        """Where Hydra looks and the state of the files there: as long as both stay, so do configs.

        A report, a search and a benchmark compose the same choices many times, and Hydra takes a
        tenth of a second for each, and as long to list the choices of a group.
        """
        states = []
        for folder, level in itertools.product(self.folders, _LEVELS):
            for path in folder.glob(level):
                with contextlib.suppress(OSError):  # an editor's link to nowhere
                    state = path.stat()
                    states.append((path, state.st_mtime_ns, state.st_size))
        return (*searched, *self.search, *sorted(states))

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self.context.close()
        from hydra.errors import HydraException
        from omegaconf.errors import OmegaConfBaseException

        if isinstance(error, HydraException | OmegaConfBaseException):
            reason = one_line(error)
            raise InputError("overrides", self.command_line, f"not understood: {reason}") from None

    def points(self, overrides: Sequence[str], multirun: bool) -> Iterator[Point]:
        given = self.parse(overrides)
        experiments = [
            self.known_choice("experiment", value)
            for override in given
            if override.key_or_group == "experiment"
            for value in self._choices(override)
        ]
        given = [override for override in given if override.key_or_group != "experiment"]
        for name in experiments:
            _check_axes(self.experiment(name), {override.key_or_group for override in given})
        sweep = multirun or any(self.experiment(name).grid for name in experiments)
        for override in given:
            if override.is_sweep_override() and not sweep:
                value = override.input_line.split("=", 1)[1]
                raise InputError(override.key_or_group, value, "is a grid: add -m to run it")
        if not experiments:
            yield from self.member_points(None, {}, given)
        for name in experiments:
            for member in self.experiment(name).grid or [{}]:
                yield from self.member_points(name, member, given)

    def member_points(
        self, experiment: str | None, member: Mapping[str, Any], given: Sequence[Any]
    ) -> Iterator[Point]:
        """The product of a member's choices with those of the command line."""
        taken = {override.key_or_group for override in given}
        lines = [
            f"{key}={_choice_text(value)}"
            for key, value in member.items()
            if key not in _MEMBER_KEYS and key not in taken and key.split(".")[0] not in taken
        ]
        # Each choice is parsed once, not once per run.
        axes = [
            [(override, *self._choice(override, text)) for text in self._choices(override)]
            for override in (*self.parse(lines), *given)
        ]
        label, control = member.get("label"), bool(member.get("control", False))
        for combination in itertools.product(*axes):
            keys = {override.key_or_group: text for override, text, _ in combination}
            groups = tuple(
                f"{o.key_or_group}={text}"
                for o, text, _ in combination
                if o.key_or_group in _COMPONENTS and not o.is_delete()
            )
            values = [
                (o, value)
                for o, _, value in combination
                if o.key_or_group not in _COMPONENTS or o.is_delete()
            ]
            split = {k: v for o, v in values if (k := o.key_or_group) in SPLIT_KEYS}
            values = [(o, value) for o, value in values if o.key_or_group not in split]
            settings = _settings(self._compose(experiment, groups), values)
            if split:
                settings = _with_split(settings, split, keys)
            yield Point(keys, settings, label, control)

    def _choices(self, override: Any) -> list[str]:
        """The single values that a (sweep) override stands for, as text.

        A glob takes no file that wants a class or a folder first.
        """
        from hydra.core.override_parser.types import Glob

        group, value = override.key_or_group, override.value()
        if isinstance(value, Glob):  # Hydra itself looks only where its own search path leads
            names = [str(name) for name in value.filter(self._names(group))]
            if group not in _COMPONENTS:
                return names
            composed = {name: self._compose(None, (f"{group}={name}",))[group] for name in names}
            return [name for name, content in composed.items() if "???" not in content.values()]
        if override.is_sweep_override():
            return [str(value) for value in override.sweep_string_iterator()]
        return [override.input_line.partition("=")[2]]

    def _choice(self, override: Any, text: str) -> tuple[str, Any]:
        """One choice as text and as a value."""
        if override.is_delete():
            return text, None
        if override.key_or_group in _COMPONENTS:
            return self.known_choice(override.key_or_group, text), None
        if not override.is_sweep_override():
            return text, override.value()
        return text, self.parse([f"{override.input_line.split('=', 1)[0]}={text}"])[0].value()

    def _compose(self, experiment: str | None, groups: tuple[str, ...]) -> dict[str, Any]:
        """A composed config as plain values.

        Hydra takes a tenth of a second for each.  A choice that changes nothing but its own group
        is read or composed once and put into the others; any other is composed with them.
        """
        if (experiment, groups) not in self.joined:
            self.joined[experiment, groups] = self._join(experiment, groups)
        return self.joined[experiment, groups]

    def _join(self, experiment: str | None, groups: tuple[str, ...]) -> dict[str, Any]:
        config = dict(self._compose_with_hydra(experiment, ()))
        base = dict(config)
        for choice in groups:
            group, _, name = choice.partition("=")
            content = self._plain_choice(experiment, group, name)
            if content is not None:
                config[group] = content
                continue
            alone = self._compose_with_hydra(experiment, (choice,))
            others = alone.keys() - {group}
            if others != base.keys() - {group} or any(alone[k] != base[k] for k in others):
                return self._compose_with_hydra(experiment, groups)
            config[group] = alone[group]
        return config

    def _plain_choice(self, experiment: str | None, group: str, name: str) -> Any:
        """The content of a choice's file, if that is all that Hydra would make of it; else None.

        Nothing else may have a say in the group, and the file none elsewhere.
        """
        others = [self._read(_MAIN)]
        if experiment is not None:
            others.append(self._read(f"experiment/{experiment}"))
        if any(other is None or group in other for other in others):
            return None
        return self._read(f"{group}/{name}")

    def _read(self, name: str) -> dict[str, Any] | None:
        """What a file sets; None if it also says where, names other files, or cannot be read."""
        if name not in self.kept.read:
            self.kept.read[name] = self._read_anew(name)
        return self.kept.read[name]

    def _read_anew(self, name: str) -> dict[str, Any] | None:
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException
        from yaml import YAMLError

        paths = [folder / f"{name}.yaml" for folder in self.folders]
        found = [path for path in paths if path.is_file()]
        if len(found) != 1:
            return None
        try:
            text = found[0].read_text(encoding="utf-8")
            content = OmegaConf.to_container(OmegaConf.create(text))
        except (OSError, ValueError, YAMLError, OmegaConfBaseException):
            return None  # Hydra says what is wrong
        if not isinstance(content, dict):
            return None
        if name != _MAIN and "defaults" in content:
            return None
        if name.partition("/")[0] in _COMPONENTS and "@package" in text:
            return None
        return {str(key): value for key, value in content.items()}

    def _compose_with_hydra(
        self, experiment: str | None, groups: tuple[str, ...]
    ) -> dict[str, Any]:
        from hydra import compose
        from hydra.errors import HydraException
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException
        from yaml import YAMLError

        key = (f"experiment={experiment}", *groups) if experiment else groups
        if key not in self.kept.composed:
            try:
                config = OmegaConf.to_container(compose(_MAIN, [*key, *self.search]))
            except (HydraException, OmegaConfBaseException, YAMLError, ValueError) as error:
                setting, _, value = " ".join(key).partition("=")
                reason = one_line(error)
                raise InputError(setting, value, f"cannot be read: {reason}") from None
            assert isinstance(config, dict)
            if "experiment" in config:
                allowed = "its file must start with the line '# @package _global_'"
                raise InputError("experiment", experiment, allowed)
            self.kept.composed[key] = {str(name): value for name, value in config.items()}
        return self.kept.composed[key]

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
        for table, options in (config.get("tables") or {}).items():
            parse_table(str(table), options)
        for figure, options in (config.get("figures") or {}).items():
            parse_figure(str(figure), options)
        return Experiment(
            name,
            str(config.get("title") or name),
            tuple(grid),
            config.get("tables") or {},
            config.get("figures") or {},
            interval,
        )

    def whole_experiment(self, name: str) -> Experiment:
        """An experiment with what it sets for its whole grid."""
        name = self.known_choice("experiment", name)
        plain, own = self._compose(None, ()), self._compose(name, ())
        settings = {
            key: value
            for key, value in own.items()
            if key not in _EXPERIMENT_KEYS and plain.get(key) != value
        }
        return replace(self.experiment(name), settings=settings)

    def known_choice(self, group: str, value: str) -> str:
        """Check a group's choice, ignoring its case (MB, 1B, LP, AG)."""
        known = self._names(group)
        if (name := _spelling(value.strip("'\""), known)) is not None:
            return name
        raise InputError(group, value, f"must be one of {', '.join(known)}")

    def _names(self, group: str) -> list[str]:
        """The choices of a group, in conf/ and wherever else is searched."""
        names = self.kept.names
        if group not in names:
            options = self.loader.get_group_options(
                group, config_name="config", overrides=self.search
            )
            names[group] = sorted(options)
        return names[group]

    def parse(self, texts: Sequence[str]) -> list[Any]:
        """Overrides as Hydra reads them; the members of a grid have most of theirs in common."""
        for text in texts:
            if text not in self.parsed:
                self.parsed[text] = _parsed(text, self.loader)
        return [self.parsed[text] for text in texts]


def _parsed(text: str, loader: Any = None) -> Any:
    """An override as Hydra reads it."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    key, _, value = text.partition("=")
    parser = OverridesParser.create(config_loader=loader)
    try:
        (override,) = parser.parse_overrides([quoted(key, value) if value else text])
    except HydraException as error:
        reason = one_line(error).split(" See https")[0]
        raise InputError(key, value, f"not understood: {reason}") from None
    if override.is_interval_sweep():
        allowed = "has no steps, and a grid needs them: use range(start,stop,step) or a,b,c"
        raise InputError(key, value, allowed)
    return override


def _settings(config: dict[str, Any], values: Sequence[tuple[Any, Any]]) -> Settings:
    """Put values over a composed config, as Hydra would."""
    config = dict(config)  # what is inside is shared by many runs, and copied where it changes
    for override, value in values:
        _update(config, override, value)
    if "${" in str(config):
        config = _resolved(config)
    wanted = {key: value for key, value in config.items() if key not in _EXPERIMENT_KEYS}
    for key, value in wanted.items():
        if key not in _KNOWN:
            raise _unknown_setting(key, value)
        wanted[key] = _budget(key, value)
    for key in sorted(_KNOWN - wanted.keys()):
        # Who takes a budget out may think that nothing is perturbed: no default in silence.
        allowed = f"every run has this setting: give it a value instead of taking it out (~{key})"
        raise InputError(key, None, allowed)
    return Settings(**wanted)


def _with_split(settings: Settings, split: Mapping[str, Any], keys: Mapping[str, str]) -> Settings:
    """Settings with x_eps = total_eps * x_share and y_eps = total_eps - x_eps."""
    for name, other in ((_TOTAL, _SHARE), (_SHARE, _TOTAL)):
        if name not in split:
            raise InputError(name, None, f"must be set beside {other}")
    total, share = split[_TOTAL], split[_SHARE]
    if not (_is_number(total) and 0 < total < math.inf):
        raise InputError(_TOTAL, total, "must be a positive finite number")
    if not (_is_number(share) and 0 <= share < 1):
        raise InputError(_SHARE, share, "must be a number in [0, 1)")
    own = ("y_eps", "x_eps") if share else ("y_eps",)
    for name in (name for name in own if name in keys):
        raise InputError(name, keys[name], f"is set by {_TOTAL} and {_SHARE}: leave it out")
    if share:
        return replace(settings, x_eps=total * share, y_eps=total - total * share)
    learner, feature = settings.component("learner"), settings.component("feature")
    if learner.needs_features and feature.reads_features:  # type: ignore[attr-defined]
        allowed = "spends nothing on features: needs a feature that reads none, such as blank"
        raise InputError(_SHARE, share, allowed)
    return replace(settings, y_eps=total)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_shown(setting: str, shown: Any) -> None:
    """Tables and figures by name; a name becomes a file's."""
    if not isinstance(shown, dict) or not all(isinstance(one, dict) for one in shown.values()):
        raise InputError(setting, shown, "must map names to what they show")
    for name in shown:
        if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", str(name)):
            raise InputError(setting, name, "names a file: letters, digits and . _ - only")


def _check_axes(experiment: Experiment, given: Set[str]) -> None:
    """Tables and figures may use the keys of the grid and of the command line."""
    keys = {key for member in experiment.grid for key in member if key != "control"}
    known = (keys | given | {"dataset"}) - {*_FOLDERS}
    metrics = {*DEFAULT_METRICS, *OTHER_METRICS, *(experiment.settings.get("metrics") or {})}
    metrics |= {key.partition(".")[2] for key in given if key.startswith("metrics.")}
    for name, options in experiment.tables.items():
        table = parse_table(name, options)
        check_keys(table, known)
        check_metric(table, metrics)
    for name, options in experiment.figures.items():
        for strip in parse_figure(name, options):
            check_keys(strip, known)
            check_metric(strip, metrics)
            check_map(strip, experiment.tables)


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


def quoted(key: str, value: str) -> str:
    """An override in Hydra's grammar, which has no folders like ~/ü and takes lists for grids."""
    if key == "save" and "," in value and not value.startswith("["):
        return f"{key}=[{value}]"
    if key in _FOLDERS and value != "null" and not _AS_IT_IS.search(value):
        plain = re.sub(r"\\([ ()\[\]{}:=])", r"\1", value)  # Hydra escapes the values of a grid
        escaped = str(Path(plain).expanduser() if plain else plain).replace("'", r"\'")
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
            inner = {}
        if not isinstance(inner, dict):
            raise InputError(
                override.key_or_group, value, f"unknown setting: {name} has no options"
            )
        node[name] = inner = dict(inner)
        node = inner
    adds = override.is_add() or override.is_force_add()
    if override.is_delete() and last in node:
        del node[last]  # the default in code applies
        return
    if last not in node and not adds:
        known = ", ".join(sorted(name for name in node if name not in _EXPERIMENT_KEYS)) or "none"
        hint = f" (+{override.key_or_group}=... adds an option that the YAML does not list)"
        allowed = f"unknown setting; known here: {known}{hint if parents else ''}"
        raise InputError(override.key_or_group, value, allowed)
    node[last] = value
