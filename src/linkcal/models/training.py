"""Training of a link predictor: fresh negatives each epoch, model selection on validation links."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import nn

from linkcal._memory import kept_pages
from linkcal._random import torch_streams_forked
from linkcal._validation import check_device, check_positive_int
from linkcal.data.pairs import LinkPairs, LinkSplit
from linkcal.exceptions import InputError
from linkcal.models._training_run import TrainingRun
from linkcal.models.adapter import as_link_predictor
from linkcal.models.declared import DecodeReturns
from linkcal.models.training_config import EpochReport, TrainingConfig, TrainingResult

__all__ = ["train_link_predictor"]


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
        If the message graph is complete: there is no non-edge to learn from.
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
    with torch_streams_forked(seed, "training"), kept_pages(device, graph.edge_index.size(1)):
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
            "split.val must hold links and non-links to choose the epoch by, got "
            f"{val.num_positives} links and {val.num_negatives} non-links"
        )
