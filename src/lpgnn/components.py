"""Components: the exchangeable parts of a run, named in YAML by ``_target_``.

A component is a frozen dataclass whose fields are its options.  Its defaults live in code, and its
identity is its class with every field and, where the class comes from outside the package, a
digest of its module's source: change any of them and earlier results no longer count.
"""

import dataclasses
import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar, get_args

from lpgnn.errors import InputError

T = TypeVar("T")


def before(value: Any) -> dict[str, Any]:
    """Metadata for the field of an option that is added after rows have been computed.

    ``value`` is that under which the component does what it did without the option.  It leaves no
    trace in the identity, so that earlier rows stay valid, whatever the default.
    """
    return {"before": value}


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
        """Every option with its value, in the order of the fields; 1 for a float is 1.0."""
        values = {}
        for f in dataclasses.fields(self):
            if f.name not in self.bound_fields:
                value = getattr(self, f.name)
                whole = isinstance(value, int) and not isinstance(value, bool)
                values[f.name] = float(value) if whole and _is_float(f.type) else value
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
    """A digest of the modules that define a class with its bases, or a function.

    Empty for lpgnn's own; what a module imports from elsewhere is not looked at.
    """
    digests = []
    for part in thing.__mro__ if isinstance(thing, type) else [thing]:
        module = inspect.getmodule(part)
        top = "" if module is None else module.__name__.split(".")[0]
        if module is not None and top != "lpgnn" and top not in sys.stdlib_module_names:
            digests.append(_file_digest(getattr(module, "__file__", None) or "", part))
    distinct = sorted(set(digests))
    if len(distinct) <= 1:
        return "".join(distinct)
    return hashlib.sha256(" ".join(distinct).encode()).hexdigest()[:12]


@lru_cache(maxsize=256)
def _file_digest(path: str, thing: Any) -> str:
    # A class typed into a notebook has no file: its own source is all there is.
    try:
        content = Path(path).read_bytes() if path else inspect.getsource(thing).encode()
    except (OSError, TypeError):
        content = repr(thing).encode()
    return hashlib.sha256(content).hexdigest()[:12]


def import_target(setting: str, target: Any) -> Any:
    """The class or function behind an import path ``module.name``."""
    module, _, name = str(target).rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        allowed = f"must be an importable module.name ({reason})"
        raise InputError(setting, target, allowed) from None
    if not callable(found):
        raise InputError(setting, target, "must be an importable class or function")
    return found


def construct(setting: str, build: Callable[..., T], options: Mapping[str, Any]) -> T:
    """Call a constructor with options from a config; what it does not accept is bad input."""
    try:
        return build(**options)
    except InputError as error:
        if "." in error.setting or error.setting == setting:
            raise
        raise InputError(f"{setting}.{error.setting}", error.value, error.allowed) from None
    except (TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError(setting, dict(options) or "{}", f"not accepted: {reason}") from None
