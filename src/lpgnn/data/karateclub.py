"""Facebook and LastFM: the tables of the karateclub repository's ``dataset/node_level``."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lpgnn.data.dataset import GraphFacts
from lpgnn.data.download import RawFile, RawSource
from lpgnn.data.graph import Graph, Topology
from lpgnn.data.normalise import fingerprint, make_graph, matrix_fingerprint
from lpgnn.data.published import PublishedDataset, RawForm
from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError

_logger = logging.getLogger("lpgnn")

KARATECLUB_URL = (
    "https://raw.githubusercontent.com/benedekrozemberczki/karateclub/master/dataset/node_level/"
)
EDGES_FILE, FEATURES_FILE, TARGET_FILE = "edges.csv", "features.csv", "target.csv"


@dataclass(frozen=True)
class TableLayout:
    """What the three tables of a dataset hold; files with fewer rows are truncated."""

    name: str
    num_nodes: int
    num_features: int
    num_edge_rows: int
    num_feature_rows: int
    largest_classes: int | None = None  # keep only the nodes of that many largest classes

    def read(self, raw_dir: Path) -> Graph:
        """Read ``edges.csv``, ``target.csv`` and, where it is there, ``features.csv``."""
        labels = self._read_labels(raw_dir / TARGET_FILE)
        edges_path = raw_dir / EDGES_FILE
        edges = _read_table(edges_path, ("id_1,id_2",), self.num_edge_rows)
        _check_ids(edges, self.num_nodes, "node", edges_path)
        topology = Topology.from_edges(self.num_nodes, torch.from_numpy(edges.T.astype(np.int64)))
        features_path = raw_dir / FEATURES_FILE
        features = self.read_features(features_path) if features_path.exists() else None
        if self.largest_classes is not None:
            nodes, labels = keep_largest_classes(labels, self.largest_classes)
            topology = induced_topology(topology, nodes)
            features = None if features is None else features.select_rows(nodes)
        num_classes = int(labels.max()) + 1
        return make_graph(self.name, topology, features, labels, num_classes, self.num_features)

    def read_features(self, path: Path) -> CsrMatrix:
        """Read rows of (node_id, feature_id[, value]); without a value, 1.

        The order of the rows is free.   -> [num_nodes, num_features]
        """
        headers = ("node_id,feature_id,value", "node_id,feature_id")
        table = _read_table(path, headers, self.num_feature_rows)
        _check_ids(table[:, :1], self.num_nodes, "node", path)
        _check_ids(table[:, 1:2], self.num_features, "feature", path)
        rows, columns = torch.from_numpy(table[:, :2].T.astype(np.int64))
        values = torch.from_numpy(table[:, 2]) if table.shape[1] == 3 else torch.ones(rows.numel())
        shape = (self.num_nodes, self.num_features)
        try:
            return CsrMatrix.from_coo(rows, columns, values, shape)
        except ValueError as error:
            raise InputError("data_dir", path, "a (node_id, feature_id) pair repeats") from error

    def _read_labels(self, path: Path) -> Tensor:  # -> [num_nodes]
        table = _read_table(path, ("id,target",), self.num_nodes)
        _check_ids(table[:, :1], self.num_nodes, "node", path)
        ids, targets = torch.from_numpy(table.T.astype(np.int64))
        if ids.numel() != self.num_nodes or ids.unique().numel() != self.num_nodes:
            raise InputError("data_dir", path, f"each of {self.num_nodes} ids must occur once")
        if int(targets.min()) < 0:  # elsewhere -1 is a node without a label
            found = f"{int(targets.min())}..{int(targets.max())} in {path}"
            raise InputError("labels", found, "must be whole numbers >= 0")
        labels = torch.empty_like(targets)
        labels[ids] = targets
        return labels


FACEBOOK = TableLayout(
    "facebook",
    num_nodes=22470,
    num_features=4714,
    num_edge_rows=171002,
    num_feature_rows=314583,
)
# The paper keeps LastFM's ten largest classes of 18.  Its features.csv holds about 3 million
# rows; the exact number is not known here, so only a file cut to a fraction shows by its length.
LASTFM = TableLayout(
    "lastfm",
    num_nodes=7624,
    num_features=7842,
    num_edge_rows=27806,
    num_feature_rows=2_000_000,
    largest_classes=10,
)


def keep_largest_classes(labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Return the nodes of the largest classes, and their labels.

    The kept classes are relabelled 0..num_classes - 1 in the order of their original labels; of
    classes of one size the one with the lower label goes first.   [N] -> ([n], [n])
    """
    sizes = torch.bincount(labels)
    kept = sizes.sort(descending=True, stable=True).indices[:num_classes].sort().values
    is_kept = torch.zeros_like(sizes, dtype=torch.bool)
    is_kept[kept] = True
    nodes = is_kept[labels].nonzero().flatten()
    return nodes, torch.searchsorted(kept, labels[nodes])


def induced_topology(topology: Topology, nodes: Tensor) -> Topology:
    """Return the subgraph of some nodes, renumbered in the order given."""
    new_id = torch.full((topology.num_nodes,), -1)
    new_id[nodes] = torch.arange(nodes.numel())
    edges = new_id[topology.edge_index()]
    return Topology.from_edges(nodes.numel(), edges[:, (edges >= 0).all(dim=0)])


