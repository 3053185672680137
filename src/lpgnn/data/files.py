"""A user's own graph: a folder of CSV files, or one npz, PyTorch Geometric or GraphML file."""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lpgnn.data.dataset import Dataset
from lpgnn.data.frames import (
    as_text,
    assemble,
    check_ids,
    graph_from_frames,
    in_order,
    places_of,
    quoted,
)
from lpgnn.data.graph import Graph
from lpgnn.data.networks import graph_from_networkx, read_graphml
from lpgnn.data.npz import graph_from_npz
from lpgnn.data.pyg import graph_from_pyg, read_pyg_file
from lpgnn.data.ranges import RangeChoice
from lpgnn.data.sparse import CsrMatrix
from lpgnn.data.splits import PARTS, SplitChoice
from lpgnn.errors import InputError, one_line

if TYPE_CHECKING:
    import pandas as pd

EDGES_FILE, NODES_FILE, RANGES_FILE = "edges.csv", "nodes.csv", "ranges.csv"
FEATURES_FILE, LABELS_FILE = "features.csv", "labels.csv"
LABEL, SPLIT = "label", "split"
_FORMS = (
    f"a folder with {EDGES_FILE} and {NODES_FILE} (or {FEATURES_FILE} and {LABELS_FILE}), "
    "or a file .npz, .pt or .graphml"
)
_DECLARE = (
    "must be declared: unit, [low, high], file (ranges.csv), or data for the data's own minima and "
    "maxima (not private)"
)


@dataclass(frozen=True)
class Files(Dataset):
    """A graph in files of the user's own, at ``path`` or else at ``<data_dir>/path``.

    A folder holds ``edges.csv`` (two columns of ids) and ``nodes.csv`` (an id, ``label``, perhaps
    ``split``, and features), or ``features.csv`` and ``labels.csv`` in its place.  ``ranges``
    declares what values features may have; None looks for ``ranges.csv``.
    """

    path: str = "???"
    ranges: Any = None  # unit | file | [low, high] | data
    split: Any = None  # own | random | [train, val, test]; None: own where there are any

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or self.path in ("", "???"):
            raise InputError("path", self.path, f"must name {_FORMS}")
        for name in ("ranges", "split"):
            if isinstance(value := getattr(self, name), list):
                object.__setattr__(self, name, tuple(value))
        if isinstance(self.ranges, str) and self.ranges not in ("unit", "file", "data"):
            raise InputError("ranges", self.ranges, "must be unit, file, data or [low, high]")
        last = Path(self.path).expanduser().resolve().name
        last = re.sub(r"\.(npz|pth?|graphml)$", "", last, flags=re.IGNORECASE)
        name = re.sub(r"[^A-Za-z0-9._-]", "_", last).lstrip(".")[:100]
        object.__setattr__(self, "name", name or type(self).name)

    def load(self, data_dir: Path) -> Graph:
        path = self._found(Path(data_dir))
        try:
            return self._read(path, self._ranges(path))
        except InputError as error:
            if error.setting.startswith("dataset."):
                raise
            if error.setting in ("ranges", "split", "split.ratios"):
                setting = f"dataset.{error.setting.partition('.')[0]}"
                raise InputError(setting, error.value, error.allowed) from None
            found = f"{path} ({error.setting}={error.value})"
            raise InputError("dataset.path", found, error.allowed) from None

    def _found(self, data_dir: Path) -> Path:
        given = Path(self.path).expanduser()
        for path in (given, data_dir / given):
            if path.exists():
                return path
        raise InputError("dataset.path", self.path, f"not found; must be {_FORMS}")

    def _ranges(self, path: Path) -> RangeChoice:
        beside = path / RANGES_FILE if path.is_dir() else path.with_suffix(f".{RANGES_FILE}")
        if self.ranges == "file" or (self.ranges is None and beside.is_file()):
            return _read_ranges(beside)
        if self.ranges is None:
            raise InputError("dataset.ranges", None, _DECLARE)
        chosen: RangeChoice = self.ranges
        return chosen

    def _read(self, path: Path, ranges: RangeChoice) -> Graph:
        split: SplitChoice = self.split
        kind = "folder" if path.is_dir() else path.suffix.lower()
        if kind == "folder":
            return _read_folder(path, ranges=ranges, split=split, name=self.name)
        if kind == ".npz":
            return graph_from_npz(path, ranges=ranges, split=split, name=self.name)
        if kind in (".pt", ".pth"):
            data = read_pyg_file(path)
            return graph_from_pyg(data, ranges=ranges, split=split, name=self.name)
        if kind == ".graphml":
            network = read_graphml(path)
            return graph_from_networkx(network, ranges=ranges, split=split, name=self.name)
        raise InputError("dataset.path", path, f"must be {_FORMS}")


