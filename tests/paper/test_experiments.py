"""What the experiment files ask for."""

from dataclasses import replace

import pytest

from lpgnn.composition import _Composer, experiment_names
from lpgnn.paper.findings import BEYOND_EXPERIMENTS, PAPER_EXPERIMENTS
from lpgnn.report.build import tables_of
from paper.conftest import Paper

SIZES = {
    "mechanisms": 4 * (4 * 4 + 4 + 1),
    "features": 4 * (3 + 3 + 3 + 1),
    "denoising": 4 * 3 * (3 + 1 + 1),
    "budgets": 4 * (3 * 6 * 4 + 4),
    "kprop": 4 * (5 * 3 + 5 * 3 + 3),
    "conditioned_mechanisms": 3 * 4 + 3 * (4 + 4 + 1),
    "conditioned_features": 3 * (3 + 3 + 3 + 1),
    "conditioned_denoising": 3 * 3 * (3 + 1 + 1),
    "learners": 3 * 3 * (1 + 4 + 1 + 1 + 1),
    "value_of_features": 3 * 2 * (9 * 3 + 2),
    "conditioned_ablation": 5,
    "equal_labels": 3 * 19 + 3 + 8,
    "budget_split": 2 * 6 * 4 + 2 * (3 + 3 + 2) + 4 * 6 * 4 + 4 * 6,
    "planted": 2 * (4 * 4 + 4 * 4 + 4 + 4 + 4),
    "features_that_pay": 7 * 4 * (7 + 7 + 1) + (7 + 6 + 7 + 6) * 4 * 2,
    "label_models": 7 * 2 * (4 + 4 + 1) * 2,
    "lastfm_blank": 4 * 4 + 3 * 3,
    "hop_regression": 2 * (2 * (10 * 2 * 5 + 3) + 2 * 2 * 5 + 1),
    "phase_diagram": (3 * 2 + 1) * (5 * 6 + 2 * 3 + 2 * 3 + 2 * 2) + (6 + 3 + 3 + 2),
}


def test_all_experiments_are_known() -> None:
    assert sorted(SIZES) == experiment_names()
    others = {"budget_split", "planted", "features_that_pay", "label_models"}
    others |= {"lastfm_blank", "phase_diagram", "hop_regression"}
    assert set(SIZES) == {*PAPER_EXPERIMENTS, *BEYOND_EXPERIMENTS, *others}


@pytest.mark.parametrize("name", SIZES)
def test_every_point_resolves_and_every_table_builds(name: str, paper: Paper) -> None:
    results = paper.source.results(name)
    assert not any(cell.obstacle for cell in results.cells)
    assert len(results.cells) == SIZES[name]
    tables = tables_of(results)
    assert tables or results.experiment.figures
    if tables:
        numbers = [number for table in tables.values() for number in table.numbers.values()]
        shown = {number.cell.identity for number in numbers if number.cell}
        assert shown == {cell.identity for cell in results.cells}


def test_controls_change_nothing_but_the_features(paper: Paper) -> None:
    names = ("mechanisms", "features", "denoising")
    cells = [cell for name in names for cell in paper.source.results(name).cells]
    own = {cell.identity for cell in cells if not cell.point.control}
    controls = [cell for cell in cells if cell.point.control]
    assert len(controls) == 4 * (4 + 1 + 3 + 1 + 3 + 3)
    for cell in controls:
        assert cell.configuration is not None
        if cell.keys.get("feature") == "blank":
            raw = replace(cell.point.settings, feature="raw").resolve(fetch=False)
            assert raw.identity in own
            assert replace(raw, feature=cell.configuration.feature) == cell.configuration
        else:
            assert cell.configuration.learner.name == "label_propagation"


def test_the_residual_column_is_a_row_of_the_learners_table(paper: Paper) -> None:
    for eps in ("0.5", "1", "2"):
        column = paper.cell("conditioned_denoising", "cora", eps, "Residual")
        assert column.identity == paper.cell("learners", "cora", "Residual", eps).identity


def test_the_conditioned_edition_differs_from_the_paper_only_in_its_protocol(paper: Paper) -> None:
    ours = paper.cell("conditioned_mechanisms", "cora", "mb", "1").configuration
    theirs = paper.cell("mechanisms", "cora", "mb", "1").configuration
    assert ours is not None
    assert theirs is not None
    assert ours.filter != theirs.filter
    assert (ours.mechanism, ours.backbone) == (theirs.mechanism, theirs.backbone)
    # Labels only know no protocol.
    labels = [
        paper.cell(f"{p}mechanisms", "cora", "Labels only", "1") for p in ("", "conditioned_")
    ]
    assert labels[0].identity == labels[1].identity


@pytest.mark.parametrize("name", SIZES)
def test_the_command_of_a_number_computes_it_alone(name: str, paper: Paper) -> None:
    """One point for each member of the grid."""
    results = paper.source.results(name)
    members = {(cell.point.label, *cell.point.keys): cell for cell in results.cells}
    with _Composer((), ()) as composer:
        for cell in members.values():
            words = results.experiment.overrides(cell.point)
            (found,) = composer.points(words, multirun=False)
            assert found.settings.resolve(fetch=False).identity == cell.identity, words
