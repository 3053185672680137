"""From the command line to settings.  Experiments of these tests live in a folder of their own."""

import dataclasses
import math
from collections import Counter
from pathlib import Path
from typing import Any

import hydra
import pytest

import models.pyg  # noqa: F401  # past the warnings of torch-geometric's import
from lpgnn.composition import Point, expand, experiment_names, load_experiment
from lpgnn.config import KINDS, WATCHERS, Settings, component_names
from lpgnn.data import BlockModel
from lpgnn.errors import InputError
from lpgnn.learners import Drop
from lpgnn.models import GAT, TorchModule
from lpgnn.privacy import AnalyticGaussian, MultiBit
from lpgnn.propagation import KProp

pytestmark = pytest.mark.slow

INF = math.inf

# Points of one graph in the experiments of conf/, and the configurations that they make.
GRID_SIZES = {
    **{"mechanisms": (21, 21), "features": (10, 10), "denoising": (15, 15), "budgets": (76, 76)},
    # K_x at (1, 1) and K_y at (1, 1) both contain the steps of the table.
    "kprop": (33, 32),
    # and beyond the paper: conditioned reports, controls, other learners
    **{"conditioned_mechanisms": (21, 21), "conditioned_features": (10, 10)},
    **{"conditioned_denoising": (15, 15), "learners": (24, 24), "value_of_features": (58, 58)},
    **{"equal_labels": (22, 22), "conditioned_ablation": (5, 5), "features_that_pay": (92, 92)},
    # Labels only has no K_x: it stands in four blocks.
    **{"budget_split": (62, 54), "planted": (44, 41)},
    # Its block models differ by options that Cora does not have.
    "phase_diagram": (93, 32),
    "lastfm_blank": (25, 25),
    "label_models": (36, 36),
    "hop_regression": (227, 227),
}

