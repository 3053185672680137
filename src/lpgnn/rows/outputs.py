"""What a run keeps beside its row: predictions, weights and per-epoch curves."""

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lpgnn.files import write_atomically

if TYPE_CHECKING:
    from torch import Tensor


def save_predictions(path: Path, predictions: "Tensor", probabilities: "Tensor | None") -> None:
    """Write ``node,predicted,p_0,...``, a line for each node.  [N], [N, c]

    Floats are written with the digits that give them back exactly.
    """
    lines = [str(label) for label in predictions.tolist()]
    header = "node,predicted"
    if probabilities is not None:
        header += "".join(f",p_{number}" for number in range(probabilities.shape[1]))
        texts = probabilities.detach().cpu().numpy().astype(str)
        lines = [",".join([label, *text]) for label, text in zip(lines, texts, strict=True)]
    body = "".join(f"{node},{line}\n" for node, line in enumerate(lines))
    write_atomically(path, f"{header}\n{body}")


def save_weights(path: Path, weights: "Mapping[str, Tensor]") -> None:
    """Write tensors as an npz file, which ``numpy.load`` reads without pickle."""
    import numpy as np

    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, weight in weights.items():
            with archive.open(f"{name}.npy", "w") as file:
                values = weight.detach().cpu().contiguous().numpy()
                np.lib.format.write_array(file, values, allow_pickle=False)
    write_atomically(path, content.getvalue())


def save_history(path: Path, history: "Mapping[str, Tensor]") -> None:
    """Write ``epoch,<name>,...``: a line for each epoch, from 1.  history: name -> [epochs]"""
    columns = [values.detach().cpu().numpy().astype(str) for values in history.values()]
    lines = [
        f"{epoch},{','.join(values)}\n"
        for epoch, values in enumerate(zip(*columns, strict=True), start=1)
    ]
    write_atomically(path, ",".join(["epoch", *history]) + "\n" + "".join(lines))
