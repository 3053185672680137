import math
from pathlib import Path

import pytest

from lpgnn.composition import Point
from lpgnn.config import Settings
from lpgnn.report.build import tables_of
from lpgnn.report.evidence import Cell, Source
from lpgnn.report.tables import Number, Table, best_of
from lpgnn.rows import RowStore, Summary
from report.rows import add_rows, write_experiment

pytestmark = pytest.mark.slow

GRID = """
grid:
  - {dataset: "cora,pubmed", learner: "cross_entropy,forward", x_eps: 1, y_eps: "0.5,1"}
  - {label: Blank, control: true, dataset: "cora,pubmed", feature: blank, x_eps: 1, y_eps: "0.5,1"}
  - {label: Lazy, dataset: "cora,pubmed", learner: label_propagation,
     learner.walk: lazy, y_eps: "0.5,1"}
tables:
  wide: {blocks: dataset, rows: y_eps, columns: learner, best: columns}
  beside: {rows: [learner, learner.walk], columns: [dataset, y_eps], best: rows}
"""


def tables(folder: Path) -> dict[str, Table]:
    conf = write_experiment(folder, "both", GRID)
    return tables_of(Source(folder, "paper", config_dirs=(conf,)).results("both"))


def run(**settings: object) -> Settings:
    return Settings(dataset="cora", x_eps=1.0, y_eps=0.5, **settings)  # type: ignore[arg-type]


def number(column: str, mean: float | None, *, control: bool = False) -> Number:
    cell = Cell(Point({}, Settings(), None, control), None, "", [])
    return Number(("cora", "1", column), cell, None if mean is None else Summary(mean, 0.0, 2))


def test_best_goes_by_unrounded_means_and_ties_are_all_best() -> None:
    means = [number("a", 82.94), number("b", 82.86), number("c", 60.0)]
    assert best_of(means, "columns") == {("cora", "1", "a")}
    assert best_of(means, "rows") == {one.place for one in means}  # each is alone in its column
    assert best_of(means, None) == set()
    tied = [number("a", 80.0), number("b", 81.0), number("c", 81.0)]
    assert {place[2] for place in best_of(tied, "columns")} == {"b", "c"}


def test_an_incomplete_comparison_has_no_best_and_controls_take_no_part() -> None:
    assert best_of([number("a", 80.0), number("b", None)], "columns") == set()
    with_control = [number("a", 80.0), number("b", 90.0, control=True)]
    assert best_of(with_control, "columns") == {("cora", "1", "a")}
    missing_control = [number("a", 80.0), number("b", None, control=True)]
    assert best_of(missing_control, "columns") == {("cora", "1", "a")}


def test_labels_stand_on_the_compared_axis(tmp_path: Path) -> None:
    add_rows(tmp_path, run(learner="cross_entropy"), [30.0] * 10)
    add_rows(tmp_path, run(learner="forward"), [40.0] * 10)
    add_rows(tmp_path, run(feature="blank"), [70.0, 70.0])
    lazy = {"_target_": "lpgnn.learners.LabelPropagation", "walk": "lazy"}
    add_rows(tmp_path, run(learner=lazy), [35.0] * 10)
    found = tables(tmp_path)
    wide = found["wide"].grid()
    assert wide.headings == ["Dataset", "ε_y", "cross_entropy", "forward", "Blank", "Lazy"]
    assert [one.to_markdown() for one in wide.blocks[0][0]] == [
        *("Cora", "0.5", "30.0 ± 0.0", "**40.0 ± 0.0**"),
        *("70.0 ± 0.0, 2 of 10 repeats", "35.0 ± 0.0"),
    ]
    # Only one place of the grid has numbers; what has none at all is left out.
    assert len(wide.blocks) == len(wide.blocks[0]) == 1
    beside = found["beside"].grid()
    assert beside.headings == ["Learner", "Cora (ε_y=0.5)"]
    # Controls are apart where there are no blocks; keys after the first follow in brackets.
    labels = [[row[0].text for row in block] for block in beside.blocks]
    assert labels == [["cross_entropy", "forward", "Lazy (lazy)"], ["Blank"]]
    assert beside.to_latex("c", "l").count(r"\midrule") == 2


