"""Rows as a pandas DataFrame."""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lpgnn.errors import InputError
from lpgnn.rows.reading import Entry, csv_line
from lpgnn.rows.schema import COLUMNS, ColumnType, column_type, order_columns
from lpgnn.rows.store import RowStore

if TYPE_CHECKING:
    import pandas as pd

# Types that have a missing value: a cell may be blank.
_DTYPES: dict[ColumnType, str] = {
    "integer": "Int64",
    "number": "float64",
    "share": "float64",
    "boolean": "boolean",
    "text": "str",
}


def results(results_dir: Path | str = "results") -> "pd.DataFrame":
    """All rows of a results folder, sorted by dataset, id and repeat.

    Columns have types, and the components' options are columns (``filter.steps``).
    """
    import pandas as pd

    store = RowStore(results_dir)
    if not store.results_dir.is_dir():
        raise InputError("results_dir", results_dir, "no such folder")
    tables = (_typed_table(store.entries(name)) for name in store.datasets())
    filled = [table for table in tables if len(table)] or [_typed_table([])]
    table = pd.concat(filled, ignore_index=True)
    table = table[list(order_columns(table.columns))]
    return _with_options(table) if "options" in table else table


def _typed_table(entries: Sequence[Entry]) -> "pd.DataFrame":
    """The table of entries in their order, parsed by pandas in one go for each kind of header."""
    import pandas as pd

    kinds: dict[tuple[str, ...], list[int]] = {}
    for number, entry in enumerate(entries):
        kinds.setdefault(entry.columns, []).append(number)
    parts = [
        _parse([entries[number].line for number in numbers], columns).set_axis(pd.Index(numbers))
        for columns, numbers in kinds.items()
    ]
    if not parts:
        return _parse([], COLUMNS)
    table = pd.concat(parts).sort_index()
    # A shard has the time in its stamps, rows of before in no place at all.
    table["written"] = pd.array([entry.rank[0] or None for entry in entries], dtype="Int64")
    return table


def _parse(lines: Sequence[str], columns: tuple[str, ...]) -> "pd.DataFrame":
    import pandas as pd

    kinds = {name: column_type(name) for name in columns}
    return pd.read_csv(
        io.StringIO("\n".join([csv_line(columns), *lines])),
        dtype={name: _DTYPES[kind] for name, kind in kinds.items()},
        keep_default_na=False,  # "none" and "NA" are words
        na_values={name: ["", "nan"] for name, kind in kinds.items() if kind != "text"},
    )


def _with_options(table: "pd.DataFrame") -> "pd.DataFrame":
    """Replace the JSON text of the options by one column for each option."""
    import pandas as pd

    texts = table["options"].unique()
    parsed = [json.loads(text) if text else {} for text in texts]
    options = pd.DataFrame(index=texts)
    for name in dict.fromkeys(name for one in parsed for name in one):
        values = [one.get(name) for one in parsed]
        options[name] = pd.array(values, dtype=_option_dtype(values))
    at = list(table.columns).index("options")
    expanded = options.loc[table["options"]].set_axis(table.index)
    before, after = table.columns[:at], table.columns[at + 1 :]
    return pd.concat([table[before], expanded, table[after]], axis=1)


def _option_dtype(values: Sequence[object]) -> Any:
    """The type of an option, which may be missing."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        return "float64"
    names = {int: "Int64", float: "float64", bool: "boolean", str: "str"}
    return names.get(kinds.pop(), "object") if len(kinds) == 1 else "object"
