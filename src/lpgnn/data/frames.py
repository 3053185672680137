"""Graphs from two tables: one of nodes with their features, labels and parts, one of edges.

Ids and labels may be anything; they are compared as text and kept as the graph's names.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from lpgnn.data.graph import Graph, Topology
from lpgnn.data.normalise import make_graph
from lpgnn.data.ranges import RangeChoice
from lpgnn.data.sparse import CsrMatrix
from lpgnn.data.splits import PARTS, Split, SplitChoice, choose_splits
from lpgnn.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    Strings = NDArray[np.object_]

_TRUE, _FALSE = ("true", "1", "1.0", "yes"), ("false", "0", "0.0", "no", "")


def graph_from_frames(
    nodes: "pd.DataFrame",
    edges: "pd.DataFrame",
    *,
    ranges: RangeChoice,
    split: SplitChoice = None,
    label: str = "label",
    name: str = "custom",
) -> Graph:
    """Build a graph from tables.

    ``nodes``: a row per node.  Column ``id``, or else the index, has its id, column ``label`` its
    class (blank: none), column ``split`` its part (train, val, test or blank; or three columns
    train, val and test say yes or no).  Every other column is a feature.

    ``edges``: the first two columns are ids.  Directions and repetitions do not count.
    """
    ids = as_text(nodes.get("id", nodes.index))
    check_ids(ids)
    columns = [str(column) for column in nodes.columns]
    if len(set(columns)) != len(columns):
        repeated = next(column for column in columns if columns.count(column) > 1)
        raise InputError("nodes", f"two columns {quoted(repeated)}", "columns need different names")
    table = nodes.set_axis(columns, axis=1)
    _check_label(table, label)
    rest = [column for column in columns if column not in {"id", label, *_split_columns(table)}]
    if not rest:
        raise InputError("nodes", f"columns {_shown(columns)}", "at least one must be a feature")
    features = dense_to_csr(_numbers(table, rest, ids))
    return assemble(
        ids, features, rest, table, edges, ranges=ranges, split=split, label=label, name=name
    )


def assemble(
    ids: "Strings",
    features: CsrMatrix,
    feature_names: Sequence[str],
    table: "pd.DataFrame",
    edges: "pd.DataFrame",
    *,
    ranges: RangeChoice,
    split: SplitChoice,
    label: str,
    name: str,
) -> Graph:
    """The graph of checked ids, raw features, a table with labels and parts, and edges."""
    _check_label(table, label)
    if not feature_names:
        raise InputError("features", "none", "at least one is needed")
    labels, class_names = encode_labels(as_text(table[label]))
    return make_graph(
        name,
        edges_by_id(edges, ids),
        features,
        labels,
        len(class_names),
        ranges=ranges,
        splits=choose_splits(split, _own_split(table)),
        node_ids=ids.tolist(),
        class_names=class_names,
        feature_names=feature_names,
    )


def _check_label(table: "pd.DataFrame", label: str) -> None:
    if label not in table:
        allowed = f"one column must be {label!r}, with blanks where a node has no label"
        raise InputError("nodes", f"columns {_shown(list(table.columns))}", allowed)


def as_text(values: Any) -> "Strings":
    """Values as text without spaces around; what is missing as '', and 3.0 as 3.  -> [n]"""
    import pandas as pd

    series = pd.Series(np.asarray(values), dtype=object)
    missing = series.isna()
    texts = [_text(value) for value in series]
    found = np.array(texts, dtype=object)
    found[missing.to_numpy()] = ""
    return found


def _text(value: Any) -> str:
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))  # a column of numbers with a gap is a column of floats
    return str(value).strip()


def check_ids(ids: "Strings") -> None:
    if ids.size == 0:
        raise InputError("nodes", "no rows", "at least one node is needed")
    if (blank := np.flatnonzero(ids == "")).size:
        raise InputError("nodes", f"no id in row {blank[0] + 1}", "every node needs an id")
    distinct, counts = np.unique(ids.astype(str), return_counts=True)
    if (repeated := distinct[counts > 1]).size:
        raise InputError("nodes", f"id {quoted(repeated[0])} twice", "every node has one row")


def encode_labels(texts: "Strings") -> tuple[Tensor, tuple[str, ...]]:
    """Numbers of classes, and their names: in the order of numbers if all are, else of text.

    Blanks and 'nan' are nodes without a label.   [N] -> [N], [c]
    """
    known = np.array([text != "" and text.lower() != "nan" for text in texts], dtype=bool)
    names = in_order(set(texts[known].tolist()))
    if len(names) < 2:
        found = f"{len(names)} classes" if len(names) != 1 else f"one class, {quoted(names[0])}"
        raise InputError("labels", found, "at least 2 classes are needed")
    number = {name: place for place, name in enumerate(names)}
    labels = [number[text] if is_known else -1 for text, is_known in zip(texts, known, strict=True)]
    return torch.tensor(labels), tuple(names)


def in_order(names: set[str]) -> list[str]:
    try:
        return sorted(names, key=lambda name: (int(name), name))
    except ValueError:
        return sorted(names)


def edges_by_id(edges: "pd.DataFrame", ids: "Strings") -> Topology:
    """The topology of edges between ids."""
    if edges.shape[1] < 2:
        raise InputError("edges", f"{edges.shape[1]} columns", "two columns of ids are needed")
    ends = []
    for column in range(2):
        texts = as_text(edges.iloc[:, column])
        places = places_of(texts, ids)
        if (unknown := np.flatnonzero(places < 0)).size:
            row = unknown[0]
            found = f"id {quoted(texts[row])} in row {row + 1}"
            raise InputError("edges", found, "every id must be that of a node")
        ends.append(torch.from_numpy(places))
    return Topology.from_edges(len(ids), torch.stack(ends))


def places_of(wanted: "Strings", names: "Strings | list[str]") -> "NDArray[np.int64]":
    """The place of each wanted name, -1 where there is none.  [n] -> [n]"""
    import pandas as pd

    index = pd.Index(np.asarray(names, dtype=object))
    return np.asarray(index.get_indexer(pd.Index(wanted)), dtype=np.int64)


def dense_to_csr(x: "NDArray[np.floating[Any]]") -> CsrMatrix:
    """The values that are not zero, in the precision given: scaling comes first.  [N, d]"""
    rows, columns = np.nonzero(x)
    counts = np.bincount(rows, minlength=x.shape[0])
    indptr = torch.from_numpy(np.concatenate([[0], counts.cumsum()]).astype(np.int64))
    values = torch.from_numpy(np.ascontiguousarray(x[rows, columns]))
    return CsrMatrix(indptr, torch.from_numpy(columns), values, (x.shape[0], x.shape[1]))


def _numbers(
    table: "pd.DataFrame", columns: Sequence[str], ids: "Strings"
) -> "NDArray[np.float64]":
    """Feature columns as numbers.  -> [N, d]"""
    import pandas as pd

    found = np.empty((len(table), len(columns)))
    for place, column in enumerate(columns):
        numbers = pd.to_numeric(table[column], errors="coerce").to_numpy(float, na_value=np.nan)
        if (bad := np.flatnonzero(~np.isfinite(numbers))).size:
            value = f"{quoted(table[column].iloc[bad[0]])} of node {quoted(ids[bad[0]])}"
            where = f"{value} in column {quoted(column)}"
            raise InputError("features", where, "must be a finite number")
        found[:, place] = numbers
    return found


def _split_columns(table: "pd.DataFrame") -> tuple[str, ...]:
    """The columns that say which part a node is in."""
    if "split" in table:
        return ("split",)
    return PARTS if all(part in table for part in PARTS) else ()


def _own_split(table: "pd.DataFrame") -> tuple[Split, ...]:
    columns = _split_columns(table)
    if columns == ("split",):
        parts = np.array([text.lower() for text in as_text(table["split"])])
        if (bad := [part for part in parts if part not in ("", *PARTS)]) != []:
            raise InputError("split", quoted(bad[0]), "must be train, val, test or blank")
        return (Split(*(torch.from_numpy(parts == part) for part in PARTS)),)
    if columns:
        return (Split(*(_mask(part, as_text(table[part])) for part in PARTS)),)
    return ()


def _mask(part: str, texts: "Strings") -> Tensor:
    lower = [text.lower() for text in texts]
    if (bad := [text for text in lower if text not in _TRUE + _FALSE]) != []:
        raise InputError("split", f"{quoted(bad[0])} in column {part}", "must be true or false")
    return torch.tensor([text in _TRUE for text in lower])


def _shown(columns: Sequence[str]) -> str:
    more = f" and {len(columns) - 5} more" if len(columns) > 5 else ""
    return ", ".join(f"{column:.40}" for column in columns[:5]) + more


def quoted(text: object) -> str:
    """Somebody's text in a message: in one line, and not longer than that."""
    whole = repr(str(text))
    return whole if len(whole) <= 60 else f"{whole[:57]}..."
