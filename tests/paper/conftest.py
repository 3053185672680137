"""Expanding the paper's grids takes seconds: all tests here share one expansion."""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

from lpgnn.composition import Experiment, Point, read_experiment
from lpgnn.report.build import tables_of
from lpgnn.report.evidence import Cell, Source
from lpgnn.report.tables import Table


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True, scope="package")
def _shared_expansion() -> Iterator[None]:
    read = lru_cache(read_experiment)  # folders alone differ, which decide no number

    def shared(name: str, *places: object) -> tuple[Experiment, list[Point]]:
        return read(name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lpgnn.report.evidence.read_experiment", shared)
        yield


class Paper:
    """The paper's experiments on the rows of a folder, under the paper's rule."""

    def __init__(self, folder: Path, selection: str = "paper") -> None:
        self.source = Source(folder, selection)

    def table(self, name: str) -> Table:
        return tables_of(self.source.results(name))[name]

    def cell(self, table: str, *place: str) -> Cell:
        """By block, row and column; a table without blocks takes row and column."""
        block, row, column = place if len(place) == 3 else ("", *place)
        found = self.table(table).numbers[block, row, column].cell
        assert found is not None
        return found

    def point(self, experiment: str, **keys: str) -> Cell:
        (found,) = (
            cell
            for cell in self.source.results(experiment).cells
            if all(cell.keys.get(key.replace("__", ".")) == text for key, text in keys.items())
            and not cell.point.control
        )
        return found


@pytest.fixture
def paper(tmp_path: Path) -> Paper:
    return Paper(tmp_path)