EXPERIMENTS = {
    "first": """
        title: A first experiment
        max_epochs: 3
        grid:
          - {dataset: tiny, mechanism: [mb, ag], x_eps: [0.5, 2]}
          - {label: Blank, control: true, dataset: tiny, feature: blank, x_eps: "0.5,2"}
        tables:
          first: {rows: mechanism, columns: x_eps}
        figures:
          first: {x: x_eps, series: mechanism}
        """,
    "second": """
        max_epochs: 3
        grid:
          - {dataset: tiny, mechanism: mb, x_eps: [0.5, 1], filter.steps: null}
        """,
    "optional": """
        grid:
          - {dataset: tiny, learner: residual, learner.smooth: [0, 4], learner.walk: lazy}
          - {dataset: tiny, learner: label_propagation, learner.combine: "one,stack"}
          - {dataset: tiny, filter: conditioned, filter.steps: [1, 2], hparams: conditioned}
        """,
    "single": "hidden_dim: 8\nx_eps: 3\n",
    "lists": """
        grid:
          - {dataset: tiny, y_eps: [1, .inf], seed: [0, 1], force: false, hparams: null}
        """,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A config folder as a user would keep one."""
    import textwrap

    folder = tmp_path_factory.mktemp("config")
    for name, text in EXPERIMENTS.items():
        path = folder / "experiment" / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text("# @package _global_\n" + textwrap.dedent(text))
    (folder / "dataset").mkdir()
    (folder / "dataset" / "tiny.yaml").write_text(
        "_target_: lpgnn.data.BlockModel\nnum_nodes: 120\nnum_classes: 3\nnum_features: 40\n"
    )
    return folder


def identity(*overrides: str) -> str:
    (point,) = expand(overrides)
    return point.settings.resolve().identity


def bad_input(*overrides: str, multirun: bool = False, folder: Path | None = None) -> InputError:
    """The error of a bad command line; anything but one InputError of one line is a failure."""
    folders = [folder] if folder else []
    with pytest.raises(InputError) as caught:
        _ = [
            point.settings.resolve()
            for point in expand(overrides, multirun=multirun, config_dirs=folders)
        ]
    assert "\n" not in str(caught.value)
    return caught.value


def identities(points: list[Point]) -> list[str]:
    return [point.settings.resolve(fetch=False).identity for point in points]


def test_the_defaults_in_code_and_in_conf_are_the_same() -> None:
    (composed,) = expand([])
    for field in dataclasses.fields(Settings):
        found, default = getattr(composed.settings, field.name), getattr(Settings(), field.name)
        if field.name in KINDS:
            found, default = (s.component(field.name) for s in (composed.settings, Settings()))
        if field.name == "save":
            found = tuple(found)
        assert found == default, field.name
    assert composed.settings.resolve() == Settings().resolve()
    assert composed.settings.resolve().identity == Settings().resolve().identity
    assert (composed.keys, composed.label, composed.control) == ({}, None, False)


@pytest.mark.parametrize("kind", KINDS)
def test_every_choice_of_a_group_composes(kind: str) -> None:
    # Some do nothing until a user says which class, folder or dataset.
    empty = ("custom", "files", "pyg") if kind == "dataset" else ("custom",)
    names = [name for name in component_names(kind) if name not in empty]
    points = expand([f"{kind}={','.join(names)}"], multirun=True)
    assert [point.keys for point in points] == [{kind: name} for name in names]
    if kind == "protocol":  # two_round goes with a learner that asks, which none but it does
        assert names == ["one_round", "two_round"]
        assert identity("protocol=one_round") == identity()
        assert identity("protocol=two_round", "learner=two_round") == identity("learner=two_round")
    else:
        assert len(set(identities(points))) == len(names) >= 1


@pytest.mark.parametrize("name", experiment_names())
def test_every_experiment_composes(name: str) -> None:
    points = expand([f"+experiment={name}", "dataset=cora"])
    assert (len(points), len(set(identities(points)))) == GRID_SIZES[name]
    assert {point.settings.component("dataset").name for point in points} == {"cora"}
    experiment = load_experiment(name)
    assert experiment.title != name
    assert len(experiment.tables) + len(experiment.figures) >= 1
    assert experiment.grid


def test_every_experiment_of_conf_is_checked() -> None:
    assert set(GRID_SIZES) == set(experiment_names())


def test_experiments_run_on_all_graphs_unless_told_otherwise() -> None:
    points = expand(["+experiment=denoising"])
    assert len(points) == 4 * GRID_SIZES["denoising"][0]
    graphs = Counter(point.settings.component("dataset").name for point in points)
    assert graphs == dict.fromkeys(("cora", "pubmed", "facebook", "lastfm"), 15)


@pytest.mark.parametrize("multirun", [False, True])
@pytest.mark.parametrize("plus", ["", "+"])
def test_an_experiment_with_a_grid_is_a_sweep(folder: Path, plus: str, multirun: bool) -> None:
    points = expand([f"{plus}experiment=first"], multirun=multirun, config_dirs=[folder])
    found = [(dict(p.keys), p.label, p.control, p.settings.max_epochs) for p in points]
    assert found == [
        ({"dataset": "tiny", "mechanism": "mb", "x_eps": "0.5"}, None, False, 3),
        ({"dataset": "tiny", "mechanism": "mb", "x_eps": "2"}, None, False, 3),
        ({"dataset": "tiny", "mechanism": "ag", "x_eps": "0.5"}, None, False, 3),
        ({"dataset": "tiny", "mechanism": "ag", "x_eps": "2"}, None, False, 3),
        ({"dataset": "tiny", "feature": "blank", "x_eps": "0.5"}, "Blank", True, 3),
        ({"dataset": "tiny", "feature": "blank", "x_eps": "2"}, "Blank", True, 3),
    ]
    assert [point.settings.x_eps for point in points] == [0.5, 2, 0.5, 2, 0.5, 2]
    mechanisms = [point.settings.component("mechanism") for point in points]
    assert mechanisms == [MultiBit()] * 2 + [AnalyticGaussian()] * 2 + [MultiBit()] * 2
    tiny = BlockModel(num_nodes=120, num_classes=3, num_features=40)
    assert {point.settings.component("dataset") for point in points} == {tiny}


def test_several_experiments_are_the_union_of_theirs(folder: Path) -> None:
    one, other, both, reverse = (
        expand([f"+experiment={names}"], config_dirs=[folder])
        for names in ("first", "second", "first,second", "second,first")
    )
    assert [len(one), len(other), len(both)] == [6, 2, 8]
    assert both == one + other
    assert reverse == other + one
    # x_eps = 0.5 with the multi-bit mechanism is in both.
    assert len(set(identities(both))) == 7


def test_an_experiment_without_a_grid_is_one_run(folder: Path) -> None:
    (point,) = expand(["+experiment=single"], config_dirs=[folder])
    assert (point.settings.hidden_dim, point.settings.x_eps) == (8, 3)
    assert load_experiment("single", [folder]).grid == ()


def test_the_command_line_wins_over_an_experiment(folder: Path) -> None:
    (point,) = expand(["+experiment=single", "hidden_dim=4"], config_dirs=[folder])
    assert (point.settings.hidden_dim, point.settings.x_eps) == (4, 3)
    points = expand(["x_eps=7", "+experiment=first", "max_epochs=9"], config_dirs=[folder])
    assert [dict(point.keys)["x_eps"] for point in points] == ["7"] * 3
    assert {point.settings.max_epochs for point in points} == {9}


def test_the_command_line_wins_over_the_grid_of_an_experiment() -> None:
    overrides = ["dataset=cora", "x_eps=0.5", "y_eps=1", "mechanism=mb,lp", "feature=raw"]
    points = expand(["+experiment=mechanisms", *overrides, "learner=drop"])
    configurations = [point.settings.resolve() for point in points]
    found = [c.mechanism.name for c in configurations if c.mechanism]
    assert found == ["mb", "lp"] * 3  # for each of the three members of the union
    assert {(c.x_eps, c.y_eps) for c in configurations} == {(0.5, 1.0)}
    assert len({c.identity for c in configurations}) == 2
    # What the experiment does not mention is open to the command line all the same.
    overrides = ["dataset=cora", "mechanism=mb", "x_eps=1", "seed=0,1", "+experiment=mechanisms"]
    assert [point.settings.seed for point in expand(overrides)] == [0, 1] * 3


def test_a_choice_drops_the_options_that_a_member_has_for_another(folder: Path) -> None:
    points = expand(["+experiment=optional", "learner=drop"], config_dirs=[folder])
    assert [dict(p.keys) for p in points] == [
        {"dataset": "tiny", "learner": "drop"},
        {"dataset": "tiny", "learner": "drop"},
        {"dataset": "tiny", "filter": "conditioned", "filter.steps": "1"}
        | {"hparams": "conditioned", "learner": "drop"},
        {"dataset": "tiny", "filter": "conditioned", "filter.steps": "2"}
        | {"hparams": "conditioned", "learner": "drop"},
    ]
    assert {p.settings.component("learner") for p in points} == {Drop()}
    kept = expand(["+experiment=optional", "filter=kprop"], config_dirs=[folder])
    assert Counter(p.settings.component("learner").name for p in kept) == {
        "residual": 2,
        "label_propagation": 2,
        "drop": 1,
    }
    assert {p.settings.component("filter") for p in kept} == {KProp()}


def test_an_experiment_of_conf_with_another_learner() -> None:
    points = expand(["+experiment=learners", "learner=drop", "dataset=cora"])
    assert {p.settings.component("learner") for p in points} == {Drop()}
    # Raw and blank reports at three budgets, and the same on plain KProp.
    assert len(set(identities(points))) == 9


def test_an_option_that_a_choice_does_not_have_is_named(folder: Path) -> None:
    error = bad_input("+experiment=optional", "learner.smooth=2", folder=folder)
    assert (error.setting, error.value) == ("learner.smooth", 2)
    assert "unknown setting" in error.allowed


def test_grids_take_lists_of_yaml(folder: Path) -> None:
    points = expand(["+experiment=lists"], config_dirs=[folder])
    assert [(p.settings.y_eps, p.settings.seed) for p in points] == [
        *((1, 0), (1, 1), (INF, 0), (INF, 1)),
    ]
    assert {(p.settings.force, p.settings.hparams) for p in points} == {(False, None)}


def test_an_experiment_holds_what_it_shows(folder: Path) -> None:
    experiment = load_experiment("first", [folder])
    assert (experiment.name, experiment.title) == ("first", "A first experiment")
    assert experiment.grid[1]["label"] == "Blank"
    assert experiment.tables == {"first": {"rows": "mechanism", "columns": "x_eps"}}
    assert experiment.figures == {"first": {"x": "x_eps", "series": "mechanism"}}
    assert load_experiment("second", [folder]).title == "second"
    assert set(experiment_names([folder])) == {*experiment_names(), *EXPERIMENTS}


@pytest.mark.parametrize("grid", ["3", "[mb, lp]", "{x_eps: 1}"])
def test_a_grid_that_is_none_is_refused(tmp_path: Path, grid: str) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "bad.yaml").write_text(f"# @package _global_\ngrid: {grid}\n")
    error = bad_input("+experiment=bad", folder=tmp_path)
    assert error.setting == "experiment=bad grid"
    assert "list of mappings" in error.allowed


def test_an_experiment_that_is_no_yaml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "bad.yaml").write_text("# @package _global_\ngrid: [\n")
    error = bad_input("+experiment=bad", folder=tmp_path)
    assert (error.setting, error.value) == ("experiment", "bad")
    assert f'{tmp_path / "experiment" / "bad.yaml"}", line 3' in error.allowed


def test_two_files_for_one_choice_are_refused(folder: Path, tmp_path: Path) -> None:
    """Hydra would take one of them without a word."""
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mechanisms.yaml").write_text("x_eps: 3\n")
    error = bad_input(folder=tmp_path)
    assert (error.setting, error.value) == ("--config-dir", tmp_path)
    assert "experiment/mechanisms.yaml" in error.allowed
    with pytest.raises(InputError, match="must be a folder"):
        expand([], config_dirs=[tmp_path / "nowhere"])
    assert len(expand(["dataset=tiny"], config_dirs=[folder, folder])) == 1


def test_a_grid_is_the_product_of_its_lists() -> None:
    points = expand(["x_eps=0.1,1", "seed=0,1,2", "hidden_dim=8"], multirun=True)
    pairs = [(point.settings.x_eps, point.settings.seed) for point in points]
    assert pairs == [(x, seed) for x in (0.1, 1) for seed in (0, 1, 2)]
    assert {point.settings.hidden_dim for point in points} == {8}


SPELLINGS: list[tuple[list[str], dict[str, Any]]] = [
    (["mechanism=ag"], {"mechanism": "ag"}),
    (["mechanism=ag", "mechanism.delta=1e-10"], {"mechanism": "ag"}),
    (["mechanism=ag", "mechanism.delta=1e-6"], {"mechanism": AnalyticGaussian(delta=1e-6)}),
    (["mechanism.num_samples=3"], {"mechanism": MultiBit(num_samples=3)}),
    (["+mechanism.beta=2"], {"mechanism": MultiBit(beta=2.0)}),
    (["backbone=gat"], {"backbone": GAT(heads=4)}),
    (["backbone=gat", "backbone.heads=2"], {"backbone": GAT(heads=2)}),
    (["dataset.num_nodes=300"], {"dataset": BlockModel(num_nodes=300)}),
    (["dataset.num_nodes=2708", "dataset.seed=0"], {}),
    (["dataset=cora", "x_eps=1", "y_eps=inf"], {"dataset": "cora", "y_eps": INF}),
    (["backbone=pyg"], {"backbone": TorchModule()}),
    (["learner=forward", "weight_decay=0"], {"learner": "forward", "weight_decay": 0.0}),
    (["filter.steps=4", "learner.steps=2"], {"filter": KProp(steps=4), "learner": Drop(steps=2)}),
    (["filter=conditioned"], {"filter": KProp(conditioning="node")}),
    (
        ["backbone=custom", "backbone._target_=small_run.PlainSage", "+backbone.width=2"],
        {"backbone": {"_target_": "small_run.PlainSage", "width": 2}},
    ),
]


@pytest.mark.parametrize(("overrides", "keywords"), SPELLINGS, ids=lambda v: str(v)[:40])
def test_command_line_and_notebook_mean_the_same(
    overrides: list[str], keywords: dict[str, Any]
) -> None:
    assert identity(*overrides) == Settings(**keywords).resolve().identity


def test_a_choice_brings_its_own_options_and_none_of_another() -> None:
    """The default graph has nine options: a graph of one's own must get none of them."""
    overrides = ["dataset=custom", "dataset._target_=small_run.ring", "+dataset.degree=6"]
    (point,) = expand(overrides)
    assert point.settings.dataset == {"_target_": "small_run.ring", "degree": 6}
    assert point.settings.resolve().graph.average_degree == 6
    (named,) = expand([*overrides, "+dataset.name=mine"])
    assert named.settings.resolve().dataset.name == "mine"
    (other,) = expand(["dataset=custom", "dataset._target_=small_run.Ring", "+dataset.degree=6"])
    assert other.settings.resolve().identity == point.settings.resolve().identity
    (mechanism,) = expand(["mechanism=custom", "mechanism._target_=small_run.RoundedNoise"])
    assert mechanism.settings.mechanism == {"_target_": "small_run.RoundedNoise"}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "custom" in component_names(kind)])
