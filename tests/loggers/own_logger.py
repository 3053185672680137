"""A logger of a user's own: a JSON file for each run."""

import json
from dataclasses import dataclass
from pathlib import Path

from lpgnn.loggers import LoggedRun, Logger


@dataclass(frozen=True)
class Notes(Logger):
    folder: str = "notes"
    fails: bool = False

    def prepare(self, results_dir: Path) -> None:
        (results_dir / self.folder).mkdir(parents=True, exist_ok=False)

    def log(self, run: LoggedRun) -> None:
        if self.fails:
            raise ConnectionError("no server\nthere")
        text = json.dumps([run.settings(), run.summary(), run.curves])
        (run.results_dir / self.folder / f"{run.name}.json").write_text(text)
