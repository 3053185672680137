"""Locally private GNN training (paper Algorithm 3), server side, for R runs side by side."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from lpgnn.components import before
from lpgnn.errors import InputError
from lpgnn.learners.adam import Adam
from lpgnn.learners.batch import LabelBatch, masked_mean, predict
from lpgnn.learners.learner import Learner, Outcome, Run, Selected, Server
from lpgnn.learners.selection import RULES, AtEpoch, BestEpoch, EpochMetrics
from lpgnn.models import Network, Weights
from lpgnn.models.dropout import Dropout


@dataclass(frozen=True)
class NetworkLearner(Learner):
    """A learner that trains the backbone by a loss of its own.

    A new one needs ``loss``.  ``prepare`` may add to what the loss sees, ``prior`` gives logits
    that the network's are added to, and ``finish`` has the last word on the probabilities.

    ``refit``: with the epoch chosen, train again up to it on the training and validation nodes.
    """

    refit: bool = field(default=False, kw_only=True, metadata=before(False))

    @abstractmethod
    def loss(self, logits: Tensor, batch: Any) -> Tensor:
        """What is minimised, a number for each run.  [R, c, N] -> [R]"""

    def validation_loss(self, logits: Tensor, batch: Any) -> Tensor:
        """What epochs are chosen by: the reports of validation nodes.  [R, c, N] -> [R]"""
        mean: Tensor = batch.val_mean(batch.surprise(logits))
        return mean

    def prepare(self, runs: Sequence[Run], server: Server) -> LabelBatch:
        """What ``loss`` and ``validation_loss`` get as their batch."""
        collected = [run.collected for run in runs]
        return LabelBatch.of(collected, server.device, with_val=server.with_val)

    def prior(self, runs: Sequence[Run], server: Server) -> Tensor | None:
        """Logits that the network's are added to, or None.  -> [R, c, N]"""
        return None

    @property
    def finishes(self) -> bool:
        """Whether ``finish`` changes anything."""
        return False

    def finish(self, probabilities: Tensor, run: Run, server: Server) -> Tensor:
        """What predictions are made from: probabilities up to a factor.  [c, N] -> [c, N]"""
        return probabilities

    def fit(self, runs: Sequence[Run], server: Server) -> list[Outcome]:
        best, curves = self._train(runs, server)
        if self.refit:
            last = max(int(one.epoch.max()) for one in best.values())
            whole = replace(server, with_val=True, max_epochs=last, on_epoch=None)
            best, _ = self._train(runs, whole, chosen=best)
        return [
            Outcome(
                {name: curve[:, index] for name, curve in curves.items()},
                {name: self._selected(index, run, server, one) for name, one in best.items()},
            )
            for index, run in enumerate(runs)
        ]

    def _train(
        self, runs: Sequence[Run], server: Server, chosen: Mapping[str, BestEpoch] | None = None
    ) -> tuple[dict[str, BestEpoch], dict[str, Tensor]]:
        """Train once; the epochs that the rules keep, or the chosen ones, and all curves [T, R]."""
        x, network = server.features(runs), server.network(runs)
        batch, prior = self.prepare(runs, server), self.prior(runs, server)
        weights = _initial_weights(runs, network, server.device)
        adam = Adam(
            weights,
            torch.tensor([run.learning_rate for run in runs], device=server.device),
            torch.tensor([run.weight_decay for run in runs], device=server.device),
        )
        dropout = Dropout(
            [run.dropout for run in runs],
            [run.streams.generator("dropout", server.device) for run in runs],
            server.graph.backend,
        )
        best = {name: BestEpoch(rule(batch.accuracy_bound)) for name, rule in RULES.items()}
        if chosen is not None:
            best = {name: BestEpoch(AtEpoch(one)) for name, one in chosen.items()}
        keep_logits = server.keep_probabilities or self.finishes

        # Not compiled: torch.compile of the loss and its gradient takes 1.71 instead of 1.84 ms for
        # ten runs on Cora and 5.1 instead of 3.2 ms for five on Facebook, a minute for its first
        # call, and a C++ compiler on the user's machine.
        history = []
        hidden = network.hidden(weights, x)
        for epoch in range(1, server.max_epochs + 1):
            logits = _plus(network.logits(weights, hidden, dropout), prior)  # [R, c, N]
            _check_shape("backbone", server.backbone, logits, batch.excess.shape)
            loss = self.loss(logits, batch)  # [R]
            _check_shape("learner", self, loss, batch.accuracy_bound.shape)
            # The runs share no weight, so the gradient of the sum is each run's own gradient.
            gradients = torch.autograd.grad(loss.sum(), list(weights.values()))
            adam.step(dict(zip(weights, gradients, strict=True)))
            hidden = network.hidden(weights, x)  # for the evaluation and the next step
            with torch.no_grad():
                clean = _plus(network.logits(weights, hidden, None), prior)
                predictions = predict(clean)  # [R, N]
                metrics = EpochMetrics(
                    train_loss=loss.detach(),
                    dropout_train_acc=_accuracy(predict(logits), batch.classes, batch.train),
                    train_acc=_accuracy(predictions, batch.classes, batch.train),
                    val_loss=self.validation_loss(clean, batch),
                    val_acc=_accuracy(predictions, batch.classes, batch.val),
                )
            state = {"predictions": predictions} | ({"logits": clean} if keep_logits else {})
            state |= weights if server.keep_weights else {}
            for one in best.values():
                one.update(epoch, metrics, {name: t.detach() for name, t in state.items()})
            history.append(metrics)
            if server.on_epoch is not None:
                server.on_epoch()
        return best, EpochMetrics.curves(history)

    def apply(self, weights: Weights, run: Run, server: Server, rule: str) -> Tensor:
        network = server.network([run])
        drawn = network.initial_weights(generator=torch.Generator())
        shapes = {name: tuple(weight.shape) for name, weight in drawn.items()}
        if {name: tuple(weight.shape) for name, weight in weights.items()} != shapes:
            raise InputError("weights", ", ".join(weights) or "none", f"must be {shapes}")
        one = {name: weight[None].to(server.device) for name, weight in weights.items()}
        with torch.no_grad():
            hidden = network.hidden(one, server.features([run]))
            logits = _plus(network.logits(one, hidden, None), self.prior([run], server))
            p = logits[0].softmax(0)
            if self.finishes:
                p = self.finish(p, run, server)
                p = p / p.sum(0)
            return p.cpu()

    def _selected(self, index: int, run: Run, server: Server, best: BestEpoch) -> Selected:
        """Take one run out of the batch and bring it to the host."""
        state = {key: tensor[index] for key, tensor in best.state.items()}
        predictions, probabilities = state.pop("predictions"), None
        if (logits := state.pop("logits", None)) is not None:
            probabilities = logits.softmax(0)
            if self.finishes:
                probabilities = self.finish(probabilities, run, server)
                predictions = predict(probabilities[None])[0]
                probabilities = probabilities / probabilities.sum(0)
            probabilities = probabilities.cpu() if server.keep_probabilities else None
        return Selected(
            epoch=int(best.epoch[index]),
            qualified=bool(best.rule.qualified[index]),
            predictions=predictions.cpu(),
            probabilities=probabilities,
            weights={key: tensor.cpu() for key, tensor in state.items()},
        )


def _check_shape(setting: str, part: Any, found: Tensor, expected: torch.Size) -> None:
    """A network of the wrong width, or a loss that is not one number per run, is a user's slip."""
    if found.shape != expected:
        shapes = f"must give a tensor of shape {list(expected)}, not {list(found.shape)}"
        raise InputError(setting, part.name, shapes)


def _initial_weights(runs: Sequence[Run], network: Network, device: torch.device) -> Weights:
    drawn = [network.initial_weights(generator=run.streams.generator("weights")) for run in runs]
    return {
        name: torch.stack([w[name] for w in drawn]).to(device).requires_grad_() for name in drawn[0]
    }


def _plus(logits: Tensor, prior: Tensor | None) -> Tensor:
    return logits if prior is None else logits + prior


def _accuracy(predictions: Tensor, classes: Tensor, mask: Tensor) -> Tensor:
    """Agreement with the reported classes on a mask's nodes.  -> [R]"""
    return masked_mean(predictions == classes, mask)