def _read_table(path: Path, headers: tuple[str, ...], min_rows: int) -> npt.NDArray[np.float64]:
    """Read a table of numbers under one of the headers.  -> [rows, columns]"""
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            header = lines.readline().strip()
            if header not in headers:
                allowed = f"the first line must be '{headers[0]}'"
                raise InputError("data_dir", f"{header[:40]!r} in {path}", allowed)
            if not lines.readline().strip():
                raise ValueError("no rows")
        # Reading the path itself, not the open file, keeps numpy in its C reader.
        table = np.loadtxt(
            path, delimiter=",", skiprows=1, ndmin=2, encoding="utf-8", comments=None
        )
    except OSError as error:
        raise InputError("data_dir", path, "the file is missing or cannot be read") from error
    except InputError:
        raise
    except ValueError as error:  # of numpy, or of text that is not UTF-8
        allowed = "truncated or damaged; delete the file to download it again"
        raise InputError("data_dir", path, allowed) from error
    if table.shape[0] < min_rows or table.shape[1] != header.count(",") + 1:
        found = f"{path} with {table.shape[0]} rows"
        allowed = f"at least {min_rows} rows are needed: truncated; delete it to download it again"
        raise InputError("data_dir", found, allowed)
    return table


def _check_ids(ids: npt.NDArray[np.float64], size: int, what: str, path: Path) -> None:
    whole = np.mod(ids, 1) == 0  # False for nan and inf as well
    bad = ids[~(whole & (ids >= 0) & (ids < size))]
    if bad.size:
        found = f"{what} id {bad[0]:g} in {path}"
        raise InputError("data_dir", found, f"{what} ids must be whole numbers in 0..{size - 1}")


def _check_facebook_features(path: Path) -> None:
    """Compare the parsed table: the digest of upstream's bytes is not known, that of its rows is.

    Our reference holds upstream's rows in another order, which parsing sorts out.
    """
    found = matrix_fingerprint(FACEBOOK.read_features(path))
    if found != "ae662db72c2fb58c":
        raise InputError("data_dir", path, f"content {found} is not that of upstream's file")


_FACEBOOK_TABLES = (
    RawFile(EDGES_FILE, "7c50d8f02a75cc0829577814a1fc14535164daa38d79c3612340c9e9cdbd4022"),
    RawFile(TARGET_FILE, "95987f6c9246f461511673041c88aa20cbd8596bc52b9688fdaab7bd5a720000"),
    RawFile(FEATURES_FILE, check_content=_check_facebook_features),
)
_LASTFM_TABLES = (
    RawFile(EDGES_FILE, "4a6f555d2ccbbbaf1aa4f46b10b0e612aa515730a513d3e1ac951e1e4dcd733c"),
    RawFile(TARGET_FILE, "91f19215f6eca8321feec038bd32900cf13fd4f7e041a9976cf202807c72ac16"),
    # No copy is available to take a digest or a fingerprint of: length and ids are checked.
    RawFile(FEATURES_FILE, check_content=LASTFM.read_features, required=False),
)


@dataclass(frozen=True)
class Facebook(PublishedDataset):
    """Likes between verified pages of four kinds (Rozemberczki et al. 2021)."""

    name: ClassVar[str] = "facebook"
    shown_as: ClassVar[str] = "Facebook"
    raw_source: ClassVar[RawSource] = RawSource(_FACEBOOK_TABLES, (f"{KARATECLUB_URL}facebook/",))
    forms: ClassVar[tuple[RawForm, ...]] = (
        RawForm((EDGES_FILE, TARGET_FILE, FEATURES_FILE), FACEBOOK.read),
    )
    published: ClassVar[GraphFacts] = GraphFacts(
        "9ed08562ecbde70a",
        num_nodes=FACEBOOK.num_nodes,
        num_entries=341825,
        num_features=FACEBOOK.num_features,
        raw_num_features=FACEBOOK.num_features,
        num_classes=4,
    )


@dataclass(frozen=True)
class LastFM(PublishedDataset):
    """Friends of the ten largest countries in Asia (Rozemberczki and Sarkar 2020).

    The published facts are those of edges and labels alone, because ``features.csv`` is optional.
    """

    name: ClassVar[str] = "lastfm"
    is_fixed: ClassVar[bool] = False  # features.csv may be there or not
    shown_as: ClassVar[str] = "LastFM"
    raw_source: ClassVar[RawSource] = RawSource(_LASTFM_TABLES, (f"{KARATECLUB_URL}lastfm/",))
    forms: ClassVar[tuple[RawForm, ...]] = (
        RawForm((EDGES_FILE, TARGET_FILE), LASTFM.read, optional=(FEATURES_FILE,)),
    )
    published: ClassVar[GraphFacts] = GraphFacts(
        "0a7dec11c6917e7d",
        num_nodes=7083,
        num_entries=51628,
        num_features=LASTFM.num_features,
        raw_num_features=LASTFM.num_features,
        num_classes=10,
    )

    def facts_at(self, data_dir: Path) -> GraphFacts | None:
        has_features = (self.raw_dir(data_dir) / FEATURES_FILE).is_file()
        return None if has_features or self.will_fetch(data_dir) else self.facts

    def is_published(self, graph: Graph) -> bool:
        """Whether edges and labels are the published ones: with features, these have no say."""
        labels, d = graph.labels, self.facts.num_features
        return fingerprint(graph.topology, None, labels, graph.num_classes, d) == (
            self.facts.fingerprint
        )

    def load(self, data_dir: Path) -> Graph:
        graph = super().load(data_dir)
        if graph.features is None:
            _logger.warning(
                "%s: %s is missing in %s: only runs that need no private features are possible",
                self.name,
                FEATURES_FILE,
                self.raw_dir(data_dir),
            )
        else:
            _logger.info(
                "%s: with features the fingerprint is %s, without them %s",
                self.name,
                graph.fingerprint,
                self.facts.fingerprint,
            )
        return graph
