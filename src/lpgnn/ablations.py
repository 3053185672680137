"""Learners with a part taken away, for comparisons.

They stand apart from ``learners``, whose source names the engine of a row: a variant that no other
row is computed by does not make the rows that it is compared with those of another engine.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from lpgnn.learners import Drop
from lpgnn.learners.batch import mean_weight, one_hot
from lpgnn.learners.drop import DenoisedBatch, votes
from lpgnn.learners.learner import Run, Server


@dataclass(frozen=True)
class TrainingDrop(Drop):
    """Drop that denoises by the reports of training nodes alone.

    Those of validation nodes choose the epoch, as ever, and are not propagated into the targets.
    """

    name: ClassVar[str] = "training_drop"

    def prepare(self, runs: Sequence[Run], server: Server) -> DenoisedBatch:
        batch = super().prepare(runs, server)
        is_training, c = batch.train > 0, batch.excess.shape[1]
        noisy = torch.stack([votes(run.collected.labels) for run in runs]).to(server.device)
        sent = noisy * is_training[:, None]
        received = batch.operator.propagate_classes(sent, self.label_steps)
        informed = is_training & (received != 0).any(1)
        return replace(batch, target=mean_weight(one_hot(received.max(dim=1).indices, informed, c)))
