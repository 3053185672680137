import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lpgnn.config import Settings
from lpgnn.report.drawing import BLANK_STYLES, LABELS_ONLY_STYLES, STYLES, add_legend
from lpgnn.report.evidence import Source
from lpgnn.report.figures import draw_figure
from lpgnn.report.tables import Printed
from report.rows import add_rows, write_experiment

pytestmark = pytest.mark.slow

GRID = """
grid:
  - {dataset: "cora,pubmed", backbone: "gcn,sage", x_eps: "0.1,1,inf", y_eps: "1,2"}
  - {label: Blank, control: true, dataset: "cora,pubmed", feature: blank, x_eps: 0.1, y_eps: 1}
  - {label: Labels only, control: true, dataset: "cora,pubmed", learner: label_propagation,
     y_eps: "1,2"}
"""
BY_BACKBONE = {"panels": ["backbone", "dataset"], "x": "x_eps", "series": "y_eps"}


class Drawn:
    """What is drawn: points, hollow ones, levels, panels' titles and the legend's entries."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from matplotlib.axes import Axes

        self.points: list[tuple[list[float], list[float], str]] = []
        self.hollow: list[float] = []
        self.levels: list[tuple[float, str]] = []
        self.titles: list[str] = []
        self.legend: list[str] = []
        errorbar, axhline, title = Axes.errorbar, Axes.axhline, Axes.set_title

        def on_errorbar(axes: Any, x: Any, y: Any, **options: Any) -> Any:
            if options["markerfacecolor"]:
                self.hollow += list(y)
            else:
                self.points.append((list(x), list(y), options["color"]))
            return errorbar(axes, x, y, **options)

        def on_axhline(axes: Any, y: float, **options: Any) -> Any:
            self.levels.append((y, options["color"]))
            return axhline(axes, y, **options)

        def on_title(axes: Any, text: str, **options: Any) -> Any:
            self.titles.append(text)
            return title(axes, text, **options)

        def on_legend(part: Any, handles: list[Any], title: str) -> None:
            self.legend += [title] * bool(title) + [handle.get_label() for handle in handles]
            add_legend(part, handles, title)

        monkeypatch.setattr("lpgnn.report.figures.add_legend", on_legend)
        monkeypatch.setattr(Axes, "errorbar", on_errorbar)
        monkeypatch.setattr(Axes, "axhline", on_axhline)
        monkeypatch.setattr(Axes, "set_title", on_title)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    return Drawn(monkeypatch)


def draw(
    folder: Path,
    options: dict[str, Any],
    printed: dict[str, Printed] | None = None,
    grid: str = GRID,
) -> bytes | None:
    conf = write_experiment(folder, "grid", grid)
    results = Source(folder, "paper", config_dirs=(conf,)).results("grid")
    return draw_figure("grid", options, results, printed or {}, folder)


def run(**settings: Any) -> Settings:
    return Settings(**{"dataset": "cora", "backbone": "gcn", **settings})


def test_points_levels_and_printed_values(tmp_path: Path, drawn: Drawn) -> None:
    first = add_rows(tmp_path, run(x_eps=0.1, y_eps=1.0), [60.0, 62.0])
    add_rows(tmp_path, run(x_eps=math.inf, y_eps=1.0), [80.0, 82.0])
    add_rows(tmp_path, run(x_eps=1.0, y_eps=2.0), [70.0, 70.0])
    add_rows(tmp_path, run(learner="label_propagation", y_eps=1.0), [50.0])
    add_rows(tmp_path, run(learner="label_propagation", y_eps=2.0), [55.0])
    svg = draw(tmp_path, BY_BACKBONE, {first: Printed(59.0, 1.0)})
    assert svg == (tmp_path / "grid.svg").read_bytes()
    blue, orange = "#0072B2", "#D55E00"
    assert [(y, colour) for _, y, colour in drawn.points] == [
        *(([61.0, 81.0], blue), ([70.0], orange))
    ]
    # Values stand side by side in the order of the grid; the missing one leaves its place.
    (first_x, last_x), (middle_x,) = drawn.points[0][0], drawn.points[1][0]
    assert round(first_x) == 0
    assert round(middle_x) == 1
    assert round(last_x) == 2
    assert drawn.hollow == [59.0]
    # A level takes the colour of the series whose label budget it has.
    assert drawn.levels == [(50.0, blue), (55.0, orange)]
    # Pubmed has no rows, and GraphSAGE has level lines only: neither gets a panel.
    assert drawn.titles == ["Cora"]
    # Blank reports have no rows, and nothing in the legend.
    budgets = [r"$\epsilon_y=1$", r"$\epsilon_y=2$"]
    assert drawn.legend == [*budgets, "Labels only", "ours", "as printed", "fewer repeats"]


def test_on_a_log_axis_infinity_is_a_level(tmp_path: Path, drawn: Drawn) -> None:
    add_rows(tmp_path, run(x_eps=0.1, y_eps=1.0), [60.0, 62.0])
    add_rows(tmp_path, run(x_eps=math.inf, y_eps=1.0), [80.0, 82.0])
    options = {**BY_BACKBONE, "scale": "log", "lines": True, "where": {"y_eps": 1}}
    assert draw(tmp_path, {**options, "series": "label"}) is None  # nothing with a label has rows
    draw(tmp_path, options)
    assert [y for _, y, _ in drawn.points] == [[61.0]]
    # The series has a point on the axis, so its other point is no level of the whole series.
    assert drawn.levels == []


def test_a_series_at_infinity_only_is_a_level_on_a_log_axis(tmp_path: Path, drawn: Drawn) -> None:
    grid = """
