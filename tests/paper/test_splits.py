import re
from dataclasses import replace
from pathlib import Path

import pytest

from lpgnn.paper.splits import best_splits, splits_computed, splits_grid, splits_sentences
from lpgnn.report.evidence import Source
from paper.conftest import Paper
from report.rows import add_rows


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("results")
    table = Paper(folder).table("budget_split")

    def add(total: str, numbers: dict[str, list[float]]) -> None:
        for column, values in numbers.items():
            cell = table.numbers["planted", total, column].cell
            assert cell is not None
            add_rows(folder, cell.point.settings, values, engine="one")

    labels = {"0": [50.0, 52.0, 51.0], "labels only": [40.0, 41.0, 42.0]}
    # All on labels is best, by the network and by labels only.
    fewer = {"0.25": [45.0] * 3, "0.5": [44.0] * 3, "0.75": [43.0] * 3}
    add("1", {**labels, **fewer})
    swapped = {"0": labels["labels only"], "labels only": [60.0] * 3}
    add("2", {**swapped, **fewer})
    # Features are best beyond the intervals, and best by a mean that an interval does not support.
    add("4", {**labels, **fewer, "0.5": [55.0, 56.0, 57.0]})
    add("6", {**labels, **fewer, "0.75": [70.0, 45.0, 60.0]})
    # Above the network on blank reports, but not above labels only.
    close = {"0": [40.0, 41.0, 42.0], "labels only": [54.9, 56.3, 56.4]}
    add("3", {**close, "0.25": [39.0] * 3, "0.5": [55.0, 56.0, 57.0], "0.75": [38.0] * 3})
    # Not all columns are there.
    add("9", labels)
    return Source(folder, "paper")


def test_the_best_split_of_each_total(source: Source) -> None:
    found = best_splits(source)["paper's protocol"]["Planted"]
    texts = {total: best and (best.text, best.features_pay) for total, best in found.items()}
    assert texts == {
        "1": ("0: 51.0", False),
        "2": ("0: 60.0 *", False),
        "3": ("0.5: 56.0", False),
        "4": ("0.5: 56.0", True),
        "6": ("0.75: 58.3", False),
        "9": None,
    }


def test_they_are_counted_and_laid_out(source: Source) -> None:
    found = best_splits(source)
    # Labels only stands in both tables, but nothing else of the second is there.
    assert splits_sentences(found) == [
        "Paper's protocol: all on labels has the highest mean in 2 of 5 pairs of graph and total "
        "budget that are complete, of 24 (labels only 1, the network on blank reports 1); a share "
        "for features is above it, after Holm's correction, on Planted at 4."
    ]
    grid = splits_grid(found)
    assert grid is not None
    lines = grid.to_markdown().splitlines()
    assert lines[0] == (
        "|  | Dataset | total 1 | total 2 | total 3 | total 4 | total 6 | total 9 |"
    )
    assert (
        "|  | Planted | 0: 51.0 | 0: 60.0 * | 0.5: 56.0 | **0.5: 56.0** | 0.75: 58.3 | – |" in lines
    )


def test_what_was_computed_is_told(source: Source) -> None:
    text = splits_computed(source)
    drop, residual, absent = re.split(r"(?<=\)\.) ", text)
    assert drop.startswith("Computed for the paper's protocol, shares at totals: Cora (nothing")
    # At 9 there is no share for features.
    assert "Planted (0/0.25/0.5/0.75 at 1, 2, 3, 4, 6; 0 at 9)" in drop
    assert residual.startswith("Computed for the residual learner, shares at totals: Cora (noth")
    assert absent.startswith("LastFM is absent")


def test_the_scope_of_the_sentence_is_told(source: Source) -> None:
    found = best_splits(source)
    complete = found["paper's protocol"]["Planted"]
    first = complete["1"]
    assert first is not None
    assert first.shares == ("0", "0.25", "0.5", "0.75")
    fewer = {**complete, "1": replace(first, shares=("0", "0.5"))}
    (sentence,) = splits_sentences({"paper's protocol": {"Planted": fewer}})
    assert "in 2 of 5 pairs of graph and total budget that are complete, of 6; " in sentence
    assert "1 of these have only the shares 0/0.5 (labels only" in sentence


def test_without_rows_there_is_nothing(tmp_path: Path) -> None:
    found = best_splits(Source(tmp_path, "paper"))
    assert (splits_grid(found), splits_sentences(found)) == (None, [])
