import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lpgnn.children import packed, run_child, starting

# A parent that starts a child, tells its process, and waits; the child imports for ever.
PARENT = """
import multiprocessing, os, sys, time
from lpgnn.children import packed, run_child
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    call = packed(time.sleep, 60)
    if sys.argv[2] == "importing":  # what the call names is a module that takes its time
        call = b"cslow_module\\nwork\\n(tp0\\n\\x86."
    child = context.Process(target=run_child, args=(os.getpid(), call))
    child.start()
    print(child.pid, flush=True)
    time.sleep(60)
"""
SLOW = "import pathlib, sys, time\npathlib.Path(sys.path[0], 'importing').touch()\ntime.sleep(60)\n"


def is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("moment", ["importing", "at work"])
def test_a_child_ends_with_a_parent_that_is_killed(
    method: str, moment: str, tmp_path: Path
) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    (tmp_path / "slow_module.py").write_text(SLOW)
    parent = subprocess.Popen(
        [sys.executable, str(script), method, moment], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    deadline = time.monotonic() + 60
    while moment == "importing" and not (tmp_path / "importing").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert is_alive(child)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    while is_alive(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_child_whose_parent_has_gone_before_it_starts_does_nothing() -> None:
    child = multiprocessing.get_context("fork").Process(
        target=run_child, args=(os.getpid() + 1, packed(time.sleep, 60))
    )
    child.start()
    child.join(30)
    assert child.exitcode == 1


@pytest.fixture
def _heeding_ctrl_c() -> Iterator[None]:
    """A process that a shell has started in the background ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_heeding_ctrl_c")
@pytest.mark.parametrize("with_thread", [False, True])
def test_a_signal_comes_after_the_start_of_a_child_not_in_between(with_thread: bool) -> None:
    over = threading.Event()
    if with_thread:  # it takes the signal, and the main thread gets the error
        threading.Thread(target=over.wait, daemon=True).start()
    done = []

    def start() -> None:
        with starting():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
            done.append("noted down")

    try:
        with pytest.raises(KeyboardInterrupt):
            start()
    finally:
        over.set()
    assert done == ["noted down"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_child_has_ctrl_c_blocked_from_its_start() -> None:
    with starting():
        code = "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "True"
