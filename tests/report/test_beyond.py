"""The conditioned edition, the controls, the learners, and what the private features are worth."""

import csv
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import bootstrap

from lpgnn.config import Settings, compose_settings
from lpgnn.errors import InputError
from lpgnn.hyperparameters import HyperparameterTable, load_table
from lpgnn.report import Evidence, compare, figures
from lpgnn.report.__main__ import main
from lpgnn.report.beyond import (
    BLANK_RESIDUAL,
    CONTROLS,
    DENOISING,
    EDITIONS,
    FEATURES,
    LEARNERS,
    MECHANISMS,
    X_BUDGETS,
    beyond_cells,
    label_cells,
    labels_only_cell,
    value_cells,
)
from lpgnn.report.cells import Cell, Table, table_cells
from lpgnn.report.figures import draw_figures
from lpgnn.report.findings import Count, compute_hours, findings
from lpgnn.report.paired import Difference, bootstrap_difference, paired
from lpgnn.report.readme import BEGIN, END
from lpgnn.report.tables import write_tables
from lpgnn.report.value import Worth, worth, write_worth
from lpgnn.results import Summary
from report.rows import add_rows, cell_of

BASE = Settings(selection="paper")


@pytest.fixture
def all_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every table of hyper-parameters is there, whatever is tuned so far: the paper's entries."""

    def load(name: str, results_dir: str | Path = "results") -> HyperparameterTable:
        return load_table("paper", results_dir)

    monkeypatch.setattr("lpgnn.config.load_table", load)


@pytest.fixture
def none_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the paper's table of hyper-parameters is there."""

    def load(name: str, results_dir: str | Path = "results") -> HyperparameterTable:
        if name != "paper":
            raise InputError("hparams", name, "is not there")
        return load_table(name, results_dir)

    monkeypatch.setattr("lpgnn.config.load_table", load)


def find(table: Table, dataset: str, row: str, column: str) -> Cell:
    (found,) = (
        cell
        for cell in table.cells(BASE)
        if (cell.dataset, cell.row, cell.column) == (dataset, row, column)
    )
    return found


def value_cell(dataset: str, series: str, column: str) -> Cell:
    (found,) = (
        cell
        for cell in value_cells(BASE)
        if (cell.dataset, cell.row, cell.column) == (dataset, series, column)
    )
    return found


def at(results_dir: Path) -> Settings:
    return replace(BASE, results_dir=str(results_dir))


def test_the_editions_have_the_papers_cells_and_the_controls() -> None:
    paper = {(c.table, c.row, c.column) for c in table_cells(BASE)}
    added: dict[str, set[tuple[str, str]]] = {}
    for table in EDITIONS:
        cells = list(table.cells(BASE))
        assert {c.dataset for c in cells} == {"cora", "pubmed", "facebook"}
        places = {(c.row, c.column) for c in cells}
        printed = {(row, column) for name, row, column in paper if name == table.edition_of}
        assert printed < places
        added[table.edition_of] = places - printed
    assert {row for row, _ in added["mechanisms"]} == {"blank", "labels_only"}
    assert {row for row, _ in added["features"]} == {
        *(f"blank x_eps={eps}" for eps in ("0.01", "0.1", "1.0")),
        "labels_only",
    }
    assert {column for _, column in added["denoising"]} == {"residual", "labels_only"}
    names = {cell.table for cell in table_cells(BASE)}
    assert not names & {cell.table for cell in beyond_cells(BASE)}


def test_the_controls_are_in_the_papers_protocol_on_all_graphs() -> None:
    cells = [cell for table in CONTROLS.values() for cell in table.cells(BASE)]
    assert len(cells) == 4 * (2 * 4 + 4 + 2 * 3)
    assert {c.dataset for c in cells} == {"cora", "pubmed", "facebook", "lastfm"}
    for cell in cells:
        found = cell.settings.resolve()
        assert found.conditioning == "none"
        if cell.settings.feature == "blank":
            # The paper's own number with nothing but the features replaced.
            raw = replace(cell.settings, feature="raw").resolve()
            assert raw.identity in {c.settings.resolve().identity for c in table_cells(BASE)}
            assert replace(raw, feature="blank") == found
        else:
            assert found.learner.name == "propagation"


