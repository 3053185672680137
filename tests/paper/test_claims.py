"""Every sentence that compares is made from rows, and changes with them."""

import csv
import math
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from scipy.stats import ttest_rel

from lpgnn.bench.scale import GROWTH_GOAL, growth, read_rows
from lpgnn.composition import experiment_names
from lpgnn.paper import paper_page, wording
from lpgnn.paper.best import best_accuracies, write_best
from lpgnn.paper.claims import Claims, Kept
from lpgnn.paper.comparison import compare, write_comparison
from lpgnn.paper.curves import CONVEXITY
from lpgnn.paper.documents import DOCUMENTS, marks, write_documents
from lpgnn.paper.findings import PAPER_EXPERIMENTS, PAPER_TABLES, Findings
from lpgnn.paper.notes import (
    IndependentCheck,
    Rounding,
    TuningRows,
    fill,
    write_notes,
)
from lpgnn.paper.splits import best_splits
from lpgnn.paper.statistics import write_statistics
from lpgnn.paper.wording import Contest, Count, Family, claim, points, span, verdict
from lpgnn.report.build import tables_of
from lpgnn.report.evidence import Cell, Source
from lpgnn.report.information import FIGURE, read_information
from lpgnn.report.page import Built
from lpgnn.report.paired import Difference
from lpgnn.rows import Summary

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "results" / "bench"
NUMBER = re.compile(r"\d+\.\d+")

Texts = tuple[str, str]


def claims_of(source: Source) -> Claims:
    findings = Findings(source)
    return Claims(findings, compare(findings.tables[name] for name in PAPER_TABLES))


def texts(claims: Claims) -> Texts:
    """The notes, and the sentences on the controls."""
    return fill("notes.md.j2", claims), fill("controls.md.j2", claims)


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Claims:
    """The committed rows and measurements, in a checkout of their own."""
    top = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "results" / "rows", top / "results" / "rows")
    shutil.copytree(ROOT / "results" / "tuning" / "rows", top / "results" / "tuning" / "rows")
    for path in (ROOT / "results").glob("*.csv"):
        shutil.copy(path, top / "results")
    (top / "results" / "benchmark").mkdir()
    for name in ("notes.md", "summary.md"):
        shutil.copy(ROOT / "results" / "benchmark" / name, top / "results" / "benchmark")
    for name in DOCUMENTS:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, top / name)
    return claims_of(Source(top / "results"))


@pytest.fixture(scope="module")
def base(committed: Claims) -> Claims:
    """All of the paper's experiments with rows that are known: what the paper prints, and more."""
    source = committed.source
    values: dict[str, Sequence[float]] = {}
    for name in PAPER_EXPERIMENTS:
        for cell in source.results(name).cells:
            steps = int(cell.keys.get("filter.steps", cell.keys.get("learner.steps", 0)))
            middle = 30.0 if cell.keys.get("backbone") == "gat" else 50.0 + steps
            middle = 82.0 if cell.point.control else middle
            values.setdefault(cell.identity, [middle - 0.1, middle + 0.1] * 5)
    for one in committed.judged:
        values[one.cell.identity] = [one.printed.mean - 0.1, one.printed.mean + 0.1] * 5
    return claims_of(changed(source, values))


@pytest.fixture(scope="module")
def before(base: Claims) -> Texts:
    return texts(base)


def changed(source: Source, values: Mapping[str, Sequence[float]]) -> Source:
    """A copy in which the computations of some identities have other accuracies, of one engine."""
    found = {}
    for name, results in source._known.items():
        cells = []
        for cell in results.cells:
            if cell.identity in values:
                column = f"{source.selection}/test/acc"
                known = {"status": "ok", "options": "", "engine": "one"}
                rows = [
                    {**known, "repeat": str(i), column: str(value)}
                    for i, value in enumerate(values[cell.identity])
                ]
                cell = replace(cell, rows=rows)
            cells.append(cell)
        kept = {k: v for k, v in results._summaries.items() if k[0] not in values}
        found[name] = replace(results, cells=cells, _summaries=kept)
    return replace(source, _known=found)


def cell_at(claims: Claims, table: str, *place: str) -> Cell:
    number = claims.number(table, *place)
    assert number is not None
    assert number.cell is not None
    return number.cell


def line_with(text: str, *words: str) -> str:
    (found,) = (line for line in text.splitlines() if all(word in line for word in words))
    return found


def section(text: str, title: str) -> str:
    _, _, rest = text.partition(title)
    assert rest, title
    return re.split(r"\n#+ ", rest)[0]


def test_documents_and_notes_are_what_the_committed_rows_say(committed: Claims) -> None:
    write_notes(committed)
    source = committed.source
    write_documents(committed, read_information(source.results_dir), best_splits(source))
    for name in (*DOCUMENTS, "results/NOTES.md"):
        made = (committed.source.results_dir.parent / name).read_bytes()
        assert made == (ROOT / name).read_bytes(), f"{name}: run python -m lpgnn.report"


