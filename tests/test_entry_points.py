"""How entry points start and end: streams, signals, codes."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lpgnn
from lpgnn.__main__ import VERBS, main
from lpgnn.application import BENCHMARK_FLAGS, TUNE_FLAGS
from lpgnn.errors import InputError, error_line, exit_code

ROOT = Path(__file__).parents[1]


def heed_signals() -> None:
    """As from a terminal: what nohup or a shell in the background ignores, children ignore, too."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def script(code: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Work in a process of its own, as an entry point does it."""
    options = {"preexec_fn": heed_signals} | options
    text = f"import os, signal, sys\nfrom lpgnn.errors import exit_code\n{code}\n"
    return subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=60, **options
    )


def raised_by(number: int) -> str:
    return f"""
def work():
    os.kill(os.getpid(), {number})
    return 0
sys.exit(exit_code(work))"""


@pytest.mark.parametrize(
    ("number", "code", "message"),
    [
        (signal.SIGINT, 130, "interrupted; finished runs are kept; rerun to resume"),
        (signal.SIGTERM, 143, "ended by SIGTERM; finished runs are kept; rerun to resume"),
        (signal.SIGHUP, 129, "ended by SIGHUP; finished runs are kept; rerun to resume"),
    ],
)
def test_signals_end_with_one_line_and_their_code(number: int, code: int, message: str) -> None:
    done = script(raised_by(number))
    assert (done.returncode, done.stderr.splitlines()) == (code, [message])


def test_nohup_stays_nohup() -> None:
    ignoring = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)  # noqa: E731
    assert script(raised_by(signal.SIGHUP), preexec_fn=ignoring).returncode == 0


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert exit_code(lambda: 3) == 3
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_reader_that_goes_is_no_error() -> None:
    code = "def work():\n    print('x' * 200_000)\n    return 0\nsys.exit(exit_code(work))"
    text = f"import sys\nfrom lpgnn.errors import exit_code\n{code}\n"
    pipe = f"set -o pipefail; {sys.executable} -c {_shell(text)} | head -c 5"
    done = subprocess.run(["bash", "-c", pipe], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "xxxxx", "")


def test_an_output_that_cannot_be_written_is_one_line() -> None:
    for words in ("print('x' * 200_000) or 0", "print('x') or 0"):
        code = f"sys.exit(exit_code(lambda: {words}))"
        text = f"import sys\nfrom lpgnn.errors import exit_code\n{code}"
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [sys.executable, "-c", text], stdout=full, stderr=subprocess.PIPE, text=True
            )
        message = "error: standard output: cannot be written (No space left on device)\n"
        assert (done.returncode, done.stderr) == (1, message)


def test_an_error_of_another_file_is_not_put_down_to_the_output() -> None:
    def work() -> int:
        raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output error"):
        exit_code(work)


def _shell(text: str) -> str:
    import shlex

    return shlex.quote(text)


def test_closed_streams_give_their_numbers_to_no_file(tmp_path: Path) -> None:
    """A message to a closed stderr must not end up in a file that was opened later."""
    code = f"""
def work():
    with open({str(tmp_path / "rows")!r}, "w") as rows:
        os.write(2, b"a stray message")
        print("and another", file=sys.stderr, flush=True)
        rows.write("row")
    return 0
sys.exit(exit_code(work))"""
    text = f"import os, sys\nfrom lpgnn.errors import exit_code\n{code}\n"
    line = f"{sys.executable} -c {_shell(text)} >&- 2>&-"
    assert subprocess.run(["bash", "-c", line], timeout=60).returncode == 0
    assert (tmp_path / "rows").read_text() == "row"


def test_a_terminal_without_the_characters_gets_them_spelt() -> None:
    code = "sys.exit(exit_code(lambda: print('84.4 ± 0.9 at ε = ∞ 漢') or 0))"
    done = script(code, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stdout) == (0, "84.4 +/- 0.9 at eps = inf ?\n")


def test_bad_input_is_one_line_and_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> int:
        raise InputError("x_eps", -1, "must be positive")

    assert exit_code(work) == 2
    assert capsys.readouterr().err == "error: x_eps=-1: must be positive\n"


