"""Training a link predictor: settings, the loop, what it returns."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from linkcal._core.random import numpy_stream, torch_streams_forked
from linkcal._core.validation import check_device, check_positive_float, check_positive_int, to_numpy
from linkcal.data.graph import Graph
from linkcal.data.negatives import NegativeSampler
from linkcal.data.pairs import LinkPairs, LinkSplit
from linkcal.exceptions import InputError, ShortageError, TrainingDivergedError
from linkcal.models.adapter import as_link_predictor
from linkcal.models.base import DecodeReturns, auxiliary_loss_of

__all__ = ["EpochReport", "TrainingConfig", "TrainingResult", "TrainingRun", "train_link_predictor"]


# Settings of a training, what is told after each epoch, and the outcome.


@dataclass(frozen=True)
class TrainingConfig:
    """How a link predictor is trained.

    Parameters
    ----------
    epochs : int
        Passes over the training positives, at most.
    lr : float > 0
        Adam's learning rate.
    weight_decay : float >= 0
        Adam's L2 term.
    patience : int, optional
        Stop after so many epochs without a better validation AUC; None never stops early.
    eval_every : int
        Epochs between two looks at the validation links.
    batch_size : int, optional
        Training positives per optimiser step, each step encoding the graph anew; None takes them all at once.
    keep_best : bool
        Leave the model with the weights of the best validation AUC; False leaves it with the last epoch's,
        as where the number of epochs itself was searched. Needs ``patience=None`` then.

    Raises
    ------
    InputError
        If a value is out of range, or the two last settings do not go together.

    Examples
    --------
    >>> TrainingConfig(epochs=50, patience=None).lr
    0.01
    >>> TrainingConfig(epochs=0)
    Traceback (most recent call last):
    linkcal.exceptions.InputError: epochs must be a whole number >= 1, got 0
    """

    epochs: int = 400
    lr: float = 0.01
    weight_decay: float = 0.0
    patience: int | None = 100
    eval_every: int = 5
    batch_size: int | None = None
    keep_best: bool = True

    def __post_init__(self) -> None:
        check_positive_int(self.epochs, "epochs")
        check_positive_float(self.lr, "lr")
        check_positive_float(self.weight_decay, "weight_decay", zero=True)
        check_positive_int(self.eval_every, "eval_every")
        for name in ("patience", "batch_size"):
            if getattr(self, name) is not None:
                check_positive_int(getattr(self, name), name)
        if not isinstance(self.keep_best, bool):
            raise InputError(f"keep_best must be True or False, got {self.keep_best!r}")
        if not self.keep_best and self.patience is not None:
            raise InputError(f"patience must be None with keep_best=False, got {self.patience}")


@dataclass(frozen=True)
class EpochReport:
    """What a progress callback is told after each epoch.

    Parameters
    ----------
    epoch, epochs : int
        The epoch just done, from 1, and how many there are at most.
    loss : float
        Mean training loss of the epoch.
    val_auc : float, optional
        Validation AUC, at the epochs where it is measured.

    Examples
    --------
    >>> EpochReport(epoch=5, epochs=200, loss=0.69)
    EpochReport(epoch=5, epochs=200, loss=0.69, val_auc=None)
    """

    epoch: int
    epochs: int
    loss: float
    val_auc: float | None = None


@dataclass(frozen=True)
class TrainingResult:
    """Outcome of a training.

    Parameters
    ----------
    best_epoch : int
        Epoch whose weights the model now has: the best one, or with ``keep_best=False`` the last.
    best_val_auc : float
        Validation AUC of these weights.
    val_auc : tuple of (int, float)
        Validation AUC at each epoch where it was measured.
    epochs_run : int
    stopped_early : bool
    final_loss : float
        Training loss of the last epoch run.
    seconds : float
        Wall-clock time; the only field that differs between two runs with one seed.

    Examples
    --------
    >>> from linkcal.data import simulate_graph, split_links
    >>> from linkcal.models import GCN, train_link_predictor
    >>> split = split_links(simulate_graph(60, num_edges=150, num_features=5, seed=0), seed=0)
    >>> result = train_link_predictor(GCN(5), split, TrainingConfig(epochs=10, eval_every=5))
    >>> [epoch for epoch, auc in result.val_auc], result.stopped_early
    ([5, 10], False)
    """

    best_epoch: int
    best_val_auc: float
    val_auc: tuple[tuple[int, float], ...]
    epochs_run: int
    stopped_early: bool
    final_loss: float
    seconds: float = field(compare=False)


# The loop of a training: epochs, steps, validation, and the weights to keep.


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


# Training of a link predictor: fresh negatives each epoch, model selection on validation links.


def train_link_predictor(
    model: nn.Module,
    split: LinkSplit,
    config: TrainingConfig | None = None,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
    decode_returns: DecodeReturns | None = None,
    progress: Callable[[EpochReport], None] | None = None,
) -> TrainingResult:
    """Train `model` in place on the training links of `split`, and leave it with its best weights.

    Parameters
    ----------
    model : nn.Module
        Anything with ``encode(x, edge_index)`` and ``decode(z, edge_label_index)``. It is left on
        `device` and in evaluation mode.
    split : LinkSplit
        Its test pairs are never read; its validation pairs choose the epoch.
    config : TrainingConfig, optional
    seed : int
        Dropout, sampled embeddings and negatives draw from the stream ``"training"`` of this seed; torch's
        global generators are left as they were.
    device : torch.device or str
        ``"auto"`` takes CUDA if there is one.
    decode_returns : {"logits", "probabilities"}, optional
        What ``model.decode`` returns; None reads the model's attribute.
    progress : callable, optional
        Called with an :class:`EpochReport` after each epoch.

    Returns
    -------
    TrainingResult

    Raises
    ------
    InputError
        If there is no training link, or validation links have one class.
    TrainingDivergedError
        If the loss or a validation logit is not finite.
    ShortageError
        If the message-passing graph is complete: there is no non-edge to learn from.
    UnsupportedModelError
        If the model lacks ``encode`` or ``decode``.

    Notes
    -----
    Loss of an epoch: binary cross-entropy of the training positives and as many distinct non-edges of the
    MESSAGE graph, drawn anew (fewer in a graph that has fewer), plus the model's auxiliary loss. The
    sampler does not avoid validation and test links, for it may not know them.

    Examples
    --------
    >>> import torch
    >>> from linkcal.data import Graph, split_links
    >>> from linkcal.models import GCN
    >>> ring = Graph.from_edges(torch.stack([torch.arange(30), (torch.arange(30) + 1) % 30]), 30)
    >>> split = split_links(ring, seed=0)
    >>> model = GCN(in_channels=8, num_nodes=30)
    >>> train_link_predictor(model, split, TrainingConfig(epochs=10)).epochs_run
    10
    """
    config = TrainingConfig() if config is None else config
    predictor = as_link_predictor(model, decode_returns)
    seed = check_positive_int(seed, "seed", minimum=0)
    device = check_device(device)
    graph, train, val = split.graph.to(device), split.train.to(device), split.val.to(device)
    _check_parts(train, val)
    predictor.to(device)
    started = time.perf_counter()
    with torch_streams_forked(seed, "training"):
        run = TrainingRun(predictor, graph, train, val, config, seed)
        for report in run.epochs():
            if progress is not None:
                progress(report)
    predictor.load_state_dict(run.best_state)
    predictor.eval()
    return TrainingResult(
        best_epoch=run.best_epoch,
        best_val_auc=run.best_auc,
        val_auc=tuple(run.curve),
        epochs_run=run.epoch,
        stopped_early=run.epoch < config.epochs,
        final_loss=run.loss,
        seconds=time.perf_counter() - started,
    )


def _check_parts(train: LinkPairs, val: LinkPairs) -> None:
    if train.num_positives == 0:
        raise InputError("split.train must hold at least one link, got 0")
    if val.num_positives == 0 or val.num_negatives == 0:
        raise InputError(
            "split.val must hold links and negatives to choose the epoch by, got "
            f"{val.num_positives} links and {val.num_negatives} negatives"
        )
