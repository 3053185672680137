from pathlib import Path

import pytest

from lpgnn.paper.hops import Hops
from lpgnn.report.evidence import Cell, Source
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
        elif keys.get("label") == "No reports":
            level = 51.0
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
    assert rows["without reports"][at].text == "51.0"
    assert rows["labels only"][at].text == "58.0"
    assert rows["features without noise"][at].text == "90.0"
    short = hops.grid("inf", intervals=False)
    assert short is not None
    assert {row[0].text: row[at].text for row in short.blocks[0]}["MB"] == "+5.0"


def test_they_are_counted_and_stand_beside_labels_only(hops: Hops) -> None:
    (told,) = hops.sentences()
    assert "over all 200 differences to it. On both graphs and at both label budgets" in told
    assert "this is how many are above blank reports: 0 at ε_x=0.5, 0 at" in told
    assert "0 at ε_x=3 and 1 at ε_x=8." in told
    verdicts = hops.verdicts()
    assert verdicts is not None
    rows = [[one.text for one in row] for block in verdicts.blocks for row in block]
    # MB and PM at ε_x = 8 are 9 above no reports and 2 above labels only.
    assert rows[0] == ["Minesweeper", "∞", "50", "1", "2", "2", "0", "60.0 (PM, ε_x=8)", "58.0"]
    assert rows[1] == ["Minesweeper", "1", "50", "0", "0", "0", "0", "–", "–"]


def test_networks_have_their_own_blank_reports(hops: Hops) -> None:
    grid = hops.networks()
    assert grid is not None
    (row,) = grid.blocks[0]
    assert [one.text for one in row] == ["Minesweeper, K_x=0", "63.0 (-0.0 [-0.3, +0.2])"]
    assert grid.headings == ["GraphSAGE on MB", "ε_x=8"]


def test_networks_that_may_not_have_converged_are_counted(
    hops: Hops, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Epochs 475 and later of 500, in two networks of three for each of two settings."""
    kept = {"paper": (474, 475, 500), "released": (1, 1, 1)}
    monkeypatch.setattr(Cell, "kept_epochs", lambda _, rule: kept[rule])
    assert hops.late() == (
        "Networks that are kept from the last 5 % of their epochs, and may not have converged: "
        "4 of 6 on Minesweeper."
    )


def test_without_rows_there_is_nothing(tmp_path: Path) -> None:
    found = Hops(Source(tmp_path, "paper"))
    assert (found.grid("inf"), found.networks(), found.sentences()) == (None, None, [])
    assert found.verdicts() is None
