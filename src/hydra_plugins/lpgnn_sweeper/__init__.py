"""The sweeper of lpgnn's commands.  Every Hydra application loads this: it imports nothing else."""

import os
import sys
from collections.abc import Sequence
from typing import Any

from hydra.plugins.sweeper import Sweeper

_LOCAL = "hydra._internal.core_plugins.basic_launcher.BasicLauncher"


class LpgnnSweeper(Sweeper):  # type: ignore[misc]
    """Hands the whole grid to the command: it alone knows what is done and what goes together.

    The command's module has ``sweep(arguments, config, launch)``.  ``launch`` sends jobs, each a
    list of overrides, to Hydra's launcher; it is None with the default one, where the command uses
    its own worker pool.
    """

    def setup(self, *, hydra_context: Any, task_function: Any, config: Any) -> None:
        self.hydra_context, self.config = hydra_context, config
        self.module = task_function.__module__
        self.launcher = None
        if config.hydra.launcher._target_ != _LOCAL:
            from hydra.core.plugins import Plugins

            self.launcher = Plugins.instance().instantiate_launcher(
                hydra_context=hydra_context, task_function=task_function, config=config
            )

    def sweep(self, arguments: list[str]) -> Any:
        from lpgnn.application import keep_sweep

        keep_sweep(self.config)
        launch = None if self.launcher is None else self._launch
        return sys.modules[self.module].sweep(arguments, self.config, launch)

    def _launch(self, jobs: Sequence[Sequence[str]]) -> Any:
        assert self.launcher is not None
        # A job is composed from its own overrides, which do not say where this sweep keeps its own.
        folder = os.path.abspath(self.config.hydra.sweep.dir).replace("'", r"\'")
        placed = [[*job, f"hydra.sweep.dir='{folder}'"] for job in jobs]
        return self.launcher.launch(placed, initial_job_idx=0)
