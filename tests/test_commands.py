import argparse
import contextlib
import io
from pathlib import Path

import pytest

from lpgnn import audit, collect, compact, information, predict, simulate
from lpgnn.commands import Command, one_run, own_settings, writing
from lpgnn.errors import InputError

MAINS = [module.main for module in (audit, collect, compact, information, predict, simulate)]


@pytest.mark.parametrize("main", MAINS)
def test_a_wrong_flag_is_one_line(main: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(main)
    with pytest.raises(SystemExit, match="2"):
        main(["--nope"])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: --nope: unknown flag; known: ")
    assert line.endswith("--help says more)")


def test_an_unknown_flag_names_the_nearest_before_a_missing_one() -> None:
    command = Command("verb", "What it does.", "")
    command.add_argument("--out", required=True)
    command.add_argument("--watch", action="store_true")
    known = "known: --help, --out, --watch, -h"
    for word, flag, meant in [
        ("--wtch", "--wtch", " (did you mean --watch?)"),
        ("--ou=x", "--ou", " (did you mean --out?)"),
        ("--nearest-to-none", "--nearest-to-none", ""),
    ]:
        assert said(command, [word]) == f"{flag}: unknown flag{meant}; {known}"
    assert said(command, ["--watch"]) == "the following arguments are required: --out"
    assert said(command, ["--watch=1", "--out", "x"]).endswith("ignored explicit argument '1'")
    assert command.parse_args(["--out", "-"]).out == "-"
    assert command.parse_args(["--out=-x"]).out == "-x"


def said(command: Command, words: list[str]) -> str:
    """The one line of a refusal, without what is in all of them."""
    error = io.StringIO()
    with contextlib.redirect_stderr(error), pytest.raises(SystemExit, match="2"):
        command.parse_args(words)
    (line,) = error.getvalue().splitlines()
    return line.removeprefix("error: ").removesuffix(" (python -m lpgnn.verb --help says more)")


@pytest.mark.parametrize("main", MAINS)
def test_help_keeps_to_the_screen(main: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(main)
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 100


def test_settings_and_flags_come_in_any_order() -> None:
    command = Command("verb", "What it does.", "")
    command.add_argument("--flag", action="store_true")
    command.takes_repeat("which")
    command.takes_settings()
    found = command.read(["a=1", "--repeat", "3", "b=2", "--config-dir", "mine", "--flag"])
    assert (found.overrides, found.repeat, found.flag) == (["a=1", "b=2"], 3, True)
    assert found.config_dir == [Path("mine")]


@pytest.mark.slow
def test_one_run_is_one_run() -> None:
    given = argparse.Namespace(overrides=["dataset=sbm", "x_eps=2"], config_dir=[])
    assert one_run(given).x_eps == 2
    assert one_run(given, ["dataset=sbm", "x_eps=3"]).x_eps == 3
    given.overrides = ["experiment=mechanisms"]
    with pytest.raises(InputError, match="must be one run, not"):
        one_run(given)


@pytest.mark.parametrize("word", ["other=1", "a", "a=", "=1", ""])
def test_unknown_settings_name_the_known_ones(word: str) -> None:
    assert own_settings(["b=3"], {"a": "1", "b": "2"}) == {"a": "1", "b": "3"}
    with pytest.raises(InputError, match="must be KEY=VALUE; known settings: a, b"):
        own_settings([word], {"a": "1", "b": "2"})


def test_what_cannot_be_written_is_bad_input() -> None:
    with (
        pytest.raises(InputError, match=r"^out=here: cannot be written \(Is a directory\)$"),
        writing("out", "here"),
    ):
        raise IsADirectoryError(21, "Is a directory")
