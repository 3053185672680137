"""Parsed graphs kept as npz, rebuilt whenever they cannot be trusted.

Of published graphs: scaled by the ranges of their data, split at random, without names.
"""

import hashlib
import io
import json
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lpgnn.data.graph import Graph, Topology
from lpgnn.data.ranges import Ranges
from lpgnn.data.sparse import CsrMatrix
from lpgnn.files import write_atomically

# Raise it when parsing, normalising or the layout below changes: older files are then rebuilt.
FORMAT_VERSION = 3

_logger = logging.getLogger("lpgnn")


def raw_key(raw_files: Sequence[Path]) -> str:
    """Hash the names and the contents of the raw files, so that changed files rebuild the cache."""
    digest = hashlib.sha256()
    for path in sorted(raw_files):
        with path.open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").hexdigest()
        digest.update(f"{path.name} {content}\n".encode())
    return digest.hexdigest()


def load_cached(path: Path, key: str) -> Graph | None:
    """Read a cached graph; None if it is missing, damaged, old, or made from other raw files."""
    if not path.exists():
        return None
    try:
        # Opened here, because np.load leaves a file open that turns out to be no archive.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            graph = _from_arrays(arrays, key)
    # A damaged archive can fail in zipfile, zlib, numpy or json; each time the answer is the same.
    except Exception as error:
        _logger.info("rebuilding the cached graph %s: %s", path, error)
        return None
    return graph


def is_writable(folder: Path) -> bool:
    """Whether files may be put in a folder, or in the nearest parent that exists.

    A folder without any write permission is left alone even by root, who could write to it:
    shared data folders are made read-only on purpose.
    """
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return bool(folder.stat().st_mode & 0o222) and os.access(folder, os.W_OK)


def save_cached(graph: Graph, path: Path, key: str) -> None:
    """Write a graph in one step, or go on without a cache where the folder takes no files."""
    try:
        if not is_writable(path.parent):
            raise PermissionError(f"{path.parent} is read-only")
        content = io.BytesIO()
        np.savez(content, **_to_arrays(graph, key))
        write_atomically(path, content.getvalue())
    except OSError as error:
        _logger.info("no cached graph at %s: %s", path, error)


def load_or_build(path: Path, raw_files: Sequence[Path], build: Callable[[], Graph]) -> Graph:
    """Return the cached graph of the raw files, or build it and cache it."""
    key = raw_key(raw_files)
    graph = load_cached(path, key)
    if graph is None:
        graph = build()
        save_cached(graph, path, key)
    return graph


def _to_arrays(graph: Graph, key: str) -> dict[str, Any]:
    header = {
        "format_version": FORMAT_VERSION,
        "raw_key": key,
        "name": graph.name,
        "num_classes": graph.num_classes,
        "feature_dim": graph.feature_dim,
        "raw_feature_dim": graph.raw_feature_dim,
        "fingerprint": graph.fingerprint,
    }
    arrays = {
        "header": np.array(json.dumps(header)),
        "indptr": graph.topology.indptr.numpy(),
        "indices": graph.topology.indices.numpy(),
        "labels": graph.labels.numpy(),
    }
    if graph.features is not None:
        arrays["feature_indptr"] = graph.features.indptr.numpy()
        arrays["feature_indices"] = graph.features.indices.numpy()
        arrays["feature_values"] = graph.features.values.numpy()
    for end in ("low", "high"):
        if (bounds := getattr(graph.ranges, end)) is not None:
            arrays[end] = bounds.numpy()
    return arrays


def _from_arrays(arrays: Any, key: str) -> Graph:
    header = json.loads(str(arrays["header"]))
    if header["format_version"] != FORMAT_VERSION:
        raise ValueError(f"format version {header['format_version']}, now {FORMAT_VERSION}")
    if header["raw_key"] != key:
        raise ValueError("the raw files have changed")

    def tensor(name: str) -> torch.Tensor:
        return torch.from_numpy(arrays[name])

    topology = Topology(tensor("indptr"), tensor("indices"))
    labels = tensor("labels")
    num_classes, feature_dim = header["num_classes"], header["feature_dim"]
    features = None
    if "feature_indptr" in arrays:
        features = CsrMatrix(
            tensor("feature_indptr"),
            tensor("feature_indices"),
            tensor("feature_values"),
            (topology.num_nodes, feature_dim),
        )
    graph = Graph(
        header["name"],
        topology,
        features,
        labels,
        num_classes,
        feature_dim,
        header["raw_feature_dim"],
        Ranges("data", *((tensor("low"), tensor("high")) if "low" in arrays else ())),
    )
    if graph.fingerprint != header["fingerprint"]:
        raise ValueError(f"fingerprint {graph.fingerprint}, written as {header['fingerprint']}")
    return graph