def _read_folder(folder: Path, *, ranges: RangeChoice, split: SplitChoice, name: str) -> Graph:
    edges = _read_csv(folder / EDGES_FILE, text=None)
    if (folder / NODES_FILE).is_file():
        for name_of_other in (FEATURES_FILE, LABELS_FILE):
            if (folder / name_of_other).exists():
                allowed = f"stands beside {NODES_FILE}, which has features and labels: remove one"
                raise InputError("dataset.path", folder / name_of_other, allowed)
        nodes = _indexed(_read_csv(folder / NODES_FILE))
    else:
        features = _read_csv(folder / FEATURES_FILE)
        labels = _indexed(_read_csv(folder / LABELS_FILE))
        if list(features.columns[1:]) in (["feature"], ["feature", "value"]):
            graph = _from_pairs(features, labels, edges, ranges, split, name)
            _check_edge_header(edges, graph, folder)
            return graph
        nodes = _joined(_indexed(features), labels)
    graph = graph_from_frames(nodes, edges, ranges=ranges, split=split, label=LABEL, name=name)
    _check_edge_header(edges, graph, folder)
    return graph


def _read_csv(path: Path, text: Sequence[str] | None = (LABEL, SPLIT, *PARTS)) -> "pd.DataFrame":
    """Read a table with a header; the first column and ``text`` (None: all) as they stand."""
    import pandas as pd

    header = _header(path)
    as_is = header if text is None else [header[0], *(name for name in header if name in text)]
    try:
        table = pd.read_csv(
            path,
            header=0,
            names=header,
            dtype=dict.fromkeys(as_is, str),
            keep_default_na=False,
            encoding="utf-8-sig",
            skipinitialspace=True,
        )
    except (ValueError, UnicodeError, pd.errors.ParserError) as error:
        reason = one_line(error).removeprefix("Error tokenizing data. C error: ")
        raise InputError(path.name, "not a table", reason) from None
    if not isinstance(table.index, pd.RangeIndex):  # pandas takes what is too much for an index
        raise InputError(
            path.name, f"{len(header)} columns", "rows have more cells than the header"
        )
    return table


