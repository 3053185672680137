from collections import Counter

import pytest

from lpgnn.paper.comparison import compare
from lpgnn.paper.findings import PAPER_TABLES
from lpgnn.paper.statistics import DATASETS, printed_statistics, statistics, statistics_grid
from lpgnn.report.tables import Printed, read_printed
from lpgnn.shown import TableSpec
from paper.conftest import Paper

BLOCKS = {"features": None}


def printed(table: str) -> dict[tuple[str, str, str], Printed]:
    blocks = BLOCKS.get(table, "dataset")
    return read_printed(TableSpec(table, "", "", blocks=blocks, printed=f"paper/{table}"))


def test_the_printed_numbers_are_the_124_cells_of_our_tables(paper: Paper) -> None:
    judged = compare(paper.table(name) for name in PAPER_TABLES)
    assert Counter(one.table for one in judged) == {
        "mechanisms": 64,
        "features": 24,
        "denoising": 36,
    }
    assert set(Counter(one.cell.dataset for one in judged).values()) == {31}
    for name in PAPER_TABLES:
        places = {one.number.place: one.printed for one in judged if one.table == name}
        assert places == printed(name)
    assert not any(one.number.is_control for one in judged)


@pytest.mark.parametrize(
    ("table", "place", "mean", "ci"),
    [
        ("mechanisms", ("cora", "1b", "0.01"), 45.8, 3.3),
        ("mechanisms", ("pubmed", "ag", "2"), 83.1, 0.2),
        ("mechanisms", ("lastfm", "mb", "2"), 85.9, 1.1),
        ("features", ("", "ohd", "pubmed"), 52.5, 5.7),
        ("features", ("", "MB, x_eps=0.01", "lastfm"), 76.9, 4.3),
        ("denoising", ("cora", "0.5", "forward"), 18.6, 2.5),
        ("denoising", ("lastfm", "0.5", "drop"), 70.0, 3.0),
        ("denoising", ("facebook", "2", "cross_entropy"), 81.6, 1.2),
    ],
)
def test_numbers_as_printed(
    table: str, place: tuple[str, str, str], mean: float, ci: float
) -> None:
    assert printed(table)[place] == Printed(mean, ci)


def test_one_computation_printed_in_two_places_has_one_number() -> None:
    # Drop at x_eps = y_eps = 1 is in the features and in the denoising table.
    features, denoising = printed("features"), printed("denoising")
    for dataset in DATASETS:
        assert features["", "MB, x_eps=1", dataset] == denoising[dataset, "1", "drop"]
    # The learners table shows Drop once more, as a row.
    learners = printed("learners")
    assert len(learners) == 9
    for (dataset, row, column), number in learners.items():
        assert row == "Drop, as the paper prints it"
        assert number == denoising[dataset, column, "drop"]


def test_the_datasets_facts_are_those_the_paper_prints() -> None:
    assert statistics() == printed_statistics()
    lines = statistics_grid().to_markdown().splitlines()
    assert lines[2] == "| Cora | 7 | 2,708 | 5,278 | 1,433 | 3.90 |"
    assert lines[4] == "| Facebook | 4 | 22,470 | 170,912 | 4,714 | 15.21 |"
    assert r"Dataset & \#Classes & \#Nodes" in statistics_grid().to_latex("c", "l")
