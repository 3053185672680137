import copy
import csv
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from lpgnn.data import BlockModel, Cora, Facebook, LastFM, Pubmed, graph_facts
from lpgnn.errors import InputError
from lpgnn.hyperparameters import HyperparameterTable, conf_dir, load_table

INF = math.inf
PUBLISHED = Path(__file__).with_name("published")
GRAPHS = ("cora", "pubmed", "facebook", "lastfm")


def entry(
    table: HyperparameterTable, graph: str, feature: str, x_eps: float, y_eps: float
) -> dict[str, Any]:
    """The values of a graph that the table has: its degree must not matter."""
    found = table.look_up(graph, feature, x_eps, y_eps, average_degree=math.nan)
    assert found.graph == graph
    return dict(found.values)


def number(text: str) -> float:
    return INF if text == "inf" else float(text)


def published(name: str) -> list[dict[str, str]]:
    """A table of the values that the paper's authors published with their program."""
    with (PUBLISHED / name).open(newline="") as file:
        return list(csv.DictReader(file))


def test_training_values_are_the_published_ones() -> None:
    rows = published("training.csv")
    assert len(rows) == (4 + 6) * len(GRAPHS)
    table = load_table("paper")
    eps = {"fin": 1.0, "inf": INF}
    for row in rows:
        found = entry(table, row["graph"], row["feature"], eps[row["x_eps"]], eps[row["y_eps"]])
        for name in ("learning_rate", "weight_decay", "dropout"):
            assert found[name] == float(row[name]), (name, row)


def test_steps_are_the_published_ones() -> None:
    rows = published("steps.csv")
    assert len(rows) == len(GRAPHS) * 6 * 5
    table = load_table("paper")
    for row in rows:
        found = entry(table, row["graph"], "raw", number(row["x_eps"]), number(row["y_eps"]))
        for name in ("x_steps", "y_steps"):
            assert found[name] == int(row[name]), (name, row)


def test_the_table_holds_nothing_but_the_published_values() -> None:
    training, steps = published("training.csv"), published("steps.csv")
    table = load_table("paper")
    by_kind = [kind for feature in table.training.values() for kind in feature.values()]
    assert sum(len(graphs) for kind in by_kind for graphs in kind.values()) == len(training)
    assert sum(len(by_y) for by_x in table.steps.values() for by_y in by_x.values()) == len(steps)


@pytest.mark.parametrize(
    ("x_eps", "nearest"),
    [
        (0.001, 0.01),
        (0.03, 0.01),  # sqrt(0.01 * 0.1) = 0.0316
        (0.033, 0.1),
        (0.3, 0.1),  # sqrt(0.1 * 1) = 0.316: by difference, too, but
        (0.4, 1.0),  # by difference this is nearer to 0.1
        (1.4, 1.0),  # sqrt(1 * 2) = 1.414
        (1.45, 2.0),
        (100.0, 3.0),  # inf is near to nothing but itself
        (INF, INF),
    ],
)
def test_steps_are_those_of_the_nearest_budget_by_ratio(x_eps: float, nearest: float) -> None:
    table = load_table("paper")
    budgets = (0.01, 0.1, 1, 2, 3, INF)
    own_steps = {k: entry(table, "cora", "raw", k, 3.0)["x_steps"] for k in budgets}
    found = entry(table, "cora", "raw", x_eps, 3.0)
    assert found["x_steps"] == own_steps[nearest]
    # Cora's steps at y_eps = 3 are the same for several budgets: use a table where all differ.
    steps = {key: {1: [int(1000 * key), 0]} for key in (0.01, 0.1, 1, 2, 3)} | {INF: {1: [7, 0]}}
    distinct = HyperparameterTable("test", table.training, {"cora": steps})
    expected = 7 if math.isinf(nearest) else int(1000 * nearest)
    assert entry(distinct, "cora", "raw", x_eps, 1.0)["x_steps"] == expected


@pytest.mark.parametrize(("y_eps", "y_steps"), [(0.6, 8), (0.8, 8), (1.3, 8), (1.5, 4), (5.0, 4)])
def test_label_budgets_are_looked_up_by_ratio_too(y_eps: float, y_steps: int) -> None:
    assert entry(load_table("paper"), "cora", "raw", 1.0, y_eps)["y_steps"] == y_steps


@pytest.mark.parametrize(
    ("degree", "graph"),
    [
        (0.0, "cora"),  # no edges
        (0.5, "cora"),
        (4.18, "cora"),  # sqrt(10556 / 2708 * 88648 / 19717) = 4.186
        (4.19, "pubmed"),
        (5.72, "pubmed"),  # sqrt(88648 / 19717 * 51628 / 7083) = 5.725
        (5.73, "lastfm"),
        (10.52, "lastfm"),  # sqrt(51628 / 7083 * 341825 / 22470) = 10.530
        (10.54, "facebook"),
        (500.0, "facebook"),
    ],
)
@pytest.mark.parametrize("name", [None, "mine"])
def test_graphs_outside_the_table_go_by_average_degree(
    name: str | None, degree: float, graph: str
) -> None:
    table = load_table("paper")
    found = table.look_up(name, "raw", 1.0, 1.0, degree)
    assert found.graph == graph
    assert found.values == entry(table, graph, "raw", 1.0, 1.0)


