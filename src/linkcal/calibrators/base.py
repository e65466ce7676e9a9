"""The interface of a calibrator and the checks that all calibrators share."""

from __future__ import annotations

import re
from abc import abstractmethod
from typing import Any, ClassVar, Literal, NoReturn, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import validate_data

from linkcal._core.maths import sigmoid
from linkcal._core.validation import (
    check_finite,
    check_sample_weight,
    check_scores,
    in_container_of,
    to_numpy,
)
from linkcal.calibrators._state import FittedState, StateKind, unchanged_if_refused
from linkcal.calibrators.base_rate import fit_offset
from linkcal.exceptions import InputError

__all__ = [
    "Calibrator",
    "FloatArray",
    "LinkFeatures",
    "StateKind",
    "feature_columns",
    "known_labels",
    "said_name",
    "two_classes",
    "validated",
    "within_range",
]


# What calibrators check of their arguments: scikit-learn's checks, with linkcal's errors.

# Beyond these the products and quotients of a fit leave the range of float64. A probability knows no
# difference between the smallest and 0.
_CHECKS_LARGEST, _SMALLEST_LOGIT = 1e100, 1e-100


def validated(
    estimator: BaseEstimator, X: Any, y: Any = "no_validation", *, reset: bool
) -> tuple[FloatArray, Any]:
    """Return X (n, 1 + k), float64 and finite, and y as scikit-learn checks them.

    `reset` sets the estimator's ``n_features_in_``; without it X must have that many columns.
    """
    options: dict[str, Any] = {"dtype": np.float64, "ensure_all_finite": False, "reset": reset}
    if not isinstance(y, str) or y != "no_validation":
        options["y"] = _plain(y)
    try:
        checked = validate_data(estimator, _plain(X), **options)
    except ValueError as error:
        flat = re.match(r"Expected 2D array, got (1D|scalar) array", str(error))
        if flat is not None:
            # scikit-learn's own words go on with all the numbers.
            raise InputError(
                f"X must be 2D of shape (n, 1 + k) with the logit in column 0, got a {flat[1]} array. "
                "Reshape your data: X.reshape(-1, 1) if logits are all there is"
            ) from error
        _raise_input_error(error)
    X, y = checked if isinstance(checked, tuple) else (checked, None)
    check_finite(X, "X")
    # Columns side by side in memory: sums over column 0 then round alike whatever stands next to it.
    return np.asfortranarray(within_range(X)), y


def two_classes(
    X: FloatArray, y: Any, sample_weight: Any
) -> tuple[FloatArray, FloatArray, FloatArray, NDArray[Any]]:
    """Return X, y as 0/1, positive weights (rows of weight 0 left out) and the two classes, sorted."""
    try:
        check_classification_targets(y)
    except ValueError as error:
        _raise_input_error(error)
    weight = check_sample_weight(sample_weight, len(y))
    kept = weight > 0.0
    X, y, weight = np.asfortranarray(X[kept]), y[kept], weight[kept]
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) == 1:
        raise InputError(f"y must hold two classes, got 1 class: {classes.tolist()[0]!r}")
    if len(classes) > 2:
        raise InputError(
            "Only binary classification is supported. The type of the target is "
            f"{type_of_target(y)}: y must hold two classes, got {len(classes)}"
        )
    return X, codes.astype(np.float64), weight, classes


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


def feature_columns(features: Any, shape: tuple[int, int], kind: str) -> FloatArray:
    """Link features of that kind as finite float64 of that shape; whatever they are if it has no columns."""
    if shape[1] == 0:
        return np.empty(shape)
    # bfloat16 has no NumPy type; it must be widened first.
    values = features.detach().double() if isinstance(features, torch.Tensor) else features
    array = np.asarray([] if values is None else to_numpy(values), dtype=np.float64)
    if array.shape != shape:
        got = "None" if features is None else str(array.shape)
        raise InputError(f"features ({kind}) must have shape {shape}, got {got}")
    return check_finite(array, "features")


def _plain(values: Any) -> Any:
    """Tensors as arrays, also those with gradients, in bfloat16 or on a GPU; anything else as it is."""
    return to_numpy(values) if isinstance(values, torch.Tensor) else values


def _raise_input_error(error: ValueError) -> NoReturn:
    # scikit-learn's words in one line, without the numbers that stand below some of them.
    raise InputError(" ".join(str(error).partition("\n[")[0].split())) from error


