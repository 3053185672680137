import csv
import math
from pathlib import Path

import pytest

from lpgnn.paper.curves import (
    convexity,
    convexity_minimum,
    curves,
    write_convexity,
    write_curves,
)
from paper.conftest import Paper
from report.rows import add_rows


def write(folder: Path) -> Path:
    write_curves(Paper(folder).source)
    return folder / "figures"


def test_a_budget_file_is_what_the_paper_plots(paper: Paper, tmp_path: Path) -> None:
    for x_eps, accuracy in (("inf", 80.0), ("0.01", 50.25), ("1", 70.0)):
        point = paper.point("budgets", backbone="gat", dataset="cora", y_eps="1", x_eps=x_eps)
        add_rows(tmp_path, point.point.settings, [accuracy, accuracy])
    folder = write(tmp_path) / "xyeps"
    # Points in the order of the axis, missing ones left out.
    assert (folder / "model=gat,dataset=cora,y_eps=1.0.csv").read_text() == (
        "x_eps,test/acc_mean,test/acc_ci\n"
        "0.01,50.2500,0.0000\n"
        "1.0,70.0000,0.0000\n"
        "inf,80.0000,0.0000\n"
    )
    assert len(list(folder.iterdir())) == 1
    assert not (tmp_path / "figures" / "kprop").exists()


def test_kprop_files_have_their_step_as_first_column(paper: Paper, tmp_path: Path) -> None:
    first = paper.point("kprop", dataset="cora", filter__steps="16", x_eps="0.1")
    add_rows(tmp_path, first.point.settings, [55.0, 55.0])
    # No label step is forward correction: found by identity all the same.
    second = paper.point("kprop", dataset="cora", learner__steps="0", y_eps="2")
    add_rows(tmp_path, second.point.settings, [66.0, 66.0])
    folder = write(tmp_path) / "kprop"
    assert (folder / "dataset=cora,x_eps=0.1.csv").read_text() == (
        "x_steps,test/acc_mean,test/acc_ci\n16,55.0000,0.0000\n"
    )
    assert (folder / "dataset=cora,y_eps=2.0.csv").read_text() == (
        "y_steps,test/acc_mean,test/acc_ci\n0,66.0000,0.0000\n"
    )


def test_a_file_without_a_point_left_is_removed(paper: Paper, tmp_path: Path) -> None:
    stale = tmp_path / "figures" / "kprop" / "dataset=cora,x_eps=0.1.csv"
    stale.parent.mkdir(parents=True)
    stale.write_text("x_steps,test/acc_mean,test/acc_ci\n16,55.0000,0.0000\n")
    write(tmp_path)
    assert not stale.exists()


def test_curves_are_the_files_of_the_paper(paper: Paper) -> None:
    names = [name for name, _ in curves(paper.source)]
    assert len(names) == len(set(names)) == 3 * 4 * 4 + 2 * 3 * 4
    assert "xyeps/model=sage,dataset=lastfm,y_eps=inf" in names
    assert "kprop/dataset=cora,x_eps=0.01" in names


def test_files_and_columns_are_those_of_the_papers_tex(paper: Paper) -> None:
    """The loops of the TeX source over graphs, models and budgets, and its symbolic x coords."""
    budgets, steps = ["0.01", "0.1", "1.0", "2.0", "3.0", "inf"], ["0", "2", "4", "8", "16"]
    plotted: dict[tuple[str, str], list[str]] = {}
    for dataset in ("cora", "pubmed", "facebook", "lastfm"):
        for model in ("gcn", "gat", "sage"):
            for y_eps in ("1.0", "2.0", "3.0", "inf"):
                file = f"xyeps/model={model},dataset={dataset},y_eps={y_eps}"
                plotted[file, "x_eps"] = budgets
        for x_eps in ("0.01", "0.1", "1.0"):
            plotted[f"kprop/dataset={dataset},x_eps={x_eps}", "x_steps"] = steps
        for y_eps in ("0.5", "1.0", "2.0"):
            plotted[f"kprop/dataset={dataset},y_eps={y_eps}", "y_steps"] = steps
    assert {key: list(cells) for key, cells in curves(paper.source).items()} == plotted


def test_convexity_minimum_is_the_papers() -> None:
    z = convexity_minimum()
    assert z == pytest.approx(2.1773, abs=5e-5)
    assert math.sinh(z) == pytest.approx(2 * z, rel=1e-12)
    # The paper's TeX plots z ((e^z + 1) / (e^z - 1))^2.
    assert convexity(3.0) == pytest.approx(3 * ((math.e**3 + 1) / (math.e**3 - 1)) ** 2, rel=1e-12)
    assert convexity(z) < min(convexity(z - 1e-3), convexity(z + 1e-3))


def test_convexity_file(tmp_path: Path) -> None:
    assert write_convexity(tmp_path) == (tmp_path / "convexity.svg").read_bytes()
    with (tmp_path / "convexity.csv").open(newline="") as file:
        points = {row["z"]: float(row["f"]) for row in csv.DictReader(file)}
    assert len(points) == 200
    assert min(points, key=lambda z: points[z]) == "2.20"
    assert points["10.00"] == pytest.approx(10 / math.tanh(5) ** 2, abs=1e-6)
