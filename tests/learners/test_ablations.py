import pytest
import torch

from lpgnn.ablations import TrainingDrop
from lpgnn.learners import Drop
from lpgnn.learners.drop import DenoisedBatch
from propagation.graphs import dense_kprop, random_topology

from .test_losses import C, N, batch_of, random_run


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_training_drop_propagates_the_reports_of_training_nodes_alone(steps: int) -> None:
    own = random_run(1)
    batch = batch_of([own], TrainingDrop(steps=steps))
    assert isinstance(batch, DenoisedBatch)
    sent = torch.zeros(N, C, dtype=torch.float64)
    sent[own.train_mask, own.labels.classes[own.train_mask]] = 1
    received = torch.linalg.matrix_power(dense_kprop(random_topology(N)), steps) @ sent
    informed = own.train_mask & (received.amax(1) > 0)
    expected = torch.zeros(N, C)
    expected[informed, received.argmax(1)[informed]] = 1 / int(informed.sum())
    assert torch.allclose(batch.target[0].t(), expected)
    # Drop's own targets tell more, and what epochs are chosen by is the same.
    whole = batch_of([own], Drop(steps=steps))
    assert isinstance(whole, DenoisedBatch)
    assert not torch.equal(batch.target, whole.target)
    assert torch.equal(batch.val, whole.val)
    assert torch.equal(batch.classes, whole.classes)
