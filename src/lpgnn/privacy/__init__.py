"""The users' side: mechanisms, the reports they send, and collection.

This is a simulation of users.  Random numbers come from a seed, so that runs can be repeated, and
not from a cryptographic source: the budgets hold for random numbers that nobody can predict.  Given
such, the mechanisms here keep them exactly, rounding included: bits and labels are drawn against
thresholds rounded towards privacy, Laplace and Gaussian noise and sliding windows on a grid.  The
exception is PrivUnit, which is drawn in floating point, and says so in the plan of a run.
"""

from lpgnn.privacy.analytic_gaussian import AnalyticGaussian as AnalyticGaussian
from lpgnn.privacy.analytic_gaussian import analytic_gaussian_sigma as analytic_gaussian_sigma
from lpgnn.privacy.analytic_gaussian import gaussian_delta as gaussian_delta
from lpgnn.privacy.collect import collect as collect
from lpgnn.privacy.duchi import Duchi as Duchi
from lpgnn.privacy.features import BlankFeatures as BlankFeatures
from lpgnn.privacy.features import Feature as Feature
from lpgnn.privacy.features import OneHotDegree as OneHotDegree
from lpgnn.privacy.features import Ones as Ones
from lpgnn.privacy.features import RandomFeatures as RandomFeatures
from lpgnn.privacy.features import RawFeatures as RawFeatures
from lpgnn.privacy.grid import GridNoise as GridNoise
from lpgnn.privacy.grr_fs import GrrFs as GrrFs
from lpgnn.privacy.hybrid import Hybrid as Hybrid
from lpgnn.privacy.information import class_distance_squared as class_distance_squared
from lpgnn.privacy.information import expected_informative_bits as expected_informative_bits
from lpgnn.privacy.information import feature_density as feature_density
from lpgnn.privacy.information import informative_bits as informative_bits
from lpgnn.privacy.information import signal_to_noise as signal_to_noise
from lpgnn.privacy.label_mechanism import ClassMechanism as ClassMechanism
from lpgnn.privacy.label_mechanism import ExactLabels as ExactLabels
from lpgnn.privacy.label_mechanism import LabelMechanism as LabelMechanism
from lpgnn.privacy.laplace import Laplace as Laplace
from lpgnn.privacy.laplace_one_hot import LaplaceOneHot as LaplaceOneHot
from lpgnn.privacy.mechanism import AdditiveNoise as AdditiveNoise
from lpgnn.privacy.mechanism import BitMechanism as BitMechanism
from lpgnn.privacy.mechanism import FeatureMechanism as FeatureMechanism
from lpgnn.privacy.multi_bit import MultiBit as MultiBit
from lpgnn.privacy.one_bit import OneBit as OneBit
from lpgnn.privacy.piecewise import Piecewise as Piecewise
from lpgnn.privacy.privunit import PrivUnit as PrivUnit
from lpgnn.privacy.protocol import OneRound as OneRound
from lpgnn.privacy.protocol import Protocol as Protocol
from lpgnn.privacy.protocol import TwoRound as TwoRound
from lpgnn.privacy.questions import Question as Question
from lpgnn.privacy.questions import ScoreQuestion as ScoreQuestion
from lpgnn.privacy.questions import VectorQuestion as VectorQuestion
from lpgnn.privacy.randomized_response import RandomizedResponse as RandomizedResponse
from lpgnn.privacy.reports import Collected as Collected
from lpgnn.privacy.reports import FeatureReports as FeatureReports
from lpgnn.privacy.reports import LabelReports as LabelReports
from lpgnn.privacy.reports import Round as Round
from lpgnn.privacy.respondents import Respondents as Respondents
from lpgnn.privacy.rr_with_prior import RRWithPrior as RRWithPrior
from lpgnn.privacy.square_wave import SquareWave as SquareWave
from lpgnn.privacy.subset_selection import SubsetSelection as SubsetSelection
