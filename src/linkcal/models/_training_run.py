"""The loop of a training: epochs, steps, validation, and the weights to keep."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from linkcal._random import numpy_stream
from linkcal._validation import to_numpy
from linkcal.data.graph import Graph
from linkcal.data.negatives import NegativeSampler
from linkcal.data.pairs import LinkPairs
from linkcal.exceptions import ShortageError, TrainingDivergedError
from linkcal.models.outputs import auxiliary_loss_of
from linkcal.models.training_config import EpochReport, TrainingConfig

__all__ = ["TrainingRun"]


class TrainingRun:
    """State of one training."""

    def __init__(
        self,
        model: nn.Module,
        graph: Graph,
        train: LinkPairs,
        val: LinkPairs,
        config: TrainingConfig,
        seed: int,
    ) -> None:
        self.model = model
        self.graph = graph
        self.config = config
        self.val = val
        self.positives = train.edge_label_index[:, train.edge_label == 1]
        self.sampler = NegativeSampler(graph)
        self.num_negatives = min(self.positives.size(1), self.sampler.num_available)
        if self.num_negatives == 0:
            raise ShortageError(
                f"split.graph must have non-edges to train on, got all pairs of {graph.num_nodes} nodes"
            )
        self.generator = numpy_stream(seed, "training")
        self.optimizer = torch.optim.Adam(model.parameters(), lr=config.lr, weight_decay=config.weight_decay)
        self.epoch = 0
        self.loss = float("nan")
        self.curve: list[tuple[int, float]] = []
        self.best_epoch = 0
        self.best_auc = -1.0
        self.best_state: dict[str, Tensor] = {}

    def epochs(self) -> Iterator[EpochReport]:
        """Train epoch by epoch until the last one or until patience runs out."""
        config = self.config
        for self.epoch in range(1, config.epochs + 1):
            self.loss = self._train_epoch()
            val_auc = None
            if self.epoch % config.eval_every == 0 or self.epoch == config.epochs:
                val_auc = self._validate()
            yield EpochReport(self.epoch, config.epochs, self.loss, val_auc)
            waited = self.epoch - self.best_epoch
            if val_auc is not None and config.patience is not None and waited >= config.patience:
                return

    def _train_epoch(self) -> float:
        self.model.train()
        negatives = self.sampler.sample(self.num_negatives, self.generator)
        total, count = 0.0, 0
        for pairs, label in self._batches(negatives):
            total += self._step(pairs, label) * label.numel()
            count += label.numel()
        return total / count

    def _batches(self, negatives: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Pairs and labels of each step, positives and negatives in equal shares."""
        positives = self.positives
        size = self.config.batch_size
        steps = 1 if size is None else -(-positives.size(1) // size)
        if steps > 1:
            order = torch.randperm(positives.size(1), device=positives.device)
            positives = positives[:, order]
        for positive, negative in zip(
            positives.tensor_split(steps, dim=1), negatives.tensor_split(steps, dim=1), strict=True
        ):
            label = torch.zeros(positive.size(1) + negative.size(1), device=positive.device)
            label[: positive.size(1)] = 1.0
            yield torch.cat([positive, negative], dim=1), label

    def _step(self, pairs: Tensor, label: Tensor) -> float:
        self.optimizer.zero_grad()
        logit = self.model(self.graph.node_input, self.graph.edge_index, pairs)
        loss = binary_cross_entropy_with_logits(logit, label.to(logit.dtype))
        auxiliary = auxiliary_loss_of(self.model, self.graph.num_nodes)
        if auxiliary is not None:
            loss = loss + auxiliary
        value = loss.item()
        if not math.isfinite(value):
            raise self._diverged("loss", value)
        torch.autograd.backward(loss)
        self.optimizer.step()
        return value

    def _validate(self) -> float:
        """Measure the validation AUC; keep a copy of the weights if they are wanted so far."""
        self.model.eval()
        with torch.no_grad():
            logit = self.model(self.graph.node_input, self.graph.edge_index, self.val.edge_label_index)
        bad = logit[~torch.isfinite(logit)]
        if bad.numel():
            raise self._diverged("validation logits", bad[0].item())
        auc = float(roc_auc_score(to_numpy(self.val.edge_label), to_numpy(logit)))
        self.curve.append((self.epoch, auc))
        if auc > self.best_auc or not self.config.keep_best:
            self.best_auc, self.best_epoch = auc, self.epoch
            self.best_state = {name: value.clone() for name, value in self.model.state_dict().items()}
        return auc

    def _diverged(self, what: str, value: float) -> TrainingDivergedError:
        return TrainingDivergedError(
            f"{what} must stay finite, got {value} in epoch {self.epoch} of training with "
            f"lr = {self.config.lr} (try a smaller lr, and check the size of the features)"
        )
