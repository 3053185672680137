"""Training on what the server holds: objectives, selection, the loop."""

from lpgnn.training.objectives import Learner as Learner
from lpgnn.training.selection import SELECTIONS as SELECTIONS
from lpgnn.training.selection import Selection as Selection
from lpgnn.training.train import Hyperparameters as Hyperparameters
from lpgnn.training.train import Run as Run
from lpgnn.training.train import Trained as Trained
from lpgnn.training.train import train as train
