"""The users' side: mechanisms, the reports they send, and collection."""

from lpgnn.privacy.collect import FEATURES as FEATURES
from lpgnn.privacy.collect import collect as collect
from lpgnn.privacy.gaussian import analytic_gaussian_sigma as analytic_gaussian_sigma
from lpgnn.privacy.gaussian import gaussian_delta as gaussian_delta
from lpgnn.privacy.labels import RandomizedResponse as RandomizedResponse
from lpgnn.privacy.mechanisms import MECHANISMS as MECHANISMS
from lpgnn.privacy.mechanisms import AdditiveNoise as AdditiveNoise
from lpgnn.privacy.mechanisms import AnalyticGaussian as AnalyticGaussian
from lpgnn.privacy.mechanisms import BitMechanism as BitMechanism
from lpgnn.privacy.mechanisms import FeatureMechanism as FeatureMechanism
from lpgnn.privacy.mechanisms import Laplace as Laplace
from lpgnn.privacy.mechanisms import MultiBit as MultiBit
from lpgnn.privacy.mechanisms import OneBit as OneBit
from lpgnn.privacy.reports import Collected as Collected
from lpgnn.privacy.reports import FeatureReports as FeatureReports
