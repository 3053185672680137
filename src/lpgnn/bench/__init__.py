"""``python -m lpgnn.bench [speed|profile|scale|costs]``: what a run costs, measured.

speed: our engine against the plain pipeline, and against its own bare sparse products.
profile: where an epoch's time goes, case by case.
scale: time and memory from ten thousand to a million nodes.
costs: refit the formula by which sweeps estimate runs that were never measured.
"""