def test_only_graphs_of_the_table_are_candidates() -> None:
    table = load_table("value_of_features")
    assert set(table.steps) == {"cora", "pubmed", "facebook"}
    degree = LastFM().facts.average_degree
    # 7.29 is 1.6 times Pubmed's degree, and Facebook's is 2.1 times 7.29.
    assert table.look_up("lastfm", "raw", 1.0, 1.0, degree).graph == "pubmed"


@pytest.mark.parametrize("name", ["conditioned", "residual"])
def test_no_reported_graph_was_tuned_on_itself(name: str) -> None:
    """Whatever the labels of these graphs, the values that they are trained with are the same."""
    table = load_table(name)
    assert set(table.steps) == {"lastfm"}
    for graph in ("cora", "pubmed", "facebook"):
        assert table.look_up(graph, "raw", 1.0, 1.0, 4.0).graph == "lastfm"


def test_a_graph_that_was_tuned_takes_its_own_entry() -> None:
    paper = load_table("paper")
    training = {"raw": {"finite": {"finite": {"sbm": [0.5, 0, 0.25], "cora": [0.1, 0, 0]}}}}
    steps = {"sbm": {1: {1: [3, 5]}}, "cora": paper.steps["cora"]}
    table = HyperparameterTable("tuned", training, steps)
    assert entry(table, "sbm", "raw", 1.0, 1.0) == {
        "learning_rate": 0.5,
        "weight_decay": 0.0,
        "dropout": 0.25,
        "x_steps": 3,
        "y_steps": 5,
    }
    # A generated graph has no published degree to be near to.
    assert table.look_up("mine", "raw", 1.0, 1.0, 3.9).graph == "cora"
    alone = HyperparameterTable("tuned", training, {"sbm": steps["sbm"]})
    with pytest.raises(InputError, match="hparams=tuned: has entries for sbm only"):
        alone.look_up("mine", "raw", 1.0, 1.0, 3.9)


def test_the_graph_itself_decides_not_its_options() -> None:
    """A dense graph of a user's own takes Facebook's values, not Cora's."""
    graph = BlockModel(num_nodes=300, average_degree=14.0, num_classes=3).generate()
    found = load_table("paper").look_up(None, "raw", 1, 1, graph_facts(graph).average_degree)
    assert found.graph == "facebook"


def test_degrees_are_the_published_facts() -> None:
    table = load_table("paper")
    datasets = (Cora(), Pubmed(), Facebook(), LastFM())
    assert [table.nearest_graph(d.facts.average_degree) for d in datasets] == list(GRAPHS)
    assert [d.tuned_as for d in datasets] == list(GRAPHS)


def test_features_that_a_table_does_not_have_take_those_of_raw_ones() -> None:
    paper, residual = load_table("paper"), load_table("residual")
    assert entry(paper, "cora", "mine", 1.0, 1.0) == entry(paper, "cora", "raw", 1.0, 1.0)
    assert entry(paper, "cora", "mine", INF, 1.0) == entry(paper, "cora", "raw", INF, 1.0)
    # Ad-hoc features have no budget, and this table has nothing for clean features.
    assert entry(residual, "lastfm", "ones", INF, 2.0) == entry(residual, "lastfm", "raw", 1.0, 2.0)
    with pytest.raises(
        InputError, match=r"hparams=residual: has no entry for lastfm with .*x_eps=inf"
    ):
        entry(residual, "lastfm", "raw", INF, 2.0)


def test_a_table_tuned_for_one_feature_needs_no_raw_entries() -> None:
    training = {"ones": {"inf": {"finite": {"cora": [0.1, 0, 0]}}}}
    table = HyperparameterTable("tuned", training, load_table("paper").steps)
    assert entry(table, "cora", "ones", INF, 1.0)["learning_rate"] == 0.1
    with pytest.raises(InputError, match="has no entry for cora"):
        entry(table, "cora", "raw", 1.0, 1.0)


