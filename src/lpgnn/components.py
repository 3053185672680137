"""Components: the exchangeable parts of a run, named in YAML by ``_target_``.

A component is a frozen dataclass whose fields are its options.  Its defaults live in code, and its
identity is its class with every field and, where the class comes from outside the package, a
digest of its module's source: change any of them and earlier results no longer count.
"""

import ast
import contextlib
import dataclasses
import functools
import hashlib
import importlib
import inspect
import math
import os
import re
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, ClassVar, Literal, NoReturn, Self, TypeVar, get_args

from lpgnn.errors import InputError, error_line, one_line

T = TypeVar("T")


def before(value: Any) -> dict[str, Any]:
    """Metadata for the field of an option that is added after rows have been computed.

    ``value`` is that under which the component does what it did without the option.  It leaves no
    trace in the identity, so that earlier rows stay valid, whatever the default.
    """
    return {"before": value}


def check_number(
    option: str, value: Any, low: float, high: float = math.inf, *, above: bool = False
) -> None:
    """Refuse an option that is not a finite number from ``low`` to ``high``; above: not ``low``."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # NaN fails the comparisons, as it should.
    if not (
        number and math.isfinite(value) and low <= value <= high and not (above and value == low)
    ):
        least = f"above {low:g}" if above else f">= {low:g}"
        most = "" if math.isinf(high) else f" and <= {high:g}"
        raise InputError(option, value, f"must be a number {least}{most}")


def check_count(option: str, value: Any, least: int = 0) -> None:
    """Refuse an option that is not a whole number of at least ``least``."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(option, value, f"must be a whole number >= {least}")


class _Unbound(float):
    """NaN that equals itself, so that components do: Python 3.13 compares field by field."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Unbound)

    def __ne__(self, other: object) -> bool:
        return not isinstance(other, _Unbound)

    def __hash__(self) -> int:
        return hash(_Unbound)


# A budget that no run has bound yet.
UNBOUND = _Unbound("nan")


@dataclass(frozen=True)
class Component:
    """Base of everything that a user may exchange.

    ``kind`` is the config group.  ``open_fields`` maps an option that may be left open (None) to
    the name under which a table of hyper-parameters keeps its value.  ``bound_fields`` are filled
    in by the run (a budget, a size) and are no options.
    """

    kind: ClassVar[str]
    name: ClassVar[str] = ""
    open_fields: ClassVar[Mapping[str, str]] = {}
    bound_fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" not in cls.__dict__:
            cls.name = cls.__name__

    def options(self) -> dict[str, Any]:
        """Every option with its value, in the order of the fields; 1 for a float is 1.0.

        The field of an option that is a Python keyword ends in an underscore: class_.
        """
        values = {}
        for f in dataclasses.fields(self):
            if f.name not in self.bound_fields:
                value = getattr(self, f.name)
                whole = isinstance(value, int) and not isinstance(value, bool)
                name = f.name.removesuffix("_")
                values[name] = float(value) if whole and _is_float(f.type) else value
        return values

    @classmethod
    def earlier_options(cls) -> dict[str, Any]:
        """What options that were added later are in rows without them."""
        fields = dataclasses.fields(cls)
        return {f.name: f.metadata["before"] for f in fields if "before" in f.metadata}

    @property
    def target(self) -> str:
        """The import path, as YAML has it."""
        return f"{type(self).__module__}.{type(self).__qualname__}"

    @property
    def source(self) -> str:
        """A digest of the source behind a component from outside the package, else ''."""
        return source_digest(type(self))

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the component's behaviour, as plain values."""
        earlier = self.earlier_options()
        options = {n: v for n, v in self.options().items() if n not in earlier or v != earlier[n]}
        own: dict[str, Any] = {"name": self.name, "options": options}
        if self.source:
            own |= {"target": self.target, "source": self.source}
        return own

    def replace(self, **changes: Any) -> Self:
        return dataclasses.replace(self, **changes)


def _is_float(annotation: Any) -> bool:
    """Whether an option is declared as ``float`` or ``float | None``."""
    parts = {str(getattr(part, "__name__", part)) for part in get_args(annotation) or [annotation]}
    return parts - {"NoneType"} in ({"float"}, {"float | None"})


def source_digest(thing: Any) -> str:
    """A digest of the source behind a class with its bases, or behind a function.

    It covers the modules that define them and, of the user's own, those that they import; empty
    for lpgnn's own.  A class typed into a notebook has no file: its code stands for it.
    """
    if isinstance(thing, functools.partial):
        return _joined([source_digest(thing.func), _hash(repr((thing.args, thing.keywords)))])
    if isinstance(thing, type) and _is_own_class(thing):
        return ""
    digests = []
    for part in thing.__mro__ if isinstance(thing, type) else [thing]:
        module = inspect.getmodule(part)
        if module is None or _is_own(module) or _is_stdlib(module):
            continue
        if getattr(module, "__file__", None) is None:
            digests.append(_code_digest(part))
        else:
            digests += [_file_digest(path) for path in _user_files(module)]
    return _joined(digests)


@functools.lru_cache(maxsize=512)
def _is_own_class(thing: type) -> bool:
    """Whether a class and its bases are the package's or Python's; asked for every run."""
    modules = (inspect.getmodule(part) for part in thing.__mro__)
    return all(module is None or _is_own(module) or _is_stdlib(module) for module in modules)


