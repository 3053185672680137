"""``python -m lpgnn.run``: one private training, or a grid of them."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lpgnn.errors import Ended, InputError, RunError, StorageError, exit_code

if TYPE_CHECKING:
    from lpgnn.composition import Point
    from lpgnn.sweeps.session import Launcher


def main(arguments: Sequence[str] | None = None) -> int:
    def work() -> int:
        from lpgnn.application import run_application

        return run_application(compute, arguments)

    return exit_code(work)


def compute(config: Any) -> None:
    """Hydra's task: one run, or one task of a sweep that a launcher has sent here."""
    if "task" in config:
        from lpgnn.sweeps.jobs import compute_job

        compute_job(Path(config.task))
        return
    from lpgnn.composition import composed_point

    try:
        _end(_run_points([composed_point(config)]))
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
        from lpgnn.sweeps.session import Launcher  # brings torch

        name = str(config.hydra.runtime.choices["hydra/launcher"])
        launcher = Launcher(name, Path(config.hydra.sweep.dir).absolute(), launch)
    _end(_run_points(points, launcher))


def _run_points(points: "Sequence[Point]", launcher: "Launcher | None" = None) -> int:
    from lpgnn.finished import tell_finished

    told = tell_finished([point.settings for point in points])
    if told is not None:
        return told
    from lpgnn.sweeps.session import run_points  # brings torch

    return run_points(points, launcher)


def _end(code: int) -> None:
    if code:
        raise Ended(code)


if __name__ == "__main__":
    # By its own name, by which a launcher's process finds the task.
    from lpgnn.run import main as run_main

    sys.exit(run_main())
