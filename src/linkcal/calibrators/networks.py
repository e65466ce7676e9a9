"""Temperatures from a small network: In-n-Out (arXiv 2403.04605) and its embedding-only ablation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, final, get_args

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

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
from linkcal.calibrators.scaling import Platt, warn_base_rate
from linkcal.exceptions import ConvergenceWarning, InputError, extra_needed

if TYPE_CHECKING:
    from linkcal.calibrators._network_training import LinkArrays, NetJob, Trained

__all__ = ["EmbeddingMLP", "InNOut", "fit_together"]

#: How the networks' output o scales the logit: ``s / t`` or ``2 s t``, with ``t = softplus(o)``.
Scaling = Literal["divide", "multiply-doubled"]

RandomState = int | np.random.Generator | np.random.RandomState | None


def _nets() -> Any:
    """The training of networks, which needs Numba: loaded by the first fit or prediction."""
    with extra_needed("a calibrator with a network"):
        from linkcal.calibrators import _network_training
    return _network_training


class _Request(NamedTuple):
    """Checked calibration links of a fit, and the networks that it needs."""

    X: FloatArray
    y: FloatArray
    weight: FloatArray
    job: NetJob


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
        """Fit on calibration links, as :meth:`Calibrator.fit` states.

        Parameters
        ----------
        X, y, sample_weight : array-like
        X_val, y_val : array-like, optional
            Validation links that choose lambda and the number of epochs; default: cross-validation in (X, y).
            InputError if only one is given, or `y_val` holds other labels than `y`.
        """
        with unchanged_if_refused(self):
            request = self._request(X, y, sample_weight, X_val, y_val)
            self._finish(request, _nets().fit_nets([request.job])[0])
        return self

    def temperature(self, X: Any) -> FloatArray:
        """Temperature T > 0 of each link of X (n, 1 + k), shape (n,)."""
        return self._temperature(self._check_predict(X))

    def _request(self, X: Any, y: Any, sample_weight: Any, X_val: Any, y_val: Any) -> _Request:
        """Check the arguments of :meth:`fit`; return what is to be trained."""
        X, y, weight = self._check_fit(X, y, sample_weight)
        self._prepare(X, y, weight)
        validation = self._check_validation(X_val, y_val)
        _check_settings(self)
        links = _nets().LinkArrays(self._score(X), self._inputs(X), y, weight)
        job = _nets().NetJob(
            self, seed_from(self.random_state), self._heads, self._scaling(), links, validation
        )
        return _Request(X, y, weight, job)

    def _finish(self, request: _Request, fit: Trained) -> None:
        """Set the fitted attributes and warn of what the fit lacks."""
        self.hidden_weights_, self.output_weights_ = fit.net
        self.ece_weight_, self.n_iter_, self.converged_ = fit.ece_weight, fit.n_iter, fit.converged
        self.loss_curve_, self.seed_ = fit.loss_curve, request.job.seed
        if self.early_stopping and not self.converged_:
            warn_caller(
                f"{self._shown_name} was still improving after {self.max_iter} epochs; raise max_iter or "
                "learning_rate (parameters of the calibrator in Python)",
                ConvergenceWarning,
            )
        p = self._bounded_probability(request.X)
        warn_base_rate(self._shown_name, p, request.y, request.weight)

    def _fit(self, X: FloatArray, y: FloatArray, weight: FloatArray) -> None:
        raise NotImplementedError("network calibrators fit in two halves, so that many train together")

    def _check_validation(self, X_val: Any, y_val: Any) -> LinkArrays | None:
        if X_val is None and y_val is None:
            return None
        if X_val is None or y_val is None:
            raise InputError("X_val and y_val must be given together, got only one of them")
        X, y = validated(self, X_val, y_val, reset=False)
        label = known_labels(y, len(X), self.classes_, "y_val")
        links: LinkArrays = _nets().LinkArrays(self._score(X), self._inputs(X), label, np.ones(len(y)))
        return links

    def _temperature(self, X: FloatArray) -> FloatArray:
        net = _nets().TemperatureNet(self.hidden_weights_, self.output_weights_)
        out: FloatArray = _nets().apply_net(net, self._score(X), self._inputs(X), self._scaling())
        return out

    def _decision(self, X: FloatArray) -> FloatArray:
        return self._score(X) / self._temperature(X)


def _check_settings(settings: NetCalibrator) -> None:
    """Raise InputError if a hyper-parameter of a network calibrator is out of range."""
    for name in ("hidden_channels", "n_bins", "max_iter", "patience"):
        check_positive_int(getattr(settings, name), name)
    check_flag(settings.early_stopping, "early_stopping")
    if settings.n_folds is not None:
        check_positive_int(settings.n_folds, "n_folds", minimum=2)
    if not len(settings.ece_weights):
        raise InputError("ece_weights must hold at least one weight, got none")
    for value in settings.ece_weights:
        check_positive_float(value, "ece_weights", zero=True)
    check_positive_float(settings.weight_decay, "weight_decay", zero=True)
    check_positive_float(settings.learning_rate, "learning_rate")


def seed_from(random_state: Any) -> int:
    """Seed >= 0 from an integer, a NumPy generator or RandomState, or None (a fresh one)."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    return check_positive_int(random_state, "random_state", minimum=0)