def test_a_sweep_computes_the_controls() -> None:
    swept = compose_settings(["+experiment=controls"], multirun=True)
    wanted = [c for table in CONTROLS.values() for c in table.cells(BASE)]
    wanted += label_cells(BASE)
    assert {one.resolve().identity for one in swept} == {
        cell.settings.resolve().identity for cell in wanted
    }


def test_controls_stand_beside_the_papers_tables_and_are_never_the_best(tmp_path: Path) -> None:
    for row, accuracy in (("1b", 50.0), ("lp", 51.0), ("ag", 52.0), ("mb", 60.0)):
        add_rows(tmp_path, cell_of("mechanisms", "cora", row, "x_eps=1.0").settings, [accuracy])
    blank = find(CONTROLS["mechanisms"], "cora", "blank", "x_eps=1.0").settings
    add_rows(tmp_path, blank, [70.0])
    add_rows(tmp_path, labels_only_cell(BASE, "cora", math.inf).settings, [80.0])
    add_rows(tmp_path, labels_only_cell(BASE, "lastfm", 0.5).settings, [75.0])
    write_tables(at(tmp_path), Evidence(tmp_path))
    text = (tmp_path / "tables" / "mechanisms.md").read_text(encoding="utf-8")
    assert "|  | MB | – | – | **60.0 ± 0.0** | – |" in text
    assert "|  | Blank (MB) | – | – | 70.0 ± 0.0 | – |" in text
    assert "|  | Labels only | 80.0 ± 0.0 | 80.0 ± 0.0 | 80.0 ± 0.0 | 80.0 ± 0.0 |" in text
    denoising = (tmp_path / "tables" / "denoising.md").read_text(encoding="utf-8")
    assert "| Drop | Drop on blank reports | Labels only |" in denoising
    assert "| LastFM | 0.5 | – | – | – | – | 75.0 ± 0.0 |" in denoising


def test_the_papers_figures_draw_the_controls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = ("budgets", "kprop", "mechanisms", "features", "denoising")
    monkeypatch.setattr("lpgnn.report.figures.FIGURES", drawn)

    crosses: list[float] = []
    bar = figures._bar

    def watched(axes: Any, x: Any, points: Any, style: Any, line: str) -> None:
        if style == figures._BLANK:
            crosses.extend(point.mean for point in points)
        bar(axes, x, points, style, line)

    monkeypatch.setattr(figures, "_bar", watched)

    def draw() -> dict[str, bytes]:
        base, evidence = at(tmp_path), Evidence(tmp_path)
        return draw_figures(base, evidence, compare(base, evidence), [])

    before = draw()
    for cell in label_cells(BASE):
        add_rows(tmp_path, cell.settings, [80.0])
    with_labels = draw()
    assert not crosses
    for name in drawn:
        assert with_labels[name] != before[name], name
    for table in CONTROLS.values():
        for cell in table.cells(BASE):
            if cell.settings.feature == "blank":
                add_rows(tmp_path, cell.settings, [70.0, 72.0])
    draw()
    # On each of four graphs: four feature budgets, three of them again, three label budgets.
    assert crosses == [71.0] * 4 * (4 + 3 + 3)


@pytest.mark.usefixtures("all_tuned")
@pytest.mark.parametrize("experiment", ["conditioned", "learners", "value_of_features"])
def test_a_sweep_computes_what_the_report_looks_up(experiment: str) -> None:
    swept = {
        one.resolve().identity
        for one in compose_settings([f"+experiment={experiment}"], multirun=True)
    }
    if experiment == "value_of_features":
        assert {c.settings.resolve().identity for c in value_cells(BASE)} == swept
        return
    tables = EDITIONS if experiment == "conditioned" else (LEARNERS,)
    cells = [cell for table in tables for cell in table.cells(BASE) if cell.column != "residual"]
    wanted = {cell.settings.resolve().identity for cell in cells}
    assert wanted == swept