def _header(path: Path) -> list[str]:
    """The names of the columns, checked."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            header = [name.strip() for name in next(csv.reader(lines), [])]
    except FileNotFoundError:
        raise InputError(
            "dataset.path", path.parent, f"has no {path.name}; must be {_FORMS}"
        ) from None
    except UnicodeError as error:
        raise InputError(path.name, "not readable", f"must be UTF-8 text: {error}") from None
    except (OSError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(path.name, "not readable", f"must be a CSV file: {reason}") from None
    if not any(header):
        raise InputError(path.name, "empty", "the first line must name the columns")
    if len(header) < 2:
        raise InputError(
            path.name, f"header {quoted(header[0])}", "needs columns, separated by commas"
        )
    if len(set(header)) != len(header):
        repeated = next(name for name in header if header.count(name) > 1)
        raise InputError(
            path.name, f"two columns {quoted(repeated)}", "columns need different names"
        )
    if len(header) > 2 and all(_is_number(name) for name in header[1:]):
        raise InputError(path.name, f"first line {','.join(header[:4])}", "must name the columns")
    return header


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _indexed(table: "pd.DataFrame") -> "pd.DataFrame":
    """The first column as ids, whatever its name."""
    if "id" in table.columns[1:]:
        raise InputError("nodes", "column 'id'", "must be the first")
    return table.set_index(table.columns[0])


def _joined(features: "pd.DataFrame", labels: "pd.DataFrame") -> "pd.DataFrame":
    """Features with the labels (and parts) of the same nodes; no row means no label."""
    known, named = as_text(features.index), as_text(labels.index)
    check_ids(known)
    check_ids(named)
    if (unknown := np.setdiff1d(named.astype(str), known.astype(str))).size:
        found = f"id {quoted(unknown[0])} in {LABELS_FILE}"
        raise InputError("nodes", found, f"every id must be in {FEATURES_FILE}")
    if both := [str(name) for name in labels.columns if name in features]:
        raise InputError(
            "nodes", f"column {quoted(both[0])} in two files", "must be in one of them"
        )
    own = labels.set_axis(named, axis=0).reindex(known)
    return features.set_axis(known, axis=0).join(own)


def _from_pairs(
    pairs: "pd.DataFrame",
    labels: "pd.DataFrame",
    edges: "pd.DataFrame",
    ranges: RangeChoice,
    split: SplitChoice,
    name: str,
) -> Graph:
    """A sparse matrix as rows of (id, feature[, value]); the nodes are those of labels.csv."""
    import pandas as pd

    ids = as_text(labels.index)
    check_ids(ids)
    rows = places_of(as_text(pairs.iloc[:, 0]), ids)
    if (unknown := np.flatnonzero(rows < 0)).size:
        found = f"id {quoted(pairs.iloc[unknown[0], 0])} in row {unknown[0] + 1} of {FEATURES_FILE}"
        raise InputError("nodes", found, f"every id must be in {LABELS_FILE}")
    features = as_text(pairs.iloc[:, 1])
    if (blank := np.flatnonzero(features == "")).size:
        found = f"no feature in row {blank[0] + 1} of {FEATURES_FILE}"
        raise InputError("features", found, "every row must name one")
    # Declared names are the list of features; without them, what occurs is.
    declared = list(ranges) if isinstance(ranges, dict) else None
    names = declared or in_order(set(features.tolist()))
    columns = places_of(features, names)
    if (unknown := np.flatnonzero(columns < 0)).size:
        found = f"feature {quoted(features[unknown[0]])}"
        raise InputError("ranges", found, f"has no range in {RANGES_FILE}")
    values = np.ones(len(pairs))
    if pairs.shape[1] > 2:
        numbers = pd.to_numeric(pairs.iloc[:, 2], errors="coerce").to_numpy(float)
        if (bad := np.flatnonzero(~np.isfinite(numbers))).size:
            found = f"{quoted(pairs.iloc[bad[0], 2])} in row {bad[0] + 1} of {FEATURES_FILE}"
            raise InputError("features", found, "must be a finite number")
        values = numbers
    order = np.lexsort((columns, rows))
    rows, columns, values = rows[order], columns[order], values[order]
    if np.any((np.diff(rows) == 0) & (np.diff(columns) == 0)):
        raise InputError("features", FEATURES_FILE, "a pair of id and feature repeats")
    counts = np.bincount(rows, minlength=len(ids))
    matrix = CsrMatrix(
        torch.from_numpy(np.concatenate([[0], counts.cumsum()]).astype(np.int64)),
        torch.from_numpy(columns.astype(np.int64)),
        torch.from_numpy(values),
        (len(ids), len(names)),
    )
    return assemble(
        ids, matrix, names, labels, edges, ranges=ranges, split=split, label=LABEL, name=name
    )


def _check_edge_header(edges: "pd.DataFrame", graph: Graph, folder: Path) -> None:
    """A file without a header would lose its first edge in silence."""
    ids = set(graph.node_ids or ())
    if all(str(name) in ids for name in edges.columns[:2]):
        first = ",".join(f"{name!s:.40}" for name in edges.columns[:2])
        raise InputError(EDGES_FILE, f"first line {first}", "must name the columns, not be an edge")


def _read_ranges(path: Path) -> dict[str, list[float]]:
    """Rows of (feature, low, high)."""
    if not path.is_file():
        raise InputError("dataset.ranges", "file", f"there is no {path}")
    table = _read_csv(path, text=())
    if list(table.columns[1:]) != ["low", "high"]:
        raise InputError("dataset.ranges", path, "must have the columns feature, low and high")
    found: dict[str, list[float]] = {}
    for name, low, high in zip(as_text(table.iloc[:, 0]), table["low"], table["high"], strict=True):
        if name in found:
            raise InputError("dataset.ranges", path, f"feature {quoted(name)} has two ranges")
        try:
            found[name] = [float(low), float(high)]
        except ValueError:
            allowed = f"low and high of {quoted(name)} must be numbers"
            raise InputError("dataset.ranges", path, allowed) from None
    return found
