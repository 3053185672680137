"""Collection: the one step from the clean graph to what the server holds."""

import dataclasses
import math

import torch
from torch import Tensor

from lpgnn.data.graph import Graph, Topology
from lpgnn.data.sparse import CsrMatrix
from lpgnn.data.splits import Split
from lpgnn.errors import InputError
from lpgnn.privacy.labels import RandomizedResponse
from lpgnn.privacy.mechanisms import FeatureMechanism
from lpgnn.privacy.reports import Collected, FeatureReports

FEATURES = ("raw", "blank", "ones", "ohd", "rnd", "none")


def collect(
    graph: Graph,
    split: Split,
    mechanism: FeatureMechanism | None,
    y_eps: float,
    *,
    features_generator: torch.Generator,
    labels_generator: torch.Generator,
    feature: str = "raw",
) -> Collected:
    """Have every node report its features, and every labelled node its label.

    ``mechanism=None`` is x_eps = inf: features are sent as they are.  "blank" sends what users
    would send if all of them had the same features: reports that cost the budget and hold nothing.
    Any other ``feature`` than "raw" replaces the private features by a stand-in of the same width d
    that costs no privacy (paper Table "features"), and no mechanism is applied: all-one vectors,
    the one-hot degree, uniform random numbers, or "none" where features are not looked at.
    """
    if feature not in FEATURES:
        raise InputError("feature", feature, f"must be one of {', '.join(FEATURES)}")
    if feature == "blank":
        if mechanism is None:
            raise InputError("feature", feature, "needs a mechanism: a finite x_eps")
        blank = _zeros(graph.num_nodes, graph.feature_dim)
        reports = _perturbed(blank, mechanism, generator=features_generator)
    elif feature != "raw":
        mechanism = None
        reports = _stand_in(feature, graph, generator=features_generator)
    elif graph.features is None:
        raise InputError(
            "feature",
            feature,
            f"needs private features, which {graph.name} does not have here; "
            "allowed: blank, ones, ohd, rnd",
        )
    elif mechanism is None:
        reports = FeatureReports(_copy(graph.features), scale=1.0, offset=0.0)
    else:
        reports = _perturbed(graph.features, mechanism, generator=features_generator)

    labelled = split.train | split.val
    response = RandomizedResponse(y_eps, graph.num_classes)
    labels = torch.full_like(graph.labels, -1)
    labels[labelled] = response.perturb(graph.labels[labelled], generator=labels_generator)

    # Copies throughout: a later change of a clean tensor must not reach the server.
    return Collected(
        topology=Topology(graph.topology.indptr.clone(), graph.topology.indices.clone()),
        features=reports,
        labels=labels,
        train_mask=split.train.clone(),
        val_mask=split.val.clone(),
        num_classes=graph.num_classes,
        x_eps=mechanism.epsilon if mechanism else math.inf,
        y_eps=y_eps,
        alpha=mechanism.alpha if mechanism else 0.0,
        beta=mechanism.beta if mechanism else 1.0,
        parameters=mechanism.parameters() if mechanism else {},
    )


def _perturbed(
    features: CsrMatrix, mechanism: FeatureMechanism, *, generator: torch.Generator
) -> FeatureReports:
    """Every node's report, with the public size of its noise."""
    reports = mechanism.perturb(features, generator=generator)
    return dataclasses.replace(reports, magnitude=mechanism.magnitude())


def _stand_in(feature: str, graph: Graph, *, generator: torch.Generator) -> FeatureReports:
    """Features made of the public topology or of nothing at all.  -> [N, d]

    The magnitude is the root mean square of their entries, which are public.
    """
    n, d = graph.num_nodes, graph.feature_dim
    if feature == "rnd":
        drawn = torch.rand(n, d, generator=generator)
        return FeatureReports(drawn, scale=1.0, offset=0.0, magnitude=math.sqrt(1 / 3))
    if feature == "ones":  # 1 * 0 + 1, without N x d entries
        return FeatureReports(_zeros(n, d), scale=1.0, offset=1.0, magnitude=1.0)
    if feature == "none":
        return FeatureReports(_zeros(n, d), scale=1.0, offset=0.0)
    degree = _degree(graph.topology).clamp_(max=d - 1)
    one_hot = CsrMatrix(torch.arange(n + 1), degree, torch.ones(n), (n, d))
    return FeatureReports(one_hot, scale=1.0, offset=0.0, magnitude=math.sqrt(1 / d))


def _zeros(n: int, d: int) -> CsrMatrix:
    none = torch.zeros(0, dtype=torch.int64)
    return CsrMatrix(torch.zeros(n + 1, dtype=torch.int64), none, torch.zeros(0), (n, d))


def _degree(topology: Topology) -> Tensor:
    """Neighbours of each node, itself not counted.  -> [N] int64"""
    return topology.without_self_loops().indptr.diff()


def _copy(matrix: CsrMatrix) -> CsrMatrix:
    return CsrMatrix(
        matrix.indptr.clone(), matrix.indices.clone(), matrix.values.clone(), matrix.shape
    )
