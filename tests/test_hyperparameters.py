import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from lpgnn.config import Settings
from lpgnn.errors import InputError
from lpgnn.hyperparameters import AVERAGE_DEGREE, conf_dir, load_table, nearest_graph

INF = math.inf
PUBLISHED = Path(__file__).parents[1] / ".." / "shared" / "reference" / "tuned.md"
GRAPHS = ("cora", "pubmed", "facebook", "lastfm")


def number(text: str) -> float:
    return INF if text == "inf" else float(text)


def published_tables() -> tuple[dict[Any, list[float]], dict[Any, list[int]]]:
    """The authors' values: (feature, x kind, y kind, graph) and (graph, x_eps, y_eps) -> values."""
    training: dict[Any, list[float]] = {}
    steps: dict[Any, list[int]] = {}
    graph = ""
    header: list[str] = []
    for line in PUBLISHED.read_text().splitlines():
        if line.startswith("###"):
            graph = line.strip("# ").lower()
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|") or set(line) <= set("|-"):
            continue
        if cells[0] in ("eps_x", "feature"):
            header = cells
        elif header[0] == "feature" or header[1] == "eps_y":
            feature, x = (cells[0], "inf") if header[0] == "feature" else ("raw", cells[0])
            for name, values in zip(GRAPHS, cells[2:], strict=True):
                training[feature, x, cells[1], name] = [float(v) for v in values.split("/")]
        else:
            for y_eps, pair in zip(header[1:], cells[1:], strict=True):
                steps[graph, number(cells[0]), number(y_eps)] = [int(k) for k in pair.split(",")]
    return training, steps


needs_published = pytest.mark.skipif(
    not PUBLISHED.is_file(), reason="the authors' table is not beside the checkout"
)


@needs_published
def test_training_values_are_the_published_ones() -> None:
    training, _ = published_tables()
    assert len(training) == (4 + 6) * len(GRAPHS)
    table = load_table("paper")
    eps = {"fin": 1.0, "inf": INF}
    for (feature, x, y, graph), expected in training.items():
        found = table.look_up(graph, feature, eps[x], eps[y])
        values = [found.learning_rate, found.weight_decay, found.dropout]
        assert values == expected, (feature, x, y, graph)


@needs_published
def test_steps_are_the_published_ones() -> None:
    _, steps = published_tables()
    assert len(steps) == len(GRAPHS) * 6 * 5
    table = load_table("paper")
    for (graph, x_eps, y_eps), expected in steps.items():
        found = table.look_up(graph, "raw", x_eps, y_eps)
        assert [found.x_steps, found.y_steps] == expected, (graph, x_eps, y_eps)


@needs_published
def test_the_table_holds_nothing_but_the_published_values() -> None:
    training, steps = published_tables()
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
    own_steps = {k: table.look_up("cora", "raw", k, 3.0).x_steps for k in (0.01, 0.1, 1, 2, 3, INF)}
    found = table.look_up("cora", "raw", x_eps, 3.0)
    assert found.x_steps == own_steps[nearest]
    # Cora's steps at y_eps = 3 tell too few budgets apart: compare a table that tells all apart.
    steps = {key: {1: [int(1000 * key), 0]} for key in (0.01, 0.1, 1, 2, 3)} | {INF: {1: [7, 0]}}
    told_apart = type(table)("test", table.training, {"cora": steps})
    expected = 7 if math.isinf(nearest) else int(1000 * nearest)
    assert told_apart.look_up("cora", "raw", x_eps, 1.0).x_steps == expected


@pytest.mark.parametrize(("y_eps", "y_steps"), [(0.6, 8), (0.8, 8), (1.3, 8), (1.5, 4), (5.0, 4)])
def test_label_budgets_are_looked_up_by_ratio_too(y_eps: float, y_steps: int) -> None:
    assert load_table("paper").look_up("cora", "raw", 1.0, y_eps).y_steps == y_steps


@pytest.mark.parametrize(
    ("degree", "graph"),
    [
        (0.5, "cora"),
        (4.18, "cora"),  # sqrt(3.90 * 4.50) = 4.189
        (4.2, "pubmed"),
        (5.7, "pubmed"),  # sqrt(4.50 * 7.29) = 5.73
        (5.8, "lastfm"),
        (10.5, "lastfm"),  # sqrt(7.29 * 15.21) = 10.53
        (10.6, "facebook"),
        (500.0, "facebook"),
    ],
)
def test_graphs_outside_the_table_go_by_average_degree(degree: float, graph: str) -> None:
    assert nearest_graph(degree) == graph
    settings = Settings(dataset={"name": "sbm", "average_degree": degree}, x_eps=1.0, y_eps=1.0)
    configuration = settings.resolve()
    expected = load_table("paper").look_up(graph, "raw", 1.0, 1.0)
    assert configuration.x_steps == expected.x_steps
    assert configuration.learning_rate == expected.learning_rate
    assert f"as {graph}" in configuration.origin


def test_a_graph_can_be_told_which_entry_to_take() -> None:
    settings = Settings(dataset={"name": "sbm", "tuned_as": "facebook"})
    assert "as facebook" in settings.resolve().origin
    named = Settings(dataset={"name": "sbm", "average_degree": 15.0})
    assert settings.resolve().learning_rate == named.resolve().learning_rate


def test_degrees_are_those_of_the_papers_table() -> None:
    from lpgnn.data import PAPER_STATISTICS

    assert {n: s.average_degree for n, s in PAPER_STATISTICS.items()} == AVERAGE_DEGREE


def test_given_values_win_over_the_table() -> None:
    configuration = Settings(x_steps=5, dropout=0.0).resolve()
    tuned = load_table("paper").look_up("cora", "raw", 1.0, 1.0)
    assert (configuration.x_steps, configuration.dropout) == (5, 0.0)
    assert configuration.y_steps == tuned.y_steps
    assert "x_steps" not in configuration.origin
    assert "y_steps" in configuration.origin


def good_table() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((conf_dir() / "hparams/paper.yaml").read_text())
    return content


def test_a_file_of_the_users_own_is_read_and_read_anew_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    table = good_table()
    table["steps"]["cora"][1][1] = [5, 6]
    path.write_text(yaml.safe_dump(table))
    assert Settings(hparams=str(path)).resolve().x_steps == 5
    table["steps"]["cora"][1][1] = [7, 6]
    path.write_text(yaml.safe_dump(table))
    assert Settings(hparams=str(path)).resolve().x_steps == 7


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
    "negative step": with_value(good_table(), [-2, 2], "steps", "cora", 1, 1),
    "dropout of 1": with_value(
        good_table(), [0.1, 0, 1.0], "training", "raw", "finite", "finite", "cora"
    ),
}


@pytest.mark.parametrize("kind", BROKEN_FILES)
def test_a_broken_file_is_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    path, content = tmp_path / "broken.yaml", BROKEN_FILES[kind]
    path.write_bytes(content if isinstance(content, bytes) else yaml.safe_dump(content).encode())
    with pytest.raises(InputError) as caught:
        Settings(hparams=str(path)).resolve()
    assert caught.value.setting == "hparams"
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_table_is_refused(tmp_path: Path) -> None:
    for name in ("nothing", str(tmp_path), str(tmp_path / "nothing.yaml")):
        with pytest.raises(InputError, match="hparams"):
            load_table(name)
    with pytest.raises(InputError, match="tuned"):
        Settings(hparams="tuned", results_dir=str(tmp_path)).resolve()
