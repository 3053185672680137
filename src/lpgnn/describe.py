"""Configurations in words: a label of one line, and the plan of a run."""

import dataclasses
import math

from lpgnn.components import Component
from lpgnn.config import Configuration
from lpgnn.privacy.collection import ReceivedReports


def label(configuration: Configuration) -> str:
    """A configuration in a few words."""
    c = configuration
    learner = _short(c.learner)
    if c.protocol is not None and c.feature is not None:
        labels = f"y_eps={c.y_eps:g}"
        if c.label_mechanism is not None:
            labels = f"{_short(c.label_mechanism)} {labels}"
        asked = f"{c.feature.name} {_short(c.protocol)} x_eps={c.x_eps:g}"
        return f"{c.dataset.name} {asked} {labels} {learner}"
    if c.feature is None:
        return f"{c.dataset.name} labels only y_eps={c.y_eps:g} {learner}"
    reports = c.feature.name
    if c.mechanism is not None:
        mechanism = _short(c.mechanism)
        reports = mechanism if c.feature.reads_features else f"{reports} {mechanism}"
    labels = f"y_eps={c.y_eps:g}"
    if c.label_mechanism is not None:
        labels = f"{_short(c.label_mechanism)} {labels}"
    backbone, filter_ = (_short(one) if one is not None else "" for one in (c.backbone, c.filter))
    parts = (c.dataset.name, backbone, reports, f"x_eps={c.x_eps:g}", labels, filter_, learner)
    return " ".join(part for part in parts if part)


def describe(configuration: Configuration) -> str:
    """What will be computed, from the graph to the hyper-parameters and where they came from."""
    c, g = configuration, configuration.graph
    lines = {
        "graph": f"{c.dataset.name}: {g.num_nodes:,} nodes, {g.num_edges:,} edges, "
        f"{g.raw_num_features:,} features ({g.num_features:,} not constant), "
        f"{g.num_classes} classes, average degree {g.average_degree:.2f}{_unlabelled(c)}",
        **({"reports": c.dataset.describe()} if isinstance(c.dataset, ReceivedReports) else {}),
        "features": _features(c),
        **({"ranges": g.ranges} if c.feature is not None and c.feature.reads_features else {}),
        "labels": _labels(c),
        "total budget": _budget(c),
    }
    learner = _with_options(c.learner.name, c.learner.options())
    if c.filter is not None and c.backbone is not None:
        lines |= {
            "filter": _with_options(c.filter.name, c.filter.options()),
            "model": f"{_with_options(c.backbone.name, c.backbone.options())}, "
            f"hidden {c.hidden_dim}, learner {learner}",
            "training": f"learning rate {c.learning_rate:g}, weight decay {c.weight_decay:g}, "
            f"dropout {c.dropout:g}, {c.max_epochs} epochs",
            "origin": c.origin or "all given",
        }
    else:
        lines["model"] = f"none: {learner}"
    split = f"split {g.splits}" + ("" if c.split == "random" else f", {c.split}")
    lines["identity"] = f"{c.identity} (seed {c.seed}, {split})"
    return "\n".join(f"{name:>13}  {text}" for name, text in lines.items())


def _short(component: Component) -> str:
    """The name, and the options that are not at their defaults."""
    defaults = {f.name: f.default for f in dataclasses.fields(component)}
    shown = {
        key: value
        for key, value in component.options().items()
        if value != defaults.get(key) and value != "none"
    }
    return _with_options(component.name, shown)


def _with_options(name: str, options: dict[str, object]) -> str:
    shown = ", ".join(f"{key}={value}" for key, value in options.items())
    return f"{name} ({shown})" if shown else name


def _unlabelled(c: Configuration) -> str:
    count = c.graph.num_unlabelled
    return f", {count:,} nodes without a label" if count else ""


def _features(c: Configuration) -> str:
    if c.feature is None:
        return "not asked for"
    if c.protocol is not None:
        asked = _with_options(c.protocol.name, c.protocol.options())
        return f"{c.feature.name}, asked for in rounds: {asked} at x_eps = {c.x_eps:g}"
    if c.mechanism is None:
        return c.feature.describe()
    bound = c.mechanism.bind(c.x_eps, c.graph.num_features)
    public = ", ".join(f"{key} = {value:.6g}" for key, value in bound.parameters().items())
    source = "" if c.feature.reads_features else f"{c.feature.name} ones through "
    return f"{source}{c.mechanism.name} at x_eps = {c.x_eps:g} ({public})"


def _labels(c: Configuration) -> str:
    if c.label_mechanism is None:
        return "sent as they are (y_eps = inf)"
    bound = c.label_mechanism.bind(c.y_eps, c.graph.num_classes)
    public = ", ".join(f"{key} = {value:.4g}" for key, value in bound.parameters().items())
    return f"{c.label_mechanism.name} at y_eps = {c.y_eps:g}" + (f" ({public})" if public else "")


def _budget(c: Configuration) -> str:
    if math.isinf(c.total_budget):
        return "unbounded: what is sent as it is has no privacy"
    delta = (c.mechanism.options().get("delta") if c.mechanism else None) or 0
    exactly = f"{c.total_budget:g} per node" + (f", delta = {delta:g}" if delta else "")
    if isinstance(c.dataset, ReceivedReports):
        return f"{exactly} (drawn by the clients, not here)"
    inexact = c.mechanism.name if c.mechanism and c.mechanism.in_floating_point else ""
    if inexact or c.asks:
        exactly += f", as far as floating point is exact: {inexact or 'privunit'} is drawn in it"
    if c.feature is not None and c.feature.spends_budget and not c.feature.reads_features:
        exactly += f", of which {c.feature.name} reports need none: they read nothing private"
    return f"{exactly} (simulated: not cryptographic randomness)"