def test_tables_and_the_page_are_what_the_committed_rows_say(
    committed: Claims, tmp_path: Path
) -> None:
    """Figures are taken as they are committed: drawing them takes longer than all else."""
    source, pictures, built = committed.source, ROOT / "results" / "figures", []
    for name in experiment_names():
        results = source.results(name)
        if results.has_rows:
            found = tables_of(results)
            for table in found.values():
                table.write(tmp_path)
            shown = [
                figure
                for figure in results.experiment.figures
                if (pictures / f"{figure}.svg").is_file()
            ]
            svg = {figure: (pictures / f"{figure}.svg").read_bytes() for figure in shown}
            built.append(Built(results, found, svg))
    write_statistics(tmp_path)
    write_best(best_accuracies(source), tmp_path)
    kept = ROOT / "results" / "tables"
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in kept.iterdir()}
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (kept / path.name).read_bytes(), f"tables/{path.name}"
    write_comparison(committed.judged, source.selection, tmp_path, stricter=committed.stricter)
    for name in ("comparison.csv", "comparison.md"):
        assert (tmp_path / name).read_bytes() == (ROOT / "results" / name).read_bytes(), name
    drawn = {name: (pictures / f"{name}.svg").read_bytes() for name in (CONVEXITY, FIGURE)}
    page = (ROOT / "results" / "report.html").read_text(encoding="utf-8")
    # Not by ==: a million characters are not worth an explanation of how they differ.
    assert hash(paper_page(built, committed, drawn)) == hash(page), "run python -m lpgnn.report"


# Points that are added to all repeats of a place.
SHIFTS = {
    ("mechanisms", "cora", "1b", "1"): 30,
    ("mechanisms", "cora", "mb", "2"): -30,
    ("mechanisms", "facebook", "Labels only", "1"): 12,
    ("mechanisms", "lastfm", "Blank (MB)", "0.1"): 3.3,
    ("denoising", "cora", "0.5", "drop"): -40,
    ("features", "ohd", "pubmed"): 40,
}
LAST_STEP = {"dataset": "cora", "filter.steps": "16", "x_eps": "0.1", "y_eps": "1"}
GAT = {"dataset": "facebook", "backbone": "gat", "x_eps": "0.01", "y_eps": "2"}


def point(claims: Claims, experiment: str, keys: Mapping[str, str]) -> Cell:
    (found,) = (c for c in claims.source.results(experiment).cells if c.keys == keys)
    return found


@pytest.fixture(scope="module")
def after(base: Claims) -> Texts:
    """The same texts from rows that were changed in a few places."""
    values: dict[str, Sequence[float]] = {
        point(base, "kprop", LAST_STEP).identity: [40.0, 41.0] * 5,
        point(base, "budgets", GAT).identity: [99.0] * 10,
    }
    for place, by in SHIFTS.items():
        cell = cell_at(base, *place)
        values[cell.identity] = [one + by for one in cell.values("released").values()]
    return texts(claims_of(changed(base.source, values)))


def test_a_cell_that_moves_away_from_the_paper_is_listed(before: Texts, after: Texts) -> None:
    was, now = (section(text[0], "## Cells that differ") for text in (before, after))
    assert "Of 124 computed cells: 124 within both CIs;" in was
    assert "None does." in was
    assert "| Cora | 0.0 |" in was
    # Four of the changed places are cells of the paper's tables.
    assert "Of 124 computed cells: 120 within both CIs, 2 above, 2 below;" in now
    assert "| mechanisms | Cora | 1B, ε_x=1 | 89.9 ± 0.1 | 59.9 ± 2.7 | +30.0 |" in now
    assert "| denoising | Cora | Drop, ε_y=0.5 | 2.9 ± 0.1 | 42.9 ± 1.5 | -40.0 |" in now
    assert "| Cora | -1.3 |" in now  # (30 - 30 - 40) / 31


def test_the_best_mechanism_is_judged_by_the_rows(before: Texts, after: Texts) -> None:
    was, now = (section(text[0], "### 1. MB is the best mechanism") for text in (before, after))
    # Printed: AG is above MB on Pubmed at 2.
    assert "As the paper prints it: 15 of 16 columns. Ours: true in 11 of 12 columns." in was
    assert "- Pubmed at ε_x=2: MB 82.9 ± 0.1, AG 83.1 ± 0.1, by more than both intervals" in was
    assert "As the paper prints it: 15 of 16 columns. Ours: true in 9 of 12 columns." in now
    assert "- Cora at ε_x=2: MB 54.0 ± 0.1, AG 77.2 ± 0.1, by more than both intervals" in now


def test_every_number_of_the_papers_claims_is_looked_up(before: Texts) -> None:
    """With rows for all of the paper's experiments nothing is missing there."""
    _, _, rest = before[0].partition("## The paper's claims, one by one")
    claims, _, _ = rest.partition("## The controls")
    found = [line for line in claims.splitlines() if "–" in line or "missing" in line]
    # But for the conditioned edition, which is not the paper's.
    assert all(line.startswith(("With conditioned reports", "| ")) for line in found)
    assert "–" not in section(before[0], "### 4.") + section(before[0], "### 5.")
    assert "–" not in section(before[0], "### 6.") + section(before[0], "### 7.")


