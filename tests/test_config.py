import csv
import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from lpgnn import config
from lpgnn.config import GROUPS, Component, Settings, compose_settings
from lpgnn.errors import InputError
from lpgnn.hyperparameters import conf_dir

INF = math.inf
ROWS = Path(__file__).parents[1] / "results" / "rows"

# Configurations of one graph in the experiments of the paper, before any is shared.
GRID_SIZES = {
    **{"mechanisms": 16, "features": 6, "denoising": 9, "budgets": 72, "kprop": 30},
    # and beyond the paper: conditioned reports, controls, other learners
    **{"controls": 14, "conditioned": 42, "learners": 33, "value_of_features": 58},
}
# K_x at (1, 1) and K_y at (1, 1) both contain the steps of the table; Drop on raw reports at
# (1, 1) stands among the features and among the learners.
DIFFERENT = {**GRID_SIZES, "kprop": 29, "conditioned": 41, "learners": 33}

NOT_SCIENCE: dict[str, Any] = {
    "data_dir": "elsewhere",
    "results_dir": "elsewhere",
    "device": "cpu",
    "repeats": 3,
    "selection": "released",
    "force": True,
    "task": "statistics",
}
SCIENCE: dict[str, Any] = {
    "dataset": "cora",
    "mechanism": "lp",
    "backbone": "gcn",
    "feature": "ones",
    "learner": "forward",
    "x_eps": 2.0,
    "y_eps": 2.0,
    "x_steps": 3,
    "y_steps": 3,
    "learning_rate": 0.02,
    "weight_decay": 0.02,
    "dropout": 0.3,
    "conditioning": "node",
    "aggregator": "mean",
    "max_epochs": 50,
    "hidden_dim": 8,
    "seed": 1,
    "split": "fixed",
}


def names_of(group: str) -> list[str]:
    return sorted(path.stem for path in (conf_dir() / group).glob("*.yaml"))


def identity(*overrides: str) -> str:
    (settings,) = compose_settings(overrides)
    return settings.resolve().identity


def bad_input(*overrides: str, multirun: bool = False) -> InputError:
    """The error of a bad command line; anything but one InputError of one line is a failure."""
    with pytest.raises(InputError) as caught:
        _ = [s.resolve() for s in compose_settings(overrides, multirun=multirun)]
    assert "\n" not in str(caught.value)
    return caught.value


def test_the_defaults_in_code_and_in_conf_are_the_same() -> None:
    (composed,) = compose_settings([])
    for field in dataclasses.fields(Settings):
        said, default = getattr(composed, field.name), getattr(Settings(), field.name)
        if field.name in GROUPS:
            said, default = (Component.of(field.name, v) for v in (said, default))
        assert said == default, field.name
    assert composed.resolve() == Settings().resolve()
    assert composed.resolve().identity == Settings().resolve().identity


@pytest.mark.parametrize("group", GROUPS)
def test_every_choice_of_a_group_composes(group: str) -> None:
    names = names_of(group)
    composed = compose_settings([f"{group}={','.join(names)}"], multirun=True)
    assert [Component.of(group, getattr(s, group)).name for s in composed] == names
    identities = [s.resolve().identity for s in composed]
    assert len(set(identities)) == len(names) >= 2


@pytest.mark.parametrize("name", names_of("experiment"))
def test_every_experiment_composes(name: str) -> None:
    composed = compose_settings([f"+experiment={name}", "dataset=cora"], multirun=True)
    assert len(composed) == GRID_SIZES.get(name, 1)
    configurations = [s.resolve() for s in composed]
    assert {c.dataset.name for c in configurations} == {"cora"}
    assert len({c.identity for c in configurations}) == DIFFERENT.get(name, 1)
    assert (composed[0].task == "train") == (name in GRID_SIZES)


def test_every_experiment_of_the_paper_is_there() -> None:
    assert set(GRID_SIZES) | {"datasets", "convexity", "tuning"} <= set(names_of("experiment"))


