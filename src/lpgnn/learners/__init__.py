"""Learning on what the server holds: one file for each learner, the epoch loop, the selection."""

from lpgnn.learners.backward_correction import BackwardCorrection as BackwardCorrection
from lpgnn.learners.batch import LabelBatch as LabelBatch
from lpgnn.learners.cross_entropy import CrossEntropy as CrossEntropy
from lpgnn.learners.drop import Drop as Drop
from lpgnn.learners.early_learning import EarlyLearning as EarlyLearning
from lpgnn.learners.forward_correction import ForwardCorrection as ForwardCorrection
from lpgnn.learners.generalised_cross_entropy import (
    GeneralisedCrossEntropy as GeneralisedCrossEntropy,
)
from lpgnn.learners.hop_regression import HopRegression as HopRegression
from lpgnn.learners.label_propagation import LabelPropagation as LabelPropagation
from lpgnn.learners.learner import Learner as Learner
from lpgnn.learners.learner import Outcome as Outcome
from lpgnn.learners.learner import Run as Run
from lpgnn.learners.learner import Selected as Selected
from lpgnn.learners.learner import Server as Server
from lpgnn.learners.network import NetworkLearner as NetworkLearner
from lpgnn.learners.noise_governance import NoiseGovernance as NoiseGovernance
from lpgnn.learners.reconstruction import Reconstruction as Reconstruction
from lpgnn.learners.residual import Residual as Residual
from lpgnn.learners.selection import RULES as RULES
from lpgnn.learners.symmetric_cross_entropy import SymmetricCrossEntropy as SymmetricCrossEntropy
from lpgnn.learners.two_round import TwoRoundLearner as TwoRoundLearner
