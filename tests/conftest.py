"""What all tests share: one thread, arithmetic as the next test expects it, and real files.

The tests need nothing from outside the checkout.  ``--data-dir`` names a folder with the published
graphs' files and adds the tests marked ``published``, which compare our facts with those files.
"""

import logging
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--data-dir", type=Path, help="add the tests on the published graphs' files")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("data_dir") is None:
        left_out = [item for item in items if item.get_closest_marker("published")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("published")]
    # Long tests first, file by file: what is left for the end is short, and no worker waits.
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path.name != "test_tutorials.py", item.path not in slow))


@pytest.fixture(scope="session", autouse=True)
def _past_the_warnings() -> None:
    """Import torch-geometric, whose first import warns: whichever test came first would fail.

    Not above, because the process that only hands out tests needs neither it nor torch.
    """
    import models.pyg  # noqa: F401


@pytest.fixture(scope="session", autouse=True)
def _forked_workers() -> Iterator[None]:
    """Workers of sweeps are forks, as a command's are: new interpreters import for seconds.

    Under pytest-xdist a process has threads and a sweep would not fork, but they only wait for
    messages.  A test that wants new interpreters asks for ``new_interpreters``.
    """
    with pytest.MonkeyPatch.context() as patch:
        fork = multiprocessing.get_context("fork")
        patch.setattr("lpgnn.sweeps.pool._context", lambda: fork)
        yield


@pytest.fixture(scope="session", autouse=True)
def _as_committed() -> Iterator[None]:
    """Rows of sources that were changed pair with nothing: tests must pass before a commit, too."""
    from lpgnn.provenance import git_revision

    revision, _ = git_revision()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lpgnn.engine.git_revision", lambda: (revision, False))
        yield


@pytest.fixture
def new_interpreters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers of sweeps be new interpreters, as in a process with threads."""
    spawn = multiprocessing.get_context("spawn")
    monkeypatch.setattr("lpgnn.sweeps.pool._context", lambda: spawn)


@pytest.fixture(scope="session")
def published_data(request: pytest.FixtureRequest) -> Path:
    """The folder with the published graphs' files, for tests marked ``published``."""
    folder: Path = request.config.getoption("data_dir")
    return folder.resolve()


Imports = Callable[[Path], None]


def _forget(folder: Path) -> None:
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(f"{folder}/"):
            del sys.modules[name]


@pytest.fixture
def import_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[Imports]:
    """Lets a folder's modules be imported as they stand there now, as a new process would.

    A process costs two seconds of imports; in this one nothing of the modules stays behind.
    """
    # An edit in the same second, of the same length, goes unseen beside a .pyc.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    folders: list[Path] = []

    def import_anew(folder: Path) -> None:
        monkeypatch.syspath_prepend(folder)
        folders.append(folder)
        _forget(folder)

    yield import_anew
    for folder in folders:
        _forget(folder)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads of one process mostly wait for each other, and pytest-xdist fills the cores."""
    import torch

    torch.set_num_threads(1)
    yield
    torch.set_flush_denormal(False)


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """Hydra's --info sets up logging for the whole process, to a stream that a test closes."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    for name in ("hydra", "hydra.core.utils", "hydra._internal.hydra"):
        logging.getLogger(name).setLevel(logging.NOTSET)
