"""The penalised fit behind ``StructuralCalibrator``: its columns, standardised design, penalties, start."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from linkcal._columns import ATTRIBUTE_COLUMNS, STRUCTURAL_COLUMNS, STRUCTURE_COLUMNS, TOGGLE_COLUMNS
from linkcal._validation import check_choice
from linkcal.calibrators._additive import Term
from linkcal.calibrators._ridge import RidgeProblem
from linkcal.exceptions import InputError

__all__ = ["named_columns", "ridge_problem", "standardised"]

FloatArray = NDArray[np.float64]

#: Columns by name; sets are joined by "+".
_FEATURE_SETS: dict[str, tuple[str, ...]] = {
    "toggle": TOGGLE_COLUMNS,
    "structure": STRUCTURE_COLUMNS,
    "attributes": ATTRIBUTE_COLUMNS,
}


def named_columns(features: str, n_columns: int) -> tuple[list[str], list[int]]:
    """Names of the terms and their columns in X."""
    alone = ("all", "logit")
    parts = features.split("+") if isinstance(features, str) and features not in alone else [features]
    for part in parts:
        check_choice(part, "features", (*alone, *_FEATURE_SETS) if len(parts) == 1 else _FEATURE_SETS)
    structural = n_columns == 1 + len(STRUCTURAL_COLUMNS)
    if not structural and features not in alone:
        raise InputError(
            f"X must have {1 + len(STRUCTURAL_COLUMNS)} columns for features={features!r} (the logit and "
            f"{', '.join(STRUCTURAL_COLUMNS)}), got {n_columns}"
        )
    names = STRUCTURAL_COLUMNS if structural else tuple(f"feature_{j}" for j in range(1, n_columns))
    wanted = set(names if features == "all" else ())
    wanted.update(*(_FEATURE_SETS.get(part, ()) for part in parts))
    columns = [0, *(j for j, name in enumerate(names, start=1) if name in wanted)]
    return ["logit", *(name for name in names if name in wanted)], columns


def standardised(terms: list[Term], weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Design matrix (n, 1 + m) with a first column of ones, and the deviations (m,) it was divided by."""
    design = np.column_stack((np.ones(len(weight)), *(term.block for term in terms)))
    body = design[:, 1:]
    average = np.average(body, axis=0, weights=weight)
    body -= average
    deviation = np.sqrt(np.average(body**2, axis=0, weights=weight))
    # A constant column keeps its rounding noise, which the penalty holds at coefficient 0.
    deviation[deviation <= 1e-12 * np.maximum(1.0, np.abs(average))] = 1.0
    body /= deviation
    return design, deviation


def ridge_problem(
    design: FloatArray, terms: list[Term], y: FloatArray, weight: FloatArray
) -> tuple[RidgeProblem, FloatArray, FloatArray]:
    """The penalised fit, the relative penalties (1 + m,), and a start that fits the share of links."""
    positive = np.concatenate([np.full(len(term.penalty), term.positive) for term in terms])
    lower = np.r_[-np.inf, np.where(positive, 0.0, -np.inf)]
    strength = np.concatenate(([0.0], *(term.penalty for term in terms)))
    # Below 1, to which weights of 1 and 1e-17 round: the start must be finite.
    share = min(float(weight @ y / weight.sum()), float(np.nextafter(1.0, 0.0)))
    start = np.zeros(design.shape[1])
    start[0] = np.log(share) - np.log1p(-share)
    return RidgeProblem(design, y, weight, lower, np.zeros_like(start)), strength, start