def target_digest(target: str) -> str:
    """The same for an import path, which may lead through another module."""
    found = import_target("_target_", target)
    module = sys.modules.get(target.rpartition(".")[0])
    digests = [source_digest(found)]
    if module is not None and not _is_own(module) and not _is_stdlib(module):
        digests += [_file_digest(path) for path in _user_files(module)]
    return _joined(digests)


def _joined(digests: Iterable[str]) -> str:
    distinct = sorted(set(digests) - {""})
    return distinct[0] if len(distinct) == 1 else _hash(" ".join(distinct)) if distinct else ""


def _hash(content: str | bytes) -> str:
    data = content.encode() if isinstance(content, str) else content
    return hashlib.sha256(data).hexdigest()[:12]


def _is_own(module: ModuleType) -> bool:
    return module.__name__.split(".")[0] == "lpgnn"


def _is_stdlib(module: ModuleType) -> bool:
    """By where it lies, not by its name, which a user's file may share."""
    path = getattr(module, "__file__", None)
    if path is None:
        return module.__name__ in sys.builtin_module_names
    return _origin(path) == "stdlib"


@functools.lru_cache(maxsize=4096)  # asked for every component of thousands of configurations
def _origin(path: str) -> Literal["stdlib", "installed", "user"]:
    """Where a module's file comes from.

    Libraries lie in more places than the interpreter's own: a home folder, another interpreter's
    folder that a .pth file names, a system's or a cluster's.  All of them are named alike.
    """
    parents = Path(path).resolve().parents
    if any(folder.name in _LIBRARIES or folder in _INSTALLED for folder in parents):
        return "installed"
    return "stdlib" if any(folder in _STDLIB for folder in parents) else "user"


_STDLIB = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")}
_INSTALLED = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
_LIBRARIES = ("site-packages", "dist-packages")


def _user_files(module: ModuleType) -> list[str]:
    """A module's file, and those of the user's own modules that it imports, directly or not."""
    waiting, found = [module], dict[str, None]()
    while waiting:
        one = waiting.pop()
        path = getattr(one, "__file__", None)
        if path is None or path in found or not Path(path).is_file():
            continue
        found[path] = None
        for name in _imported_names(path, Path(path).stat().st_mtime_ns):
            other = sys.modules.get(name) or sys.modules.get(f"{one.__package__}.{name}")
            if other is not None and not _is_own(other):
                file = getattr(other, "__file__", None)
                if file is not None and _origin(file) == "user":
                    waiting.append(other)
    return list(found)


@functools.lru_cache(maxsize=256)
def _imported_names(path: str, changed: int) -> tuple[str, ...]:
    """The modules that a file imports; changed: when it was last written."""
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ()
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            names += [base, *(f"{base}.{alias.name}".lstrip(".") for alias in node.names)]
    return tuple(names)


def _file_digest(path: str) -> str:
    return _cached_digest(path, Path(path).stat().st_mtime_ns)


@functools.lru_cache(maxsize=256)
def _cached_digest(path: str, changed: int) -> str:
    return _hash(Path(path).read_bytes())


def _code_digest(thing: Any) -> str:
    """A digest of the code of a function, or of a class's methods and values."""
    if not isinstance(thing, type):
        return _hash(repr(_code_parts(thing)))
    members = {name: _code_parts(value) for name, value in vars(thing).items()}
    hidden = ("__dict__", "__weakref__", "__doc__", "__module__", "__firstlineno__")
    return _hash(repr(sorted((n, repr(v)) for n, v in members.items() if n not in hidden)))


def _code_parts(value: Any) -> Any:
    value = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
    code = getattr(value, "__code__", value)
    if isinstance(code, CodeType):
        constants = tuple(_code_parts(constant) for constant in code.co_consts)
        return code.co_code, code.co_names, constants
    # Anything else by its value; addresses in memory say nothing.
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def import_target(setting: str, target: Any) -> Any:
    """The class or function behind an import path ``module.name``."""
    module, _, name = str(target).rpartition(".")
    try:
        with exits_raised():
            found = getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as error:  # a module may raise anything while it is imported
        expected = isinstance(error, ImportError | AttributeError | TypeError | ValueError)
        reason = one_line(error) if expected else error_line(error)
        allowed = f"must be an importable module.name ({reason})"
        raise InputError(setting, target, allowed) from None
    if not callable(found):
        raise InputError(setting, target, "must be an importable class or function")
    return found


def construct(setting: str, build: Callable[..., T], options: Mapping[str, Any]) -> T:
    """Call a constructor with options from a config; what it does not accept is bad input."""
    try:
        with exits_raised():
            return build(**options)
    except InputError as error:
        if "." in error.setting or error.setting == setting:
            raise
        raise InputError(f"{setting}.{error.setting}", error.value, error.allowed) from None
    except (TypeError, ValueError, SystemExit) as error:
        reason = one_line(error)
        raise InputError(setting, dict(options) or "{}", f"not accepted: {reason}") from None


@contextlib.contextmanager
def exits_raised() -> Iterator[None]:
    """While inside, ``os._exit`` in this thread is an error: it would end us without a word."""
    leave, place, inside = os._exit, (os.getpid(), threading.get_ident()), True

    def refuse(status: int) -> NoReturn:
        if inside and (os.getpid(), threading.get_ident()) == place:
            raise SystemExit(f"os._exit({status}) was called")
        leave(status)  # a child of ours, or somebody who has kept this function

    os._exit = refuse
    try:
        yield
    finally:
        inside = False
        os._exit = leave
