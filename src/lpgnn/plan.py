"""The resolved plan of a run, for its reader."""

import math

from lpgnn.config import Configuration, Settings
from lpgnn.data import statistics
from lpgnn.experiment import build_mechanism, load_dataset, total_budget


def describe(configuration: Configuration, settings: Settings, *, missing: tuple[int, ...]) -> str:
    """What will be computed, from the graph to the hyper-parameters and where they came from."""
    c = configuration
    graph = load_dataset(c, settings.data_dir)
    s = statistics(graph)
    mechanism = build_mechanism(c, graph.feature_dim)
    if c.feature == "none":
        reports = "not asked for"
    elif c.feature == "blank":
        reports = f"the same for every node, through {c.mechanism.name} at x_eps = {c.x_eps:g}"
    elif c.feature != "raw":
        reports = f"{c.feature} instead of private features: no budget spent on features"
    elif mechanism is None:
        reports = "sent as they are (x_eps = inf)"
    else:
        public = ", ".join(f"{key} = {value:.6g}" for key, value in mechanism.parameters().items())
        reports = f"{c.mechanism.name} at x_eps = {c.x_eps:g} ({public})"
    if c.conditioning != "none":
        reports += f"; conditioned by {c.conditioning}"
    labels = "sent as they are (y_eps = inf)"
    if math.isfinite(c.y_eps):
        labels = f"randomized response at y_eps = {c.y_eps:g}"
    spent = total_budget(c)
    delta = getattr(mechanism, "delta", None)
    budget = f"{spent:g} a node" + (f", delta = {delta:g}" if delta else "")
    if math.isinf(c.y_eps) or (c.feature == "raw" and math.isinf(c.x_eps)):
        budget += "; what is sent as it is has no privacy"
    todo = f"{settings.repeats - len(missing)} of {settings.repeats} repeats done"
    lines = {
        "graph": f"{graph.name}: {s.num_nodes:,} nodes, {s.num_edges:,} edges, "
        f"{s.num_features:,} features ({graph.feature_dim:,} not constant), "
        f"{s.num_classes} classes, average degree {s.average_degree:.2f}",
        "features": reports,
        "labels": labels,
        "total budget": budget,
        "model": f"{c.backbone.name}, hidden {c.hidden_dim}, learner {c.learner.name}, "
        f"K_x = {c.x_steps}, K_y = {c.y_steps} ({c.aggregator})",
        "training": f"learning rate {c.learning_rate:g}, weight decay {c.weight_decay:g}, "
        f"dropout {c.dropout:g}, {c.max_epochs} epochs",
        "origin": c.origin or "all given",
        "identity": f"{c.identity} (seed {c.seed}, {c.split} split); {todo}",
    }
    if c.learner.name == "propagation":
        options = c.learner.all_options("learner")
        lines["model"] = f"none: debiased labels, {options['walk']} walk, {options['combine']}"
        del lines["training"], lines["origin"]
    return "\n".join(f"{name:>13}  {text}" for name, text in lines.items())
