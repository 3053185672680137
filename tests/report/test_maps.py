"""Maps of paired differences, against differences computed by hand."""

from pathlib import Path
from typing import Any

import pytest

from lpgnn.config import Settings
from lpgnn.errors import InputError
from lpgnn.report.evidence import Source
from lpgnn.report.maps import draw_map
from lpgnn.report.tables import build_table
from lpgnn.shown import check_map, parse_figure
from report.rows import add_rows, write_experiment

GRID = """
grid:
  - {dataset: cora, feature: "raw,blank", x_eps: "4,1", y_eps: "2,1"}
"""
TABLE = {
    "blocks": "y_eps",
    "rows": "feature",
    "columns": "x_eps",
    "names": {"y_eps": "Label budget"},
    "differences": {"gain": ["raw", "blank"]},
}


def run(feature: str, x_eps: float, y_eps: float) -> Settings:
    return Settings(dataset="cora", feature=feature, x_eps=x_eps, y_eps=y_eps)


def table(folder: Path, options: dict[str, Any]) -> Any:
    conf = write_experiment(folder, "grid", GRID)
    return build_table(
        "grid", options, Source(folder, "paper", config_dirs=(conf,)).results("grid")
    )


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, str, str]]:
    """What matplotlib was asked to write into cells: column, row, number and weight."""
    from matplotlib.axes import Axes

    found: list[tuple[int, int, str, str]] = []
    text = Axes.text

    def on_text(axes: Any, x: int, y: int, words: str, **options: Any) -> Any:
        found.append((x, y, words, options["fontweight"]))
        return text(axes, x, y, words, **options)

    monkeypatch.setattr(Axes, "text", on_text)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("turned", [False, True])
def test_cells_hold_paired_differences_in_the_order_of_their_numbers(
    tmp_path: Path, texts: list[tuple[int, int, str, str]], turned: bool
) -> None:
    add_rows(tmp_path, run("raw", 1.0, 1.0), [60.0, 71.0, 80.0], engine="one")
    add_rows(tmp_path, run("blank", 1.0, 1.0), [50.0, 61.1, 69.9], engine="one")
    add_rows(tmp_path, run("raw", 4.0, 2.0), [60.0, 70.0, 80.0], engine="one")
    add_rows(tmp_path, run("blank", 4.0, 2.0), [65.0, 70.0, 80.0], engine="one")
    # Of two engines: no pair.
    add_rows(tmp_path, run("raw", 4.0, 1.0), [60.0, 70.0], engine="one")
    add_rows(tmp_path, run("blank", 4.0, 1.0), [50.0, 60.0], engine="two")
    options = (
        TABLE | {"rows": "x_eps", "columns": "feature", "best": "columns"} if turned else TABLE
    )
    drawing = draw_map("gains", table(tmp_path, options), tmp_path)
    assert drawing == (tmp_path / "gains.svg").read_bytes()
    # Down: y_eps 1, 2; across: x_eps 1, 4, though the grid has them the other way round.
    assert texts == [(0, 0, "+10.0", "bold"), (1, 1, "-1.7", "normal")]


def test_without_pairs_there_is_no_map(tmp_path: Path) -> None:
    add_rows(tmp_path, run("raw", 1.0, 1.0), [60.0, 71.0])
    assert draw_map("gains", table(tmp_path, TABLE), tmp_path) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"map": "other"}, "figures.gains.map=other: must be a table of the experiment"),
        ({"map": "plain"}, "figures.gains.map=plain: must be a table of the experiment"),
        ({"map": "grid", "x": "x_eps"}, "figures.gains.map=grid: takes its axes from the table"),
    ],
)
def test_a_map_of_nothing_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_map(parse_figure("gains", options)[0], {"grid": TABLE, "plain": {"rows": "x_eps"}})
