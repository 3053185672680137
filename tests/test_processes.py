import os
import signal
import subprocess
import sys
import time

import pytest

from lpgnn.processes import is_running, process_name
from rows.rows import in_child


def test_a_process_is_known_by_its_place_its_start_and_its_number() -> None:
    name = process_name()
    place, started, number = name.rsplit("-", 2)
    assert number == str(os.getpid())
    assert name == process_name(os.getpid())
    assert is_running(name)
    assert is_running(f"{place}-{int(started) + 1}-{number}") is False  # another had the number
    assert is_running(f"another-{name}") is None
    assert is_running(number) is None


def test_a_zombie_does_not_run() -> None:
    child = in_child(lambda: time.sleep(60))
    name = process_name(child)
    assert is_running(name)
    os.kill(child, signal.SIGKILL)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert is_running(name) is False
    os.waitpid(child, 0)
    assert is_running(name) is False


def test_what_cannot_be_seen_is_not_taken_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """The /proc of a container may be its host's, and another user's processes may be hidden."""
    name = process_name()
    readlink = os.readlink
    with monkeypatch.context() as patched:
        patched.setattr(
            "lpgnn.processes.os.readlink",
            lambda path: "1" if path == "/proc/self" else readlink(path),
        )
        assert is_running(name) is None

    def forbidden(number: int, sent: int) -> None:
        raise PermissionError

    monkeypatch.setattr("lpgnn.processes._status", lambda number: [])
    assert is_running(name) is False
    monkeypatch.setattr("lpgnn.processes.os.kill", forbidden)
    assert is_running(name) is None


def test_processes_of_another_namespace_are_not_judged_by_their_numbers() -> None:
    code = "from lpgnn.processes import process_name; print(process_name())"
    command = ["unshare", "--user", "--pid", "--fork", sys.executable, "-c", code]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except OSError:
        pytest.skip("no unshare")
    if found.returncode:
        pytest.skip(f"no namespaces here: {found.stderr}")
    inside = found.stdout.strip()
    assert inside.rpartition("-")[2] == "1"  # which is somebody else's number here
    assert is_running(inside) is None