def test_drop_loses_where_its_rows_do(before: Texts, after: Texts) -> None:
    was, now = (section(text[0], "### 2. Drop is best") for text in (before, after))
    assert was.startswith(" or equal everywhere\n\nTrue in all 9 cells of the denoising table.")
    assert "Cora at ε_y=0.5 +24.3;" in was
    assert "\nTrue in 8 of 9 cells of the denoising table." in now
    assert "Cora at ε_y=0.5 -15.7;" in now


def test_ad_hoc_features_can_win(before: Texts, after: Texts) -> None:
    was, now = (section(text[0], "### 3. MB at") for text in (before, after))
    assert "True in all 3 graphs" in was
    assert "True in 2 of 3 graphs" in now
    assert "- Pubmed: MB (ε_x=0.01) 78.9 ± 0.1, Ohd 92.5 ± 0.1 (-13.6); Blank 82.0 ± 0.1" in now


def test_labels_only_is_counted_in_both_files(before: Texts, after: Texts) -> None:
    words = ("best cell of the paper's mechanisms table on ", "labels alone are above on ")
    for was, now, start in zip(before, after, words, strict=True):
        assert was.partition(start)[2].startswith("0 of 4 graphs")
        assert now.partition(start)[2].startswith("1 of 4 graphs")
    assert "82.0 on Facebook" in before[1]
    assert "94.0 on Facebook" in after[1]


def test_blank_reports_are_judged_on_lastfm_too(before: Texts, after: Texts) -> None:
    for was, now in zip(before, after, strict=True):
        starts = [re.split("[Bb]lank reports\\s*are within both", text)[1] for text in (was, now)]
        counts = [re.findall(r"(\d+) of (?:40|10)\b", text)[:2] for text in starts]
        assert [int(b) - int(a) for a, b in zip(*counts, strict=True)] == [1, 1]


def test_lastfm_without_its_features_is_judged_cell_by_cell(base: Claims) -> None:
    judged = base._without_features()
    assert len(judged) == 4 * 4 + 3 * 3
    assert {one.cell.keys["feature"] for one in judged} == {"blank"}
    as_printed = {one.cell.identity: [one.printed.mean] * 10 for one in judged}
    # What it is judged by is the paper's: 1B at 0.01 on LastFM, and Drop at 2.
    printed = {base._place_text(one): str(one.printed) for one in judged}
    assert printed["1B, ε_x=0.01"] == "40.5 ± 7.4"
    assert printed["Drop, ε_y=2"] == "85.7 ± 0.7"
    same = claims_of(changed(base.source, as_printed))
    assert same.without_features() == "25 within both CIs, of 25 cells."
    far = {one.cell.identity: base._place_text(one) for one in judged}
    moved = {
        identity: [value + {"1B, ε_x=0.01": 30, "Drop, ε_y=2": -5}.get(far[identity], 0)] * 10
        for identity, (value, *_) in as_printed.items()
    }
    some = {i: v[:3] if far[i] == "AG, ε_x=1" else v for i, v in moved.items()}
    assert claims_of(changed(base.source, some)).without_features() == (
        "22 within both CIs, 1 above, 1 below, of 25 cells (1 missing): "
        "1B, ε_x=0.01 +30.0 and Drop, ε_y=2 -5.0."
    )


def test_curves_and_budgets_follow_their_rows(before: Texts, after: Texts) -> None:
    was, now = (section(text[0], "### 5. Accuracy rises") for text in (before, after))
    # At ε_x=1 the printed 69.3 of K = 2 is above 50 + 16.
    assert "for K_x in 1 of 3 curves on Cora" in was
    assert "for K_x in 2 of 3 curves on Cora" in now
    # 50 + K, but for the printed 62.4 at the authors' K = 2.
    assert "|  | K_x, ε_x=0.1 | 50.0 | 62.4 | 54.0 | 58.0 | 66.0 | 16 | 2 | +16.0 | 0.0 |" in was
    assert "| 50.0 | 62.4 | 54.0 | 58.0 | 40.5 | 2 | 2 | +12.4 | +21.9 * |" in now
    was, now = (section(text[0], "### 4. GAT is weaker") for text in (before, after))
    assert "Below both other backbones in 12 of 12" in was
    assert "Below both other backbones in 11 of 12" in now


@pytest.mark.parametrize(
    ("gain", "text"),
    [
        (1.0, "above 0 in 12 of 12 and below 0 in 0 (12 and 0 after Holm's correction)"),
        (-1.0, "above 0 in 0 of 12 and below 0 in 12 (0 and 12 after Holm's correction)"),
        (0.0, "above 0 in 0 of 12 and below 0 in 0 (0 and 0 after Holm's correction)"),
    ],
)
def test_multi_bit_minus_blank_turns_with_its_rows(
    committed: Claims, gain: float, text: str
) -> None:
    values = {}
    for table in ("mechanisms", "conditioned_mechanisms"):
        for graph in ("cora", "pubmed", "facebook"):
            for eps in ("0.01", "0.1", "1", "2"):
                blank = [80 + i / 10 for i in range(10)]
                mine = [value + gain + (i % 2) / 100 * bool(gain) for i, value in enumerate(blank)]
                values[cell_at(committed, table, graph, "mb", eps).identity] = mine
                values[cell_at(committed, table, graph, "Blank (MB)", eps).identity] = blank
    claims = claims_of(changed(committed.source, values))
    for table in ("mechanisms", "conditioned_mechanisms"):
        assert str(claims.multi_bit_minus_blank(table)) == text