def test_every_verb_is_a_module_with_a_main(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out
    for verb in VERBS:
        assert f"  {verb} " in listed
        try:
            code: object = main([verb, "--help"])
        except SystemExit as ended:  # argparse's way
            code = ended.code
        assert code == 0
        assert "usage: " in capsys.readouterr().out
    assert main(["jump"]) == 2
    assert "error: verb=jump: must be one of run, predict, tune" in capsys.readouterr().err
    assert main([]) == 2
    assert len({line.index(VERBS[line.split()[0]][1]) for line in listed.splitlines()[3:]}) == 1


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"lpgnn {lpgnn.__version__}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["compact", "nowhere"], "error: nowhere: must be KEY=VALUE; known settings: results_dir"),
        (
            ["status", "--wtch"],
            "error: --wtch: unknown flag (did you mean --watch?); known: --every",
        ),
        (
            ["benchmark", "--dryrun"],
            "--dryrun: unknown flag (did you mean --dry-run?); known: --cfg",
        ),
        (["tune", "--quik"], "error: --quik: unknown flag (did you mean --quick?); known: --cfg"),
        (["question", "--dry-rum"], "error: --dry-rum: unknown flag; known: --config-dir, --help"),
        (["run", "--dry-run=yes"], "error: --dry-run=yes: takes no value: must be --dry-run alone"),
        (["run", "--multirun=1"], "error: --multirun=1: takes no value: must be --multirun alone"),
        (["run", "--quick"], "error: --quick: unknown flag; known: --cfg, --config-dir"),
        (["run", "--table", "x"], "error: --table: unknown flag; known: --cfg, --config-dir"),
        (["run", "--entries=mb"], "error: --entries: unknown flag; known: --cfg, --config-dir"),
        (["tune", "--entries=mb"], "error: --entries: unknown flag; known: --cfg, --config-dir"),
        (["benchmark", "--quick"], "error: --quick: unknown flag; known: --cfg, --config-dir"),
        (["run", "--cfg", "job", "-m", "x_eps=1,2"], "error: -m: does not go with --cfg"),
        (["run", "-sc", "query=bash"], "error: COMP_LINE: must be in the environment"),
        (["run", "hydra/launcher=slurm"], "must be one of basic, joblib, ray, slurm_gpu"),
        (["run", "--workers"], "error: --workers: needs a value"),
    ],
)
def test_words_that_are_wrong_are_one_line(
    words: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("COMP_LINE", raising=False)
    try:
        code: object = main(words)
    except SystemExit as ended:
        code = ended.code
    (line,) = capsys.readouterr().err.splitlines()
    assert code == 2
    assert message in line
    assert "site-packages" not in line


def test_unknown_flags_are_refused_before_torch_is_loaded() -> None:
    code = """
import sys
from lpgnn.__main__ import VERBS, main
for verb in VERBS:
    try:
        code = main([verb, "--nope"])
    except SystemExit as ended:
        code = ended.code
    print(verb, code, "torch" in sys.modules)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == [f"{verb} 2 False" for verb in VERBS]


@pytest.mark.parametrize("verb", ["run", "tune"])
def test_help_names_the_flags_of_its_own_verb_only(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: lpgnn {verb} ")
    named = {flag for flag in (*TUNE_FLAGS, *BENCHMARK_FLAGS) if flag in shown}
    assert named == (set(TUNE_FLAGS) if verb == "tune" else set())


def test_ctrl_c_before_anything_is_handled_is_one_line() -> None:
    """As it would come in while the first modules are imported."""
    code = """
import sys
from lpgnn.__main__ import main
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "lpgnn.errors":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupts())
sys.exit(main(["--help"]))"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_little_is_imported_before_ctrl_c_is_handled() -> None:
    code = "import sys; before = set(sys.modules); import lpgnn.__main__; "
    code += "print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["__future__", "lpgnn", "lpgnn.__main__"]


def test_modules_beside_are_found_as_by_python_m(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    for _ in range(2):
        assert main(["--help"]) == 0
    assert sys.path.count(str(tmp_path)) == 1
    assert sys.path[0] == str(tmp_path)


def test_a_value_with_a_line_break_stays_on_one_line() -> None:
    error = InputError("dataset.name", "a\nb\x1b", "must be a name")
    assert str(error) == r"dataset.name=a\nb\x1b: must be a name"


class Speechless(Exception):
    def __str__(self) -> str:
        raise KeyError


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("two\n  lines"), "ValueError: two lines"),
        (MemoryError(), "MemoryError"),
        (Speechless(), "Speechless: a Speechless without text"),
        (SystemExit(3), "sys.exit(3) was called"),
        (SystemExit("no licence"), "SystemExit: no licence"),
    ],
)
def test_an_error_in_one_line(error: BaseException, line: str) -> None:
    assert error_line(error) == line
