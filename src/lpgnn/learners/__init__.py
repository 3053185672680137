"""Learning on what the server holds: one file for each learner, the epoch loop, the selection."""

from lpgnn.learners.batch import LabelBatch as LabelBatch
from lpgnn.learners.cross_entropy import CrossEntropy as CrossEntropy
from lpgnn.learners.drop import Drop as Drop
from lpgnn.learners.forward_correction import ForwardCorrection as ForwardCorrection
from lpgnn.learners.label_propagation import LabelPropagation as LabelPropagation
from lpgnn.learners.learner import Learner as Learner
from lpgnn.learners.learner import Outcome as Outcome
from lpgnn.learners.learner import Run as Run
from lpgnn.learners.learner import Selected as Selected
from lpgnn.learners.learner import Server as Server
from lpgnn.learners.network import NetworkLearner as NetworkLearner
from lpgnn.learners.residual import Residual as Residual
from lpgnn.learners.selection import RULES as RULES
from lpgnn.learners.two_round import TwoRoundLearner as TwoRoundLearner
