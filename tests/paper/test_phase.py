from pathlib import Path

import pytest

from lpgnn.paper.phase import Phases
from lpgnn.report.evidence import Source
from report.rows import add_rows

NOISE = [0.0, 0.1, -0.1, 0.05]
BUDGETS = ("0.5", "1", "2", "4", "8")


@pytest.fixture(scope="module")
def phases(tmp_path_factory: pytest.TempPathFactory) -> Phases:
    """MB at homophily 0.25 gains 5 points from ε_x = 4 on, PrivUnit 1 point at ε_x = 1 only."""
    folder = tmp_path_factory.mktemp("results")
    cells = Source(folder, "paper").results("phase_diagram").cells
    for cell in cells:
        keys = cell.keys
        if "mechanism" not in keys:
            continue  # a control
        shown = {**keys, "dataset.average_degree": "20", "dataset.num_features": "16"}
        if keys["dataset.homophily"] != "0.25" or shown != keys or keys["mechanism"] == "pm":
            continue
        gain = 0.0
        if keys["feature"] == "raw":
            of_bits = keys["mechanism"] == "mb" and float(keys["x_eps"]) >= 4
            gain = (
                5.0
                if of_bits
                else 1.0
                if keys["mechanism"] != "mb" and keys["x_eps"] == "1"
                else 0.0
            )
        sign = 1 if keys["feature"] == "raw" else -1
        values = [40.0 + gain + sign * one for one in NOISE]
        add_rows(folder, cell.point.settings, values, engine="one")
    return Phases(Source(folder, "paper"))


def test_from_where_on_reports_pay(phases: Phases) -> None:
    grid = phases.grid()
    assert grid is not None
    rows = {row[0].text: [one.text for one in row[1:]] for row in grid.blocks[0]}
    at = grid.headings.index("homophily 0.25") - 1
    assert rows["MB − blank"][at] == "4"
    assert rows["PrivUnitG − blank"][at].startswith("nowhere")
    assert rows["mean of blank reports"][at] == "40.0"
    assert rows["PM − blank"][at] == "undecided (5 of 5 budgets missing)"


def test_families_and_cost_are_told(phases: Phases) -> None:
    setting, by_homophily, *_rest, cost = phases.sentences()
    assert "MB − blank above 0 in 2 of 30 (25 missing) and below 0 in 0" in by_homophily
    assert "PrivUnitG − blank above 0 in 1 of 30 (25 missing)" in by_homophily
    assert "labels of train+val nodes at ε_y=∞, 4 classes. Differences" in setting
    # Twenty computations of four repeats, 1.5 seconds each.
    assert phases.minutes == pytest.approx(20 * 4 * 1.5 / 60)
    assert cost == (
        "The runs of its 304 configurations took 2 minutes, added up, on a machine with other work."
    )


def test_in_short(phases: Phases) -> None:
    text = phases.in_short()
    assert "MB's reports do at homophily 0.25 for some ε_x up to 8, but not at 0.1 (–), 0.4" in text


def test_without_rows_there_is_nothing(tmp_path: Path) -> None:
    found = Phases(Source(tmp_path, "paper"))
    assert (found.grid(), found.sentences()) == (None, [])
    assert found.in_short() == ""
