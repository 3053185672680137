"""``python -m lpgnn.run``: one private training, or a grid of them."""

from __future__ import annotations

import sys
from contextvars import ContextVar

from lpgnn.errors import Ended, InputError, RunError, StorageError, exit_code

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import Any

    from lpgnn.composition import Point
    from lpgnn.sweeps.session import Launcher


# The words of the command that runs in this process, and where it is kept what they stand for.
_ASKED: ContextVar[tuple[Sequence[str], Path | None]] = ContextVar("asked", default=((), None))


def main(arguments: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else list(arguments)
    return exit_code(lambda: _work(words))


def _work(words: Sequence[str]) -> int:
    from lpgnn.finished import asked_path, tell_asked

    path = asked_path(words)
    told = tell_asked(path)
    if told is not None:
        return told
    from lpgnn.application import run_application

    before = _ASKED.set((words, path))
    try:
        return run_application(compute, words)
    finally:
        _ASKED.reset(before)


def compute(config: Any) -> None:
    """Hydra's task: one run, or one task of a sweep that a launcher has sent here."""
    if "task" in config:
        from pathlib import Path

        from lpgnn.sweeps.jobs import compute_job

        compute_job(Path(config.task))
        return
    from hydra.core.hydra_config import HydraConfig

    from lpgnn.composition import composed_point

    try:
        _end(_run_points([composed_point(config)], HydraConfig.get()))
    except InputError as error:
        raise Ended(2) from error  # Hydra would print lines of its own
    except (RunError, StorageError) as error:
        raise Ended(1) from error
    except BrokenPipeError as error:
        raise Ended(0) from error


def sweep(arguments: Sequence[str], config: Any, launch: Callable[..., Any] | None) -> None:
    """Hydra's sweep: the runs of a grid or of experiments, computed here or by a launcher."""
    from lpgnn.composition import expand

    points = expand(arguments, multirun=True, hydra_overrides=config.hydra.overrides.hydra)
    launcher = None
    if launch is not None:
        from pathlib import Path

        from lpgnn.sweeps.session import Launcher  # brings torch

        name = str(config.hydra.runtime.choices["hydra/launcher"])
        launcher = Launcher(name, Path(config.hydra.sweep.dir).absolute(), launch)
    _end(_run_points(points, config.hydra, launcher))


def _run_points(points: Sequence[Point], hydra: Any, launcher: Launcher | None = None) -> int:
    from lpgnn.composition import is_closed
    from lpgnn.finished import keep_asked, tell_finished

    settings = [point.settings for point in points]
    code = tell_finished(settings)
    if code is None:
        from lpgnn.sweeps.session import run_points  # brings torch

        code = run_points(points, launcher)
    words, path = _ASKED.get()
    if code == 0 and path is not None and is_closed(hydra):
        keep_asked(settings, words, path)
    return code


def _end(code: int) -> None:
    if code:
        raise Ended(code)


if __name__ == "__main__":
    from lpgnn.__main__ import main as verb_main

    # By the module's own name, by which a launcher's process finds the task.
    sys.exit(verb_main(["run", *sys.argv[1:]]))