def test_multi_bit_minus_blank_is_in_both_files(base: Claims, before: Texts) -> None:
    text = str(base.multi_bit_minus_blank("mechanisms"))
    assert text.startswith("above 0 in 9 of 12 and below 0 in 3")  # the printed MB against 82
    assert text in line_with(before[0], "**MB minus blank**")
    assert "| the paper's mechanisms table | 9 of 12 | 3 of 12 | 9 and 3 |" in before[1]


def test_conditioned_reports_are_compared_and_missing_rows_are_named(base: Claims) -> None:
    table = "conditioned_mechanisms"
    values: dict[str, Sequence[float]] = {
        cell_at(base, table, "cora", "mb", "0.1").identity: [70.0, 71.0] * 5,
        cell_at(base, "mechanisms", "cora", "mb", "0.1").identity: [75.0, 76.0] * 5,
        cell_at(base, table, "cora", "Blank (MB)", "0.1").identity: [60.0, 61.0] * 5,
        cell_at(base, "denoising", "cora", "1", "drop").identity: [],
    }
    notes, controls = texts(claims_of(changed(base.source, values)))
    assert "Cora at `x_eps=0.1` reaches 70.5 instead of 75.5, and blank reports\n60.5." in controls
    heading, _, row = section(notes, "**Conditioned reports**").splitlines()[2:5]
    assert dict(zip(heading.split(" | "), row.split(" | "), strict=True))["(0.1, ∞)"] == "-5.0"
    text = section(notes, "### 2. Drop is best")
    assert "True in 8 of 9 (1 missing) cells" in text
    assert "Cora at ε_y=1 –;" in text


def test_epochs_that_are_kept_early_are_told(committed: Claims) -> None:
    cell = cell_at(committed, "conditioned_denoising", "cora", "1", "drop")
    rows = [
        {"status": "ok", "released/epoch": epoch, "paper/epoch": "9", "paper/qualified": kept}
        for epoch, kept in (("1", "true"), ("2", "false"), ("2", "false"))
    ]
    found = Kept.of(replace(cell, rows=rows), "released", None)
    assert (str(found), found.is_early, str(found.within)) == ("1 to 2", True, "1 of 3")
    assert str(Kept.of(replace(cell, rows=rows), "paper", None)) == "9"
    # As committed: the sentence stands, with the epochs of the rows.
    kept = committed.kept("conditioned_denoising", "cora", "1", "drop")
    assert kept is not None
    assert kept.epochs == tuple(int(row["released/epoch"]) for row in cell.rows)
    notes = fill("notes.md.j2", committed)
    assert f"The epochs that are kept: {kept} of the conditioned setting" in notes
    assert (f"kept at epoch {kept}: hardly trained" in notes) == kept.is_early


@pytest.mark.parametrize(
    ("epochs", "is_early"),
    [((1, 2, 3), True), ((3, 3, 400), True), ((3, 4, 400, 1), False), ((), False)],
)
def test_the_median_epoch_tells_a_network_that_was_hardly_trained(
    epochs: tuple[int, ...], is_early: bool
) -> None:
    assert Kept(epochs, Count(()), None).is_early is is_early


def test_cells_of_hardly_trained_networks_have_a_dagger(committed: Claims) -> None:
    rows = pd.read_csv(ROOT / "results" / "rows" / "cora.csv", low_memory=False)
    medians = rows.groupby("id")["released/epoch"].median()
    for row in ("MB, train", "MB, train+val", "Paper's protocol, train+val", "Labels only, train"):
        number = committed.number("equal_labels", "cora", row, "1")
        assert number is not None
        assert number.cell is not None
        line = next(
            line
            for line in committed.equal_grid().to_markdown().splitlines()
            if f"| {row} |" in line
        )
        cell = line.split(" | ")[2]
        hardly = number.cell.trains and medians[number.cell.identity] <= 3
        assert cell.endswith("†") == hardly, row


def test_the_ablation_on_cora_is_told_from_its_rows(committed: Claims) -> None:
    def cells(name: str) -> Cell:
        return cell_at(committed, "conditioned_ablation", name, "cora")

    rates = {
        name: cells(name).rows[0]["learning_rate"]
        for name in ("paper's protocol", "conditioned", "authors' K_y", "smaller rate")
    }
    values = {name: float(rate) for name, rate in rates.items()}
    assert values["paper's protocol"] == values["conditioned"] == values["authors' K_y"]
    assert values["smaller rate"] == pytest.approx(values["conditioned"] / 10)
    numbers = {"conditioned": 60.0, "authors' K_y": 66.0, "paper's protocol": 68.0}
    numbers |= {"smaller rate": 59.0, "both": 65.0}
    source = committed.source
    found = {}
    for name, mean in numbers.items():
        cell = cells(name)
        rows = [
            {**row, "released/test/acc": str(mean + (-1) ** i)} for i, row in enumerate(cell.rows)
        ]
        found[cell.identity] = rows
    known = {}
    for experiment, results in source._known.items():
        new = [
            replace(cell, rows=found[cell.identity]) if cell.identity in found else cell
            for cell in results.cells
        ]
        kept = {k: v for k, v in results._summaries.items() if k[0] not in found}
        known[experiment] = replace(results, cells=new, _summaries=kept)
    notes = fill("notes.md.j2", claims_of(replace(source, _known=known)))
    line = line_with(notes, "+experiment=conditioned_ablation")
    assert "the conditioned setting has 60.0 ± 0.8 †, the paper's protocol 68.0 ± 0.8." in line
    assert "conditioned reports have 66.0 ± 0.8 †, +6.0 of the +8.0 points between them;" in line
    assert "59.0 ± 0.8; with both 65.0 ± 0.8." in line