def within_range(X: FloatArray) -> FloatArray:
    """X with huge values clipped and tiny logits set to 0."""
    tiny = (np.abs(X[:, 0]) < _SMALLEST_LOGIT) & (X[:, 0] != 0.0)
    if tiny.any() or np.abs(X).max(initial=0.0) > _CHECKS_LARGEST:
        X = np.clip(X, -_CHECKS_LARGEST, _CHECKS_LARGEST)
        X[tiny, 0] = 0.0
    return X


# The interface of a calibrator and the checks that all calibrators share.

FloatArray = NDArray[np.float64]

#: Kinds of link features that a calibrator may ask for in columns 1.. of X: nothing, the link embedding
#: h, the difference h - h+ between the embedding without and with the target link, or the nine numbers
#: named by ``linkcal.features.STRUCTURAL_COLUMNS``.
LinkFeatures = Literal["none", "embedding", "difference", "structural"]

_LARGEST = float(np.finfo(np.float64).max)


class Calibrator(ClassifierMixin, FittedState, BaseEstimator):
    """Base of all calibrators: scikit-learn classifiers on ``X (n, 1 + k)`` with the logit in column 0.

    A subclass implements ``_fit`` and either ``_decision`` alone (maps that yield a logit) or
    ``_probability`` too (binning maps, whose probability is exact and whose logit is derived), and lists its
    fitted attributes in ``_state``.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The two labels, sorted; the second is the positive one ("link").
    n_features_in_ : int
        1 + k.
    offset_, offset_standard_error_ : float
        After :meth:`refresh` only: what is added to every calibrated logit, and how well it is known.

    Notes
    -----
    Binary only. Arithmetic is float64. A weight of k equals k copies of the row, a weight of 0 removes it.

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

    #: Which kind of link features columns 1.. must hold (``linkcal.features.FEATURE_KINDS``).
    link_features: ClassVar[LinkFeatures] = "none"

    @abstractmethod
    def _fit(self, X: FloatArray, y: FloatArray, weight: FloatArray) -> None:
        """Set the fitted attributes from checked X (n, 1 + k), y in {0, 1} and positive weights."""

    @abstractmethod
    def _decision(self, X: FloatArray) -> FloatArray:
        """Calibrated logit (n,) of checked X."""

    def _probability(self, X: FloatArray) -> FloatArray:
        """Calibrated probability (n,) of checked X."""
        return sigmoid(self._decision(X))

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit on calibration links.

        Parameters
        ----------
        X : array-like of shape (n, 1 + k)
            Uncalibrated logit in column 0, link features after it.
        y : array-like of shape (n,)
            Exactly two different labels; the larger one is the positive class.
        sample_weight : array-like of shape (n,), optional
            Non-negative counts.

        Returns
        -------
        self

        Raises
        ------
        InputError
            If X is not finite or not two-dimensional, if y does not hold exactly two classes (rows of
            weight 0 do not count), or if the weights do not fit. A fit that raises changes nothing.
        """
        with unchanged_if_refused(self):
            self._fit(*self._check_fit(X, y, sample_weight))
        return self

    def refitted(self, X: Any, y: Any) -> Self:
        """Return a copy fitted on other links, as cross-validation wants it.

        What was learned from base links (``StructuralCalibrator.base_``) is kept: it has not seen the
        calibration links.

        Parameters
        ----------
        X : array-like of shape (n, 1 + k)
        y : array-like of shape (n,)

        Returns
        -------
        Calibrator
        """
        fresh: Self = clone(self)
        return fresh.fit(X, y)

    def refresh(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Refit only the offset of the calibrated logit on new labels; the map's form stays.

        For links whose base rate has drifted since ``fit``: a hundred new labels move one number well, and a
        whole map badly. A second refresh replaces the first.

        Parameters
        ----------
        X : array-like of shape (n, 1 + k)
            As in ``fit``.
        y : array-like of shape (n,)
            Labels out of ``classes_``, both present.
        sample_weight : array-like of shape (n,), optional
            Non-negative counts.

        Returns
        -------
        self
            With ``offset_`` and ``offset_standard_error_``.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        InputError
            If X has another number of columns than in ``fit`` or is not finite, if a label is not one of
            ``classes_``, or only one class is present: the likelihood has no maximum then.

        Notes
        -----
        The offset b maximises the likelihood of ``sigmoid(z + b)``, z being the logit as it was fitted; its
        standard error is ``1 / sqrt(sum_i w_i p_i (1 - p_i))`` (Fisher information), right for independent
        links if an offset is all that has changed.

        Examples
        --------
        >>> from linkcal.calibrators import Platt
        >>> platt = Platt().fit([[0.0]] * 4, [1, 1, 0, 0])
        >>> platt.refresh([[0.0]] * 100, [1] * 10 + [0] * 90).predict_proba([[0.0]])[:, 1].round(6)
        array([0.1])
        >>> round(platt.offset_standard_error_, 6)  # 1 / sqrt(100 * 0.1 * 0.9)
        0.333333
        """
        X = self._check_predict(X)
        label = known_labels(y, len(X), self.classes_)
        weight = check_sample_weight(sample_weight, len(X))
        with unchanged_if_refused(self):
            self._forget_offset()
            self.offset_, self.offset_standard_error_ = fit_offset(self._finite_decision(X), label, weight)
        return self

    def decision_function(self, X: Any) -> FloatArray:
        """Calibrated logit, float64 of shape (n,), always finite.

        Parameters
        ----------
        X : array-like of shape (n, 1 + k)

        Returns
        -------
        ndarray of shape (n,)
        """
        return self._finite_decision(self._check_predict(X))

    def predict_proba(self, X: Any) -> FloatArray:
        """Probabilities ``(1 - p, p)`` of the two classes, in [0, 1].

        Parameters
        ----------
        X : array-like of shape (n, 1 + k)

        Returns
        -------
        ndarray of shape (n, 2)
        """
        p = self._bounded_probability(self._check_predict(X))
        return np.column_stack((1.0 - p, p))

    def predict(self, X: Any) -> NDArray[Any]:
        """Positive class where the calibrated logit is above 0 (p > 0.5), else the negative one.

        The same rule as in ``linkcal.metrics.accuracy`` and in scikit-learn: p = 0.5 is no link.

        Parameters
        ----------
        X : array-like of shape (n, 1 + k)

        Returns
        -------
        ndarray of shape (n,)
        """
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
            p in [0, 1] with the shape of `logit`: a tensor of the same dtype on the same device for a tensor,
            a list for a list, else an array (of the same dtype if that is floating).

        Raises
        ------
        InputError
            If `logit` has another shape or is not finite, or if `features` do not have the number of columns
            seen in ``fit``.
        NotFittedError
            Before ``fit``.

        Examples
        --------
        >>> from linkcal.calibrators import Identity
        >>> Identity().fit([[-1.0], [1.0]], [0, 1]).calibrate([0.0])
        [0.5]
        """
        self._require_fitted()
        # bfloat16 has no NumPy type; it must be widened first.
        values = logit.detach().double() if isinstance(logit, torch.Tensor) else logit
        column = check_scores(values, "logit")
        X = np.column_stack((column, self._check_features(features, len(column))))
        p = self._bounded_probability(within_range(X))
        return in_container_of(logit, p.reshape(to_numpy(values).shape))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        # A calibrator maps a given score; it is not meant to learn classes from arbitrary features.
        tags.classifier_tags.poor_score = True
        return tags

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
        """Check and return X, y as 0/1 and weights, without the rows of weight 0.

        Sets ``classes_`` and drops the offset of an earlier ``refresh``.
        """
        X, y = validated(self, X, y, reset=True)
        X, codes, weight, self.classes_ = two_classes(X, y, sample_weight)
        self._forget_offset()
        return X, codes, weight

    def _check_predict(self, X: Any) -> FloatArray:
        self._require_fitted()
        return validated(self, X, reset=False)[0]

    def _check_features(self, features: Any, n: int) -> FloatArray:
        """Columns 1.. for :meth:`calibrate`, (n, k); none for score-only calibrators."""
        expected = 0 if self.link_features == "none" else self.n_features_in_ - 1
        return feature_columns(features, (n, expected), self.link_features)


# How a warning names a calibrator.


def said_name(calibrator: object) -> str:
    """Name of the command line and of every table, as in ``CALIBRATORS``; the class for one that has none.

    Examples
    --------
    >>> from linkcal import StructuralCalibrator
    >>> said_name(StructuralCalibrator()), said_name(3)
    ('in-n-out-plus', 'int')
    """
    from linkcal.calibrators.registry import CALIBRATORS

    names = {spec.cls: name for name, spec in CALIBRATORS.items()}
    return next((names[cls] for cls in type(calibrator).__mro__ if cls in names), type(calibrator).__name__)
