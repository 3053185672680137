"""Commands as Hydra applications: what happens between the command line and Hydra.

A command's module has a task function for one run and ``sweep`` for many, which the sweeper plug-in
calls.  Hydra does the rest: composition, --cfg, --info, launchers, folders, shell completion.
"""

import contextlib
import itertools
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lpgnn.composition import (
    GROUPS,
    SPLIT_KEYS,
    check_names,
    check_words,
    choice_names,
    expand,
    known_spelling,
    quoted,
)
from lpgnn.errors import FULL_ERROR, SHORT_ERROR, InputError, full_errors, one_line, unknown_flag
from lpgnn.hyperparameters import conf_dir
from lpgnn.rows import holds_records

_HELP = """\
{usage}

--cfg job shows the configuration with
the options of all components, --info what it was made of, --hydra-help Hydra's flags,
--shell-completion how to complete overrides; --config-dir adds a folder of your own, laid out like
conf/.
Exit codes: 0 done, 1 a configuration failed, 2 bad input, 130 interrupted, 143 terminated.

Groups (group=choice):
{groups}

Settings (key=value), as conf/config.yaml has them:
{settings}"""
_USAGES = {
    "run": """\
usage: lpgnn run [-m] [--dry-run] [--workers N] [--config-dir DIR] KEY=VALUE ...

Train graph neural networks on locally private data: one run, or with -m or an experiment a grid.

  lpgnn run dataset=cora x_eps=0.1              one run: ten repeats, mean and 95 % CI
  lpgnn run -m dataset=cora,pubmed x_eps=0.1,1  a grid, on all cores
  lpgnn run experiment=mechanisms --dry-run     what is done, what is left, how long it takes

hydra/launcher=submitit_slurm computes a grid on a cluster.""",
    "tune": """\
usage: lpgnn tune [--quick] [--reported] [--table FILE] [--dry-run] [--workers N] KEY=VALUE ...

Search hyper-parameters by private validation loss.  Comma-separated values narrow the search,
--quick does it for one pair of budgets, --reported on the collection that is reported: repeat 0 of
seed=N, which the table then serves alone.  --table names the file that the values are written to.

  lpgnn tune dataset=cora x_eps=1 y_eps=1 --quick""",
}
# Flags of our own, and the settings that they stand for, as -m stands for hydra.mode=MULTIRUN.
_FLAGS = {"--dry-run": "dry_run=true", "--quick": "+quick=true", "--reported": "+reported=true"}
_FLAGS_WITH_VALUE = {"--workers": "workers", "--table": "+table", "--entries": "+entries"}
# Those of our flags that not every command takes.
TUNE_FLAGS = ("--quick", "--reported", "--table")
BENCHMARK_FLAGS = ("--entries",)
_FOLDER = ("-cd", "--config-dir")
_HELPS = ("-h", "--help")
_MULTIRUN = ("-m", "--multirun")
_COMPLETES = ("-sc", "--shell-completion")
# Hydra's other commands: nothing is run, and it takes one of them at a time.
_ASKS = (
    *("--hydra-help", "-c", "--cfg", "-i", "--info", *_COMPLETES),
    *("--version", "-r", "--run", "--experimental-rerun"),
)
_TAKE_VALUES = (
    *("-c", "--cfg", "-i", "--info", "-p", "--package", "-cn", "--config-name"),
    *("-cp", "--config-path", "--experimental-rerun"),
)
_NEED_VALUES = (*_TAKE_VALUES, *_FLAGS_WITH_VALUE, *_FOLDER)
_KNOWN_FLAGS = (
    *("--dry-run", "--workers", "--resolve"),
    *(*_FOLDER, *_HELPS, *_MULTIRUN, *_ASKS, *_TAKE_VALUES),
)
_FUNCTION = re.compile(r"[a-z_]+\(")
_NAMES = re.compile(r"[\w-]+(,[\w-]+)*")
# After a flag that needs a value: the next flag or setting.
_NO_VALUE = re.compile(r"--|[a-z_.]+=")
# Launchers, and the extras that bring them.
_LAUNCHERS = {
    **{"basic": "", "joblib": "joblib", "ray": "ray"},
    **dict.fromkeys(("slurm_gpu", "submitit_local", "submitit_slurm"), "slurm"),
}


