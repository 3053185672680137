"""The four mechanisms by name, for tests of what is done with their reports."""

from lpgnn.privacy import AnalyticGaussian, FeatureMechanism, Laplace, MultiBit, OneBit

MECHANISMS: dict[str, type[FeatureMechanism]] = {
    "mb": MultiBit,
    "1b": OneBit,
    "lp": Laplace,
    "ag": AnalyticGaussian,
}
