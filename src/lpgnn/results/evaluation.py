"""The one place where predictions meet clean labels."""

from torch import Tensor


def test_accuracy(predictions: Tensor, labels: Tensor, test_mask: Tensor) -> float:
    """Accuracy on the test nodes in per cent.  predictions, labels, test_mask: [N]"""
    correct = predictions[test_mask] == labels[test_mask]
    return 100.0 * float(correct.double().mean())


test_accuracy.__test__ = False  # type: ignore[attr-defined]  # not a test, whatever pytest thinks
