"""In-n-Out: a temperature from what the pair's own edge does to its embedding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, final, get_args

import numpy as np

from linkcal._validation import check_choice, check_flag
from linkcal.calibrators._net_calibrator import NetCalibrator, RandomState
from linkcal.calibrators._temperature_net import Scaling
from linkcal.calibrators.base import FloatArray, LinkFeatures, StateKind
from linkcal.calibrators.platt import Platt

__all__ = ["InNOut"]


@final
class InNOut(NetCalibrator):
    """In-n-Out: ``p = sigmoid(s / T)``, T from the link embedding without (h) and with (h+) the pair's edge.

    For predictors whose confidence should depend on how much an edge would change the embedding. It needs
    h - h+ in columns 1.. of X. A temperature keeps the sign of the logit: a logit of 0 stays p = 0.5, and a
    wrong base rate cannot be repaired (``BaseRateWarning``) but by `center`.

    Parameters
    ----------
    gamma : {"difference", "distance"}, default="difference"
        Input of the networks: h - h+, or its Euclidean norm.
    center : bool, default=False
        Recentre the logit first: ``p = sigmoid((a s + b) / T)`` with a and b of :class:`Platt`. The
        temperature then acts around the logit at which links and non-links balance, and base rates can be
        repaired. Not part of the paper's method.
    scaling : {"divide", "multiply-doubled"}, default="divide"
        ``"divide"``: ``p = sigmoid(s / t)`` with ``t = softplus(MLP(gamma))``, as the paper states.
        ``"multiply-doubled"``: ``p = sigmoid(2 s t)``, as the paper's released code computes it (a softmax
        over ``(-s t, s t)``): untrained networks, t about 0.7, then sharpen every probability instead of
        flattening it. Only to reproduce that code's numbers. :meth:`temperature` is ``1 / (2 t)`` there.
    hidden_channels : int, default=16
        H, width of the hidden ReLU layer of both networks.
    ece_weights : sequence of float, default=(0.0, 1.0, 10.0)
        Candidates for lambda, the weight of the ECE term.
    n_bins : int, default=15
        Equal-width bins of the ECE term and of the ECE that chooses lambda.
    learning_rate : float, default=1e-4
    weight_decay : float, default=5e-8
    max_iter : int, default=5000
        Most epochs of full-batch Adam.
    early_stopping : bool, default=True
        End a network when its held-out loss has not fallen for `patience` epochs, and keep the weights of its
        best epoch. The paper trains 5,000 epochs; ``False`` does so.
    patience : int, default=500
    n_folds : int, optional
        Folds of the stratified cross-validation inside the calibration set that chooses lambda and the number
        of epochs where no validation links are given. By default three; above 4,000 different links, where
        the held-out ECE is steady, one held-out fifth.
    random_state : int, Generator, RandomState or None, default=0
        Initial weights and folds. None draws a seed.

    Attributes
    ----------
    hidden_weights_ : ndarray of shape (2, H, k + 1)
        First layer of the network for s <= 0 and of the one for s > 0, biases in the last column.
    output_weights_ : ndarray of shape (2, H + 1)
        Second layer, biases in the last column.
    ece_weight_ : float
        The chosen lambda: smallest ECE on the validation (or pooled held-out) links.
    n_iter_ : int
        Epochs of the returned network.
    converged_ : bool
        Whether the held-out loss stopped falling before `max_iter`.
    loss_curve_ : ndarray of shape (looks,)
        Training loss of the returned network, every ten epochs from 0 on.
    seed_ : int
        Seed that was used.
    slope_, intercept_ : float
        a and b of the recentred logit; 1 and 0 without `center`.
    classes_ : ndarray of shape (2,)
    n_features_in_ : int

    Warns
    -----
    BaseRateWarning
        If mean p and the share of links differ clearly after the fit.

    Notes
    -----
    ``T = softplus(MLP_1(gamma))`` if s > 0, else ``softplus(MLP_2(gamma))``. The loss is
    ``L = L_NLL + L_Cal + lambda L_ECE`` with ``L_NLL`` the mean negative log-likelihood (a sum in the paper,
    which would tie lambda to the number of links), ``L_Cal = mean(-(2y - 1) p)`` and ``L_ECE`` the
    positive-class ECE with gradient through p and the bins held fixed in each step. Networks start as
    PyTorch's ``Linear`` does. T has a floor of 1e-4 for arithmetic. Links are sorted and equal ones merged
    before training, so neither their order nor copies (against weights) change the result.

    References
    ----------
    arXiv 2403.04605 (the paper).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> delta = rng.normal(size=(200, 4))
    >>> s = rng.normal(scale=4, size=200)
    >>> y = rng.random(200) < 1 / (1 + np.exp(-s / 3))
    >>> calibrator = InNOut(max_iter=50, learning_rate=0.01).fit(np.column_stack((s, delta)), y)
    >>> calibrator.predict_proba([[0.0, 0.1, 0.1, 0.1, 0.1]])
    array([[0.5, 0.5]])
    """

    link_features: ClassVar[LinkFeatures] = "difference"
    _heads: ClassVar[int] = 2
    _state: ClassVar[dict[str, StateKind]] = {**NetCalibrator._state, "slope_": float, "intercept_": float}

    slope_: float
    intercept_: float

    def __init__(
        self,
        *,
        gamma: Literal["difference", "distance"] = "difference",
        center: bool = False,
        scaling: Scaling = "divide",
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
        super().__init__(
            hidden_channels=hidden_channels,
            ece_weights=ece_weights,
            n_bins=n_bins,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            max_iter=max_iter,
            early_stopping=early_stopping,
            patience=patience,
            n_folds=n_folds,
            random_state=random_state,
        )
        self.gamma = gamma
        self.center = center
        self.scaling = scaling

    def _prepare(self, X: FloatArray, y: FloatArray, weight: FloatArray) -> None:
        self.slope_, self.intercept_ = 1.0, 0.0
        if check_flag(self.center, "center"):
            platt = Platt()
            platt._fit(X, y, weight)
            self.slope_, self.intercept_ = platt.slope_, platt.intercept_

    def _score(self, X: FloatArray) -> FloatArray:
        # Without `center` the logit itself: 1 * s + 0 would turn -0.0 into 0.0.
        return self.slope_ * X[:, 0] + self.intercept_ if self.center else X[:, 0]

    def _scaling(self) -> Scaling:
        check_choice(self.scaling, "scaling", get_args(Scaling))
        return self.scaling

    def _inputs(self, X: FloatArray) -> FloatArray:
        if check_choice(self.gamma, "gamma", ("difference", "distance")) == "difference":
            return X[:, 1:]
        return np.asarray(np.linalg.norm(X[:, 1:], axis=1, keepdims=True))
