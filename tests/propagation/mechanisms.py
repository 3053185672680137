"""The mechanisms by name, for tests of what is done with their reports."""

from lpgnn.privacy import (
    AnalyticGaussian,
    Duchi,
    FeatureMechanism,
    GrrFs,
    Hybrid,
    Laplace,
    MultiBit,
    OneBit,
    Piecewise,
    PrivUnit,
    SquareWave,
)

MECHANISMS: dict[str, type[FeatureMechanism]] = {
    "mb": MultiBit,
    "1b": OneBit,
    "lp": Laplace,
    "ag": AnalyticGaussian,
    "duchi": Duchi,
    "pm": Piecewise,
    "hm": Hybrid,
    "sw": SquareWave,
    "privunit": PrivUnit,
    "grr_fs": GrrFs,
}
