import csv
import math
from pathlib import Path
from typing import Any

import pytest

from lpgnn.rows import COLUMNS, PROVENANCE, UNEVALUATED, format_value, package_version
from lpgnn.rows.reading import Level, RowFile, Signature, csv_line, table_content
from lpgnn.rows.schema import RowValidator, as_cells, column_type, order_columns, split_line
from rows.rows import make_row

VALIDATOR = RowValidator(COLUMNS, "sbm")


def line_of(row: dict[str, Any]) -> str:
    return csv_line(as_cells(row, COLUMNS))


def test_the_columns_and_their_order() -> None:
    assert COLUMNS[:4] == ("id", "repeat", "dataset", "feature")
    at = COLUMNS.index("status")
    assert COLUMNS[at - 2 : at + 3] == (
        *("options", "fingerprint", "status"),
        *("paper/epoch", "paper/qualified"),
    )
    assert COLUMNS[-9:] == (
        *("released/test/balanced_acc", "duration", "device", "version"),
        *("science", "engine", "revision", "written", "dirty"),
    )
    assert len(COLUMNS) == 48 == len(set(COLUMNS))


def test_provenance_does_not_hold_science() -> None:
    assert set(PROVENANCE) == {
        *("duration", "device", "version", "engine", "revision", "written", "dirty")
    }
    assert set(PROVENANCE) < set(COLUMNS)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("repeat", "integer"), ("paper/epoch", "integer"), ("x_eps", "number")),
        *(("dirty", "boolean"), ("released/qualified", "boolean"), ("paper/val/loss", "number")),
        *(("paper/test/acc", "share"), ("paper/test/my_metric", "number"), ("options", "text")),
        *(("status", "text"), ("unheard_of", "text")),
    ],
)
def test_types_of_columns(name: str, kind: str) -> None:
    assert column_type(name) == kind


def test_own_metrics_follow_the_built_in_ones() -> None:
    own = ["paper/test/auc", "released/test/auc", "extra"]
    ordered = order_columns([*own, *reversed(COLUMNS)])
    assert ordered[-1] == "extra"
    assert ordered[ordered.index("paper/test/auc") - 1] == "paper/test/balanced_acc"
    assert ordered[ordered.index("released/test/auc") - 1] == "released/test/balanced_acc"
    assert tuple(name for name in ordered if name not in own) == COLUMNS


def test_values_are_spelt_exactly() -> None:
    spelt = [format_value(v) for v in (True, False, 1 / 3, 1e-10, math.inf, 3, "text")]
    assert spelt == ["true", "false", "0.3333333333333333", "1e-10", "inf", "3", "text"]


def test_a_row_is_one_line() -> None:
    row = make_row("a", 0, status='failed: "x", y\r\nz\0')
    cells = split_line(line_of(row))
    assert cells[COLUMNS.index("status")] == 'failed: "x", y  z '


VALID: list[dict[str, Any]] = [
    {},
    {"status": "failed: loss is not finite at epoch 3", "paper/test/acc": math.nan},
    {"status": "failed", "paper/test/acc": "", "released/test/acc": ""},
    {"paper/test/macro_f1": "", "paper/test/balanced_acc": math.nan},
    {"paper/test/acc": 100.0, "released/test/acc": 0.0},
    {"paper/test/acc": 5e-05},
    {"paper/test/acc": ""},
    {"x_eps": "", "learning_rate": 1e-300, "paper/train/loss": math.inf},
    {"paper/val/loss": -1.5e-07, "seed": -3},
    {"options": ""},
    {"options": "{}"},
    {"device": 'a "b", c'},
    {"device": "Ångström"},
    {"written": ""},
]


@pytest.mark.parametrize("changes", VALID)
def test_valid_rows(changes: dict[str, Any]) -> None:
    line = line_of(make_row("a1", 7, **changes))
    assert VALIDATOR.problem(split_line(line)) == ""
    assert VALIDATOR.check(line)[:3] == ("a1", 7, 0)


INVALID: list[tuple[dict[str, Any], str]] = [
    ({"id": ""}, "id is ''"),
    ({"id": "a b"}, "id is 'a b'"),
    ({"id": "x" * 65}, "id is"),
    ({"repeat": ""}, "repeat is ''"),
    ({"repeat": -1}, "repeat is '-1'"),
    ({"repeat": "1.0"}, "repeat is '1.0'"),
    ({"repeat": "٣"}, "repeat is"),
    ({"status": ""}, "status is ''"),
    ({"status": "o"}, "not ok, unevaluated or failed"),
    ({"x_eps": "one"}, "x_eps is 'one', not a number"),
    ({"x_eps": "1_0"}, "x_eps is '1_0', not a number"),
    ({"x_eps": " 1"}, "x_eps is ' 1', not a number"),
    ({"max_epochs": "5.5"}, "max_epochs is '5.5', not an integer"),
    ({"paper/qualified": "yes"}, "not true or false"),
    ({"dirty": "fals"}, "dirty is 'fals'"),
    ({"written": "yesterday"}, "written is 'yesterday', not a time in nanoseconds"),
    ({"written": -1}, "written is '-1'"),
    ({"paper/test/acc": 100.5}, "not a number from 0 to 100"),
    ({"paper/test/acc": -0.5}, "not a number from 0 to 100"),
    ({"paper/test/acc": math.nan}, "accuracy is nan"),
    ({"options": "{"}, "options is not a JSON object"),
    ({"options": "[1]"}, "options is not a JSON object"),
    ({"options": '{"filter.steps": 1'}, "options is not a JSON object"),
    ({name: "" for name in COLUMNS if "/test/" in name}, "no test metric"),
]


