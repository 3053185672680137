"""What SLURM itself says of a sweep's jobs: submitit asks only its accounts, which may not be kept.

submitit leaves the script that it has submitted in Hydra's folder, under the job's number.  A
sweep of one task is a plain job, and one of more an array whose indices are the tasks' numbers.
"""

import contextlib
import math
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

_ASK_SECONDS = 60.0  # the controller serves the whole cluster; it knows ended jobs for minutes
_ANSWER_SECONDS = 20.0
# States in which a job is over, whatever ended it; in any other it is queued or under way.
_OVER = {
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY"),
    *("PREEMPTED", "REVOKED", "TIMEOUT"),
}


class SlurmQueue:
    """The jobs of a sweep as squeue lists them, made before they are submitted."""

    def __init__(self, folder: Path, tasks: int) -> None:
        self.folder, self.tasks = folder, tasks
        self._earlier = set(self._scripts())  # of other sweeps in the same folder
        self._job: str | None = None
        self._asked = -math.inf
        self._states: dict[str, str] | None = None
        self._is_known = False

    def held(self) -> set[int] | None:
        """The numbers of the tasks whose jobs are queued or under way.

        None where SLURM does not answer or has never listed a job of this sweep: another launcher
        has sent them, or they are on another cluster.
        """
        self._job = self._job or self._submitted()
        if self._job is None:
            return None
        names = [self._job] if self.tasks == 1 else [f"{self._job}_{n}" for n in range(self.tasks)]
        if time.monotonic() - self._asked >= _ASK_SECONDS:
            self._asked = time.monotonic()
            self._states = _listed()
        if self._states is None:
            return None
        states = [self._states.get(name) for name in names]
        self._is_known = self._is_known or any(states)
        if not self._is_known:
            return None
        return {n for n, state in enumerate(states) if state is not None and state not in _OVER}

    def _submitted(self) -> str | None:
        """The number of the sweep's job, if SLURM was given one."""
        for script in self._scripts():
            with contextlib.suppress(OSError):
                if script in self._earlier:
                    continue
                if "#SBATCH" in script.read_text(errors="replace"):  # local jobs have one, too
                    return script.name.removesuffix("_submission.sh")
        return None

    def _scripts(self) -> Iterator[Path]:
        return self.folder.glob(".submitit/*/*_submission.sh")


def _listed() -> dict[str, str] | None:
    """The states of this user's jobs, also of those that ended lately; None without an answer."""
    columns = ("--array", "--states", "all", "--format", "%i %T")
    command = ["squeue", "--noheader", "--user", str(os.getuid()), *columns]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if answer.returncode:
        return None
    return dict(words for line in answer.stdout.splitlines() if len(words := line.split()) == 2)
