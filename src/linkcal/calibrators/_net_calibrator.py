"""What the two calibrators with a temperature network share: parameters, fit and application."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from linkcal.calibrators._base_rate_warning import warn_base_rate
from linkcal.calibrators._checks import known_labels, validated
from linkcal.calibrators._net_fit import LinkArrays, NetFit, NetJob, NetSettings, apply_net, fit_nets
from linkcal.calibrators._said_name import said_name
from linkcal.calibrators._state import unchanged_if_refused
from linkcal.calibrators._temperature_net import Scaling
from linkcal.calibrators.base import Calibrator, FloatArray, StateKind
from linkcal.exceptions import ConvergenceWarning, InputError

__all__ = ["Asked", "NetCalibrator", "RandomState"]

RandomState = int | np.random.Generator | np.random.RandomState | None


@dataclass(frozen=True)
class Asked:
    """Checked calibration links of a fit, and the networks that it asks for."""

    X: FloatArray
    y: FloatArray
    weight: FloatArray
    job: NetJob


class NetCalibrator(Calibrator):
    """Base of :class:`EmbeddingMLP` and :class:`InNOut`: ``p = sigmoid(s / T)``, T from a small network.

    A second level of inheritance, for once: both have the same ten parameters and the same ``fit``.
    """

    #: One network, or one per sign of the logit.
    _heads: ClassVar[int]

    _state: ClassVar[dict[str, StateKind]] = {
        "hidden_weights_": 3,
        "output_weights_": 2,
        "ece_weight_": float,
        "n_iter_": int,
        "converged_": bool,
        "loss_curve_": 1,
        "seed_": int,
    }

    hidden_weights_: FloatArray
    output_weights_: FloatArray
    ece_weight_: float
    n_iter_: int
    converged_: bool
    loss_curve_: FloatArray
    seed_: int

    def __init__(
        self,
        *,
        hidden_channels: int = 16,
        ece_weights: Sequence[float] = (0.0, 1.0, 10.0),
        n_bins: int = 15,
        learning_rate: float = 1e-4,
        weight_decay: float = 5e-8,
        max_iter: int = 5000,
        early_stopping: bool = True,
        patience: int = 500,
        n_folds: int | None = None,
        random_state: RandomState = 0,
    ) -> None:
        self.hidden_channels = hidden_channels
        self.ece_weights = ece_weights
        self.n_bins = n_bins
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.patience = patience
        self.n_folds = n_folds
        self.random_state = random_state

    def _prepare(self, X: FloatArray, y: FloatArray, weight: FloatArray) -> None:
        """Set what :meth:`_score` needs, before the networks are trained."""

    def _score(self, X: FloatArray) -> FloatArray:
        """Logit (n,) whose temperature the networks give."""
        return X[:, 0]

    def _scaling(self) -> Scaling:
        """How the networks' output scales the logit."""
        return "divide"

    @abstractmethod
    def _inputs(self, X: FloatArray) -> FloatArray:
        """Network inputs (n, k) of checked X."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, X_val: Any = None, y_val: Any = None) -> Self:
        """Fit on calibration links.

        Parameters
        ----------
        X : array-like of shape (n, 1 + k)
            Uncalibrated logit in column 0, link features of the kind ``link_features`` after it.
        y : array-like of shape (n,)
            Exactly two different labels; the larger one is the positive class.
        sample_weight : array-like of shape (n,), optional
            Non-negative counts.
        X_val, y_val : array-like, optional
            Validation links that choose lambda and the number of epochs; without them, cross-validation
            inside (X, y) does.

        Returns
        -------
        self

        Raises
        ------
        InputError
            As for the other calibrators; also if only one of `X_val` and `y_val` is given, or `y_val` holds
            other labels than `y`. A fit that raises changes nothing.
        """
        with unchanged_if_refused(self):
            asked = self._ask(X, y, sample_weight, X_val, y_val)
            self._take(asked, fit_nets([asked.job])[0])
        return self

    def temperature(self, X: Any) -> FloatArray:
        """Temperature T > 0 of each link, shape (n,).

        Parameters
        ----------
        X : array-like of shape (n, 1 + k)

        Returns
        -------
        ndarray of shape (n,)
        """
        return self._temperature(self._check_predict(X))

    def _ask(self, X: Any, y: Any, sample_weight: Any, X_val: Any, y_val: Any) -> Asked:
        """Check the arguments of :meth:`fit`; return what is to be trained."""
        X, y, weight = self._check_fit(X, y, sample_weight)
        self._prepare(X, y, weight)
        return self._asked(X, y, weight, self._check_validation(X_val, y_val))

    def _asked(
        self, X: FloatArray, y: FloatArray, weight: FloatArray, validation: LinkArrays | None
    ) -> Asked:
        links = LinkArrays(self._score(X), self._inputs(X), y, weight)
        return Asked(X, y, weight, NetJob(NetSettings.of(self), links, self._heads, validation))

    def _take(self, asked: Asked, fit: NetFit) -> None:
        """Set the fitted attributes and warn of what the fit lacks."""
        self.hidden_weights_, self.output_weights_ = fit.hidden, fit.output
        self.ece_weight_, self.n_iter_, self.converged_ = fit.ece_weight, fit.n_iter, fit.converged
        self.loss_curve_, self.seed_ = fit.loss_curve, asked.job.settings.seed
        if self.early_stopping and not self.converged_:
            warnings.warn(
                f"{said_name(self)} was still improving after {self.max_iter} epochs; raise max_iter or "
                "learning_rate (parameters of the calibrator in Python)",
                ConvergenceWarning,
                stacklevel=3,
            )
        p = self._bounded_probability(asked.X)
        warn_base_rate(said_name(self), p, asked.y, asked.weight)

    def _fit(self, X: FloatArray, y: FloatArray, weight: FloatArray) -> None:
        self._prepare(X, y, weight)
        asked = self._asked(X, y, weight, None)
        self._take(asked, fit_nets([asked.job])[0])

    def _check_validation(self, X_val: Any, y_val: Any) -> LinkArrays | None:
        if X_val is None and y_val is None:
            return None
        if X_val is None or y_val is None:
            raise InputError("X_val and y_val must be given together, got only one of them")
        X, y = validated(self, X_val, y_val, reset=False)
        label = known_labels(y, len(X), self.classes_, "y_val")
        return LinkArrays(self._score(X), self._inputs(X), label, np.ones(len(y)))

    def _temperature(self, X: FloatArray) -> FloatArray:
        return apply_net(
            self.hidden_weights_, self.output_weights_, self._score(X), self._inputs(X), self._scaling()
        )

    def _decision(self, X: FloatArray) -> FloatArray:
        return self._score(X) / self._temperature(X)