def test_a_refit_that_lowers_the_mean_is_named(committed: Claims) -> None:
    values: dict[str, Sequence[float]] = {}
    for graph, more in (("cora", 2.0), ("pubmed", 0.0), ("facebook", -3.0)):
        for edition, by in (("train", 0.0), ("train+val", more)):
            cell = cell_at(committed, "equal_labels", graph, f"MB, {edition}", "inf")
            values[cell.identity] = [90.0 + by, 91.0 + by] * 5
    claims = claims_of(changed(committed.source, values))
    found = claims.validation_labels("MB", "inf")
    assert {g: d and round(d.mean, 6) for g, d in found.items()} == {
        "cora": 2.0,
        "pubmed": 0.0,
        "facebook": -3.0,
    }
    assert [text.split(" [")[0] for text in claims.refit_moves(-1)] == ["MB on Facebook -3.0"]
    assert "MB on Cora +2.0" in [text.split(" [")[0] for text in claims.refit_moves(1)]
    assert str(claims.validation_labels_help("MB", "inf")) == "1 of 3"
    notes, controls = texts(claims)
    assert "and lowers MB on Facebook -3.0 [" in notes
    assert "it lowers MB on Facebook -3.0 [" in controls


def test_a_refit_is_corrected_for_all_of_its_family(committed: Claims) -> None:
    """An interval below 0 alone is no finding among seven."""
    values: dict[str, Sequence[float]] = {}
    for edition, by in (("train", 0.0), ("train+val", -1.4)):
        cell = cell_at(committed, "equal_labels", "facebook", f"MB, {edition}", "inf")
        values[cell.identity] = [90.0 + by + i * 0.45 for i in range(10)]
    claims = claims_of(changed(committed.source, values))
    alone = claims.refits()["MB on Facebook"]
    assert len(claims.refits()) == 7
    assert alone.below_zero
    assert 0.05 / 7 < alone.p < 0.05
    assert not any("MB on Facebook" in text for text in claims.refit_moves(-1))


def test_searches_are_told_apart_by_their_seeds(committed: Claims) -> None:
    tuning = TuningRows(committed.source.results_dir / "tuning")
    own = tuning.collections(reported=False)
    # LastFM's of the tables, the others of the benchmark's trials.
    graphs = ["Actor", "Chameleon", "CiteSeer", "Cora", "Facebook", "LastFM", "Minesweeper"]
    graphs += ["Pubmed", "Squirrel", "Tolokers"]
    assert list(dict.fromkeys(text.split(" (")[0] for text in own)) == graphs
    # The benchmark's of now are on a seed for each of its mechanisms, and were on one collection.
    kinds = r"\((seed 1000, split=(collection|random)|seeds 1000 to 10[01]\d, split=random), "
    assert all(re.search(kinds, text) for text in own)
    old = tuning.collections(reported=True)
    assert {text.split(" (")[0] for text in old} == {"Cora", "Pubmed", "Facebook"}
    assert all("(seed 0, split=random, " in text for text in old)


def test_measurements_of_rounding_and_of_the_check_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "rounding.csv"
    path.write_text(
        "dataset,filter,x_eps,y_eps,repeats,unchanged,mean_shift,max_shift\n"
        "cora,kprop,0.01,inf,5,0,3.14,16.82\ncora,conditioned,0.01,inf,5,5,0.00,0.00\n"
    )
    rounding = Rounding(path)
    assert rounding.largest("kprop") == 16.82
    assert rounding.covered(["cora", "pubmed"]) == ["2 on Cora", "0 on Pubmed"]
    assert rounding.untouched() == {}
    with path.open("a") as file:
        file.write("cora,conditioned,1,1,5,5,0.00,0.00\ncora,conditioned,2,1,5,4,0.02,0.10\n")
    assert Rounding(path).untouched() == {"cora": ["1"]}
    assert [[one.text for one in row] for row in rounding.grid().blocks[0]] == [
        ["Cora", "paper's protocol", "∞", "3.1 (16.8)"],
        ["Cora", "conditioned", "∞", "0.0 (0.0)"],
    ]
    path = tmp_path / "independent_check.csv"
    path.write_text(
        "reports of,repeats,mean,half_width,own_minus_this,its_half_width\n"
        "own features,10,84.2,0.9,0.0,0.0\nno features,10,84.0,0.8,0.2,0.5\n"
        "ones,10,30.1,1.0,54.1,1.2\n"
    )
    check = IndependentCheck(path)
    assert check.holds_zero("no features")
    assert not check.holds_zero("ones")
    assert [one.text for one in check.grid().blocks[0][1]] == [
        "no features",
        "84.0 ± 0.8",
        "+0.2 ± 0.5",
    ]
    assert not Rounding(tmp_path / "none.csv")
    assert not IndependentCheck(tmp_path / "none.csv")