def test_looking_up_a_tabulated_graph_does_not_import_torch() -> None:
    """hyperparameters.py alone, because importing the package may bring torch along."""
    path = sys.modules[load_table.__module__].__file__
    code = (
        "import importlib.util, sys, types\n"
        "package = types.ModuleType('lpgnn')\n"
        f"package.__path__ = [{str(Path(str(path)).parent)!r}]\n"
        "sys.modules['lpgnn'] = package\n"
        "from lpgnn.hyperparameters import load_table\n"
        "print(load_table('paper').look_up('cora', 'raw', 1, 1, 4).graph, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["cora", "False"]


PAPER_TABLE = yaml.safe_load((conf_dir() / "hyperparameters/paper.yaml").read_text())


def good_table() -> dict[str, Any]:
    content: dict[str, Any] = copy.deepcopy(PAPER_TABLE)
    return content


def test_a_file_of_the_users_own_is_read_and_read_anew_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    table = good_table()
    table["steps"]["cora"][1][1] = [5, 6]
    path.write_text(yaml.safe_dump(table))
    assert entry(load_table(str(path)), "cora", "raw", 1.0, 1.0)["x_steps"] == 5
    table["steps"]["cora"][1][1] = [7, 6]
    path.write_text(yaml.safe_dump(table))
    assert entry(load_table(str(path)), "cora", "raw", 1.0, 1.0)["x_steps"] == 7


def test_the_tuned_table_is_that_of_the_results_folder(tmp_path: Path) -> None:
    table = good_table()
    table["steps"]["cora"][1][1] = [9, 6]
    (tmp_path / "tuning").mkdir()
    (tmp_path / "tuning" / "tuned.yaml").write_text(yaml.safe_dump(table))
    assert entry(load_table("tuned", tmp_path), "cora", "raw", 1.0, 1.0)["x_steps"] == 9


def test_numbers_that_yaml_reads_as_text_become_numbers(tmp_path: Path) -> None:
    table = good_table()
    table["training"]["raw"]["finite"]["finite"]["cora"] = ["1e-3", 0, 0.5]  # YAML 1.1: no dot
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(table))
    found = entry(load_table(str(path)), "cora", "raw", 1.0, 1.0)
    assert (found["learning_rate"], type(found["weight_decay"])) == (0.001, float)


def without(table: dict[str, Any], *keys: Any) -> dict[str, Any]:
    inner = table
    for key in keys[:-1]:
        inner = inner[key]
    del inner[keys[-1]]
    return table


def with_value(table: dict[str, Any], value: Any, *keys: Any) -> dict[str, Any]:
    inner = table
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    return table


BROKEN_FILES: dict[str, Any] = {
    "empty": b"",
    "no yaml": b"training: [1, 2",
    "no text": b"\xff\xfe\x00\x01",
    "a list": [1, 2],
    "a word": b"training",
    "a key twice": yaml.safe_dump(good_table()).encode() + b"reported_seed: 1\n" * 2,
    "no training": without(good_table(), "training"),
    "no steps": without(good_table(), "steps"),
    "training is a number": with_value(good_table(), 3, "training"),
    "steps is a number": with_value(good_table(), 3, "steps"),
    "no raw": without(good_table(), "training", "raw"),
    "no budget": without(good_table(), "training", "raw", "finite", "finite"),
    "no graph": without(good_table(), "training", "raw", "finite", "finite", "cora"),
    "two values": with_value(good_table(), [1, 2], "training", "raw", "finite", "finite", "cora"),
    "rate is text": with_value(
        good_table(), ["fast", 0, 0], "training", "raw", "finite", "finite", "cora"
    ),
    "budget is text": with_value(good_table(), {"much": {1: [2, 2]}}, "steps", "cora"),
    "one step": with_value(good_table(), [2], "steps", "cora", 1, 1),
    "step is text": with_value(good_table(), ["two", 2], "steps", "cora", 1, 1),
    "half a step": with_value(good_table(), [2.5, 2], "steps", "cora", 1, 1),
    "infinite rate": with_value(
        good_table(), [INF, 0, 0], "training", "raw", "finite", "finite", "cora"
    ),
    "negative step": with_value(good_table(), [-2, 2], "steps", "cora", 1, 1),
    "seed is text": {**good_table(), "reported_seed": "seven"},
    "dropout of 1": with_value(
        good_table(), [0.1, 0, 1.0], "training", "raw", "finite", "finite", "cora"
    ),
}


@pytest.mark.parametrize("kind", BROKEN_FILES)
def test_a_broken_file_is_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    path, content = tmp_path / "broken.yaml", BROKEN_FILES[kind]
    path.write_bytes(content if isinstance(content, bytes) else yaml.safe_dump(content).encode())
    with pytest.raises(InputError) as caught:
        entry(load_table(str(path)), "cora", "raw", 1.0, 1.0)
    assert caught.value.setting == "hparams"
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_table_is_refused(tmp_path: Path) -> None:
    for name in ("nothing", str(tmp_path), str(tmp_path / "nothing.yaml")):
        with pytest.raises(InputError, match="residual, value_of_features, tuned or a file"):
            load_table(name)
    with pytest.raises(InputError, match=r"hparams=tuned: .*tuned\.yaml does not exist"):
        load_table("tuned", tmp_path)
