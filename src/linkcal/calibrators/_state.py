"""Fitted attributes on their way to and from disk: float64 arrays and JSON values, nothing pickled."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np

from linkcal.exceptions import ArtifactError

__all__ = ["StateKind", "checked", "exported"]

#: Kind of a fitted attribute: a Python type, or the number of dimensions of a float64 array.
StateKind = type | int

# NumPy's numbers count as numbers; a bool does not.
_ABSTRACT: dict[type, type] = {float: Real, int: Integral}


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
