"""Temperatures from a small network: In-n-Out (arXiv 2403.04605) and its embedding-only ablation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, final, get_args

import numpy as np

from linkcal._core.maths import sigmoid
from linkcal._core.validation import check_choice, check_flag, check_positive_float, check_positive_int
from linkcal.calibrators.base import (
    Calibrator,
    FloatArray,
    LinkFeatures,
    StateKind,
    known_labels,
    unchanged_if_refused,
    validated,
    warn_caller,
)
from linkcal.calibrators.scaling import warn_base_rate
from linkcal.exceptions import ConvergenceWarning, InputError, extra_needed

if TYPE_CHECKING:
    from linkcal.calibrators._network_training import Trained

#: How the networks' output o scales the logit: ``s / t`` or ``2 s t``, with ``t = softplus(o)``.
Scaling = Literal["divide", "multiply-doubled"]

RandomState = int | np.random.Generator | None


def _nets() -> Any:
    """The training of networks, which needs Numba: loaded by the first fit or prediction."""
    with extra_needed("a calibrator with a network"):
        from linkcal.calibrators import _network_training
    return _network_training


class NetCalibrator(Calibrator):
    """Base of :class:`EmbeddingMLP` and :class:`InNOut`: ``p = sigmoid(s / T)``, T from a small network."""

    search: ClassVar[dict[str, list[Any]]] = {
        "hidden_channels": [8, 16, 32, 64],
        "learning_rate": [1e-4, 1e-3, 1e-2],
        "ece_weights": [(0.0,), (1.0,), (10.0,), (0.0, 1.0, 10.0)],
    }
    trains_network = True
    #: One network, or one per sign of the logit.
    _heads: ClassVar[int]
    _state: ClassVar[dict[str, StateKind]] = {
        "hidden_weights_": 3, "output_weights_": 2, "ece_weight_": float, "n_iter_": int,
        "converged_": bool, "seed_": int,
    }  # fmt: skip

    def __init__(
        self,
        *,
        gamma: Literal["difference", "distance"] = "difference",
        scaling: Scaling = "divide",
        hidden_channels: int = 16,
        ece_weights: Sequence[float] = (0.0, 1.0, 10.0),
        n_bins: int = 15,
        learning_rate: float = 1e-4,
        weight_decay: float = 5e-8,
        max_iter: int = 5000,
        early_stopping: bool = True,
        patience: int = 500,
        random_state: RandomState = 0,
    ) -> None:
        self.gamma = gamma
        self.scaling = scaling
        self.hidden_channels = hidden_channels
        self.ece_weights = ece_weights
        self.n_bins = n_bins
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.patience = patience
        self.random_state = random_state

    def _inputs(self, X: FloatArray) -> FloatArray:
        """Network inputs (n, k) of checked X."""
        if check_choice(self.gamma, "gamma", ("difference", "distance")) == "difference":
            return X[:, 1:]
        return np.asarray(np.linalg.norm(X[:, 1:], axis=1, keepdims=True))

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, X_val: Any = None, y_val: Any = None) -> Self:
        """Fit on calibration links, as :meth:`Calibrator.fit` states.

        Validation links (`X_val`, `y_val`) choose lambda and the number of epochs; without them,
        cross-validation in (X, y) does. InputError if only one is given, or `y_val` holds other labels.
        """
        with unchanged_if_refused(self):
            self._fit(X, y, sample_weight, X_val, y_val)
        return self

    def _fit(self, X: Any, y: Any, weight: Any, X_val: Any = None, y_val: Any = None) -> None:
        X, y, weight = self._check_fit(X, y, weight)
        if (X_val is None) != (y_val is None):
            raise InputError("X_val and y_val must be given together, got only one of them")
        nets, validation = _nets(), None
        if X_val is not None:
            X_val, y_val = validated(self, X_val, y_val, reset=False)
            label = known_labels(y_val, len(X_val), self.classes_, "y_val")
            validation = nets.LinkArrays(X_val[:, 0], self._inputs(X_val), label, np.ones(len(label)))
        _check_settings(self)
        seed = np.random.default_rng() if self.random_state is None else self.random_state
        if isinstance(seed, np.random.Generator):
            seed = int(seed.integers(2**31))
        self.seed_ = check_positive_int(seed, "random_state", minimum=0)
        links = nets.LinkArrays(X[:, 0], self._inputs(X), y, weight)
        fit: Trained = nets.fit_net(self, self.seed_, self._heads, links, validation)
        self.hidden_weights_, self.output_weights_ = fit.net
        self.ece_weight_, self.n_iter_, self.converged_ = fit.ece_weight, fit.n_iter, fit.converged
        if self.early_stopping and not self.converged_:
            warn_caller(
                f"{self._shown_name} was still improving after {self.max_iter} epochs; raise max_iter or "
                "learning_rate (parameters of the calibrator in Python)",
                ConvergenceWarning,
            )
        p = sigmoid(X[:, 0] / self._temperature(X))
        warn_base_rate(self._shown_name, p, y, weight)

    def temperature(self, X: Any) -> FloatArray:
        """Temperature T > 0 of each link of X (n, 1 + k), shape (n,)."""
        return self._temperature(self._check_predict(X))

    def _temperature(self, X: FloatArray) -> FloatArray:
        net = _nets().TemperatureNet(self.hidden_weights_, self.output_weights_)
        out: FloatArray = _nets().apply_net(net, X[:, 0], self._inputs(X), self.scaling)
        return out

    def _decision(self, X: FloatArray) -> FloatArray:
        return X[:, 0] / self._temperature(X)


def _check_settings(settings: NetCalibrator) -> None:
    """Raise InputError if a hyper-parameter of a network calibrator is out of range."""
    for name in ("hidden_channels", "n_bins", "max_iter", "patience"):
        check_positive_int(getattr(settings, name), name)
    check_flag(settings.early_stopping, "early_stopping")
    check_choice(settings.scaling, "scaling", get_args(Scaling))
    if not len(settings.ece_weights):
        raise InputError("ece_weights must hold at least one weight, got none")
    for value in settings.ece_weights:
        check_positive_float(value, "ece_weights", zero=True)
    check_positive_float(settings.weight_decay, "weight_decay", zero=True)
    check_positive_float(settings.learning_rate, "learning_rate")


@final
class EmbeddingMLP(NetCalibrator):
    """Temperature of each link from its embedding h: ``p = sigmoid(s / T)``, ``T = softplus(MLP(h))``.

    The ablation of :class:`InNOut` in arXiv 2403.04605: one network, which sees neither the sign of the logit
    nor the embedding with the edge. Loss, training and warnings are as there. Columns 1.. of X hold h.

    Parameters
    ----------
    gamma : {"difference", "distance"}, default="difference"
        Input of the network: h, or its Euclidean norm.
    scaling, hidden_channels, ece_weights, n_bins, learning_rate, weight_decay, max_iter, early_stopping
    patience, random_state
        As in :class:`InNOut`, and so are the attributes, for a single network.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.random.default_rng(0).normal(size=(50, 5)), [0, 1] * 25
    >>> EmbeddingMLP(max_iter=5, early_stopping=False).fit(X, y).temperature(X).shape
    (50,)
    """

    name = "embedding-mlp"
    description = "temperature of each link from its embedding (ablation of in-n-out)"
    link_features: ClassVar[LinkFeatures] = "embedding"
    _heads: ClassVar[int] = 1


@final
class InNOut(NetCalibrator):
    """In-n-Out: ``p = sigmoid(s / T)``, T from the link embedding without (h) and with (h+) the pair's edge.

    Columns 1.. of X hold h - h+. A logit of 0 stays p = 0.5, so a wrong base rate cannot be repaired
    (``BaseRateWarning`` if mean p and the base rate differ clearly).

    Parameters
    ----------
    gamma : {"difference", "distance"}, default="difference"
        Input of the networks: h - h+, or its Euclidean norm.
    scaling : {"divide", "multiply-doubled"}, default="divide"
        ``sigmoid(s / t)`` with ``t = softplus(MLP(gamma))`` as the paper states, or ``sigmoid(2 s t)`` as its
        code computes (T is then 1 / (2 t), and untrained networks sharpen): only to reproduce its numbers.
    hidden_channels : int, default=16
        H, width of the hidden ReLU layer of both networks.
    ece_weights : sequence of float, default=(0.0, 1.0, 10.0)
        Candidates for lambda, the weight of the ECE term.
    n_bins : int, default=15
        Equal-width bins of the ECE term and of the ECE that chooses lambda.
    learning_rate, weight_decay : float, default=1e-4 and 5e-8
    max_iter : int, default=5000
        Most epochs of full-batch Adam.
    early_stopping, patience : bool, default=True, and int, default=500
        Stop when the held-out loss has not fallen for `patience` epochs and keep the best weights. The paper
        trains all 5,000 epochs (``False``).
    random_state : int, Generator or None, default=0
        Initial weights and folds. None draws a seed.

    Attributes
    ----------
    hidden_weights_, output_weights_ : ndarray of shape (2, H, k + 1) and (2, H + 1)
        Both layers of the network for s <= 0 and of the one for s > 0, biases in the last column.
    ece_weight_ : float
        The chosen lambda: smallest ECE on the validation (or pooled held-out) links.
    n_iter_, converged_ : int, bool
        Epochs of the returned network, and whether the held-out loss stopped falling before `max_iter`.
    seed_ : int

    Notes
    -----
    arXiv 2403.04605: ``T = softplus(MLP_1(gamma))`` if s > 0, else ``softplus(MLP_2(gamma))``, at least 1e-4.
    The loss is ``L_NLL + L_Cal + lambda L_ECE`` with ``L_NLL`` the mean negative log-likelihood (a sum in the
    paper, which ties lambda to the number of links), ``L_Cal = mean(-(2y - 1) p)`` and ``L_ECE`` the
    positive-class ECE, its bins held fixed in each step. Without validation links, lambda and the number of
    epochs come from three stratified folds, or above 4,000 different links from one held-out fifth.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.random.default_rng(0).normal(size=(50, 4)), [0, 1] * 25
    >>> InNOut(max_iter=5, early_stopping=False).fit(X, y).predict_proba([[0.0, 0.1, 0.1, 0.1]])
    array([[0.5, 0.5]])
    """

    name = "in-n-out"
    description = "temperature of each link from its embedding with and without its target link"
    search: ClassVar[dict[str, list[Any]]] = {"gamma": ["difference", "distance"], **NetCalibrator.search}
    link_features: ClassVar[LinkFeatures] = "difference"
    _heads: ClassVar[int] = 2