def test_experiments_run_on_all_graphs_unless_told_otherwise() -> None:
    composed = compose_settings(["+experiment=denoising"], multirun=True)
    assert len(composed) == 4 * GRID_SIZES["denoising"]
    graphs = {s.resolve().dataset.name for s in composed}
    assert graphs == {"cora", "pubmed", "facebook", "lastfm"}


def test_the_command_line_wins_over_the_grid_of_an_experiment() -> None:
    overrides = [
        "+experiment=mechanisms",
        "dataset=cora",
        "x_eps=0.5",
        "y_eps=1",
        "mechanism=mb,lp",
    ]
    configurations = [s.resolve() for s in compose_settings(overrides, multirun=True)]
    assert [c.mechanism.name for c in configurations] == ["mb", "lp"]
    assert {(c.x_eps, c.y_eps) for c in configurations} == {(0.5, 1.0)}
    # What the experiment does not mention is open to the command line all the same.
    overrides = ["dataset=cora", "mechanism=mb", "x_eps=1", "+experiment=mechanisms", "seed=0,1"]
    assert [s.seed for s in compose_settings(overrides, multirun=True)] == [0, 1]


def test_a_grid_is_the_product_of_its_lists() -> None:
    overrides = ["x_eps=0.1,1", "seed=0,1,2", "hidden_dim=8"]
    composed = compose_settings(overrides, multirun=True)
    pairs = [(s.x_eps, s.seed) for s in composed]
    assert pairs == [(x, seed) for x in (0.1, 1) for seed in (0, 1, 2)]
    assert {s.hidden_dim for s in composed} == {8}


SPELLINGS: list[tuple[list[str], dict[str, Any]]] = [
    (["mechanism=ag"], {"mechanism": "ag"}),
    (["mechanism=ag", "mechanism.delta=1e-10"], {"mechanism": "ag"}),
    (
        ["mechanism=ag", "mechanism.delta=1e-6"],
        {"mechanism": {"name": "ag", "delta": 1e-6}},
    ),
    (
        ["mechanism.num_samples=3"],
        {"mechanism": Component("mb", (("num_samples", 3),))},
    ),
    (["backbone=gat"], {"backbone": {"name": "gat", "heads": 4}}),
    (["backbone=gat", "backbone.heads=2"], {"backbone": {"name": "gat", "heads": 2}}),
    (["dataset.num_nodes=300"], {"dataset": {"name": "sbm", "num_nodes": 300}}),
    (["dataset.num_nodes=2708", "dataset.seed=0"], {}),
    (["dataset=cora", "x_eps=1", "y_eps=inf"], {"dataset": "cora", "y_eps": INF}),
    (["backbone=pyg"], {"backbone": "pyg"}),
    (["learner=forward", "weight_decay=0"], {"learner": "forward", "weight_decay": 0.0}),
]