def test_failed_and_surplus_repeats_do_not_count(tmp_path: Path) -> None:
    add_rows(tmp_path, run(learner="forward"), [60.0] * 10 + [99.0] * 2, failed=[4])
    one = tables(tmp_path)["wide"].numbers["cora", "0.5", "forward"]
    assert one.summary == Summary(60.0, 0.0, 9)
    assert one.cell is not None
    assert one.cell.is_finished
    assert (len(one.cell.rows), one.cell.num_failed) == (10, 1)
    assert one.summary_text == "60.0 ± 0.0, 9 of 10 repeats"


def test_rows_of_another_seed_are_another_computation(tmp_path: Path) -> None:
    add_rows(tmp_path, run(learner="forward", seed=1), [60.0])
    assert tables(tmp_path)["wide"].numbers["cora", "0.5", "forward"].summary is None


def test_what_cannot_be_resolved_is_a_gap(tmp_path: Path) -> None:
    conf = write_experiment(
        tmp_path,
        "gap",
        'grid: [{dataset: cora, x_eps: 1}, {dataset: cora, x_eps: inf, feature: "raw,blank"}]\n'
        "tables: {gap: {rows: x_eps, columns: feature, best: columns}}",
    )
    source = Source(tmp_path, "paper", config_dirs=(conf,))
    cells = source.results("gap").cells
    assert [bool(cell.obstacle) for cell in cells] == [False, False, True]
    assert "must be finite with feature=blank" in cells[2].obstacle
    (table,) = tables_of(source.results("gap")).values()
    assert [one.text for one in table.grid().blocks[0][0]] == ["∞", "–", "–"]


