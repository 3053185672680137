"""What a run keeps beside its row: predictions, weights and per-epoch curves."""

import csv
import io
import json
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lpgnn.errors import InputError
from lpgnn.files import write_atomically
from lpgnn.rows.schema import RULES

if TYPE_CHECKING:
    from torch import Tensor

_ORIGIN = "origin.json"  # no weight has a dot and that ending


def output_files(save: Iterable[str]) -> list[str]:
    """The files that ``save`` stands for, in the folder of a run."""
    names = {"predictions": "predictions-{}.csv", "weights": "weights-{}.npz"}
    found = [names[one].format(rule) for one in save if one in names for rule in RULES]
    return [*found, "history.csv"] if "history" in save else found


def save_predictions(
    path: Path,
    predictions: "Tensor",
    probabilities: "Tensor | None",
    node_ids: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
) -> None:
    """Write ``node,predicted,p_<class>,...``, a line for each node.  [N], [N, c]

    Nodes and classes go by their names, or by number where they have none.  Floats are written
    with the digits that give them back exactly.
    """
    predicted = [str(k) if class_names is None else class_names[k] for k in predictions.tolist()]
    nodes = node_ids or [str(node) for node in range(len(predicted))]
    header, columns = ["node", "predicted"], [nodes, predicted]
    if probabilities is not None:
        names = class_names or [str(k) for k in range(probabilities.shape[1])]
        header += [f"p_{name}" for name in names]
        columns += list(probabilities.detach().cpu().numpy().astype(str).T)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(zip(*columns, strict=True))
    write_atomically(path, text.getvalue())


def save_weights(path: Path, weights: "Mapping[str, Tensor]", origin: Mapping[str, Any]) -> None:
    """Write tensors, and what they belong to, as an npz file: it is read without pickle.

    origin: plain values, kept as JSON
    """
    import numpy as np

    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        arrays = {name: weight.detach().cpu().contiguous() for name, weight in weights.items()}
        for name, values in arrays.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, values.numpy(), allow_pickle=False)
        with archive.open(f"{_ORIGIN}.npy", "w") as file:
            np.lib.format.write_array(file, np.array(json.dumps(origin)), allow_pickle=False)
    write_atomically(path, content.getvalue())


def load_weights(path: Path) -> "tuple[dict[str, Tensor], dict[str, Any]]":
    """The tensors and the origin that ``save_weights`` wrote."""
    import torch

    from lpgnn.archive import read_npz

    arrays, objects = read_npz("model", path, path)
    try:
        origin = json.loads(str(arrays.pop(_ORIGIN)))
        weights = {name: torch.from_numpy(array) for name, array in arrays.items()}
    except (KeyError, TypeError, ValueError):
        origin = None
    if objects or not isinstance(origin, dict):
        raise InputError("model", path, "must be a file of save=weights")
    return weights, origin


def save_history(path: Path, history: "Mapping[str, Tensor]") -> None:
    """Write ``epoch,<name>,...``: a line for each epoch, from 1.  history: name -> [epochs]"""
    columns = [values.detach().cpu().numpy().astype(str) for values in history.values()]
    lines = [
        f"{epoch},{','.join(values)}\n"
        for epoch, values in enumerate(zip(*columns, strict=True), start=1)
    ]
    write_atomically(path, ",".join(["epoch", *history]) + "\n" + "".join(lines))
