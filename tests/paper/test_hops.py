from pathlib import Path

import pytest

from lpgnn.paper.hops import Hops
from lpgnn.report.evidence import Source
from report.rows import add_rows

NOISE = [0.0, 0.1, -0.1, 0.05]


@pytest.fixture(scope="module")
def hops(tmp_path_factory: pytest.TempPathFactory) -> Hops:
    """On Minesweeper with clean labels MB gains 5 points at ε_x = 8, and PM less than its noise.

    The network with K_x = 0 is at 63, whatever it gets.
    """
    folder = tmp_path_factory.mktemp("results")
    for cell in Source(folder, "paper").results("hop_regression").cells:
        keys = cell.keys
        if (keys["dataset"], keys["y_eps"]) != ("minesweeper", "inf"):
            continue
        if keys.get("label") == "Labels only":
            level = 58.0
        elif keys.get("label") == "Features without noise":
            level = 90.0
        elif keys["learner"] == "cross_entropy":
            if keys.get("filter.steps") != "0" or keys["x_eps"] != "8":
                continue
            level = 63.0
        elif keys["x_eps"] == "8" and keys["mechanism"] in ("mb", "pm"):
            gains = {"mb": 5.0, "pm": 0.001}
            level = 60.0 if keys["feature"] == "raw" else 60.0 - gains[keys["mechanism"]]
        else:
            continue
        sign = 1 if keys.get("feature") == "blank" else -1
        values = [level + sign * one for one in NOISE]
        metrics = {"roc_auc": values}
        add_rows(folder, cell.point.settings, values, metrics=metrics, engine="one")
    return Hops(Source(folder, "paper"))


def test_gains_are_told_by_mechanism_and_budget(hops: Hops) -> None:
    grid = hops.grid("inf")
    assert grid is not None
    at = grid.headings.index("Minesweeper, ε_x=8")
    rows = {row[0].text: row for row in grid.blocks[0]}
    assert rows["MB"][at].text.startswith("+5.0 ± ")
    assert rows["MB"][at].bold
    assert rows["PM"][at].text.startswith("-0.0 ± ")
    assert not rows["PM"][at].bold
    assert rows["AG"][at].text == "–"
    assert rows["blank reports (MB)"][at].text == "55.0"
    assert rows["labels only"][at].text == "58.0"
    assert rows["features without noise"][at].text == "90.0"
    short = hops.grid("inf", intervals=False)
    assert short is not None
    assert {row[0].text: row[at].text for row in short.blocks[0]}["MB"] == "+5.0"


def test_they_are_counted_and_stand_beside_labels_only(hops: Hops) -> None:
    counted, levels = hops.sentences()
    assert "1 of 50 on Minesweeper at ε_y=∞, 0 of 50 on Minesweeper at ε_y=1, 0 of 50" in counted
    assert "Minesweeper at ε_y=∞ 60.0 (MB, ε_x=8) and 58.0." in levels


def test_networks_have_their_own_blank_reports(hops: Hops) -> None:
    grid = hops.networks()
    assert grid is not None
    (row,) = grid.blocks[0]
    assert [one.text for one in row] == ["Minesweeper, K_x=0", "63.0 (-0.0 [-0.3, +0.2])"]
    assert grid.headings == ["GraphSAGE on MB", "ε_x=8"]


def test_without_rows_there_is_nothing(tmp_path: Path) -> None:
    found = Hops(Source(tmp_path, "paper"))
    assert (found.grid("inf"), found.networks(), found.sentences()) == (None, None, [])