def test_ci_equals_scipys_bootstrap_of_the_same_rows(tmp_path: Path) -> None:
    import numpy as np
    from scipy.stats import bootstrap

    values = [61.25, 70.5, 66.125, 68.0, 59.75, 72.5, 64.375, 69.0, 71.625, 67.5]
    add_rows(tmp_path, run(learner="forward"), values)
    summary = tables(tmp_path)["wide"].numbers["cora", "0.5", "forward"].summary
    interval = bootstrap(
        (np.array(values),),
        np.mean,
        n_resamples=1000,
        confidence_level=0.95,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    assert summary is not None
    assert summary.ci == pytest.approx((interval.high - interval.low) / 2, abs=1e-12)
    assert summary.mean == pytest.approx(sum(values) / 10, abs=1e-12)


def test_points_that_lack_an_axis_fill_it_only_if_their_name_is_not_on_it(tmp_path: Path) -> None:
    conf = write_experiment(
        tmp_path,
        "parts",
        'grid: [{dataset: cora, mechanism: "mb,lp", x_eps: "0.1,1"}, {dataset: cora, '
        "mechanism: mb, y_eps: 2}, {label: Levels, dataset: cora, feature: ones}]\n"
        "tables: {parts: {rows: mechanism, columns: x_eps}}",
    )
    results = Source(tmp_path, "paper", config_dirs=(conf,)).results("parts")
    (table,) = tables_of(results).values()
    # The second member has MB without x_eps: it belongs to another table.
    assert list(table.numbers) == [
        *(("", row, column) for row in ("mb", "lp", "Levels") for column in ("0.1", "1"))
    ]
    assert {n.cell.keys.get("y_eps") for n in table.numbers.values() if n.cell} == {None}


def test_rows_of_different_engines_are_not_paired(tmp_path: Path) -> None:
    conf = write_experiment(tmp_path, "both", GRID)
    learners = ("cross_entropy", "forward")
    for engine in ("one", "two"):
        add_rows(tmp_path, run(learner="cross_entropy"), [30.0, 31.0], engine="one")
        add_rows(tmp_path, run(learner="forward"), [40.0, 41.0], engine=engine)
        results = Source(tmp_path, "paper", config_dirs=(conf,)).results("both")
        first, second = (
            next(c for c in results.cells if c.identity == run(learner=name).resolve().identity)
            for name in learners
        )
        found = results.difference(second, first)
        assert (found is None) == (engine == "two")


def test_rows_of_changed_sources_are_paired_with_nothing(tmp_path: Path) -> None:
    """An engine names the arithmetic, not the mechanisms: a change there has no name."""
    conf = write_experiment(tmp_path, "both", GRID)
    learners = ("cross_entropy", "forward")
    identities = [
        add_rows(tmp_path, run(learner=name), [30.0, 31.0], engine="one") for name in learners
    ]
    for dirty in (False, True):
        store = RowStore(tmp_path)
        own = [row for row in store.read("cora") if row["id"] == identities[0]]
        store.append("cora", [row | {"dirty": dirty} for row in own])
        results = Source(tmp_path, "paper", config_dirs=(conf,)).results("both")
        cells = {cell.identity: cell for cell in results.cells}
        first, second = (cells[identity] for identity in identities)
        assert (results.difference(first, second) is None) == dirty


def test_what_is_not_trained_is_paired_with_any_engine(tmp_path: Path) -> None:
    grid = GRID.replace("cross_entropy", "label_propagation")
    conf = write_experiment(tmp_path, "both", grid)
    add_rows(tmp_path, run(learner="label_propagation"), [30.0, 32.0], engine="one")
    add_rows(tmp_path, run(learner="forward"), [40.0, 41.0], engine="two")
    results = Source(tmp_path, "paper", config_dirs=(conf,)).results("both")
    first, second = (
        next(c for c in results.cells if c.identity == run(learner=name).resolve().identity)
        for name in ("label_propagation", "forward")
    )
    found = results.difference(second, first)
    assert found is not None
    assert found.mean == 9.5


def test_cells_with_rows_of_several_engines_are_named(tmp_path: Path) -> None:
    add_rows(tmp_path, run(learner="forward"), [70.0, 71.0, 72.0])
    assert tables(tmp_path)["wide"].mixed_cells() == []
    store = RowStore(tmp_path)
    first, *_ = store.read("cora")
    store.append("cora", [first | {"engine": "0123456789"}])
    table = tables(tmp_path)["wide"]
    (line,) = table.mixed_cells()
    assert line.startswith("cora, ")
    assert "learner=forward" in line
    assert line.endswith(": rows of 2 engines (1 by 0123456789, 2 by an unrecorded one).")
    table.write(tmp_path)
    assert line in (tmp_path / "wide.md").read_text()


def test_noise_that_was_drawn_in_floating_point_is_counted(tmp_path: Path) -> None:
    """Rows of a Laplace or Gaussian mechanism without an engine are that old."""
    for mechanism, engine in (("lp", ""), ("ag", "0123456789"), ("mb", "")):
        settings = Settings(dataset="cora", mechanism=mechanism, x_eps=2.0, y_eps=math.inf)
        add_rows(tmp_path, settings, [70.0, 71.0, 72.0], engine=engine)
    source = Source(tmp_path, "paper")
    note = tables_of(source.results("mechanisms"))["mechanisms"].notes()[-1]
    assert "floating point, before rows named their engine: 3 of 6 on cora. That of all" in note
    RowStore(tmp_path).append(
        "cora", [row | {"engine": "1"} for row in RowStore(tmp_path).read("cora")]
    )
    again = tables_of(Source(tmp_path, "paper").results("mechanisms"))["mechanisms"]
    assert again.old_noise() == []


def test_hardly_trained_networks_are_marked(tmp_path: Path) -> None:
    for learner, epochs in (("forward", (1, 3, 400)), ("cross_entropy", (4, 4, 1))):
        add_rows(tmp_path, run(learner=learner), [70.0, 71.0, 72.0])
        store = RowStore(tmp_path)
        own = [row for row in store.read("cora") if row["learner"] == learner]
        kept = [row | {"paper/epoch": str(n)} for row, n in zip(own, epochs, strict=True)]
        store.append("cora", kept)
    # What trains no network is kept at epoch 1, and says nothing by it.
    lazy = run(learner={"_target_": "lpgnn.learners.LabelPropagation", "walk": "lazy"})
    add_rows(tmp_path, lazy, [60.0] * 3)
    one = [row for row in store.read("cora") if row["learner"] == "label_propagation"]
    store.append("cora", [row | {"paper/epoch": "1"} for row in one])
    table = tables(tmp_path)["wide"]
    table.write(tmp_path)
    frame = table.frame().dropna(subset="mean").set_index("column")
    assert frame["kept_epoch"].dropna().to_dict() == {"forward": 3.0, "cross_entropy": 4.0}
    (line,) = [line for line in (tmp_path / "wide.md").read_text().splitlines() if "0.5" in line]
    assert line.count("†") == 1
    assert "71.0 ± 1.0, 3 of 10 repeats †" in line
    assert any(note.startswith("† hardly trained") for note in table.notes())
