"""Processes that end with the one that started them, whatever ends it."""

import contextlib
import ctypes
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any


def _known(*names: str) -> list[signal.Signals]:
    """Signals that this system has."""
    return [getattr(signal, name) for name in names if hasattr(signal, name)]


# With these a scheduler announces pre-emption or the end of a job's time, to all its processes.
ANNOUNCEMENTS = _known("SIGUSR1", "SIGUSR2")
# Requests to end, which a child obeys, and what is the parent's alone to answer.
_REQUESTS = _known("SIGTERM", "SIGHUP")
_FOR_PARENT = [signal.SIGINT, *ANNOUNCEMENTS]


def packed(function: Callable[..., object], *arguments: object) -> bytes:
    """A call for ``run_child``, which imports what it needs itself."""
    return pickle.dumps((function, arguments))


def run_child(parent: int, call: bytes, *arguments: Any) -> None:
    """The life of a child: make sure of its end, then import the function and call it.

    In this order: importing may take seconds, in which the parent may be killed.
    """
    _end_with(parent)
    for number in _FOR_PARENT:
        signal.signal(number, signal.SIG_IGN)
    for number in _REQUESTS:
        signal.signal(number, signal.SIG_DFL)  # a fork has the parent's handlers
    function, others = pickle.loads(call)
    function(*arguments, *others)


@contextlib.contextmanager
def starting() -> Iterator[None]:
    """While a child is started and noted down, no signal comes between: it comes after.

    What is the parent's to answer, such as Ctrl-C, a child has blocked from its start.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals, and only there they are raised
        return
    came: list[int] = []
    handlers: dict[int, Callable[[int, None], object]] = {}
    for number in (signal.SIGINT, *_REQUESTS):
        handler: Any = signal.getsignal(number)
        if callable(handler):
            # Blocking is not enough: another thread would get the signal, and this one the error.
            signal.signal(number, lambda number, frame: came.append(number))
            handlers[number] = handler
    try:
        with _blocked(_FOR_PARENT):
            yield
    finally:
        for known, handler in handlers.items():
            signal.signal(known, handler)
        for first in came[:1]:
            handlers[first](first, None)


@contextlib.contextmanager
def _blocked(numbers: Iterable[signal.Signals]) -> Iterator[None]:
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with(parent: int) -> None:
    """End an orphan: after kill -9 of the parent nobody hands out work or listens."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:  # it died before we asked
        os._exit(1)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
