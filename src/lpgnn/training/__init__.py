"""Training on what the server holds: objectives, selection, the loop."""

from lpgnn.training.labels import LabelScores as LabelScores
from lpgnn.training.labels import label_scores as label_scores
from lpgnn.training.objectives import Learner as Learner
from lpgnn.training.selection import SELECTIONS as SELECTIONS
from lpgnn.training.selection import Selection as Selection
from lpgnn.training.smoothing import smoothed as smoothed
from lpgnn.training.train import Hyperparameters as Hyperparameters
from lpgnn.training.train import Run as Run
from lpgnn.training.train import Trained as Trained
from lpgnn.training.train import by_labels as by_labels
from lpgnn.training.train import predict as predict
from lpgnn.training.train import train as train
