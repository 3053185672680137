import math
from pathlib import Path

import pandas as pd
import pytest

from lpgnn.errors import InputError
from lpgnn.rows import COLUMNS, RowStore, results
from rows.rows import append_in_child, make_row, publish, table


def test_rows_become_a_typed_table(tmp_path: Path) -> None:
    store = RowStore(tmp_path)
    publish(tmp_path, table([make_row("b", 10, 1 / 3), make_row("b", 2)]))
    append_in_child(tmp_path, [make_row("a", 0, 12.5, y_eps=0.5)])
    store.append("cora", [make_row("c", 0, dataset="cora", options='{"filter.steps": 2}')])
    found = results(tmp_path)
    assert list(found["id"]) == ["c", "a", "b", "b"]  # cora before sbm
    assert list(found["repeat"]) == [0, 0, 2, 10]
    assert list(found["y_eps"]) == [math.inf, 0.5, math.inf, math.inf]
    assert list(found["paper/test/acc"]) == [81.25, 12.5, 81.25, 1 / 3]  # no digit is lost
    assert list(found["paper/qualified"]) == [True] * 4
    assert list(found["filter.steps"]) == [2, 16, 16, 16]
    assert pd.isna(found["learner.walk"][0])
    assert list(found["learner.walk"][1:]) == ["lazy"] * 3
    types = {name: str(found[name].dtype) for name in found}
    assert types["repeat"] == types["paper/epoch"] == types["filter.steps"] == "Int64"
    assert types["x_eps"] == types["paper/test/acc"] == types["duration"] == "float64"
    assert types["dirty"] == types["released/qualified"] == "boolean"
    assert types["mechanism"] == types["status"] == types["learner.walk"] == "str"
    assert list(found.index) == [0, 1, 2, 3]


def test_a_copy_of_a_table_under_another_name_adds_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    publish(tmp_path, table([make_row("a", 0), make_row("a", 1)]))
    rows = tmp_path / "rows"
    (rows / "copy.csv").write_bytes((rows / "sbm.csv").read_bytes())
    assert list(results(tmp_path)["repeat"]) == [0, 1]
    (record,) = caplog.records
    problem = "dataset is 'sbm', not copy, after which the file is named"
    told = f"{rows / 'copy.csv'}: 2 lines are not used (line 2: {problem}; line 3: {problem})"
    assert record.getMessage().startswith(told)


def test_the_options_stand_in_place_of_their_text(tmp_path: Path) -> None:
    publish(tmp_path, table([make_row("a", 0)]))
    at = COLUMNS.index("options")
    options = ("filter.steps", "learner.walk")
    assert tuple(results(tmp_path).columns) == (*COLUMNS[:at], *options, *COLUMNS[at + 1 :])


def test_blank_cells_and_words_that_look_like_missing_values(tmp_path: Path) -> None:
    blank = {"paper/test/macro_f1": "", "max_epochs": "", "backbone": "none", "device": "NA"}
    failed = {"status": "failed: nan", "paper/test/acc": math.nan, "released/test/acc": ""}
    publish(tmp_path, table([make_row("a", 0, options="") | blank, make_row("a", 1) | failed]))
    found = results(tmp_path)
    assert math.isnan(found["paper/test/macro_f1"][0])
    assert pd.isna(found["max_epochs"][0])
    assert (found["backbone"][0], found["device"][0]) == ("none", "NA")
    assert list(found["paper/test/acc"].isna()) == [False, True]
    assert list(found["released/test/acc"].isna()) == [False, True]
    assert found["status"][1] == "failed: nan"


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        *(("1", "2", "Int64"), ("1", "null", "Int64"), ("1", "2.5", "float64")),
        *(("1.0", "null", "float64"), ("true", "null", "boolean"), ('"x"', "null", "str")),
        *(("1", '"x"', "object"), ("[1, 2]", "null", "object"), ("null", "null", "object")),
    ],
)
def test_types_of_options(first: str, second: str, kind: str, tmp_path: Path) -> None:
    options = [f'{{"filter.x": {value}}}' for value in (first, second)]
    publish(tmp_path, table([make_row("a", r, options=o) for r, o in enumerate(options)]))
    assert str(results(tmp_path)["filter.x"].dtype) == kind


def test_own_metrics_are_numbers(tmp_path: Path) -> None:
    store = RowStore(tmp_path)
    store.append("sbm", [make_row("a", 0)])
    store.append("sbm", [make_row("b", 0, **{"paper/test/auc": 0.75})])
    found = results(tmp_path)
    assert math.isnan(found["paper/test/auc"][0])
    assert found["paper/test/auc"][1] == 0.75
    names = list(found.columns)
    assert names[names.index("paper/test/auc") - 1] == "paper/test/balanced_acc"


def test_a_folder_without_rows(tmp_path: Path) -> None:
    found = results(tmp_path)
    assert len(found) == 0
    assert set(found.columns) == {*COLUMNS} - {"options"}
    publish(tmp_path, "")
    assert len(results(tmp_path)) == 0


def test_a_missing_folder_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        results(tmp_path / "nowhere")


def test_bad_lines_do_not_matter(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    publish(tmp_path, table([make_row("a", 0)]) + "oops\n1_0;x\n")
    assert len(results(tmp_path)) == 1
    assert len(caplog.records) == 1


def test_the_tables_are_plain_pandas(tmp_path: Path) -> None:
    publish(tmp_path, table([make_row("a", r, 10.0 * r) for r in range(3)]))
    means = results(tmp_path).groupby(["mechanism", "filter.steps"])["paper/test/acc"].mean()
    assert means.to_dict() == {("mb", 16): 10.0}