@pytest.mark.usefixtures("all_tuned")
def test_the_residual_column_is_a_row_of_the_learners_table() -> None:
    for eps in ("0.5", "1.0", "2.0"):
        column = find(DENOISING, "cora", f"y_eps={eps}", "residual").settings.resolve()
        row = find(LEARNERS, "cora", "residual", f"y_eps={eps}").settings.resolve()
        assert column == row


@pytest.mark.usefixtures("none_tuned")
def test_an_untuned_cell_is_missing_and_its_control_is_not(tmp_path: Path) -> None:
    label = find(MECHANISMS, "cora", "labels_only", "x_eps=0.01")
    add_rows(tmp_path, label.settings, [84.0, 85.0])
    evidence = Evidence(tmp_path)
    untuned = find(MECHANISMS, "cora", "mb", "x_eps=0.01")
    assert evidence.configuration(untuned) is None
    assert evidence.identity(untuned) == ""
    assert evidence.rows(untuned) == []
    assert evidence.summary(untuned, "paper") is None
    told = "not covered by hparams=conditioned: hparams=conditioned: is not there"
    assert evidence.obstacle(untuned) == told
    assert evidence.obstacle(label) == ""
    write_tables(at(tmp_path), evidence)
    lines = (tmp_path / "tables" / "conditioned_mechanisms.md").read_text().splitlines()
    # The labels know no feature budget: one number in each column.
    assert lines[7] == "|  | Labels only | 84.5 ± 0.5 | 84.5 ± 0.5 | 84.5 ± 0.5 | 84.5 ± 0.5 |"
    assert lines[5] == "|  | MB | – (68.0) | – (64.6) | – (83.9) | – (84.0) |"


def test_a_broken_cell_of_the_papers_own_is_told(tmp_path: Path) -> None:
    cell = cell_of("mechanisms", "cora", "mb", "x_eps=2.0")
    broken = replace(cell, settings=replace(cell.settings, y_steps=2, learner="forward"))
    with pytest.raises(InputError, match="y_steps"):
        Evidence(tmp_path).identity(broken)


@pytest.mark.usefixtures("all_tuned")
def test_conditioned_tables_stand_beside_the_papers_means(tmp_path: Path) -> None:
    rows = {"1b": 80.0, "lp": 81.0, "ag": 82.0, "mb": 83.0, "blank": 84.0, "labels_only": 79.0}
    for row, accuracy in rows.items():
        settings = find(MECHANISMS, "cora", row, "x_eps=2.0").settings
        add_rows(tmp_path, settings, [accuracy] * 2)
    evidence = Evidence(tmp_path)
    write_tables(at(tmp_path), evidence)
    folder = tmp_path / "tables"
    lines = (folder / "conditioned_mechanisms.md").read_text().splitlines()
    assert lines[0] == "| Dataset | Mech. | ε_x=0.01 | ε_x=0.1 | ε_x=1 | ε_x=2 |"
    assert lines[5] == "|  | MB | – (68.0) | – (64.6) | – (83.9) | 83.0 ± 0.0 (84.0) |"
    # A control may be the best, and is told to be.
    assert lines[6] == "|  | Blank (MB) | – | – | – | **84.0 ± 0.0** |"
    tex = (folder / "conditioned_mechanisms.tex").read_text()
    assert r" & Blank (MB) & -- & -- & -- & \textbf{84.0 $\pm$ 0.0} \\" in tex
    assert "LastFM" not in tex
    table = (folder / "conditioned_mechanisms.csv").read_text().splitlines()
    assert len(table) == 1 + 3 * 6 * 4
    # In the paper's protocol there is none of them, but the labels know no protocol.
    assert (folder / "mechanisms.md").read_text().count("–") == 64 + 16 + 12
    # The paper's comparison does not know them.
    judged = compare(at(tmp_path), evidence)
    assert len(judged) == 124
    assert all(one.ours is None for one in judged)