@final
class EmbeddingMLP(NetCalibrator):
    """Temperature of each link from its embedding h: ``p = sigmoid(s / T)``, ``T = softplus(MLP(h))``.

    The ablation of :class:`InNOut` in arXiv 2403.04605: one network, which sees neither the sign of the logit
    nor the embedding with the edge. Loss, training and warnings are as there. Columns 1.. of X hold h.

    Parameters
    ----------
    hidden_channels, ece_weights, n_bins, learning_rate, weight_decay, max_iter
    early_stopping, patience, n_folds, random_state
        As in :class:`InNOut`.

    Attributes
    ----------
    hidden_weights_, output_weights_, ece_weight_, n_iter_, converged_, loss_curve_, seed_
        As in :class:`InNOut`, for a single network.

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

    def _inputs(self, X: FloatArray) -> FloatArray:
        return X[:, 1:]


@final
class InNOut(NetCalibrator):
    """In-n-Out: ``p = sigmoid(s / T)``, T from the link embedding without (h) and with (h+) the pair's edge.

    For predictors whose confidence should depend on how much an edge would change the embedding. Columns 1..
    of X hold h - h+. A logit of 0 stays p = 0.5, and only `center` can repair a wrong base rate
    (``BaseRateWarning`` if mean p and the base rate differ clearly).

    Parameters
    ----------
    gamma : {"difference", "distance"}, default="difference"
        Input of the networks: h - h+, or its Euclidean norm.
    center : bool, default=False
        Recentre the logit first, ``p = sigmoid((a s + b) / T)`` with a and b of :class:`Platt`, which can
        repair a wrong base rate. Not part of the paper's method.
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
    n_folds : int, optional
        Folds of the stratified cross-validation that chooses lambda and the number of epochs without
        validation links. Default: three; above 4,000 different links one held-out fifth.
    random_state : int, Generator, RandomState or None, default=0
        Initial weights and folds. None draws a seed.

    Attributes
    ----------
    hidden_weights_, output_weights_ : ndarray of shape (2, H, k + 1) and (2, H + 1)
        Both layers of the network for s <= 0 and of the one for s > 0, biases in the last column.
    ece_weight_ : float
        The chosen lambda: smallest ECE on the validation (or pooled held-out) links.
    n_iter_, converged_ : int, bool
        Epochs of the returned network, and whether the held-out loss stopped falling before `max_iter`.
    loss_curve_ : ndarray of shape (looks,)
        Training loss of the returned network, every ten epochs from 0 on.
    seed_, slope_, intercept_ : int, float, float
        Seed that was used; a and b of the recentred logit, 1 and 0 without `center`.

    Notes
    -----
    arXiv 2403.04605: ``T = softplus(MLP_1(gamma))`` if s > 0, else ``softplus(MLP_2(gamma))``, at least 1e-4.
    The loss is ``L_NLL + L_Cal + lambda L_ECE`` with ``L_NLL`` the mean negative log-likelihood (a sum in the
    paper, which ties lambda to the number of links), ``L_Cal = mean(-(2y - 1) p)`` and ``L_ECE`` the
    positive-class ECE, its bins held fixed in each step. Order and copies (against weights) change nothing.

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


def fit_together(
    calibrators: Sequence[Calibrator],
    X: Sequence[Any],
    y: Sequence[Any],
    validation: Sequence[tuple[Any, Any] | None] | None = None,
    base: tuple[Any, Any] | None = None,
) -> list[Calibrator]:
    """Fit clones of calibrators, each on its own links; all their networks are trained as one batch.

    Faster than single fits where cores would be idle (several calibration seeds of one predictor). Every
    result has the numbers of the single fit, to the last bit.

    Parameters
    ----------
    calibrators : sequence of Calibrator
        Unchanged; the same object may stand in several places.
    X, y : sequence of array-like
        Links of each calibrator, which may differ in number and columns.
    validation : sequence of (X_val, y_val) or None, optional
        One per calibrator, for those whose ``fit`` has ``X_val``.
    base : (X_base, y_base), optional
        Base links for the calibrators whose ``fit`` has ``X_base``.

    Returns
    -------
    list of Calibrator
        Fitted, in the order given.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.random.default_rng(0).normal(size=(2, 50, 3)), [[0, 1] * 25] * 2
    >>> nets = [EmbeddingMLP(max_iter=5, early_stopping=False, random_state=seed) for seed in (0, 1)]
    >>> fitted, alone = fit_together(nets, X, y), nets[1].fit(X[1], y[1])
    >>> bool((alone.predict_proba(X[1]) == fitted[1].predict_proba(X[1])).all())
    True
    """
    count = len(calibrators)
    held_out = [None] * count if validation is None else validation
    for values, name in ((X, "X"), (y, "y"), (held_out, "validation")):
        if len(values) != count:
            raise InputError(f"{name} must hold one item per calibrator ({count}), got {len(values)}")
    fitted: list[Calibrator] = [clone(calibrator) for calibrator in calibrators]
    requests: list[tuple[NetCalibrator, _Request]] = []
    for calibrator, X_own, y_own, part in zip(fitted, X, y, held_out, strict=True):
        beside = links_beside(calibrator, part, base)
        if isinstance(calibrator, NetCalibrator):
            X_val, y_val = beside.get("X_val"), beside.get("y_val")
            requests.append((calibrator, calibrator._request(X_own, y_own, None, X_val, y_val)))
        else:
            calibrator.fit(X_own, y_own, **beside)
    fits = _nets().fit_nets([request.job for _, request in requests])
    for (net, request), fit in zip(requests, fits, strict=True):
        net._finish(request, fit)
    return fitted


def links_beside(
    calibrator: Calibrator, validation: tuple[Any, Any] | None, base: tuple[Any, Any] | None
) -> dict[str, Any]:
    """Those of the links beside (X, y) that the calibrator's ``fit`` has parameters for, by parameter."""
    beside = {}
    for name, links in (("val", validation), ("base", base)):
        if links is not None and has_fit_parameter(calibrator, f"X_{name}"):
            beside[f"X_{name}"], beside[f"y_{name}"] = links
    return beside