grid:
  - {label: private, dataset: cora, x_eps: "0.1,1", y_eps: 1}
  - {label: clean, dataset: cora, x_eps: inf, y_eps: 1}
"""
    add_rows(tmp_path, run(backbone="sage", x_eps=0.1, y_eps=1.0), [60.0, 62.0])
    add_rows(tmp_path, run(backbone="sage", x_eps=math.inf, y_eps=1.0), [80.0, 82.0])
    options = {"x": "x_eps", "series": "label", "scale": "log"}
    draw(tmp_path, options, grid=grid)
    assert [y for _, y, _ in drawn.points] == [[61.0]]
    assert drawn.levels == [(81.0, "#D55E00")]


def test_a_figure_without_series_names_its_positions(tmp_path: Path, drawn: Drawn) -> None:
    add_rows(tmp_path, run(x_eps=0.1, y_eps=1.0), [60.0, 62.0])
    add_rows(tmp_path, run(feature="blank", backbone="sage", x_eps=0.1, y_eps=1.0), [65.0, 65.0])
    draw(tmp_path, {"panels": "dataset", "x": ["backbone", "x_eps"], "where": {"y_eps": 1}})
    ours, control = drawn.points
    assert (ours[1], control[1]) == ([61.0], [65.0])
    assert ours[2] != control[2]
    # Six positions of backbone and budget come first, the control's follows.
    assert (round(ours[0][0]), round(control[0][0])) == (0, 6)


def test_strips_share_options_and_have_their_own(tmp_path: Path, drawn: Drawn) -> None:
    add_rows(tmp_path, run(x_eps=0.1, y_eps=1.0), [60.0, 62.0])
    add_rows(tmp_path, run(x_eps=0.1, y_eps=2.0), [70.0, 72.0])
    strips = [
        {"x": "x_eps", "series": "backbone", "where": {"y_eps": 1}},
        {"x": "y_eps", "series": "backbone", "where": {"x_eps": 0.1}},
    ]
    draw(tmp_path, {"panels": "dataset", "lines": True, "strips": strips})
    assert [y for _, y, _ in drawn.points] == [[61.0], [61.0, 71.0]]
    assert drawn.titles == ["Cora", "Cora"]


def test_the_same_legend_is_not_repeated(tmp_path: Path, drawn: Drawn) -> None:
    add_rows(tmp_path, run(x_eps=0.1, y_eps=1.0), [60.0] * 10)
    add_rows(tmp_path, run(x_eps=0.1, y_eps=2.0), [70.0] * 9)
    strips = [{"title": f"at {y}", "where": {"y_eps": y}} for y in (1, 2)]
    options = {"panels": "dataset", "x": "x_eps", "series": "backbone", "strips": strips}
    svg = draw(tmp_path, {**options, "legend": "network", "names": {"gcn": "GCN"}})
    assert svg is not None
    assert all(f"<!-- at {y} -->".encode() in svg for y in (1, 2))
    # Nothing of GraphSAGE is computed; the second strip's points have fewer repeats.
    assert drawn.legend == ["network", "GCN", "fewer repeats"]


def test_a_panel_without_a_number_stays_empty(tmp_path: Path, drawn: Drawn) -> None:
    """Of four panels, three: the titles stand above the first of each column."""
    for dataset, backbone in (("cora", "gcn"), ("cora", "sage"), ("pubmed", "sage")):
        settings = run(dataset=dataset, backbone=backbone, x_eps=0.1, y_eps=1.0)
        add_rows(tmp_path, settings, [60.0] * 10)
    draw(tmp_path, BY_BACKBONE)
    assert drawn.titles == ["Cora", "Pubmed"]
    assert len(drawn.points) == 3
    assert drawn.legend == [r"$\epsilon_y=1$"]


def test_controls_look_the_same_whatever_they_are_called(tmp_path: Path, drawn: Drawn) -> None:
    grid = """
grid:
  - {label: mine, dataset: cora, x_eps: "0.1,1", y_eps: 1}
  - {label: nothing, dataset: cora, feature: blank, x_eps: "0.1,1", y_eps: 1}
  - {label: no network, dataset: cora, learner: label_propagation, y_eps: 1}
"""
    first = Settings(dataset="cora", x_eps=0.1, y_eps=1.0)
    add_rows(tmp_path, first, [60.0] * 10)
    add_rows(tmp_path, replace(first, feature="blank"), [61.0] * 10)
    add_rows(tmp_path, Settings(dataset="cora", learner="label_propagation", y_eps=1.0), [50.0])
    draw(tmp_path, {"x": "x_eps", "series": "label", "scale": "log"}, grid=grid)
    colours = [colour for *_, colour in drawn.points]
    assert colours == [STYLES[0][0], BLANK_STYLES[0][0]]
    assert drawn.levels == [(50.0, LABELS_ONLY_STYLES[0][0])]


def test_drawing_twice_gives_the_same_bytes_without_date_or_version(tmp_path: Path) -> None:
    add_rows(tmp_path, run(x_eps=0.1, y_eps=1.0), [60.0, 62.0])
    first = draw(tmp_path, BY_BACKBONE)
    assert first is not None
    picture = (tmp_path / "grid.png").read_bytes()
    assert draw(tmp_path, BY_BACKBONE) == first
    assert (tmp_path / "grid.png").read_bytes() == picture
    assert b"<dc:date>" not in first
    assert b"Matplotlib v" not in first
    assert b"Software" not in picture