@pytest.mark.usefixtures("all_tuned")
def test_features_in_three_blocks(tmp_path: Path) -> None:
    write_tables(at(tmp_path), Evidence(tmp_path))
    tex = (tmp_path / "tables" / "conditioned_features.tex").read_text()
    assert tex.count(r"\midrule") == 3
    assert tex.rindex(r"\midrule") < tex.index(r"Blank ($\epsilon_x=0.01$)")
    assert tex.count("--") == 3 * len(FEATURES.rows)


@pytest.mark.usefixtures("all_tuned")
def test_learners_with_the_papers_drop(tmp_path: Path) -> None:
    cell = find(LEARNERS, "pubmed", "propagation lazy stack", "y_eps=0.5")
    identity = add_rows(tmp_path, cell.settings, [75.0, 76.0])
    write_tables(at(tmp_path), Evidence(tmp_path))
    lines = (tmp_path / "tables" / "learners.md").read_text().splitlines()
    assert lines[0] == "| Dataset | Learner | ε_y=0.5 | ε_y=1 | ε_y=2 |"
    assert "|  | Labels only (lazy, stack) | 75.5 ± 0.5 | – | – |" in lines
    assert "|  | Drop, as the paper prints it | 69.8 ± 0.7 | 74.9 ± 0.3 | 81.0 ± 0.2 |" in lines
    table = (tmp_path / "tables" / "learners.csv").read_text().splitlines()
    assert len(table) == 1 + 3 * 3 * (11 + 1)
    assert f"pubmed,propagation lazy stack,y_eps=0.5,75.5000,0.5000,2,false,{identity}" in table
    assert "pubmed,drop paper,y_eps=0.5,69.8000,0.7000,,," in table