def test_a_component_of_ones_own_must_be_named(kind: str) -> None:
    error = bad_input(f"{kind}=custom")
    assert error.setting == f"{kind}._target_"


def test_mechanism_names_are_accepted_in_any_case() -> None:
    points = expand(["mechanism=MB,Lp"], multirun=True)
    assert [point.settings.component("mechanism").name for point in points] == ["mb", "lp"]
    assert identity("mechanism=AG") == identity("mechanism=ag")


@pytest.mark.parametrize("text", ["inf", "INF", ".inf", "'inf'"])
def test_infinite_budgets_have_several_spellings(text: str) -> None:
    (point,) = expand([f"x_eps={text}"])
    assert point.settings.x_eps == INF


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("save=history", ("history",)),
        ("save=[predictions,weights]", ("predictions", "weights")),
        ("save=predictions,weights,history", ("predictions", "weights", "history")),
        ("save=[]", ()),
    ],
)
def test_what_to_save_may_be_one_or_several(override: str, expected: tuple[str, ...]) -> None:
    (point,) = expand([override])
    assert point.settings.outputs == expected


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("results_dir=~/my results", Path.home() / "my results"),
        ("results_dir=/tmp/with space/and more", Path("/tmp/with space/and more")),
        ("results_dir='/tmp/a,b'", Path("/tmp/a,b")),
    ],
)
def test_folders_may_have_spaces_and_tildes(override: str, expected: Path) -> None:
    (point,) = expand([override])
    assert point.settings.results_path == expected


