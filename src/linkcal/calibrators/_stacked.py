"""A calibrator of few links on top of one of many: what its base is, and how it travels with the rest."""

from __future__ import annotations

from typing import Any, Self

from sklearn.base import clone

from linkcal.calibrators._checks import known_labels, validated
from linkcal.calibrators._state import unchanged_if_refused
from linkcal.calibrators.base import Calibrator
from linkcal.exceptions import InputError

__all__ = ["Stacked"]

# Where the base's fitted attributes are in a state.
_PREFIX = "base_."


class Stacked(Calibrator):
    """A calibrator whose ``fit`` takes base links too; a subclass reads ``base_`` in its map."""

    #: Of the same class and settings, fitted on the base links; None without them.
    base_: Self | None

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, X_base: Any = None, y_base: Any = None
    ) -> Self:
        """Fit on calibration links.

        Parameters
        ----------
        X : array-like of shape (n, 1 + k)
            Uncalibrated logit in column 0, link features of the kind ``link_features`` after it.
        y : array-like of shape (n,)
            Exactly two different labels; the larger one is the positive class.
        sample_weight : array-like of shape (n,), optional
            Non-negative counts.
        X_base, y_base : array-like, optional
            Base links: many, but of another kind, such as training links scored leave-one-out. The logit
            fitted on them becomes an input of the fit on (X, y).

        Returns
        -------
        self

        Raises
        ------
        InputError
            As for the other calibrators; also if only one of `X_base` and `y_base` is given, or `y_base` has
            not both labels of `y`. A fit that raises changes nothing.
        """
        with unchanged_if_refused(self):
            X, y, weight = self._check_fit(X, y, sample_weight)
            given = X_base is not None or y_base is not None
            self.base_ = self._fitted_base(X_base, y_base) if given else None
            self._fit(X, y, weight)
        return self

    def refitted(self, X: Any, y: Any) -> Self:
        fresh: Self = clone(self)
        X, y, weight = fresh._check_fit(X, y, None)
        fresh.base_ = getattr(self, "base_", None)
        fresh._fit(X, y, weight)
        return fresh

    def get_state(self) -> dict[str, Any]:
        state = super().get_state()
        base = {} if self.base_ is None else self.base_.get_state()
        return state | {_PREFIX + name: value for name, value in base.items()}

    def set_state(self, state: dict[str, Any]) -> Self:
        own = {name: value for name, value in state.items() if not str(name).startswith(_PREFIX)}
        base = {str(name).removeprefix(_PREFIX): state[name] for name in state if name not in own}
        with unchanged_if_refused(self):
            self.base_ = clone(self).set_state(base) if base else None
            return super().set_state(own)

    def _check_together(self) -> None:
        if self.base_ is not None and self.base_.n_features_in_ != self.n_features_in_:
            raise ValueError(f"a base of {self.base_.n_features_in_} columns under {self.n_features_in_}")
        super()._check_together()

    def _fitted_base(self, X_base: Any, y_base: Any) -> Self:
        if X_base is None or y_base is None:
            raise InputError("X_base and y_base must be given together, got only one of them")
        try:
            X, y = validated(self, X_base, y_base, reset=False)
        except InputError as error:
            raise InputError(f"X_base and y_base must be links as X and y are: {error}") from error
        label = known_labels(y, len(X), self.classes_, "y_base")
        if label.min() == label.max():
            raise InputError(f"y_base must hold both labels {self.classes_.tolist()}, got only {y[0]}")
        base: Self = clone(self)
        return base.fit(X, y)