def run_application(
    task: Callable[[Any], None],
    arguments: Sequence[str] | None,
    *,
    is_sweep: bool = False,
    flags: Sequence[str] = (),
) -> int:
    """Run a command under Hydra; bad input comes out as one ``InputError``.

    is_sweep: whether the command takes grids without -m
    flags: those of our own that it takes beside the usual ones
    """
    given = sys.argv[1:] if arguments is None else arguments
    _check_flags(given, (*_KNOWN_FLAGS, *flags))
    words, folders = _own_flags(given)
    if any(word in _HELPS for word in words):
        print(_help(task.__module__.rpartition(".")[2], folders))
        return 0
    asks = any(_flag(word) in _ASKS for word in words)
    words = [_spelt(word, folders) for word in words]
    if not any(_flag(word) in _COMPLETES for word in words):  # install=bash is no setting
        check_words(words)
    check_names(folders, [word for word in words if _is_hydras(word)])
    # Experiments have grids, and a total budget is shared out by the sweep.
    of_sweeps = ("experiment", *SPLIT_KEYS)
    many = is_sweep or any(word in _MULTIRUN or _key(word) in of_sweeps for word in words)
    if many and not asks:
        words = ["--multirun", *(_open(word) for word in words if word not in _MULTIRUN)]
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        with _one_thread(), _command_line([*_config_dirs(folders), *words]):
            from hydra import main

            main(version_base="1.3", config_path=str(conf_dir().resolve()), config_name="config")(
                task
            )()
    except Exception as error:
        named = isinstance(
            error, HydraException | OmegaConfBaseException | YAMLError | UnicodeError
        )
        # mechanism=null, hydra.run.dir=/proc/x; who has gone was reading what --cfg prints
        unnamed = isinstance(error, OSError | ValueError) and _is_of_hydra(error)
        unnamed &= not isinstance(error, BrokenPipeError)
        if full_errors() or not (named or unnamed):
            raise
        raise _explained(error, words, folders, many) from None
    return 0


def keep_sweep(config: Any) -> None:
    """Write what a sweep is asked for to a hydra.sweep.dir of the user's own, as Hydra's would.

    Ours goes when the sweep is over: nothing is written there that nobody asked for.
    """
    folder = Path(config.hydra.sweep.dir)
    if config.dry_run or holds_records(folder, Path(config.results_dir)):
        return
    from omegaconf import OmegaConf

    try:
        folder.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(config, folder / "multirun.yaml")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(
            "hydra.sweep.dir", folder, f"must be a writable folder ({reason})"
        ) from None


_OURS = ("lpgnn", "hydra_plugins", "__main__")


def _is_of_hydra(error: Exception) -> bool:
    """Whether nothing of ours was running but what starts Hydra."""
    frames = traceback.walk_tb(error.__traceback__)
    names = {str(frame.f_globals.get("__name__")) for frame, _ in frames} - {__name__}
    return not any(name.split(".")[0] in _OURS for name in names)


def _help(verb: str, folders: Sequence[Path]) -> str:
    """What --help prints; written here, because Hydra takes most of a second to compose its own."""
    choices = {group: choice_names(group, folders) for group in GROUPS}
    choices["hydra/launcher"] = list(_LAUNCHERS)
    groups = "\n".join(f"{group}: {', '.join(names)}" for group, names in choices.items())
    settings = (conf_dir() / "config.yaml").read_text(encoding="utf-8").strip()
    return _HELP.format(usage=_USAGES[verb], groups=groups, settings=settings)


def _flag(word: str) -> str:
    """The flag that a word is or begins with; '' if it is none."""
    return word.partition("=")[0] if word.startswith("-") else ""


def _check_flags(words: Sequence[str], known: Sequence[str]) -> None:
    """Refuse flags in one line: Hydra would print all that it knows."""
    given = [
        word
        for word, before in zip(words, ("", *words), strict=False)
        if _flag(word) and before not in _NEED_VALUES
    ]
    for word in given:
        flag, equals, value = word.partition("=")
        if flag not in known:
            raise unknown_flag(flag, known)
        if equals and flag not in _NEED_VALUES:
            raise InputError(flag, value, f"takes no value: must be {flag} alone")
    flags = [_flag(word) for word in given]
    first, *others = [flag for flag in flags if flag in (*_MULTIRUN, *_ASKS)] or [""]
    for flag in others:
        if flag != first:
            raise InputError(flag, ..., f"does not go with {first}: one of them at a time")
    if first in _COMPLETES and "query" in map(_key, words) and "COMP_LINE" not in os.environ:
        allowed = "must be in the environment: a shell that completes sets it"
        raise InputError("COMP_LINE", ..., allowed)


def _own_flags(arguments: Sequence[str]) -> tuple[list[str], list[Path]]:
    """The command line with our flags as settings, and the folders of --config-dir."""
    words: list[str] = []
    folders: list[Path] = []
    waiting = list(arguments)
    while waiting:
        word = waiting.pop(0)
        flag, equals, value = word.partition("=")
        if word in _FLAGS:
            words.append(_FLAGS[word])
        elif flag in (*_FLAGS_WITH_VALUE, *_FOLDER):
            if not equals:
                if not waiting or _NO_VALUE.match(waiting[0]):
                    raise InputError(flag, ..., "needs a value")
                value = waiting.pop(0)
            if flag in _FLAGS_WITH_VALUE:
                if flag == "--entries" and value and not _NAMES.fullmatch(value):
                    # Hydra would not read them, and blame another word.
                    raise InputError(flag, value, "must be names with a comma between two of them")
                if any(word.startswith(f"{_FLAGS_WITH_VALUE[flag]}=") for word in words):
                    raise InputError(flag, value, "is set already: once is enough")
                words.append(f"{_FLAGS_WITH_VALUE[flag]}={value}")
            else:
                folders.append(Path(value).expanduser().resolve())
        else:
            words.append(word)
    for folder in folders:
        if not folder.is_dir():
            raise InputError("--config-dir", folder, "must be a folder with YAML files")
    return words, list(dict.fromkeys(folders))


