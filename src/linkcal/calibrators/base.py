"""The interface of a calibrator: checks, fit, refresh, prediction, and the state on its way to disk."""

import sys
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Literal, NoReturn, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import validate_data

from linkcal._core.maths import logit, sigmoid
from linkcal._core.validation import (
    check_finite,
    check_sample_weight,
    check_scores,
    in_container_of,
    is_tensor,
    to_numpy,
)
from linkcal.calibrators.base_rate import fit_offset
from linkcal.exceptions import ArtifactError, InputError, LinkcalWarning, NotFittedError

FloatArray = NDArray[np.float64]

#: What columns 1.. of X hold: nothing, the link embedding h, the difference h - h+ between the embedding
#: without and with the target link, or the columns ``linkcal.features.STRUCTURAL_COLUMNS``, or those of them
#: that need no model, ``linkcal.features.STRUCTURE_COLUMNS``.
LinkFeatures = Literal["none", "embedding", "difference", "structural", "structure"]

#: Kind of a fitted attribute: a Python type, or the number of dimensions of a float64 array.
StateKind = type | int

# NumPy's numbers count as numbers; a bool does not.
_ABSTRACT: dict[type, type] = {float: Real, int: Integral}

# Fitted attributes that a state may hold: after ``refresh``, and of an X that was a DataFrame.
_REFRESHED: dict[str, StateKind] = {"offset_": float, "offset_standard_error_": float}
_FRAMED: dict[str, StateKind] = {"feature_names_in_": list}

# Beyond these the products and quotients of a fit leave the range of float64.
_LARGEST_INPUT, _SMALLEST_LOGIT = 1e100, 1e-100
_LARGEST = float(np.finfo(np.float64).max)

_PACKAGE = str(Path(__file__).resolve().parents[1])