@pytest.mark.parametrize(
    ("override", "setting", "hint"),
    [
        ("x_eps=-1", "x_eps", "positive"),
        ("y_eps=nan", "y_eps", "positive"),
        ("y_eps=null", "y_eps", "positive"),
        ("repeats=0", "repeats", ">= 1"),
        ("dropout=1", "dropout", "[0, 1)"),
        ("filter.steps=-1", "filter.steps", ">= 0"),
        ("learner.steps=two", "learner.steps", ">= 0"),
        ("x_eps=1,2", "x_eps", "-m"),
        ("dataset=cora,pubmed", "dataset", "-m"),
        ("dataset=karate", "dataset", "actor, chameleon, citeseer, cora, custom"),
        (
            "mechanism=gauss",
            "mechanism",
            "1b, ag, custom, duchi, grr_fs, hm, lp, mb, pm, privunit, sw",
        ),
        ("label_mechanism=lp", "label_mechanism", "custom, laplace_onehot, rr, rr_prior, ss"),
        ("filter=nothing", "filter", "conditioned, custom, hoa, kprop"),
        ("backbone=gin", "backbone", "custom, gat, gcn, pyg, sage"),
        ("learner=propagation", "learner", "label_propagation"),
        ("+experiment=nothing", "experiment", "mechanisms"),
        ("xeps=1", "xeps", "x_eps"),
        ("+xeps=1", "xeps", "x_eps"),
        ("x_steps=2", "x_steps", "filter"),
        ("conditioning=node", "conditioning", "filter"),
        ("dataset.nodes=1", "dataset.nodes", "num_nodes"),
        ("+dataset.nodes=1", "dataset.nodes", "num_nodes"),
        ("mechanism.delta=1e-5", "mechanism.delta", "num_samples"),
        ("x_eps.deep=1", "x_eps.deep", "no options"),
        ("hparams=nothing", "hparams", "paper"),
        ("hparams=3", "hparams", "paper"),
        ("dataset.average_degree=0", "dataset.average_degree", ""),
        ("dataset.average_degree=many", "dataset.average_degree", ""),
        ("dataset.average_degree=null", "dataset.average_degree", ""),
        ("+learner.walk=lazy", "learner.walk", "steps, aggregator"),
        ("results_dir=null", "results_dir", "folder"),
        ("save=[colours]", "save", "predictions, weights, history"),
        ("metric=f2", "metric", "acc, macro_f1, balanced_acc"),
        ("kernels=fortran", "kernels", "auto, numba, torch"),
    ],
)
def test_bad_command_lines_are_refused_by_name(override: str, setting: str, hint: str) -> None:
    error = bad_input(override)
    assert error.setting == setting
    assert hint in error.allowed


