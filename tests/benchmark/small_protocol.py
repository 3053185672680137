"""A protocol that a test can afford: three repeats of three epochs on 300 nodes."""

import math

from lpgnn.benchmark.protocol import Protocol

PROTOCOL = Protocol(
    metrics={"sbm": "balanced_acc"},
    x_eps=(0.1, 1.0),
    y_eps=(1.0, math.inf),
    repeats=3,
    seed=0,
    settings={
        "dataset.num_nodes": 300,
        "dataset.num_features": 60,
        "filter": "conditioned",
        "learner": "drop",
        "max_epochs": 3,
    },
    exact_labels={"learner": "cross_entropy"},
    trials=3,
    collections=2,
    search_at={"x_eps": 1},
    search={
        "learning_rate": [0.1, 0.01],
        "weight_decay": [0.0],
        "dropout": [0.0, 0.5],
        "filter.steps": [1, 2, 4],
        "learner.steps": [1, 2],
    },
)
