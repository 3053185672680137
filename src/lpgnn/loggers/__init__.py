"""Loggers: show finished runs, with their per-epoch curves, in a viewer of the user's choice."""

from lpgnn.loggers.logger import LoggedRun as LoggedRun
from lpgnn.loggers.logger import Logger as Logger
from lpgnn.loggers.mlflow import MLflow as MLflow
from lpgnn.loggers.tensorboard import TensorBoard as TensorBoard
