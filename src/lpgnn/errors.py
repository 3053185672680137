"""Errors that end a program in one line, and how entry points start and end."""

import codecs
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from types import FrameType

# Hydra shows whole stack traces if this is 1; entry points do the same, unless they have set it
# themselves to get at Hydra's errors, and then they set the other, too.
FULL_ERROR, SHORT_ERROR = "HYDRA_FULL_ERROR", "LPGNN_SHORT_ERROR"

_RESUME = "finished runs are kept; rerun to resume"
# The exit code of a process that a signal has ended, as a shell gives it.
_ENDED_BY_SIGNAL = 128


class InputError(ValueError):
    """Bad input, reported in one line: the setting, its value, and what is allowed.

    value: ``...`` for a word that is no setting, such as a flag, and has none.  Entry points
    print the message without a stack trace and exit with code 2.
    """

    def __init__(self, setting: str, value: object, allowed: str) -> None:
        self.setting, self.value, self.allowed = setting, value, allowed
        text = "null" if value is None else str(value)  # as YAML and overrides have it
        shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
        given = setting if value is ... else f"{setting}={shown}"
        super().__init__(f"{given}: {allowed}")

    def __reduce__(self) -> tuple[type["InputError"], tuple[str, object, str]]:
        return InputError, (self.setting, self.value, self.allowed)


def one_line(value: object) -> str:
    """A value's text in one line; a class of a user's own may have a ``__str__`` that fails."""
    try:
        return " ".join(str(value).split())
    except Exception:
        return f"a {type(value).__name__} without text"


def error_line(error: BaseException) -> str:
    """An error's class and text in one line."""
    if isinstance(error, SystemExit) and not isinstance(error.code, str):
        return f"sys.exit({one_line(error.code)}) was called"
    text = one_line(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def unknown_flag(flag: str, known: Iterable[str]) -> InputError:
    """Bad input that names the flag that was meant, if one is near, and all that there are."""
    from difflib import get_close_matches

    flags = sorted(set(known))
    names = {known.strip("-"): known for known in flags if known.startswith("--")}
    near = get_close_matches(flag.strip("-"), names, n=1)
    meant = f" (did you mean {names[near[0]]}?)" if near else ""
    return InputError(flag, ..., f"unknown flag{meant}; known: {', '.join(flags)}")


class RunError(Exception):
    """One line about a run that could not be computed; entry points exit with code 1."""


class StorageError(Exception):
    """Results cannot be written: no run's fault, and no reason to compute on.

    Entry points print the message without a stack trace and exit with code 1.
    """

    def __init__(self, folder: object, reason: str) -> None:
        self.folder, self.reason = str(folder), reason
        super().__init__(
            f"results_dir={folder}: cannot be written ({reason}); "
            "what is stored is kept, rerun to resume"
        )

    def __reduce__(self) -> tuple[type["StorageError"], tuple[str, str]]:
        return StorageError, (self.folder, self.reason)

    @classmethod
    def of(cls, folder: object, error: OSError) -> "StorageError":
        return cls(folder, error.strerror or type(error).__name__)


class Ended(BaseException):
    """Ends an entry point with a code, past everybody who handles errors on the way."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Terminated(BaseException):
    """A request to end, from the system or a cluster: SIGTERM or SIGHUP."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def exit_code(work: Callable[[], int]) -> int:
    """Do an entry point's work; bad input, signals and closed pipes become one line and a code.

    Codes: 0 done, 1 something failed, 2 bad input, 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP.
    """
    _open_standard_streams()
    try:
        with terminable():
            code = work()
        sys.stdout.flush()
        return code
    except InputError as error:
        return _refuse(error)
    except (RunError, StorageError) as error:
        _say(f"error: {error}")
        return 1
    except Ended as end:
        if isinstance(end.__cause__, InputError):
            return _refuse(end.__cause__)
        if isinstance(end.__cause__, BrokenPipeError):
            _leave_standard_output()
        elif end.__cause__ is not None:
            _say(f"error: {end.__cause__}")
        return end.code
    except KeyboardInterrupt:
        _say(f"interrupted; {_RESUME}")
        return _ENDED_BY_SIGNAL + signal.SIGINT
    except Terminated as request:
        _say(f"ended by {signal.Signals(request.number).name}; {_RESUME}")
        return _ENDED_BY_SIGNAL + request.number
    except BrokenPipeError:
        _leave_standard_output()  # the reader has gone, as `| head` does
        return 0
    except OSError as error:
        if not _standard_output_fails():
            raise
        _leave_standard_output()
        _say(f"error: standard output: cannot be written ({error.strerror or error})")
        return 1


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """While inside, SIGTERM and SIGHUP raise ``Terminated``, so that workers are stopped."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return

    def terminate(number: int, frame: FrameType | None) -> None:
        raise Terminated(number)

    before = {}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup stays nohup
            before[number] = signal.signal(number, terminate)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def full_errors() -> bool:
    """Whether the user wants to see stack traces."""
    return os.environ.get(FULL_ERROR) == "1" and SHORT_ERROR not in os.environ


def _standard_output_fails() -> bool:
    """Whether even one more line cannot be written: an error of a stream does not name it."""
    try:
        print(flush=True)
    except OSError:
        return True
    return False


def _leave_standard_output() -> None:
    """Send what is left of it to nowhere, so that nothing is written there at exit either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _refuse(error: InputError) -> int:
    if full_errors():
        import traceback

        traceback.print_exception(error)
    _say(f"error: {error}")
    return 2


def _say(text: str) -> None:
    # On a terminal the progress bar may have left the cursor in its line.
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def _open_standard_streams() -> None:
    """Closed standard streams lead to nowhere, and what a terminal cannot show is spelt out.

    Left closed, their numbers would go to the next files opened: a stray message could end up
    among the rows.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="lpgnn.spelt")


_SPELLINGS = {"±": "+/-", "ε": "eps", "∞": "inf", "–": "-", "−": "-", "α": "alpha"}


def _spell(error: UnicodeError) -> tuple[str, int]:
    """Characters that a stream's encoding lacks, in ASCII."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(_SPELLINGS.get(character, "?") for character in text), error.end


codecs.register_error("lpgnn.spelt", _spell)
