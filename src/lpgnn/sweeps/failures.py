"""What went wrong in a run, in one line that names the component, and in a form that travels.

An exception of a plug-in may not survive pickling, may have a ``__str__`` that fails, or may be no
``Exception`` at all.  What leaves a worker is made of text.
"""

import inspect
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from lpgnn.components import Component, import_target
from lpgnn.config import Configuration
from lpgnn.errors import InputError, RunError, error_line, one_line


@dataclass
class Failure:
    """Runs of a configuration that could not be computed, or not stored whole."""

    configuration: Configuration
    error: InputError | RunError
    details: str = field(default="", repr=False)  # the stack trace, where there is one
    repeats: tuple[int, ...] = ()


def explain(
    error: BaseException, components: Iterable[Component | None] = ()
) -> InputError | RunError:
    """An error as one line.  If a user's component raised it, the line names the component."""
    if isinstance(error, InputError):
        return InputError(error.setting, one_line(error.value), error.allowed)
    text = error_line(error)
    files = {str(_file_of(one)): one for one in components if one is not None and one.source}
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        component = files.get(frame.filename)
        if component is not None:
            place = f"{Path(frame.filename).name}, line {frame.lineno}"
            return RunError(f"{component.kind} {component.target} failed: {text} ({place})")
    return RunError(text)


def stack_trace(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except Exception:  # a __str__ that fails
        return "".join(traceback.format_tb(error.__traceback__))


def describe_error(error: BaseException) -> str:
    """One line of an error."""
    return str(error) if isinstance(error, InputError | RunError) else error_line(error)


def _file_of(component: Component) -> str | None:
    """The file of a component's class, or of the function behind it."""
    try:
        found = import_target(component.kind, component.target)
        return inspect.getsourcefile(inspect.unwrap(found))
    except (InputError, TypeError, OSError):
        return None
