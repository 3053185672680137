import csv
import math
import re
from pathlib import Path

import pytest

from lpgnn.config import Settings
from lpgnn.report import Evidence
from lpgnn.report.cells import curves
from lpgnn.report.figures import convexity, convexity_minimum, write_curves
from report.rows import add_rows, point_of

PAPER = Path(__file__).parents[2] / ".." / "shared" / "paper" / "lpgnn.tex"


def write(results_dir: Path) -> Path:
    write_curves(Settings(results_dir=str(results_dir), selection="paper"), Evidence(results_dir))
    return results_dir / "figures"


def test_a_budget_file_is_what_the_paper_plots(tmp_path: Path) -> None:
    name = "model=gat,dataset=cora,y_eps=1.0"
    for coordinate, accuracy in (("inf", 80.0), ("0.01", 50.25), ("1.0", 70.0)):
        add_rows(tmp_path, point_of(name, coordinate).settings, [accuracy, accuracy])
    folder = write(tmp_path)
    # Points in the order of the axis, missing ones left out.
    assert (folder / "xyeps" / f"{name}.csv").read_text() == (
        "x_eps,test/acc_mean,test/acc_ci\n"
        "0.01,50.2500,0.0000\n"
        "1.0,70.0000,0.0000\n"
        "inf,80.0000,0.0000\n"
    )
    assert [path.name for path in (folder / "xyeps").iterdir()] == [f"{name}.csv"]
    assert not (folder / "kprop").exists()


def test_kprop_files_have_their_step_as_first_column(tmp_path: Path) -> None:
    add_rows(tmp_path, point_of("dataset=cora,x_eps=0.1", "16").settings, [55.0])
    # y_steps=0 is stored as forward correction: found by identity all the same.
    add_rows(tmp_path, point_of("dataset=cora,y_eps=2.0", "0").settings, [66.0])
    folder = write(tmp_path) / "kprop"
    assert (folder / "dataset=cora,x_eps=0.1.csv").read_text() == (
        "x_steps,test/acc_mean,test/acc_ci\n16,55.0000,0.0000\n"
    )
    assert (folder / "dataset=cora,y_eps=2.0.csv").read_text() == (
        "y_steps,test/acc_mean,test/acc_ci\n0,66.0000,0.0000\n"
    )


def test_a_file_without_a_point_left_is_removed(tmp_path: Path) -> None:
    add_rows(tmp_path, point_of("dataset=cora,x_eps=0.1", "16").settings, [55.0])
    path = write(tmp_path) / "kprop" / "dataset=cora,x_eps=0.1.csv"
    assert path.is_file()
    (tmp_path / "rows" / "cora.csv").unlink()
    write(tmp_path)
    assert not path.exists()


def test_files_and_columns_are_those_of_the_papers_tex() -> None:
    if not PAPER.is_file():
        pytest.skip("the paper's TeX source is not beside this checkout")
    tex = PAPER.read_text(encoding="utf-8")
    ours = {
        (c.figure, c.name, c.axis): [cell.column for cell in c.cells] for c in curves(Settings())
    }
    plotted: dict[tuple[str, str, str], list[str]] = {}
    figures = re.findall(r"\\newcommand\{\\plot\}.*?\\caption", tex, re.DOTALL)
    for figure in figures:
        datasets = re.findall(r"\\subfloat\[\w+\]\{\\plot(?:\[[^]]*\])?\{\}\{(\w+)\}\}", figure)
        (coordinates,) = re.findall(r"symbolic x coords=\{([^}]*)\}", figure)
        models = re.findall(r"\\pgfplotsinvokeforeach\{([^}]*)\}", figure)
        loops = re.findall(
            r"\\foreach \\(\w+) in \{([^}]*)\}.*?table\[x=(\w+), y=test/acc_mean, "
            r"y error=test/acc_ci, col sep=comma\] \{figures/([^}]*)\.csv\}",
            figure,
            re.DOTALL,
        )
        for variable, values, axis, path in loops:
            for value in values.split(","):
                for dataset in datasets:
                    for model in models[0].split(",") if models else [""]:
                        file = path.replace(f"\\{variable}", value.strip())
                        file = file.replace("##1", model.strip()).replace("#3", dataset)
                        folder, name = file.split("/")
                        points = [c.strip() for c in coordinates.split(",")]
                        plotted[folder, name, axis] = points
    assert plotted == ours


def test_convexity_minimum_is_the_papers() -> None:
    z = convexity_minimum()
    assert z == pytest.approx(2.1773, abs=5e-5)
    assert math.sinh(z) == pytest.approx(2 * z, rel=1e-12)
    # The paper's TeX plots z ((e^z + 1) / (e^z - 1))^2.
    assert convexity(3.0) == pytest.approx(3 * ((math.e**3 + 1) / (math.e**3 - 1)) ** 2, rel=1e-12)
    assert convexity(z) < min(convexity(z - 1e-3), convexity(z + 1e-3))


def test_convexity_file(tmp_path: Path) -> None:
    with (write(tmp_path) / "convexity.csv").open(newline="") as file:
        points = {row["z"]: float(row["f"]) for row in csv.DictReader(file)}
    assert len(points) == 200
    assert min(points, key=lambda z: points[z]) == "2.20"
    assert points["10.00"] == pytest.approx(10 / math.tanh(5) ** 2, abs=1e-6)