class Calibrator(ClassifierMixin, BaseEstimator):
    """Base of all calibrators: scikit-learn classifiers on ``X (n, 1 + k)`` with the logit in column 0.

    A subclass lists its fitted attributes in ``_state`` and implements ``_fit`` and ``_decision`` or, if its
    probability is exact and its logit derived (binning maps), ``_probability``. Binary only, in float64.
    A weight of k equals k copies of the row; a weight of 0 removes it.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The two labels, sorted; the second is the positive one ("link").
    n_features_in_, feature_names_in_ : int, ndarray of shape (1 + k,)
        1 + k; the names only if X was a DataFrame whose column names are strings.
    offset_, offset_standard_error_ : float
        After :meth:`refresh` only: what is added to every calibrated logit, and its standard error.

    Examples
    --------
    >>> class Shift(Calibrator):
    ...     _state = {"shift_": float}
    ...     def _fit(self, X, y, weight):
    ...         self.shift_ = float(np.average(y, weights=weight)) - 0.5
    ...     def _decision(self, X):
    ...         return X[:, 0] + self.shift_
    >>> Shift().fit([[0.0], [1.0], [2.0], [3.0]], [0, 1, 1, 1]).decision_function([[1.0]])
    array([1.25])
    """

    #: Name on the command line and in every table, and what the calibrator does, in one line.
    name: ClassVar[str] = ""
    description: ClassVar[str] = ""
    #: Values of hyper-parameters for ``GridSearchCV`` or ``RandomizedSearchCV``.
    search: ClassVar[dict[str, list[Any]]] = {}
    #: Whether a fit makes thousands of passes over the links.
    trains_network: ClassVar[bool] = False
    #: Which kind of link features columns 1.. must hold (``linkcal.features.FEATURE_KINDS``).
    link_features: ClassVar[LinkFeatures] = "none"
    #: Fitted attributes that make up the state, beside ``classes_`` and ``n_features_in_``.
    _state: ClassVar[dict[str, StateKind]] = {}
    classes_: NDArray[Any]
    n_features_in_: int

    @abstractmethod
    def _fit(self, X: FloatArray, y: FloatArray, weight: FloatArray) -> None:
        """Set the fitted attributes from checked X (n, 1 + k), y in {0, 1} and positive weights."""

    def _decision(self, X: FloatArray) -> FloatArray:
        """Calibrated logit (n,) of checked X."""
        return logit(self._probability(X))

    def _probability(self, X: FloatArray) -> FloatArray:
        """Calibrated probability (n,) of checked X."""
        return sigmoid(self._decision(X))

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit on calibration links; a fit that raises changes nothing.

        Parameters
        ----------
        X : array-like of shape (n, 1 + k)
            Uncalibrated logit in column 0, link features after it.
        y : array-like of shape (n,)
            Exactly two different labels (in rows of positive weight); the larger one is the positive class.
        sample_weight : array-like of shape (n,), optional, >= 0
        """
        with unchanged_if_refused(self):
            self._fit(*self._check_fit(X, y, sample_weight))
        return self

    def refitted(self, X: Any, y: Any) -> Self:
        """A copy fitted on other links, for cross-validation; the base (``base_``) is kept."""
        return self.clone_for(None).fit(X, y)

    def clone_for(self, names: Sequence[str] | None) -> Self:
        """An unfitted copy with these ``feature_names`` of columns 1.. of X, unless it has some."""
        fresh: Self = clone(self)
        if names is not None and getattr(fresh, "feature_names", names) is None:
            fresh.set_params(feature_names=list(names))
        return fresh

    def refresh(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Refit only the offset of the calibrated logit on new labels; the rest of the map stays.

        Use it when the base rate has drifted since ``fit``: a hundred labels determine one number well, a
        whole map badly. Arguments are as in ``fit``, which must come first; both labels of ``classes_`` must
        be present. ``offset_``, b, maximises the likelihood of ``sigmoid(z + b)``, z being the logit as it
        was fitted; ``offset_standard_error_``, ``1 / sqrt(sum_i w_i p_i (1 - p_i))``, holds for independent
        links if nothing else has changed. A second refresh replaces the first.
        """
        X = self._check_predict(X)
        label = known_labels(y, len(X), self.classes_)
        weight = check_sample_weight(sample_weight, len(X))
        with unchanged_if_refused(self):
            self._forget(_REFRESHED)
            self.offset_, self.offset_standard_error_ = fit_offset(self._finite_decision(X), label, weight)
        return self

    def decision_function(self, X: Any) -> FloatArray:
        """Calibrated logit of X (n, 1 + k), float64 of shape (n,), always finite."""
        return self._finite_decision(self._check_predict(X))

    def predict_proba(self, X: Any) -> FloatArray:
        """Probabilities ``(1 - p, p)`` of the two classes of X (n, 1 + k), in [0, 1], shape (n, 2)."""
        p = self._bounded_probability(self._check_predict(X))
        return np.column_stack((1.0 - p, p))

    def predict(self, X: Any) -> NDArray[Any]:
        """Positive class where p > 0.5, as in ``linkcal.metrics.accuracy``, else the negative one, (n,)."""
        positive = self.decision_function(X) > 0.0
        return np.asarray(self.classes_[positive.astype(np.intp)])

    def calibrate(self, logit: Any, features: Any = None) -> Any:
        """Link probabilities in the container of the logits.

        Parameters
        ----------
        logit : Tensor, ndarray or list, of shape (n,) or (n, 1); n may be 0
            Uncalibrated logits.
        features : array-like or Tensor of shape (n, k), optional
            Link features; calibrators with ``link_features == "none"`` ignore them.

        Returns
        -------
        Tensor, ndarray or list
            p in [0, 1] in the shape, container, device and (if floating) dtype of `logit`.
        """
        self._require_fitted()
        column = check_scores(logit, "logit")
        X = np.column_stack((column, self._check_features(features, len(column))))
        p = self._bounded_probability(_within_range(X))
        return in_container_of(logit, p.reshape(to_numpy(logit).shape))

    def get_state(self) -> dict[str, Any]:
        """Fitted attributes as float64 arrays and JSON values; with ``get_params`` the whole calibrator."""
        self._require_fitted()
        state = dict[str, Any](classes_=self.classes_.tolist(), n_features_in_=int(self.n_features_in_))
        for name, kind in {**self._state, **_REFRESHED, **_FRAMED}.items():
            if hasattr(self, name):
                value = getattr(self, name)
                state[name] = np.array(value) if isinstance(kind, int) else kind(value)
        return state

    def set_state(self, state: dict[str, Any]) -> Self:
        """Restore what :meth:`get_state` returned; ArtifactError, and no change, if that does not fit."""
        kinds: dict[str, StateKind] = {"classes_": list, "n_features_in_": int, **self._state}
        for group in (_REFRESHED, _FRAMED):
            kinds |= group if group.keys() & state.keys() else {}
        missing, unknown = sorted(kinds.keys() - state), sorted(state.keys() - kinds)
        if missing or unknown:
            raise ArtifactError(
                f"state of {type(self).__name__} must hold {', '.join(sorted(kinds))}, "
                f"got one with missing: {missing}, unknown: {unknown}"
            )
        fitted = {key: _checked_value(key, state[key], kind) for key, kind in kinds.items()}
        if fitted["n_features_in_"] < 1:
            raise ArtifactError(f"n_features_in_ must be >= 1, got {fitted['n_features_in_']}")
        if len(fitted["classes_"]) != 2:
            raise ArtifactError(f"classes_ must be a list of two labels, got {fitted['classes_']!r}")
        fitted["classes_"] = np.asarray(fitted["classes_"])
        if "feature_names_in_" in fitted:
            fitted["feature_names_in_"] = np.asarray(fitted["feature_names_in_"], dtype=object)
        with unchanged_if_refused(self):
            self._forget(_REFRESHED | _FRAMED)
            self.__dict__.update(fitted)
            try:
                self._check_together()
            except (ValueError, IndexError, TypeError) as error:
                raise ArtifactError(f"state of {self._shown_name} must fit together, got {error}") from error
        return self

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        # A calibrator maps a given score; it is not meant to learn classes from arbitrary features.
        tags.classifier_tags.poor_score = True
        return tags

    @property
    def _shown_name(self) -> str:
        """How messages name the calibrator."""
        return self.name or type(self).__name__

    def _check_together(self) -> None:
        """Raise ValueError, IndexError or TypeError if the fitted attributes do not belong together."""
        names = getattr(self, "feature_names_in_", None)
        if names is not None and len(names) != self.n_features_in_:
            raise ValueError(f"{len(names)} feature_names_in_ for {self.n_features_in_} columns")
        # One row through the map: shapes that do not fit show here, not at the first use.
        self._finite_decision(np.zeros((1, self.n_features_in_)))

    def _finite_decision(self, X: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            decision = self._decision(X) + getattr(self, "offset_", 0.0)
        return np.clip(decision, -_LARGEST, _LARGEST)

    def _bounded_probability(self, X: FloatArray) -> FloatArray:
        if hasattr(self, "offset_"):
            # From the logit: a probability that has rounded to 1 cannot be moved any more.
            return sigmoid(self._finite_decision(X))
        with np.errstate(over="ignore"):
            p = self._probability(X)
        # An average of numbers in [0, 1] can round to 1.0000000000000002.
        return np.clip(p, 0.0, 1.0)

    def _check_fit(self, X: Any, y: Any, sample_weight: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Checked X, y as 0/1 and positive weights (rows of weight 0 left out); sets ``classes_``."""
        X, y = validated(self, X, y, reset=True)
        try:
            check_classification_targets(y)
        except ValueError as error:
            _raise_input_error(error)
        weight = check_sample_weight(sample_weight, len(y))
        kept = weight > 0.0
        X, y, weight = np.asfortranarray(X[kept]), y[kept], weight[kept]
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) == 1:
            raise InputError(f"y must hold two classes, got 1 class: {self.classes_.tolist()[0]!r}")
        if len(self.classes_) > 2:
            raise InputError(
                "Only binary classification is supported. The type of the target is "
                f"{type_of_target(y)}: y must hold two classes, got {len(self.classes_)}"
            )
        self._forget(_REFRESHED)
        return X, codes.astype(np.float64), weight

    def _check_predict(self, X: Any) -> FloatArray:
        self._require_fitted()
        return validated(self, X, reset=False)[0]

    def _check_features(self, features: Any, n: int) -> FloatArray:
        """Columns 1.. for :meth:`calibrate`, (n, k); none for score-only calibrators."""
        shape = (n, 0 if self.link_features == "none" else self.n_features_in_ - 1)
        if shape[1] == 0:
            return np.empty(shape)
        given, names = getattr(features, "columns", None), getattr(self, "feature_names_in_", None)
        if given is not None and names is not None and list(given) != list(names[1:]):
            raise InputError(f"features must have the columns {list(names[1:])}, got {list(given)}")
        array = np.asarray([] if features is None else to_numpy(features), dtype=np.float64)
        if array.shape != shape:
            got = "None" if features is None else str(array.shape)
            raise InputError(f"features ({self.link_features}) must have shape {shape}, got {got}")
        return check_finite(array, "features")

    def _require_fitted(self) -> None:
        if not all(hasattr(self, name) for name in ("n_features_in_", "classes_", *self._state)):
            raise NotFittedError(f"{type(self).__name__} must be fitted first, call fit")

    def _forget(self, names: dict[str, StateKind]) -> None:
        for name in names:
            self.__dict__.pop(name, None)


@contextmanager
def unchanged_if_refused(target: object) -> Iterator[None]:
    """Give the object its attributes back if the block raises."""
    before = dict(vars(target))
    try:
        yield
    except BaseException:
        vars(target).clear()
        vars(target).update(before)
        raise


_collected: ContextVar[list[LinkcalWarning] | None] = ContextVar("_collected", default=None)


@contextmanager
def collected_warnings() -> Iterator[list[LinkcalWarning]]:
    """Keep what :func:`warn_caller` would issue in the block, in this thread, in a list."""
    kept: list[LinkcalWarning] = []
    token = _collected.set(kept)
    try:
        yield kept
    finally:
        _collected.reset(token)


def warn_caller(message: str, category: type[LinkcalWarning]) -> None:
    """Warn at the line outside of linkcal that led here."""
    kept = _collected.get()
    if kept is not None:
        kept.append(category(message))
        return
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def validated(
    estimator: BaseEstimator, X: Any, y: Any = "no_validation", *, reset: bool
) -> tuple[FloatArray, Any]:
    """X (n, 1 + k), float64 and finite, and y, by scikit-learn's checks with linkcal's errors.

    `reset` sets the estimator's ``n_features_in_``; without it X must have that many columns.
    """
    options: dict[str, Any] = {"dtype": np.float64, "ensure_all_finite": False, "reset": reset}
    X, y = (to_numpy(values) if is_tensor(values) else values for values in (X, y))
    try:
        checked = validate_data(estimator, X, y, **options)
    except ValueError as error:
        if str(error).startswith("Expected 2D array, got"):
            raise InputError(
                f"X must be 2D of shape (n, 1 + k) with the logit in column 0, got a {np.ndim(X)}D array. "
                "Reshape your data: X.reshape(-1, 1) if logits are all there is"
            ) from error
        _raise_input_error(error)
    X, y = checked if isinstance(checked, tuple) else (checked, None)
    check_finite(X, "X")
    # Column-major: sums over column 0 then round alike whatever columns stand next to it.
    return np.asfortranarray(_within_range(X)), y


def known_labels(y: Any, n: int, classes: NDArray[Any], name: str = "y") -> FloatArray:
    """Labels (n,) as 0/1, which must be out of `classes`."""
    label = to_numpy(y)
    if label.shape != (n,):
        raise InputError(f"{name} must have shape ({n},), got {label.shape}")
    unknown = ~np.isin(label, classes)
    if unknown.any():
        raise InputError(
            f"{name} must hold only the labels of fit, {classes.tolist()}, got {label[unknown].tolist()[0]!r}"
        )
    return np.asarray(label == classes[1], dtype=np.float64)


def _raise_input_error(error: ValueError) -> NoReturn:
    # scikit-learn's message in one line, without the numbers below it.
    raise InputError(" ".join(str(error).partition("\n[")[0].split())) from error


def _within_range(X: FloatArray) -> FloatArray:
    """X with huge values clipped and tiny logits set to 0."""
    tiny = (np.abs(X[:, 0]) < _SMALLEST_LOGIT) & (X[:, 0] != 0.0)
    if tiny.any() or np.abs(X).max(initial=0.0) > _LARGEST_INPUT:
        X = np.clip(X, -_LARGEST_INPUT, _LARGEST_INPUT)
        X[tiny, 0] = 0.0
    return X


def _checked_value(name: str, value: Any, kind: StateKind) -> Any:
    """A copy of a state's value; ArtifactError if it is of another kind."""
    if isinstance(kind, int):
        array = np.asarray(value)
        if array.dtype != np.float64 or array.ndim != kind or not np.isfinite(array).all():
            raise ArtifactError(
                f"{name} must be a finite float64 array with {kind} dimension(s), "
                f"got {array.dtype} of shape {array.shape}"
            )
        return array.copy()
    if isinstance(value, bool) != (kind is bool) or not isinstance(value, _ABSTRACT.get(kind, kind)):
        raise ArtifactError(f"{name} must be {kind.__name__}, got {value!r}")
    if isinstance(value, float) and not np.isfinite(value):
        raise ArtifactError(f"{name} must be finite, got {value!r}")
    return kind(value)
