"""Errors that end a program in one line, and how entry points end."""

import sys
from collections.abc import Callable


class InputError(ValueError):
    """Bad input, reported in one line: the setting, its value, and what is allowed.

    Entry points print the message without a stack trace and exit with code 2.
    """

    def __init__(self, setting: str, value: object, allowed: str) -> None:
        self.setting, self.value, self.allowed = setting, value, allowed
        super().__init__(f"{setting}={value}: {allowed}")

    def __reduce__(self) -> tuple[type["InputError"], tuple[str, object, str]]:
        return InputError, (self.setting, self.value, self.allowed)


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


def exit_code(work: Callable[[], int]) -> int:
    """Do an entry point's work; what can go wrong becomes one line and a code."""
    try:
        return work()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (RunError, StorageError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; finished runs are kept; rerun to resume", file=sys.stderr)
        return 130
