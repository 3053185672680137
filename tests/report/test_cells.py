import math
from collections import Counter

import pytest

from lpgnn.config import Settings, compose_settings
from lpgnn.report.cells import all_cells, budget, curves, table_cells
from lpgnn.report.printed import paper_numbers, paper_statistics


def test_paper_numbers_are_the_124_cells_of_our_tables() -> None:
    keys = [(c.table, c.dataset, c.row, c.column) for c in table_cells(Settings())]
    assert len(keys) == len(set(keys)) == 124
    assert keys == list(paper_numbers())
    assert Counter(key[0] for key in keys) == {"mechanisms": 64, "features": 24, "denoising": 36}
    assert set(Counter(key[1] for key in keys).values()) == {31}


@pytest.mark.parametrize(
    ("key", "mean", "ci"),
    [
        (("mechanisms", "cora", "1b", "x_eps=0.01"), 45.8, 3.3),
        (("mechanisms", "pubmed", "ag", "x_eps=2.0"), 83.1, 0.2),
        (("mechanisms", "lastfm", "mb", "x_eps=2.0"), 85.9, 1.1),
        (("features", "pubmed", "ohd", "y_eps=1.0"), 52.5, 5.7),
        (("features", "lastfm", "mb x_eps=0.01", "y_eps=1.0"), 76.9, 4.3),
        (("denoising", "cora", "y_eps=0.5", "forward"), 18.6, 2.5),
        (("denoising", "lastfm", "y_eps=0.5", "drop"), 70.0, 3.0),
        (("denoising", "facebook", "y_eps=2.0", "cross_entropy"), 81.6, 1.2),
    ],
)
def test_paper_numbers_as_printed(key: tuple[str, str, str, str], mean: float, ci: float) -> None:
    printed = paper_numbers()[key]
    assert (printed.mean, printed.ci) == (mean, ci)


def test_one_computation_printed_in_two_tables_has_one_number() -> None:
    # Drop at x_eps = y_eps = 1 is in the features and in the denoising table.
    numbers = paper_numbers()
    for dataset in ("cora", "pubmed", "facebook", "lastfm"):
        first = numbers["features", dataset, "mb x_eps=1.0", "y_eps=1.0"]
        assert first == numbers["denoising", dataset, "y_eps=1.0", "drop"]


def test_paper_statistics_as_printed() -> None:
    statistics = paper_statistics()
    assert list(statistics) == ["cora", "pubmed", "facebook", "lastfm"]
    assert statistics["facebook"]["num_edges"] == "170912"
    assert statistics["lastfm"]["average_degree"] == "7.29"


def test_budgets_are_spelt_as_in_the_paper() -> None:
    spelt = [budget(eps) for eps in (0.01, 0.1, 0.5, 1, 2, 3, math.inf)]
    assert spelt == ["0.01", "0.1", "0.5", "1.0", "2.0", "3.0", "inf"]


def test_curves_are_the_files_of_the_paper() -> None:
    names = [(curve.figure, curve.name) for curve in curves(Settings())]
    assert len(names) == len(set(names)) == 3 * 4 * 4 + 2 * 3 * 4
    assert ("xyeps", "model=sage,dataset=lastfm,y_eps=inf") in names
    assert ("kprop", "dataset=cora,x_eps=0.01") in names
    assert ("kprop", "dataset=facebook,y_eps=0.5") in names


@pytest.mark.parametrize("experiment", ["mechanisms", "features", "denoising", "budgets", "kprop"])
def test_a_sweep_computes_what_the_report_looks_up(experiment: str) -> None:
    swept = {
        one.resolve().identity
        for one in compose_settings([f"+experiment={experiment}"], multirun=True)
    }
    table = {"budgets": "xyeps"}.get(experiment, experiment)
    wanted = {c.settings.resolve().identity for c in all_cells(Settings()) if c.table == table}
    assert wanted == swept


def test_an_edition_is_another_base() -> None:
    plain = {c.settings.resolve().identity for c in all_cells(Settings())}
    other = {c.settings.resolve().identity for c in all_cells(Settings(aggregator="mean"))}
    assert not plain & other
    assert len(plain) == len(other)
