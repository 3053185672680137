import csv
import dataclasses
import importlib
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import models.pyg  # noqa: F401  # past the warnings of torch-geometric's import
from lpgnn import config
from lpgnn.components import Component
from lpgnn.config import (
    KINDS,
    SELECTIONS,
    Settings,
    component_name,
    component_names,
    configuration_of,
    make_component,
)
from lpgnn.data import BlockModel, Cora, graph_facts
from lpgnn.describe import describe, label
from lpgnn.errors import InputError
from lpgnn.hyperparameters import conf_dir
from lpgnn.learners import RULES, Drop, LabelPropagation, Residual
from lpgnn.models import GAT, TorchModule
from lpgnn.privacy import AnalyticGaussian, Laplace, MultiBit, OneRound, TwoRound
from lpgnn.propagation import KProp
from small_run import SMALL_GRAPH, PlainSage, Ring, RoundedNoise, ring, small

INF = math.inf
ROWS = Path(__file__).parents[1] / "results" / "rows"

NOT_SCIENCE: dict[str, Any] = {
    "data_dir": "elsewhere",
    "results_dir": "elsewhere",
    "device": "cpu",
    "kernels": "torch",
    "repeats": 3,
    "selection": "paper",
    "metric": "macro_f1",
    "metrics": {"acc": "lpgnn.rows.metrics.accuracy"},
    "save": ["weights"],
    "logger": "mlflow",
    "force": True,
    "workers": 3,
    "time_limit": 60.0,
    "dry_run": True,
}
SCIENCE: dict[str, Any] = {
    "dataset": "cora",
    "feature": "ones",
    "mechanism": "lp",
    "label_mechanism": {"_target_": "small_run.OwnResponse"},
    "filter": KProp(steps=3),
    "backbone": "gcn",
    "learner": "forward",
    "x_eps": 2.0,
    "y_eps": 2.0,
    "learning_rate": 0.02,
    "weight_decay": 0.02,
    "dropout": 0.3,
    "max_epochs": 50,
    "hidden_dim": 8,
    "seed": 1,
    "split": "fixed",
}


def identity(**settings: Any) -> str:
    return small(**settings).identity


def choice(kind: str, component: Any) -> dict[str, Any]:
    """Settings that use a component; a protocol that asks needs a learner that does."""
    asks = kind == "protocol" and not isinstance(component, OneRound)
    return {kind: component, "learner": "two_round"} if asks else {kind: component}


def default_options(kind: str, name: str) -> tuple[type[Component], dict[str, Any]]:
    """The class behind a choice of conf/, and its options as that file gives them."""
    component = make_component(kind, name)
    return type(component), component.options()


# Those without a value that only a user can give.
CHOICES = [
    (kind, name)
    for kind in KINDS
    for name in component_names(kind)
    if "???" not in (conf_dir() / kind / f"{name}.yaml").read_text()
]


@pytest.mark.parametrize(("kind", "name"), CHOICES, ids=[f"{k}={n}" for k, n in CHOICES])
def test_the_defaults_in_code_and_in_conf_are_the_same(kind: str, name: str) -> None:
    found, options = default_options(kind, name)
    if (kind, name) == ("filter", "conditioned"):
        assert options.pop("conditioning") == "node"  # all that it is for
    defaults = found().options()
    assert options == {key: defaults[key] for key in options}
    assert make_component(kind, name.upper()) == make_component(kind, name)
    assert issubclass(found, KINDS[kind])
    if name != "conditioned":
        assert found.name == name


def copied_conf(folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: str) -> None:
    """Use a copy of conf/ with other files in place of some."""
    import shutil

    shutil.copytree(conf_dir(), folder / "conf")
    for path, text in changes.items():
        (folder / "conf" / path).write_text(text)
    monkeypatch.setattr(config, "conf_dir", lambda: folder / "conf")
    config._named_component.cache_clear()
    monkeypatch.setattr(config, "_named_component", config._named_component.__wrapped__)


