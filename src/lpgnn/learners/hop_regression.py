"""Logistic regression on what each hop has reported: the plainest use of private features."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lpgnn.errors import InputError
from lpgnn.learners.label_propagation import LabelScores, outcome_of, report_losses
from lpgnn.learners.learner import Learner, Outcome, Run, Server
from lpgnn.privacy import Collected
from lpgnn.propagation import Aggregator, KProp, PreparedGraph
from lpgnn.propagation.operators import AGGREGATORS

_RIDGES = (10.0, 1.0, 0.1, 0.01, 0.001, 0.0001)

_MOST_HOPS = 16  # every hop costs as many inputs as there are features
_ROUNDING = 1e-6  # of numbers that were float32


@dataclass(frozen=True)
class HopRegression(Learner):
    """Multinomial logistic regression on the reports of every hop and on neighbours' labels.

    A node's inputs are the rows of X', P X', .., P^hops X' and of P Y', each column brought to
    mean 0 and variance 1.  Y' are the unbiased estimates of the training nodes' labels; P is
    without self-loops, so that a node's own label is no input of its own.  Trained by forward
    correction, under the ridge with the lowest loss on the validation nodes' reports.
    """

    name: ClassVar[str] = "hop_regression"
    uses_network: ClassVar[bool] = False
    reads_reports: ClassVar[bool] = True

    hops: int = 2
    aggregator: Aggregator = "gcn"

    def __post_init__(self) -> None:
        whole = isinstance(self.hops, int) and not isinstance(self.hops, bool)
        if not whole or not 0 <= self.hops <= _MOST_HOPS:
            raise InputError("hops", self.hops, f"must be a whole number in [0, {_MOST_HOPS}]")
        if self.aggregator not in AGGREGATORS:
            allowed = f"must be one of {', '.join(AGGREGATORS)}"
            raise InputError("aggregator", self.aggregator, allowed)

    def report_columns(self, num_features: int) -> int:
        return (self.hops + 1) * num_features

    def fit(self, runs: Sequence[Run], server: Server) -> list[Outcome]:
        outcomes = [
            outcome_of(self.scores(run.collected, server.graph), run.collected) for run in runs
        ]
        if server.on_epoch is not None:
            server.on_epoch()
        return outcomes

    def scores(self, collected: Collected, graph: PreparedGraph) -> LabelScores:
        """The logits of all nodes under the last ridge that has lowered the validation loss."""
        device = graph.backend.device
        x = self.inputs(collected, graph)  # [N, w + 1]
        train, val = collected.train_mask.to(device), collected.val_mask.to(device)
        reports = collected.labels.likelihood.to(device, torch.float64)  # [c, N]
        weights = x.new_zeros(x.shape[1], collected.num_classes)
        best = LabelScores(x.new_zeros(reports.shape), "none", math.inf)
        for ridge in _RIDGES:
            weights = regress(x[train], reports[:, train], ridge, weights)
            loss = float(report_losses((x[val] @ weights).t(), reports[:, val]).mean())
            if not loss < best.loss:
                break
            best = LabelScores((x @ weights).t().to(torch.float32), f"ridge {ridge:g}", loss)
        return best

    def inputs(self, collected: Collected, graph: PreparedGraph) -> Tensor:
        """The standardised columns, and ones.  -> [N, w + 1]"""
        x = standardised(self.columns(collected, graph))
        return torch.cat([x, x.new_ones(x.shape[0], 1)], dim=1)

    def columns(self, collected: Collected, graph: PreparedGraph) -> Tensor:
        """What every hop has reported, and neighbours' labels.  -> [N, w] float64

        There are hops + 1 columns for each feature, and one for each class.
        """
        assert collected.features is not None
        operator = graph.kprop(self.aggregator)
        x = KProp(steps=0).features([collected.features], graph).dense()  # [1, N, d]
        found = [x[0]]
        for _ in range(self.hops):
            x = operator.propagate(x)
            found.append(x[0])
        known = collected.labels.estimate * collected.train_mask
        sent = known.to(graph.backend.device)[None]  # [1, c, N]
        found.append(operator.propagate_classes(sent)[0].t())
        return torch.cat(found, dim=1).to(torch.float64)


def standardised(x: Tensor) -> Tensor:
    """Columns of mean 0 and variance 1; what varies by rounding alone becomes 0.  [N, w]"""
    size = x.square().mean(0).sqrt()
    x = x - x.mean(0)
    deviation = x.square().mean(0).sqrt()
    return x / torch.where(deviation > _ROUNDING * size, deviation, torch.inf)


def regress(x: Tensor, reports: Tensor, ridge: float, start: Tensor) -> Tensor:
    """Minimise the mean of -log p(report | x) + ridge / 2 ||w||^2, the last row of w left out.

    x: [L, w], its last column ones; reports: p(report | class) [c, L]; start: [w, c] -> [w, c]
    """
    weights = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [weights], max_iter=200, tolerance_grad=1e-7, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        size = weights[:-1].square().sum()
        value = report_losses((x @ weights).t(), reports).mean() + ridge / 2 * size
        value.backward()
        return value

    optimizer.step(closure)
    return weights.detach()
