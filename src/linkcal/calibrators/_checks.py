"""What calibrators check of their arguments: scikit-learn's checks, with linkcal's errors."""

from __future__ import annotations

import re
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import validate_data

from linkcal._validation import check_finite, check_sample_weight, to_numpy
from linkcal.exceptions import InputError

__all__ = ["feature_columns", "known_labels", "two_classes", "validated", "within_range"]

FloatArray = NDArray[np.float64]

# Beyond these the products and quotients of a fit leave the range of float64. A probability knows no
# difference between the smallest and 0.
_LARGEST, _SMALLEST_LOGIT = 1e100, 1e-100


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
    if tiny.any() or np.abs(X).max(initial=0.0) > _LARGEST:
        X = np.clip(X, -_LARGEST, _LARGEST)
        X[tiny, 0] = 0.0
    return X