@pytest.mark.parametrize(("overrides", "keywords"), SPELLINGS, ids=lambda v: str(v)[:40])
def test_command_line_and_notebook_mean_the_same(
    overrides: list[str], keywords: dict[str, Any]
) -> None:
    assert identity(*overrides) == Settings(**keywords).resolve().identity


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"x_eps": 1}, {"x_eps": 1.0}),
        ({"learning_rate": 1}, {"learning_rate": 1.0}),
        (
            {"dataset": {"name": "sbm", "average_degree": 4}},
            {"dataset": {"name": "sbm", "average_degree": 4.0}},
        ),
        ({"dataset": "SBM"}, {"dataset": {"name": "SBM"}}),
    ],
    ids=["budget", "rate", "option", "case"],
)
def test_one_computation_has_one_identity(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert Settings(**one).resolve().identity == Settings(**other).resolve().identity


def test_options_of_conf_are_numbers_where_they_stand_for_numbers() -> None:
    """YAML 1.1 takes 1e-10 for a text, Hydra for a number: both ways in must find a number."""
    delta = Settings(mechanism="ag").resolve().mechanism.all_options("mechanism")["delta"]
    assert delta == 1e-10


@pytest.mark.parametrize("name", ["MB", "1B", "LP", "AG"])
def test_mechanism_names_are_accepted_in_upper_case(name: str) -> None:
    (composed,) = compose_settings([f"mechanism={name}"])
    assert composed.resolve().mechanism.name == name.lower()
    assert Settings(mechanism=name).resolve().mechanism.name == name.lower()


def test_a_grid_forgives_the_case_of_names() -> None:
    composed = compose_settings(["mechanism=MB,Lp"], multirun=True)
    assert [s.resolve().mechanism.name for s in composed] == ["mb", "lp"]


@pytest.mark.parametrize("text", ["inf", "INF", ".inf", "'inf'"])
def test_infinite_budgets_have_several_spellings(text: str) -> None:
    (settings,) = compose_settings([f"x_eps={text}"])
    assert settings.x_eps == INF


def test_every_field_is_science_or_is_not() -> None:
    fields = {field.name for field in dataclasses.fields(Settings)}
    assert fields == {*SCIENCE, *NOT_SCIENCE, "hparams"}
    assert not set(SCIENCE) & set(NOT_SCIENCE)


@pytest.mark.parametrize("name", SCIENCE)
def test_the_identity_depends_on_every_scientific_field(name: str) -> None:
    other = dataclasses.replace(Settings(), **{name: SCIENCE[name]})
    assert other.resolve().identity != Settings().resolve().identity


@pytest.mark.parametrize("name", NOT_SCIENCE)
def test_the_identity_depends_on_nothing_else(name: str) -> None:
    other = dataclasses.replace(Settings(), **{name: NOT_SCIENCE[name]})
    assert other.resolve().identity == Settings().resolve().identity


def test_the_identity_depends_on_the_options_of_components() -> None:
    variants: list[dict[str, Any]] = [
        {},
        {"dataset": {"name": "sbm", "seed": 1}},
        {"backbone": "gat"},
        {"backbone": {"name": "gat", "heads": 2}},
        {"mechanism": {"name": "mb", "num_samples": 2}},
        {"mechanism": {"name": "ag", "delta": 1e-5}},
        {"mechanism": {"name": "ag", "delta": 1e-6}},
    ]
    assert len({Settings(**v).resolve().identity for v in variants}) == len(variants)


def test_the_identity_depends_on_the_version_of_the_science(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = Settings().resolve().identity
    monkeypatch.setattr(config, "SCIENCE_VERSION", config.SCIENCE_VERSION + 1)
    assert Settings().resolve().identity != before


def test_the_identity_depends_on_values_not_on_the_table_they_come_from(tmp_path: Path) -> None:
    copy = tmp_path / "mine.yaml"
    copy.write_text((conf_dir() / "hparams" / "paper.yaml").read_text())
    mine = Settings(hparams=str(copy)).resolve()
    assert mine.identity == Settings().resolve().identity
    assert str(copy) in mine.origin  # but the reader is told
    given = Settings(x_steps=2, y_steps=8, learning_rate=0.01, weight_decay=0.001, dropout=0.5)
    assert given.resolve().identity == mine.identity
    assert given.resolve().origin == ""


def test_drop_without_a_step_is_forward_correction() -> None:
    dropped = Settings(learner="drop", y_steps=0).resolve()
    assert dropped.learner.name == "forward"
    assert dropped == Settings(learner="forward").resolve()
    assert Settings(learner="forward", y_steps=0).resolve() == dropped


@pytest.mark.parametrize("learner", ["drop", "forward", "cross_entropy"])
def test_without_label_noise_learners_agree(learner: str) -> None:
    configuration = Settings(learner=learner, y_eps=INF).resolve()
    assert (configuration.learner.name, configuration.y_steps) == ("cross_entropy", 0)
    assert configuration.identity == Settings(y_eps=INF).resolve().identity


def test_label_steps_without_label_noise_stay_a_computation_of_their_own() -> None:
    configuration = Settings(y_eps=INF, y_steps=2).resolve()
    assert (configuration.learner.name, configuration.y_steps) == ("drop", 2)


@pytest.mark.parametrize("mechanism", ["mb", "lp", "ag"])
def test_without_perturbation_there_is_no_mechanism(mechanism: str) -> None:
    raw = Settings(mechanism=mechanism, x_eps=INF).resolve()
    assert raw.mechanism == Component("none")
    assert raw.identity == Settings(x_eps=INF).resolve().identity
    ones = Settings(mechanism=mechanism, feature="ones", x_eps=0.1).resolve()
    assert ones.mechanism == Component("none")
    assert ones.x_eps == INF
    assert ones.identity == Settings(feature="ones", x_eps=3.0).resolve().identity


BAD_VALUES: dict[str, list[Any]] = {
    "x_eps": [-1, 0, 0.0, math.nan, -INF, "1", None, True, [1]],
    "y_eps": [-0.5, 0, math.nan, "much", None],
    "x_steps": [-1, 1.5, "two", INF, True],
    "y_steps": [-1, 2.0, "two"],
    "learning_rate": [0, -0.01, math.nan, INF, "fast"],
    "weight_decay": [-0.1, math.nan, INF, "x"],
    "dropout": [1, 1.0, -0.1, math.nan, "0.5", False],
    "max_epochs": [0, -5, 1.5, None],
    "hidden_dim": [0, 16.0],
    "repeats": [0, -1, 2.5, "ten", None],
    "seed": [-1, 0.5, None],
    "aggregator": ["max", None, ["gcn"]],
    "conditioning": ["foo", None, True, ["node"]],
    "split": ["half", None],
    "selection": ["best", 1],
    "force": [1, "yes", None],
    "feature": ["raw2", 1, None, {}, {"name": "raw", "width": 3}],
    "learner": ["adam", None, {}, {"walk": "lazy"}],
    "dataset": [3, None, {}, {"num_nodes": 300}],
    "mechanism": [3, None, {}, ["mb"]],
    "backbone": [3, None, {}],
    "hparams": ["no_table", 3, None, ["paper"], {"a": 1}],
    "data_dir": [None, ["a"]],
    "results_dir": [None, ["a"]],
    "device": [None, 3],
}
BAD_FIELDS = [(name, value) for name, values in BAD_VALUES.items() for value in values]


@pytest.mark.parametrize(
    ("name", "value"), BAD_FIELDS, ids=[f"{name}={value!r}" for name, value in BAD_FIELDS]
)
def test_bad_values_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(InputError) as caught:
        Settings(**{name: value}).resolve()
    assert caught.value.setting == name
    assert str(caught.value).startswith(f"{name}=")
    assert len(caught.value.allowed) > 5
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("learner", ["forward", "cross_entropy"])
def test_label_steps_belong_to_drop(learner: str) -> None:
    error = bad_input(f"learner={learner}", "y_steps=2")
    assert (error.setting, error.value) == ("y_steps", 2)
    assert learner in error.allowed


@pytest.mark.parametrize(
    ("override", "setting", "hint"),
    [
        ("x_eps=-1", "x_eps", "positive"),
        ("y_eps=nan", "y_eps", "positive"),
        ("y_eps=null", "y_eps", "positive"),
        ("repeats=0", "repeats", ">= 1"),
        ("dropout=1", "dropout", "[0, 1)"),
        ("x_steps=-1", "x_steps", ">= 0"),
        ("x_eps=1,2", "x_eps", "-m"),
        ("dataset=cora,pubmed", "dataset", "-m"),
        ("dataset=karate", "dataset", "cora, facebook, lastfm, pubmed, sbm"),
        ("mechanism=gauss", "mechanism", "1b, ag, lp, mb"),
        ("backbone=gin", "backbone", "gat, gcn, pyg, sage"),
        ("+experiment=nothing", "experiment", "mechanisms"),
        ("xeps=1", "xeps", "x_eps"),
        ("+xeps=1", "xeps", "x_eps"),
        ("dataset.nodes=1", "dataset.nodes", "num_nodes"),
        ("mechanism.delta=1e-5", "mechanism.delta", "num_samples"),
        ("hparams=nothing", "hparams", "paper"),
        ("hparams=3", "hparams", "paper"),
        ("dataset.average_degree=0", "dataset.average_degree", ""),
        ("dataset.average_degree=many", "dataset.average_degree", ""),
        ("dataset.average_degree=null", "dataset.average_degree", ""),
        ("dataset.tuned_as=nothing", "dataset.tuned_as", "cora"),
        ("+learner.steps=1", "learner.steps", ""),
        ("results_dir=null", "results_dir", ""),
    ],
)
def test_bad_command_lines_are_refused_by_name(override: str, setting: str, hint: str) -> None:
    error = bad_input(override)
    assert error.setting in (setting, setting.partition(".")[0])
    assert hint in error.allowed


@pytest.mark.parametrize(
    "override",
    ["x_eps", "=1", "--what", "~x_eps", "x_eps=${nothing}", "experiment=budgets", "x_eps=[1"],
)
def test_what_is_no_override_is_refused_in_one_line(override: str) -> None:
    bad_input(override)


def test_a_bad_member_of_a_grid_is_refused() -> None:
    assert bad_input("x_eps=1,-2", multirun=True).value == -2
    assert bad_input("mechanism=mb,zz", multirun=True).value == "zz"


@pytest.mark.parametrize(
    ("learner", "setting", "hint"),
    [
        ({"name": "drop", "steps": 2}, "learner.steps", "drop has no such option"),
        ({"name": "drop", "walk": "lazy"}, "learner.walk", "drop has no such option"),
        ({"name": "propagation", "colour": 3}, "learner.colour", "no such option"),
        ({"name": "propagation", "walk": "drunk"}, "learner.walk", "one of plain, lazy"),
        ({"name": "propagation", "walk": None}, "learner.walk", "one of plain, lazy"),
        ({"name": "residual", "walk": ["lazy"]}, "learner.walk", "one of plain, lazy"),
        ({"name": "residual", "combine": "all"}, "learner.combine", "one of one, stack"),
        ({"name": "residual", "combine": 1}, "learner.combine", "one of one, stack"),
    ],
    ids=str,
)
def test_bad_options_of_a_learner_are_refused_by_name(
    learner: dict[str, Any], setting: str, hint: str
) -> None:
    with pytest.raises(InputError) as caught:
        Settings(learner=learner)
    assert caught.value.setting == setting
    assert hint in caught.value.allowed
    assert "\n" not in str(caught.value)


def test_bad_options_of_a_learner_are_refused_on_the_command_line() -> None:
    assert bad_input("learner=propagation", "learner.walk=drunk").setting == "learner.walk"
    assert bad_input("learner=residual", "learner.combine=all").setting == "learner.combine"
    assert bad_input("learner=propagation", "+learner.colour=3").setting == "learner.colour"
    assert bad_input("learner=residual", "learner.smooth=-1").setting == "learner.smooth"
    assert bad_input("learner=residual", "learner.smooth=some").setting == "learner.smooth"
    assert bad_input("learner=residual", "y_steps=2").setting == "y_steps"
    assert bad_input("feature=blank", "x_eps=inf").setting == "x_eps"
    assert bad_input("conditioning=foo").setting == "conditioning"


def test_options_of_a_learner_are_part_of_the_computation() -> None:
    for name, usual in (("propagation", ("plain", "one")), ("residual", ("lazy", "stack"))):
        identities = {
            (walk, combine): Settings(learner={"name": name, "walk": walk, "combine": combine})
            .resolve()
            .identity
            for walk in ("plain", "lazy")
            for combine in ("one", "stack")
        }
        assert len(set(identities.values())) == 4
        assert identities[usual] == Settings(learner=name).resolve().identity
        spelt = identity(f"learner={name}", "learner.walk=plain", "learner.combine=stack")
        assert spelt == identities["plain", "stack"]


def test_the_labels_only_learner_is_nothing_but_labels_and_the_graph() -> None:
    usual = Settings(learner="propagation").resolve()
    assert (usual.feature, usual.mechanism, usual.backbone) == (
        "none",
        Component("none"),
        Component("none"),
    )
    assert (usual.x_eps, usual.conditioning, usual.max_epochs) == (0.0, "none", 1)
    unread: dict[str, Any] = {
        "x_eps": 3.0,
        "mechanism": "lp",
        "backbone": "gat",
        "feature": "ones",
        "conditioning": "node",
        "x_steps": 7,
        "y_steps": 0,
        "learning_rate": 0.5,
        "weight_decay": 0.5,
        "dropout": 0.1,
        "max_epochs": 7,
        "hidden_dim": 3,
    }
    for name, value in unread.items():
        other = Settings(learner="propagation", **{name: value}).resolve()
        assert other.identity == usual.identity, name
    read = ("dataset", "y_eps", "aggregator", "seed", "split")
    assert set(SCIENCE) == {*unread, *read, "learner"}
    for name in read:
        other = Settings(**{"learner": "propagation", name: SCIENCE[name]}).resolve()
        assert other.identity != usual.identity, name


def test_a_network_on_propagated_labels_is_no_other_learner() -> None:
    for y_eps in (1.0, INF):
        residual = Settings(learner="residual", y_eps=y_eps).resolve()
        assert (residual.learner.name, residual.y_steps) == ("residual", 0)
        others = {Settings(learner=name, y_eps=y_eps).resolve().identity for name in LEARNERS}
        assert residual.identity not in others


LEARNERS = ("drop", "forward", "cross_entropy", "propagation")


def test_blank_features_have_a_budget() -> None:
    for x_eps in (0.01, 3.0):
        blank = Settings(feature="blank", x_eps=x_eps, mechanism="lp").resolve()
        assert (blank.feature, blank.mechanism.name, blank.x_eps) == ("blank", "lp", x_eps)
        raw = Settings(x_eps=x_eps, mechanism="lp").resolve()
        # Trained as raw ones are: the same steps, rate, decay and dropout.
        assert dataclasses.replace(blank, feature="raw") == raw
        assert blank.identity != raw.identity
    with pytest.raises(InputError, match="x_eps=inf: must be finite with feature=blank"):
        Settings(feature="blank", x_eps=INF).resolve()


def test_clean_features_are_not_conditioned() -> None:
    for conditioning in ("scale", "node"):
        clean = Settings(x_eps=INF, conditioning=conditioning).resolve()
        assert clean.conditioning == "none"
        assert clean.identity == Settings(x_eps=INF).resolve().identity
        for feature in ("raw", "blank", "ones", "ohd", "rnd"):
            said = Settings(feature=feature, conditioning=conditioning).resolve()
            assert said.conditioning == conditioning
    three = {Settings(conditioning=c).resolve().identity for c in ("none", "scale", "node")}
    assert len(three) == 3


# Of rows that were computed before there was any conditioning: their results still count.
STORED: list[tuple[str, dict[str, Any]]] = [
    ("272080ccd254", {}),
    ("8f66d050a59f", {"learner": "forward"}),
    ("598f2491f03f", {"learner": "cross_entropy"}),
    ("50adcac1864f", {"x_steps": 8}),
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
        for name in ("feature", "mechanism", "backbone", "learner"):
            assert row[name] == columns[name]
        for name in ("x_eps", "y_eps", "x_steps", "y_steps", "learning_rate", "max_epochs"):
            assert float(row[name]) == columns[name]
    assert dataclasses.replace(configuration, conditioning="node").identity != stored


def test_settings_of_a_row_are_its_columns() -> None:
    settings = Settings(
        dataset={"name": "sbm", "num_nodes": 300}, backbone={"name": "gat", "heads": 2}
    )
    columns = settings.resolve().columns()
    assert columns["dataset"] == "sbm"
    assert columns["backbone"] == "gat"
    assert columns["options"] == '{"backbone.heads": 2, "dataset.num_nodes": 300}'
    assert Settings().resolve().columns()["options"] == ""
    assert "origin" not in columns
    spelt = {"x_eps", "y_eps", "x_steps", "y_steps", "learning_rate", "weight_decay", "dropout"}
    assert spelt | {"aggregator", "max_epochs", "hidden_dim", "split", "seed"} <= set(columns)
