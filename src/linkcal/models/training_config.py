"""Settings of a training, what is told after each epoch, and the outcome."""

from __future__ import annotations

from dataclasses import dataclass, field

from linkcal._validation import check_positive_float, check_positive_int
from linkcal.exceptions import InputError

__all__ = ["EpochReport", "TrainingConfig", "TrainingResult"]


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
