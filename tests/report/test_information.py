from dataclasses import replace
from pathlib import Path

import pytest

from lpgnn.errors import InputError
from lpgnn.report.information import (
    Information,
    draw_informative_bits,
    information_grid,
    read_information,
    renew_information,
)

CORA = Information(
    dataset="cora",
    title="Cora",
    fingerprint="0123456789abcdef",
    num_nodes=2708,
    num_features=1432,
    density=0.0127,
    class_distance_squared=1.2,
    mechanism="mb",
    x_eps=0.01,
    m=1,
    expected=0.172,
    mean=0.2,
    low=0,
    high=3,
    unchanged=84,
    repeats=100,
    seed=0,
    signal_to_noise=7.5e-8,
)
AT_ONE = replace(CORA, x_eps=1.0, expected=15.9, mean=15.2, low=6, high=24, unchanged=0)
MINE = replace(CORA, dataset="mine", title="Mine", mean=0.0, high=0, unchanged=100)


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_information(tmp_path) == []
    path = renew_information([CORA, AT_ONE], tmp_path)
    assert path == tmp_path / "information.csv"
    assert read_information(tmp_path) == [CORA, AT_ONE]


def test_a_dataset_is_replaced_whole_and_others_stay(tmp_path: Path) -> None:
    renew_information([CORA, AT_ONE, MINE], tmp_path)
    other = replace(AT_ONE, fingerprint="another")
    renew_information([other], tmp_path)
    assert read_information(tmp_path) == [other, MINE]


@pytest.mark.parametrize("text", ["dataset,m\ncora,1\n", "what,ever\n1,2\n"])
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "information.csv").write_text(text)
    with pytest.raises(InputError, match=r"information\.csv: must be as lpgnn\.information writes"):
        read_information(tmp_path)


def test_the_table_shows_counts_beside_expectations() -> None:
    lines = information_grid([CORA, AT_ONE]).to_markdown().splitlines()
    assert lines[2] == "| Cora | 0.01 | 2,708 | 0.17 | 0.2 | 0–3 | 7.5e-08 |"
    assert lines[3] == "| Cora | 1 | 2,708 | 16 | 15 | 6–24 | 7.5e-08 |"


@pytest.mark.slow
def test_the_figure_has_a_panel_for_each_graph_and_the_same_bytes(tmp_path: Path) -> None:
    # A mean of 0 has no place on a logarithmic axis; other mechanisms are not drawn.
    others = [replace(CORA, mechanism="1b", title="Other")]
    found = [CORA, AT_ONE, MINE, replace(MINE, x_eps=1.0, mean=3.0, high=5), *others]
    svg = draw_informative_bits(found, tmp_path)
    assert svg is not None
    assert (tmp_path / "informative_bits.svg").read_bytes() == svg
    assert draw_informative_bits(found, tmp_path) == svg
    assert draw_informative_bits([], tmp_path) is None
    assert not list(tmp_path.iterdir())
