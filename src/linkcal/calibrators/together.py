"""Many calibrators fitted at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from linkcal.calibrators._net_calibrator import NetCalibrator
from linkcal.calibrators._net_fit import fit_nets
from linkcal.calibrators.base import Calibrator
from linkcal.exceptions import InputError

__all__ = ["fit_together", "links_beside"]


def fit_together(
    calibrators: Sequence[Calibrator],
    X: Sequence[Any],
    y: Sequence[Any],
    validation: Sequence[tuple[Any, Any] | None] | None = None,
    base: tuple[Any, Any] | None = None,
) -> list[Calibrator]:
    """Fit clones of calibrators, each on its own links; those with networks are trained as one batch.

    For several calibration seeds of one predictor: all networks (every seed, ECE weight and fold) share the
    cores, where single fits one after another would leave cores idle. Every result has the numbers of the
    single fit, to the last bit.

    Parameters
    ----------
    calibrators : sequence of Calibrator
        Unchanged. Give each seed its own calibrator (``random_state``); the same object may also stand in
        several places.
    X : sequence of array-like of shape (n, 1 + k)
        One per calibrator; n and k may differ.
    y : sequence of array-like of shape (n,)
        One per calibrator.
    validation : sequence of (X_val, y_val) or None, optional
        One per calibrator: links that choose lambda and the number of epochs, for the calibrators with
        networks (``X_val`` of their ``fit``). The others make no use of them.
    base : (X_base, y_base), optional
        Base links for the calibrators that build on them (``X_base`` of their ``fit``).

    Returns
    -------
    list of Calibrator
        Fitted, in the order given.

    Raises
    ------
    InputError
        If the sequences differ in length, or as ``fit`` of the calibrators does.

    Examples
    --------
    >>> import numpy as np
    >>> from linkcal.calibrators import EmbeddingMLP, Platt
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2, 50, 3))
    >>> y = (X[:, :, 0] + rng.normal(size=(2, 50)) > 0).astype(int)
    >>> nets = [EmbeddingMLP(max_iter=20, early_stopping=False, random_state=seed) for seed in (0, 1)]
    >>> fitted = fit_together([*nets, Platt()], [*X, X[0]], [*y, y[0]])
    >>> [type(calibrator).__name__ for calibrator in fitted]
    ['EmbeddingMLP', 'EmbeddingMLP', 'Platt']
    >>> alone = nets[1].fit(X[1], y[1])
    >>> bool((alone.predict_proba(X[1]) == fitted[1].predict_proba(X[1])).all())
    True
    """
    count = len(calibrators)
    held_out = [None] * count if validation is None else validation
    for values, name in ((X, "X"), (y, "y"), (held_out, "validation")):
        if len(values) != count:
            raise InputError(f"{name} must hold one item per calibrator ({count}), got {len(values)}")
    fitted: list[Calibrator] = [clone(calibrator) for calibrator in calibrators]
    asked = {}
    for place, (calibrator, part) in enumerate(zip(fitted, held_out, strict=True)):
        if isinstance(calibrator, NetCalibrator):
            X_val, y_val = (None, None) if part is None else part
            asked[place] = calibrator._ask(X[place], y[place], None, X_val, y_val)
        else:
            calibrator.fit(X[place], y[place], **links_beside(calibrator, part, base))
    for (place, request), fit in zip(asked.items(), fit_nets([a.job for a in asked.values()]), strict=True):
        net = fitted[place]
        if isinstance(net, NetCalibrator):
            net._take(request, fit)
    return fitted


def links_beside(
    calibrator: Calibrator, validation: tuple[Any, Any] | None, base: tuple[Any, Any] | None
) -> dict[str, Any]:
    """Those of the links beside (X, y) that the calibrator's ``fit`` takes, as its keyword arguments."""
    beside = {}
    for name, links in (("val", validation), ("base", base)):
        if links is not None and has_fit_parameter(calibrator, f"X_{name}"):
            beside[f"X_{name}"], beside[f"y_{name}"] = links
    return beside