def test_defaults_are_those_of_the_code_whatever_a_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edited default is another computation, and the old one keeps its identity."""
    by_name = {
        "mechanism": identity(mechanism="ag"),
        "learner": identity(learner="residual"),
    }
    by_class = {
        "mechanism": identity(mechanism=AnalyticGaussian()),
        "learner": identity(learner=Residual()),
    }
    assert by_name == by_class
    copied_conf(
        tmp_path,
        monkeypatch,
        **{
            "mechanism/ag.yaml": "_target_: lpgnn.privacy.AnalyticGaussian\ndelta: 1.0e-3\n",
            "learner/residual.yaml": "_target_: lpgnn.learners.Residual\nsmooth: 40\n",
        },
    )
    assert identity(mechanism="ag") == identity(mechanism=AnalyticGaussian(delta=1e-3))
    assert identity(learner="residual") == identity(learner=Residual(smooth=40))
    assert identity(mechanism="ag") != by_name["mechanism"]
    assert identity(learner="residual") != by_name["learner"]
    assert identity(mechanism=AnalyticGaussian()) == by_class["mechanism"]
    assert identity(learner=Residual()) == by_class["learner"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"x_eps": 1}, {"x_eps": 1.0}),
        ({"learning_rate": 1}, {"learning_rate": 1.0}),
        ({"dataset": BlockModel(average_degree=4)}, {"dataset": BlockModel(average_degree=4.0)}),
        ({"mechanism": Laplace(alpha=0)}, {"mechanism": Laplace(alpha=0.0)}),
        ({"dataset": "SBM"}, {"dataset": "sbm"}),
        ({"dataset": "sbm"}, {"dataset": {"_target_": "lpgnn.data.BlockModel"}}),
        ({"backbone": "gat"}, {"backbone": {"_target_": "lpgnn.models.GAT", "heads": 4}}),
        ({"mechanism": "ag"}, {"mechanism": AnalyticGaussian(delta=1e-10)}),
        ({"mechanism": "mb"}, {"mechanism": MultiBit()}),
        ({"filter": "conditioned"}, {"filter": KProp(conditioning="node")}),
        ({"filter": "kprop"}, {"filter": KProp(conditioning="none")}),
    ],
    ids=str,
)
def test_one_computation_has_one_identity(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert Settings(**one).resolve().identity == Settings(**other).resolve().identity


def test_options_of_conf_are_numbers_where_they_stand_for_numbers() -> None:
    """YAML 1.1 takes 1e-10 for a text, Hydra for a number: both ways in must find a number."""
    assert default_options("mechanism", "ag")[1]["delta"] == 1e-10


@pytest.mark.parametrize("name", ["MB", "1B", "LP", "AG"])
def test_mechanism_names_are_accepted_in_upper_case(name: str) -> None:
    mechanism = Settings(mechanism=name).resolve().mechanism
    assert mechanism is not None
    assert mechanism.name == name.lower()


def test_the_rules_of_selection_are_those_of_the_learners() -> None:
    assert tuple(RULES) == SELECTIONS


def test_every_field_is_science_or_is_not() -> None:
    fields = {field.name for field in dataclasses.fields(Settings)}
    # tests/wire: reports and labels stand for a dataset and what it prescribes; a protocol goes
    # with its learner, and is changed with it below.
    assert fields == {*SCIENCE, *NOT_SCIENCE, "hparams", "reports", "labels", "protocol"}
    assert not set(SCIENCE) & set(NOT_SCIENCE)


@pytest.mark.parametrize("name", SCIENCE)
def test_the_identity_depends_on_every_scientific_field(name: str) -> None:
    assert identity(**{name: SCIENCE[name]}) != identity()


@pytest.mark.parametrize("name", NOT_SCIENCE)
def test_the_identity_depends_on_nothing_else(name: str) -> None:
    assert identity(**{name: NOT_SCIENCE[name]}) == identity()


# Another value of every option that a component of conf/ has.
OTHER_VALUES: dict[str, Any] = {
    **{"num_nodes": 301, "average_degree": 4.5, "num_classes": 5, "num_features": 91},
    **{"homophily": 0.5, "features_per_node": 9.0, "feature_signal": 0.3, "seed": 7},
    **{"degree_exponent": 2.5, "alpha": -0.5, "beta": 1.5, "delta": 1e-3, "num_samples": 2},
    **{"sample_rule": "exact", "norm_bound": 2.5, "estimate": "em", "subset_size": 2},
    **{"prior": (0.4, 0.3, 0.2, 0.1), "pilot_share": 0.5, "shares": "equal"},
    **{"steps": 3, "aggregator": "mean", "conditioning": "scale", "heads": 2, "smooth": 40},
    **{"mu": 0.5, "theta": (0.0, 1.0), "q": 0.5, "log_zero": -9.0, "weight": 1.0},
    **{"momentum": 0.9, "clusters": 4, "threshold": 0.9, "consistency": 0.2},
    **{"down_weight": 0.2, "ramp": 50, "share": 0.3, "cells": 4, "evidence": "in_sample"},
    **{"first": "labelled"},
    **{"hops": 3},
    **{
        "refit": True,
        "split": "own",
        "module": "torch_geometric.nn.models.GCN",
        "arguments": {"act": "tanh"},
    },
}
OPTIONS = [
    (kind, name, option)
    for kind, name in CHOICES
    for option in default_options(kind, name)[1]
    if name not in ("cora", "pubmed", "facebook", "lastfm")
]


def other_value(options: dict[str, Any], option: str) -> Any:
    if option == "walk":
        return "plain" if options["walk"] == "lazy" else "lazy"
    if option == "combine":
        return "one" if options["combine"] == "stack" else "stack"
    if option == "labels":
        return "train" if options["labels"] == "train+val" else "train+val"
    if option == "alpha" and options["alpha"]:  # a weight or a probability, not the end of a range
        return options["alpha"] / 2
    return OTHER_VALUES[option]


@pytest.mark.parametrize(
    ("kind", "name", "option"), OPTIONS, ids=[f"{k}={n}.{o}" for k, n, o in OPTIONS]
)
def test_the_identity_depends_on_every_option(kind: str, name: str, option: str) -> None:
    found, options = default_options(kind, name)
    if option == "first":  # makes no difference where all labels take part
        options |= {"labels": "train"}
    default = SMALL_GRAPH if name == "sbm" else found(**options)
    changed = default.replace(**{option: other_value(options, option)})
    assert identity(**choice(kind, changed)) != identity(**choice(kind, default))


def test_the_options_of_all_components_are_checked() -> None:
    checked = {f"{kind}.{option}" for kind, _, option in OPTIONS}
    for wanted in ("mechanism.delta", "learner.smooth", "backbone.heads", "filter.conditioning"):
        assert wanted in checked
    assert len(OPTIONS) > 30


def test_the_identity_depends_on_the_graph_itself() -> None:
    """On what the graph is, not on the name it goes by or on how it was loaded."""
    graph = SMALL_GRAPH.generate()
    assert identity(dataset=graph) == identity()
    assert identity(dataset=dataclasses.replace(graph, name="renamed")) == identity()
    other = dataclasses.replace(graph, labels=graph.labels.flip(0))
    assert identity(dataset=other) != identity()
    assert small(dataset=graph).graph == graph_facts(graph)


def test_the_identity_depends_on_the_version_of_the_science(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = identity()
    monkeypatch.setattr(config, "SCIENCE_VERSION", config.SCIENCE_VERSION + 1)
    assert identity() != before


PLUG_INS = {
    "mechanism": "@dataclass(frozen=True)\nclass Own(lpgnn.privacy.MultiBit): pass",
    "label_mechanism": "@dataclass(frozen=True)\nclass Own(lpgnn.privacy.RandomizedResponse): pass",
    "filter": "@dataclass(frozen=True)\nclass Own(lpgnn.propagation.KProp): pass",
    "backbone": "@dataclass(frozen=True)\nclass Own(lpgnn.models.GraphSAGE): pass",
    "learner": "@dataclass(frozen=True)\nclass Own(lpgnn.learners.Drop): pass",
    "feature": "@dataclass(frozen=True)\nclass Own(lpgnn.privacy.RawFeatures): pass",
    "protocol": "@dataclass(frozen=True)\nclass Own(lpgnn.privacy.TwoRound): pass",
}


@pytest.mark.parametrize("kind", PLUG_INS)
def test_the_identity_depends_on_the_source_of_a_plug_in(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    packages = "lpgnn.learners, lpgnn.models, lpgnn.privacy, lpgnn.propagation"
    modules = f"from dataclasses import dataclass\nimport {packages}\n"
    found = []
    for number, comment in enumerate(("", "", "# edited\n")):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / f"plug_in_{kind}.py").write_text(f"{modules}{PLUG_INS[kind]}\n{comment}")
        monkeypatch.syspath_prepend(folder)
        sys.modules.pop(f"plug_in_{kind}", None)
        importlib.invalidate_caches()
        configuration = small(**choice(kind, {"_target_": f"plug_in_{kind}.Own"}))
        found.append(configuration.identity)
        options = json.loads(configuration.columns()["options"])
        assert options[f"{kind}._target_"] == f"plug_in_{kind}.Own"
        assert len(options[f"{kind}.source"]) == 12
    assert found[0] == found[1]
    assert found[2] not in (found[0], identity())


def test_the_protocol_is_the_one_that_the_learner_needs() -> None:
    """Who names none gets it; one round is no part of an identity, as before there were others."""
    assert identity(protocol="one_round") == identity()
    assert small().protocol is None
    assert small().columns()["protocol"] == "one_round"
    asking = small(learner="two_round")
    assert asking.protocol == TwoRound()
    assert asking.identity == identity(learner="two_round", protocol="two_round")
    assert asking.columns()["protocol"] == "two_round"
    assert asking.total_budget == 2.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"protocol": "two_round"}, "protocol=two_round: learner=drop does not go with it"),
        (
            {"learner": "two_round", "protocol": "one_round"},
            "protocol=one_round: learner=two_round",
        ),
        ({"learner": "two_round", "x_eps": INF}, "x_eps=inf: must be finite"),
        ({"learner": "two_round", "feature": "ones"}, "feature=ones: .*raw or blank"),
    ],
    ids=str,
)
def test_what_does_not_go_with_a_protocol_is_refused(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        small(**settings)


def test_the_identity_depends_on_the_source_behind_a_torch_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for number, comment in enumerate(("", "# edited\n")):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "own_network.py").write_text(
            f"import torch\nclass Network(torch.nn.Linear): pass\n{comment}"
        )
        monkeypatch.syspath_prepend(folder)
        sys.modules.pop("own_network", None)
        importlib.invalidate_caches()
        found.append(identity(backbone=TorchModule(module="own_network.Network")))
    assert found[0] != found[1]


def test_the_identity_depends_on_values_not_on_the_table_they_come_from(tmp_path: Path) -> None:
    copy = tmp_path / "mine.yaml"
    copy.write_text((conf_dir() / "hyperparameters" / "paper.yaml").read_text())
    mine = small(hparams=str(copy))
    assert mine.identity == identity()
    assert str(copy) in mine.origin  # but the reader is told
    given = small(
        filter=KProp(steps=2),
        learner=Drop(steps=8),
        learning_rate=0.01,
        weight_decay=0.001,
        dropout=0.5,
    )
    assert given.identity == mine.identity
    assert given.origin == ""


def test_what_is_given_wins_over_the_table() -> None:
    table = small()
    assert table.origin == (
        "paper table, as cora: learner.steps, filter.steps, learning_rate, weight_decay, dropout"
    )
    one = small(dropout=0.1, filter=KProp(steps=5))
    assert (one.dropout, one.filter) == (0.1, KProp(steps=5, conditioning="none"))
    assert (one.learning_rate, one.learner) == (table.learning_rate, table.learner)
    assert one.origin == "paper table, as cora: learner.steps, learning_rate, weight_decay"


@pytest.mark.parametrize(
    ("degree", "tabulated"), [(4, "cora"), (5, "pubmed"), (7, "lastfm"), (15, "facebook")]
)
def test_a_graph_of_ones_own_takes_the_values_of_the_nearest_average_degree(
    degree: int, tabulated: str
) -> None:
    own = Settings(dataset=Ring(degree=degree), y_eps=2.0).resolve()
    assert own.graph.average_degree == degree
    assert own.origin.startswith(f"paper table, as {tabulated}: ")
    published = Settings(dataset=tabulated, y_eps=2.0).resolve(fetch=False)
    for name in ("filter", "learner", "learning_rate", "weight_decay", "dropout"):
        assert getattr(own, name) == getattr(published, name), name
    for same in (
        Settings(dataset=ring(Path(), degree=degree), y_eps=2.0),
        Settings(dataset={"_target_": "small_run.ring", "degree": degree}, y_eps=2.0),
    ):
        assert same.resolve().identity == own.identity


def test_a_learner_brings_its_own_defaults() -> None:
    residual = Settings(dataset="cora", learner="residual").resolve()
    assert residual.max_epochs == 200
    assert residual.filter == KProp(steps=16, conditioning="node")
    assert residual.learning_rate == 0.0003
    assert residual.origin.startswith("residual table, as lastfm: filter.steps, ")
    assert Settings(dataset="cora").resolve().max_epochs == 500


def test_what_is_given_wins_over_what_a_learner_suggests() -> None:
    given: dict[str, Any] = {"dataset": "cora", "learner": "residual"}
    assert Settings(**given, max_epochs=7).resolve().max_epochs == 7
    paper = Settings(**given, hparams="paper").resolve()
    assert paper.origin.startswith("paper table, as cora")
    assert paper.learning_rate == 0.01
    for conditioning in ("none", "scale"):
        found = Settings(**given, filter=KProp(conditioning=conditioning)).resolve().filter
        assert found == KProp(steps=16, conditioning=conditioning)


def test_drop_without_a_step_is_forward_correction() -> None:
    dropped = small(learner=Drop(steps=0))
    assert dropped.learner.name == "forward"
    assert dropped == small(learner="forward")


@pytest.mark.parametrize("learner", ["drop", "forward", "cross_entropy"])
def test_without_label_noise_learners_agree(learner: str) -> None:
    configuration = small(learner=learner, y_eps=INF)
    assert configuration.learner.name == "cross_entropy"
    assert configuration.label_mechanism is None
    assert configuration.identity == identity(y_eps=INF)


def test_label_steps_that_are_given_are_taken_without_label_noise() -> None:
    assert small(learner=Drop(steps=2), y_eps=INF).learner == Drop(steps=2)


@pytest.mark.parametrize("mechanism", ["mb", "lp", "ag"])
def test_without_perturbation_there_is_no_mechanism(mechanism: str) -> None:
    raw = small(mechanism=mechanism, x_eps=INF)
    assert raw.mechanism is None
    assert raw.columns()["mechanism"] == "none"
    assert raw.identity == identity(x_eps=INF)
    ones = small(mechanism=mechanism, feature="ones", x_eps=0.1)
    assert ones.mechanism is None
    assert ones.x_eps == INF
    assert ones.identity == identity(feature="ones", x_eps=3.0)


def test_the_total_budget_is_the_sum_of_what_is_spent() -> None:
    assert small(x_eps=0.5, y_eps=2.0).total_budget == 2.5
    assert small(feature="ones", x_eps=1.0, y_eps=2.0).total_budget == 2.0
    assert small(learner="label_propagation", y_eps=2.0).total_budget == 2.0
    assert small(feature="blank", x_eps=0.5, y_eps=2.0).total_budget == 2.5


SIMULATED = "(simulated: not cryptographic randomness)"


@pytest.mark.parametrize(
    ("settings", "budget"),
    [
        ({"x_eps": 0.5, "y_eps": 2.0}, f"2.5 per node {SIMULATED}"),
        (
            {"x_eps": 0.5, "y_eps": 2.0, "mechanism": AnalyticGaussian(delta=1e-6)},
            f"2.5 per node, delta = 1e-06 {SIMULATED}",
        ),
        ({"feature": "ones", "y_eps": 2.0}, f"2 per node {SIMULATED}"),
        (
            {"feature": "blank", "x_eps": 1.0, "y_eps": 2.0},
            "3 per node, of which blank reports need none: they read nothing private " + SIMULATED,
        ),
        ({"x_eps": INF, "y_eps": 2.0}, "unbounded: what is sent as it is has no privacy"),
        ({"x_eps": 1.0, "y_eps": INF}, "unbounded: what is sent as it is has no privacy"),
        ({"x_eps": INF, "y_eps": INF}, "unbounded: what is sent as it is has no privacy"),
        ({"feature": "ones", "y_eps": INF}, "unbounded: what is sent as it is has no privacy"),
    ],
    ids=str,
)
def test_a_part_without_privacy_makes_the_budget_unbounded(
    settings: dict[str, Any], budget: str
) -> None:
    assert f" total budget  {budget}\n" in describe(small(**settings))


def test_labels_name_the_class_behind_a_target() -> None:
    own = small(
        mechanism={"_target_": "small_run.RoundedNoise", "size": 2.0},
        backbone={"_target_": "small_run.PlainSage", "width": 3},
    )
    assert label(own) == (
        "sbm PlainSage (width=3) rounded (size=2.0) x_eps=1 rr y_eps=1 kprop (steps=2) "
        "drop (steps=8)"
    )
    plan = describe(own)
    assert "PlainSage (width=3), hidden 16" in plan
    assert "rounded at x_eps = 1 (size = 2)" in plan
    assert own.backbone == PlainSage(width=3)
    assert own.mechanism == RoundedNoise(size=2.0)
    assert (own.columns()["backbone"], own.columns()["mechanism"]) == ("PlainSage", "rounded")


BAD_VALUES: dict[str, list[Any]] = {
    "x_eps": [-1, 0, 0.0, math.nan, -INF, "1", None, True, [1], 1e308],
    "y_eps": [-0.5, 0, math.nan, "much", None],
    "learning_rate": [0, -0.01, math.nan, INF, "fast"],
    "weight_decay": [-0.1, math.nan, INF, "x"],
    "dropout": [1, 1.0, -0.1, math.nan, "0.5", False],
    "max_epochs": [0, -5, 1.5],
    "hidden_dim": [0, 16.0],
    "repeats": [0, -1, 2.5, "ten", None],
    "seed": [-1, 0.5, None],
    "split": ["half", None],
    "selection": ["best", 1],
    "metric": ["f2", None],
    "metrics": [3, None, ["acc"]],
    "save": [["colours"], "predictions,colours"],
    "force": [1, "yes", None],
    "feature": ["raw2", 1, None],
    "learner": ["adam", None],
    "dataset": [3, None, "karate"],
    "mechanism": [3, None, ["mb"], "gauss"],
    "label_mechanism": [3, None, "lp"],
    "filter": [3, None, "prop"],
    "backbone": [3, None, "gin"],
    "hparams": ["no_table", 3, ["paper"], {"a": 1}],
    "data_dir": [None, ["a"], ""],
    "results_dir": [None, ["a"], ""],
    "device": [None, 3, ""],
    "kernels": ["fortran", None],
}
BAD_FIELDS = [(name, value) for name, values in BAD_VALUES.items() for value in values]


def refused(build: Callable[[], Any]) -> InputError:
    """The error of bad input; anything but one InputError of one line is a failure."""
    with pytest.raises(InputError) as caught:
        build()
    assert "\n" not in str(caught.value)
    assert len(caught.value.allowed) > 5
    return caught.value


@pytest.mark.parametrize(
    ("name", "value"), BAD_FIELDS, ids=[f"{name}={value!r}" for name, value in BAD_FIELDS]
)
def test_bad_values_are_refused_by_name(name: str, value: Any) -> None:
    error = refused(lambda: Settings(**{name: value}).resolve())
    assert error.setting == name
    assert str(error).startswith(f"{name}=")


BAD_OPTIONS: list[tuple[str, dict[str, Any], str, str]] = [
    ("dataset", {"_target_": "lpgnn.data.BlockModel", "nodes": 3}, "dataset.nodes", "num_nodes"),
    ("dataset", {"_target_": "lpgnn.data.Cora", "colour": 3}, "dataset.colour", "known: none"),
    ("dataset", {"_target_": "small_run.nothing"}, "dataset._target_", "importable"),
    ("dataset", {"_target_": "no.such.module"}, "dataset._target_", "importable"),
    ("dataset", {"_target_": "small_run.SMALL_GRAPH"}, "dataset._target_", "class or function"),
    ("dataset", {"_target_": "small_run.no_graph"}, "dataset._target_", "return a lpgnn.Graph"),
    ("dataset", {"_target_": "small_run.ring", "width": 3}, "dataset", "'width'"),
    ("dataset", {"_target_": "small_run.PlainSage"}, "dataset._target_", "lpgnn.data.Dataset"),
    ("dataset", {}, "dataset._target_", "must name a class"),
    ("feature", {"_target_": "lpgnn.privacy.Ones", "width": 3}, "feature.width", "known: none"),
    ("mechanism", {"_target_": "lpgnn.privacy.Ones"}, "mechanism._target_", "FeatureMechanism"),
    ("mechanism", {"_target_": "small_run.two_cliques"}, "mechanism._target_", "subclass"),
    ("mechanism", {"_target_": "lpgnn.privacy.MultiBit", "m": 3}, "mechanism.m", "num_samples"),
    (
        "mechanism",
        {"_target_": "lpgnn.privacy.MultiBit", "epsilon": 3.0},
        "mechanism.epsilon",
        "unknown option of mb",
    ),
    (
        "mechanism",
        {"_target_": "lpgnn.privacy.MultiBit", "num_samples": 5000},
        "mechanism.num_samples",
        "1..1433",
    ),
    (
        "mechanism",
        {"_target_": "lpgnn.privacy.AnalyticGaussian", "delta": 0},
        "mechanism.delta",
        "between 0 and 1",
    ),
    (
        "mechanism",
        {"_target_": "lpgnn.privacy.AnalyticGaussian", "delta": "small"},
        "mechanism",
        "not accepted",
    ),
    ("backbone", {"_target_": "lpgnn.models.GAT", "heads": 0}, "backbone.heads", ">= 1"),
    ("backbone", {"_target_": "lpgnn.models.GAT", "heads": "many"}, "backbone.heads", ">= 1"),
    ("backbone", {"_target_": "lpgnn.models.GCN", "colour": 1}, "backbone.colour", "known: none"),
    ("filter", {"_target_": "lpgnn.propagation.KProp", "steps": -1}, "filter.steps", ">= 0"),
    ("filter", {"_target_": "lpgnn.propagation.KProp", "steps": 1.5}, "filter.steps", ">= 0"),
    ("filter", {"_target_": "lpgnn.propagation.KProp", "steps": True}, "filter.steps", ">= 0"),
    (
        "filter",
        {"_target_": "lpgnn.propagation.KProp", "aggregator": "max"},
        "filter.aggregator",
        "one of gcn, mean",
    ),
    (
        "filter",
        {"_target_": "lpgnn.propagation.KProp", "conditioning": "foo"},
        "filter.conditioning",
        "one of none, scale, node",
    ),
    ("learner", {"_target_": "lpgnn.learners.Drop", "steps": -1}, "learner.steps", ">= 0"),
    ("learner", {"_target_": "lpgnn.learners.Drop", "steps": 2.0}, "learner.steps", ">= 0"),
    (
        "learner",
        {"_target_": "lpgnn.learners.Drop", "walk": "lazy"},
        "learner.walk",
        "unknown option of drop; known: refit, steps, aggregator",
    ),
    (
        "learner",
        {"_target_": "lpgnn.learners.ForwardCorrection", "steps": 2},
        "learner.steps",
        "unknown option of forward; known: refit",
    ),
    (
        "learner",
        {"_target_": "lpgnn.learners.CrossEntropy", "steps": 2},
        "learner.steps",
        "unknown option of cross_entropy; known: refit",
    ),
    (
        "learner",
        {"_target_": "lpgnn.learners.LabelPropagation", "walk": "drunk"},
        "learner.walk",
        "one of plain, lazy",
    ),
    (
        "learner",
        {"_target_": "lpgnn.learners.LabelPropagation", "walk": None},
        "learner.walk",
        "one of plain, lazy",
    ),
    (
        "learner",
        {"_target_": "lpgnn.learners.Residual", "walk": ["lazy"]},
        "learner.walk",
        "one of plain, lazy",
    ),
    (
        "learner",
        {"_target_": "lpgnn.learners.Residual", "combine": "all"},
        "learner.combine",
        "one of one, stack",
    ),
    (
        "learner",
        {"_target_": "lpgnn.learners.Residual", "combine": 1},
        "learner.combine",
        "one of one, stack",
    ),
    ("learner", {"_target_": "lpgnn.learners.Residual", "smooth": -1}, "learner.smooth", ">= 0"),
]


@pytest.mark.parametrize(
    ("kind", "choice", "setting", "hint"),
    BAD_OPTIONS,
    ids=[f"{kind} {choice}" for kind, choice, _, _ in BAD_OPTIONS],
)
def test_bad_options_are_refused_by_name(
    kind: str, choice: dict[str, Any], setting: str, hint: str
) -> None:
    settings: dict[str, Any] = {kind: choice}
    error = refused(lambda: Settings(**settings).resolve())
    assert error.setting == setting
    assert hint in error.allowed


def test_an_option_without_plain_values_has_no_identity() -> None:
    configuration = small(backbone=TorchModule(arguments={"act": object()}))
    assert refused(lambda: configuration.identity).setting == "option"


def test_the_labels_only_learner_is_nothing_but_labels_and_the_graph() -> None:
    alone = small(learner="label_propagation")
    assert (alone.feature, alone.mechanism, alone.filter, alone.backbone) == (None,) * 4
    assert (alone.x_eps, alone.max_epochs) == (0.0, 1)
    columns = alone.columns()
    assert {columns[k] for k in ("feature", "mechanism", "filter", "backbone")} == {"none"}
    unread: dict[str, Any] = {
        "x_eps": 3.0,
        "mechanism": "lp",
        "backbone": "gat",
        "feature": "ones",
        "filter": KProp(steps=7, conditioning="node"),
        "learning_rate": 0.5,
        "weight_decay": 0.5,
        "dropout": 0.1,
        "max_epochs": 7,
        "hidden_dim": 3,
    }
    for name, value in unread.items():
        assert identity(learner="label_propagation", **{name: value}) == alone.identity, name
    read = ("dataset", "y_eps", "label_mechanism", "seed", "split")
    assert set(SCIENCE) == {*unread, *read, "learner"}
    for name in read:
        other = small(**{"learner": "label_propagation", name: SCIENCE[name]})
        assert other.identity != alone.identity, name
    assert identity(learner=LabelPropagation(aggregator="mean")) != alone.identity


def test_a_network_on_propagated_labels_is_no_other_learner() -> None:
    for y_eps in (1.0, INF):
        residual = small(learner="residual", y_eps=y_eps, hparams="paper")
        assert residual.learner == Residual()
        names = ("drop", "forward", "cross_entropy", "label_propagation")
        assert residual.identity not in {identity(learner=n, y_eps=y_eps) for n in names}


def test_blank_features_have_a_budget() -> None:
    for x_eps in (0.01, 3.0):
        blank = small(feature="blank", x_eps=x_eps, mechanism="lp")
        assert (blank.feature and blank.feature.name, blank.x_eps) == ("blank", x_eps)
        assert blank.mechanism == Laplace()
        raw = small(x_eps=x_eps, mechanism="lp")
        # Trained as raw ones are: the same steps, rate, decay and dropout.
        assert dataclasses.replace(blank, feature=raw.feature) == raw
        assert blank.identity != raw.identity
    with pytest.raises(InputError, match="x_eps=inf: must be finite with feature=blank"):
        small(feature="blank", x_eps=INF)


def test_clean_features_are_not_conditioned() -> None:
    for conditioning in ("scale", "node"):
        chosen = KProp(conditioning=conditioning)
        clean = small(x_eps=INF, filter=chosen)
        assert isinstance(clean.filter, KProp)
        assert clean.filter.conditioning == "none"
        assert clean.identity == identity(x_eps=INF)
        for feature in ("raw", "blank", "ones", "ohd", "rnd"):
            found = small(feature=feature, filter=chosen).filter
            assert isinstance(found, KProp)
            assert found.conditioning == conditioning
    three = {identity(filter=KProp(conditioning=c)) for c in ("none", "scale", "node")}
    assert len(three) == 3


# Of the committed rows, computed before components had options: their results still count.
STORED: list[tuple[str, dict[str, Any]]] = [
    ("292557297a9b", {}),
    ("ac4c8a7ec33f", {"learner": "forward"}),
    ("aec36a5b3a77", {"learner": "cross_entropy"}),
    ("2c6230aecc91", {"filter": KProp(steps=8)}),
]


@pytest.mark.parametrize(("stored", "settings"), STORED, ids=[s for s, _ in STORED])
def test_identities_are_those_of_the_stored_rows(stored: str, settings: dict[str, Any]) -> None:
    configuration = Settings(dataset="cora", x_eps=1.0, y_eps=1.0, **settings).resolve()
    assert configuration.identity == stored
    with (ROWS / "cora.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["id"] == stored]
    assert len(rows) == 10
    columns = configuration.columns()
    for row in rows:
        for kind in KINDS:
            assert component_name(row, kind) == columns[kind]
        for name in ("fingerprint", "split"):
            assert row[name] == columns[name]
        for name in ("x_eps", "y_eps", "learning_rate", "weight_decay", "dropout", "max_epochs"):
            assert float(row[name]) == columns[name]


@pytest.mark.parametrize("dataset", ["cora", "pubmed", "facebook", "lastfm"])
def test_every_committed_row_has_the_identity_of_its_columns(dataset: str, tmp_path: Path) -> None:
    with (ROWS / f"{dataset}.csv").open(newline="") as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    assert len(rows) > 5
    for stored, row in rows.items():
        configuration = configuration_of(row, tmp_path)
        assert configuration.identity == stored
        recorded, now = (json.loads(one["options"]) for one in (row, configuration.columns()))
        # Options that were added since do what was done without them.
        later = {
            "learner.refit": False,
            "learner.labels": "train+val",
            "learner.evidence": "in_sample",
            "learner.first": "labelled",
            "label_mechanism.shares": "equal",
            "mechanism.sample_rule": "paper",
        }
        assert now == {key: later[key] for key in now.keys() - recorded.keys()} | recorded


def test_a_configuration_comes_back_from_its_row() -> None:
    for settings in (
        {"backbone": GAT(heads=2), "mechanism": AnalyticGaussian(delta=1e-6)},
        {"mechanism": {"_target_": "small_run.RoundedNoise", "size": 2.0}, "x_eps": 3.0},
        {"learner": "label_propagation", "y_eps": INF},
        {"learner": "two_round", "protocol": TwoRound(share=0.3), "feature": "blank"},
        {"feature": "ones", "split": "fixed", "seed": 3},
    ):
        configuration = small(**settings)
        row = {name: str(value) for name, value in configuration.columns().items()}
        assert configuration_of(row, Path("data")) == configuration


def test_settings_of_a_row_are_its_columns() -> None:
    columns = small(backbone=GAT(heads=2)).columns()
    assert (columns["dataset"], columns["backbone"], columns["filter"]) == ("sbm", "gat", "kprop")
    options = json.loads(columns["options"])
    assert options["backbone.heads"] == 2
    assert options["dataset.num_nodes"] == 300
    assert options["filter.steps"] == 2
    assert options["learner.steps"] == 8
    assert options["mechanism.num_samples"] is None
    assert "origin" not in columns
    spelt = {"x_eps", "y_eps", "learning_rate", "weight_decay", "dropout", "fingerprint"}
    assert spelt | {"max_epochs", "hidden_dim", "split", "seed"} <= set(columns)


def test_published_facts_need_no_files(tmp_path: Path) -> None:
    configuration = Settings(dataset="cora", data_dir=tmp_path / "nowhere").resolve()
    assert configuration.graph == Cora().facts
    assert not (tmp_path / "nowhere").exists()


@dataclasses.dataclass(frozen=True)
class _Worded(MultiBit):
    how: str = "fast"


def test_an_option_of_the_wrong_type_is_told_with_what_was_read() -> None:
    choice = {"_target_": f"{__name__}._Worded", "how": math.nan}
    with pytest.raises(InputError) as refused:
        make_component("mechanism", choice)
    reason = "mechanism.how=nan: must be of type str, not float: '\"nan\"' is text"
    assert str(refused.value) == reason
