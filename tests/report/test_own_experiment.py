"""A user's own experiment: one YAML file gives tables with CIs, LaTeX and figures, no Python."""

import csv
import math
from dataclasses import replace
from pathlib import Path

import pytest

from lpgnn.config import Settings
from lpgnn.report.__main__ import main
from lpgnn.rows import summarise
from report.rows import add_rows, write_experiment

pytestmark = pytest.mark.slow

MINE = """
title: My comparison
grid:
  - {dataset: "cora,pubmed", mechanism: [mb, lp], x_eps: "0.1,1", y_eps: inf}
  - {label: Nothing sent, control: true, dataset: "cora,pubmed", feature: ones, y_eps: inf}
tables:
  mine:
    caption: Mechanisms & budgets (ε_y=∞)
    blocks: dataset
    rows: mechanism
    columns: x_eps
    best: rows
    names: {mb: Multi-bit}
    printed: theirs.csv
  mine_f1: {blocks: dataset, rows: mechanism, columns: x_eps, metric: macro_f1}
figures:
  mine: {panels: dataset, x: x_eps, series: mechanism, lines: true}
"""
MB = [60.0, 62.0, 64.5]
LP = [50.0, 51.0, 55.0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of Cora at x_eps = 0.1 and the control, and the report of them."""
    folder = tmp_path_factory.mktemp("own")
    conf = write_experiment(folder, "mine", MINE)
    (conf / "experiment" / "theirs.csv").write_text(
        "dataset,row,column,mean,ci\ncora,mb,0.10,70.0,1.5\ncora,Their method,0.1,71.0,2.0\n"
    )
    mb = Settings(dataset="cora", x_eps=0.1, y_eps=math.inf)
    add_rows(folder, mb, MB, metrics={"macro_f1": [40.0, 42.0, 44.0]})
    add_rows(folder, replace(mb, mechanism="lp"), LP)
    control = Settings(dataset="cora", feature="ones", y_eps=math.inf)
    add_rows(folder, control, [90.0])
    words = ["--config-dir", str(conf), f"results_dir={folder}", "selection=paper"]
    assert main(["experiment=mine", *words]) == 0
    return folder


def read(path: Path) -> dict[tuple[str, str, str], dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return {(r["dataset"], r["row"], r["column"]): r for r in csv.DictReader(file)}


def test_csv_has_the_numbers(folder: Path) -> None:
    rows, summary = read(folder / "tables" / "mine.csv"), summarise(MB)
    mb = rows["cora", "mb", "0.1"]
    assert (mb["mean"], mb["ci"]) == (f"{summary.mean:.4f}", f"{summary.ci:.4f}")
    assert (mb["count"], mb["best"], mb["printed_mean"]) == ("3", "true", "70.0000")
    identity = Settings(dataset="cora", x_eps=0.1, y_eps=math.inf).resolve().identity
    assert mb["id"] == identity
    assert rows["cora", "lp", "0.1"]["best"] == "false"
    # The control is better than both and is not compared; it knows no x_eps and fills its row.
    for column in ("0.1", "1"):
        control = rows["cora", "Nothing sent", column]
        assert (control["mean"], control["ci"], control["best"]) == ("90.0000", "", "false")
    missing = rows["pubmed", "mb", "1"]
    assert (missing["mean"], missing["count"], missing["best"]) == ("", "0", "false")
    # What others have printed and the grid lacks is a line of its own.
    theirs = rows["cora", "Their method", "0.1"]
    assert (theirs["mean"], theirs["printed_mean"], theirs["printed_ci"]) == (
        "",
        "71.0000",
        "2.0000",
    )
    assert len(rows) == 2 * 2 * 2 + 2 * 2 + 1


def test_markdown(folder: Path) -> None:
    lines = (folder / "tables" / "mine.md").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "| Dataset | Mechanism | ε_x=0.1 | ε_x=1 |"
    # Nothing of Pubmed is computed: its rows are left out.
    assert lines[2:7] == [
        f"| Cora | Multi-bit | **{summarise(MB)}, 3 of 10 repeats** (70.0) | – |",
        f"|  | lp | {summarise(LP)}, 3 of 10 repeats | – |",
        "|  | Nothing sent | 90.0, 1 of 10 repeats | 90.0, 1 of 10 repeats |",
        "|  | Their method | 71.0 ± 2.0 |  |",
        "",
    ]
    assert "Rows and columns of which nothing is computed are left out." in lines


def test_the_page_says_how_a_number_was_made_by_every_metric_that_shows_it(folder: Path) -> None:
    page = (folder / "pages" / "mine.html").read_text(encoding="utf-8")
    identity = Settings(dataset="cora", x_eps=0.1, y_eps=math.inf).resolve().identity
    entry = page.partition(f'<li id="n-{identity}">')[2].partition("</li>")[0]
    by_f1 = summarise([40.0, 42.0, 44.0])
    # Synthetic rows have F1 under the rule of this page only.
    assert entry.startswith(
        f"<b>{summarise(MB)}</b> ({summarise(MB)}); macro_f1 <b>{by_f1}</b> (–) <code>"
    )
    assert "<small>60.0 62.0 64.5</small><small>macro_f1: 40.0 42.0 44.0</small>" in entry
    other = Settings(dataset="cora", mechanism="lp", x_eps=0.1, y_eps=math.inf)
    entry = page.partition(f'<li id="n-{other.resolve().identity}">')[2].partition("</li>")[0]
    assert "macro_f1" not in entry  # its rows do not have it
    assert "half width of the 95 % bootstrap interval over the repeats" in page


def test_latex(folder: Path) -> None:
    tex = (folder / "tables" / "mine.tex").read_text(encoding="utf-8")
    left_out = "Rows and columns of which nothing is computed are left out."
    assert rf"\caption{{Mechanisms \& budgets ($\epsilon_y=\infty$). {left_out} Rows of LP" in tex
    assert r"Dataset & Mechanism & $\epsilon_x=0.1$ & $\epsilon_x=1$ \\" in tex
    found = summarise(MB)
    number = rf"\textbf{{{found.mean:.1f} $\pm$ {found.ci:.1f}, 3 of 10 repeats}}"
    assert rf"Cora & Multi-bit & {number} & -- \\" in tex
    assert tex.count(r"\midrule") == 1


def test_another_metric(folder: Path) -> None:
    rows, summary = read(folder / "tables" / "mine_f1.csv"), summarise([40.0, 42.0, 44.0])
    mb = rows["cora", "mb", "0.1"]
    assert (mb["mean"], mb["ci"]) == ("42.0000", f"{summary.ci:.4f}")
    # Rows without the metric are no number.
    assert rows["cora", "lp", "0.1"]["mean"] == ""


def test_figure_and_page(folder: Path) -> None:
    assert (folder / "figures" / "mine.png").read_bytes().startswith(b"\x89PNG")
    svg = (folder / "figures" / "mine.svg").read_text(encoding="utf-8")
    assert "<svg" in svg
    # Pubmed has no rows and gets no panel.
    assert "<!-- Cora -->" in svg
    assert "<!-- Pubmed -->" not in svg
    page = (folder / "pages" / "mine.html").read_text(encoding="utf-8")
    assert "<h1>My comparison</h1>" in page
    assert str(summarise(MB)) in page
    assert "5 of 5 have no rows" in page
    # A number's entry leads to the files with its rows.
    shards = [path.name for path in (folder / "local" / "shards").glob("cora.*.csv")]
    links = [f'<a href="../local/shards/{name}">local/shards/{name}</a>' for name in shards]
    assert sum(page.count(link) for link in links) == 3


def report(folder: Path, text: str) -> int:
    conf = write_experiment(folder, "broken", text)
    add_rows(folder, Settings(dataset="cora", x_eps=0.1, y_eps=1.0), [60.0])
    return main(["experiment=broken", f"results_dir={folder}", "--config-dir", str(conf)])


GRID = 'grid: [{dataset: cora, mechanism: "mb,lp", x_eps: "0.1,1", y_eps: "1,2"}]\n'


@pytest.mark.parametrize(
    ("shown", "message"),
    [
        (
            "tables: {t: {rows: mechanism, columns: x_eps}}",
            "error: tables.t=mb, 0.1: several computations there: put the key that tells them",
        ),
        (
            "tables: {t: {rows: mechanism, columns: x_eps, where: {y_eps: 1}, bset: rows}}",
            "error: tables.t.bset=rows: unknown option; known: rows, columns, blocks, caption",
        ),
        (
            "tables: {t: {rows: mechansim, columns: x_eps}}",
            "error: tables.t=mechansim: no point of the grid has this key; known: dataset, mech",
        ),
        (
            "tables: {t: {rows: mechanism}}",
            "error: tables.t={'rows': 'mechanism'}: lacks 'columns'",
        ),
        (
            "tables: {t: {rows: mechanism, columns: x_eps, blocks: y_eps, best: cells}}",
            "error: tables.t.best=cells: must be rows or columns",
        ),
        (
            "tables: {t: {rows: mechanism, columns: x_eps, blocks: y_eps, printed: nowhere.csv}}",
            "error: tables.t.printed=nowhere.csv: must be paper/NAME or the path of a CSV file",
        ),
        (
            "tables: {t: {rows: mechanism, columns: x_eps, blocks: y_eps, differences: {d: [mb]}}}",
            "error: tables.t.differences.d=['mb']: must be two entries: [first, second]",
        ),
        (
            "tables: {t: {rows: mechanism, columns: x_eps, blocks: y_eps, differences: {d: mb}}}",
            "error: tables.t.differences.d=mb: must be two entries: [first, second]",
        ),
        (
            "tables: {t: {rows: mechanism, columns: x_eps, blocks: y_eps, "
            "differences: {d: [mb, ag]}}}",
            "error: tables.t.differences.d=['mb', 'ag']: must be two of mb; lp",
        ),
        (
            "figures: {f: {series: mechanism}}",
            "error: figures.f=x: must name the key of the x axis",
        ),
        (
            "figures: {f: {x: x_eps, series: mechanism, panels: y_eps, scale: odd}}",
            "error: figures.f.scale=odd: must be even or log",
        ),
    ],
)
def test_a_bad_specification_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shown: str, message: str
) -> None:
    assert report(tmp_path, GRID + shown) == 2
    text = capsys.readouterr().err
    assert text.startswith(message)
    assert text.count("\n") == 1


def test_where_chooses_points_and_differences_are_paired(tmp_path: Path) -> None:
    conf = write_experiment(
        tmp_path,
        "pairs",
        GRID + "tables: {pairs: {rows: x_eps, columns: mechanism, best: columns, "
        "where: {y_eps: 1.0}, differences: {mb - lp: [mb, lp]}}}",
    )
    mb = Settings(dataset="cora", x_eps=0.1, y_eps=1.0)
    add_rows(tmp_path, mb, [60.5, 70.5, 80.5])
    add_rows(tmp_path, replace(mb, mechanism="lp"), [60.0, 70.0, 80.0])
    words = ["experiment=pairs", f"results_dir={tmp_path}", "--config-dir", str(conf)]
    assert main(words) == 0
    lines = (tmp_path / "tables" / "pairs.md").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "| ε_x | mb | lp | mb - lp |"
    assert lines[2].endswith("| **+0.5 [+0.5, +0.5]** |")
    assert lines[3] == ""  # at ε_x=1 nothing is computed
    with (tmp_path / "tables" / "pairs.csv").open(newline="") as file:
        found = {(r["row"], r["column"]): r for r in csv.DictReader(file)}
    difference = found["0.1", "mb - lp"]
    assert [difference[k] for k in ("mean", "low", "high", "count")] == [
        *("0.5000", "0.5000", "0.5000", "3")
    ]
    assert found["1", "mb - lp"]["count"] == "0"
