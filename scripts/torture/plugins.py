"""Plug-ins that misbehave at one budget and are fine at the others."""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import torch

from lpgnn.data import BlockModel, Graph
from lpgnn.privacy import AdditiveNoise

GUILTY = 1.0  # the budget


class TwoPartError(Exception):
    """Pickled as one text, made of two values: it cannot be unpickled."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"parts {one} and {two}")


class SpeechlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def _raise(error: BaseException) -> Callable[[], NoReturn]:
    def fault() -> NoReturn:
        raise error

    return fault


def _recurse() -> None:
    _recurse()


def _loop() -> None:
    while True:
        pass


def _deaf_loop() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _loop()


def _close_everything() -> None:
    os.closerange(3, 256)


def _leave_a_child() -> None:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"])


def _leave_a_thread() -> None:
    threading.Thread(target=time.sleep, args=(30,), daemon=True).start()


def _remove_results() -> None:
    shutil.rmtree(os.environ["TORTURE_RESULTS"])


def _remove_shards() -> None:
    shutil.rmtree(Path(os.environ["TORTURE_RESULTS"]) / "local" / "shards")


def _file_for_folder() -> None:
    folder = Path(os.environ["TORTURE_RESULTS"]) / "local" / "shards"
    shutil.rmtree(folder)
    folder.touch()


def _fill_disk() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))


def _use_up_files() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (5, 5))


def _use_up_memory() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (1, 1))
    bytearray(10**9)


FAULTS: dict[str, Callable[[], object]] = {
    "sys.exit(0)": lambda: sys.exit(0),
    "sys.exit('text')": lambda: sys.exit("text"),
    "os._exit(0)": lambda: os._exit(0),
    "os._exit(3)": lambda: os._exit(3),
    "a segmentation fault": lambda: ctypes.string_at(0),
    "SIGKILL, as by the out-of-memory killer": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "os.abort()": os.abort,
    "SIGTERM to its own process": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "MemoryError": lambda: bytearray(10**16),
    "no memory left to allocate": _use_up_memory,
    "endless recursion": _recurse,
    "an exception": _raise(ArithmeticError("two\nlines")),
    "an exception that cannot be unpickled": _raise(TwoPartError(1, 2)),
    "an exception whose __str__ fails": _raise(SpeechlessError()),
    "an exception that is no Exception": _raise(GeneratorExit("out")),
    "KeyboardInterrupt out of a plug-in": _raise(KeyboardInterrupt()),
    "sleeping for ever": lambda: time.sleep(1e6),
    "an endless loop": _loop,
    "an endless loop that ignores signals": _deaf_loop,
    "closing all files": _close_everything,
    "leaving a child process behind": _leave_a_child,
    "leaving a thread behind": _leave_a_thread,
    "another working folder": lambda: os.chdir("/"),
    "umask 777": lambda: os.umask(0o777),
    "the results folder removed": _remove_results,
    "the folder of shards removed": _remove_shards,
    "a file where the folder of shards was": _file_for_folder,
    "a full disk (a limit on file size)": _fill_disk,
    "no file descriptors left": _use_up_files,
}


@dataclass(frozen=True)
class Treacherous(AdditiveNoise):
    """Noise, and at one budget what the environment asks for."""

    name: ClassVar[str] = "treacherous"

    def noise(self, shape: Any, *, generator: torch.Generator) -> torch.Tensor:
        if self.epsilon == GUILTY:
            FAULTS[os.environ["TORTURE_FAULT"]]()
        return torch.rand(shape, generator=generator, dtype=torch.float64)

    def variance(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ones_like(x)

    def parameters(self) -> dict[str, float]:
        return {}


def _graph() -> Graph:
    return BlockModel(num_nodes=300, num_classes=4, num_features=90).generate()


def loads(data_dir: Path) -> Graph:
    return _graph()


def raises(data_dir: Path) -> Graph:
    raise OSError(5, "Input/output error")


def exits(data_dir: Path) -> Graph:
    sys.exit(0)


def gives_text(data_dir: Path) -> str:
    return "not a graph"


def fails(labels: Any, predictions: Any, probabilities: Any) -> float:
    return 1 / 0


def speaks(labels: Any, predictions: Any, probabilities: Any) -> str:
    return "good"