def _config_dirs(folders: Sequence[Path]) -> list[str]:
    """Hydra's flag takes one folder; its search path takes more."""
    if not folders:
        return []
    more = ",".join(f"file://{folder}" for folder in folders[1:])
    return ["--config-dir", str(folders[0]), *([f"hydra.searchpath=[{more}]"] if more else [])]


def _key(word: str) -> str:
    return "" if word.startswith("-") else word.partition("=")[0].lstrip("+~")


def _spelt(word: str, folders: Sequence[Path]) -> str:
    """An override in Hydra's grammar; names of choices in any case (MB, 1B, LP, AG)."""
    name, equals, value = word.partition("=")
    if word.startswith("-") or not equals:
        return word
    group = name.lstrip("+")
    if group in GROUPS and re.fullmatch(r"[\w,-]+", value):
        value = ",".join(known_spelling(group, one, folders) for one in value.split(","))
    if group == "experiment":
        name = group  # it is in the defaults list
    if value.startswith("{") and name == group:
        name = f"++{name}"  # a mapping may have any keys
    return quoted(name, value)


def _open(word: str) -> str:
    """An option of a component, left to the sweeper: the component may be another in each run.

    Hydra applies what is no grid to the defaults first, which may not have the option, and never
    have a total budget.
    """
    name, equals, value = word.partition("=")
    group, dot, _ = name.lstrip("+").partition(".")
    is_open = group in SPLIT_KEYS or (dot and group in GROUPS)
    if not (equals and value and is_open) or _FUNCTION.match(value):
        return word
    return f"{name}=choice({value})"


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """While inside, libraries that are loaded, here and in jobs, start no threads unless asked to.

    A worker trains on one core, and only a process without threads can fork its workers.
    """
    name = "OMP_NUM_THREADS"  # OpenBLAS obeys it, too
    is_ours = name not in os.environ
    os.environ.setdefault(name, "1")
    try:
        yield
    finally:
        if is_ours:
            os.environ.pop(name, None)


@contextlib.contextmanager
def _command_line(words: Sequence[str]) -> Iterator[None]:
    """Hydra reads sys.argv, and prints errors itself unless it is asked for all of them."""
    arguments, before = sys.argv, os.environ.get(FULL_ERROR)
    sys.argv = ["lpgnn", *words]
    if not full_errors():
        os.environ |= {FULL_ERROR: "1", SHORT_ERROR: "1"}
    try:
        yield
    finally:
        sys.argv = arguments
        if os.environ.pop(SHORT_ERROR, None):
            del os.environ[FULL_ERROR]
            os.environ |= {} if before is None else {FULL_ERROR: before}


def _explained(
    error: Exception, words: Sequence[str], folders: Sequence[Path], many: bool
) -> InputError:
    """Bad input in our words, which name the setting; else in Hydra's."""
    hidden = ("-", "+table=", "+quick=", "+reported=", "+entries=")
    given = [word for word, before in zip(words, ("", *words), strict=False) if not _takes(before)]
    overrides = [w for w in given if not w.startswith(hidden) and not _is_hydras(w)]
    try:
        hydras = [word for word in words if _is_hydras(word)]
        expand(overrides, multirun=many, config_dirs=folders, hydra_overrides=hydras)
    except InputError as better:
        return better
    reason = one_line(error).split(" See https")[0]
    named = [word for word in (*hydras, *overrides) if _key(word) and f"'{_key(word)}" in reason]
    asked = ["=".join(pair) for pair in itertools.pairwise(words) if _takes(pair[0])]
    likely = named or hydras or overrides or asked or ["overrides="]
    setting, _, value = likely[0].partition("=")
    if setting.startswith("~") and "Could not delete" in reason:  # Hydra takes null for nothing
        return InputError(_key(setting), None, f"is null already: leave {setting} out")
    if re.search("Could not (find|load) 'hydra/launcher/", reason):
        if value in _LAUNCHERS:
            extra = f"pip install 'lpgnn[{_LAUNCHERS[value]}]'"
            return InputError(setting, value, f"its plug-in is not installed: {extra}")
        brought = ", ".join(sorted({f"lpgnn[{one}]" for one in _LAUNCHERS.values() if one}))
        allowed = f"must be one of {', '.join(_LAUNCHERS)} (extras: {brought})"
        return InputError(setting, value, allowed)
    return InputError(setting.lstrip("+"), value, f"not understood: {reason}")


def _takes(word: str) -> bool:
    """Whether the next word is the value of this flag of Hydra's."""
    return word in _TAKE_VALUES


def _is_hydras(word: str) -> bool:
    return _key(word).startswith(("hydra.", "hydra/"))