def test_words_for_numbers() -> None:
    assert claim(None, "a", "b") == wording.UNDECIDED
    assert [claim(True, "a", "b"), claim(False, "a", "b")] == ["a", "b"]
    assert [points(1.25), points(-0.04), points(0.0), points(None)] == ["+1.2", "0.0", "0.0", "–"]
    high, low = Summary(84.8, 0.5, 10), Summary(84.4, 0.1, 10)
    assert span([high, low]) == "84.4 to 84.8"
    assert span([high, high]) == "84.8"
    assert span([high, None]) == "84.8 (1 missing)"
    assert span([None]) == "–"
    assert verdict(Count((True, True))) == "true in all 2"
    assert verdict(Count((False, False))) == "false in all 2"
    assert verdict(Count((True, False))) == "true in 1 of 2"
    assert verdict(Count((True, None))) == "true in 1 of 2 (1 missing)"
    assert verdict(Count((None, None))) == wording.UNDECIDED
    assert wording.listed(["a", "b", "c"]) == "a, b and c"
    contest = Contest("here", "MB", {"MB": low, "AG": high})
    assert (contest.wins, contest.keeps_up, contest.rival) == (False, True, "AG")
    assert str(contest) == "here: MB 84.4 ± 0.1, AG 84.8 ± 0.5"
    assert Contest("here", "MB", {"MB": low, "AG": None}).wins is None
    tie = Contest("here", "MB", {"MB": low, "AG": low})
    assert (tie.wins, tie.clearly_loses) == (True, False)


def test_a_family_is_corrected_as_one() -> None:
    sure, once = Difference(1, 0.5, 1.5, 10, 1e-6), Difference(-1, -1.9, -0.1, 10, 0.03)
    assert str(Family((sure, once, None))) == (
        "above 0 in 1 of 3 (1 missing) and below 0 in 1 (1 and 1 after Holm's correction)"
    )
    assert Family((sure, *[once] * 2)).kept == (1, 0)
    assert str(Family((None, None))) == "not known in any of 2 (no rows of one engine)"


def prose(name: str) -> str:
    """A document without its generated sections, code and addresses."""
    text = (ROOT / name).read_text(encoding="utf-8")
    for section in DOCUMENTS.get(name, {}):
        begin, end = map(re.escape, marks(section))
        text, count = re.subn(f"{begin}.*?{end}", "", text, flags=re.DOTALL)
        assert count == 1, section
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return re.sub(r"`[^`]*`|\]\([^)]*\)", "", text)


COMPARES = re.compile(
    r"\b(better|best|above|below|beats?|beaten|higher|highest|lower|lowest|worse|worst|stronger|"
    r"weaker|greater|(more|less|fewer) than|outperforms?|exceeds?|wins?|loses?|(as|so) \w+ as|"
    r"superior|inferior|gains?|raises?|lowers?|helps?|pays?)\b",
    re.IGNORECASE,
)
# Sentences that compare and state no result, with the reason.  All others have to be generated.
REVIEWED = {
    "beside two controls that every method has to beat": "what a control is for",
    "measures where dense features pay, and what a total budget is best spent on": (
        "what two experiments measure, not what they found"
    ),
    "the means differ by no more than both 95 % half widths together": "a definition",
    "among choices as good as the best within a standard error": "how a number of steps is chosen",
    "as many as a network learns from with clean labels": "whose labels a setting takes",
    "A method that spends a feature budget has to beat both": "what a control is for",
}
SCIENCE = sorted((ROOT / "docs" / "science").glob("*.md"))
PAGES = (
    *("README.md", "docs/concepts/controls.md"),
    *(path.relative_to(ROOT).as_posix() for path in SCIENCE),
)


def comparing(text: str) -> list[str]:
    parts = re.split(r"(?<=[.:;!?])\s+|\n\s*\n|\n[|#]", text)
    return [" ".join(part.split()) for part in parts if COMPARES.search(part)]


@pytest.mark.parametrize("name", PAGES)
def test_a_sentence_that_compares_is_generated_or_reviewed(name: str) -> None:
    typed = []
    for sentence in comparing(prose(name)):
        rest = sentence
        for known in REVIEWED:
            rest = rest.replace(known, "")
        typed += [sentence] if COMPARES.search(rest) else []
    assert not typed, "generate it from rows, or say in REVIEWED why it states no result"


def test_every_reviewed_sentence_is_there() -> None:
    found = [sentence for name in PAGES for sentence in comparing(prose(name))]
    for known in REVIEWED:
        assert any(known in sentence for sentence in found), f"not needed: {known}"


@pytest.mark.parametrize(
    "sentence",
    [
        "Labels alone are better than every network on all four graphs.",
        "MB beats blank reports.",
        "Drop has the highest\nmean.",
        "Private features do pay where they are dense.",
        "Blank reports do as well as MB.",
        "It raises accuracy on Cora.",
    ],
)
def test_typed_comparisons_are_noticed(sentence: str) -> None:
    (found,) = comparing(f"An introduction.\n\n{sentence} The end.")
    assert found == " ".join(sentence.split())


