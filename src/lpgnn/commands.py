"""Commands that are no Hydra applications: how their command lines are read."""

import argparse
import contextlib
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from lpgnn.composition import expand
from lpgnn.config import Settings
from lpgnn.errors import InputError, unknown_flag


class Command(argparse.ArgumentParser):
    """The command line of ``python -m lpgnn.<verb>``; what is wrong with it is one line."""

    def __init__(self, verb: str, description: str, epilog: str) -> None:
        super().__init__(
            prog=f"python -m lpgnn.{verb}",
            description=textwrap.fill(description, 79),
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        print(f"error: {message} ({self.prog} --help says more)", file=sys.stderr)
        sys.exit(2)

    def read(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        """Options and KEY=VALUE in any order; the latter are ``overrides``."""
        self.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
        return self.parse_intermixed_args(arguments)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown flags first: a required one that is missing may be the one misspelt."""
        words = list(sys.argv[1:] if args is None else args)
        flags = {flag: action for action in self._actions for flag in action.option_strings}
        for word, before in zip(words, ("", *words), strict=False):
            flag = word.partition("=")[0]
            is_value = before in flags and flags[before].nargs is None
            if word.startswith("-") and word != "-" and not is_value and flag not in flags:
                error = unknown_flag(flag, flags)
                self.error(str(error))
        return super().parse_known_args(words, namespace)

    def takes_settings(self) -> None:
        """KEY=VALUE are settings of lpgnn.run, and read the same YAML files."""
        self.add_argument(
            "--config-dir",
            type=Path,
            action="append",
            default=[],
            help="a folder with YAML files of your own, laid out like conf/; may be repeated",
        )

    def takes_repeat(self, purpose: str) -> None:
        self.add_argument("--repeat", type=_repeat, default=0, help=purpose)


def _repeat(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number >= 0")
    return int(text)


def one_run(options: argparse.Namespace, overrides: Sequence[str] | None = None) -> Settings:
    """The settings of the one run that a command line describes."""
    words = options.overrides if overrides is None else overrides
    points = expand(words, config_dirs=options.config_dir)
    if len(points) > 1:
        raise InputError("overrides", " ".join(words), f"must be one run, not {len(points)}")
    return points[0].settings


def own_settings(overrides: Sequence[str], defaults: Mapping[str, str]) -> dict[str, str]:
    """The settings of a command that has only its own, as text."""
    found = dict(defaults)
    for override in overrides:
        key, equals, value = override.partition("=")
        if key not in defaults or not value:
            allowed = f"must be KEY=VALUE; known settings: {', '.join(defaults)}"
            raise InputError(key, value if equals else ..., allowed)
        found[key] = value
    return found


@contextlib.contextmanager
def writing(setting: str, path: Any) -> Iterator[None]:
    """Inside, a file that cannot be written is bad input: the setting has led to it."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(setting, path, f"cannot be written ({reason})") from None
