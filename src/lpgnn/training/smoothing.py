"""Last step of the residual learner: predictions that heed private labels and neighbours."""

import torch
from torch import Tensor

from lpgnn.privacy import Collected, RandomizedResponse
from lpgnn.propagation import Operator


def smoothed(logits: Tensor, collected: Collected, operator: Operator, steps: int) -> Tensor:
    """Probabilities of the classes after ``steps`` lazy steps over the graph.  [c, N] -> [c, N]

    A labelled node first learns from its own report: p(y|x, y') ~ p(y|x) p(y'|y), Bayes' rule with
    the randomized response's probabilities.  A step then replaces p by (p + P p) / 2.
    """
    p = with_reports(logits.softmax(0), collected)
    for _ in range(steps):
        p = (p + operator.propagate_classes(p[None])[0]) / 2
    return p


def with_reports(p: Tensor, collected: Collected) -> Tensor:
    """p(y|x, y') from p(y|x) where there is a report y'.  [c, N] -> [c, N]"""
    response = RandomizedResponse(collected.y_eps, collected.num_classes)
    labels = collected.labels.to(p.device)
    likelihood = torch.full_like(p, response.flip_probability())
    likelihood.scatter_(0, labels.clamp(min=0)[None], response.keep_probability())
    likelihood = torch.where(labels >= 0, likelihood, 1.0)
    joint = p * likelihood
    total = joint.sum(0)
    # A clean label that the model holds for impossible says nothing that a number can carry.
    return torch.where(total > 0, joint / total.clamp(min=torch.finfo(p.dtype).tiny), p)
