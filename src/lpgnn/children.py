"""Processes that end with the one that started them, whatever ends it."""

import contextlib
import ctypes
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

_REQUESTS = {signal.SIGTERM, signal.SIGHUP} if hasattr(signal, "SIGHUP") else {signal.SIGTERM}


def packed(function: Callable[..., object], *arguments: object) -> bytes:
    """A call for ``run_child``, which imports what it needs itself."""
    return pickle.dumps((function, arguments))


def run_child(parent: int, call: bytes, *arguments: Any) -> None:
    """The life of a child: make sure of its end, then import the function and call it.

    In this order: importing may take seconds, in which the parent may be killed.
    """
    _end_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for request in _REQUESTS:
        signal.signal(request, signal.SIG_DFL)  # a fork has the parent's handlers
    function, others = pickle.loads(call)
    function(*arguments, *others)


@contextlib.contextmanager
def starting() -> Iterator[None]:
    """While a child is started and noted down, no signal comes between: it comes after.

    The child never sees Ctrl-C, which is the parent's to handle: it has it blocked from the start.
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
        with _blocked({signal.SIGINT}):
            yield
    finally:
        for known, handler in handlers.items():
            signal.signal(known, handler)
        for first in came[:1]:
            handlers[first](first, None)


@contextlib.contextmanager
def _blocked(numbers: set[signal.Signals]) -> Iterator[None]:
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