def test_a_paired_difference_is_scipys_bootstrap_of_the_differences() -> None:
    values = [1.25, -0.5, 2.0, 0.75, 1.5, 0.25, 3.0, -0.25, 1.0, 0.5]
    interval = bootstrap(
        (np.array(values),),
        np.mean,
        n_resamples=1000,
        confidence_level=0.95,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    found = bootstrap_difference(values)
    assert found is not None
    assert found.mean == pytest.approx(0.95)
    assert (found.low, found.high, found.count) == (interval.low, interval.high, 10)
    assert found.above_zero
    mirrored = bootstrap_difference([-value for value in values])
    assert mirrored is not None
    assert mirrored.excludes_zero
    assert not mirrored.above_zero


def test_one_pair_has_no_interval_and_equal_pairs_have_no_width() -> None:
    assert bootstrap_difference([]) is None
    assert bootstrap_difference([3.0]) is None
    assert bootstrap_difference([0.5, 0.5]) == Difference(0.5, 0.5, 0.5, 2)
    assert str(Difference(0.5, -0.25, 1.26, 9)) == "+0.5 [-0.2, +1.3]"


@pytest.mark.usefixtures("all_tuned")
def test_repeats_are_paired_by_number(tmp_path: Path) -> None:
    cell = find(MECHANISMS, "cora", "mb", "x_eps=2.0")
    control = find(MECHANISMS, "cora", "blank", "x_eps=2.0")
    # Splits differ by much more than the two computations do on each of them.
    add_rows(tmp_path, cell.settings, [60.5, 70.5, 80.5, 90.5], failed=[1])
    add_rows(tmp_path, control.settings, [60.0, 70.0, 80.0])
    found = paired(Evidence(tmp_path), cell, control, "paper")
    assert found == Difference(0.5, 0.5, 0.5, 2)


def a_worth(lows: list[float | None]) -> Worth:
    differences = {
        eps: None if low is None else Difference(low + 1, low, low + 2, 10)
        for eps, low in zip(X_BUDGETS, lows, strict=True)
    }
    return Worth("cora", math.inf, {}, {}, differences)


@pytest.mark.parametrize(
    ("lows", "told"),
    [
        ([-1, -1, -1, -1, 1, 1, 1, 1, 1], "8"),
        ([1] * 9, "0.01"),
        ([-1] * 9, "nowhere up to 128"),
        ([-3] * 9, "nowhere up to 128"),
        # Once is luck: it must stay so.
        ([1, -1, -1, -1, -1, -1, 1, 1, 1], "32"),
        ([-1, 1, -1, -1, -1, 1, -1, -1, -1], "nowhere up to 128 for good (only at 0.1, 16)"),
        ([-1, -1, -1, -1, 1, 1, 1, 1, None], "undecided (1 of 9 budgets missing)"),
        ([-1, -1, None, None, 1, 1, 1, 1, 1], "undecided (2 of 9 budgets missing)"),
        # What is missing below does not matter.
        ([None, -1, -1, -1, -1, 1, 1, 1, 1], "16"),
    ],
)
def test_where_private_features_start_to_pay(lows: list[float | None], told: str) -> None:
    assert a_worth(lows).starts_to_pay == told


@pytest.mark.usefixtures("all_tuned")
def test_value_of_features_file(tmp_path: Path) -> None:
    place = "y_eps=1.0 x_eps=8.0"
    add_rows(tmp_path, value_cell("pubmed", "paper_protocol", place).settings, [70.0, 71.0])
    add_rows(tmp_path, value_cell("pubmed", "conditioned", place).settings, [80.0, 82.0])
    add_rows(tmp_path, value_cell("pubmed", "blank", place).settings, [79.0, 81.0])
    add_rows(tmp_path, value_cell("pubmed", "non_private", "y_eps=1.0").settings, [90.0] * 2)
    add_rows(tmp_path, value_cell("pubmed", "labels_only", "y_eps=1.0").settings, [78.0] * 2)
    found = worth(at(tmp_path), Evidence(tmp_path))
    (one,) = (w for w in found if (w.dataset, w.y_eps) == ("pubmed", 1.0))
    assert one.levels == {"non_private": Summary(90.0, 0, 2), "labels_only": Summary(78.0, 0, 2)}
    write_worth(found, at(tmp_path))
    with (tmp_path / "tables" / "value_of_features.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * 2 * 9
    (row,) = (r for r in rows if (r["dataset"], r["y_eps"], r["x_eps"]) == ("pubmed", "1.0", "8.0"))
    assert row["paper_protocol_mean"] == "70.5000"
    assert (row["conditioned_mean"], row["conditioned_ci"]) == ("81.0000", "1.0000")
    assert (row["blank_mean"], row["blank_count"]) == ("80.0000", "2")
    assert (row["non_private_mean"], row["labels_only_mean"]) == ("90.0000", "78.0000")
    # Exactly one point apart on each split, though the intervals overlap.
    told = ("difference", "difference_low", "difference_high", "pairs", "excludes_zero")
    assert [row[name] for name in told] == ["1.0000", "1.0000", "1.0000", "2", "true"]
    (gone,) = (r for r in rows if (r["dataset"], r["y_eps"], r["x_eps"]) == ("cora", "inf", "8.0"))
    assert [gone[name] for name in told] == ["", "", "", "0", ""]
    text = (tmp_path / "tables" / "value_of_features.md").read_text()
    assert "**Pubmed, ε_y=1** (non-private 90.0 ± 0.0, labels only 78.0 ± 0.0)" in text
    assert "| 8 | 70.5 ± 0.5 | 81.0 ± 1.0 | 80.0 ± 1.0 | **+1.0 [+1.0, +1.0]** |" in text


def test_a_count_tells_what_is_missing() -> None:
    assert str(Count((True, False, True))) == "2 of 3"
    assert str(Count((True, None, None))) == "1 of 3 (2 missing)"


@pytest.mark.usefixtures("all_tuned")
def test_findings_are_counted(tmp_path: Path) -> None:
    # Printed for MB on Cora: 68.0, 64.6, 83.9, 84.0.
    conditioned = {"0.01": [68.0, 68.0], "0.1": [64.0, 64.4], "1.0": [84.0, 85.0]}
    blank = {"0.01": [67.0, 66.5], "0.1": [60.0, 66.0], "1.0": [85.0, 84.0]}
    for row, numbers in (("mb", conditioned), ("blank", blank)):
        for eps, values in numbers.items():
            add_rows(tmp_path, find(MECHANISMS, "cora", row, f"x_eps={eps}").settings, values)
    # Printed for Drop on Cora: 42.9 at 0.5, 69.3 at 1.
    for eps, values in (("0.5", [43.0, 44.0]), ("1.0", [69.0, 69.6])):
        settings = find(DENOISING, "cora", f"y_eps={eps}", "residual").settings
        add_rows(tmp_path, settings, values)
    labels = find(DENOISING, "cora", "y_eps=0.5", "labels_only").settings
    add_rows(tmp_path, labels, [45.0, 41.0])
    nothing = find(LEARNERS, "cora", BLANK_RESIDUAL, "y_eps=0.5").settings
    add_rows(tmp_path, nothing, [42.0, 42.5])
    # In the paper's protocol: one clear difference and one that is none.
    for eps, mine, empty in (
        ("1.0", [84.0, 84.2], [80.0, 80.1]),
        ("2.0", [84.0, 83.0], [83.5] * 2),
    ):
        add_rows(tmp_path, cell_of("mechanisms", "cora", "mb", f"x_eps={eps}").settings, mine)
        control = find(CONTROLS["mechanisms"], "cora", "blank", f"x_eps={eps}").settings
        add_rows(tmp_path, control, empty)
    # LastFM's MB at 2 is printed as 85.9 ± 1.1, its Drop at y_eps = 2 as 85.7 ± 0.7.
    for table, row, column, values in (
        ("mechanisms", "blank", "x_eps=2.0", [87.0] * 10),
        ("denoising", "y_eps=2.0", "drop blank", [84.9] * 10),
        ("features", "blank x_eps=0.1", "y_eps=1.0", [81.2] * 9),  # unfinished
    ):
        add_rows(tmp_path, find(CONTROLS[table], "lastfm", row, column).settings, values)
    said = findings(at(tmp_path), Evidence(tmp_path))
    assert str(said.blank_as_printed) == "1 of 40 (38 missing)"
    assert str(said.protocol_above_blank) == "1 of 12 (10 missing)"
    assert str(said.at_paper) == "2 of 12 (9 missing)"
    assert str(said.above_blank) == "1 of 12 (9 missing)"
    # 69.3 exactly is not above 69.3.
    assert str(said.above_drop) == "1 of 9 (7 missing)"
    assert str(said.above_labels) == "1 of 9 (8 missing)"
    assert str(said.surely_above_labels) == "0 of 9 (8 missing)"
    assert str(said.surely_above_blank_residual) == "1 of 9 (8 missing)"
    assert sum(one is True for one in said.computed.verdicts) == 6 + 2 + 1 + 1 + 2 + 3
    assert said.multi_bit.blocks[0][3] == [
        *("", "MB, conditioned", "68.0 ± 0.0", "64.2 ± 0.2", "84.5 ± 0.5", "–")
    ]


@pytest.mark.usefixtures("all_tuned")
def test_compute_time_by_dataset(tmp_path: Path) -> None:
    paper = cell_of("mechanisms", "cora", "mb", "x_eps=2.0").settings
    rest = find(MECHANISMS, "cora", "mb", "x_eps=2.0").settings
    add_rows(tmp_path, paper, [80.0] * 48)  # 1.5 s a row
    add_rows(tmp_path, rest, [80.0] * 24)
    add_rows(tmp_path, Settings(dataset="sbm"), [80.0] * 240)
    assert compute_hours(at(tmp_path), Evidence(tmp_path)).blocks == [
        [["Cora", "0.02", "0.01"], ["all", "0.02", "0.01"]]
    ]


@pytest.mark.usefixtures("all_tuned")
def test_page_and_readme_have_a_part_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Pictures are slow and not what is tested here.
    monkeypatch.setattr("lpgnn.report.figures.FIGURES", ())
    results_dir, readme = tmp_path / "results", tmp_path / "README.md"
    add_rows(results_dir, find(MECHANISMS, "cora", "mb", "x_eps=0.01").settings, [84.0, 85.0])
    add_rows(results_dir, find(MECHANISMS, "cora", "blank", "x_eps=0.01").settings, [84.0, 84.0])
    residual = find(DENOISING, "cora", "y_eps=1.0", "residual")
    add_rows(results_dir, residual.settings, [73.0, 74.0, 75.0], failed=[1])
    readme.write_text(f"{BEGIN}\n{END}\n")
    assert main([f"results_dir={results_dir}", "selection=paper"]) == 0
    told = readme.read_text()
    title = "Beyond the paper: same privacy, conditioned reports and honest controls"
    assert f"### {title}" in told
    assert "printed mean in 1 of 12 (11 missing) cells" in told
    assert "| Cora | MB, as the paper prints it | 68.0 ± 2.9 |" in told
    assert "|  | MB, conditioned | 84.5 ± 0.5 | – | – | – |" in told
    assert "(results/figures/value_of_features.png)" in told
    assert (
        "| Cora | undecided (8 of 9 budgets missing) | undecided (9 of 9 budgets missing) |" in told
    )
    assert "| Cora | 0.00 | 0.00 |" in told
    page = (results_dir / "report.html").read_text(encoding="utf-8")
    assert f"<h2>{title}</h2>" in page
    assert '<span class="ours">84.5 ± 0.5</span><span class="printed">68.0 (+16.5)</span>' in page
    assert "y_eps=1.0, at residual: 3 of 10 repeats, 1 of them failed" in page
    assert "mb, conditioned by node, GraphSAGE, residual (lazy, stack, 4)" in page
    assert "blank through mb, conditioned by node" in page


@pytest.mark.usefixtures("none_tuned")
def test_nothing_beyond_the_paper_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lpgnn.report.figures.FIGURES", ())
    results_dir, readme = tmp_path / "results", tmp_path / "README.md"
    add_rows(results_dir, cell_of("mechanisms", "cora", "1b", "x_eps=1.0").settings, [60.0])
    readme.write_text(f"{BEGIN}\n{END}\n")
    assert main([f"results_dir={results_dir}"]) == 0
    told = readme.read_text()
    assert re.search(r"\n0 of \d+ numbers beyond the paper are computed\.", told)
    assert "value_of_features.png" not in told
    page = (results_dir / "report.html").read_text(encoding="utf-8")
    assert "15 of 15 cells have no rows (not covered by hparams=conditioned: " in page
    assert "(not covered by hparams=residual: " in page


@pytest.mark.usefixtures("all_tuned")
def test_the_figure_draws_every_series_twice_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lpgnn.report.figures.FIGURES", ("value_of_features",))
    accuracy = 60.0
    for cell in value_cells(BASE):
        if cell.dataset == "cora" and cell.column.startswith("y_eps=inf"):
            accuracy += 0.5
            add_rows(tmp_path, cell.settings, [accuracy, accuracy + 1])

    def draw(folder: Path) -> tuple[bytes, bytes]:
        base, evidence = at(folder), Evidence(folder)
        svg = draw_figures(base, evidence, [], worth(base, evidence))["value_of_features"]
        return svg, (folder / "figures" / "value_of_features.png").read_bytes()

    drawn, empty = draw(tmp_path), draw(tmp_path / "empty")
    assert draw(tmp_path) == drawn
    for color in (b"#0072b2", b"#d55e00", b"#009e73", b"#555555", b"#cc79a7"):
        assert drawn[0].count(color) > empty[0].count(color) > 0  # not only in the legend
