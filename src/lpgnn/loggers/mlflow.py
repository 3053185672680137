"""MLflow: a local file store, or any tracking server."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from lpgnn.loggers.logger import LoggedRun, Logger

# MLflow takes so many metrics and parameters in one call.
_METRICS, _PARAMETERS = 1000, 100
_TEXT = 500  # characters of a parameter's value


@dataclass(frozen=True)
class MLflow(Logger):
    """Curves as metrics by epoch, settings as parameters.  What is computed again is a new run.

    uri: of the tracking store; None = a file store ``mlruns`` in the results folder, which many
    processes and machines can write to at once, as they cannot to an SQLite file
    """

    name: ClassVar[str] = "mlflow"
    package: ClassVar[str] = "mlflow"

    experiment: str = "lpgnn"
    uri: str | None = None

    def prepare(self, results_dir: Path) -> None:
        # Workers that each find no experiment would each make one.
        client = self._client(results_dir)
        if client.get_experiment_by_name(self.experiment) is None:
            client.create_experiment(self.experiment)

    def log(self, run: LoggedRun) -> None:
        client = self._client(run.results_dir)
        from mlflow.entities import Metric, Param

        self.prepare(run.results_dir)
        experiment = client.get_experiment_by_name(self.experiment)
        tags = {"lpgnn.id": str(run.row["id"]), "lpgnn.repeat": str(run.row["repeat"])}
        name = f"{run.row['dataset']} {run.name}"
        started = client.create_run(experiment.experiment_id, tags=tags, run_name=name)
        now = int(1000 * time.time())
        metrics = [Metric(name, value, now, epoch) for name, value, epoch in run.points()]
        parameters = [Param(name, str(value)[:_TEXT]) for name, value in run.settings().items()]
        for first in range(0, len(parameters), _PARAMETERS):
            client.log_batch(started.info.run_id, params=parameters[first : first + _PARAMETERS])
        for first in range(0, len(metrics), _METRICS):
            client.log_batch(started.info.run_id, metrics=metrics[first : first + _METRICS])
        ended = "FAILED" if str(run.row["status"]).startswith("failed") else "FINISHED"
        client.set_terminated(started.info.run_id, status=ended)

    def _client(self, results_dir: Path) -> Any:
        # Set for MLflow's import: no messages to its makers, and file stores without being asked.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        from mlflow import MlflowClient

        return MlflowClient(self.uri or (results_dir.absolute() / "mlruns").as_uri())
