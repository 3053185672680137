"""The one kind of error a user can cause, and how entry points end."""

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


def exit_code(work: Callable[[], int]) -> int:
    """Do an entry point's work; bad input and Ctrl-C become one line and a code."""
    try:
        return work()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; finished runs are kept; rerun to resume", file=sys.stderr)
        return 130
