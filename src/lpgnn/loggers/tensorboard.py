"""TensorBoard: event files, one folder per run."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from lpgnn.loggers.logger import LoggedRun, Logger


@dataclass(frozen=True)
class TensorBoard(Logger):
    """Curves as scalars, and the run in the table of hyper-parameters.

    folder: for ``tensorboard --logdir``; None = ``tensorboard`` in the results folder
    """

    name: ClassVar[str] = "tensorboard"
    package: ClassVar[str] = "tensorboard"

    folder: str | None = None

    def log(self, run: LoggedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        root = Path(self.folder).expanduser() if self.folder else run.results_dir / "tensorboard"
        place = root / str(run.row["dataset"]) / run.name
        shutil.rmtree(place, ignore_errors=True)  # curves of an earlier try would be drawn over
        with SummaryWriter(str(place)) as writer:
            for name, value, epoch in run.points():
                writer.add_scalar(name, value, epoch)
            known = {
                name: value if isinstance(value, bool | int | float) else str(value)
                for name, value in run.settings().items()
            }
            for part in hparams(known, run.summary()):
                writer.file_writer.add_summary(part)
