import pytest
import torch
from torch import Tensor

from lpgnn.learners.batch import predict
from propagation.graphs import seeded


def first_largest(logits: Tensor) -> Tensor:
    """One node at a time in plain Python.  [R, c, N] -> [R, N]"""
    runs, _, nodes = logits.shape
    out = torch.zeros(runs, nodes, dtype=torch.int64)
    for run in range(runs):
        for node in range(nodes):
            column = logits[run, :, node].tolist()
            out[run, node] = column.index(max(column))
    return out


@pytest.mark.parametrize("classes", [2, 3, 4, 7, 10, 40])
def test_predictions_are_the_first_largest_class(classes: int) -> None:
    smooth = torch.randn(3, classes, 50, generator=seeded(0))
    # Whole numbers of a small range: nearly every node has a tie.
    ties = torch.randint(-1, 2, (3, classes, 50), generator=seeded(1)).float()
    for logits in (smooth, ties):
        expected = first_largest(logits)
        assert torch.equal(predict(logits).long(), expected)
        assert int(expected.max()) > 0


def test_ties_by_hand() -> None:
    logits = torch.tensor([[1.0, 1.0, 1.0], [0.0, 2.0, 2.0], [3.0, 3.0, 0.0], [3.0, 0.0, 3.0]])
    nodes = logits.t()[None]  # [1, 3, 4]
    assert predict(nodes).tolist() == [[0, 1, 0, 0]]
    assert predict(torch.full((1, 3, 2), -torch.inf)).tolist() == [[0, 0]]


def test_more_classes_than_a_byte_holds() -> None:
    logits = torch.randn(2, 300, 20, generator=seeded(0))
    logits[:, 299, 0] = 100.0
    predictions = predict(logits)
    assert torch.equal(predictions.long(), first_largest(logits))
    assert predictions[:, 0].tolist() == [299, 299]