def rows_of(graph: str) -> pd.DataFrame:
    return pd.read_csv(ROOT / "results" / "rows" / f"{graph}.csv", low_memory=False)


Place = tuple[str, str, str]


def ids_of(frame: pd.DataFrame, *axes: str) -> dict[Place, str]:
    """The identities of a table's numbers, by three of its columns."""
    a, b, c, found = (frame[name].tolist() for name in (*axes, "id"))
    return dict(zip(zip(a, b, c, strict=True), found, strict=True))


def counted(pairs: Sequence[Place]) -> str:
    """The words for a family, from the rows alone: t tests of scipy, Holm by hand.

    pairs: graph, id of the first computation, id of the second
    """
    missing, found = 0, []
    for graph, first, second in pairs:
        rows = rows_of(graph).query("status == 'ok'").drop_duplicates(["id", "repeat"], keep="last")
        a, b = (rows[rows["id"] == one].set_index("repeat").sort_index() for one in (first, second))
        trained = all(not one["learner"].str.startswith("label_prop").any() for one in (a, b))
        stamps = [one["engine"].fillna(one["revision"]) for one in (a, b)]
        if trained and not stamps[0].equals(stamps[1]):
            missing += 1
            continue
        test = ttest_rel(a["released/test/acc"], b["released/test/acc"])
        found.append((test.pvalue, test.statistic > 0))
    total, up = len(pairs), [p < 0.05 and above for p, above in found]
    down = [p < 0.05 and not above for p, above in found]
    if missing == total:
        return f"not known in any of {total} (no rows of one engine)"
    kept = [0, 0]
    for rank, (p, above) in enumerate(sorted(found)):
        if p * (len(found) - rank) >= 0.05:
            break
        kept[not above] += 1
    gone = f" ({missing} missing)" if missing else ""
    return (
        f"above 0 in {sum(up)} of {total}{gone} and below 0 in {sum(down)} "
        f"({kept[0]} and {kept[1]} after Holm's correction)"
    )


@pytest.mark.parametrize("edition", ["train", "train+val"])
def test_families_of_equal_labels_follow_from_the_rows_alone(edition: str) -> None:
    """Computed here a second time, so that operands that are swapped are noticed."""
    table = pd.read_csv(ROOT / "results" / "tables" / "equal_labels.csv", dtype=str)
    ids = ids_of(table, "dataset", "row", "column")

    def words(first: str, second: str, y_eps: str) -> str:
        rows = (f"{first}, {edition}", f"{second}, {edition}")
        graphs = [g for g in table["dataset"].unique() if all((g, r, y_eps) in ids for r in rows)]
        return counted([(g, ids[g, rows[0], y_eps], ids[g, rows[1], y_eps]) for g in graphs])

    notes = (ROOT / "results" / "NOTES.md").read_text(encoding="utf-8")
    line = line_with(notes, f"- With {edition} labels, paired over graphs")
    clean, _, private = line.partition(" At ε_y=1 ")
    assert f"labels only minus MB is {words('Labels only', 'MB', 'inf')}, minus blank" in clean
    assert f"on LastFM as well, {words('Labels only', 'Blank', 'inf')};" in clean
    assert f"MB minus blank is {words('MB', 'Blank', 'inf')}." in clean
    assert f"labels only minus MB is {words('Labels only', 'MB', '1')}, minus blank" in private
    assert f"on LastFM as well, {words('Labels only', 'Blank', '1')};" in private
    assert f"MB minus blank is {words('MB', 'Blank', '1')};" in private
    residual = words("Residual", "Labels only", "1")
    assert f"the residual learner minus labels only is {residual}, minus Drop" in private
    protocol = words("Residual", "Paper's protocol", "1")
    assert private.endswith(f"in the paper's protocol {protocol}.")


def test_families_of_the_residual_learner_follow_from_the_rows_alone() -> None:
    tables = ROOT / "results" / "tables"
    denoising = pd.read_csv(tables / "conditioned_denoising.csv", dtype=str)
    learners = pd.read_csv(tables / "learners.csv", dtype=str)
    # The rows of the one table are the columns of the other: label budgets.
    found = ids_of(denoising, "dataset", "row", "column")
    others = ids_of(learners, "dataset", "column", "row")
    places = [(g, e) for g in ("cora", "pubmed", "facebook") for e in ("0.5", "1", "2")]

    def words(rivals: Mapping[Place, str], name: str) -> str:
        text = counted([(g, found[g, e, "Residual"], rivals[g, e, name]) for g, e in places])
        above, kept = re.findall(r"above 0 in (.*) and below 0 in \d+ \((\d+) and", text)[0]
        return f"(with a paired interval above 0 in {above} ({kept} after Holm's correction))"

    notes = (ROOT / "results" / "NOTES.md").read_text(encoding="utf-8")
    line = line_with(notes, "**A learner for private labels.**")
    _, plain, rest = re.split(r"labels only \(plain walk|labels only by the lazy", line)
    lazy, nothing = rest.split("and itself on blank reports")
    assert words(found, "Labels only") in plain
    assert words(others, "Labels only, learner.walk=lazy, learner.combine=stack") in lazy
    assert words(others, "Residual on blank reports") in nothing


