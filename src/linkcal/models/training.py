"""Training a link predictor: settings, the loop over epochs, and its outcome."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from linkcal._core.random import numpy_stream, torch_streams_forked
from linkcal._core.validation import (
    check_device,
    check_positive_float,
    check_positive_int,
    check_type,
    to_numpy,
)
from linkcal.data.negatives import NegativeSampler
from linkcal.data.split import LinkSplit
from linkcal.exceptions import InputError, ShortageError, TrainingDivergedError
from linkcal.models.adapter import DecodeReturns, as_link_predictor, check_weights, encode_graph


@dataclass(frozen=True)
class TrainingConfig:
    """How a link predictor is trained; values out of range are an InputError.

    Parameters
    ----------
    epochs, eval_every : int
        Passes over the training positives, at most; epochs between two measurements of the validation AUC.
    lr, weight_decay : float > 0, float >= 0
        Adam's learning rate and L2 term.
    patience : int, optional
        Stop after so many epochs without a better validation AUC; None never stops early.
    batch_size : int, optional
        Training positives per optimiser step, each encoding the graph anew; None uses them all at once.
    keep_best : bool
        Keep the weights of the best validation AUC; False keeps the last epoch's and needs ``patience=None``.

    Examples
    --------
    >>> TrainingConfig(epochs=50, patience=None).lr
    0.01
    """

    epochs: int = 400
    lr: float = 0.01
    weight_decay: float = 0.0
    patience: int | None = 100
    eval_every: int = 5
    batch_size: int | None = None
    keep_best: bool = True

    def __post_init__(self) -> None:
        check_positive_float(self.lr, "lr")
        check_positive_float(self.weight_decay, "weight_decay", zero=True)
        for name in ("epochs", "eval_every", "patience", "batch_size"):
            if name in ("epochs", "eval_every") or getattr(self, name) is not None:
                check_positive_int(getattr(self, name), name)
        if not isinstance(self.keep_best, bool):
            raise InputError(f"keep_best must be True or False, got {self.keep_best!r}")
        if not self.keep_best and self.patience is not None:
            raise InputError(f"patience must be None with keep_best=False, got {self.patience}")


@dataclass(frozen=True)
class EpochReport:
    """Argument of a progress callback after each epoch.

    Parameters
    ----------
    epoch, epochs : int
        The finished epoch, from 1, and the largest number of epochs.
    loss, val_auc : float
        Mean training loss of the epoch; validation AUC, None at epochs where it is not measured.
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
    best_epoch, best_val_auc : int, float
        Epoch whose weights the model now has (with ``keep_best=False`` the last), and their validation AUC.
    val_auc : tuple of (int, float)
        Validation AUC at each epoch where it was measured.
    epochs_run, stopped_early, final_loss, seconds : int, bool, float, float
        Of the whole training: the last epoch's loss; the seconds alone differ between two runs with one seed.
    """

    best_epoch: int
    best_val_auc: float
    val_auc: tuple[tuple[int, float], ...]
    epochs_run: int
    stopped_early: bool
    final_loss: float
    seconds: float = field(compare=False)


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
    """Train `model` in place on the training links of `split`, and keep its best weights.

    Parameters
    ----------
    model, decode_returns
        As in :func:`as_link_predictor`. Afterwards the model is on `device` and in evaluation mode.
    split : LinkSplit
        Its test pairs are never read; its validation pairs choose the epoch.
    config : TrainingConfig, optional
    seed : int
        Of dropout, sampled embeddings and negatives; torch's global generators stay as they were.
    device : torch.device or str
        ``"auto"``: CUDA if there is one.
    progress : callable, optional
        Called with an :class:`EpochReport` after each epoch.

    Raises
    ------
    InputError, UnsupportedModelError
        If there is no training link, or validation links have one class; if the model lacks a method.
    ShortageError, TrainingDivergedError
        If the graph is complete, so that there are no negatives; if the loss or a logit is not finite.

    Notes
    -----
    Loss of an epoch: binary cross-entropy of the training positives and as many distinct negatives (fewer in
    a graph that has fewer), sampled anew among the non-edges of the MESSAGE-PASSING graph, plus the model's
    auxiliary loss. The sampler does not avoid validation and test links, which it must not know.

    Examples
    --------
    >>> from linkcal.data import simulate_graph, split_links
    >>> from linkcal.models import GCN
    >>> split = split_links(simulate_graph(60, num_edges=150, num_features=5, seed=0), seed=0)
    >>> train_link_predictor(GCN(5), split, TrainingConfig(epochs=10, eval_every=5)).epochs_run
    10
    """
    config = TrainingConfig() if config is None else config
    check_type(split, LinkSplit, "split")
    predictor = as_link_predictor(model, decode_returns)
    seed = check_positive_int(seed, "seed", minimum=0)
    device = check_device(device)
    started = time.perf_counter()
    training = _Training(predictor.to(device), split, config, seed, device)
    with torch_streams_forked(seed, "training"):
        for report in training.epochs():
            if progress is not None:
                progress(report)
    predictor.load_state_dict(training.best_state)
    predictor.eval()
    return TrainingResult(
        best_epoch=training.best_epoch, best_val_auc=training.best_auc, val_auc=tuple(training.curve),
        epochs_run=training.epoch, stopped_early=training.epoch < config.epochs, final_loss=training.loss,
        seconds=time.perf_counter() - started,
    )  # fmt: skip


class _Training:
    def __init__(
        self, model: nn.Module, split: LinkSplit, config: TrainingConfig, seed: int, device: torch.device
    ) -> None:
        self.model, self.config = model, config
        check_weights(model, weighted=split.graph.edge_weight is not None)
        self.graph, train, self.val = split.graph.to(device), split.train.to(device), split.val.to(device)
        if train.num_positives == 0:
            raise InputError("split.train must hold at least one link, got 0")
        if self.val.num_positives == 0 or self.val.num_negatives == 0:
            raise InputError(
                "split.val must hold links and negatives to choose the epoch by, got "
                f"{self.val.num_positives} links and {self.val.num_negatives} negatives"
            )
        self.positives = train.edge_label_index[:, train.edge_label == 1]
        self.sampler = NegativeSampler(self.graph)
        self.num_negatives = min(self.positives.size(1), self.sampler.num_available)
        if self.num_negatives == 0:
            raise ShortageError(f"split.graph must have non-edges, got {self.graph.num_pairs} edges")
        self.generator = numpy_stream(seed, "training")
        self.optimizer = torch.optim.Adam(model.parameters(), lr=config.lr, weight_decay=config.weight_decay)
        self.epoch, self.loss = 0, math.nan
        self.curve: list[tuple[int, float]] = []
        self.best_epoch, self.best_auc = 0, -1.0
        self.best_state: dict[str, Tensor] = {}

    def epochs(self) -> Iterator[EpochReport]:
        """Train epoch by epoch until the last one or until patience runs out."""
        config = self.config
        for self.epoch in range(1, config.epochs + 1):
            self.loss = self._train_epoch()
            measured = self.epoch % config.eval_every == 0 or self.epoch == config.epochs
            val_auc = self._validate() if measured else None
            yield EpochReport(self.epoch, config.epochs, self.loss, val_auc)
            if measured and config.patience is not None and self.epoch - self.best_epoch >= config.patience:
                return

    def _train_epoch(self) -> float:
        """One pass over the positives and as many fresh negatives; every step has equal shares of both."""
        self.model.train()
        positives, size = self.positives, self.config.batch_size
        negatives = self.sampler.sample(self.num_negatives, self.generator)
        steps = 1 if size is None else -(-positives.size(1) // size)
        if steps > 1:
            positives = positives[:, torch.randperm(positives.size(1), device=positives.device)]
        total = 0.0
        parts = (pairs.tensor_split(steps, dim=1) for pairs in (positives, negatives))
        for positive, negative in zip(*parts, strict=True):
            pairs = torch.cat([positive, negative], dim=1)
            label = (torch.arange(pairs.size(1), device=pairs.device) < positive.size(1)).float()
            total += self._step(pairs, label) * label.numel()
        return total / (positives.size(1) + negatives.size(1))

    def _logit(self, pairs: Tensor) -> Tensor:
        if self.graph.edge_weight is not None:
            return self.model.decode(encode_graph(self.model, self.graph), pairs)  # type: ignore[no-any-return, operator]
        return self.model(self.graph.node_input, self.graph.edge_index, pairs)  # type: ignore[no-any-return]

    def _step(self, pairs: Tensor, label: Tensor) -> float:
        self.optimizer.zero_grad()
        logit = self._logit(pairs)
        loss = binary_cross_entropy_with_logits(logit, label.to(logit.dtype))
        auxiliary = self.model.auxiliary_loss()  # type: ignore[operator]
        if auxiliary is not None:
            loss = loss + auxiliary
        value = loss.item()
        if not math.isfinite(value):
            raise self._diverged("loss", value)
        torch.autograd.backward(loss)
        self.optimizer.step()
        return value

    def _validate(self) -> float:
        """Measure the validation AUC; copy the weights if they are the best so far or the last are wanted."""
        self.model.eval()
        with torch.no_grad():
            logit = self._logit(self.val.edge_label_index)
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