@pytest.mark.parametrize(("changes", "problem"), INVALID)
def test_invalid_rows(changes: dict[str, Any], problem: str) -> None:
    line = line_of(make_row("a1", 7) | changes)
    VALIDATOR.check(line_of(make_row("a1", 7)))  # its options are known to be fine
    assert problem in VALIDATOR.problem(split_line(line))
    with pytest.raises(ValueError, match=r".") as caught:
        VALIDATOR.check(line)
    assert problem in str(caught.value)


def test_a_line_cut_anywhere_is_noticed() -> None:
    line = line_of(make_row("a1", 7))
    for end in range(1, len(line)):
        # Without its last cell or a part of the last word nothing of the result is lost.
        if line[:end].endswith(",") and end > len(line) - len("false") - 1:
            continue
        with pytest.raises(ValueError, match=r"."):
            VALIDATOR.check(line[:end])


def test_a_row_may_say_when_it_was_written() -> None:
    line = line_of(make_row("a1", 7, written=1_800_000_000_000_000_000))
    assert VALIDATOR.check(line)[:3] == ("a1", 7, 1_800_000_000_000_000_000)
    quoted = line_of(make_row("a1", 7, written=5, status="failed, early"))
    assert VALIDATOR.check(quoted)[:3] == ("a1", 7, 5)


def test_a_run_without_clean_labels_has_no_test_metric() -> None:
    blank = {name: "" for name in COLUMNS if "/test/" in name}
    line = line_of(make_row("a1", 7) | blank | {"status": UNEVALUATED})
    assert VALIDATOR.check(line)[:3] == ("a1", 7, 0)


def test_rows_with_few_columns() -> None:
    few = RowValidator(("id", "repeat", "status"), "sbm")
    assert few.check("a,3,failed: because")[:3] == ("a", 3, 0)
    with pytest.raises(ValueError, match="no test metric"):
        few.check("a,3,ok")
    own = RowValidator(("id", "repeat", "status", "paper/test/mine"), "sbm")
    assert own.check("a,3,ok,-7.5")[:3] == ("a", 3, 0)


@pytest.mark.parametrize("written", ["cora", '"cora"', "sbm2", "SBM"])
def test_a_row_is_of_the_dataset_of_its_file(written: str) -> None:
    line = line_of(make_row("a", 0))
    for accepted in ("sbm", '"sbm"', ""):  # blank: the column is younger than the row
        assert VALIDATOR.check(line.replace(",sbm,", f",{accepted},")).identity == "a"
    with pytest.raises(ValueError, match=f"dataset is '{written.strip(chr(34))}', not sbm"):
        VALIDATOR.check(line.replace(",sbm,", f",{written},"))
    other = RowValidator(("id", "dataset", "repeat", "status"), "x.y")  # no order of ours
    assert other.check("a,x.y,3,failed").repeat == 3
    with pytest.raises(ValueError, match=r"dataset is 'xzy', not x\.y"):
        other.check("a,xzy,3,failed")


def test_unbalanced_quotes() -> None:
    with pytest.raises(csv.Error):
        split_line('a,"b')
    with pytest.raises(ValueError, match=r"."):
        VALIDATOR.check(line_of(make_row("a", 0)) + '"')


def test_the_version_is_the_installed_one() -> None:
    assert package_version().count(".") == 2


COMMITTED = sorted((Path(__file__).parents[2] / "results" / "rows").glob("*.csv"))


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: str(path.stem))
def test_lines_that_share_settings_are_the_rows_of_csv(path: Path) -> None:
    file = RowFile(path, Level.PUBLISHED, path.stem)
    file.read(Signature.of(path))
    with path.open(newline="", encoding="utf-8") as content:
        expected = [dict.fromkeys(COLUMNS, "") | row for row in csv.DictReader(content)]
    lines = [line.rpartition(",") for line in path.read_text().splitlines()[1:]]
    assert [row.pop("check") for row in expected] == [check for _, _, check in lines]
    assert [entry.row() for entry in file.entries] == expected
    assert [entry.line for entry in file.entries] == [text for text, _, _ in lines]
    texts = {id(entry.settings) for entry in file.entries}
    assert len(texts) < len(file.entries) / 5


def test_settings_are_found_by_their_place_not_by_their_text(tmp_path: Path) -> None:
    path = tmp_path / "7.csv"
    lines = ["a,7,7,ok,81.5", "a,8,7,ok,82", 'b,7,"7",ok,83']
    columns = ("id", "repeat", "dataset", "status", "paper/test/acc")
    path.write_bytes(table_content(columns, lines))
    file = RowFile(path, Level.PUBLISHED, "7")
    file.read(Signature.of(path))
    assert file.bad == {}
    assert [entry.line for entry in file.entries] == lines
    found = [tuple(entry.row()[n] for n in ("id", "repeat", "dataset")) for entry in file.entries]
    assert found == [("a", "7", "7"), ("a", "8", "7"), ("b", "7", "7")]


def test_known_settings_must_end_where_a_cell_ends() -> None:
    VALIDATOR.check(line_of(make_row("a1", 7, fingerprint="92e4")))
    longer = line_of(make_row("a1", 8, fingerprint="92e4d5"))
    assert VALIDATOR.check(longer).settings.endswith(",92e4d5")
    with pytest.raises(ValueError, match="cells instead of"):
        VALIDATOR.check(longer.replace("92e4d5,ok", "92e4,d5,ok"))