def test_multi_bit_minus_blank_over_all_tables_follows_from_the_rows_alone() -> None:
    pairs: dict[str, Place] = {}
    names = {"mb": "Blank (MB)", "drop": "Drop on blank reports"}
    names |= {f"MB, x_eps={eps}": f"Blank, x_eps={eps}" for eps in ("0.01", "0.1", "1")}
    for table in PAPER_TABLES:
        frame = pd.read_csv(ROOT / "results" / "tables" / f"{table}.csv", dtype=str)
        frame["dataset"] = frame.get("dataset", frame["column"])
        at = ids_of(frame, "dataset", "row", "column")
        for (graph, row, column), one in at.items():
            rival = at.get((graph, names.get(row, row), names.get(column, column)))
            if graph != "lastfm" and rival not in (None, one):
                pairs[one] = (graph, one, str(rival))
    assert len(pairs) == 27
    notes = (ROOT / "results" / "NOTES.md").read_text(encoding="utf-8")
    words = f"features and denoising tables {counted(list(pairs.values()))}."
    assert words in line_with(notes, "**MB minus blank**")


# What may stand in a document by hand, and why.
ALLOWED = {"3.11": "the version of Python"}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_no_measured_number_is_typed_into_a_document(name: str) -> None:
    text = prose(name)
    assert set(NUMBER.findall(text)) <= set(ALLOWED), "generate it, or explain it in ALLOWED"
    assert not re.search(r"\d+ of \d+|\d ± \d", text)


def test_no_measured_number_is_typed_into_a_template() -> None:
    for path in sorted((ROOT / "src" / "lpgnn" / "paper").glob("*.md.j2")):
        text = re.sub(r"{[{%].*?[%}]}|`[^`]*`", "", path.read_text(encoding="utf-8"))
        # Budgets are the only decimals.
        found = set(NUMBER.findall(text))
        assert found <= {"0.01", "0.1", "0.5"}, path.name


def three_digits(value: str) -> str:
    return f"{float(value):.0f}" if float(value) >= 100 else f"{float(value):.3g}"


def test_the_page_on_speed_says_what_the_benchmarks_measured() -> None:
    text = (ROOT / "docs" / "design" / "speed.md").read_text(encoding="utf-8")
    expected, floors = [], []
    with (BENCH / "speed.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        graph, backbone, mechanism = row["case"].split()
        case = f"{graph.capitalize()}, {backbone.upper()}, {mechanism.upper()}"
        has_floor = row["epoch_per_floor"] not in ("", "-")
        numbers = [three_digits(row["plain_ms"]), three_digits(row["ours_ms"])]
        numbers += [f"{float(row['ratio']):.0f} x", f"{float(row['goal']):.0f} x"]
        numbers += [f"{float(row['epoch_per_floor']):.1f}"] if has_floor else []
        case += "" if has_floor else " (dense reports)"
        expected.append(f"| {case} | {' | '.join(numbers)} |")
        if has_floor and backbone != "gat":
            floors.append(float(row["epoch_per_floor"]))
    goal = float(rows[0]["floor_goal"])
    expected.append(f"takes {min(floors):.1f} to {max(floors):.1f} times as long")
    expected.append(f"(goal: {goal:g})")
    peaks = (BENCH / "speed.md").read_text(encoding="utf-8")
    memory = dict(re.findall(r"with (\d+) Facebook MB run\(s\): (\d+) MB", peaks))
    expected.append(f"take {memory['10']} MB at their peak, one takes {memory['1']} MB")
    scale = read_rows(BENCH / "scale.csv")
    (million,) = (row for row in scale if row["side"] == "ours" and row["nodes"] == 1e6)
    expected += [
        f"train in {million['peak_mb'] / 1000:.1f} GB at {million['epoch_s']:.1f} s an epoch",
        f"features alone would take {million['dense_mb'] / 1000:.0f} GB",
        f"edges^{growth(scale):.2f} (goal: {GROWTH_GOAL})",
    ]
    rest = text
    for line in expected:
        assert line in text, line
        rest = rest.replace(line, "")
    assert not NUMBER.findall(rest), "no benchmark has measured it"


def words_of(page: str) -> str:
    return " ".join((ROOT / "docs" / page).read_text(encoding="utf-8").split())


def test_numbers_in_the_documentation_follow_from_formulas() -> None:
    """d/(2m) coth(eps/2m) on Cora at 0.1, the chance to keep a label, and e^eps."""
    size = 1432 / 2 / math.tanh(0.1 / 2)
    assert f"{round(size, -3):,.0f} on Cora at `x_eps=0.1`" in words_of("concepts/controls.md")
    assert f"(keep = {math.e / (math.e + 6):.4f})" in words_of("start/first_run.md")
    budgets = words_of("concepts/budgets.md")
    for eps in (0.1, 1, 2, 4):
        ratio = math.exp(eps)
        assert f"| {eps:g} | {ratio:.3g} | {100 * ratio / (ratio + 1):.0f} % |" in budgets