@pytest.mark.parametrize(
    ("override", "setting"),
    [
        ("x_eps", "x_eps"),
        ("=1", ""),
        ("--what", "--what"),
        ("x_eps=${nothing}", "x_eps"),
        ("x_eps=[1", "x_eps"),
        ("x_eps=(1", "x_eps"),
    ],
)
def test_what_is_no_override_is_refused_by_name(override: str, setting: str) -> None:
    error = bad_input("seed=3", override, "hidden_dim=8")
    assert error.setting == setting
    assert "hidden_dim=8" not in str(error)  # nothing but what is wrong


@pytest.mark.parametrize("multirun", [False, True])
def test_a_removed_option_is_gone_and_settings_cannot_be_removed(multirun: bool) -> None:
    (point,) = expand(["~filter.steps", "~metrics.macro_f1"], multirun=multirun)
    assert "steps" not in vars(point.settings)["filter"]
    assert set(point.settings.metrics) == {"acc", "balanced_acc"}
    for setting in ("x_eps", "mechanism", "seed"):
        error = bad_input(f"~{setting}", multirun=multirun)
        assert error.setting == setting
        assert "give it a value instead of taking it out" in error.allowed
    assert bad_input("~nothing").setting == "nothing"


def test_a_glob_leaves_out_what_wants_a_class_or_a_folder() -> None:
    points = expand(["dataset=glob(*)"], multirun=True)
    empty = {"custom", "files", "pyg"}
    expected = [name for name in component_names("dataset") if name not in empty]
    assert [point.keys["dataset"] for point in points] == expected
    assert {"cora", "sbm", "tolokers"} < set(expected)


