"""Fitted attributes on their way to and from disk: float64 arrays and JSON values, nothing pickled."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from linkcal.exceptions import ArtifactError, NotFittedError

__all__ = ["FittedState", "StateKind", "checked", "exported", "unchanged_if_refused"]


#: Kind of a fitted attribute: a Python type, or the number of dimensions of a float64 array.
StateKind = type | int

# NumPy's numbers count as numbers; a bool does not.
_ABSTRACT: dict[type, type] = {float: Real, int: Integral}

# Fitted attributes that only ``refresh`` sets.
_REFRESHED: dict[str, StateKind] = {"offset_": float, "offset_standard_error_": float}


class FittedState(ABC):
    """What a calibrator is after its fit: which attributes it has, out into a state and back."""

    #: Fitted attributes that make up the state, beside ``classes_`` and ``n_features_in_``.
    _state: ClassVar[dict[str, StateKind]] = {}

    classes_: NDArray[Any]
    n_features_in_: int
    offset_: float
    offset_standard_error_: float

    @abstractmethod
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Calibrated logit (n,) of X (n, 1 + k)."""

    def get_state(self) -> dict[str, Any]:
        """Fitted attributes as float64 arrays and JSON values, by name.

        Together with the hyper-parameters (``get_params``) the state is the whole calibrator; nothing has
        to be pickled.

        Returns
        -------
        dict

        Examples
        --------
        >>> from linkcal.calibrators import Identity
        >>> Identity().fit([[-1.0], [1.0]], [0, 1]).get_state()
        {'classes_': [0, 1], 'n_features_in_': 1}
        """
        self._require_fitted()
        head = {"classes_": self.classes_.tolist(), "n_features_in_": int(self.n_features_in_)}
        kinds = self._state | ({} if not hasattr(self, "offset_") else _REFRESHED)
        return head | exported({name: getattr(self, name) for name in kinds}, kinds)

    def set_state(self, state: dict[str, Any]) -> Self:
        """Restore what :meth:`get_state` returned; afterwards the calibrator is fitted.

        Parameters
        ----------
        state : dict

        Returns
        -------
        self

        Raises
        ------
        ArtifactError
            If a key is missing or unknown, or a value has the wrong type, dimension or content. The
            calibrator is then left as it was.
        """
        kinds: dict[str, StateKind] = {"classes_": list, "n_features_in_": int, **self._state}
        if _REFRESHED.keys() & state.keys():
            kinds |= _REFRESHED
        fitted = checked(state, kinds, type(self).__name__)
        if fitted["n_features_in_"] < 1:
            raise ArtifactError(f"n_features_in_ must be >= 1, got {fitted['n_features_in_']}")
        if len(fitted["classes_"]) != 2:
            raise ArtifactError(f"classes_ must be a list of two labels, got {fitted['classes_']!r}")
        fitted["classes_"] = np.asarray(fitted["classes_"])
        with unchanged_if_refused(self):
            self._forget_offset()
            self.__dict__.update(fitted)
            try:
                self._check_together()
            except (ValueError, IndexError, TypeError) as error:
                name = type(self).__name__
                raise ArtifactError(f"state of {name} must fit together, got {error}") from error
        return self

    def _check_together(self) -> None:
        """Raise ValueError, IndexError or TypeError if the fitted attributes do not belong together."""
        # One row through the map: shapes that do not fit show here, not at the first use.
        self.decision_function(np.zeros((1, self.n_features_in_)))

    def _require_fitted(self) -> None:
        if not all(hasattr(self, name) for name in ("n_features_in_", "classes_", *self._state)):
            raise NotFittedError(f"{type(self).__name__} must be fitted first, call fit")

    def _forget_offset(self) -> None:
        for name in _REFRESHED:
            self.__dict__.pop(name, None)


@contextmanager
def unchanged_if_refused(target: object) -> Iterator[None]:
    """Give the object its attributes back if the block raises: what was fitted before still answers."""
    before = dict(vars(target))
    try:
        yield
    except BaseException:
        vars(target).clear()
        vars(target).update(before)
        raise


def exported(attributes: dict[str, Any], kinds: dict[str, StateKind]) -> dict[str, Any]:
    """Return copies of arrays and plain Python values of scalars."""
    return {
        name: np.array(attributes[name]) if isinstance(kind, int) else kind(attributes[name])
        for name, kind in kinds.items()
    }


def checked(state: dict[str, Any], kinds: dict[str, StateKind], owner: str) -> dict[str, Any]:
    """Return a copy of `state` with exactly the keys and kinds of `kinds`; else raise ArtifactError."""
    if set(state) != set(kinds):
        missing, unknown = sorted(set(kinds) - set(state)), sorted(set(state) - set(kinds))
        raise ArtifactError(
            f"state of {owner} must hold {', '.join(sorted(kinds))}, "
            f"got one with missing: {missing}, unknown: {unknown}"
        )
    return {name: _checked_value(name, state[name], kind) for name, kind in kinds.items()}


def _checked_value(name: str, value: Any, kind: StateKind) -> Any:
    if isinstance(kind, int):
        array = np.asarray(value)
        if array.dtype != np.float64 or array.ndim != kind or not np.isfinite(array).all():
            raise ArtifactError(
                f"{name} must be a finite float64 array with {kind} dimension(s), "
                f"got {array.dtype} of shape {array.shape}"
            )
        return array.copy()
    is_stray_bool = isinstance(value, bool) and kind is not bool
    if is_stray_bool or not isinstance(value, _ABSTRACT.get(kind, kind)):
        raise ArtifactError(f"{name} must be {kind.__name__}, got {value!r}")
    if isinstance(value, float) and not np.isfinite(value):
        raise ArtifactError(f"{name} must be finite, got {value!r}")
    return kind(value)
