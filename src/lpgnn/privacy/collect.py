"""Collection: the one step from the clean graph to what the server holds."""

import math

import torch

from lpgnn.data.graph import Graph, Topology
from lpgnn.data.splits import Split
from lpgnn.errors import InputError
from lpgnn.privacy.features import Feature
from lpgnn.privacy.label_mechanism import ExactLabels, LabelMechanism
from lpgnn.privacy.mechanism import FeatureMechanism
from lpgnn.privacy.reports import Collected


def collect(
    graph: Graph,
    split: Split,
    *,
    feature: Feature | None,
    mechanism: FeatureMechanism | None,
    label_mechanism: LabelMechanism | None,
    features_generator: torch.Generator,
    labels_generator: torch.Generator,
) -> Collected:
    """Have every node report its features, and every labelled node its label.

    The mechanisms are bound to their budgets; None is a budget of inf: sent as it is.
    ``feature=None`` asks for no features at all.
    """
    if feature is not None and not feature.spends_budget:
        mechanism = None
    reports = None
    if feature is not None:
        reports = feature.reports(graph, mechanism, generator=features_generator)
        if mechanism is not None and not reports.is_finite:
            raise InputError("mechanism", mechanism.name, "must report finite numbers")
    labels = label_mechanism or ExactLabels(math.inf, graph.num_classes)
    # Copies throughout: a later change of a clean tensor must not reach the server.
    return Collected(
        topology=Topology(graph.topology.indptr.clone(), graph.topology.indices.clone()),
        features=reports,
        labels=labels.collect(graph.labels, split.train | split.val, generator=labels_generator),
        train_mask=split.train.clone(),
        val_mask=split.val.clone(),
        x_eps=mechanism.epsilon if mechanism else math.inf,
        y_eps=labels.epsilon,
        parameters=mechanism.parameters() if mechanism else {},
    )