@pytest.mark.parametrize(
    ("shown", "message"),
    [
        ("tables: {t: {rows: x_eps, columns: mechansim}}", "tables.t=mechansim: no point of the"),
        ("tables: {t: {rows: x_eps, colums: y_eps}}", "tables.t.colums=y_eps: unknown option"),
        ("figures: {f: {x: x_eps, seris: y_eps}}", "figures.f.seris=y_eps: unknown option"),
        (
            "figures: {f: {strips: [{x: x_eps}, {x: steps}]}}",
            "figures.f=steps: no point of the grid has this key; known: dataset, seed, x_eps, y",
        ),
        (
            "figures: {f: {x: x_eps, where: {backbone: gcn}}}",
            "figures.f.where=backbone: no point of",
        ),
        (
            "tables: {t: {rows: y_eps, columns: x_eps, metric: auc}}",
            "tables.t.metric=auc: must be among acc, balanced_acc, macro_f1, roc_auc",
        ),
        ("figures: {f: {x: x_eps, metric: auc}}", "figures.f.metric=auc: must be among acc"),
    ],
)
def test_what_an_experiment_shows_is_checked_before_it_runs(
    shown: str, message: str, tmp_path: Path
) -> None:
    folder = tmp_path / "experiment"
    folder.mkdir()
    grid = 'grid: [{x_eps: "1,2", y_eps: 1}]'
    (folder / "mine.yaml").write_text(f"# @package _global_\n{grid}\n{shown}\n")
    words = ["experiment=mine", "seed=3", f"results_dir={tmp_path}"]
    assert message in str(bad_input(*words, folder=tmp_path))
    # A key may come from the command line.
    if "mechansim" in shown:
        (folder / "mine.yaml").write_text(
            f"# @package _global_\n{grid}\n{shown.replace('mechansim', 'mechanism')}\n"
        )
        assert len(expand([*words, "mechanism=mb,lp"], config_dirs=[tmp_path])) == 4


def test_ranges_and_globs_are_grids_and_intervals_are_not() -> None:
    points = expand(["seed=range(2,5)", "mechanism=glob([1b,l*])"], multirun=True)
    found = [(point.settings.seed, point.keys["mechanism"]) for point in points]
    assert found == [(s, m) for s in (2, 3, 4) for m in ("1b", "lp")]
    error = bad_input("x_eps=interval(0,1)", multirun=True)
    assert error.setting == "x_eps"
    assert "range(start,stop,step)" in error.allowed


