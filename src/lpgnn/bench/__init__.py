"""``python -m lpgnn.bench [speed|profile|scale|costs]``: what a run costs, measured.

speed: our engine against the plain pipeline, and against its own bare sparse products.
profile: where an epoch's time goes, case by case.
scale: time and memory from ten thousand to a million nodes.
costs: refit the formula by which sweeps estimate runs that were never measured.
"""

from lpgnn.bench.floor import EpochClock as EpochClock
from lpgnn.bench.plain import plain_epochs as plain_epochs
from lpgnn.bench.plain import time_plain as time_plain
