"""Commands in processes of their own, forked from one that has imported everything."""

import contextlib
import json
import os
import runpy
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import lpgnn.application
import lpgnn.run
import lpgnn.sweeps.session
from lpgnn.composition import expand
from lpgnn.config import Settings
from lpgnn.data import BlockModel
from lpgnn.engine import run_repeats
from lpgnn.rows import PROVENANCE, RowStore

sys.path[:0] = [str(Path(__file__).parent)]
torch.set_num_threads(1)

GRAPH = ("dataset=sbm", "dataset.num_nodes=300", "dataset.num_classes=4", "dataset.num_features=90")
GRID = ("-m", "x_eps=0.5,1,2", "repeats=2", "max_epochs=3")
PLUG_IN = ("mechanism=custom", "mechanism._target_=plugins.Treacherous")


@dataclass(frozen=True)
class Ended:
    """How a command ended: None if it had to be killed."""

    code: int | None
    text: str

    @property
    def lines(self) -> list[str]:
        """What it says about trouble."""
        words = ("error", "not used", "waiting", "Traceback", "no longer", "nothing to merge")
        found = self.text.replace("\r", "\n").splitlines()
        return [line.strip() for line in found if any(word in line for word in words)]


def spawn_workers() -> None:
    """Make workers new interpreters, as a process with several threads does."""
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()


def group_of(command: "Command") -> list[int]:
    """The living processes of a command."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            words = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(words[2]) == command.pid and words[0] not in "ZX":
                found.append(int(entry.name))
    return found


class Command:
    """``python -m lpgnn.<module> ...`` in a process group of its own."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        before: Callable[[], object] | None = None,
    ) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  # read when the command has ended
        self._code: int | None = None
        self.pid = os.fork()
        if self.pid:
            return
        code: object = 70
        try:
            os.setsid()
            # A shell starts what runs in the background with Ctrl-C ignored.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.dup2(self._output.fileno(), 1)
            os.dup2(self._output.fileno(), 2)
            os.environ.update(environment or {})
            if before is not None:
                before()
            sys.argv = [f"lpgnn.{module}", *arguments]
            sys.modules.pop(f"lpgnn.{module}", None)
            runpy.run_module(f"lpgnn.{module}", run_name="__main__", alter_sys=True)
            code = 0
        except SystemExit as end:
            code = end.code
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code if isinstance(code, int) else 1 if code else 0)

    def is_running(self) -> bool:
        if self._code is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if found else None
        return self._code is None

    def kill(self, number: int = signal.SIGKILL) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def wait(self, seconds: float) -> Ended:
        deadline = time.monotonic() + seconds
        while self.is_running() and time.monotonic() < deadline:
            time.sleep(0.01)
        code = self._code
        self.kill()
        while self.is_running():
            time.sleep(0.01)
        self._output.seek(0)
        return Ended(code, self._output.read().decode(errors="replace"))


def sweep(
    folder: Path,
    *overrides: str,
    workers: int = 0,
    grid: Sequence[str] = GRID,
    graph: Sequence[str] = GRAPH,
    seconds: float = 600,
    environment: Mapping[str, str] | None = None,
    before: Callable[[], object] | None = None,
) -> Ended:
    """A small sweep of three configurations and two repeats."""
    return start_sweep(
        folder,
        *overrides,
        workers=workers,
        grid=grid,
        graph=graph,
        environment=environment,
        before=before,
    ).wait(seconds)


def start_sweep(
    folder: Path,
    *overrides: str,
    workers: int = 0,
    grid: Sequence[str] = GRID,
    graph: Sequence[str] = GRAPH,
    environment: Mapping[str, str] | None = None,
    before: Callable[[], object] | None = None,
) -> Command:
    arguments = [*grid, *graph, f"results_dir={folder}", "device=cpu", *overrides]
    known = {"TORTURE_RESULTS": str(folder)} | dict(environment or {})
    return Command("run", [*arguments, "--workers", str(workers)], environment=known, before=before)


def science(folder: Path, dataset: str = "sbm") -> list[str]:
    """A line for each row, without the columns of where and when."""
    rows = RowStore(folder).read(dataset)
    kept = ({k: v for k, v in row.items() if k not in PROVENANCE} for row in rows)
    return [json.dumps(row, sort_keys=True) for row in kept]


def in_child(work: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """Start work in a fork; what is returned waits for its result."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reader)
            os.write(writer, json.dumps(work()).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writer)

    def read() -> dict[str, Any]:
        with os.fdopen(reader, "rb") as pipe:
            content = pipe.read()
        os.waitpid(pid, 0)
        if not content:
            return {"wrong": ["the script itself failed"]}
        found: dict[str, Any] = json.loads(content)
        return found

    return read


def warm_up() -> None:
    """Import and compile what every command needs, here, so that no fork has to."""
    assert all((lpgnn.run, lpgnn.application, lpgnn.sweeps.session))
    graph = BlockModel(num_nodes=300, num_classes=4, num_features=90)
    for backbone in ("sage", "gcn"):
        configuration = Settings(dataset=graph, backbone=backbone, max_epochs=2).resolve()
        run_repeats(configuration, graph.generate(), [0, 1], device="cpu")
    expand([*GRID[1:], *GRAPH], multirun=True)


warm_up()