def test_settings_may_refer_to_each_other() -> None:
    (point,) = expand(["y_eps=${x_eps}", "x_eps=0.25"])
    assert point.settings.y_eps == 0.25


def test_bad_options_of_a_learner_are_refused_on_the_command_line() -> None:
    for learner, option in (
        ("label_propagation", "learner.walk=drunk"),
        ("residual", "learner.combine=all"),
        ("label_propagation", "+learner.colour=3"),
        ("residual", "learner.smooth=-1"),
        ("residual", "learner.smooth=some"),
        ("forward", "+learner.steps=2"),
        ("cross_entropy", "learner.steps=2"),
    ):
        setting = option.lstrip("+").split("=")[0]
        assert bad_input(f"learner={learner}", option).setting == setting
    assert bad_input("feature=blank", "x_eps=inf").setting == "x_eps"


def test_a_bad_member_of_a_grid_is_refused() -> None:
    assert bad_input("x_eps=1,-2", multirun=True).value == -2
    assert bad_input("x_eps=1,1e308", multirun=True).value == 1e308
    assert bad_input("mechanism=mb,zz", multirun=True).value == "zz"


def test_a_total_and_a_share_set_both_budgets() -> None:
    points = expand(["total_eps=4,9", "x_share=0.25,0.5"], multirun=True)
    budgets = [(point.settings.x_eps, point.settings.y_eps) for point in points]
    assert budgets == [(1, 3), (2, 2), (2.25, 6.75), (4.5, 4.5)]
    assert points[0].keys == {"total_eps": "4", "x_share": "0.25"}
    assert {sum(pair) for pair in budgets} == {4, 9}
    (same,) = expand(["total_eps=4", "x_share=0.5"])
    assert same.settings.resolve().identity == identity("x_eps=2", "y_eps=2")


def test_a_share_of_zero_spends_all_on_labels() -> None:
    (labels,) = expand(["total_eps=3", "x_share=0", "learner=label_propagation"])
    assert labels.settings.resolve().total_budget == 3
    (ones,) = expand(["total_eps=3", "x_share=0", "feature=ones"])
    assert ones.settings.resolve().total_budget == 3
    # The noise of blank reports has a size, whoever draws them.
    (blank,) = expand(["total_eps=3", "x_share=0", "feature=blank", "x_eps=2"])
    assert (blank.settings.x_eps, blank.settings.y_eps) == (2, 3)
    error = bad_input("total_eps=3", "x_share=0")
    assert str(error).startswith("x_share=0: spends nothing on features: needs a feature that")


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (["total_eps=4"], "x_share=null: must be set beside total_eps"),
        (["x_share=0.5"], "total_eps=null: must be set beside x_share"),
        (["total_eps=4", "x_share=0.5", "x_eps=2"], "x_eps=2: is set by total_eps and x_share"),
        (["total_eps=4", "x_share=0.5", "y_eps=2"], "y_eps=2: is set by total_eps and x_share"),
        (["total_eps=4", "x_share=0", "feature=blank", "y_eps=2"], "y_eps=2: is set by total_eps"),
        (["total_eps=4", "x_share=1"], "x_share=1: must be a number in [0, 1)"),
        (["total_eps=4", "x_share=-0.1"], "x_share=-0.1: must be a number in [0, 1)"),
        (["total_eps=4", "x_share=half"], "x_share=half: must be a number in [0, 1)"),
        (["total_eps=0", "x_share=0.5"], "total_eps=0: must be a positive finite number"),
        (["total_eps=inf", "x_share=0.5"], "total_eps=inf: must be a positive finite number"),
        (["total_eps=true", "x_share=0.5"], "total_eps=True: must be a positive finite number"),
    ],
)
def test_bad_totals_and_shares_are_named(overrides: list[str], text: str) -> None:
    assert str(bad_input(*overrides)).startswith(text)


@pytest.mark.parametrize("folder", ["my graphs/one", "~/one", "a,b"])
def test_a_path_is_the_same_in_a_run_and_in_a_grid(folder: str) -> None:
    """Text of a grid comes back from Hydra with its own escapes."""
    given = f"dataset.path='{folder}'" if "," in folder else f"dataset.path={folder}"
    words = ["dataset=files", "dataset.ranges=unit", given]
    (alone,) = expand(words)
    wrapped = [*words[:2], f"dataset.path=choice('{folder}')", "x_eps=1,2"]
    paths = {point.settings.dataset["path"] for point in expand(wrapped, multirun=True)}  # type: ignore[index]
    assert len(paths) == 1
    (path,) = paths
    assert Path(path).expanduser() == Path(alone.settings.dataset["path"]).expanduser()  # type: ignore[index]
    assert path.endswith(folder.lstrip("~"))


def test_a_file_is_composed_again_once_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    compose = hydra.compose

    def counted(*words: Any, **options: Any) -> Any:
        calls.append(words)
        return compose(*words, **options)

    monkeypatch.setattr(hydra, "compose", counted)
    (tmp_path / "dataset").mkdir()
    path = tmp_path / "dataset" / "mine.yaml"
    path.with_name(".#mine.yaml").symlink_to("nowhere")  # as an editor leaves one

    def num_nodes() -> int:
        (point,) = expand(["dataset=mine"], config_dirs=[tmp_path])
        found = point.settings.component("dataset")
        assert isinstance(found, BlockModel)
        return found.num_nodes

    text = "_target_: lpgnn.data.BlockModel\nnum_nodes: 120\nnum_classes: 3\nnum_features: 40\n"
    path.write_text(text)
    assert [num_nodes() for _ in range(2)] == [120, 120]
    first = len(calls)
    assert first == 1  # the defaults; the choice is a plain file
    path.write_text(text.replace("120", "240"))
    assert [num_nodes() for _ in range(2)] == [240, 240]
    assert len(calls) == 2 * first
    # A new file is a new choice, and one that is gone is none.
    path.rename(path.with_name("other.yaml"))
    assert len(expand(["dataset=other"], config_dirs=[tmp_path])) == 1
    with pytest.raises(InputError, match="dataset=mine: must be one of"):
        expand(["dataset=mine"], config_dirs=[tmp_path])


def by_hydra(monkeypatch: pytest.MonkeyPatch, words: list[str], folder: Path) -> list[Point]:
    """What Hydra makes of all choices itself."""
    with monkeypatch.context() as patch:
        patch.setattr("lpgnn.composition._Composer._plain_choice", lambda *_: None)
        patch.setattr("lpgnn.composition._KEPT", {})
        return expand(words, multirun=True, config_dirs=[folder])


@pytest.mark.parametrize("group", [*KINDS, *WATCHERS])
def test_a_plain_file_is_read_as_hydra_composes_it(
    group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [name for name in component_names(group) if name != "custom"]
    words = [f"{group}={','.join(names)}"]
    found = expand(words, multirun=True, config_dirs=[tmp_path])
    assert len(found) == len(names) > 0
    assert found == by_hydra(monkeypatch, words, tmp_path)


MINE = "_target_: lpgnn.learners.Drop\nsteps: 3\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"learner/mine": MINE}, {"steps": 3, "seed": 0}),
        ({"learner/mine": MINE.replace("3", "${seed}")}, {"steps": 0, "seed": 0}),
        ({"learner/mine": f"# @package _global_\nseed: 7\nlearner:\n  {MINE.split()[0]} "
          "lpgnn.learners.Drop\n  steps: 4\n"}, {"steps": 4, "seed": 0}),
        ({"learner/mine": "defaults: [drop]\nsteps: 5\n"}, {"steps": 5, "seed": 0}),
        ({"learner/mine": MINE, "experiment/own": "learner: {steps: 6}\n"},
         {"steps": 6, "seed": 0}),
        ({"learner/mine": MINE, "experiment/own": "defaults: [{override /learner: mine}]\n"
          "seed: 8\n"}, {"steps": 3, "seed": 8}),
    ],
    ids=["plain", "interpolation", "package", "defaults", "experiment", "experiment's defaults"],
)  # fmt: skip
def test_what_is_not_plain_is_left_to_hydra(
    files: dict[str, str], expected: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        path = tmp_path / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        is_experiment = name.startswith("experiment")
        path.write_text(f"# @package _global_\n{text}" if is_experiment else text)
    words = ["learner=mine", *(["experiment=own"] if "experiment/own" in files else [])]
    (point,) = expand(words, config_dirs=[tmp_path])
    assert isinstance(point.settings.learner, dict)
    found = {"steps": point.settings.learner["steps"], "seed": point.settings.seed}
    assert found == expected
    assert [point] == by_hydra(monkeypatch, words, tmp_path)
